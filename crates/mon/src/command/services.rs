//! Services that have registered with the manager.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use spirula_proto::mgr::{Service, ServiceDaemon};
use spirula_text::addr_legacy;

use super::{Call, Done, commands, misc};
use crate::core::{Turn, View};

commands! {
    "service dump" "service" "r" dump, "show the service map";
    "service status" "service" "r" status, "show the services' state";
}

fn daemon_json(d: &ServiceDaemon) -> Value {
    json!({
        "start_epoch": d.start_epoch, "start_stamp": d.start_stamp.to_string(), "gid": d.gid,
        "addr": addr_legacy(&d.addr), "metadata": d.metadata, "task_status": d.task_status,
    })
}

fn service_json(s: &Service) -> Value {
    // Ceph has the summary among the daemons.
    let mut daemons = Map::from_iter([("summary".to_owned(), json!(s.summary))]);
    daemons.extend(s.daemons.iter().map(|(name, d)| (name.clone(), daemon_json(d))));
    json!({"daemons": daemons})
}

/// The service map.
pub(super) fn map_json(m: &View) -> Value {
    let map = &m.state.manager.services.map;
    let services: Map<String, Value> = map
        .services
        .iter()
        .map(|(name, s)| (name.clone(), service_json(s)))
        .collect();
    json!({"epoch": map.epoch, "modified": map.modified.to_string(), "services": services})
}

fn dump(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    misc::pretty(call.format, &map_json(m.view))
}

fn status(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let services = &m.view.state.manager.services;
    let daemon = |service: &str, name: &str| {
        let report = services.report_of(service, name)?;
        let v = json!({
            "status_stamp": report.status_stamp.to_string(), "last_beacon": report.beacon.to_string(),
            "status": report.status,
        });
        Some((name.to_owned(), v))
    };
    let of_service = |(name, s): (&String, &Service)| {
        let daemons: Map<String, Value> = s.daemons.keys().filter_map(|d| daemon(name, d)).collect();
        (name.clone(), Value::Object(daemons))
    };
    let all: Map<String, Value> = services.map.services.iter().map(of_service).collect();
    misc::pretty(call.format, &Value::Object(all))
}

/// The services' daemons counted by the version they run, by service.
pub(super) fn version_counts(m: &View) -> BTreeMap<String, BTreeMap<String, usize>> {
    let count = |s: &Service| {
        let mut counts = BTreeMap::new();
        for d in s.daemons.values() {
            let version = d.metadata.get("ceph_version").map_or("unknown", String::as_str);
            *counts.entry(version.to_owned()).or_default() += 1;
        }
        counts
    };
    let services = &m.state.manager.services.map.services;
    services
        .iter()
        .map(|(name, s)| (name.clone(), count(s)))
        .collect()
}

/// The summary of a service in `status`: `2 gateways active (2 hosts, 1 zones)`.
fn summary(s: &Service) -> String {
    if !s.summary.is_empty() {
        return s.summary.clone();
    }
    let of = |key: &str| -> BTreeSet<&String> {
        let values = s.daemons.values().filter_map(|d| d.metadata.get(key));
        values.collect()
    };
    let mut kinds = s.daemons.values().filter_map(|d| d.metadata.get("daemon_type"));
    let kind = kinds.next_back().map_or("daemon", String::as_str);
    let count = s.daemons.len();
    let plural = if count > 1 { "s" } else { "" };
    // Always the plural, as Ceph has it.
    let groups: Vec<String> = [("host", "hostname"), ("zone", "zone_id")]
        .iter()
        .map(|(what, key)| (what, of(key).len()))
        .filter(|(_, n)| *n > 0)
        .map(|(what, n)| format!("{n} {what}s"))
        .collect();
    match groups.is_empty() {
        true => format!("{count} {kind}{plural} active"),
        false => format!("{count} {kind}{plural} active ({})", groups.join(", ")),
    }
}

/// The padding of the names in `status`, which depends on the longest service's name.
pub(super) fn padding(m: &View) -> String {
    let names = m.state.manager.services.map.services.keys();
    " ".repeat(names.map(String::len).max().unwrap_or(0).saturating_sub(3))
}

/// The lines of `status` on services.
pub(super) fn lines(m: &View) -> String {
    let width = padding(m).len() + 3;
    let services = m.state.manager.services.map.services.iter();
    services
        .map(|(name, s)| {
            let pad = width - name.len().min(width);
            format!("    {name}: {}{}\n", " ".repeat(pad), summary(s))
        })
        .collect()
}

/// The part of `status` on the tasks of the services' daemons; empty if there are none.
pub(super) fn tasks(m: &View) -> String {
    let mut text = String::new();
    for (name, s) in &m.state.manager.services.map.services {
        let mut by_task: BTreeMap<&String, Vec<String>> = BTreeMap::new();
        for (daemon, d) in &s.daemons {
            for (task, status) in &d.task_status {
                let line = format!("        {name}.{daemon}: {status}\n");
                by_task.entry(task).or_default().push(line);
            }
        }
        for (task, lines) in by_task {
            text.push_str(&format!("    {task}:\n{}", lines.concat()));
        }
    }
    match text.is_empty() {
        true => text,
        false => format!(" \n  task status:\n{text}"),
    }
}
