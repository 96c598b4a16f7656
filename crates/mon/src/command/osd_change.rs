//! Creating and removing OSDs, flags, settings of the whole map.

use serde_json::json;
use spirula_denc::Fsid;
use spirula_maps::{OsdId, osdmap::MAX_OSD_LIMIT};
use spirula_maps::{OsdMapFlags, OsdState, release};
use spirula_text::general;

use super::osd_new::remove_secrets;
use super::osd_query::{existing, osd_ids};
use super::osd_stop::removable;
use super::{Call, Done, Outcome, Reply, commands, committed, errno, now, refuse};
use crate::core::{Turn, View};

commands! {
    "osd create uuid?:UUID id?:OsdName" "osd" "rw" create, "create an OSD";
    "osd rm ids:String..." "osd" "rw" rm, "remove OSDs from the map";
    "osd destroy id:OsdName force?:Bool yes_i_really_mean_it?:Bool" "osd" "rw" destroy,
        "mark an OSD's data as gone; its id stays";
    "osd destroy-actual id:OsdName yes_i_really_mean_it?:Bool" "osd" "rw" destroy,
        "mark an OSD's data as gone; its id stays";
    "osd purge id:OsdName force?:Bool yes_i_really_mean_it?:Bool" "osd" "rw" purge, "remove all traces of an OSD";
    "osd purge-actual id:OsdName yes_i_really_mean_it?:Bool" "osd" "rw" purge, "remove all traces of an OSD";
    "osd purge-new id:OsdName yes_i_really_mean_it?:Bool" "osd" "rw" purge, "remove all traces of a new OSD";
    "osd lost id:OsdName yes_i_really_mean_it?:Bool" "osd" "rw" lost, "declare an OSD's data lost";
    "osd setmaxosd newmax:Int(0)" "osd" "rw" setmaxosd, "set the number of OSD ids";
    "osd set key:{full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim|pglog_hardlimit} yes_i_really_mean_it?:Bool"
        "osd" "rw" set, "set a flag";
    "osd unset key:{full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim}"
        "osd" "rw" unset, "unset a flag";
    "osd pause" "osd" "rw" pause, "hold all reads and writes";
    "osd unpause" "osd" "rw" unpause, "let reads and writes go on";
    "osd set-full-ratio ratio:Float(0.0|1.0)" "osd" "rw" full_ratio, "set from which use on OSDs are full";
    "osd set-backfillfull-ratio ratio:Float(0.0|1.0)" "osd" "rw" backfillfull_ratio,
        "set from which use on OSDs take no backfill";
    "osd set-nearfull-ratio ratio:Float(0.0|1.0)" "osd" "rw" nearfull_ratio, "set from which use on OSDs are near full";
    "osd set-require-min-compat-client version:String yes_i_really_mean_it?:Bool" "osd" "rw" min_compat,
        "set the oldest release clients may have";
    "osd require-osd-release release:{luminous|mimic|nautilus|octopus|pacific} yes_i_really_mean_it?:Bool" "osd" "rw"
        require_release, "set the oldest release OSDs may have";
}

pub(super) fn uuid(call: &Call<'_>) -> Result<Option<Fsid>, Reply> {
    match call.args.opt_str("uuid") {
        None => Ok(None),
        Some(t) => match Fsid::parse(&t) {
            Some(u) if !u.is_zero() => Ok(Some(u)),
            _ => refuse(errno::EINVAL, format!("invalid uuid '{t}'")),
        },
    }
}

/// The first id that is free.
fn free_id(m: &View) -> OsdId {
    let free = OsdId::below(u32::MAX).find(|o| !m.state.osd.map.exists(*o));
    free.unwrap_or_default()
}

pub(super) fn add_osd(m: &mut Turn<'_>, osd: OsdId, uuid: Option<Fsid>) {
    let max = m.view.state.osd.map.max_osd;
    let destroyed = m.view.state.osd.map.state(osd).contains(OsdState::DESTROYED);
    let inc = m.pending_osd();
    if osd.index() >= max as usize {
        inc.new_max_osd = osd.item() + 1;
    }
    // Not EXISTS: the weight below sets that when the map is applied, and a flip would take it away
    // again.
    let flip = match destroyed {
        true => OsdState::DESTROYED.with(OsdState::NEW),
        false => OsdState::NEW,
    };
    inc.new_state.insert(osd, flip);
    inc.new_weight.insert(osd, spirula_maps::osdmap::WEIGHT_IN);
    if let Some(u) = uuid {
        inc.new_uuid.insert(osd, u);
    }
}

pub(super) fn id_reply(call: &Call<'_>, osd: OsdId) -> Reply {
    match call.format.is_structured() {
        true => Reply::json(call.format, &json!({"osdid": osd})),
        false => Reply::text(format!("{osd}\n")),
    }
}

/// The id for a new OSD; as the error, the id of the OSD that has this store already.
pub(super) fn wanted_id(
    m: &View,
    call: &Call<'_>,
    uuid: Option<Fsid>,
) -> Result<Result<OsdId, OsdId>, Reply> {
    let id = call.args.opt_osd("id")?;
    if let Some(known) = uuid.and_then(|u| m.state.osd.map.osd_by_uuid(&u)) {
        return match id {
            Some(id) if id != known => refuse(
                errno::EEXIST,
                format!(
                    "uuid {} already in use for different id {known}",
                    uuid.unwrap_or_default()
                ),
            ),
            _ => Ok(Err(known)),
        };
    }
    match id {
        Some(id)
            if m.state.osd.map.exists(id) && !m.state.osd.map.state(id).contains(OsdState::DESTROYED) =>
        {
            let uuid = uuid.unwrap_or_default();
            let text = format!("id {id} already in use and does not match uuid {uuid}");
            refuse(errno::EINVAL, text)
        }
        Some(id) if id.index() >= MAX_OSD_LIMIT as usize => {
            refuse(errno::ERANGE, format!("osd id {id} is too large"))
        }
        Some(id) => Ok(Ok(id)),
        None => Ok(Ok(free_id(m))),
    }
}

fn create(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let uuid = uuid(call)?;
    match wanted_id(m.view, call, uuid)? {
        Err(known) => now(id_reply(call, known)),
        Ok(osd) => {
            add_osd(m, osd, uuid);
            Ok(Outcome::Commit(id_reply(call, osd)))
        }
    }
}

fn forget(m: &mut Turn<'_>, osd: OsdId) {
    let state = m.view.state.osd.map.state(osd);
    m.pending_osd()
        .new_state
        .insert(osd, OsdState::EXISTS.with(state));
    m.changes.txn.remove("osd_metadata", osd.to_string());
    m.changes.txn.remove(super::osd_new::CLASS, osd.to_string());
}

fn rm(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let mut lines = Vec::new();
    let mut changed = false;
    for osd in osd_ids(m.view, &call.args.list("ids"))? {
        if !m.view.state.osd.map.exists(osd) {
            lines.push(format!("osd.{osd} does not exist. "));
        } else if m.view.state.osd.map.is_up(osd) {
            lines.push(format!("osd.{osd} is still up; must be down before removal. "));
            if !changed {
                return refuse(errno::EBUSY, lines.concat());
            }
        } else {
            forget(m, osd);
            changed = true;
            let sep = if lines.is_empty() {
                "removed osd."
            } else {
                ", osd."
            };
            lines.push(format!("{sep}{osd}"));
        }
    }
    let reply = Reply::status(lines.concat());
    Ok(if changed {
        Outcome::Commit(reply)
    } else {
        Outcome::Now(reply)
    })
}

/// Checks the confirmation of a destructive command, and returns the OSD, which must be down.
fn doomed(m: &View, call: &Call<'_>) -> Result<OsdId, Reply> {
    let osd = call.args.osd("id")?;
    let sure = call.args.flag("yes_i_really_mean_it") || call.args.flag("force");
    // The plain commands ask the statistics, their official inner halves the caller.
    let inner = call.args.prefix().ends_with("-actual") || call.args.prefix().ends_with("-new");
    if !sure && !inner {
        if let Err(why) = removable(m, osd) {
            let tail = "You can proceed by passing --force, but be warned that this will likely mean real, permanent data loss.";
            let text = format!("{}\n{tail}", why.status);
            return Err(why.with_status(text));
        }
    } else if !sure {
        return refuse(
            errno::EPERM,
            "Are you SURE?  Did you verify with 'ceph osd safe-to-destroy'?  This will mean real, permanent data loss, as well as deletion of cephx and lockbox keys. Pass --yes-i-really-mean-it if you really do.",
        );
    }
    if m.state.osd.map.is_up(osd) {
        return refuse(errno::EBUSY, format!("osd.{osd} is not `down`."));
    }
    Ok(osd)
}

fn destroy(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let osd = doomed(m.view, call)?;
    if !m.view.state.osd.map.exists(osd) {
        return now(Reply::status(format!("osd.{osd} does not exist")));
    }
    remove_secrets(m, osd)?;
    if !m.view.state.osd.map.state(osd).contains(OsdState::DESTROYED) {
        m.pending_osd().new_state.insert(osd, OsdState::DESTROYED);
        m.pending_osd().new_uuid.insert(osd, Fsid::default());
    }
    committed(format!("destroyed osd.{osd}"))
}

fn purge(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let osd = doomed(m.view, call)?;
    if !m.view.state.osd.map.exists(osd) {
        return now(Reply::status(format!("osd.{osd} does not exist")));
    }
    if call.args.prefix() == "osd purge-new" && !m.view.state.osd.map.state(osd).contains(OsdState::NEW) {
        return refuse(errno::EPERM, format!("osd.{osd} is not new"));
    }
    if m.view.state.osd.map.crush.map().is_held(osd.item()) {
        super::crush::edit(m, |c| c.remove_item(osd.item(), false))?;
    }
    remove_secrets(m, osd)?;
    forget(m, osd);
    committed(format!("purged osd.{osd}"))
}

fn lost(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    if !call.args.flag("yes_i_really_mean_it") {
        return refuse(
            errno::EPERM,
            "are you SURE?  this might mean real, permanent data loss.  pass --yes-i-really-mean-it if you really do.",
        );
    }
    let osd = existing(m.view, call, "id")?;
    if m.view.state.osd.map.is_up(osd) {
        return refuse(errno::EBUSY, format!("osd.{osd} is not down"));
    }
    let epoch = m.view.state.osd.map.osd_info[osd.index()].down_at;
    m.pending_osd().new_lost.insert(osd, epoch);
    committed(format!("marked osd lost in epoch {epoch}"))
}

fn setmaxosd(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let n = call.args.int("newmax")?;
    let Ok(new) = i32::try_from(n) else {
        return refuse(errno::ERANGE, format!("cannot set max_osd to {n}"));
    };
    let limit = m.view.values.int("mon_max_osd").min(i64::from(MAX_OSD_LIMIT));
    if !(0..=limit).contains(&n) {
        return refuse(
            errno::ERANGE,
            format!("cannot set max_osd to {n} which is > conf.mon_max_osd ({limit})"),
        );
    }
    if let Some(o) = m.view.state.osd.map.osds().find(|o| o.item() >= new) {
        return refuse(
            errno::EBUSY,
            format!("cannot shrink max_osd to {new} because osd.{o} (and possibly others) still in use"),
        );
    }
    m.pending_osd().new_max_osd = new;
    committed(format!("set new max_osd = {new}"))
}

fn flag_of(key: &str) -> Option<OsdMapFlags> {
    match key {
        "pause" => Some(OsdMapFlags::PAUSERD.with(OsdMapFlags::PAUSEWR)),
        // Fullness is a property of pools and OSDs; the official monitor refuses it here as well.
        "full" => None,
        other => OsdMapFlags::from_name(other),
    }
}

fn change_flag(m: &mut Turn<'_>, key: &str, set: bool) -> Done {
    let Some(flag) = flag_of(key) else {
        return refuse(errno::EINVAL, format!("unrecognized flag '{key}'"));
    };
    let old = m.view.state.osd.map.flags;
    let new = if set { old.with(flag) } else { old.without(flag) };
    m.pending_osd().new_flags = new.0.cast_signed();
    let name = if key == "pause" { "pauserd,pausewr" } else { key };
    committed(format!("{name} is {}", if set { "set" } else { "unset" }))
}

fn set(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let key = call.args.str("key")?;
    change_flag(m, &key, true)
}

fn unset(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let key = call.args.str("key")?;
    change_flag(m, &key, false)
}

fn pause(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    change_flag(m, "pause", true)
}

fn unpause(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    change_flag(m, "pause", false)
}

fn ratio(call: &Call<'_>) -> Result<f64, Reply> {
    let r = call.args.float("ratio")?;
    if (0.0..=1.0).contains(&r) {
        Ok(r)
    } else {
        refuse(errno::EINVAL, "ratio must be in the range [0..1]")
    }
}

fn full_ratio(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let r = ratio(call)?;
    m.pending_osd().new_full_ratio = r as f32;
    committed(format!("osd set-full-ratio {}", general(r, 6)))
}

fn backfillfull_ratio(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let r = ratio(call)?;
    m.pending_osd().new_backfillfull_ratio = r as f32;
    committed(format!("osd set-backfillfull-ratio {}", general(r, 6)))
}

fn nearfull_ratio(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let r = ratio(call)?;
    m.pending_osd().new_nearfull_ratio = r as f32;
    committed(format!("osd set-nearfull-ratio {}", general(r, 6)))
}

fn min_compat(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("version")?;
    let Some(r) = release::from_name(&name) else {
        return refuse(errno::EINVAL, format!("version {name} is not recognized"));
    };
    let needed = m.view.state.osd.map.min_compat_client();
    if r < needed {
        return refuse(
            errno::EPERM,
            format!(
                "osdmap current utilizes features that require {}; cannot set require_min_compat_client below that to {name}",
                release::name(needed)
            ),
        );
    }
    m.pending_osd().new_require_min_compat_client = Some(r);
    committed(format!("set require_min_compat_client to {name}"))
}

fn require_release(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("release")?;
    let Some(r) = release::from_name(&name) else {
        return refuse(errno::EINVAL, format!("unrecognized release {name}"));
    };
    if r < release::NAUTILUS {
        return refuse(errno::EPERM, "not supported for this release yet");
    }
    match r.cmp(&m.view.state.osd.map.require_osd_release) {
        std::cmp::Ordering::Equal => now(Reply::default()),
        std::cmp::Ordering::Less => refuse(
            errno::EPERM,
            "require_osd_release cannot be lowered once it has been set",
        ),
        std::cmp::Ordering::Greater => {
            m.pending_osd().new_require_osd_release = Some(r);
            committed("")
        }
    }
}
