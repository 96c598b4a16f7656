//! Commands for a monitor itself: of its admin socket (`ceph daemon mon.X`) and of `ceph tell
//! mon.X`. They are those of Ceph's monitor; for some it is told why they are not supported.

use serde_json::{Map, Value, json};
use spirula_asok::{Answer, COUNTER, Command, Failure, perf};
use spirula_invariant::Reason;

use super::{errno, status};
use crate::core::{Daemon, Topic, View};

macro_rules! commands {
    ($($name:literal $params:expr, $help:literal;)*) => {
        &[$(Command::new($name, $params, $help),)*]
    };
}

/// The counters of the monitor and of the manager.
pub(super) const PERF_DUMP: Command = Command::new("perf dump", COUNTER, "dump perfcounters value");
/// The counters' descriptions.
pub(super) const PERF_SCHEMA: Command = Command::new("perf schema", &[], "dump perfcounters schema");

/// The commands, besides those that every daemon has.
pub(crate) const DAEMON_COMMANDS: &[Command] = commands! {
    "add_bootstrap_peer_hint" &[("addr", "CephIPAddr")], "name an address of another monitor, for a cluster's first start";
    "add_bootstrap_peer_hintv" &[("addrv", "CephString")], "name addresses of another monitor, for a cluster's first start";
    "compact" &[], "compact the monitor's store";
    "connection scores dump" &[], "show how well connected the monitors are, for their election";
    "connection scores reset" &[], "forget how well connected the monitors are";
    "dump_historic_ops" &[], "show recent ops";
    "dump_historic_slow_ops" &[], "show recent slow ops";
    "dump_mempools" &[], "get mempool stats";
    "dump_ops_in_flight" &[], "show the ops currently in flight";
    "dump_transitions" &[], "show recent transitions of the monitor";
    "heap" &[("heapcmd", "CephChoices,strings=dump|start_profiler|stop_profiler|release|stats"), ("value?", "CephString")],
        "show heap usage info (available only if compiled with tcmalloc)";
    "log dump" &[], "dump recent log entries to log file";
    "log flush" &[], "flush log entries to log file";
    "log reopen" &[], "reopen log file";
    "mon_status" &[], "show this monitor's state";
    "ops" &[], "show the ops currently in flight";
    "perf dump" COUNTER, "dump perfcounters value";
    "perf histogram dump" COUNTER, "dump perf histogram values";
    "perf histogram schema" &[], "dump perf histogram schema";
    "perf reset" &[("var", "CephString")], "perf reset <name>: perf reset all or one perfcounter name";
    "perf schema" &[], "dump perfcounters schema";
    "quorum enter" &[], "take part in the quorum again";
    "quorum exit" &[], "leave the quorum";
    "quorum_status" &[], "show the quorum";
    "sessions" &[], "list existing sessions";
    "smart" &[("devid?", "CephString")], "probe the monitor's device for SMART data";
    "sync_force" &[("validate?", "CephChoices,strings=--yes-i-really-mean-it")], "copy the store from another monitor anew";
};

/// Why a command of the official monitor is not supported; `None` for one that is supported or does
/// not exist.
fn unsupported(prefix: &str) -> Option<&'static str> {
    Some(match prefix {
        "add_bootstrap_peer_hint" | "add_bootstrap_peer_hintv" => {
            "a monitor finds the others by the map that it was made with (`spirula mon mkfs`)"
        }
        "compact" => "the monitor's store reuses its free pages and needs no compaction",
        "connection scores dump" | "connection scores reset" => {
            "monitors agree by Raft, whose leader is not elected by score"
        }
        "dump_mempools" => "memory is not counted by pools of types",
        "heap" => "could not issue heap profiler command -- not using tcmalloc!",
        "log dump" => "recent log entries are not kept in memory",
        "log reopen" => "this process does not open its log: whoever started it does",
        "perf reset" => "the monitor's counters show what is now, and can not be reset",
        "quorum enter" | "quorum exit" => "a monitor is in the quorum while it runs: stop it to take it out",
        "smart" => "devices are not asked for SMART data: use smartctl",
        "sync_force" => "a monitor copies by itself what it lacks",
        _ => return None,
    })
}

/// The commands of `ceph tell mon.X` for sessions that may only read: they show the state of the
/// monitors, which the maps tell as well. All others change something, or show what others do and
/// how the daemon is configured.
const ONLY_READ: &[&str] = &[
    "get_command_descriptions",
    "mon_status",
    "perf dump",
    "perf schema",
    "quorum_status",
    "version",
];

/// Whether a command of `ceph tell mon.X` only shows what every reader may know.
pub(super) fn only_reads(prefix: &str) -> bool {
    ONLY_READ.contains(&prefix)
}

fn fail(errno: errno::Errno, message: impl Into<String>) -> Failure {
    Failure {
        errno,
        message: message.into(),
    }
}

/// Runs a command.
pub(crate) fn daemon_command(
    m: &mut Daemon<'_>,
    prefix: &str,
    args: &Map<String, Value>,
) -> Result<Answer, Failure> {
    let name = format!("mon.{}", m.view.me.name);
    let daemon = spirula_asok::config::Daemon {
        name: &name,
        // The core looks values up when it needs them; only the messenger's are taken at the start.
        live: |option| !option.starts_with("ms_"),
    };
    if let Some(answer) = spirula_asok::config::run(daemon, &mut m.view.values, prefix, args) {
        m.view.refresh_values();
        return answer;
    }
    if prefix.starts_with("add_bootstrap_peer_hint") && !m.view.quorum.names.is_empty() {
        return Ok(json!("mon already active; ignoring bootstrap hint").into());
    }
    if let Some(why) = unsupported(prefix) {
        return Err(fail(errno::EOPNOTSUPP, why));
    }
    let named = |key| args.get(key).and_then(Value::as_str).unwrap_or_default();
    if let Some(v) = perf::run(&counters(m), prefix, (named("logger"), named("counter"))) {
        return Ok(v.into());
    }
    let value = match prefix {
        "mon_status" | "quorum_status" => status::mon_status(m.view),
        "sessions" => sessions(m.view),
        "dump_transitions" => m.recent.dump(),
        // Log lines are written at once.
        "log flush" => json!({}),
        _ => m
            .op_command(prefix, args)
            .ok_or_else(|| fail(errno::EINVAL, "command not known"))?,
    };
    Ok(value.into())
}

fn sessions(m: &View) -> Value {
    let own = m.sessions.iter().filter(|(_, s)| !s.forwarded);
    own.map(|(id, s)| {
        json!({
            "name": s.entity().to_string(), "entity_name": s.name.to_string(), "id": id,
            "addrs": status::addrvec(&s.addr.into()), "con_features": s.features,
            "con_features_hex": format!("{:x}", s.features), "global_id": s.global_id, "authenticated": true,
            "remote_host": s.host, "subscriptions": s.subs.keys().map(Topic::to_string).collect::<Vec<_>>(),
        })
    })
    .collect()
}

fn counters(daemon: &Daemon<'_>) -> Vec<perf::Logger<'static>> {
    let m = &*daemon.view;
    let osds = m.state.osd.map.counts();
    let raw = m.state.stats.raw(&m.state.osd.map);
    let n = |n: usize| n as u64;
    let gauge = |name, value, help| perf::gauge(name, value, help);
    let objects = u64::try_from(m.state.stats.total().sum.num_objects).unwrap_or(0);
    let cluster = vec![
        gauge("num_mon", n(m.state.monmap.map.mons.len()), "Monitors"),
        gauge(
            "num_mon_quorum",
            n(m.quorum.names.len()),
            "Monitors in the quorum",
        ),
        gauge("num_osd", n(osds.all), "OSDs"),
        gauge("num_osd_up", n(osds.up), "OSDs that are up"),
        gauge("num_osd_in", n(osds.inside), "OSDs that are in"),
        gauge(
            "osd_epoch",
            u64::from(m.state.osd.map.epoch),
            "Current epoch of the OSDMap",
        ),
        gauge("osd_bytes", raw.total, "Size of all stores"),
        gauge("osd_bytes_used", raw.used_raw(), "Used space of all stores"),
        gauge("osd_bytes_avail", raw.available, "Free space of all stores"),
        gauge("num_pool", n(m.state.osd.map.pools.len()), "Pools"),
        gauge("num_pg", n(m.state.stats.pgs.len()), "Placement groups"),
        gauge("num_object", objects, "Objects"),
    ];
    let mut mon = vec![
        gauge("num_sessions", n(m.sessions.len()), "Sessions"),
        gauge(
            "writes_waiting",
            n(daemon.waiting),
            "Commands that wait for their turn to change something",
        ),
        gauge("term", m.term, "Term of the monitors' leader"),
    ];
    let dropped = daemon.dropped.iter();
    mon.extend(dropped.map(|(reason, n)| perf::count(reason.name(), n, reason.help())));
    let logger = |name, counters| perf::Logger {
        name,
        counters,
        histograms: Vec::new(),
    };
    vec![logger("cluster", cluster), logger("mon", mon)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_about_a_command_in_the_table() {
        let refused = DAEMON_COMMANDS.iter().filter(|c| unsupported(c.name).is_some());
        assert_eq!(refused.count(), 14);
        assert!(unsupported("ops").is_none() && unsupported("nope").is_none());
        assert!(DAEMON_COMMANDS.is_sorted_by(|a, b| a.name < b.name));
    }
}
