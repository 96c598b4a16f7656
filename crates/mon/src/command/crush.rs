//! Changes to the CRUSH map's rules, classes and tunables, and to the map as a whole.

use spirula_crush::{CrushMap, Profile, RULE_REPLICATED, RuleMode, SimpleRule};
use spirula_maps::{CrushBlob, OsdId};

use super::osd_id::joined;
use super::{Call, Done, Reply, commands, committed, erasure_profile, errno, now, refuse};
use crate::core::{Turn, View};
use crate::erasure;

commands! {
    "osd setcrushmap prior_version?:Int" "osd" "rw" set_map, "replace the CRUSH map by that of -i FILE";
    "osd crush rule create-replicated name:String[A-Za-z0-9-_.] root:String[A-Za-z0-9-_.] type:String[A-Za-z0-9-_.] class?:String[A-Za-z0-9-_.]"
        "osd" "rw" create_replicated, "create a rule that spreads replicas over buckets of a type";
    "osd crush rule create-simple name:String[A-Za-z0-9-_.] root:String[A-Za-z0-9-_.] type:String[A-Za-z0-9-_.] mode?:{firstn|indep}"
        "osd" "rw" create_simple, "create a rule that spreads replicas over buckets of a type, in a mode";
    "osd crush rule create-erasure name:String[A-Za-z0-9-_.] profile?:String[A-Za-z0-9-_.=]" "osd" "rw" create_erasure,
        "create a rule for an erasure-code profile";
    "osd crush rule rm name:String[A-Za-z0-9-_.]" "osd" "rw" rule_rm, "remove a rule";
    "osd crush rule rename srcname:String[A-Za-z0-9-_.] dstname:String[A-Za-z0-9-_.]" "osd" "rw" rule_rename,
        "rename a rule";
    "osd crush tunables profile:{legacy|argonaut|bobtail|firefly|hammer|jewel|optimal|default}" "osd" "rw" tunables,
        "set the tunables to those of a release";
    "osd crush set-tunable tunable:{straw_calc_version} value:Int" "osd" "rw" set_tunable, "set a tunable";
    "osd crush set-device-class class:String ids:String..." "osd" "rw" set_class, "set OSDs' device class";
    "osd crush rm-device-class ids:String..." "osd" "rw" rm_class, "remove OSDs' device class";
    "osd crush class create class:String[A-Za-z0-9-_]" "osd" "rw" class_create, "create a device class";
    "osd crush class rm class:String[A-Za-z0-9-_]" "osd" "rw" class_rm, "remove a device class";
    "osd crush set-all-straw-buckets-to-straw2" "osd" "rw" straw2, "convert all straw buckets to straw2";
    "osd crush class rename srcname:String[A-Za-z0-9-_] dstname:String[A-Za-z0-9-_]" "osd" "rw" class_rename,
        "rename a device class";
}

/// A refusal by the CRUSH code as a reply.
pub(super) fn crush_error(e: &spirula_crush::Error) -> Reply {
    Reply::error(e.errno(), e.to_string())
}

/// Makes a change to the CRUSH map part of the next OSDMap.
pub(super) fn edit<T>(
    m: &mut Turn<'_>,
    change: impl FnOnce(&mut CrushMap) -> Result<T, spirula_crush::Error>,
) -> Result<T, Reply> {
    let mut crush = (**m.view.state.osd.map.crush.map()).clone();
    let value = change(&mut crush).map_err(|e| crush_error(&e))?;
    m.pending_osd().crush = CrushBlob::new(crush).raw().clone();
    Ok(value)
}

/// The official words for a map that does not decode.
fn parse_error(e: &spirula_denc::Error) -> String {
    match e {
        spirula_denc::Error::Truncated { .. } => "End of buffer".to_owned(),
        spirula_denc::Error::Invalid("CRUSH magic") => "bad magic number: Malformed input".to_owned(),
        other => format!("{other}: Malformed input"),
    }
}

pub(super) fn set_map(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let new: CrushMap = spirula_denc::decode_all(call.input).map_err(|e| {
        Reply::error(
            errno::EINVAL,
            format!("Failed to parse crushmap: {}", parse_error(&e)),
        )
    })?;
    let current = m.view.state.osd.map.crush_version;
    if let Some(prior) = call.args.opt_int("prior_version")?
        && prior != i64::from(current)
    {
        // A client that sends its change again, as it has missed the answer.
        let is_again = prior + 1 == i64::from(current)
            && CrushBlob::new(new).raw()
                == CrushBlob::new((**m.view.state.osd.map.crush.map()).clone()).raw();
        if is_again {
            return now(Reply::status(current.to_string()));
        }
        return refuse(
            errno::EPERM,
            format!("prior_version {prior} != crush version {current}"),
        );
    }
    for (id, p) in &m.view.state.osd.map.pools {
        let number = p.crush_rule;
        let why = match new.rule(u32::from(number)) {
            None => format!("pool {id} references crush_rule {number} but it is not present"),
            Some(rule) if rule.rule_type != p.kind.0 => {
                format!("pool {id} type does not match rule {number}")
            }
            Some(_) => continue,
        };
        return refuse(errno::EINVAL, why);
    }
    if u32::try_from(new.max_devices).unwrap_or(0) > m.view.state.osd.map.max_osd.max(65_536) {
        return refuse(errno::EINVAL, "too many devices");
    }
    let version = current + 1;
    m.pending_osd().crush = CrushBlob::new(new).raw().clone();
    committed(version.to_string())
}

fn create_replicated(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, root) = (call.args.str("name")?, call.args.str("root")?);
    let (kind, class) = (call.args.str("type")?, call.args.opt_str("class"));
    create_rule(
        m,
        &SimpleRule {
            name: &name,
            root: &root,
            failure_domain: &kind,
            device_class: class.as_deref(),
            mode: RuleMode::Firstn,
            rule_type: RULE_REPLICATED,
            number: None,
        },
    )
}

fn create_simple(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, root) = (call.args.str("name")?, call.args.str("root")?);
    let kind = call.args.str("type")?;
    let mode = call.args.opt_str("mode").filter(|t| !t.is_empty());
    create_rule(
        m,
        &SimpleRule {
            name: &name,
            root: &root,
            failure_domain: &kind,
            device_class: None,
            mode: mode
                .and_then(|t| RuleMode::from_name(&t))
                .unwrap_or(RuleMode::Firstn),
            rule_type: RULE_REPLICATED,
            number: None,
        },
    )
}

fn create_rule(m: &mut Turn<'_>, rule: &SimpleRule<'_>) -> Done {
    if m.view.state.osd.map.crush.map().rule_id(rule.name).is_some() {
        // As in the official monitor, an existing rule is no error.
        return now(Reply::status(format!("rule {} already exists", rule.name)));
    }
    edit(m, |c| c.add_simple_rule(rule))?;
    committed("")
}

/// The rule that the plug-in of a profile would make: as many positions as there are chunks.
fn create_erasure(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("name")?;
    let wanted = call.args.opt_str("profile").filter(|p| !p.is_empty());
    let wanted = wanted.unwrap_or_else(|| "default".to_owned());
    if m.view.state.osd.map.crush.map().rule_id(&name).is_some() {
        return now(Reply::status(format!("rule {name} already exists")));
    }
    let mut profile = erasure_profile::find(m, &wanted).unwrap_or_default();
    let code = erasure::read(&mut profile)?;
    let number = edit(m, |c| code.add_rule(c, &name, &profile))?;
    committed(format!("created rule {name} at {number}"))
}

fn rule_rm(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("name")?;
    let Some(number) = m.view.state.osd.map.crush.map().rule_id(&name) else {
        return now(Reply::status(format!("rule {name} does not exist")));
    };
    if m.view
        .state
        .osd
        .map
        .pools
        .values()
        .any(|p| u32::from(p.crush_rule) == number)
    {
        return refuse(errno::EBUSY, format!("crush ruleset {name} {number} is in use"));
    }
    edit(m, |c| c.remove_rule(number))?;
    committed("")
}

fn rule_rename(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (from, to) = (call.args.str("srcname")?, call.args.str("dstname")?);
    let crush = m.view.state.osd.map.crush.map();
    if crush.rule_id(&from).is_none() && crush.rule_id(&to).is_some() {
        return now(Reply::status("already renamed to '".to_owned() + &to + "'"));
    }
    if crush.rule_id(&from).is_none() {
        return refuse(errno::ENOENT, format!("source rule name '{from}' does not exist"));
    }
    if from == to {
        return now(Reply::status(
            "destination rule name is equal to source rule name",
        ));
    }
    if crush.rule_id(&to).is_some() {
        return refuse(
            errno::EEXIST,
            format!("destination rule name '{to}' already exists"),
        );
    }
    edit(m, |c| c.rename_rule(&from, &to))?;
    committed("")
}

fn tunables(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("profile")?;
    let Some(profile) = Profile::from_name(&name) else {
        return refuse(errno::EINVAL, format!("unrecognized profile '{name}'"));
    };
    edit(m, |c| {
        c.tunables = profile.tunables(c.tunables.straw_calc_version);
        Ok(())
    })?;
    committed(format!("adjusted tunables profile to {name}"))
}

fn set_tunable(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let value = call.args.int("value")?;
    let Some(v) = u8::try_from(value).ok().filter(|v| *v <= 1) else {
        return refuse(errno::EINVAL, format!("value must be 0 or 1; got {value}"));
    };
    edit(m, |c| {
        c.tunables.straw_calc_version = v;
        Ok(())
    })?;
    committed(format!("adjusted tunable straw_calc_version to {v}"))
}

/// The OSDs that a command names, with the official remarks on words that name no OSD.
fn class_osds(m: &View, call: &Call<'_>) -> (Vec<OsdId>, String, bool) {
    let (mut osds, mut notes, mut unreadable) = (Vec::new(), String::new(), false);
    let words = call.args.list("ids");
    if words.iter().any(|w| ["any", "all", "*"].contains(&w.as_str())) {
        return (m.state.osd.map.osds().collect(), notes, false);
    }
    for word in words
        .iter()
        .flat_map(|w| w.split([' ', ',']))
        .filter(|w| !w.is_empty())
    {
        match super::parse_osd(word) {
            Ok(osd) if m.state.osd.map.exists(osd) => osds.push(osd),
            Ok(osd) => notes.push_str(&format!("osd.{osd} does not exist. ")),
            Err(why) => {
                unreadable = true;
                notes.push_str(&format!("{}, unable to parse osd id:\"{word}\". ", why.text));
            }
        }
    }
    (osds, notes, unreadable)
}

fn set_class(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let class = call.args.str("class")?;
    let (osds, mut notes, _) = class_osds(m.view, call);
    let crush = m.view.state.osd.map.crush.map().clone();
    let mut changed = Vec::new();
    for osd in osds {
        match crush.class_of(osd.item()) {
            Some(old) if old == class => {
                notes.push_str(&format!("osd.{osd} already set to class {class}. "));
            }
            Some(old) => {
                return refuse(
                    errno::EBUSY,
                    format!(
                        "osd.{osd} has already bound to class '{old}', can not reset class to '{class}'; use 'ceph osd crush rm-device-class <id>' to remove old class first"
                    ),
                );
            }
            None => changed.push(osd),
        }
    }
    if !changed.is_empty() {
        edit(m, |c| {
            changed
                .iter()
                .try_for_each(|o| c.set_device_class(o.item(), &class).map(drop))
        })?;
    }
    committed(format!(
        "{notes}set osd(s) {} to class '{class}'",
        joined(&changed)
    ))
}

fn rm_class(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (osds, mut notes, unreadable) = class_osds(m.view, call);
    if unreadable {
        return refuse(errno::EINVAL, notes);
    }
    let crush = m.view.state.osd.map.crush.map().clone();
    let (with, without): (Vec<OsdId>, Vec<OsdId>) =
        osds.into_iter().partition(|o| crush.class_of(o.item()).is_some());
    for osd in without {
        notes.push_str(&format!("osd.{osd} belongs to no class, "));
    }
    if !with.is_empty() {
        edit(m, |c| {
            with.iter()
                .try_for_each(|o| c.remove_device_class(o.item()).map(drop))
        })?;
    }
    committed(format!("{notes}done removing class of osd(s): {}", joined(&with)))
}

fn class_create(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let class = call.args.str("class")?;
    if m.view.state.osd.map.crush.map().class_id(&class).is_some() {
        return now(Reply::status(format!("class '{class}' already exists")));
    }
    let id = edit(m, |c| c.create_class(&class))?;
    committed(format!("created class {class} with id {id} to crush map"))
}

fn class_rm(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let class = call.args.str("class")?;
    if m.view.state.osd.map.crush.map().class_id(&class).is_none() {
        return now(Reply::default());
    }
    let profiles = m.view.state.osd.map.erasure_code_profiles.iter();
    let users: Vec<&str> = profiles
        .filter(|(_, p)| p.get("crush-device-class") == Some(&class))
        .map(|(name, _)| name.as_str())
        .collect();
    if !users.is_empty() {
        return refuse(
            errno::EBUSY,
            format!(
                "class '{class}' is still referenced by erasure-code-profile(s): {}",
                users.join(",")
            ),
        );
    }
    let id = edit(m, |c| c.remove_class(&class))?;
    committed(format!("removed class {class} with id {id} from crush map"))
}

fn straw2(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    edit(m, CrushMap::straw_to_straw2)?;
    committed("")
}

fn class_rename(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (from, to) = (call.args.str("srcname")?, call.args.str("dstname")?);
    let crush = m.view.state.osd.map.crush.map();
    let why = match (crush.class_id(&from), crush.class_id(&to)) {
        (None, Some(_)) => return now(Reply::status(format!("already renamed to '{to}'"))),
        (Some(_), Some(_)) => Some((errno::EEXIST, "(17) File exists")),
        (None, None) => Some((errno::ENOENT, "(2) No such file or directory")),
        (Some(_), None) => None,
    };
    if let Some((code, why)) = why {
        return refuse(code, format!("fail to rename '{from}' to '{to}' : {why}"));
    }
    edit(m, |c| c.rename_class(&from, &to))?;
    committed(format!("rename class '{from}' to '{to}'"))
}
