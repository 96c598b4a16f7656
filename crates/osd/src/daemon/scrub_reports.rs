//! What the monitors are told of scrubs: those under way or waiting, and when all will be done.

use std::collections::BTreeMap;

use spirula_proto::internal::report::{
    OsdReport, PgScrub, ScrubEnd, ScrubLimit, ScrubOutlook, ScrubReport, ScrubSeconds,
};

use super::state::Osd;
use crate::core::{Core, ScrubEnds, ScrubToTell};
use crate::pg::scrub::outlook::{End, Limit};

/// The ticks after which a report is sent again though only its times have changed.
const EVERY: u32 = 10;

/// What was told of scrubs.
#[derive(Debug, Default)]
pub(super) struct ScrubReports {
    /// In this session.
    told: Option<ScrubReport>,
    /// The ticks since.
    ticks: u32,
}

impl ScrubReports {
    /// Forgets what was told, so that a new session is told everything again.
    pub(super) fn forget(&mut self) {
        self.told = None;
    }

    /// Whether a report is to be sent now.
    fn is_due(&mut self, report: &ScrubReport) -> bool {
        self.ticks += 1;
        let Some(told) = &self.told else {
            return true;
        };
        let kinds = |r: &ScrubReport| -> BTreeMap<_, _> {
            let pgs = r.pgs.iter();
            pgs.map(|(pg, s)| (*pg, (s.deep, s.requested))).collect()
        };
        kinds(told) != kinds(report) || self.ticks >= EVERY && told != report
    }
}

/// Whole seconds; those that never pass are [`u32::MAX`].
fn seconds(s: f64) -> u32 {
    s.round() as u32
}

fn end(end: End) -> ScrubEnd {
    ScrubEnd {
        age: seconds(end.age),
        interval: seconds(end.interval),
    }
}

fn limit(limit: Limit) -> ScrubLimit {
    match limit {
        Limit::Hours => ScrubLimit::HOURS,
        Limit::Days => ScrubLimit::DAYS,
        Limit::Sleep => ScrubLimit::SLEEP,
        Limit::Share => ScrubLimit::SHARE,
        Limit::Slots => ScrubLimit::SLOTS,
        Limit::Load => ScrubLimit::LOAD,
    }
}

fn outlook(ends: &ScrubEnds) -> ScrubOutlook {
    ScrubOutlook {
        end: end(ends.end),
        without: ends.without.iter().map(|(l, e)| (limit(*l), end(*e))).collect(),
        at_best: end(ends.at_best),
    }
}

fn scrub(s: &ScrubToTell) -> PgScrub {
    PgScrub {
        deep: s.deep,
        requested: s.requested,
        seconds: s.whole.zip(s.left).map(|(whole, left)| ScrubSeconds {
            whole: seconds(whole),
            left: seconds(left),
        }),
    }
}

fn report(core: &Core, now: spirula_denc::UTime) -> Option<ScrubReport> {
    let known = core.seen_scrubs().outlook_so_far()?;
    let (hours, days) = known.week.hours.count();
    Some(ScrubReport {
        pgs: core
            .seen_scrubs()
            .to_tell(now)
            .map(|s| (s.pgid, scrub(&s)))
            .collect(),
        hours: hours as u8,
        days: days as u8,
        opens_in: seconds(known.week.until_open()),
        outlook: known.ends.as_ref().map(outlook),
    })
}

impl Osd {
    /// Tells the monitors of scrubs, if something has changed.
    pub(super) fn report_scrubs(&mut self) {
        if !self.mons.know_scrubs() {
            return; // They are of the version before, or have not answered yet.
        }
        let Some(report) = report(&self.core, self.setup.now()) else {
            return; // It looks ahead soon.
        };
        let reports = &mut self.reports.scrubs;
        if reports.is_due(&report) && self.mons.report(OsdReport::Scrubs(report.clone())) {
            reports.told = Some(report);
            reports.ticks = 0;
        }
    }
}
