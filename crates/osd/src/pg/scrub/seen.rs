//! Questions about a PG's scrubs.

use std::ops::Deref;

use spirula_denc::{Micros, UTime};
use spirula_maps::PgId;

use super::outlook::Task;
use super::run::{Order, State};
use super::schedule::{Due, PoolIntervals};
use crate::pg::backfill::BackfillState;
use crate::pg::role::Role;
use crate::pg::seen::Seen;

/// When a PG is due to be scrubbed.
#[derive(Debug, Clone, Copy)]
pub struct ScrubTimes {
    /// When it may be scrubbed.
    pub due: UTime,
    /// When it is scrubbed whatever the load is; zero for never.
    pub deadline: UTime,
    /// Whether an operator has ordered a scrub that has not begun.
    pub is_ordered: bool,
}

/// What a scrub reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ScrubSize {
    /// Bytes of contents.
    pub(crate) bytes: f64,
    /// Objects.
    pub(crate) objects: f64,
}

/// A scrub that is under way or wanted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PendingScrub {
    /// The PG.
    pub(crate) pgid: PgId,
    /// What it does.
    pub(crate) order: Order,
    /// What all of it reads here, if it is a deep one.
    pub(crate) size: ScrubSize,
    /// The part that is left, from 0 to 1.
    pub(crate) left: f64,
}

/// Looks at the scrubs of a PG.
pub struct ScrubsSeen<'a>(Seen<'a>);

impl<'a> Deref for ScrubsSeen<'a> {
    type Target = Seen<'a>;

    fn deref(&self) -> &Seen<'a> {
        &self.0
    }
}

impl<'a> Seen<'a> {
    /// The PG's scrubs.
    pub fn scrubs(self) -> ScrubsSeen<'a> {
        ScrubsSeen(self)
    }
}

impl ScrubsSeen<'_> {
    /// Whether this OSD leads the PG and serves.
    pub fn leads(&self) -> bool {
        self.role.is_active()
    }

    /// The scrub that may begin, because it was ordered or is due, and when it may be tried: later, if
    /// a member had no slot for it.
    pub fn next_scrub(&self, now: UTime) -> Option<(Due, Micros)> {
        let Role::Active(a) = self.role else {
            return None;
        };
        let is_idle = matches!(a.scrub.state, State::Idle) && !a.scrub.telling.is_whole_list_told();
        if !is_idle || !self.may_scrub() {
            return None;
        }
        Some((self.wanted_scrub(now)?, a.scrub.again_at))
    }

    /// The pool's intervals and flags, and those of the cluster.
    fn pool_intervals(&self) -> PoolIntervals {
        let (map, mut pool) = (&self.site.map, self.site.pool.scrubs);
        pool.no_scrub |= map.no_scrub();
        pool.no_deep |= map.no_deep_scrub() || map.no_scrub();
        pool
    }

    /// The scrub that was ordered, has stopped on its way, or is due.
    fn wanted_scrub(&self, now: UTime) -> Option<Due> {
        let Role::Active(a) = self.role else {
            return None;
        };
        if let Some(order) = a.scrub.ordered {
            return Some(Due::ordered(order));
        }
        let pool = self.pool_intervals();
        let history = &self.copy.info.scrubs;
        if let Some(p) = &history.progress {
            let may = p.requested || if p.deep { !pool.no_deep } else { !pool.no_scrub };
            let order = Order {
                deep: p.deep,
                repair: false,
                requested: p.requested,
            };
            return may.then(|| Due::ordered(order));
        }
        if history.errors() > 0 && !history.listed && !pool.no_deep {
            // Nobody knows any more what was found where.
            return Some(Due {
                order: Order {
                    deep: true,
                    repair: false,
                    requested: false,
                },
                is_late: true,
                since: f64::MAX,
            });
        }
        let mut due = self
            .site
            .cfg
            .scrub
            .intervals
            .due(self.site.pgid, history, &pool, now)?;
        if history.deep_errors > 0 && !due.order.deep {
            // Without reading contents it would forget where the errors are.
            due.order.deep = true;
            return (!pool.no_deep).then_some(due);
        }
        Some(due)
    }

    /// Whether the PG is clean, so that all copies can be compared.
    fn may_scrub(&self) -> bool {
        let Role::Active(a) = self.role else {
            return false;
        };
        let is_whole = self.site.lacking_members() == 0 && !self.site.is_remapped();
        is_whole && self.backfill_state() == BackfillState::Idle && !a.repairs.is_busy()
    }

    /// The scrub that shows whether clones of purged snapshots are left, if this OSD leads the PG and
    /// snapshots of its pool were removed. One that does not read contents is enough, but it would
    /// forget where errors are that only a deep one finds.
    pub(crate) fn scrub_for_strays(&self) -> Option<Order> {
        let snaps = &self.site.pool.snaps;
        let removed_some = !snaps.purged.is_empty() || !snaps.removed.is_empty();
        (self.leads() && removed_some).then_some(Order {
            deep: self.copy.info.scrubs.deep_errors > 0,
            repair: false,
            requested: true,
        })
    }

    /// When the PG is due to be scrubbed, if this OSD leads it.
    pub fn scrub_times(&self) -> Option<ScrubTimes> {
        let Role::Active(a) = self.role else {
            return None;
        };
        let (intervals, pool) = (self.site.cfg.scrub.intervals, &self.site.pool.scrubs);
        let (due, deadline) = intervals.times(self.site.pgid, &self.copy.info.scrubs, pool);
        Some(ScrubTimes {
            due,
            deadline,
            is_ordered: a.scrub.ordered.is_some(),
        })
    }

    /// Whether the PG is scrubbed, as its primary.
    pub fn is_scrubbing(&self) -> bool {
        matches!(self.role, Role::Active(a) if !matches!(a.scrub.state, State::Idle))
    }

    /// The scrub of a PG that this OSD leads: under way, or if `may` says so one that is wanted.
    pub(crate) fn pending_scrub(&self, now: UTime, may: impl Fn(&Due) -> bool) -> Option<PendingScrub> {
        let Role::Active(a) = self.role else {
            return None;
        };
        let order = match &a.scrub.state {
            State::Running(run) => run.order,
            State::Reserving { order, .. } => *order,
            State::Idle => {
                let due = self.wanted_scrub(now).filter(may);
                due.filter(|due| due.order.requested || self.may_scrub())?.order
            }
        };
        Some(PendingScrub {
            pgid: self.site.pgid,
            order,
            size: self.scrub_size(),
            left: self.scrub_left(order.deep),
        })
    }

    /// What this OSD reads in a deep scrub of the PG.
    fn scrub_size(&self) -> ScrubSize {
        let info = &self.copy.info;
        let bytes = u64::try_from(info.usage.bytes).unwrap_or(0);
        let shape = self.site.backend.shape(info.part);
        ScrubSize {
            bytes: (shape.size(bytes) + info.scrubs.omap_bytes) as f64,
            objects: info.usage.objects.max(0) as f64,
        }
    }

    /// The part of a scrub that is left, from 0 to 1: less than all if one is under way, or has
    /// stopped.
    fn scrub_left(&self, deep: bool) -> f64 {
        let running = match self.role {
            Role::Active(a) => match &a.scrub.state {
                State::Running(run) => Some((run.order.deep, &run.cursor)),
                _ => None,
            },
            _ => None,
        };
        let progress = self.copy.info.scrubs.progress.as_ref();
        let at = running.or_else(|| progress.map(|p| (p.deep, &p.cursor)));
        let at = at.filter(|(of_deep, _)| *of_deep == deep);
        at.map_or(1.0, |(_, cursor)| self.site.range().part_from(cursor))
    }

    /// The next deep scrub of the PG, whoever leads it, if there is a copy here to be read and no flag
    /// forbids it.
    pub(crate) fn scrub_task(&self, now: UTime) -> Option<Task> {
        let pool = self.pool_intervals();
        let is_member = self.role.is_active() || self.role.is_active_replica();
        if !self.copy.exists || !is_member || pool.no_deep {
            return None;
        }
        let (intervals, history) = (self.site.cfg.scrub.intervals, &self.copy.info.scrubs);
        let (due, interval) = intervals.deep(self.site.pgid, &pool);
        let (_, deadline) = intervals.times(self.site.pgid, history, &pool);
        let (now, left) = (now.as_secs_f64(), self.scrub_left(true));
        let ScrubSize { bytes, objects } = self.scrub_size();
        Some(Task {
            age: (now - history.deep_stamp.as_secs_f64()).max(0.0),
            due,
            interval,
            free_in: match deadline.is_zero() {
                true => f64::INFINITY,
                false => (deadline.as_secs_f64() - now).max(0.0),
            },
            bytes: bytes * left,
            objects: objects * left,
        })
    }
}
