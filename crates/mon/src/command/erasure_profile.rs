//! `ceph osd erasure-code-profile`.

use serde_json::json;

use super::{Call, Done, Reply, commands, committed, errno, now, refuse};
use crate::core::{Turn, View};
use crate::erasure::{self, Profile, braces};

commands! {
    "osd erasure-code-profile set name:String[A-Za-z0-9-_.] profile?:String... force?:Bool" "osd" "rw" set,
        "store an erasure-code profile";
    "osd erasure-code-profile rm name:String[A-Za-z0-9-_.]" "osd" "rw" rm, "remove an erasure-code profile";
    "osd erasure-code-profile ls" "osd" "r" ls, "list the erasure-code profiles";
    "osd erasure-code-profile get name:String[A-Za-z0-9-_.]" "osd" "r" get, "show an erasure-code profile";
}

/// The option whose value is the default profile.
const DEFAULT: &str = "osd_pool_default_erasure_code_profile";

/// The profile of this name. The one called `default` is always there: where it has been removed, it
/// becomes part of the next map.
pub(super) fn find(m: &mut Turn<'_>, name: &str) -> Option<Profile> {
    if let Some(found) = m.view.state.osd.map.erasure_code_profiles.get(name) {
        return Some(found.clone());
    }
    if name != "default" {
        return None;
    }
    let profile = erasure::parse_words(m.view.values.get(DEFAULT));
    let inc = m.pending_osd();
    inc.new_erasure_code_profiles
        .insert(name.to_owned(), profile.clone());
    Some(profile)
}

/// Refuses where pools have a profile.
fn check_unused(m: &View, name: &str) -> Result<(), Reply> {
    let map = &m.state.osd.map;
    let users = map
        .pools
        .iter()
        .filter(|(_, p)| p.is_erasure() && p.erasure_code_profile == name);
    let users: Vec<&str> = users.filter_map(|(id, _)| map.pool_name(*id)).collect();
    if users.is_empty() {
        return Ok(());
    }
    refuse(
        errno::EBUSY,
        format!(
            "{} pool(s) are using the erasure code profile '{name}'",
            users.join(" ")
        ),
    )
}

fn set(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, force) = (call.args.str("name")?, call.args.flag("force"));
    let mut profile = erasure::merged(m.view.values.get(DEFAULT), &call.args.list("profile"))?;
    let map = &m.view.state.osd.map;
    if let Some(domain) = profile.get("crush-failure-domain")
        && map.crush.map().type_id(domain).is_none()
    {
        return refuse(
            errno::EINVAL,
            format!(
                "erasure-code-profile {} contains an invalid failure-domain \"{domain}\"",
                braces(&profile)
            ),
        );
    }
    erasure::normalise(&mut profile, force)?;
    if let Some(mut old) = map.erasure_code_profiles.get(&name).cloned() {
        erasure::normalise(&mut old, force)?;
        if old == profile {
            return now(Reply::default());
        }
        if !force {
            return refuse(
                errno::EPERM,
                format!(
                    "will not override erasure code profile {name} because the existing profile {} is different from the proposed profile {}",
                    braces(&old),
                    braces(&profile)
                ),
            );
        }
        // Of a pool with data it says how those are stored. The official monitor would change it.
        check_unused(m.view, &name)?;
    }
    m.pending_osd().new_erasure_code_profiles.insert(name, profile);
    committed("")
}

fn rm(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("name")?;
    check_unused(m.view, &name)?;
    if !m.view.state.osd.map.erasure_code_profiles.contains_key(&name) {
        let text = format!("erasure-code-profile {name} does not exist");
        return now(Reply::status(text));
    }
    m.pending_osd().old_erasure_code_profiles.push(name);
    committed("")
}

fn ls(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let profiles = &m.view.state.osd.map.erasure_code_profiles;
    if call.format.is_structured() {
        return now(Reply::json(call.format, &profiles.keys().cloned().collect()));
    }
    now(Reply::text(
        profiles.keys().map(|n| format!("{n}\n")).collect::<String>(),
    ))
}

fn get(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("name")?;
    let Some(p) = m.view.state.osd.map.erasure_code_profiles.get(&name) else {
        return refuse(errno::ENOENT, format!("unknown erasure code profile '{name}'"));
    };
    if call.format.is_structured() {
        return now(Reply::json(call.format, &json!(p)).with_newline());
    }
    now(Reply::text(
        p.iter().map(|(k, v)| format!("{k}={v}\n")).collect::<String>(),
    ))
}
