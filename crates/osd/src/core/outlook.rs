//! Looks ahead: how much of its time this OSD must give to scrubs, and when all of them will be done.

use spirula_denc::UTime;
use spirula_maps::PgId;

use super::{Core, turns};
use crate::pg::scrub::hours::Week;
use crate::pg::scrub::outlook::{End, Limit, Means, Task, rest};
use crate::pg::{BackfillState, Ctx, Pg, ScrubDue};

/// The ticks after which the OSD looks ahead again.
const EVERY: u32 = 10;
/// The seconds of which what was seen counts: a day, as clients' work follows it.
const DAY: u32 = 86_400;
/// The seconds of which what was seen counts at all.
const MINUTE: u32 = 60;
/// The part of the interval of deep scrubs after which enough was seen to foretell something, if it
/// is less than a day.
const SEEN_OF: f64 = 7.0;

/// A mean of what was seen each second, of the last day.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    value: f64,
    seen: u32,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.seen = (self.seen + 1).min(DAY);
        self.value += (value - self.value) / f64::from(self.seen);
    }

    /// The mean, or `unseen` before there is one worth the name.
    fn or(self, unseen: f64) -> f64 {
        if self.seen >= MINUTE { self.value } else { unseen }
    }
}

/// When an OSD's deep scrubs will be done.
#[derive(Debug, Clone, PartialEq)]
pub struct ScrubEnds {
    /// As things are.
    pub end: End,
    /// Without each limit.
    pub without: Vec<(Limit, End)>,
    /// Without any.
    pub at_best: End,
}

/// What an OSD foretells of its scrubs.
#[derive(Debug, Clone, PartialEq)]
pub struct ScrubOutlook {
    /// The permitted hours, and where in the week it is.
    pub week: Week,
    /// What the OSD can do, once that is measured.
    pub means: Option<Means>,
    /// The part of its time that it reads for scrubs while clients work.
    pub share: f64,
    /// The bytes and objects of the next deep scrubs of all PGs.
    pub left: (f64, f64),
    /// When these will be done, once enough was seen to tell.
    pub ends: Option<ScrubEnds>,
}

/// A scrub that this OSD leads and that is told of: it is under way, or waits though it may begin or
/// is late. Times are seconds; `None` if the OSD's speed is not known.
#[derive(Debug, Clone, PartialEq)]
pub struct ScrubToTell {
    /// The PG.
    pub pgid: PgId,
    /// Whether contents are read.
    pub deep: bool,
    /// Whether an operator has ordered it, so that permitted hours do not matter.
    pub requested: bool,
    /// The time that all of it takes.
    pub whole: Option<f64>,
    /// The time that is left.
    pub left: Option<f64>,
}

/// What an OSD knows of its pace.
#[derive(Debug, Default)]
pub(super) struct Forecast {
    /// The seconds in which clients work.
    busy: Mean,
    /// The slots in use while scrubs wait for some.
    taken: Mean,
    /// The seconds in which the load lets scrubs begin.
    calm: Mean,
    /// The ticks until it looks ahead again.
    wait: u32,
    outlook: Option<ScrubOutlook>,
}

/// Looks at the scrubs of all PGs.
#[derive(Debug, Clone, Copy)]
pub struct OsdScrubs<'a>(&'a Core);

impl Core {
    /// The scrubs of all PGs.
    pub fn seen_scrubs(&self) -> OsdScrubs<'_> {
        OsdScrubs(self)
    }

    /// Notes what can be seen now, and looks ahead now and then.
    pub(super) fn look_ahead(&mut self, cx: &Ctx<'_>) {
        let (most, taken) = (self.cfg.scrub.most, self.shared.scrubs.taken());
        let is_busy = self.shared.pace.is_busy(cx.usec);
        let f = &mut self.scrubs.forecast;
        f.busy.add(f64::from(u8::from(is_busy)));
        f.calm.add(f64::from(u8::from(self.scrubs.permit.load)));
        if self.scrubs.waits {
            f.taken.add(taken.min(most) as f64 / most.max(1) as f64);
        }
        if f.wait > 0 {
            f.wait -= 1;
            return; // What it knows is not old.
        }
        f.wait = EVERY - 1;
        let outlook = self.seen_scrubs().outlook(cx.now);
        self.shared.scrub_pace.set_rest(rest(outlook.share));
        self.scrubs.forecast.outlook = Some(outlook);
    }
}

impl<'a> OsdScrubs<'a> {
    fn outlook(&self, now: UTime) -> ScrubOutlook {
        let (cfg, f) = (&self.0.cfg.scrub, &self.0.scrubs.forecast);
        let means = self.0.shared.scrub_pace.speed().map(|speed| Means {
            speed,
            week: self.0.scrubs.permit.week,
            most: cfg.share,
            pause: cfg.sleep.as_secs_f64() / cfg.chunk.max(1) as f64,
            busy: f.busy.or(1.0),
            taken: if cfg.most > 0 { f.taken.or(1.0) } else { 0.0 },
            calm: f.calm.or(1.0),
        });
        let slots = self.0.slots().into_iter();
        let task = |slot: u32| self.0.pgs.get(&slot)?.seen().scrubs().scrub_task(now);
        let mut tasks: Vec<Task> = slots.filter_map(task).collect();
        let seen = f64::from(f.busy.seen);
        // Another interval does not make it know less than before.
        let has_foretold = f.outlook.as_ref().is_some_and(|o| o.ends.is_some());
        let enough = (cfg.intervals.deep / SEEN_OF).min(DAY.into());
        ScrubOutlook {
            week: self.0.scrubs.permit.week,
            share: means.map_or(cfg.share, |m| m.share(&mut tasks)),
            left: tasks.iter().fold((0.0, 0.0), |(bytes, objects), t| {
                (bytes + t.bytes, objects + t.objects)
            }),
            ends: means
                .filter(|_| has_foretold || seen >= enough)
                .map(|m| ScrubEnds {
                    end: m.end(&mut tasks),
                    without: m.ends_without(&mut tasks),
                    at_best: m.end_at_best(&mut tasks),
                }),
            means,
        }
    }

    /// The pace of scrubs.
    #[cfg(test)]
    pub(crate) fn pace(self) -> &'a crate::pg::ScrubPace {
        &self.0.shared.scrub_pace
    }

    /// Whether any PG is copied from or to this OSD.
    fn is_copied(self) -> bool {
        let is_idle = |pg: &Pg| turns::of(pg) == (BackfillState::Idle, None);
        !self.0.pgs.values().all(is_idle)
    }

    /// Whether no scheduled scrub may begin, whatever the time is.
    pub(super) fn is_held(self, cx: &Ctx<'_>) -> bool {
        cx.full.contains(&self.0.whoami) || self.is_copied() && !self.0.cfg.scrub.during_recovery
    }

    /// The scrubs under way here, as primary or member.
    pub fn under_way(&self) -> usize {
        self.0.shared.scrubs.taken()
    }

    /// The most scrubs at a time.
    pub fn most(&self) -> usize {
        self.0.cfg.scrub.most
    }

    /// What the OSD foretells of its scrubs, once it has looked ahead.
    pub fn outlook_so_far(self) -> Option<&'a ScrubOutlook> {
        self.0.scrubs.forecast.outlook.as_ref()
    }

    /// The scrubs that the monitors are told of.
    pub fn to_tell(self, now: UTime) -> impl Iterator<Item = ScrubToTell> + use<'a> {
        let outlook = self.0.scrubs.forecast.outlook.as_ref();
        let permit = self.0.scrubs.permit;
        let pending = self.0.pgs.values().filter_map(move |pg| {
            let may = |due: &ScrubDue| due.is_late || permit.allows(due);
            pg.seen().scrubs().pending_scrub(now, may)
        });
        pending.map(move |scrub| {
            let of = outlook.and_then(|o| Some((o.means?, o.share)));
            let seconds = |part: f64| {
                let (means, share) = of?;
                let share = if scrub.order.requested { means.most } else { share };
                let bytes = if scrub.order.deep { scrub.size.bytes } else { 0.0 };
                Some(part * means.seconds(bytes, scrub.size.objects, share))
            };
            ScrubToTell {
                pgid: scrub.pgid,
                deep: scrub.order.deep,
                requested: scrub.order.requested,
                whole: seconds(1.0),
                left: seconds(scrub.left),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_forgets_what_was_a_day_ago() {
        let mut mean = Mean::default();
        assert_eq!(mean.or(1.0), 1.0);
        (0..50).for_each(|_| mean.add(0.0));
        (0..50).for_each(|_| mean.add(1.0));
        assert!((mean.or(9.0) - 0.5).abs() < 1e-9);
        (0..5 * DAY).for_each(|_| mean.add(1.0));
        assert!(mean.or(9.0) > 0.99);
    }
}
