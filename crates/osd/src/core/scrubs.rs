//! Begins scrubs: few at a time, the longest due first.

use std::time::Duration;

use spirula_denc::{Micros, UTime};
use spirula_maps::PgId;

use super::Core;
use super::outlook::Forecast;
use crate::pg::scrub::schedule::{Permit, span};
use crate::pg::{Ctx, Order, ScrubDue};

/// What decides when the next scrubs begin.
#[derive(Debug, Default)]
pub(super) struct ScrubTurns {
    /// How many were under way when some were last begun.
    seen: usize,
    /// Whether others waited then.
    pub(super) waits: bool,
    /// Whether scheduled ones are permitted.
    pub(super) permit: Permit,
    /// When they will be done.
    pub(super) forecast: Forecast,
}

impl Core {
    /// Orders a scrub of a PG, if this OSD leads it. Returns whether it does.
    pub fn order_scrub(&mut self, pgid: PgId, order: Order, cx: &mut Ctx<'_>) -> bool {
        let Some(&slot) = self.by_id.get(&pgid) else {
            return false;
        };
        let mut leads = false;
        self.with(slot, cx, |pg, _| {
            leads = pg.seen().scrubs().leads();
            pg.scrubbing().order(order);
        });
        self.begin_scrubs(cx);
        leads
    }

    /// Orders scrubs of the PGs that this OSD leads and that may have clones of purged snapshots.
    pub fn scrub_for_strays(&mut self, cx: &mut Ctx<'_>) {
        for slot in self.slots() {
            self.with(slot, cx, |pg, _| {
                if let Some(order) = pg.seen().scrubs().scrub_for_strays() {
                    pg.scrubbing().order(order);
                }
            });
        }
        self.begin_scrubs(cx);
    }

    /// Makes the last scrub of a PG older by `seconds`, or so old that the next is late. Returns the
    /// time at which it was then.
    pub fn age_scrub(
        &mut self,
        pgid: PgId,
        deep: bool,
        seconds: Option<u64>,
        now: UTime,
        cx: &mut Ctx<'_>,
    ) -> UTime {
        let Some(&slot) = self.by_id.get(&pgid) else {
            return UTime::ZERO;
        };
        let intervals = self.cfg.scrub.intervals;
        let longest = intervals.max.max(intervals.deep);
        let seconds = seconds.map_or(longest, |s| s as f64);
        let before = now.to_duration().saturating_sub(span(seconds));
        let stamp = UTime::from(before.max(Duration::from_secs(1)));
        self.with(slot, cx, |pg, cx| pg.scrubbing().set_stamp(deep, stamp, cx));
        stamp
    }

    /// Sets whether scheduled scrubs are permitted.
    pub fn permit_scrubs(&mut self, permit: Permit) {
        self.scrubs.permit = permit;
        self.shared.scrubs.permit(permit.week.is_open());
    }

    /// Begins the next scrub as soon as one has ended.
    pub(super) fn follow_scrubs(&mut self, cx: &mut Ctx<'_>) {
        if self.shared.scrubs.taken() < self.scrubs.seen {
            self.begin_scrubs(cx);
        }
    }

    /// Begins scrubs that were ordered or are due, as far as there are slots for them.
    pub(super) fn begin_scrubs(&mut self, cx: &mut Ctx<'_>) {
        let is_held = self.seen_scrubs().is_held(cx);
        let may = |due: &ScrubDue| due.order.requested || !is_held && self.scrubs.permit.allows(due);
        let next = |slot: &u32| {
            let next = self.pgs.get(slot)?.seen().scrubs().next_scrub(cx.now);
            next.filter(|(due, _)| may(due))
        };
        let all = self.slots().into_iter();
        let waiting = all.filter_map(|slot| Some((slot, next(&slot)?)));
        let waiting: Vec<(u32, (ScrubDue, Micros))> = waiting.collect();
        let mut left = waiting.len();
        let tried = waiting.into_iter().filter(|(_, (_, at))| *at <= cx.usec);
        let mut tried: Vec<(u32, ScrubDue)> = tried.map(|(pg, (due, _))| (pg, due)).collect();
        tried.sort_by(|(_, a), (_, b)| b.since.total_cmp(&a.since));
        for (pg, due) in tried {
            let Some(slot) = self.shared.scrubs.take(self.cfg.scrub.most) else {
                break; // Others are scrubbed first.
            };
            left -= 1;
            self.with(pg, cx, |pg, cx| pg.scrubbing().begin(due.order, slot, cx));
        }
        self.scrubs.seen = self.shared.scrubs.taken();
        self.scrubs.waits = left > 0;
    }
}
