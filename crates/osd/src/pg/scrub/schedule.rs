//! When a PG is due to be scrubbed.
//!
//! After Ceph's rules (`osd_scrub_min_interval` and its relatives), with two differences: the jitter
//! of a PG is fixed, so that it is the same after a restart and in every run of a simulation, and the
//! permitted hours hold even for a scrub that is late: the monitors warn of it instead.

use std::time::Duration;

use spirula_denc::UTime;
use spirula_maps::PgId;

use super::history::ScrubHistory;
use super::hours::Week;
use super::run::Order;

/// How often PGs are scrubbed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Intervals {
    /// `osd_scrub_min_interval`: seconds after which a PG may be scrubbed.
    pub min: f64,
    /// `osd_scrub_max_interval`: seconds after which a PG is scrubbed whatever the load is; 0 for
    /// never.
    pub max: f64,
    /// `osd_deep_scrub_interval`: seconds after which a scrub is a deep one.
    pub deep: f64,
    /// `osd_scrub_interval_randomize_ratio`: the part of the first interval by which it differs from
    /// PG to PG at most.
    pub jitter: f64,
    /// The part of the deep interval by which it is shorter at most, so that not all PGs are due
    /// together.
    pub deep_jitter: f64,
}

impl Default for Intervals {
    fn default() -> Self {
        Self {
            min: 86_400.0,
            max: 604_800.0,
            deep: 604_800.0,
            jitter: 0.5,
            deep_jitter: 0.15,
        }
    }
}

/// A pool's own intervals, in seconds; 0 where the OSD's count.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PoolIntervals {
    /// `scrub_min_interval`.
    pub min: f64,
    /// `scrub_max_interval`.
    pub max: f64,
    /// `deep_scrub_interval`.
    pub deep: f64,
    /// Whether the pool is not scrubbed unless an operator says so (`noscrub`).
    pub no_scrub: bool,
    /// Whether its contents are not read unless an operator says so (`nodeep-scrub`).
    pub no_deep: bool,
}

/// Whether scheduled scrubs are permitted now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Permit {
    /// By the hour and the day: those outside of them do not begin, and those that have begun wait.
    pub week: Week,
    /// By the load of the machine: only those that are late begin.
    pub load: bool,
}

impl Default for Permit {
    fn default() -> Self {
        Self {
            week: Week::default(),
            load: true,
        }
    }
}

impl Permit {
    /// Whether this scrub may begin.
    pub(crate) fn allows(self, due: &Due) -> bool {
        due.order.requested || self.week.is_open() && (self.load || due.is_late)
    }
}

/// A scrub that is due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Due {
    /// What it is to do.
    pub order: Order,
    /// Whether the load does not matter any more.
    pub is_late: bool,
    /// Seconds since it became due: the longest go first.
    pub since: f64,
}

impl Due {
    /// An operator's order, which comes before what is due.
    pub(super) fn ordered(order: Order) -> Self {
        Self {
            order,
            is_late: true,
            since: f64::INFINITY,
        }
    }
}

impl Intervals {
    /// These intervals, where the pool has none of its own.
    fn of_pool(self, pool: &PoolIntervals) -> Self {
        let of = |pool: f64, osd: f64| if pool > 0.0 { pool } else { osd };
        Self {
            min: of(pool.min, self.min),
            max: of(pool.max, self.max),
            deep: of(pool.deep, self.deep),
            ..self
        }
    }

    /// The seconds after which a PG's next deep scrub is due, and by when its contents should have
    /// been read.
    pub(super) fn deep(&self, pgid: PgId, pool: &PoolIntervals) -> (f64, f64) {
        let of = self.of_pool(pool);
        (of.deep * (1.0 - of.deep_jitter * share(pgid, 2)), of.deep)
    }

    /// When a PG is due, and its deadline.
    pub(super) fn times(&self, pgid: PgId, history: &ScrubHistory, pool: &PoolIntervals) -> (UTime, UTime) {
        let of = self.of_pool(pool);
        let after = |seconds: f64| history.stamp.plus(span(seconds));
        let due = after(of.min * (1.0 + of.jitter * share(pgid, 1)));
        let deadline = if of.max > 0.0 { after(of.max) } else { UTime::ZERO };
        (due, deadline)
    }

    /// The scrub that is due at `now`, if one is.
    pub(super) fn due(
        &self,
        pgid: PgId,
        history: &ScrubHistory,
        pool: &PoolIntervals,
        now: UTime,
    ) -> Option<Due> {
        let of = self.of_pool(pool);
        let since = |stamp: UTime| now.as_secs_f64() - stamp.as_secs_f64();
        let (last, last_deep) = (since(history.stamp), since(history.deep_stamp));
        let shallow_after = of.min * (1.0 + of.jitter * share(pgid, 1));
        let (deep_after, _) = self.deep(pgid, pool);
        let deep = !pool.no_deep && last_deep >= deep_after;
        let is_due = deep || !pool.no_scrub && last >= shallow_after;
        let overdue = (last - shallow_after).max(if deep { last_deep - deep_after } else { f64::MIN });
        is_due.then_some(Due {
            order: Order {
                deep,
                repair: false,
                requested: false,
            },
            is_late: of.max > 0.0 && last >= of.max,
            since: overdue,
        })
    }
}

/// A span of this many seconds, as far as one can be that long.
pub(crate) fn span(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

/// A PG's part of a jitter, from 0 to 1.
pub(super) fn share(pgid: PgId, salt: u64) -> f64 {
    let n = pgid.pool.unsigned().rotate_left(32) ^ u64::from(pgid.seed);
    let mixed = xxhash_rust::xxh64::xxh64(&n.to_le_bytes(), salt);
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use spirula_maps::PoolId;

    use super::*;

    const DAY: u32 = 86_400;

    fn due_after(seed: u32, shallow: u32, deep: u32, pool: &PoolIntervals) -> Option<(bool, bool)> {
        let now = UTime::from_secs(100 * DAY);
        let history = ScrubHistory {
            stamp: UTime::from_secs(100 * DAY - shallow),
            deep_stamp: UTime::from_secs(100 * DAY - deep),
            ..ScrubHistory::default()
        };
        let pgid = PgId::new(PoolId::new(1), seed);
        let due = Intervals::default().due(pgid, &history, pool, now);
        due.map(|d| (d.order.deep, d.is_late))
    }

    #[test]
    fn pgs_are_due_one_after_the_other() {
        let none = PoolIntervals::default();
        let due = |hours: u32| {
            (0..1000)
                .filter(|s| due_after(*s, hours * 3600, 0, &none).is_some())
                .count()
        };
        assert_eq!((due(23), due(37)), (0, 1000));
        assert!((400..600).contains(&due(30)), "{} after 30 hours", due(30));
        let deep = |hours: u32| {
            let is_deep = |s: &u32| due_after(*s, 0, hours * 3600, &none).is_some_and(|(deep, _)| deep);
            (0..1000).filter(is_deep).count()
        };
        assert_eq!((deep(24 * 7 * 84 / 100), deep(24 * 7)), (0, 1000));
        assert!((400..600).contains(&deep(155)), "{} after 155 hours", deep(155));
    }

    #[test]
    fn a_pool_has_its_own_intervals_and_flags() {
        let day = DAY * 2;
        assert_eq!(
            due_after(3, day, 0, &PoolIntervals::default()),
            Some((false, false))
        );
        assert_eq!(
            due_after(3, 7 * DAY, 0, &PoolIntervals::default()),
            Some((false, true))
        );
        let pool = |min: f64, deep: f64, no_scrub, no_deep| PoolIntervals {
            min,
            deep,
            no_scrub,
            no_deep,
            max: 0.0,
        };
        assert_eq!(due_after(3, day, day, &pool(1e6, 0.0, false, false)), None);
        assert_eq!(
            due_after(3, 60, day, &pool(0.0, 60.0, false, false)),
            Some((true, false))
        );
        assert_eq!(due_after(3, 60, day, &pool(0.0, 60.0, false, true)), None);
        assert_eq!(due_after(3, day, 0, &pool(0.0, 0.0, true, false)), None);
        assert_eq!(
            due_after(3, day, 9 * DAY, &pool(0.0, 0.0, true, false)),
            Some((true, false))
        );
    }
}
