//! What OSDs tell of their scrubs: the event that `ceph -s` shows, and the warning before they are
//! late.

use spirula_maps::PoolId;
use spirula_proto::internal::report::{
    PgScrub, ScrubEnd, ScrubLimit, ScrubOutlook, ScrubReport, ScrubSeconds,
};

use super::scrub::Pools;
use super::*;

const DAY: u32 = 86_400;
const WEEK: u32 = 7 * DAY;
const SECOND: Duration = Duration::from_secs(1);

fn end(days: u32) -> ScrubEnd {
    ScrubEnd {
        age: days.saturating_mul(DAY),
        interval: WEEK,
    }
}

/// An OSD that ends after so many days, and without each limit after those. By default it is late
/// after 12.25 days.
fn outlook(days: u32, without: &[(ScrubLimit, u32)], at_best: u32) -> ScrubOutlook {
    ScrubOutlook {
        end: end(days),
        without: without.iter().map(|(limit, days)| (*limit, end(*days))).collect(),
        at_best: end(at_best),
    }
}

impl Pools {
    fn tell(&mut self, osd: u64, report: &ScrubReport) {
        let report = OsdReport::Scrubs(report.clone());
        self.w.send(100 + osd, report.to_message());
    }

    fn foretell(&mut self, osd: u64, outlook: Option<ScrubOutlook>) {
        let report = ScrubReport {
            hours: 8,
            days: 5,
            outlook,
            ..ScrubReport::default()
        };
        self.tell(osd, &report);
    }

    /// The lines of the warning.
    fn warned(&self) -> Vec<String> {
        self.check("OSD_SCRUB_TOO_SLOW")
            .map_or(Vec::new(), |check| check.3)
    }
}

#[test]
fn an_osd_that_will_be_late_is_told_with_what_limits_it() {
    use ScrubLimit as L;
    let mut p = Pools::new();
    assert_eq!(p.warned(), [""; 0]);
    let all = |days| [L::HOURS, L::DAYS, L::SLEEP, L::SHARE, L::SLOTS, L::LOAD].map(|l| (l, days));
    let with = |limit: L, days: u32| {
        let of = |(l, usual): (L, u32)| (l, if l == limit { days } else { usual });
        all(21).map(of)
    };
    for (days, without, at_best, said) in [
        (
            21,
            with(L::HOURS, 9),
            5,
            "at this pace done 9 days late: permitted are 8 of 24 hours (osd_scrub_begin_hour, osd_scrub_end_hour)",
        ),
        (
            13,
            with(L::DAYS, 9),
            5,
            "at this pace done 18 hours late: permitted are 5 of 7 days (osd_scrub_begin_week_day, \
             osd_scrub_end_week_day)",
        ),
        (
            u32::MAX,
            with(L::SLOTS, 10),
            5,
            "will never be done: too few scrubs run at a time (osd_max_scrubs)",
        ),
        (
            21,
            with(L::SHARE, 12),
            5,
            "at this pace done 9 days late: scrubs get too little time beside clients (spirula_osd_scrub_share)",
        ),
        (
            21,
            with(L::LOAD, 12),
            5,
            "at this pace done 9 days late: the load of the machine keeps scrubs from beginning \
             (osd_scrub_load_threshold)",
        ),
        (
            21,
            with(L::SLEEP, 15),
            5,
            "at this pace done 9 days late: scrubs pause after each step (osd_scrub_sleep)",
        ),
        (
            21,
            all(20),
            16,
            "at this pace done 9 days late: the disk is too slow for its data (osd_deep_scrub_interval)",
        ),
    ] {
        p.foretell(2, Some(outlook(days, &without, at_best)));
        assert_eq!(p.warned(), [format!("osd.2: {said}")]);
        p.foretell(2, Some(outlook(5, &all(5), 5)));
        assert_eq!(p.warned(), [""; 0]);
    }
}

#[test]
fn the_warning_neither_flaps_nor_is_lost_with_a_restart() {
    let mut p = Pools::new();
    let hours = |days| Some(outlook(days, &[(ScrubLimit::HOURS, 5)], 5));
    p.foretell(1, hours(12));
    assert_eq!(p.warned().len(), 0);
    p.foretell(1, hours(13));
    assert_eq!(p.warned().len(), 1);
    // A little better is not good, until it is better by a tenth of the interval.
    p.foretell(1, hours(12));
    let just = "osd.1: at this pace done only just in time: permitted are 8 of 24 hours \
                (osd_scrub_begin_hour, osd_scrub_end_hour)";
    assert_eq!(p.warned(), [just]);
    // It has started anew, and has not measured anything.
    p.foretell(1, None);
    assert_eq!(p.warned(), [just]);
    p.foretell(0, hours(30));
    let check = p.check("OSD_SCRUB_TOO_SLOW").unwrap();
    let summary = "2 osds will not have deep-scrubbed their data in time: osd.0, osd.1";
    assert_eq!((check.1.as_str(), check.2), (summary, 2));
    p.foretell(1, hours(11));
    assert_eq!(p.warned().len(), 1);
    // Muted as any other check: it is told again when there are more.
    p.w.mon.view.state.stats.restart(p.w.now);
    assert_eq!(
        p.say(r#"{"prefix":"health mute","code":"OSD_SCRUB_TOO_SLOW"}"#).0,
        0
    );
    let (_, _, text) = p.say(r#"{"prefix":"health","detail":"detail"}"#);
    assert!(
        text.contains("(MUTED) [WRN] OSD_SCRUB_TOO_SLOW: 1 osd will"),
        "{text}"
    );
    assert!(
        text.contains("\n    osd.0: at this pace done 18 days late"),
        "{text}"
    );
    p.foretell(1, hours(20));
    p.w.pass(Duration::from_secs(2));
    let (_, _, text) = p.say(r#"{"prefix":"health","detail":"detail"}"#);
    assert!(text.contains("\n[WRN] OSD_SCRUB_TOO_SLOW: 2 osds"), "{text}");
    // Nobody wants to know.
    p.say(
        r#"{"prefix":"config set","who":"global","name":"mon_warn_pg_not_deep_scrubbed_ratio","value":"0"}"#,
    );
    p.foretell(0, hours(30));
    p.foretell(1, hours(u32::MAX));
    assert_eq!(p.warned().len(), 0);
}

/// A scrub of which 600 s of 1200 are left.
fn half_done(deep: bool) -> PgScrub {
    PgScrub {
        deep,
        requested: true,
        seconds: Some(ScrubSeconds {
            whole: 1200,
            left: 600,
        }),
    }
}

#[test]
fn scrubs_are_in_progress_until_none_is_left() {
    let mut p = Pools::new();
    p.report(|_, _| {});
    let led = |p: &Pools, osd: u16| -> Vec<PgId> {
        let map = p.map();
        let is_led = |pg: &PgId| map.map_pg(*pg).acting_primary == Some(OsdId::new(osd));
        map.pgs().filter(is_led).collect()
    };
    let report = |pgs: &[PgId], scrub: PgScrub| ScrubReport {
        pgs: pgs.iter().map(|pg| (*pg, scrub.clone())).collect(),
        hours: 24,
        days: 7,
        ..ScrubReport::default()
    };
    let scrubbed: Vec<Vec<PgId>> = (0..3).map(|osd| led(&p, osd)).collect();
    assert_eq!(scrubbed.iter().map(Vec::len).sum::<usize>(), 12);
    for (osd, pgs) in (0..).zip(&scrubbed) {
        p.tell(osd, &report(pgs, half_done(true)));
    }
    // An OSD tells of what it leads.
    p.tell(
        0,
        &report(&[&scrubbed[0][..], &scrubbed[1]].concat(), half_done(true)),
    );
    p.w.pass(SECOND);
    let status = |p: &mut Pools| p.say(r#"{"prefix":"status"}"#).2;
    assert!(!status(&mut p).contains("progress:"), "it may be over soon");
    p.w.pass(8 * SECOND);
    // Each OSD takes part in all twelve.
    let shown = "\n  progress:\n    Deep scrub of 12 PGs in 2 pools (8s)\n      \
                 [==============..............] (remaining: 2h)\n";
    let text = status(&mut p);
    assert!(text.contains(shown), "{text}");
    let (_, _, json) = p.say(r#"{"prefix":"status","format":"json"}"#);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let event = json["progress_events"]
        .as_object()
        .unwrap()
        .values()
        .next()
        .unwrap();
    assert_eq!(
        (&event["progress"], &event["add_to_ceph_s"]),
        (&0.5.into(), &true.into())
    );
    let message = event["message"].as_str().unwrap();
    assert!(
        message.starts_with("Deep scrub of 12 PGs in 2 pools (8s)\n      [="),
        "{message}"
    );
    // Two are done and one is left, without reading contents.
    p.tell(1, &report(&[], half_done(true)));
    p.tell(2, &report(&[], half_done(true)));
    p.tell(0, &report(&scrubbed[0][..1], half_done(false)));
    p.w.pass(SECOND);
    let text = status(&mut p);
    assert!(text.contains("    Scrub of 1 PG in 1 pool ("), "{text}");
    assert!(
        text.contains("[==========================..] (remaining: 10m)\n"),
        "{text}"
    );
    p.tell(0, &report(&[], half_done(true)));
    p.w.pass(SECOND);
    assert!(!status(&mut p).contains("progress:"));
    assert_eq!(p.say(r#"{"prefix":"progress"}"#).1, "Nothing in progress");
}

#[test]
fn what_waits_for_its_hours_takes_as_long_as_these_are_far() {
    let mut p = Pools::new();
    p.report(|_, _| {});
    let pg = p.map().pgs().find(|pg| pg.pool == PoolId::new(1)).unwrap();
    let primary = p.map().map_pg(pg).acting_primary.unwrap();
    let mut report = ScrubReport {
        hours: 8,
        days: 7,
        opens_in: 3 * 3600,
        ..ScrubReport::default()
    };
    let mut left = |p: &mut Pools, left: Option<u32>, requested: bool| {
        let scrub = PgScrub {
            deep: true,
            requested,
            seconds: left.map(|left| ScrubSeconds { whole: left, left }),
        };
        report.pgs = [(pg, scrub)].into();
        p.tell(primary.into(), &report);
        p.w.pass(8 * SECOND);
        let (_, _, json) = p.say(r#"{"prefix":"progress json"}"#);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        json["events"][0]["time_remaining"].as_u64()
    };
    assert_eq!(left(&mut p, Some(3600), false), Some(4 * 3600));
    assert_eq!(left(&mut p, Some(16 * 3600), false), Some(51 * 3600));
    assert_eq!(left(&mut p, Some(3600), true), Some(3600));
    assert_eq!(
        left(&mut p, None, true),
        None,
        "nothing is measured, and nothing done"
    );
}
