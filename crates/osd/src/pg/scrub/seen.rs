//! Questions about a PG's scrubs.

use spirula_denc::{Micros, UTime};

use super::run::{Order, State};
use super::schedule::Due;
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

impl Seen<'_> {
    /// Whether this OSD leads the PG and serves.
    pub fn leads(&self) -> bool {
        self.role.is_active()
    }

    /// The scrub that may begin now, because it was ordered or is due.
    pub fn next_scrub(&self, usec: Micros, now: UTime) -> Option<Due> {
        let Role::Active(a) = self.role else {
            return None;
        };
        let is_idle = matches!(a.scrub.state, State::Idle) && a.scrub.again_at <= usec;
        if !is_idle || !self.may_scrub() {
            return None;
        }
        if let Some(order) = a.scrub.ordered {
            return Some(Due::ordered(order));
        }
        let (map, mut pool) = (&self.site.map, self.site.pool.scrubs);
        pool.no_scrub |= map.no_scrub();
        pool.no_deep |= map.no_deep_scrub() || map.no_scrub();
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
}
