use spirula_crush::CrushMap;
use spirula_denc::{EntityAddr, Fsid, Micros};
use spirula_maps::{Epoch, OsdId, OsdState};

use super::*;

const SEC: Micros = Micros::from_secs(1);

fn settings() -> Settings {
    Settings {
        interval: SEC * 6,
        grace: SEC * 20,
        min_healthy_ratio: 0.33,
        fast_fail: true,
        markdown_count: 5,
        markdown_period: SEC * 600,
        minute: SEC * 60,
        wish: Wish {
            min_peers: 10,
            reporters: 2,
            level: "host".into(),
        },
    }
}

/// OSDs 0 to `n` - 1, all up.
fn map(n: u16) -> OsdMap {
    let mut map = OsdMap::new(Fsid::default(), CrushMap::with_default_root("host").unwrap());
    map.set_max_osd(n.into());
    for o in 0..n {
        let at = usize::from(o);
        map.osd_state[at] = OsdState::EXISTS.with(OsdState::UP);
        map.hb_back_addrs[at] = EntityAddr::v2(format!("10.0.0.1:{}", 7000 + o).parse().unwrap(), 1).into();
        map.hb_front_addrs[at] = EntityAddr::v2(format!("10.0.0.1:{}", 8000 + o).parse().unwrap(), 1).into();
    }
    map
}

fn started(n: u16) -> (Heartbeats, OsdMap) {
    let (mut h, map) = (Heartbeats::new(OsdId::new(0), settings()), map(n));
    h.set_peers(&map, BTreeSet::new(), true, &mut Vec::new());
    (h, map)
}

fn tick(h: &mut Heartbeats, now: Micros) -> Vec<Command> {
    let mut out = Vec::new();
    h.tick(now, 5, &mut out);
    out
}

/// Ticks each second until `until`; `answer` says which pings are answered at once. Returns the
/// reports.
fn run(
    h: &mut Heartbeats,
    from: u64,
    until: u64,
    answer: impl Fn(OsdId, Net) -> bool,
) -> Vec<(u64, Complaint)> {
    let mut said = Vec::new();
    for second in from..until {
        let now = SEC * second;
        let mut out = tick(h, now);
        let mut at = 0;
        while at < out.len() {
            match out[at] {
                Command::Ping { osd, net, stamp } if answer(osd, net) => {
                    h.answered(osd, net, stamp, now + Micros::new(1000), 0, &mut out);
                }
                Command::Report(c) => said.push((second, c)),
                _ => {}
            }
            at += 1;
        }
    }
    said
}

#[test]
fn a_peer_is_reported_once_after_the_grace_and_taken_back_when_it_answers() {
    let (mut h, _) = started(3);
    assert!(run(&mut h, 1, 60, |_, _| true).is_empty());
    let said = run(&mut h, 60, 200, |osd, _| osd.index() != 1);
    let [(at, c)] = said.as_slice() else {
        panic!("{said:?}")
    };
    assert_eq!((c.osd.index(), c.kind), (1, FailureKind::TIMEOUT));
    // Pings go out about every three seconds; the first unanswered one is overdue after the grace.
    assert!((80..=85).contains(at), "{at}");
    assert!(c.failed_for >= SEC * 20 && c.failed_for < SEC * 26, "{c:?}");
    let said = run(&mut h, 200, 210, |_, _| true);
    assert_eq!(said.len(), 1);
    assert_eq!(
        (said[0].1.osd.index(), said[0].1.kind),
        (1, FailureKind::RECOVERED)
    );
}

#[test]
fn one_network_that_is_dead_is_a_failure() {
    let (mut h, _) = started(2);
    run(&mut h, 1, 30, |_, _| true);
    let said = run(&mut h, 30, 60, |_, net| net == Net::Back);
    assert_eq!(said.len(), 1, "{said:?}");
    // One that never answered has been silent since the first ping.
    let (mut h, _) = started(2);
    let said = run(&mut h, 1, 60, |_, net| net == Net::Front);
    assert_eq!(said[0].1.failed_for, SEC * (said[0].0 - 1));
}

#[test]
fn who_did_not_run_blames_nobody() {
    let (mut h, _) = started(3);
    run(&mut h, 1, 30, |_, _| true);
    // Pings are under way when the process is stopped for a minute; the answers are read a little
    // after the tick.
    h.set_settings(settings());
    let pings = tick(&mut h, SEC * 30);
    assert_eq!(pings.len(), 4);
    assert!(
        tick(&mut h, SEC * 90)
            .iter()
            .all(|c| matches!(c, Command::Ping { .. }))
    );
}

#[test]
fn a_refused_connection_is_told_at_once_and_not_too_often() {
    let (mut h, map) = started(3);
    let mut out = Vec::new();
    for ms in [0, 200, 400, 6000] {
        h.refused(OsdId::new(2), SEC + Micros::from_millis(ms), &mut out);
    }
    h.refused(OsdId::new(7), SEC, &mut out);
    let c = complaint(OsdId::new(2), FailureKind::IMMEDIATE, Micros::ZERO);
    assert_eq!(out, [c, c]);
    h.set_settings(Settings {
        fast_fail: false,
        ..settings()
    });
    h.refused(OsdId::new(1), SEC, &mut out);
    // An OSD that is down itself is not listened to.
    h.set_settings(settings());
    h.set_peers(&map, BTreeSet::new(), false, &mut out);
    h.refused(OsdId::new(1), SEC, &mut out);
    assert_eq!(out.len(), 2);
}

#[test]
fn a_new_life_of_a_peer_starts_with_a_clean_record() {
    let (mut h, mut map) = started(3);
    assert_eq!(run(&mut h, 1, 40, |_, _| false).len(), 2);
    map.osd_info[1].up_from = Epoch::new(9);
    let mut out = Vec::new();
    h.set_peers(&map, BTreeSet::new(), true, &mut out);
    assert!(out.is_empty(), "the old life is over: {out:?}");
    assert!(run(&mut h, 40, 50, |_, _| false).is_empty());
    // A peer that is no longer watched, but was complained about, is taken back.
    let mut few = settings();
    few.wish.min_peers = 0;
    few.wish.reporters = 0;
    let (mut h, map) = started(6);
    assert_eq!(run(&mut h, 1, 40, |osd, _| osd.index() != 3).len(), 1);
    h.set_settings(few);
    h.set_peers(&map, BTreeSet::new(), true, &mut out);
    assert_eq!(
        out,
        [complaint(OsdId::new(3), FailureKind::RECOVERED, Micros::ZERO)]
    );
    assert_eq!(h.peers().collect::<Vec<_>>(), [1, 5].map(OsdId::new));
}

#[test]
fn a_new_session_hears_of_every_failure_again() {
    let (mut h, _) = started(3);
    assert_eq!(run(&mut h, 1, 60, |osd, _| osd.index() != 1).len(), 1);
    h.tell_again();
    assert_eq!(run(&mut h, 60, 62, |osd, _| osd.index() != 1).len(), 1);
}

#[test]
fn who_was_marked_down_boots_when_a_third_of_the_peers_answer() {
    let (mut h, map) = started(4);
    run(&mut h, 1, 20, |_, _| true);
    assert_eq!(h.may_boot(SEC * 20), Ok(()));
    assert_eq!(h.marked_down(SEC * 20), MarkedDown::Wait);
    h.set_peers(&map, BTreeSet::new(), false, &mut Vec::new());
    assert_eq!(h.may_boot(SEC * 20), Err(Unhealthy { up: 0, peers: 3 }));
    // Cut off, it complains about nobody and waits.
    assert!(run(&mut h, 20, 100, |_, _| false).is_empty());
    assert!(h.may_boot(SEC * 100).is_err());
    run(&mut h, 100, 103, |osd, _| osd.index() == 2);
    assert_eq!(h.may_boot(SEC * 103), Ok(()));
    // It tries again in any case when the last time is long ago.
    run(&mut h, 103, 200, |_, _| false);
    assert!(h.may_boot(SEC * 200).is_err());
    tick(&mut h, SEC * 621);
    assert_eq!(h.may_boot(SEC * 621), Ok(()));
    h.set_peers(&map, BTreeSet::new(), true, &mut Vec::new());
    assert!(!h.is_waiting());
}

#[test]
fn the_sixth_time_within_ten_minutes_is_one_too_many() {
    let (mut h, _) = started(2);
    for n in 0..5 {
        assert_eq!(h.marked_down(SEC * (1 + n * 100)), MarkedDown::Wait);
    }
    // The first one is over ten minutes ago.
    assert_eq!(h.marked_down(SEC * 602), MarkedDown::Wait);
    assert_eq!(h.marked_down(SEC * 603), MarkedDown::Stop(6));
}

#[test]
fn memory_of_pings_is_bounded_and_the_oldest_deadline_stays() {
    let (mut h, _) = started(2);
    run(&mut h, 1, 10_000, |_, _| false);
    let said = run(&mut h, 10_000, 10_010, |_, _| true);
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].1.kind, FailureKind::RECOVERED);
}
