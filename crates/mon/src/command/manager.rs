//! The manager, and the answers of its modules and of the metadata servers in a cluster that has
//! none of them.
//!
//! For these there are only the commands whose answer is known without them: no file system, no
//! balancing. The progress items come from the monitor itself.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use spirula_maps::features::release;
use spirula_proto::mgr::MgrMap;

use super::status::{addrvec, legacy_addr};
use super::{Call, Done, Outcome, Reply, commands, committed, errno, misc, now, refuse};
use crate::core::{Effect, Turn, View};
use crate::progress::PROGRESS_OPTION;
use crate::service::Who;

commands! {
    "mgr dump epoch?:Int(0)" "mgr" "r" mgr_dump, "show the manager map";
    "mgr stat" "mgr" "r" mgr_stat, "summarize the manager map";
    "mgr services" "mgr" "r" empty_object, "list the manager's services";
    "mgr versions" "mgr" "r" mgr_versions, "count the managers' versions";
    "mgr metadata who?:String" "mgr" "r" mgr_metadata, "show what is known of managers";
    "mgr count-metadata property:String" "mgr" "r" mgr_count, "count managers by a property";
    "mgr fail who?:String" "mgr" "rw" mgr_fail, "have another manager take over";
    "balancer status" "mgr" "r" balancer_status, "show what the balancer does";
    "balancer ls" "mgr" "r" empty_list, "list the balancer's plans";
    "progress" "mgr" "r" progress, "show what is in progress";
    "progress json" "mgr" "r" progress_json, "show what is in progress as JSON";
    "progress clear" "mgr" "rw" progress_clear, "forget what is in progress";
    "progress on" "mgr" "rw" progress_on, "tell what is in progress";
    "progress off" "mgr" "rw" progress_off, "stop telling what is in progress";
    "mds stat" "mds" "r" mds_stat, "summarize the metadata servers";
    "mds metadata who?:String" "mds" "r" mds_metadata, "show what is known of metadata servers";
    "mds versions" "mds" "r" empty_object, "count the metadata servers' versions";
    "mds count-metadata property:String" "mds" "r" empty_object, "count metadata servers by a property";
    "fs ls" "fs" "r" fs_ls, "list the file systems";
    "fs dump epoch?:Int(0)" "mds" "r" fs_dump, "show the file systems' map";
    "fs get fs_name:String" "fs" "r" fs_get, "show a file system";
    "fs volume ls" "mgr" "r" empty_list, "list the file systems that are volumes";
}

/// The clients of the manager itself.
fn active_clients(map: &MgrMap) -> Vec<Value> {
    let named = map.client_addrs.iter().zip(&map.client_names);
    named
        .map(|(addrs, name)| json!({"name": name, "addrvec": addrvec(addrs)["addrvec"]}))
        .collect()
}

fn mgr_dump(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = &m.view.state.manager.map;
    let always_on: Map<String, Value> = map
        .always_on_modules
        .iter()
        .map(|(r, modules)| {
            let name = u8::try_from(*r).map_or("unknown", release::name);
            (name.to_owned(), json!(modules))
        })
        .collect();
    let v = json!({
        "epoch": map.epoch, "active_gid": map.active_gid, "active_name": map.active_name,
        "active_addrs": addrvec(&map.active_addrs), "active_addr": legacy_addr(&map.active_addrs),
        "active_change": map.active_change.to_string(), "active_mgr_features": map.active_features,
        "available": map.available, "standbys": [], "modules": [], "available_modules": [], "services": {},
        "always_on_modules": always_on, "last_failure_osd_epoch": map.last_failure_osd_epoch,
        "active_clients": active_clients(map),
    });
    match call.args.opt_int("epoch")? {
        Some(e) if e != 0 && e != i64::from(map.epoch) => {
            refuse(errno::ENOENT, format!("there is no map for epoch {e}"))
        }
        _ => misc::pretty(call.format, &v),
    }
}

fn mgr_stat(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = &m.view.state.manager.map;
    let v = json!({"epoch": map.epoch, "available": map.available, "active_name": map.active_name, "num_standby": 0});
    misc::pretty(call.format, &v)
}

fn empty_object(_: &mut Turn<'_>, call: &Call<'_>) -> Done {
    misc::pretty(call.format, &json!({}))
}

fn empty_list(_: &mut Turn<'_>, call: &Call<'_>) -> Done {
    misc::pretty(call.format, &json!([]))
}

/// The metadata of the active manager: those of its monitor.
fn active_metadata(m: &View) -> Option<BTreeMap<String, String>> {
    let map = &m.state.manager.map;
    if !map.available {
        return None;
    }
    let mut meta = m.mon_metadata(&map.active_name);
    // The monitor's own: Ceph's managers tell nothing of these.
    meta.retain(|k, _| {
        !matches!(
            k.as_str(),
            "compression_algorithms" | "devices" | "device_ids" | "device_paths"
        )
    });
    if let Some(a) = map.active_addrs.0.first().and_then(|a| a.socket) {
        meta.insert("addr".to_owned(), a.ip().to_string());
    }
    meta.insert("addrs".to_owned(), map.active_addrs.to_string());
    Some(meta)
}

/// The active manager's version, as `ceph versions` counts it.
pub(super) fn mgr_version_counts(m: &View) -> BTreeMap<String, usize> {
    let version = active_metadata(m).and_then(|mut meta| meta.remove("ceph_version"));
    version.map(|v| (v, 1)).into_iter().collect()
}

fn mgr_versions(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    misc::pretty(call.format, &json!(mgr_version_counts(m.view)))
}

fn mgr_count(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let property = call.args.str("property")?;
    let value = active_metadata(m.view)
        .map(|mut meta| meta.remove(&property).unwrap_or_else(|| "unknown".to_owned()));
    let counts: BTreeMap<String, usize> = value.map(|v| (v, 1)).into_iter().collect();
    misc::pretty(call.format, &json!(counts))
}

fn mgr_metadata(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = m.view.state.manager.map.active_name.clone();
    let shown = active_metadata(m.view).map(|meta| {
        let mut v = Map::from_iter([("name".to_owned(), json!(name))]);
        v.extend(meta.into_iter().map(|(k, v)| (k, json!(v))));
        Value::Object(v)
    });
    match (call.args.opt_str("who"), shown) {
        (None, shown) => misc::pretty(call.format, &shown.into_iter().collect()),
        (Some(who), Some(shown)) if who == name => misc::pretty(call.format, &shown),
        (Some(who), _) => refuse(errno::ENOENT, format!("mgr.{who} does not exist")),
    }
}

/// Makes the manager give up. As there is no other, the monitor that leads takes over again at its
/// next tick: with a new id, and with sessions that begin anew.
fn mgr_fail(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = &m.view.state.manager.map;
    let who = match call.args.opt_str("who") {
        None if !map.available => return now(Reply::status("Currently no active mgr")),
        None => map.active_name.clone(),
        Some(who) => who,
    };
    if !map.available || who != map.active_name && who != map.active_gid.to_string() {
        let text = format!("Daemon not found '{who}', already failed?");
        return now(Reply::status(text));
    }
    m.fail_manager();
    committed("")
}

fn balancer_status(_: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let v = json!({
        "active": false, "last_optimize_duration": "", "last_optimize_started": "", "mode": "none",
        "no_optimization_needed": false, "optimize_result": "", "plans": [],
    });
    misc::pretty(call.format, &v)
}

fn progress(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    now(match m.view.progress.text(m.view.now) {
        Some(text) => Reply::text(text),
        None => Reply::status("Nothing in progress"),
    })
}

fn progress_json(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    misc::pretty(call.format, &m.view.progress.json(m.view.now))
}

fn progress_clear(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    m.effect(Effect::ClearProgress);
    now(Reply::default())
}

fn progress_on(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    match m.view.tells_progress() {
        true => now(Reply::status("progress already enabled!")),
        false => set_progress(m, true, "progress enabled"),
    }
}

fn progress_off(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    match m.view.tells_progress() {
        true => set_progress(m, false, "progress disabled"),
        false => now(Reply::status("progress already disabled!")),
    }
}

/// Stores the setting as the option of Ceph's module `progress`, in Python's spelling.
fn set_progress(m: &mut Turn<'_>, on: bool, said: &str) -> Done {
    let value = if on { "True" } else { "False" };
    let who = Who {
        section: "mgr".to_owned(),
        mask: None,
    };
    let (stamp, value) = (m.view.now, Some(value.to_owned()));
    let values = vec![(who, PROGRESS_OPTION.to_owned(), value)];
    m.view
        .state
        .config
        .change(values, String::new(), stamp, &mut m.changes.txn);
    Ok(Outcome::Commit(Reply::status(said)))
}

fn mds_stat(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    if call.format.is_structured() {
        let fs = &m.view.state.fs;
        let (first, last) = fs.epochs().into_inner();
        let v =
            json!({"fsmap": fs.stat_json(), "mdsmap_first_committed": first, "mdsmap_last_committed": last});
        return now(Reply::json(call.format, &v));
    }
    now(Reply::text(""))
}

fn mds_metadata(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    match call.args.opt_str("who") {
        None => empty_list(m, call),
        Some(who) => refuse(
            errno::EINVAL,
            format!("MDS named '{who}' does not exist, or is not up"),
        ),
    }
}

fn fs_ls(_: &mut Turn<'_>, call: &Call<'_>) -> Done {
    match call.format.is_structured() {
        true => now(Reply::json(call.format, &json!([])).with_newline()),
        false => now(Reply::text("No filesystems enabled\n")),
    }
}

fn fs_get(_: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("fs_name")?;
    refuse(errno::ENOENT, format!("filesystem '{name}' not found"))
}

fn fs_dump(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let fs = &m.view.state.fs;
    let epoch = fs.epoch();
    match call.args.opt_int("epoch")? {
        None | Some(0) => {}
        Some(e) if e == i64::from(epoch) => {}
        Some(_) => return refuse(errno::ENOENT, ""),
    }
    let status = format!("dumped fsmap epoch {epoch}");
    if call.format.is_structured() {
        return now(Reply::json(call.format, &fs.dump_json()).with_status(status));
    }
    now(Reply::text(fs.dump_text()).with_status(status))
}
