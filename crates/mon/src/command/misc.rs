//! Commands about the whole cluster, and commands for this daemon.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use spirula_maps::OsdId;
use spirula_text::Format;

use super::{Call, Done, Reply, commands, manager, now, services, status};
use crate::core::{Turn, View};
use crate::version;

commands! {
    "fsid" "mon" "r" fsid, "show the cluster's id";
    "version" "mon" "r" version_cmd, "show this monitor's version";
    "versions" "mon" "r" versions, "count the daemons' versions";
    "features" "mon" "r" features, "count what is connected by features";
    "time-sync-status" "mon" "r" time_sync, "show how far the monitors' clocks differ";
    "node ls type?:{all|osd|mon|mds|mgr}" "mon" "r" node_ls, "list the hosts and their daemons";
}

fn fsid(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let id = m.view.me.fsid.to_string();
    match call.format.is_structured() {
        true => now(Reply::json(call.format, &json!({"fsid": id}))),
        false => now(Reply::text(id + "\n")),
    }
}

fn version_cmd(_: &mut Turn<'_>, call: &Call<'_>) -> Done {
    match call.format.is_structured() {
        true => now(Reply::json(call.format, &json!({"version": version::LONG}))),
        false => now(Reply::text(format!("{}\n", version::LONG))),
    }
}

/// The running versions of OSDs with their numbers.
pub(super) fn osd_versions(m: &View) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for osd in m.state.osd.map.osds() {
        let metadata = osd_metadata(m, osd);
        if let Some(v) = metadata.get("ceph_version") {
            *out.entry(v.clone()).or_default() += 1;
        }
    }
    out
}

/// Every daemon with the version it runs.
pub(crate) fn daemon_versions(m: &View) -> Vec<(String, String)> {
    let osds = m.state.osd.map.osds().filter_map(|osd| {
        let version = osd_metadata(m, osd).remove("ceph_version")?;
        Some((format!("osd.{osd}"), version))
    });
    let mons = m.state.monmap.map.ranks.iter().filter_map(|name| {
        let version = m.mon_metadata(name).remove("ceph_version")?;
        Some((format!("mon.{name}"), version))
    });
    mons.chain(osds).collect()
}

/// The metadata that an OSD sent when it booted.
pub(super) fn osd_metadata(m: &View, osd: OsdId) -> BTreeMap<String, String> {
    match m.kv.get("osd_metadata", &osd.to_string()) {
        Ok(Some(v)) => serde_json::from_slice(&v).unwrap_or_default(),
        _ => BTreeMap::new(),
    }
}

fn versions(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let mons = status::count_mons(m.view, "ceph_version");
    let osds = osd_versions(m.view);
    let mgrs = manager::mgr_version_counts(m.view);
    let mut overall = mons.clone();
    for (v, n) in osds.iter().chain(&mgrs) {
        *overall.entry(v.clone()).or_default() += n;
    }
    let mut v = Map::new();
    for (kind, counts) in [
        ("mon", mons),
        ("mgr", mgrs),
        ("osd", osds),
        ("mds", BTreeMap::new()),
    ] {
        v.insert(kind.to_owned(), json!(counts));
    }
    for (service, counts) in services::version_counts(m.view) {
        for (version, n) in &counts {
            *overall.entry(version.clone()).or_default() += n;
        }
        v.insert(service, json!(counts));
    }
    v.insert("overall".to_owned(), json!(overall));
    now(Reply::json(call.format.or_pretty(), &Value::Object(v)))
}

fn features(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    // Ordered by the types' numbers, as the official listing is.
    let mut by: BTreeMap<spirula_denc::EntityType, BTreeMap<u64, usize>> = BTreeMap::new();
    let own = spirula_maps::features::PACIFIC_ALL;
    by.entry(spirula_denc::EntityType::MON)
        .or_default()
        .insert(own, m.view.quorum.names.len());
    for s in m.view.sessions.values() {
        *by.entry(s.name.kind).or_default().entry(s.features).or_default() += 1;
    }
    let v: Map<String, Value> = by
        .into_iter()
        .map(|(kind, counts)| {
            let list: Vec<Value> = counts
                .into_iter()
                .map(|(f, n)| json!({"features": format!("{f:#x}"), "release": "luminous", "num": n}))
                .collect();
            (kind.name().to_owned(), json!(list))
        })
        .collect();
    now(Reply::json(call.format.or_pretty(), &Value::Object(v)))
}

fn time_sync(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let t = &m.view.timecheck;
    let status = if t.is_under_way() { "on-going" } else { "finished" };
    let mut v = json!({});
    let skews: Map<String, Value> = m
        .view
        .state
        .monmap
        .map
        .ranks
        .iter()
        .filter_map(|name| Some((name, t.skews.get(name)?)))
        .map(|(name, s)| {
            let bad = m.view.skew_text(s.skew);
            let health = if bad.is_some() { "HEALTH_WARN" } else { "HEALTH_OK" };
            let mut one = json!({"skew": s.skew, "latency": s.latency, "health": health});
            if let Some(text) = bad {
                one["details"] = json!(text);
            }
            (name.clone(), one)
        })
        .collect();
    if !skews.is_empty() {
        v["time_skew_status"] = skews.into();
    }
    v["timechecks"] = json!({"epoch": m.view.term, "round": t.round, "round_status": status});
    now(Reply::json(call.format.or_pretty(), &v))
}

fn node_ls(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let kind = call.args.opt_str("type").unwrap_or_else(|| "all".to_owned());
    let mut mons: BTreeMap<String, Vec<&String>> = BTreeMap::new();
    for name in &m.view.state.monmap.map.ranks {
        let host = m.view.mon_metadata(name).remove("hostname");
        mons.entry(host.unwrap_or_else(|| "unknown".to_owned()))
            .or_default()
            .push(name);
    }
    let mut hosts: BTreeMap<String, Vec<OsdId>> = BTreeMap::new();
    for osd in m.view.state.osd.map.osds() {
        let host = osd_metadata(m.view, osd)
            .remove("hostname")
            .unwrap_or_else(|| "unknown".to_owned());
        hosts.entry(host).or_default().push(osd);
    }
    let map = &m.view.state.manager.map;
    let mgrs = match map.available {
        true => json!({m.view.me.hostname.clone(): [map.active_name]}),
        false => json!({}),
    };
    let v = match kind.as_str() {
        "mon" => json!(mons),
        "osd" => json!(hosts),
        "mgr" => mgrs,
        "mds" => return now(Reply::default()),
        _ => json!({"mon": mons, "osd": hosts, "mgr": mgrs}),
    };
    now(Reply::json(call.format.or_pretty(), &v))
}

/// Renders JSON for commands that know no plain text.
pub(super) fn pretty(format: Format, v: &Value) -> Done {
    now(Reply::json(format.or_pretty(), v))
}
