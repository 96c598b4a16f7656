//! Changes to the CRUSH map's rules, classes and tunables, and to the map as a whole.

use spirula_crush::{CrushMap, Profile, RULE_REPLICATED, RuleMode, SimpleRule};
use spirula_maps::CrushBlob;

use super::{Call, Done, Reply, commands, committed, errno, now, refuse};
use crate::core::Monitor;

commands! {
    "osd setcrushmap prior_version?:Int" "osd" "rw" set_map, "replace the CRUSH map by that of -i FILE";
    "osd crush rule create-replicated name:String[A-Za-z0-9-_.] root:String[A-Za-z0-9-_.] type:String[A-Za-z0-9-_.] class?:String[A-Za-z0-9-_.]"
        "osd" "rw" create_replicated, "create a rule that spreads replicas over buckets of a type";
    "osd crush rule rm name:String[A-Za-z0-9-_.]" "osd" "rw" rule_rm, "remove a rule";
    "osd crush rule rename srcname:String[A-Za-z0-9-_.] dstname:String[A-Za-z0-9-_.]" "osd" "rw" rule_rename,
        "rename a rule";
    "osd crush tunables profile:{legacy|argonaut|bobtail|firefly|hammer|jewel|optimal|default}" "osd" "rw" tunables,
        "set the tunables to those of a release";
    "osd crush set-tunable tunable:{straw_calc_version} value:Int" "osd" "rw" set_tunable, "set a tunable";
    "osd crush set-device-class class:String ids:String..." "osd" "rw" set_class, "set OSDs' device class";
    "osd crush rm-device-class ids:String..." "osd" "rw" rm_class, "remove OSDs' device class";
    "osd crush class rename srcname:String[A-Za-z0-9-_] dstname:String[A-Za-z0-9-_]" "osd" "rw" class_rename,
        "rename a device class";
}

/// A refusal by the CRUSH code as a reply.
pub(super) fn crush_error(e: &spirula_crush::Error) -> Reply {
    Reply::error(-e.errno(), e.to_string())
}

/// Makes a change to the CRUSH map part of the next OSDMap.
pub(super) fn edit<T>(
    m: &mut Monitor,
    change: impl FnOnce(&mut CrushMap) -> Result<T, spirula_crush::Error>,
) -> Result<T, Reply> {
    let mut crush = (**m.osd.map.crush.map()).clone();
    let value = change(&mut crush).map_err(|e| crush_error(&e))?;
    m.pending_osd().crush = CrushBlob::new(crush).raw().clone();
    Ok(value)
}

pub(super) fn set_map(m: &mut Monitor, call: &Call<'_>) -> Done {
    if let Some(prior) = call.args.opt_int("prior_version")?
        && prior != i64::from(m.osd.map.crush_version)
    {
        return refuse(
            errno::EPERM,
            format!(
                "prior_version {prior} != crush version {}",
                m.osd.map.crush_version
            ),
        );
    }
    let new: CrushMap = spirula_denc::decode_all(call.input)
        .map_err(|e| Reply::error(errno::EINVAL, format!("Failed to parse crushmap: {e}")))?;
    let used = m
        .osd
        .map
        .pools
        .iter()
        .find(|(_, p)| new.rule(u32::from(p.crush_rule)).is_none());
    if let Some((id, p)) = used {
        return refuse(
            errno::EINVAL,
            format!(
                "pool {id} references crush_rule {} but it is not present",
                p.crush_rule
            ),
        );
    }
    if u32::try_from(new.max_devices).unwrap_or(0) > m.osd.map.max_osd.max(65_536) {
        return refuse(errno::EINVAL, "too many devices");
    }
    let version = m.osd.map.crush_version + 1;
    m.pending_osd().crush = CrushBlob::new(new).raw().clone();
    committed(version.to_string())
}

fn create_replicated(m: &mut Monitor, call: &Call<'_>) -> Done {
    let (name, root) = (call.args.str("name")?, call.args.str("root")?);
    let (kind, class) = (call.args.str("type")?, call.args.opt_str("class"));
    if m.osd.map.crush.map().rule_id(&name).is_some() {
        // As the official monitor: having it is what was asked for.
        return now(Reply::status(format!("rule {name} already exists")));
    }
    let rule = SimpleRule {
        name: &name,
        root: &root,
        failure_domain: &kind,
        device_class: class.as_deref(),
        mode: RuleMode::Firstn,
        rule_type: RULE_REPLICATED,
        number: None,
    };
    edit(m, |c| c.add_simple_rule(&rule))?;
    committed("")
}

fn rule_rm(m: &mut Monitor, call: &Call<'_>) -> Done {
    let name = call.args.str("name")?;
    let Some(number) = m.osd.map.crush.map().rule_id(&name) else {
        return now(Reply::status(format!("rule {name} does not exist")));
    };
    if m.osd
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

fn rule_rename(m: &mut Monitor, call: &Call<'_>) -> Done {
    let (from, to) = (call.args.str("srcname")?, call.args.str("dstname")?);
    let crush = m.osd.map.crush.map();
    if crush.rule_id(&from).is_none() && crush.rule_id(&to).is_some() {
        return now(Reply::status("already renamed to '".to_owned() + &to + "'"));
    }
    if crush.rule_id(&from).is_none() {
        return refuse(errno::ENOENT, format!("source rule name '{from}' does not exist"));
    }
    edit(m, |c| c.rename_rule(&from, &to))?;
    committed("")
}

fn tunables(m: &mut Monitor, call: &Call<'_>) -> Done {
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

fn set_tunable(m: &mut Monitor, call: &Call<'_>) -> Done {
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

/// The OSDs that a command names, with the official remarks on words that name none.
fn class_osds(m: &Monitor, call: &Call<'_>) -> (Vec<i32>, String, bool) {
    let (mut osds, mut notes, mut unreadable) = (Vec::new(), String::new(), false);
    let words = call.args.list("ids");
    if words.iter().any(|w| ["any", "all", "*"].contains(&w.as_str())) {
        return (m.osd.map.osds().collect(), notes, false);
    }
    for word in words
        .iter()
        .flat_map(|w| w.split([' ', ',']))
        .filter(|w| !w.is_empty())
    {
        match super::parse_osd(word) {
            Some(osd) if m.osd.map.exists(osd) => osds.push(osd),
            Some(osd) => notes.push_str(&format!("osd.{osd} does not exist. ")),
            None => {
                unreadable = true;
                notes.push_str(&format!(
                    "Expected option value to be integer, got '{word}', unable to parse osd id:\"{word}\". "
                ));
            }
        }
    }
    (osds, notes, unreadable)
}

fn joined(osds: &[i32]) -> String {
    osds.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

fn set_class(m: &mut Monitor, call: &Call<'_>) -> Done {
    let class = call.args.str("class")?;
    let (osds, mut notes, _) = class_osds(m, call);
    let crush = m.osd.map.crush.map().clone();
    let mut changed = Vec::new();
    for osd in osds {
        match crush.class_of(osd) {
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
                .try_for_each(|o| c.set_device_class(*o, &class).map(drop))
        })?;
    }
    committed(format!(
        "{notes}set osd(s) {} to class '{class}'",
        joined(&changed)
    ))
}

fn rm_class(m: &mut Monitor, call: &Call<'_>) -> Done {
    let (osds, mut notes, unreadable) = class_osds(m, call);
    if unreadable {
        return refuse(errno::EINVAL, notes);
    }
    let crush = m.osd.map.crush.map().clone();
    let (with, without): (Vec<i32>, Vec<i32>) = osds.into_iter().partition(|o| crush.class_of(*o).is_some());
    for osd in without {
        notes.push_str(&format!("osd.{osd} belongs to no class, "));
    }
    if !with.is_empty() {
        edit(m, |c| {
            with.iter().try_for_each(|o| c.remove_device_class(*o).map(drop))
        })?;
    }
    committed(format!("{notes}done removing class of osd(s): {}", joined(&with)))
}

fn class_rename(m: &mut Monitor, call: &Call<'_>) -> Done {
    let (from, to) = (call.args.str("srcname")?, call.args.str("dstname")?);
    let crush = m.osd.map.crush.map();
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
