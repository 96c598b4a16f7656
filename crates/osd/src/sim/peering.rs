//! Replication and peering, step by step.

use spirula_proto::internal::Protocol;

use super::*;
use crate::pg::bug::Bug;
use crate::pg::message::{PeerBody, PeerMessage, PeeringId};

fn cluster(seed: u64) -> Sim {
    let mut sim = Sim::new(3, 3, 1, seed);
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
    sim
}

#[test]
pub(super) fn nothing_is_acknowledged_before_every_member_has_it() {
    for lost in 0..3 {
        let mut sim = cluster(3);
        let op = sim.build("a", vec![write_full("x")]);
        let tid = sim.submit(op).unwrap();
        loop {
            let steps: Vec<Step> = sim
                .steps()
                .into_iter()
                .filter(|s| *s != Step::Flush(OsdId::new(lost)))
                .collect();
            let Some(&s) = steps.first() else { break };
            sim.step(s);
        }
        assert!(sim.reply_to(tid).is_none(), "acknowledged without osd.{lost}");
        sim.run_some(1000);
        assert_eq!(sim.reply_to(tid).unwrap().result, 0);
        sim.assert_all_agree();
    }
}

#[test]
pub(super) fn an_acknowledgement_before_the_last_replica_is_noticed() {
    let cfg = PgConfig {
        bug: Some(Bug::EarlyAck),
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(3, 3, 1, 3, cfg);
    sim.settle();
    let op = sim.build("a", vec![write_full("x")]);
    let tid = sim.submit(op).unwrap();
    while let Some(step) = sim.steps().into_iter().find(|s| *s != Step::Flush(OsdId::new(1))) {
        sim.step(step);
    }
    assert!(sim.reply_to(tid).is_some());
}

#[test]
#[should_panic(expected = "expected transactions to be durable in the order of submission")]
pub(super) fn a_store_that_answers_out_of_order_ends_the_osd() {
    let mut sim = cluster(3);
    for name in ["a", "b"] {
        let op = sim.build(name, vec![write_full("x")]);
        sim.submit(op).unwrap();
    }
    while let Some(step) = sim.steps().into_iter().find(|s| !matches!(s, Step::Flush(_))) {
        sim.step(step);
    }
    let primary = sim.map().placement(PgId::new(POOL, 0)).primary.unwrap();
    let submitted: Vec<Token> = sim
        .nodes
        .get_mut(&primary)
        .unwrap()
        .store
        .flush()
        .into_iter()
        .collect();
    assert_eq!(submitted.len(), 2);
    sim.with(primary, |core, cx| {
        core.handle_store(submitted[1], StoreReply::Committed, cx)
    });
}

/// Takes all steps but flushes of one member, and returns the infos that it has sent meanwhile.
fn notified_without_flush(sim: &mut Sim, member: OsdId) -> usize {
    let mut notified = 0;
    while let Some(step) = sim.steps().into_iter().find(|s| *s != Step::Flush(member)) {
        if let Step::Deliver(from, to) = step
            && from == member
            && let Ok(msg) = PeerMessage::from_raw(&sim.links[&(from, to)][0], Edition::Current)
        {
            notified += usize::from(matches!(msg.body, PeerBody::Notify { .. }));
        }
        sim.step(step);
    }
    notified
}

#[test]
pub(super) fn a_member_tells_of_its_copy_only_when_that_is_durable() {
    let mut sim = cluster(3);
    let primary = sim.map().placement(PgId::new(POOL, 0)).primary.unwrap();
    let member = OsdId::below(3).find(|o| *o != primary).unwrap();
    let op = sim.build("a", vec![write_full("x")]);
    sim.submit(op).unwrap();
    assert_eq!(notified_without_flush(&mut sim, member), 0);
    assert!(sim.nodes[&member].store.has_unflushed());
    // The primary begins to agree anew, in the same interval.
    let ask = PeerMessage {
        pgid: PgId::new(POOL, 0),
        id: PeeringId {
            epoch: sim.map().epoch,
            round: u32::MAX,
        },
        body: PeerBody::Query,
    };
    sim.with(member, |core, cx| core.handle_peer(primary, ask, cx));
    assert_eq!(notified_without_flush(&mut sim, member), 0);
    sim.step(Step::Flush(member));
    let told = sim.links[&(member, primary)]
        .iter()
        .filter_map(|m| PeerMessage::from_raw(m, Edition::Current).ok());
    let infos: Vec<PeerBody> = told
        .map(|m| m.body)
        .filter(|b| matches!(b, PeerBody::Notify { .. }))
        .collect();
    let [PeerBody::Notify { info: Some(info), .. }] = infos.as_slice() else {
        panic!("{infos:?}");
    };
    assert_eq!(info.last_user_version, 1, "the write is told of");
}

#[test]
pub(super) fn a_lost_message_or_answer_is_made_good_on_the_new_connection() {
    for cut_after in 0..14 {
        let mut sim = cluster(cut_after + 10);
        for i in 0..5 {
            let op = sim.build(&format!("o{i}"), vec![write_full("x")]);
            sim.submit(op);
        }
        sim.run_some(cut_after as usize);
        sim.cut_link(OsdId::new(0), OsdId::new(1));
        sim.settle();
        assert_eq!(sim.replies.len(), 5, "cut after {cut_after}");
        sim.assert_all_agree();
    }
}

#[test]
pub(super) fn with_a_member_away_a_pg_serves_and_the_member_gets_what_it_missed() {
    for away in 0..3 {
        let mut sim = cluster(5);
        sim.write_full("a", "before");
        sim.crash_and_mark_down(OsdId::new(away));
        sim.settle();
        assert_eq!(sim.states(), ["1.0 active+undersized+degraded"]);
        sim.write_full("a", "meanwhile");
        sim.write_full("b", "new");
        sim.start_and_mark_up(OsdId::new(away));
        sim.settle();
        assert!(sim.all_clean(), "{:?}", sim.states());
        assert_eq!(sim.read("a").unwrap(), "meanwhile");
        assert_eq!(sim.read("b").unwrap(), "new");
        sim.assert_all_agree();
    }
}

#[test]
fn the_only_survivor_s_data_is_waited_for() {
    let mut sim = cluster(6);
    sim.change_map(|m| m.pools.get_mut(&POOL).unwrap().min_size = 1);
    sim.write_full("a", "before");
    sim.crash_and_mark_down(OsdId::new(0));
    sim.crash_and_mark_down(OsdId::new(1));
    sim.settle();
    sim.write_full("a", "alone");
    sim.crash_and_mark_down(OsdId::new(2));
    sim.start_and_mark_up(OsdId::new(0));
    sim.start_and_mark_up(OsdId::new(1));
    sim.settle();
    assert!(sim.states()[0].contains("down"), "{:?}", sim.states());
    sim.start_and_mark_up(OsdId::new(2));
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
    assert_eq!(sim.read("a").unwrap(), "alone");
    sim.assert_all_agree();
}

/// A member of the last interval comes back with an empty disk. The PG waits for the lost writes
/// until the other member is there.
#[test]
fn an_empty_disk_is_no_answer_for_what_was_on_the_old_one() {
    for (emptied, away) in [(1, 2), (2, 1)] {
        let mut sim = cluster(6);
        sim.write_full("a", "before");
        sim.crash_and_mark_down(OsdId::new(0));
        sim.settle();
        sim.write_full("a", "acknowledged");
        sim.crash_and_mark_down(OsdId::new(1));
        sim.crash_and_mark_down(OsdId::new(2));
        sim.replace_disk(OsdId::new(emptied));
        sim.start_and_mark_up(OsdId::new(0));
        sim.start_and_mark_up(OsdId::new(emptied));
        sim.settle();
        assert!(sim.states()[0].contains("down"), "{:?}", sim.states());
        sim.start_and_mark_up(OsdId::new(away));
        sim.settle();
        assert!(sim.all_clean(), "{:?}", sim.states());
        assert_eq!(sim.read("a").unwrap(), "acknowledged");
        sim.assert_all_agree();
    }
}

/// osd.0 and osd.3 are the members of an interval in which they do not come to serve, and osd.0
/// dies. osd.3, which was given no copy, knows that as long as it has the same disk.
#[test]
pub(super) fn a_member_that_was_given_no_copy_is_an_answer_if_its_disk_is_not_new() {
    for replaced in [false, true] {
        let mut sim = Sim::new(4, 3, 1, 9);
        sim.settle();
        sim.write_full("a", "acknowledged");
        for id in [1, 2] {
            sim.crash_and_mark_down(OsdId::new(id));
            sim.change_map(|m| m.out.push(OsdId::new(id)));
        }
        // The monitors hear that osd.0 goes on, but it and osd.3 do not hear each other.
        for _ in 0..10_000 {
            let steps = sim.steps();
            let Some(step) = steps.into_iter().find(|s| !matches!(s, Step::Deliver(..))) else {
                break;
            };
            sim.step(step);
        }
        let newest = sim.maps.last_key_value().unwrap().1;
        assert!(newest.up_thru(OsdId::new(0)) > newest.up_from(OsdId::new(3)));
        sim.crash_and_mark_down(OsdId::new(0));
        sim.change_map(|m| m.out.clear());
        if replaced {
            sim.crash_and_mark_down(OsdId::new(3));
            sim.replace_disk(OsdId::new(3));
            sim.start_and_mark_up(OsdId::new(3));
        }
        sim.start_and_mark_up(OsdId::new(1));
        sim.start_and_mark_up(OsdId::new(2));
        sim.settle();
        assert_eq!(sim.states()[0].contains("down"), replaced, "{:?}", sim.states());
        if !replaced {
            assert_eq!(sim.read("a").unwrap(), "acknowledged");
        }
    }
}

/// The others die, and the monitors do not hear that osd.0 goes on; it takes a write, and the
/// others come back without it. Returns whether the write was acknowledged, and what is read then.
fn unrecorded(bug: Option<Bug>) -> (bool, Option<String>) {
    let cfg = PgConfig {
        bug,
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(3, 3, 1, 8, cfg);
    sim.settle();
    sim.change_map(|m| m.pools.get_mut(&POOL).unwrap().min_size = 1);
    sim.settle();
    sim.write_full("a", "before");
    sim.crash_and_mark_down(OsdId::new(1));
    sim.crash_and_mark_down(OsdId::new(2));
    let op = sim.build("a", vec![write_full("alone")]);
    let tid = sim.submit(op).unwrap();
    for _ in 0..10_000 {
        let steps = sim.steps();
        let Some(step) = steps.into_iter().find(|s| *s != Step::Alive) else {
            break;
        };
        sim.step(step);
    }
    let acknowledged = sim.reply_to(tid).is_some();
    sim.alive.clear();
    sim.crash_and_mark_down(OsdId::new(0));
    sim.start_and_mark_up(OsdId::new(1));
    sim.start_and_mark_up(OsdId::new(2));
    sim.settle();
    let op = sim.build("a", vec![extent(OpCode::READ, 0, 0, "")]);
    let tid = sim.submit(op).unwrap();
    sim.settle();
    let read = sim.reply_to(tid);
    let read = read.map(|r| String::from_utf8(r.ops[0].data.to_bytes().to_vec()).unwrap());
    (acknowledged, read)
}

#[test]
fn a_primary_serves_only_when_the_map_says_that_it_is_up() {
    assert_eq!(unrecorded(None), (false, Some("before".into())));
    // Else the acknowledged write would be lost, as no OSD knew that there is something to wait
    // for.
    assert_eq!(unrecorded(Some(Bug::NoUpThru)), (true, Some("before".into())));
}

#[test]
pub(super) fn with_too_few_members_ops_are_held_and_go_on_when_one_returns() {
    for away in 0..3 {
        let mut sim = cluster(5);
        sim.change_map(|m| m.pools.get_mut(&POOL).unwrap().min_size = 3);
        sim.settle();
        sim.write_full("a", "before");
        sim.crash_and_mark_down(OsdId::new(away));
        sim.settle();
        assert!(
            sim.states().iter().all(|s| s.contains("peered")),
            "{:?}",
            sim.states()
        );
        let op = sim.build("a", vec![write_full("after")]);
        let tid = sim.submit(op).unwrap();
        sim.settle();
        assert!(sim.reply_to(tid).is_none());
        sim.start_and_mark_up(OsdId::new(away));
        sim.settle();
        assert!(sim.all_clean(), "{:?}", sim.states());
        // osd.0 leads when it is there: its client sends again after the change.
        assert!(sim.maps_shared >= 1, "the client was told of the change");
        if away != 0 {
            assert_eq!(sim.reply_to(tid).unwrap().result, 0);
            assert_eq!(sim.read("a").unwrap(), "after");
        }
        sim.assert_all_agree();
    }
}

#[test]
pub(super) fn a_crash_at_any_step_loses_no_acknowledged_write() {
    for victim in 0..3 {
        for at in 0..25 {
            let mut sim = cluster(at as u64 + 1);
            sim.write_full("a", "v0");
            let ops: Vec<ClientOp> = (1..4)
                .map(|i| sim.build("a", vec![write_full(&format!("v{i}"))]))
                .collect();
            let tids: Vec<u64> = ops.into_iter().filter_map(|op| sim.submit(op)).collect();
            sim.run_some(at);
            let acked = tids
                .iter()
                .filter(|t| sim.replies.iter().any(|r| r.tid == **t))
                .count();
            sim.crash_and_mark_down(OsdId::new(victim));
            sim.run_some(at);
            sim.start_and_mark_up(OsdId::new(victim));
            sim.settle();
            assert!(sim.all_clean(), "{:?}", sim.states());
            let now = sim.read("a").unwrap();
            let n: usize = std::str::from_utf8(&now[1..]).unwrap().parse().unwrap();
            assert!(
                n >= acked,
                "victim {victim} at {at}: {acked} acknowledged, found {now:?}"
            );
            sim.assert_all_agree();
        }
    }
}

#[test]
pub(super) fn a_member_that_is_replaced_gets_everything_and_the_old_copy_goes() {
    let mut sim = Sim::new(4, 3, 1, 9);
    sim.settle();
    for i in 0..300 {
        sim.write_full(&format!("o{i}"), &format!("data {i}"));
    }
    sim.change_map(|m| m.out.push(OsdId::new(1)));
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
    sim.assert_agree([3, 0].map(OsdId::new));
    assert!(
        sim.nodes[&OsdId::new(1)].store.objects().is_empty(),
        "the stray is deleted"
    );
    assert_eq!(sim.nodes[&OsdId::new(1)].store.meta_len(), 0);
    assert_eq!(sim.read("o299").unwrap(), "data 299");
}

#[test]
pub(super) fn a_pg_that_moved_waits_for_a_down_osd_that_may_have_newer_data() {
    let mut sim = Sim::new(4, 1, 1, 4);
    sim.settle();
    sim.write_full("a", "x");
    sim.crash_and_mark_down(OsdId::new(0));
    sim.change_map(|m| m.out.push(OsdId::new(0)));
    sim.settle();
    assert_eq!(sim.states(), ["1.0 down"]);
    sim.start_and_mark_up(OsdId::new(0));
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
    assert_eq!(sim.read("a").unwrap(), "x");
    assert!(sim.nodes[&OsdId::new(0)].store.objects().is_empty());
}

#[test]
pub(super) fn splits_share_out_log_and_objects() {
    let mut sim = Sim::new(3, 3, 2, 4);
    sim.settle();
    for i in 0..60 {
        sim.write_full(&format!("o{i}"), "x");
    }
    let op = sim.build("o7", vec![extent(OpCode::APPEND, 0, 1, "y")]);
    let reqid = op.reqid;
    assert_eq!(sim.call_op(op).result, 0);
    sim.change_map(|m| m.pools.get_mut(&POOL).unwrap().pg_num = 8);
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
    let again = ClientOp {
        reqid,
        ..sim.build("o7", vec![extent(OpCode::APPEND, 0, 1, "y")])
    };
    assert_eq!(sim.call_op(again).result, 0);
    assert_eq!(sim.read("o7").unwrap(), "xy");
    let total: i64 = sim
        .nodes
        .values()
        .flat_map(|n| n.core.iter().flat_map(|c| c.reports()))
        .map(|r| r.usage.objects)
        .sum();
    assert_eq!(total, 60);
}

#[test]
pub(super) fn a_deleted_pool_leaves_nothing_behind() {
    let mut sim = Sim::new(3, 3, 4, 4);
    sim.settle();
    for i in 0..200 {
        sim.write_full(&format!("o{i}"), "x");
    }
    sim.change_map(|m| m.pools.clear());
    sim.run_some(40);
    sim.crash(OsdId::new(1));
    sim.start(OsdId::new(1));
    sim.change_map(|m| m.mark_up(OsdId::new(1)));
    sim.settle();
    for n in sim.nodes.values() {
        assert!(n.store.objects().is_empty());
        assert_eq!(n.store.meta_len(), 0);
        assert_eq!(n.core.as_ref().unwrap().pgs().count(), 0);
    }
}

#[test]
pub(super) fn a_deletion_goes_on_when_the_store_can_list_again() {
    let mut sim = Sim::new(1, 1, 1, 1);
    sim.settle();
    for i in 0..10 {
        sim.write_full(&format!("o{i}"), "x");
    }
    sim.nodes.get_mut(&OsdId::new(0)).unwrap().store.unlistable = true;
    sim.change_map(|m| m.pools.clear());
    sim.settle();
    let store = &mut sim.nodes.get_mut(&OsdId::new(0)).unwrap().store;
    assert_eq!(store.objects().len(), 10);
    store.unlistable = false;
    sim.settle();
    let node = &sim.nodes[&OsdId::new(0)];
    assert!(node.store.objects().is_empty() && node.store.meta_len() == 0);
    assert_eq!(node.core.as_ref().unwrap().pgs().count(), 0);
}

#[test]
pub(super) fn logs_stay_bounded_everywhere() {
    let cfg = PgConfig {
        log_entries_per_pg: 50..=50,
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(3, 3, 1, 4, cfg);
    sim.settle();
    for i in 0..400 {
        sim.write_full(&format!("o{}", i % 7), "x");
    }
    for n in sim.nodes.values() {
        let pg = n.core.as_ref().unwrap().pg(PgId::new(POOL, 0)).unwrap();
        assert!(pg.seen().log().len() < 120, "{}", pg.seen().log().len());
        assert!(n.store.meta_len() < 125);
    }
    // Longer away than the log reaches: everything is compared.
    sim.crash_and_mark_down(OsdId::new(2));
    sim.start_and_mark_up(OsdId::new(2));
    sim.settle();
    assert!(sim.all_clean());
    sim.assert_all_agree();
}

/// An OSD's role in PG 1.0.
fn trace(sim: &Sim, osd: OsdId) -> String {
    let core = sim.nodes[&osd].core.as_ref().unwrap();
    core.pg(PgId::new(POOL, 0))
        .map(|pg| pg.seen().trace())
        .unwrap_or_default()
}

/// Steps until an OSD's role in PG 1.0 looks like this.
fn run_until(sim: &mut Sim, osd: OsdId, what: &str) {
    for _ in 0..10_000 {
        if trace(sim, osd).contains(what) {
            return;
        }
        let steps = sim.steps();
        let at = sim.random(steps.len());
        sim.step(steps[at]);
    }
    panic!("not {what}: {}", trace(sim, osd));
}

#[test]
pub(super) fn a_helper_that_was_marked_down_and_lives_is_asked_again() {
    for seed in 1..40 {
        let mut sim = Sim::new(4, 2, 1, seed);
        sim.settle();
        for i in 0..20 {
            sim.write_full(&format!("o{i}"), "x");
        }
        // osd.0 belongs to the PG no more, but has the newest copy, and brings the others up to it.
        sim.change_map(|m| m.out.extend([0, 1].map(OsdId::new)));
        run_until(&mut sim, OsdId::new(2), "Syncing({2, 3})");
        sim.change_map(|m| m.mark_down(OsdId::new(0)));
        sim.change_map(|m| m.mark_up(OsdId::new(0)));
        // The others may see both maps before it does.
        for _ in 0..2 * seed {
            let mut steps = sim.steps();
            steps.retain(|s| *s != Step::Map(OsdId::new(0)));
            let at = sim.random(steps.len().max(1));
            if let Some(step) = steps.get(at) {
                sim.step(*step);
            }
        }
        sim.settle();
        assert!(sim.all_clean(), "seed {seed}: {:?}", sim.states());
        assert_eq!(sim.read("o7").unwrap(), "x");
        assert!(
            sim.nodes[&OsdId::new(0)].store.objects().is_empty(),
            "the stray is deleted"
        );
    }
}

#[test]
fn a_count_that_a_new_attempt_has_overtaken_activates_nothing() {
    for seed in 1..20 {
        let mut sim = cluster(seed);
        sim.change_map(|m| m.pools.get_mut(&POOL).unwrap().min_size = 1);
        sim.settle();
        sim.crash_and_mark_down(OsdId::new(0));
        sim.crash_and_mark_down(OsdId::new(2));
        sim.settle();
        for i in 0..20 {
            sim.write_full(&format!("o{i}"), "x");
        }
        sim.start(OsdId::new(0));
        sim.start(OsdId::new(2));
        sim.change_map(|m| {
            m.mark_up(OsdId::new(0));
            m.mark_up(OsdId::new(2));
            // After a split the objects are counted.
            m.pools.get_mut(&POOL).unwrap().pg_num = 2;
        });
        // osd.1 brings the others up to its copy, and does not notice that these cannot reach each
        // other for a moment.
        run_until(&mut sim, OsdId::new(0), "Syncing({0, 2})");
        sim.cut_link(OsdId::new(0), OsdId::new(2));
        run_until(&mut sim, OsdId::new(0), "Counting");
        // So osd.0 begins anew, and then gets the answer that it had asked its store for.
        sim.pass_moment();
        assert!(
            !trace(&sim, OsdId::new(0)).contains("Counting"),
            "it did not begin anew"
        );
        while sim.steps().contains(&Step::Answer(OsdId::new(0))) {
            sim.step(Step::Answer(OsdId::new(0)));
        }
        assert!(!trace(&sim, OsdId::new(0)).contains("Activating"), "seed {seed}");
        sim.settle();
        assert!(sim.all_clean(), "seed {seed}: {:?}", sim.states());
        for i in 0..20 {
            assert_eq!(sim.read(&format!("o{i}")).unwrap(), "x", "seed {seed}");
        }
        sim.assert_all_agree();
    }
}

/// A cluster in which osd.3 is to take over from osd.1, much more than requests would wait for.
fn moving(hold: impl FnOnce(&mut FakeMap)) -> Sim {
    let mut sim = Sim::new(4, 3, 1, 9);
    sim.settle();
    for i in 0..300 {
        sim.write_full(&format!("o{i}"), "x");
    }
    sim.change_map(|m| {
        hold(m);
        m.out.push(OsdId::new(1));
    });
    sim.pass(30);
    sim
}

#[test]
pub(super) fn flags_hold_up_copying_before_it_begins_and_in_between() {
    for flag in [
        |m: &mut FakeMap, on| m.no_backfill = on,
        |m: &mut FakeMap, on| m.no_rebalance = on,
    ] {
        let mut sim = moving(|m| flag(m, true));
        assert_eq!(sim.states(), ["1.0 active+backfill_wait+remapped"]);
        assert!(sim.nodes[&OsdId::new(3)].store.objects().is_empty());
        sim.change_map(|m| flag(m, false));
        while sim.nodes[&OsdId::new(3)].store.objects().len() < 50 {
            sim.pass_moment();
            sim.run_some(20);
        }
        sim.change_map(|m| flag(m, true));
        sim.pass(30);
        let copied = sim.nodes[&OsdId::new(3)].store.objects().len();
        assert!((50..290).contains(&copied), "it goes on: {copied}");
        sim.write_full("o7", "written meanwhile");
        sim.change_map(|m| flag(m, false));
        sim.settle();
        assert!(sim.all_clean(), "{:?}", sim.states());
        assert_eq!(sim.read("o7").unwrap(), "written meanwhile");
        sim.assert_agree([3, 0].map(OsdId::new));
    }
}

#[test]
pub(super) fn no_rebalance_does_not_keep_a_pg_degraded() {
    let mut sim = Sim::new(4, 3, 1, 9);
    sim.settle();
    for i in 0..300 {
        sim.write_full(&format!("o{i}"), "x");
    }
    sim.change_map(|m| m.no_rebalance = true);
    sim.crash_and_mark_down(OsdId::new(1));
    sim.change_map(|m| m.out.push(OsdId::new(1)));
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
}

#[test]
pub(super) fn one_that_cannot_read_what_others_have_too_is_not_asked_for_ever() {
    let mut sim = Sim::new(4, 3, 1, 7);
    sim.settle();
    sim.write_full("a", "one");
    let place = sim.map().placement(PgId::new(POOL, 0));
    // The primary would take its own copy for the newest.
    let key = crate::pg::key::object_key(&sim.object("a"));
    let primary = sim.nodes.get_mut(&place.primary.unwrap()).unwrap();
    primary.store.rotten.insert(key);
    let gone = place.acting.osds().find(|o| Some(*o) != place.primary);
    sim.change_map(|m| m.out.extend(gone));
    sim.settle();
    assert!(sim.all_clean(), "{:?}\n{}", sim.states(), sim.traces());
    let now = sim.map().placement(PgId::new(POOL, 0));
    assert!(now.acting.osds().any(|o| !place.acting.contains(o)));
}
