//! `ceph status`, and commands about the monitors.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use spirula_denc::{EntityAddrVec, encode_to_vec};
use spirula_maps::{Epoch, MonMap, OsdCounts, OsdMap, OsdMapFlags, PgState};
use spirula_text::{addr_legacy, addr_value, size, time};

use super::{Call, Done, Reply, ciphers, commands, errno, health_cmd, now, refuse, services};
use crate::core::{Role, Turn, View};
use crate::health::state_text;
use crate::version;

commands! {
    "status" "mon" "r" status, "show the cluster's status";
    "quorum_status" "mon" "r" quorum_status, "show the monitors' quorum";
    "mon dump epoch?:Int(0)" "mon" "r" dump, "show the monitor map";
    "mon stat" "mon" "r" stat, "summarize the monitors";
    "mon getmap epoch?:Int(0)" "mon" "r" getmap, "give the encoded monitor map";
    "mon metadata id?:String" "mon" "r" metadata, "show what is known of a monitor";
    "mon versions" "mon" "r" versions, "count the monitors' versions";
    "mon count-metadata property:String" "mon" "r" count_metadata, "count monitors by a property";
    "mon ok-to-stop ids:String..." "mon" "r" ok_to_stop, "tell whether monitors may be stopped";
}

/// Addresses as JSON.
pub(super) fn addrvec(a: &EntityAddrVec) -> Value {
    json!({"addrvec": a.0.iter().map(addr_value).collect::<Vec<_>>()})
}

/// The address that older tools expect in place of several.
pub(super) fn legacy_addr(a: &EntityAddrVec) -> String {
    let legacy =
        a.0.iter()
            .find(|a| a.kind == spirula_denc::AddrType::LEGACY)
            .or(a.0.first());
    legacy.map_or_else(|| "(unrecognized address family 0)/0".to_owned(), addr_legacy)
}

/// A place in the CRUSH hierarchy as texts show it: `{datacenter=a,root=default}`.
fn location(at: &BTreeMap<String, String>) -> String {
    let parts: Vec<String> = at.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", parts.join(","))
}

/// The map as JSON.
pub(super) fn monmap_json(m: &MonMap) -> Map<String, Value> {
    let features = |f: spirula_maps::MonFeatures| f.names().collect::<Vec<_>>();
    let mons: Vec<Value> = m
        .ranks
        .iter()
        .enumerate()
        .filter_map(|(rank, name)| {
            let info = m.mons.get(name)?;
            let addr = legacy_addr(&info.public_addrs);
            Some(json!({
                "rank": rank, "name": name, "public_addrs": addrvec(&info.public_addrs), "addr": addr,
                "public_addr": addr, "priority": info.priority, "weight": info.weight,
                "crush_location": location(&info.crush_loc),
            }))
        })
        .collect();
    let v = json!({
        "epoch": m.epoch, "fsid": m.fsid.to_string(), "modified": time::iso(m.last_changed),
        "created": time::iso(m.created), "min_mon_release": m.min_mon_release,
        "min_mon_release_name": version::RELEASE, "election_strategy": m.strategy.0,
        "disallowed_leaders: ": "", "stretch_mode": m.stretch_mode_enabled, "tiebreaker_mon": m.tiebreaker_mon,
        "removed_ranks: ": removed_ranks(m),
        "features": {"persistent": features(m.persistent_features), "optional": features(m.optional_features)},
        "mons": mons,
    });
    match v {
        Value::Object(o) => o,
        _ => Map::new(),
    }
}

/// The ranks of monitors that the last change removed.
fn removed_ranks(m: &MonMap) -> String {
    let ranks: Vec<String> = m.removed_ranks.iter().map(u32::to_string).collect();
    ranks.join(",")
}

pub(super) fn quorum(m: &View) -> Vec<usize> {
    m.quorum_ranks()
}

fn leader(m: &View) -> &str {
    &m.quorum.leader
}

fn quorum_age(m: &View) -> Duration {
    m.now.since(m.quorum.since)
}

fn quorum_status(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let v = json!({
        "election_epoch": m.view.term, "quorum": quorum(m.view), "quorum_names": m.view.quorum.names,
        "quorum_leader_name": leader(m.view), "quorum_age": quorum_age(m.view).as_secs(),
        "features": {
            "quorum_con": spirula_maps::features::PACIFIC_ALL.to_string(),
            "quorum_mon": m.view.state.monmap.map.persistent_features.names().collect::<Vec<_>>(),
        },
        "monmap": monmap_json(&m.view.state.monmap.map),
    });
    now(Reply::json(call.format.or_json(), &v))
}

/// This monitor's role, in the official monitor's words.
fn state(m: &View) -> &'static str {
    match m.quorum.role {
        Role::Leader => "leader",
        Role::Peon => "peon",
        Role::Adrift => "electing",
    }
}

/// The answer to `ceph tell mon.X mon_status`.
pub(super) fn mon_status(m: &View) -> Value {
    let map = &m.state.monmap.map;
    let all = spirula_maps::features::PACIFIC_ALL.to_string();
    let names: Vec<_> = map.persistent_features.names().collect();
    let mut by_kind: BTreeMap<&str, usize> = BTreeMap::from([("mon", 1)]);
    for s in m.sessions.values().filter(|s| !s.forwarded) {
        *by_kind.entry(s.name.kind.name()).or_default() += 1;
    }
    json!({
        "name": m.me.name, "rank": map.rank_of(&m.me.name).unwrap_or(0),
        "state": state(m), "election_epoch": m.term, "quorum": quorum(m),
        "quorum_age": quorum_age(m).as_secs(),
        "features": {
            "required_con": spirula_maps::features::REQUIRED.to_string(), "required_mon": names,
            "quorum_con": all, "quorum_mon": names,
        },
        "outside_quorum": match m.quorum.role {
            Role::Adrift => vec![m.me.name.clone()],
            _ => Vec::new(),
        },
        "extra_probe_peers": [], "sync_provider": [],
        "monmap": monmap_json(map),
        "feature_map": by_kind.iter().map(|(k, n)| ((*k).to_owned(), json!([
            {"features": format!("{:#x}", spirula_maps::features::PACIFIC_ALL), "release": "luminous", "num": n},
        ]))).collect::<Map<_, _>>(),
        "stretch_mode": false,
    })
}

fn dump(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = &monmap_at(m.view, call)?;
    let status = format!("dumped monmap epoch {}", map.epoch);
    if call.format.is_structured() {
        // As releases from 20.2.4 have it: the policy about keys after the epoch.
        let mut v = Map::new();
        for (key, value) in monmap_json(map) {
            let first = v.is_empty();
            v.insert(key, value);
            if first {
                v.extend(ciphers::to_json(m.view.state.auth.ciphers()).map(|(k, c)| (k.to_owned(), c)));
            }
        }
        v.insert("quorum".into(), json!(quorum(m.view)));
        return now(Reply::json(call.format, &Value::Object(v)).with_status(status));
    }
    let mut text = format!(
        "epoch {}\nfsid {}\nlast_changed {}\ncreated {}\nmin_mon_release {} ({})\nelection_strategy: {}\n",
        map.epoch,
        map.fsid,
        map.last_changed,
        map.created,
        map.min_mon_release,
        version::RELEASE,
        map.strategy.0
    );
    for (rank, name) in map.ranks.iter().enumerate() {
        if let Some(info) = map.mons.get(name) {
            let place = match info.crush_loc.is_empty() {
                true => String::new(),
                false => format!("; crush_location {}", location(&info.crush_loc)),
            };
            text.push_str(&format!("{rank}: {} mon.{name}{place}\n", info.public_addrs));
        }
    }
    text.push_str(&ciphers::to_text(m.view.state.auth.ciphers()));
    now(Reply::text(text).with_status(status))
}

/// The monitor map of the epoch that a command asks for, or the newest.
fn monmap_at(m: &View, call: &Call<'_>) -> Result<MonMap, Reply> {
    let epoch = match call.args.opt_int("epoch")? {
        None | Some(0) => return Ok(m.state.monmap.map.clone()),
        Some(e) => e,
    };
    let kept = match u32::try_from(epoch) {
        Ok(e) => m.state.monmap.at(m.kv.as_ref(), Epoch::new(e)),
        Err(_) => Ok(None),
    };
    match kept {
        Ok(Some(map)) => Ok(map),
        Ok(None) => refuse(errno::ENOENT, format!("there is no map for epoch {epoch}")),
        Err(e) => refuse(errno::EIO, e.to_string()),
    }
}

fn stat(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = &m.view.state.monmap.map;
    if call.format.is_structured() {
        let members: Vec<Value> = map
            .ranks
            .iter()
            .enumerate()
            .filter(|(_, name)| m.view.quorum.names.contains(name))
            .map(|(rank, name)| json!({"rank": rank, "name": name}))
            .collect();
        let v = json!({
            "epoch": map.epoch, "min_mon_release_name": version::RELEASE, "num_mons": map.mons.len(),
            "leader": leader(m.view), "quorum": members,
        });
        return now(Reply::json(call.format, &v));
    }
    let mons: Vec<String> = map
        .mons
        .values()
        .map(|i| format!("{}={}", i.name, i.public_addrs))
        .collect();
    let ranks: Vec<String> = quorum(m.view).iter().map(usize::to_string).collect();
    now(Reply::text(format!(
        "e{}: {} mons at {{{}}} removed_ranks: {{{}}}, election epoch {}, leader {} {}, quorum {} {}",
        map.epoch,
        map.mons.len(),
        mons.join(","),
        removed_ranks(map),
        m.view.term,
        map.rank_of(leader(m.view)).unwrap_or(0),
        leader(m.view),
        ranks.join(","),
        m.view.quorum.names.join(",")
    )))
}

fn getmap(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = monmap_at(m.view, call)?;
    let status = format!("got monmap epoch {}", map.epoch);
    now(Reply::data(encode_to_vec(&map)).with_status(status))
}

/// A monitor's metadata with its name and addresses.
fn metadata_json(m: &View, name: &str) -> Map<String, Value> {
    let addrs = m
        .state
        .monmap
        .map
        .mons
        .get(name)
        .map(|i| i.public_addrs.to_string());
    let mut v = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("addrs".to_owned(), json!(addrs.unwrap_or_default())),
    ]);
    v.extend(m.mon_metadata(name).into_iter().map(|(k, x)| (k, json!(x))));
    v
}

fn metadata(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let format = call.format.or_pretty();
    let Some(id) = call.args.opt_str("id") else {
        let names = m.view.state.monmap.map.ranks.iter();
        let all: Vec<_> = names.map(|n| metadata_json(m.view, n)).collect();
        return now(Reply::json(format, &json!(all)));
    };
    if !m.view.state.monmap.map.mons.contains_key(&id) {
        return refuse(errno::ENOENT, "requested mon not found");
    }
    let mut v = metadata_json(m.view, &id);
    v.shift_remove("name");
    now(Reply::json(format, &Value::Object(v)))
}

/// The number of monitors with each value of a property.
pub(super) fn count_mons(m: &View, property: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for name in &m.state.monmap.map.ranks {
        let value = m.mon_metadata(name).remove(property);
        *counts
            .entry(value.unwrap_or_else(|| "unknown".to_owned()))
            .or_default() += 1;
    }
    counts
}

fn versions(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let counts = count_mons(m.view, "ceph_version");
    now(Reply::json(call.format.or_pretty(), &json!(counts)))
}

fn count_metadata(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let counts = count_mons(m.view, &call.args.str("property")?);
    now(Reply::json(call.format.or_pretty(), &json!(counts)))
}

fn ok_to_stop(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let ids = call.args.list("ids");
    let left: Vec<String> = m
        .view
        .quorum
        .names
        .iter()
        .filter(|n| !ids.contains(n))
        .cloned()
        .collect();
    let (names, ids) = (left.join(","), ids.join(","));
    if left.len() > m.view.state.monmap.map.ranks.len() / 2 {
        let text = format!("quorum should be preserved ({names}) after stopping [{ids}]");
        return now(Reply::status(text));
    }
    let text = format!("not enough monitors would be available ({names}) after stopping mons [{ids}]");
    refuse(errno::EBUSY, text)
}

/// `osdmap` of status, and the whole of `osd stat`.
pub(super) fn osdmap_summary(m: &View) -> Value {
    let map = &m.state.osd.map;
    let n = map.counts();
    json!({
        "epoch": map.epoch, "num_osds": n.all, "num_up_osds": n.up, "osd_up_since": map.last_up_change.sec,
        "num_in_osds": n.inside, "osd_in_since": map.last_in_change.sec, "num_remapped_pgs": map.pg_temp.len(),
    })
}

/// One line on the OSDs.
pub(super) fn osd_line(m: &View, map: &OsdMap) -> String {
    let OsdCounts { all, up, inside } = map.counts();
    let since = |t: spirula_denc::UTime| match t.is_zero() {
        true => String::new(),
        false => format!(" (since {})", time::age(m.now.since(t))),
    };
    format!(
        "{all} osds: {up} up{}, {inside} in{}",
        since(map.last_up_change),
        since(map.last_in_change)
    )
}

/// The flags that `status` shows; empty for none.
pub(super) fn shown_flags(map: &OsdMap) -> String {
    map.flags.without(OsdMapFlags::SEMIHIDDEN).to_string()
}

fn share(part: usize, whole: usize) -> f64 {
    f64::from(part as f32 / whole.max(1) as f32)
}

fn pgmap_json(m: &View) -> Value {
    let total = m.state.stats.total();
    let raw = m.state.stats.raw(&m.state.osd.map);
    let states: Vec<Value> = m
        .state
        .stats
        .states()
        .iter()
        .map(|(s, n)| json!({"state_name": state_text(*s), "count": n}))
        .collect();
    let mut v = Map::new();
    v.insert("pgs_by_state".into(), json!(states));
    v.insert("num_pgs".into(), json!(total.pgs));
    v.insert("num_pools".into(), json!(m.state.osd.map.pools.len()));
    v.insert("num_objects".into(), json!(total.sum.num_objects));
    v.insert("data_bytes".into(), json!(total.sum.num_bytes));
    v.insert("bytes_used".into(), json!(raw.used_raw()));
    v.insert("bytes_avail".into(), json!(raw.available));
    v.insert("bytes_total".into(), json!(raw.total));
    let Unserved { unknown, inactive } = unserved(m);
    if unknown > 0 {
        v.insert("unknown_pgs_ratio".into(), json!(share(unknown, total.pgs)));
    }
    if inactive > 0 {
        v.insert("inactive_pgs_ratio".into(), json!(share(inactive, total.pgs)));
    }
    let s = &total.sum;
    let ratio = |n: i64| {
        if s.num_object_copies > 0 {
            n as f64 / s.num_object_copies as f64
        } else {
            0.0
        }
    };
    if s.num_objects_degraded > 0 {
        v.insert("degraded_objects".into(), json!(s.num_objects_degraded));
        v.insert("degraded_total".into(), json!(s.num_object_copies));
        v.insert("degraded_ratio".into(), json!(ratio(s.num_objects_degraded)));
    }
    if s.num_objects_misplaced > 0 {
        v.insert("misplaced_objects".into(), json!(s.num_objects_misplaced));
        v.insert("misplaced_total".into(), json!(s.num_object_copies));
        v.insert("misplaced_ratio".into(), json!(ratio(s.num_objects_misplaced)));
    }
    v.extend(super::pool_list::recovery_rate(m, None));
    v.extend(super::pool_list::io_rate(m, None));
    Value::Object(v)
}

/// The number of PGs that serve nobody.
#[derive(Default)]
struct Unserved {
    /// PGs that nobody reported.
    unknown: usize,
    /// Other PGs that are not active.
    inactive: usize,
}

fn unserved(m: &View) -> Unserved {
    let mut n = Unserved::default();
    for s in m.state.stats.pgs.values() {
        if s.state == PgState::empty() {
            n.unknown += 1;
        } else if !s.state.intersects(PgState::ACTIVE.with(PgState::PEERED))
            || !s.state.contains(PgState::ACTIVE)
        {
            n.inactive += 1;
        }
    }
    n
}

fn status(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    if call.format.is_structured() {
        let v = json!({
            "fsid": m.view.me.fsid.to_string(), "health": health_cmd::health_json(m.view, false),
            "election_epoch": m.view.term, "quorum": quorum(m.view), "quorum_names": m.view.quorum.names,
            "quorum_age": quorum_age(m.view).as_secs(),
            "monmap": {
                "epoch": m.view.state.monmap.map.epoch, "min_mon_release_name": version::RELEASE,
                "num_mons": m.view.state.monmap.map.mons.len(),
            },
            "osdmap": osdmap_summary(m.view), "pgmap": pgmap_json(m.view),
            "fsmap": m.view.state.fs.summary_json(),
            "mgrmap": {"available": m.view.state.manager.map.available, "num_standbys": 0, "modules": [], "services": {}},
            "servicemap": services::map_json(m.view),
            "progress_events": m.view.progress.status_json(m.view.now),
        });
        return now(Reply::json(call.format, &v));
    }
    now(Reply::text(status_text(m.view)))
}

/// The padding before each check of `status`.
const HEALTH_PAD: &str = "\n            ";

fn mgr_line(m: &View) -> String {
    let map = &m.state.manager.map;
    if !map.available {
        return "no daemons active".to_owned();
    }
    let since = time::age(m.now.since(map.active_change));
    format!("{}(active, since {since})", map.active_name)
}

/// `, out of quorum: b,c`; empty if all monitors are in quorum.
fn out_of_quorum(m: &View) -> String {
    let out: Vec<&str> = m.out_of_quorum().into_iter().map(String::as_str).collect();
    match out.is_empty() {
        true => String::new(),
        false => format!(", out of quorum: {}", out.join(",")),
    }
}

fn status_text(m: &View) -> String {
    let (map, pad) = (&m.state.osd.map, services::padding(m));
    let mut t = format!(
        "  cluster:\n    id:     {}\n    health: {}\n",
        m.me.fsid,
        m.health_report().line(HEALTH_PAD, HEALTH_PAD)
    );
    t.push_str(&format!(
        " \n  services:\n    mon: {pad}{} daemons, quorum {} (age {}){}\n    mgr: {pad}{}\n    osd: {pad}{}",
        m.state.monmap.map.mons.len(),
        m.quorum.names.join(","),
        time::age(quorum_age(m)),
        out_of_quorum(m),
        mgr_line(m),
        osd_line(m, map)
    ));
    if !map.pg_temp.is_empty() {
        t.push_str(&format!("; {} remapped pgs", map.pg_temp.len()));
    }
    t.push('\n');
    let flags = shown_flags(map);
    if !flags.is_empty() {
        t.push_str(&format!("         {pad}flags {flags}\n"));
    }
    t.push_str(&services::lines(m));
    t.push_str(&services::tasks(m));
    let total = m.state.stats.total();
    let raw = m.state.stats.raw(map);
    t.push_str(&format!(
        " \n  data:\n    pools:   {} pools, {} pgs\n    objects: {} objects, {}\n    usage:   {} used, {} / {} avail\n    pgs:     ",
        map.pools.len(),
        total.pgs,
        size::count(u64::try_from(total.sum.num_objects).unwrap_or(0)),
        size::bytes(total.stored()),
        size::bytes(raw.used_raw()),
        size::bytes(raw.available),
        size::bytes(raw.total)
    ));
    t.push_str(&pgs_text(m));
    t.push_str(" \n");
    t.push_str(&io_text(m));
    let progress = m.progress.status_text(m.now);
    if !progress.is_empty() {
        t.push_str(&format!("  progress:\n{progress} \n"));
    }
    t
}

fn pgs_text(m: &View) -> String {
    const PAD: &str = "             ";
    let total = m.state.stats.total();
    let mut lines = Vec::new();
    let Unserved { unknown, inactive } = unserved(m);
    let percent = |n: usize| format!("{:.3}%", n as f64 / total.pgs.max(1) as f64 * 100.0);
    if unknown > 0 {
        lines.push(format!("{} pgs unknown", percent(unknown)));
    }
    if inactive > 0 {
        lines.push(format!("{} pgs not active", percent(inactive)));
    }
    let s = &total.sum;
    for (n, of, what) in [
        (s.num_objects_degraded, s.num_object_copies, "degraded"),
        (s.num_objects_misplaced, s.num_object_copies, "misplaced"),
        (s.num_objects_unfound, s.num_objects, "unfound"),
    ] {
        if n > 0 && of > 0 {
            lines.push(format!(
                "{n}/{of} objects {what} ({:.3}%)",
                n as f64 / of as f64 * 100.0
            ));
        }
    }
    let states = m.state.stats.states();
    let width = states.iter().map(|(_, n)| n.to_string().len()).max().unwrap_or(1);
    for (state, n) in states {
        lines.push(format!("{n:<width$} {}", state_text(state)));
    }
    if lines.is_empty() {
        return "\n".to_owned();
    }
    lines.join(&format!("\n{PAD}")) + "\n"
}

fn io_text(m: &View) -> String {
    let client = super::pool_list::io_line(m, None);
    let recovery = super::pool_list::recovery_line(m, None);
    let mut t = String::new();
    if client.is_some() || recovery.is_some() {
        t.push_str("  io:\n");
        if let Some(c) = client {
            t.push_str(&format!("    client:   {c}\n"));
        }
        if let Some(r) = recovery {
            t.push_str(&format!("    recovery: {r}\n"));
        }
        t.push_str(" \n");
    }
    t
}
