//! Large data that goes to the members ahead of its change, while several clients write.

use spirula_proto::internal::Edition;

use super::*;

/// A PG of three members whose clients are two, for which data of 8 KiB is large.
fn cluster(number: u64) -> Sim {
    // With odd ones, portions of a large change of a coded PG are too small to go ahead.
    let seed = 2 * number;
    let cfg = PgConfig {
        least_ahead: 8192,
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(3, 3, 1, seed, cfg);
    sim.settle();
    sim
}

/// Data of whole blocks that begins so, enough to be staged in a coded PG.
fn large(text: &str) -> String {
    format!("{text:.<49152}")
}

/// Sends a request as the other client, so that none is alone; returns its number.
fn send_as_other(sim: &mut Sim, name: &str, data: &str) -> u64 {
    let mut op = sim.build(name, vec![write_full(data)]);
    op.client = watch::client(2);
    sim.submit(op).expect("a primary")
}

#[test]
pub(super) fn data_goes_ahead_only_while_there_are_others() {
    let mut sim = cluster(1);
    assert_eq!(sim.write_full("a", &large("alone")).result, 0);
    assert_eq!(sim.placed, 0, "it waits for nobody, and nobody for it");
    send_as_other(&mut sim, "b", "small");
    assert_eq!(sim.write_full("a", &large("not alone")).result, 0);
    assert_eq!(sim.placed, 3, "on each member");
    assert_eq!(sim.read("a").unwrap(), large("not alone"));
    // What is not whole blocks goes with the change.
    assert_eq!(sim.write_full("a", &format!("{:.<8193}", "odd")).result, 0);
    assert_eq!(sim.write_full("a", "small").result, 0);
    assert_eq!(sim.placed, 3);
    sim.settle();
    sim.assert_all_agree();
}

#[test]
pub(super) fn a_small_write_overtakes_data_that_is_on_its_way() {
    let mut sim = cluster(2);
    send_as_other(&mut sim, "b", "small");
    sim.settle();
    // A client that writes is there again.
    send_as_other(&mut sim, "b", "smaller");
    sim.run_some(100_000);
    sim.replies.clear();
    let op = sim.build("a", vec![write_full(&large("large"))]);
    let first = sim.submit(op).expect("a primary");
    while sim.placed == 0 {
        sim.run_some(1);
    }
    // The members get nothing yet.
    let held = std::mem::take(&mut sim.ahead_links);
    assert_eq!(held.values().map(VecDeque::len).sum::<usize>(), 2);
    let second = send_as_other(&mut sim, "b", "small again");
    sim.run_some(100_000);
    assert!(sim.reply_to(second).is_some() && sim.reply_to(first).is_none());
    for (link, messages) in held {
        sim.ahead_links.entry(link).or_default().extend(messages);
    }
    sim.run_some(100_000);
    assert!(sim.reply_to(first).is_some());
    sim.settle();
    sim.assert_all_agree();
}

#[test]
pub(super) fn writes_of_an_object_keep_their_order() {
    let mut sim = cluster(3);
    send_as_other(&mut sim, "b", "small");
    let contents = [large("one"), "two".to_owned(), large("three"), "four".to_owned()];
    for data in &contents {
        let op = sim.build("a", vec![write_full(data)]);
        sim.submit(op);
    }
    sim.settle();
    assert_eq!(sim.read("a").unwrap(), "four");
    sim.assert_all_agree();
}

#[test]
pub(super) fn lost_data_and_lost_answers_are_made_good() {
    let mut placed = 0;
    for cut_after in 0..48 {
        let mut sim = cluster(cut_after + 10);
        send_as_other(&mut sim, "b", "small");
        sim.replies.clear();
        for i in 0..3 {
            let op = sim.build(&format!("o{i}"), vec![write_full(&large("x"))]);
            sim.submit(op);
        }
        sim.run_some((cut_after / 2) as usize);
        let [a, b] = [OsdId::new(0), OsdId::new(1)];
        if cut_after % 2 == 0 {
            sim.cut_link(a, b);
        } else {
            sim.cut_ahead(a, b);
            sim.cut_ahead(b, a);
        }
        sim.settle();
        placed += sim.placed;
        for i in 0..3 {
            assert_eq!(
                sim.read(&format!("o{i}")).unwrap(),
                large("x"),
                "cut after {cut_after}"
            );
        }
        sim.assert_all_agree();
    }
    assert!(placed > 100, "{placed}");
}

#[test]
pub(super) fn a_member_without_room_for_it_gets_the_data_with_the_change() {
    let mut sim = cluster(4);
    sim.roomless.insert(OsdId::new(1));
    send_as_other(&mut sim, "b", "small");
    assert_eq!(sim.write_full("a", &large("large")).result, 0);
    assert_eq!(sim.placed, 2);
    sim.roomless.clear();
    sim.settle();
    sim.assert_all_agree();
}

#[test]
pub(super) fn a_member_that_dies_meanwhile_is_not_waited_for() {
    for dies_after in 0..20 {
        let mut sim = cluster(dies_after + 50);
        send_as_other(&mut sim, "b", "small");
        let op = sim.build("a", vec![write_full(&large("large"))]);
        sim.submit(op);
        sim.run_some(dies_after as usize);
        sim.crash_and_mark_down(OsdId::new((dies_after % 3) as u16));
        sim.settle();
        sim.start_and_mark_up(OsdId::new((dies_after % 3) as u16));
        sim.settle_clean(dies_after);
        // The primary that died has forgotten the request, as its client has not sent it again.
        let found = sim.read("a");
        assert!(
            found.is_err() || found.unwrap() == large("large"),
            "dies after {dies_after}"
        );
        sim.assert_all_agree();
    }
}

#[test]
fn an_osd_of_the_version_before_gets_nothing_ahead() {
    let mut sim = cluster(5);
    sim.speak(OsdId::new(1), Edition::Previous);
    sim.settle();
    send_as_other(&mut sim, "b", "small");
    assert_eq!(sim.write_full("a", &large("large")).result, 0);
    assert_eq!(sim.placed, 0);
    sim.settle();
    sim.assert_all_agree();
}
