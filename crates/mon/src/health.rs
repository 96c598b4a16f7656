//! Health checks: problems found in the maps and the statistics.

mod changes;
mod clocks;
mod daemons;
mod fullness;
mod keys;
mod mutes;
mod network;
mod scrub;
mod scrub_outlook;
mod slow_disks;
mod stores;

use std::collections::BTreeMap;
use std::time::Duration;

use spirula_maps::{OsdId, OsdMap, OsdMapFlags, OsdState, PgId, PgStat, PgState, PoolFlags, PoolId};
use spirula_text::time;

use crate::core::View;

pub(crate) use changes::HealthLog;
pub use clocks::Clock;
pub use daemons::DiskUse;
pub(crate) use daemons::Versions;
pub use mutes::Mute;
pub(crate) use mutes::Mutes;
pub use scrub_outlook::Scrubs;
pub use slow_disks::CommitTime;

/// The severity of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// For your information: the cluster is healthy.
    Ok,
    /// Look at it.
    Warn,
    /// Act now.
    Error,
}

impl Severity {
    /// `HEALTH_OK`, `HEALTH_WARN` or `HEALTH_ERR`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "HEALTH_OK",
            Self::Warn => "HEALTH_WARN",
            Self::Error => "HEALTH_ERR",
        }
    }

    /// `OK`, `WRN` or `ERR`.
    pub fn short(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warn => "WRN",
            Self::Error => "ERR",
        }
    }
}

/// One problem.
#[derive(Debug, Clone)]
pub struct Check {
    /// The severity.
    pub severity: Severity,
    /// One line.
    pub summary: String,
    /// The number of things that it is about.
    pub count: usize,
    /// A line for each.
    pub detail: Vec<String>,
}

/// All problems, by code.
pub type Checks = BTreeMap<&'static str, Check>;

/// Most detail lines of a check (`mon_health_max_detail`).
const MAX_DETAIL: usize = 50;

/// The most crashes that are listed one by one.
const MAX_CRASHES: usize = 30;

fn warn(summary: String, count: usize, detail: Vec<String>) -> Check {
    Check {
        severity: Severity::Warn,
        summary,
        count,
        detail,
    }
}

fn error(summary: String, count: usize, detail: Vec<String>) -> Check {
    Check {
        severity: Severity::Error,
        summary,
        count,
        detail,
    }
}

/// `n thing` or `n things`.
fn plural(n: usize, one: &str) -> String {
    if n == 1 {
        format!("1 {one}")
    } else {
        format!("{n} {one}s")
    }
}

/// The bucket types of a new CRUSH map, with the check for buckets all of whose OSDs are down.
const SUBTREES: [(&str, &str); 11] = [
    ("host", "OSD_HOST_DOWN"),
    ("chassis", "OSD_CHASSIS_DOWN"),
    ("rack", "OSD_RACK_DOWN"),
    ("row", "OSD_ROW_DOWN"),
    ("pdu", "OSD_PDU_DOWN"),
    ("pod", "OSD_POD_DOWN"),
    ("room", "OSD_ROOM_DOWN"),
    ("datacenter", "OSD_DATACENTER_DOWN"),
    ("zone", "OSD_ZONE_DOWN"),
    ("region", "OSD_REGION_DOWN"),
    ("root", "OSD_ROOT_DOWN"),
];

/// `root=default,host=a`: where an OSD or bucket stands.
fn place(map: &OsdMap, item: i32) -> String {
    let mut levels: Vec<String> = map
        .crush
        .map()
        .location(item)
        .iter()
        .map(|(t, n)| format!("{t}={n}"))
        .collect();
    levels.reverse();
    levels.join(",")
}

impl View {
    /// All checks.
    pub fn health(&self) -> Checks {
        let mut out = Checks::new();
        let map = &self.state.osd.map;
        self.mons_down(&mut out);
        self.osds_down(map, &mut out);
        let failsafe = self.values.float("osd_failsafe_full_ratio") as f32;
        fullness::check(map, failsafe, &mut out);
        flags(map, &mut out);
        self.pools(map, &mut out);
        self.pgs(&mut out);
        scrub::late_scrubs(self, &mut out);
        scrub_outlook::check(self, &mut out);
        scrub::unscrubbed_pools(map, &mut out);
        self.counts(map, &mut out);
        self.slow_ops(&mut out);
        self.slow_disks(&mut out);
        stores::damaged(self, &mut out);
        self.slow_pings(&mut out);
        self.clocks(&mut out);
        self.daemons(&mut out);
        self.insecure_keys(&mut out);
        self.manager_module(&mut out);
        self.crashed(&mut out);
        out
    }

    /// Checks for modules of the manager that end again and again, in the words of Ceph's monitors.
    fn manager_module(&self, out: &mut Checks) {
        if let Some(why) = self.state.manager.module.failure(self.steady.now()) {
            let text = format!("Module '{}' has failed: {why}", spirula_manager::MODULE);
            out.insert("MGR_MODULE_ERROR", error(text.clone(), 1, vec![text]));
        }
    }

    /// Daemons that have crashed of late, in the words of Ceph's module.
    fn crashed(&self, out: &mut Checks) {
        let mut detail = self.recent_crashes();
        let count = detail.len();
        if count == 0 {
            return;
        }
        if count > MAX_CRASHES {
            detail.truncate(MAX_CRASHES);
            detail.push(format!("and {} more", count - MAX_CRASHES));
        }
        let text = format!("{count} daemons have recently crashed");
        out.insert("RECENT_CRASH", warn(text, count, detail));
    }

    fn osds_down(&self, map: &OsdMap, out: &mut Checks) {
        // One that never came up is not missed.
        let missed = |o: OsdId| map.is_in(o) && map.is_down(o) && !map.state(o).contains(OsdState::NEW);
        let down: Vec<OsdId> = map.osds().filter(|o| missed(*o)).collect();
        if down.is_empty() {
            return;
        }
        let detail = down
            .iter()
            .map(|o| format!("osd.{o} ({}) is down", place(map, o.item())))
            .collect();
        out.insert(
            "OSD_DOWN",
            warn(format!("{} osds down", down.len()), down.len(), detail),
        );
        self.subtrees_down(map, out);
    }

    /// Hosts, and larger buckets, all of whose OSDs are down.
    fn subtrees_down(&self, map: &OsdMap, out: &mut Checks) {
        let crush = map.crush.map();
        let top = crush.iter_buckets().map(|b| i32::from(b.type_id)).max();
        for (kind, code) in SUBTREES {
            let Some(type_id) = crush.type_id(kind) else {
                continue;
            };
            let (mut detail, mut osds) = (Vec::new(), 0);
            for b in crush
                .iter_buckets()
                .filter(|b| i32::from(b.type_id) == type_id && !crush.is_shadow(b.id))
            {
                let below: Vec<OsdId> = map
                    .osds_below(b.id)
                    .into_iter()
                    .filter(|o| map.exists(*o) && map.is_in(*o))
                    .collect();
                if !below.is_empty() && below.iter().all(|o| map.is_down(*o)) {
                    osds += below.len();
                    let name = crush.name(b.id).unwrap_or_default();
                    let at = match Some(type_id) == top {
                        true => String::new(),
                        false => format!(" ({})", place(map, b.id)),
                    };
                    detail.push(format!("{kind} {name}{at} ({} osds) is down", below.len()));
                }
            }
            if !detail.is_empty() {
                let summary = format!("{} ({osds} osds) down", plural(detail.len(), kind));
                out.insert(code, warn(summary, detail.len(), detail));
            }
        }
    }

    fn pools(&self, map: &OsdMap, out: &mut Checks) {
        let name = |id: &PoolId| map.pool_name(*id).unwrap_or_default();
        let list = |flag: PoolFlags, text: &dyn Fn(&str) -> String| -> Vec<String> {
            let set = map.pools.iter().filter(|(_, p)| p.flags.contains(flag));
            set.map(|(id, p)| {
                if flag == PoolFlags::FULL && p.flags.contains(PoolFlags::FULL_QUOTA) {
                    format!("pool '{}' is full (running out of quota)", name(id))
                } else {
                    text(name(id))
                }
            })
            .collect()
        };
        for (flag, code, what, tail) in [
            (PoolFlags::FULL, "POOL_FULL", "full", "no space"),
            (PoolFlags::BACKFILLFULL, "POOL_BACKFILLFULL", "backfillfull", ""),
            (PoolFlags::NEARFULL, "POOL_NEAR_FULL", "nearfull", ""),
        ] {
            let detail = list(flag, &|n| match tail {
                "" => format!("pool '{n}' is {what}"),
                t => format!("pool '{n}' is {what} ({t})"),
            });
            if !detail.is_empty() {
                out.insert(
                    code,
                    warn(
                        format!(
                            "{} {what}",
                            plural(detail.len(), "pool(s)").replace("(s)s", "(s)")
                        ),
                        detail.len(),
                        detail,
                    ),
                );
            }
        }
        if self.values.flag("mon_warn_on_pool_no_redundancy") {
            let single: Vec<String> = map
                .pools
                .iter()
                .filter(|(_, p)| p.size == 1)
                .map(|(id, _)| format!("pool '{}' has no replicas configured", name(id)))
                .collect();
            if !single.is_empty() {
                let summary = format!("{} pool(s) have no replicas configured", single.len());
                out.insert("POOL_NO_REDUNDANCY", warn(summary, single.len(), single));
            }
        }
        self.pools_without_app(map, out);
    }

    fn pools_without_app(&self, map: &OsdMap, out: &mut Checks) {
        if !self.values.flag("mon_warn_on_pool_no_app") {
            return;
        }
        let mut detail: Vec<String> = map
            .pools
            .iter()
            // An empty pool may still be in the making.
            .filter(|(id, p)| {
                p.application_metadata.is_empty() && self.state.stats.pool(**id).sum.num_objects > 0
            })
            .map(|(id, _)| {
                format!(
                    "application not enabled on pool '{}'",
                    map.pool_name(*id).unwrap_or_default()
                )
            })
            .collect();
        if detail.is_empty() {
            return;
        }
        let n = detail.len();
        detail.push(
            "use 'ceph osd pool application enable <pool-name> <app-name>', where <app-name> is 'cephfs', 'rbd', 'rgw', \
             or freeform for custom applications."
                .to_owned(),
        );
        out.insert(
            "POOL_APP_NOT_ENABLED",
            warn(
                format!("{n} pool(s) do not have an application enabled"),
                n,
                detail,
            ),
        );
    }

    fn counts(&self, map: &OsdMap, out: &mut Checks) {
        let n = map.osds().count();
        let want = usize::try_from(self.values.uint("osd_pool_default_size")).unwrap_or(3);
        if n < want {
            out.insert(
                "TOO_FEW_OSDS",
                warn(
                    format!("OSD count {n} < osd_pool_default_size {want}"),
                    want - n,
                    vec![],
                ),
            );
        }
        let inside = map.osds().filter(|o| map.is_in(*o)).count();
        let most = usize::try_from(self.values.uint("mon_max_pg_per_osd")).unwrap_or(250);
        let placed: usize = map
            .pools
            .values()
            .map(|p| p.pg_num as usize * usize::from(p.size))
            .sum();
        if inside > 0 && most > 0 && placed / inside > most {
            let per = placed / inside;
            out.insert(
                "TOO_MANY_PGS",
                warn(
                    format!("too many PGs per OSD ({per} > max {most})"),
                    per - most,
                    vec![],
                ),
            );
        }
    }

    fn slow_ops(&self, out: &mut Checks) {
        let mut daemons = Vec::new();
        let (mut total, mut oldest) = (0usize, Duration::ZERO);
        for osd in self.state.osd.map.osds().filter(|o| self.state.osd.map.is_up(*o)) {
            let slow = self.state.osd.lives.get(osd).map(|l| &l.slow_ops);
            let Some(slow) = slow.filter(|s| s.count > 0) else {
                continue;
            };
            total += slow.count as usize;
            oldest = oldest.max(Duration::from_millis(slow.oldest_ms.into()));
            daemons.push(format!("osd.{osd}"));
        }
        if total > 0 {
            let who = match daemons.as_slice() {
                [one] => format!("{one} has slow ops"),
                some if some.len() > 10 => format!("daemons [{}]... have slow ops.", some[..10].join(",")),
                some => format!("daemons [{}] have slow ops.", some.join(",")),
            };
            let summary = format!(
                "{total} slow ops, oldest one blocked for {} sec, {who}",
                oldest.as_secs()
            );
            out.insert("SLOW_OPS", warn(summary, total, Vec::new()));
        }
    }

    fn pgs(&self, out: &mut Checks) {
        let stuck_after = Duration::from_secs(self.values.uint("mon_pg_stuck_threshold"));
        let mut found: BTreeMap<&'static str, Found> = BTreeMap::new();
        for (pg, stat) in &self.state.stats.pgs {
            for rule in PG_RULES {
                let Some(line) = rule.test(self, *pg, stat, stuck_after) else {
                    continue;
                };
                let f = found.entry(rule.code).or_default();
                *f.states.entry(rule.order).or_default() += 1;
                // As in Ceph, these checks have a line more than others.
                if f.lines.len() <= MAX_DETAIL {
                    f.lines.insert(*pg, line);
                }
            }
        }
        let sum = self.state.stats.total().sum;
        for (code, f) in found {
            let (head, severe) = match code {
                "PG_AVAILABILITY" => ("Reduced data availability: ", false),
                "PG_DEGRADED" => ("Degraded data redundancy: ", false),
                "PG_BACKFILL_FULL" => (
                    "Low space hindering backfill (add storage if this doesn't resolve itself): ",
                    false,
                ),
                "PG_RECOVERY_FULL" => ("Full OSDs blocking recovery: ", true),
                _ => ("Possible data damage: ", true),
            };
            let mut summary = head.to_owned();
            if code == "PG_DEGRADED" && sum.num_objects_degraded > 0 && sum.num_object_copies > 0 {
                let share = sum.num_objects_degraded as f64 / sum.num_object_copies as f64 * 100.0;
                summary.push_str(&format!(
                    "{}/{} objects degraded ({share:.3}%), ",
                    sum.num_objects_degraded, sum.num_object_copies
                ));
            }
            let parts: Vec<String> = f
                .states
                .iter()
                .map(|(order, n)| {
                    format!(
                        "{} {}",
                        if *n > 1 {
                            format!("{n} pgs")
                        } else {
                            format!("{n} pg")
                        },
                        rule_name(*order)
                    )
                })
                .collect();
            summary.push_str(&parts.join(", "));
            let count = f.states.values().sum();
            let lines = f.lines.into_values().collect();
            out.insert(
                code,
                if severe {
                    error(summary, count, lines)
                } else {
                    warn(summary, count, lines)
                },
            );
        }
        scrub::findings(self, &sum, out);
        if self.values.flag("mon_warn_on_misplaced")
            && sum.num_objects_misplaced > 0
            && sum.num_object_copies > 0
        {
            let (n, of) = (sum.num_objects_misplaced, sum.num_object_copies);
            let share = n as f64 / of as f64 * 100.0;
            let summary = format!("{n}/{of} objects misplaced ({share:.3}%)");
            let count = usize::try_from(n).unwrap_or(1);
            out.insert("OBJECT_MISPLACED", warn(summary, count, Vec::new()));
        }
        if sum.num_objects_unfound > 0 && sum.num_objects > 0 {
            let n = usize::try_from(sum.num_objects_unfound).unwrap_or(1);
            let share = sum.num_objects_unfound as f64 / sum.num_objects as f64 * 100.0;
            let summary = format!("{n}/{} objects unfound ({share:.3}%)", sum.num_objects);
            out.insert("OBJECT_UNFOUND", warn(summary, n, Vec::new()));
        }
    }
}

#[derive(Default)]
struct Found {
    /// PGs by the rule's place in the table, which orders the summary.
    states: BTreeMap<u8, usize>,
    lines: BTreeMap<PgId, String>,
}

/// A state that makes a PG unhealthy.
struct PgRule {
    code: &'static str,
    /// The state's bit, by which the official summary is ordered.
    order: u8,
    state: PgState,
    /// Whether the state must be absent.
    inverted: bool,
    /// For a rule that only applies after some time: since when the state lasts.
    since: Option<fn(&PgStat) -> spirula_denc::UTime>,
    name: &'static str,
}

macro_rules! pg_rules {
    ($($code:literal $order:literal $state:ident $name:literal $inverted:literal $since:expr;)*) => {
        const PG_RULES: &[PgRule] = &[$(PgRule {
            code: $code, order: $order, state: PgState::$state, inverted: $inverted, since: $since, name: $name,
        }),*];
    };
}

pg_rules! {
    "PG_AVAILABILITY" 1 ACTIVE "inactive" true Some(|p| p.last_active);
    "PG_AVAILABILITY" 4 DOWN "down" false None;
    "PG_DAMAGED" 5 RECOVERY_UNFOUND "recovery_unfound" false None;
    "PG_DAMAGED" 6 BACKFILL_UNFOUND "backfill_unfound" false None;
    "PG_DEGRADED" 10 DEGRADED "degraded" false None;
    "PG_DAMAGED" 11 INCONSISTENT "inconsistent" false None;
    "PG_AVAILABILITY" 12 PEERING "peering" false Some(|p| p.last_peered);
    "PG_AVAILABILITY" 16 INCOMPLETE "incomplete" false None;
    "PG_AVAILABILITY" 17 STALE "stale" false Some(|p| p.last_unstale);
    "PG_BACKFILL_FULL" 21 BACKFILL_TOOFULL "backfill_toofull" false None;
    "PG_DEGRADED" 23 UNDERSIZED "undersized" false Some(|p| p.last_fullsized);
    "PG_RECOVERY_FULL" 28 RECOVERY_TOOFULL "recovery_toofull" false None;
    "PG_DAMAGED" 29 SNAPTRIM_ERROR "snaptrim_error" false None;
}

fn rule_name(order: u8) -> &'static str {
    PG_RULES.iter().find(|r| r.order == order).map_or("", |r| r.name)
}

impl PgRule {
    /// The detail line, if the PG is in this state.
    fn test(&self, mon: &View, pg: PgId, stat: &PgStat, stuck_after: Duration) -> Option<String> {
        if stat.state.contains(self.state) == self.inverted {
            return None;
        }
        let state = state_text(stat.state);
        if let Some(since) = self.since {
            let since = since(stat);
            let started = if since.is_zero() { stat.last_change } else { since };
            if mon.now.since(started) < stuck_after {
                return None;
            }
            let age = match since.is_zero() {
                true => "since forever".to_owned(),
                false => format!("for {}", time::age(mon.now.since(since))),
            };
            return Some(format!(
                "pg {pg} is stuck {} {age}, current state {state}, last acting {}",
                self.name, stat.acting
            ));
        }
        let mut line = format!("pg {pg} is {state}, acting {}", stat.acting);
        if stat.stats.sum.num_objects_unfound > 0 {
            line.push_str(&format!(", {} unfound", stat.stats.sum.num_objects_unfound));
        }
        Some(line)
    }
}

/// A PG's state as text; a PG that nobody reported is `unknown`.
pub fn state_text(state: PgState) -> String {
    if state == PgState::empty() {
        "unknown".to_owned()
    } else {
        state.to_string()
    }
}

fn flags(map: &OsdMap, out: &mut Checks) {
    let shown = map.flags.intersection(WARN_FLAGS);
    if shown != OsdMapFlags::empty() {
        let n = map.flags.names().count();
        out.insert(
            "OSDMAP_FLAGS",
            warn(format!("{shown} flag(s) set"), n, Vec::new()),
        );
    }
    let detail: Vec<String> = map
        .osds()
        .filter_map(|o| {
            let set = OsdState(map.state(o).0 & OSD_FLAGS.0);
            (set != OsdState::empty()).then(|| format!("osd.{o} has flags {set}"))
        })
        .collect();
    if !detail.is_empty() {
        let n = detail.len();
        let summary =
            format!("{n} OSDs or CRUSH {{nodes, device-classes}} have {{NOUP,NODOWN,NOIN,NOOUT}} flags set");
        out.insert("OSD_FLAGS", warn(summary, n, detail));
    }
}

const OSD_FLAGS: OsdState = OsdState::NOUP
    .with(OsdState::NODOWN)
    .with(OsdState::NOIN)
    .with(OsdState::NOOUT);

/// Flags worth a warning.
const WARN_FLAGS: OsdMapFlags = OsdMapFlags::PAUSERD
    .with(OsdMapFlags::PAUSEWR)
    .with(OsdMapFlags::PAUSEREC)
    .with(OsdMapFlags::NOUP)
    .with(OsdMapFlags::NODOWN)
    .with(OsdMapFlags::NOIN)
    .with(OsdMapFlags::NOOUT)
    .with(OsdMapFlags::NOBACKFILL)
    .with(OsdMapFlags::NORECOVER)
    .with(OsdMapFlags::NOSCRUB)
    .with(OsdMapFlags::NODEEP_SCRUB)
    .with(OsdMapFlags::NOTIERAGENT)
    .with(OsdMapFlags::NOSNAPTRIM)
    .with(OsdMapFlags::NOREBALANCE);
