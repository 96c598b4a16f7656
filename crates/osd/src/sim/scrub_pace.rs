//! The pace of scrubs: what the OSDs foretell, and how long members rest.

use super::scrub::{DEEP, PRIMARY, REPLICA, cluster};
use super::*;
use crate::pg::message::PeerBody;
use crate::pg::scrub::hours::{Hours, Week};
use crate::pg::scrub::message::ScrubBody;
use crate::pg::scrub::schedule::Permit;

const DAY: u64 = 86_400;

impl Sim {
    /// As if an OSD had read for scrubs for so many seconds, at this speed.
    fn measured(&mut self, osd: OsdId, bytes: u64, seconds: u64) {
        let core = self.nodes[&osd].core.as_ref().unwrap();
        core.seen_scrubs().pace().read(bytes, Micros::from_secs(seconds));
    }

    /// The rests of which primaries told members in the questions that are on their way.
    fn rests_on_the_way(&self) -> impl Iterator<Item = u32> {
        let messages = self.links.values().flatten();
        messages.filter_map(|msg| {
            let is_of_pg = PeerMessage::is_kind(msg.kind());
            let msg = is_of_pg.then(|| Versions::default().read(PRIMARY, msg))?;
            match msg.unwrap().body {
                PeerBody::Scrub(ScrubBody::Wanted(wanted)) => Some(wanted.rest),
                _ => None,
            }
        })
    }

    /// The rests in the course of a scrub, in the order in which they changed.
    fn rests(&mut self) -> Vec<u32> {
        let mut rests = Vec::new();
        for _ in 0..40 {
            self.pass_moment();
            loop {
                let steps = self.steps();
                rests.extend(self.rests_on_the_way());
                if steps.is_empty() {
                    break;
                }
                self.run_some(1);
            }
        }
        rests.dedup();
        rests
    }

    fn permit(&mut self, hours: Hours, at: f64) {
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            let permit = Permit {
                week: Week { hours, at },
                load: true,
            };
            self.with(id, |core, _| core.permit_scrubs(permit));
        }
    }
}

#[test]
fn a_scrub_is_as_fast_as_the_member_needs_that_has_most_to_do() {
    let mut sim = cluster(2);
    sim.change_map(|m| m.no_scrub = false);
    for osd in OsdId::below(3) {
        sim.measured(osd, 1 << 30, 10);
    }
    sim.settle();
    sim.advance(Micros::from_secs(6 * DAY));
    // None needs more than the least share, once it is known.
    assert_eq!(sim.rests(), [9, 49]);
    sim.measured(REPLICA, 1, 1_000_000_000);
    sim.pass(10);
    sim.advance(Micros::from_secs(6 * DAY));
    assert_eq!(sim.rests(), [9], "the slow member is in a hurry");
    for _ in 0..60 {
        sim.measured(REPLICA, 1 << 30, 10);
    }
    sim.pass(10);
    // An operator waits.
    sim.with(PRIMARY, |core, cx| {
        assert!(core.order_scrub(PgId::new(POOL, 0), DEEP, cx));
    });
    assert_eq!(sim.rests(), [9]);
    sim.advance(Micros::from_secs(6 * DAY));
    assert_eq!(sim.rests(), [9, 49]);
}

#[test]
fn an_osd_foretells_only_what_it_has_seen() {
    let mut sim = cluster(4);
    sim.change_map(|m| m.no_scrub = false);
    sim.settle();
    let outlook = |sim: &Sim| {
        let core = sim.nodes[&REPLICA].core.as_ref().unwrap();
        core.seen_scrubs().outlook_so_far().unwrap().clone()
    };
    assert!(outlook(&sim).means.is_none() && outlook(&sim).ends.is_none());
    assert_eq!(outlook(&sim).share, 0.1);
    sim.measured(REPLICA, 1 << 30, 10);
    sim.pass(20);
    let (bytes, objects) = outlook(&sim).left;
    let usage = sim.primary_report().usage;
    assert_eq!((bytes, objects), (usage.bytes as f64, usage.objects as f64));
    assert!(outlook(&sim).means.is_some() && outlook(&sim).ends.is_none());
    // A seventh of the interval, in which no client works.
    let mut cfg = PgConfig::default();
    cfg.scrub.intervals.deep = 7000.0;
    sim.with(REPLICA, |core, _| core.set_config(Arc::new(cfg)));
    for _ in 0..1000 {
        sim.with(REPLICA, Core::handle_tick);
    }
    sim.pass(10);
    let ends = outlook(&sim).ends.unwrap();
    assert!(ends.end.ratio() < 1.01, "{ends:?}");
    assert_eq!(outlook(&sim).means.unwrap().busy, 0.0);
    // It knows no less if the interval is a week again.
    sim.with(REPLICA, |core, _| {
        core.set_config(Arc::new(PgConfig::default()));
    });
    sim.pass(10);
    let ends = outlook(&sim).ends.unwrap();
    assert!(ends.end.interval > 7000.0 && ends.end.ratio() < 1.01, "{ends:?}");
    // No hour is permitted.
    sim.permit(Hours::new((0, 0), (7, 8)), 0.0);
    sim.pass(10);
    let ends = outlook(&sim).ends.unwrap();
    assert!(
        ends.end.age.is_infinite() && ends.at_best.ratio() < 1.01,
        "{ends:?}"
    );
    // What is not to be scrubbed is not late.
    sim.change_map(|m| m.no_scrub = true);
    sim.settle();
    sim.pass(10);
    assert_eq!(outlook(&sim).left, (0.0, 0.0));
    assert_eq!(outlook(&sim).ends.unwrap().end.ratio(), 0.0);
}

#[test]
fn scrubs_under_way_and_those_that_wait_are_told() {
    let mut sim = cluster(6);
    let told = |sim: &Sim| {
        let core = sim.nodes[&PRIMARY].core.as_ref().unwrap();
        let now = UTime::from_secs(1000 + sim.usec.as_secs() as u32);
        core.seen_scrubs().to_tell(now).collect::<Vec<_>>()
    };
    assert_eq!(told(&sim), []);
    sim.measured(PRIMARY, 1 << 30, 10);
    sim.settle();
    sim.with(PRIMARY, |core, cx| {
        assert!(core.order_scrub(PgId::new(POOL, 0), DEEP, cx));
    });
    let first = told(&sim).remove(0);
    assert!(first.deep && first.requested);
    assert!(
        first.left.unwrap() > 0.0 && first.left == first.whole,
        "{first:?}"
    );
    let mut last = first.left.unwrap();
    let mut seen = 0;
    while let [scrub] = &told(&sim)[..] {
        let left = scrub.left.unwrap();
        assert!(left <= last, "{left} after {last}");
        seen += u32::from(left < last);
        last = left;
        sim.advance(Micros::from_secs(1));
        sim.run_some(1);
    }
    assert!(seen > 1);
    // What is due waits for its hours, and is told when it is late, or when they come.
    sim.change_map(|m| m.no_scrub = false);
    sim.settle();
    let night = Hours::new((22, 6), (0, 0));
    sim.permit(night, 12.0 * 3600.0);
    sim.advance(Micros::from_secs(2 * DAY));
    sim.pass(10);
    assert_eq!(told(&sim), []);
    sim.permit(night, 23.0 * 3600.0);
    let due = told(&sim);
    assert_eq!((due.len(), due[0].deep, due[0].requested), (1, false, false));
    sim.permit(night, 12.0 * 3600.0);
    sim.advance(Micros::from_secs(6 * DAY));
    let late = told(&sim);
    assert_eq!((late.len(), late[0].deep, late[0].requested), (1, true, false));
}
