//! Checks about scrubs: what they found, PGs whose scrub is late, and pools without scrubs.

use std::collections::BTreeMap;

use spirula_denc::UTime;
use spirula_maps::pool::PoolOption;
use spirula_maps::{ObjectStatSum, OsdMap, PgPool, PgStat, PgState, PoolFlags, PoolId};

use super::{Check, Checks, MAX_DETAIL, Severity, error, warn};
use crate::core::View;

/// A kind of scrub, and when a PG's one is late.
struct Kind {
    code: &'static str,
    /// What is not done to a PG in time.
    done: &'static str,
    /// The option that says the greatest pause between two.
    interval: &'static str,
    /// The option of pools that says it instead.
    pool_interval: &'static str,
    /// The option that says by which share of the pause a scrub may be late.
    ratio: &'static str,
    /// When a PG had the last one.
    last: fn(&PgStat) -> UTime,
}

const KINDS: [Kind; 2] = [
    Kind {
        code: "PG_NOT_SCRUBBED",
        done: "scrubbed",
        interval: "osd_scrub_max_interval",
        pool_interval: "scrub_max_interval",
        ratio: "mon_warn_pg_not_scrubbed_ratio",
        last: |pg| pg.last_scrub_stamp,
    },
    Kind {
        code: "PG_NOT_DEEP_SCRUBBED",
        done: "deep-scrubbed",
        interval: "osd_deep_scrub_interval",
        pool_interval: "deep_scrub_interval",
        ratio: "mon_warn_pg_not_deep_scrubbed_ratio",
        last: |pg| pg.last_deep_scrub_stamp,
    },
];

/// PGs that have not been scrubbed for long.
pub(super) fn late_scrubs(mon: &View, out: &mut Checks) {
    for kind in &KINDS {
        let ratio = mon.values.float(kind.ratio);
        if ratio != 0.0
            && let Some(check) = late(mon, kind, ratio)
        {
            out.insert(kind.code, check);
        }
    }
}

fn late(mon: &View, kind: &Kind, ratio: f64) -> Option<Check> {
    let interval = mon.values.float(kind.interval);
    let pools = &mon.state.osd.map.pools;
    let limits: BTreeMap<PoolId, f64> = pools
        .iter()
        .map(|(id, pool)| (*id, own_interval(pool, kind).unwrap_or(interval) * (1.0 + ratio)))
        .collect();
    let (mut count, mut detail) = (0, Vec::new());
    for (pg, stat) in &mon.state.stats.pgs {
        let (Some(pool), Some(limit)) = (pools.get(&pg.pool), limits.get(&pg.pool)) else {
            continue;
        };
        // Nobody has reported the PG since this monitor leads.
        if stat.state == PgState::empty() {
            continue;
        }
        let last = match (kind.last)(stat) {
            never if never.is_zero() => pool.create_time,
            last => last,
        };
        if mon.now.since(last).as_secs_f64() <= *limit {
            continue;
        }
        count += 1;
        if count <= MAX_DETAIL {
            detail.push(format!("pg {pg} not {} since {last}", kind.done));
        }
    }
    if count > MAX_DETAIL {
        detail.push(format!("{} more pgs... ", count - MAX_DETAIL));
    }
    let summary = format!("{count} pgs not {} in time", kind.done);
    (count > 0).then(|| warn(summary, count, detail))
}

/// Damage, and objects with large omaps, that scrubs have found.
pub(super) fn findings(mon: &View, sum: &ObjectStatSum, out: &mut Checks) {
    if sum.num_scrub_errors > 0 {
        let n = usize::try_from(sum.num_scrub_errors).unwrap_or(1);
        out.insert(
            "OSD_SCRUB_ERRORS",
            error(format!("{n} scrub errors"), n, Vec::new()),
        );
    }
    if sum.num_large_omap_objects > 0 {
        let n = usize::try_from(sum.num_large_omap_objects).unwrap_or(1);
        let summary = format!("{n} large omap objects");
        out.insert("LARGE_OMAP_OBJECTS", warn(summary, n, large_omaps(mon)));
    }
}

/// A line for each pool with such objects, and where to read on.
fn large_omaps(mon: &View) -> Vec<String> {
    let map = &mon.state.osd.map;
    let of_pool = |id: &PoolId| {
        let n = mon.state.stats.pool(*id).sum.num_large_omap_objects;
        let name = map.pool_name(*id).unwrap_or_default();
        (n > 0).then(|| format!("{n} large objects found in pool '{name}'"))
    };
    let mut detail: Vec<String> = map.pools.keys().filter_map(of_pool).collect();
    detail.push("Search the cluster log for 'Large omap object found' for more details.".to_owned());
    detail
}

/// The greatest pause between two scrubs, in seconds, where a pool has its own.
fn own_interval(pool: &PgPool, kind: &Kind) -> Option<f64> {
    match pool.opts.get(kind.pool_interval) {
        Some(PoolOption::Float(seconds)) if *seconds > 0.0 => Some(*seconds),
        _ => None,
    }
}

/// Pools whose PGs are not scrubbed of their own accord.
pub(super) fn unscrubbed_pools(map: &OsdMap, out: &mut Checks) {
    let flags = [PoolFlags::NOSCRUB, PoolFlags::NODEEP_SCRUB];
    let mut set = PoolFlags::empty();
    let mut detail = Vec::new();
    for (id, pool) in &map.pools {
        for flag in flags.into_iter().filter(|f| pool.flags.contains(*f)) {
            set.insert(flag);
            let name = map.pool_name(*id).unwrap_or_default();
            detail.push(format!("Pool {name} has {flag} flag"));
        }
    }
    if detail.is_empty() {
        return;
    }
    let names: Vec<String> = flags
        .into_iter()
        .filter(|f| set.contains(*f))
        .map(|f| f.to_string())
        .collect();
    let check = Check {
        severity: Severity::Ok,
        summary: format!("Some pool(s) have the {} flag(s) set", names.join(", ")),
        // As in Ceph.
        count: 0,
        detail,
    };
    out.insert("POOL_SCRUB_FLAGS", check);
}
