//! Why some of Pacific's commands are not supported.
//!
//! A command is found by the longest of its leading words that are listed. Such a command is
//! answered with `EOPNOTSUPP`, which is also what Ceph answers when a manager's module is not
//! enabled.

use super::{Reply, errno};

const NO_MANAGER: &str = "it belongs to a module of the manager, and the manager has no modules here";
const NO_ORCHESTRATOR: &str = "Spirula has no orchestrator; its daemons are started with `spirula up`, `spirula mon run` and `spirula osd run`";
const NO_FS: &str = "CephFS is not built yet: there are no file systems and no metadata servers";
const NO_DEVICES: &str = "OSDs do not report the serial numbers and the health of their devices";
const NO_AUTOSCALER: &str = "there is no autoscaler; set pg_num with `ceph osd pool set`";
const NO_BALANCER: &str =
    "there is no balancer; `ceph osd pg-upmap-items` and `ceph osd reweight-by-utilization` move data";
const NO_TIERS: &str = "cache tiers are not built: Ceph itself deprecates them";
const NO_STRETCH: &str = "stretch mode is not built";
const RAFT: &str = "monitors agree by Raft, whose leader is not elected by rank or score";

/// Leading words of commands, and why those are not supported.
const REASONS: &[(&str, &str)] = &[
    ("alerts", NO_MANAGER),
    ("balancer", NO_BALANCER),
    ("device", NO_DEVICES),
    ("fs", NO_FS),
    ("healthcheck history", NO_MANAGER),
    ("influx", NO_MANAGER),
    ("insights", NO_MANAGER),
    ("mds", NO_FS),
    ("mgr self-test", NO_MANAGER),
    ("mon add disallowed_leader", RAFT),
    ("mon enable_stretch_mode", NO_STRETCH),
    ("mon rm disallowed_leader", RAFT),
    (
        "mon scrub",
        "the monitors' stores are not compared; each entry of their log is checked when it is applied",
    ),
    ("mon set election_strategy", RAFT),
    (
        "mon set-addrs",
        "a monitor's address is given when it is made, with `spirula mon mkfs`",
    ),
    ("mon set_new_tiebreaker", NO_STRETCH),
    ("nfs", "NFS gateways are not built"),
    (
        "osd force-create-pg",
        "a lost placement group cannot be made anew yet",
    ),
    ("osd force_healthy_stretch_mode", NO_STRETCH),
    ("osd force_recovery_stretch_mode", NO_STRETCH),
    ("osd pool get noautoscale", NO_AUTOSCALER),
    ("osd pool set noautoscale", NO_AUTOSCALER),
    ("osd pool unset noautoscale", NO_AUTOSCALER),
    ("osd tier", NO_TIERS),
    (
        "pg getmap",
        "Ceph's encoding of the statistics is not built; `ceph pg dump` shows them",
    ),
    (
        "pg repeer",
        "`ceph osd down` of its primary makes a placement group peer again",
    ),
    ("prometheus", NO_MANAGER),
    ("restful", NO_MANAGER),
    ("telegraf", NO_MANAGER),
    ("telemetry", "nothing is sent anywhere"),
    ("test_orchestrator", NO_ORCHESTRATOR),
    ("zabbix", NO_MANAGER),
];

/// Why a command is not supported; `None` if no reason is listed.
pub(super) fn reason(prefix: &str) -> Option<&'static str> {
    let leads = |words: &str| {
        let rest = prefix.strip_prefix(words);
        rest.is_some_and(|r| r.is_empty() || r.starts_with(' '))
    };
    let found = REASONS.iter().filter(|(words, _)| leads(words));
    found.max_by_key(|(words, _)| words.len()).map(|(_, why)| *why)
}

/// The refusal.
pub(super) fn reply(prefix: &str) -> Reply {
    let why = reason(prefix).unwrap_or("it is not built yet");
    Reply::error(errno::EOPNOTSUPP, format!("'{prefix}' is not supported: {why}"))
}

#[cfg(test)]
pub(super) fn listed() -> impl Iterator<Item = &'static str> {
    REASONS.iter().map(|(words, _)| *words)
}
