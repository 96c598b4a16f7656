//! The event about scrubs: those under way, and those that wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spirula_denc::UTime;
use spirula_maps::{OsdId, PgId, PoolId};
use spirula_proto::internal::report::{PgScrub, ScrubReport, ScrubSeconds};

use super::{About, Event, Progress};
use crate::core::View;

/// How long there must have been scrubs before they are told of: most of those without reading
/// contents are over sooner.
const LASTING: Duration = Duration::from_secs(5);
/// How long a scrub that has ended counts, as there may always be others.
const REMEMBERED: Duration = Duration::from_secs(86_400);
/// The seconds of an hour, and the hours of a week.
const HOUR: f64 = 3600.0;
const WEEK: f64 = 168.0;

/// The scrubs that the event is about.
#[derive(Debug, Clone, Default)]
pub(super) struct Scrubs {
    /// The seconds that each takes in all, and when it was last told of.
    seen: BTreeMap<PgId, (u32, UTime)>,
    /// The seconds until all are done.
    pub(super) remaining: Option<u64>,
}

/// `1 PG`, `2 PGs`.
fn pgs(n: usize) -> String {
    format!("{n} PG{}", if n == 1 { "" } else { "s" })
}

/// What the scrubs are.
fn message(scrubs: &BTreeMap<PgId, (OsdId, PgScrub)>) -> String {
    let count = |deep: bool| scrubs.values().filter(|(_, s)| s.deep == deep).count();
    let what = match (count(true), count(false)) {
        (deep, 0) => format!("Deep scrub of {}", pgs(deep)),
        (0, shallow) => format!("Scrub of {}", pgs(shallow)),
        (deep, shallow) => format!("Deep scrub of {} and scrub of {}", pgs(deep), pgs(shallow)),
    };
    let pools: BTreeSet<PoolId> = scrubs.keys().map(|pg| pg.pool).collect();
    let n = pools.len();
    format!("{what} in {n} pool{}", if n == 1 { "" } else { "s" })
}

/// The seconds in which an OSD does so many seconds of scheduled scrubs.
fn scheduled(work: f64, report: &ScrubReport) -> f64 {
    if work == 0.0 {
        return 0.0;
    }
    let (hours, days) = (f64::from(report.hours), f64::from(report.days));
    let wait = match report.opens_in {
        u32::MAX => f64::INFINITY,
        wait => wait.into(),
    };
    // What fits into the hours of a day is done in one go.
    match work <= hours * HOUR {
        true => wait + work,
        false => wait + work * WEEK / (hours * days).max(f64::MIN_POSITIVE),
    }
}

impl Scrubs {
    /// The share that is done, from 0 to 1.
    fn share(&mut self, scrubs: &BTreeMap<PgId, (OsdId, PgScrub)>, now: UTime) -> f64 {
        for (pg, (_, scrub)) in scrubs {
            let whole = scrub.seconds.as_ref().map_or(1, |s| s.whole.max(1));
            self.seen.insert(*pg, (whole, now));
        }
        self.seen.retain(|_, (_, told)| now.since(*told) < REMEMBERED);
        let all: f64 = self.seen.values().map(|(whole, _)| f64::from(*whole)).sum();
        let left = |scrub: &PgScrub| match &scrub.seconds {
            Some(ScrubSeconds { whole, left }) if *whole > 0 => f64::from(*left),
            _ => 1.0,
        };
        let left: f64 = scrubs.values().map(|(_, scrub)| left(scrub)).sum();
        1.0 - left / all.max(1.0)
    }
}

/// The scrubs that OSDs that are up have told of, with the OSD that leads each.
fn told(view: &View) -> BTreeMap<PgId, (OsdId, PgScrub)> {
    let (map, stats) = (&view.state.osd.map, &view.state.stats);
    let leads = |osd: OsdId, pg: &PgId| {
        let stat = stats.pgs.get(pg);
        stat.is_some_and(|stat| stat.acting_primary.0 == Some(osd))
    };
    let mut scrubs = BTreeMap::new();
    for osd in map.osds().filter(|o| map.is_up(*o)) {
        let report = view.state.osd.lives.get(osd).map(|life| &life.scrubs.report);
        let told = report.into_iter().flatten().flat_map(|report| &report.pgs);
        for (pg, scrub) in told.filter(|(pg, _)| leads(osd, pg)) {
            scrubs.insert(*pg, (osd, scrub.clone()));
        }
    }
    scrubs
}

/// The seconds until the last OSD has done all scrubs that it takes part in; `None` if some can't be
/// told.
fn remaining(view: &View, scrubs: &BTreeMap<PgId, (OsdId, PgScrub)>) -> Option<u64> {
    let mut work: BTreeMap<OsdId, (f64, f64)> = BTreeMap::new();
    for (pg, (primary, scrub)) in scrubs {
        let left = f64::from(scrub.seconds.as_ref()?.left);
        let acting = view.state.stats.pgs.get(pg).map(|stat| &stat.acting);
        let members = acting.into_iter().flat_map(|a| a.osds());
        for osd in members.chain([*primary]).collect::<BTreeSet<_>>() {
            let (ordered, due) = work.entry(osd).or_default();
            *(if scrub.requested { ordered } else { due }) += left;
        }
    }
    let of_osd = |(osd, (ordered, due)): (&OsdId, &(f64, f64))| {
        let report = &view.state.osd.lives.get(*osd)?.scrubs.report;
        Some(ordered + scheduled(*due, report.as_ref()?))
    };
    let longest = work.iter().filter_map(of_osd).fold(0.0, f64::max);
    longest.is_finite().then_some(longest as u64)
}

/// Begins, updates or ends the event about scrubs.
pub(super) fn notice(view: &View, p: &mut Progress) {
    let scrubs = told(view);
    let at = p.events.iter().position(|e| matches!(e.about, About::Scrubs(_)));
    if scrubs.is_empty() {
        p.scrubs_since = None;
        if let Some(at) = at {
            // They come every day: those that have ended are nothing to be remembered.
            p.events.remove(at);
        }
        return; // There is nothing to tell.
    }
    let since = *p.scrubs_since.get_or_insert(view.now);
    if at.is_none() && view.now.since(since) < LASTING {
        return; // They may be over soon.
    }
    if at.is_none() {
        let epoch = view.state.osd.map.epoch;
        p.begin(String::new(), About::Scrubs(Scrubs::default()), since, epoch);
    }
    let of_scrubs = p.events.iter_mut().find_map(|e| match &mut e.about {
        About::Scrubs(s) => Some((&mut e.message, &mut e.share, s)),
        _ => None,
    });
    if let Some((text, share, s)) = of_scrubs {
        *text = message(&scrubs);
        *share = s.share(&scrubs, view.now).clamp(0.0, 1.0);
        s.remaining = remaining(view, &scrubs);
    }
}

impl Event {
    /// Whether the event is about scrubs.
    pub(super) fn is_of_scrubs(&self) -> bool {
        matches!(self.about, About::Scrubs(_))
    }
}
