//! Copies in the background: their turns, what holds them up, and what a PG reports of them.

use spirula_proto::internal::Protocol;

use super::*;
use crate::pg::message::{PeerBody, PeerMessage};
use crate::pg::{BackfillState, Pg, PgReport};

fn write_many(sim: &mut Sim, n: usize) {
    for i in 0..n {
        sim.write_full(&format!("o{i}"), "x");
    }
}

/// An OSD that was away while this much was written.
fn returned(written: usize, before: impl FnOnce(&mut FakeMap)) -> Sim {
    let mut sim = Sim::new(3, 3, 1, 9);
    sim.settle();
    write_many(&mut sim, 20);
    sim.crash_and_mark_down(OsdId::new(2));
    sim.settle();
    write_many(&mut sim, written);
    sim.change_map(before);
    sim.start_and_mark_up(OsdId::new(2));
    sim
}

fn report(sim: &Sim) -> PgReport {
    let cores = sim.nodes.values().filter_map(|n| n.core.as_ref());
    cores.flat_map(Core::reports).next().unwrap()
}

fn pgs(sim: &Sim) -> impl Iterator<Item = (OsdId, &Pg)> {
    let cores = sim
        .nodes
        .iter()
        .filter_map(|(id, n)| Some((*id, n.core.as_ref()?)));
    cores.flat_map(|(id, c)| c.pgs().map(move |pg| (id, pg)))
}

#[test]
pub(super) fn few_pgs_copy_from_an_osd_and_to_one_at_a_time() {
    for most in [1, 2] {
        let cfg = PgConfig {
            max_backfills: most,
            ..PgConfig::default()
        };
        let mut sim = Sim::with_config(6, 3, 12, 5, cfg);
        sim.settle();
        write_many(&mut sim, 1500);
        sim.change_map(|m| m.out.push(OsdId::new(1)));
        let (mut from, mut to) = (0, 0);
        for _ in 0..200_000 {
            let steps = sim.steps();
            if steps.is_empty() {
                sim.pass_moment();
                if sim.steps().is_empty() && sim.all_clean() {
                    break;
                }
                continue;
            }
            let at = sim.random(steps.len());
            sim.step(steps[at]);
            for osd in OsdId::below(6) {
                let here = || pgs(&sim).filter(|(id, _)| *id == osd).map(|(_, pg)| pg);
                let running = here().filter(|pg| pg.seen().backfill_state() == BackfillState::Running);
                from = from.max(running.count());
                to = to.max(
                    here()
                        .filter(|pg| matches!(pg.seen().incoming_bid(), Some((_, true))))
                        .count(),
                );
            }
        }
        assert!(sim.all_clean(), "{:?}", sim.states());
        assert_eq!((from, to), (most, most));
        let left = pgs(&sim).filter(|(_, pg)| pg.seen().incoming_bid().is_some());
        assert_eq!(left.count(), 0, "turns are given back");
    }
}

#[test]
pub(super) fn what_logs_name_is_held_up_by_norecover_alone() {
    let mut sim = returned(200, |m| {
        m.no_backfill = true;
        m.no_rebalance = true;
    });
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
    assert!(sim.seen_states.iter().any(|s| s.contains("recovering")));
    assert!(!sim.seen_states.iter().any(|s| s.contains("backfill")));

    let mut sim = returned(200, |m| m.no_recover = true);
    sim.pass(20);
    assert_eq!(
        sim.states(),
        ["1.0 active+recovery_wait+remapped+undersized+degraded"]
    );
    assert_eq!(
        (report(&sim).copies.degraded, report(&sim).copies.misplaced),
        (200, 0)
    );
    assert_eq!(report(&sim).copies.all, 600);
    sim.change_map(|m| m.no_recover = false);
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
}

#[test]
pub(super) fn a_few_large_objects_are_copied_in_the_background_too() {
    // Either the logs tell what is lacking, or all objects are compared.
    for (log, state) in [(1000, "active+recovering"), (1, "active+backfilling")] {
        let cfg = PgConfig {
            sync_bytes: 10_000,
            log_entries_per_pg: log..=log,
            ..PgConfig::default()
        };
        for (size, heavy) in [(100, false), (4000, true)] {
            let mut sim = Sim::with_config(3, 3, 1, 9, cfg.clone());
            sim.settle();
            let data = "x".repeat(size);
            sim.crash_and_mark_down(OsdId::new(2));
            sim.settle();
            for i in 0..100 {
                sim.write_full(&format!("o{}", i % 10), &data);
            }
            sim.start_and_mark_up(OsdId::new(2));
            sim.settle();
            assert!(sim.all_clean());
            let copied = sim.seen_states.iter().any(|s| s.contains(state));
            assert_eq!(copied, heavy, "{size} {state} {:?}", sim.seen_states);
        }
    }
}

#[test]
pub(super) fn misplaced_objects_become_fewer_while_a_pg_moves() {
    let mut sim = Sim::new(4, 3, 1, 9);
    sim.settle();
    write_many(&mut sim, 300);
    sim.change_map(|m| m.out.push(OsdId::new(1)));
    let mut seen = Vec::new();
    for _ in 0..100_000 {
        let steps = sim.steps();
        if steps.is_empty() {
            if sim.all_clean() {
                break;
            }
            sim.pass_moment();
            continue;
        }
        let at = sim.random(steps.len());
        sim.step(steps[at]);
        let r = sim.nodes[&OsdId::new(0)].core.as_ref().unwrap().reports().next();
        if let Some(r) = r.filter(|r| r.state.contains(&"remapped") && r.state.contains(&"active")) {
            assert_eq!((r.copies.degraded, r.copies.all), (0, 900));
            seen.push(r.copies.misplaced);
        }
    }
    assert!(sim.all_clean(), "{:?}", sim.states());
    seen.dedup();
    assert_eq!(seen.first(), Some(&300));
    assert_eq!(seen.last(), Some(&0));
    assert!(seen.len() > 20 && seen.is_sorted_by(|a, b| a >= b), "{seen:?}");
    assert_eq!(report(&sim).copies.misplaced, 0);
}

#[test]
fn nothing_moves_to_an_osd_that_is_nearly_full() {
    let mut sim = Sim::new(4, 3, 1, 9);
    sim.settle();
    write_many(&mut sim, 300);
    sim.change_map(|m| {
        m.out.push(OsdId::new(1));
        m.set_full(OsdId::new(3), true, false);
    });
    sim.pass(20);
    assert_eq!(sim.states(), ["1.0 active+backfill_toofull+remapped"]);
    assert!(sim.nodes[&OsdId::new(3)].store.objects().is_empty());
    sim.change_map(|m| m.set_full(OsdId::new(3), false, false));
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());

    // Objects that logs name may still go there, unless it is full altogether.
    let mut sim = returned(200, |m| m.set_full(OsdId::new(2), true, true));
    sim.pass(20);
    assert_eq!(
        sim.states(),
        ["1.0 active+recovery_toofull+remapped+undersized+degraded"]
    );
    sim.change_map(|m| m.set_full(OsdId::new(2), true, false));
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
}

#[test]
pub(super) fn what_an_operator_wants_comes_first() {
    let mut sim = Sim::new(5, 3, 5, 5);
    sim.settle();
    write_many(&mut sim, 1500);
    // PG 1.2 and others are to move, all from osd.0 or to it.
    sim.change_map(|m| {
        m.no_backfill = true;
        m.out.push(OsdId::new(3));
    });
    sim.pass(10);
    let waiting: Vec<(OsdId, PgId)> = pgs(&sim)
        .filter(|(_, pg)| pg.seen().backfill_state() == BackfillState::Waiting)
        .map(|(id, pg)| (id, pg.pgid()))
        .collect();
    assert!(waiting.len() > 1, "{waiting:?}");
    let (primary, last) = *waiting.last().unwrap();
    sim.with(primary, |core, cx| core.force_copy(last, true, true, cx));
    let state = sim
        .states()
        .into_iter()
        .find(|s| s.starts_with(&last.to_string()));
    assert!(state.unwrap().contains("forced_backfill"));
    assert_eq!(
        sim.nodes[&primary]
            .core
            .as_ref()
            .unwrap()
            .pg(last)
            .unwrap()
            .seen()
            .copy_priority(),
        255
    );
    sim.change_map(|m| m.no_backfill = false);
    sim.settle();
    assert!(sim.all_clean(), "{:?}", sim.states());
}

#[test]
pub(super) fn an_object_that_rotted_is_named_and_copied_once_it_is_written_anew() {
    let mut sim = Sim::new(4, 3, 1, 9);
    sim.settle();
    write_many(&mut sim, 300);
    let key = crate::pg::key::object_key(&sim.object("o7"));
    for n in sim.nodes.values_mut() {
        n.store.rotten.insert(key.clone());
    }
    sim.change_map(|m| m.out.push(OsdId::new(1)));
    sim.pass(20);
    assert_eq!(
        sim.states(),
        ["1.0 active+backfill_unfound+recovery_unfound+remapped+degraded"]
    );
    assert_eq!(report(&sim).copies.unfound, [sim.object("o7")]);
    // An object that is written anew can be read.
    sim.write_full("o7", "new");
    sim.settle();
    sim.pass(40);
    assert!(sim.all_clean(), "{:?}", sim.states());
    assert_eq!(report(&sim).copies.unfound, []);
    sim.assert_agree([3, 0].map(OsdId::new));
}

/// Takes all steps but flushes of one OSD, for some seconds, and returns whether a target was told
/// that its copy is complete.
fn copied_without_flush(sim: &mut Sim, lazy: OsdId) -> bool {
    let mut copied = false;
    for _ in 0..10 {
        while let Some(step) = sim.steps().into_iter().find(|s| *s != Step::Flush(lazy)) {
            if let Step::Deliver(from, to) = step
                && let Ok(msg) = PeerMessage::from_raw(&sim.links[&(from, to)][0], Edition::Current)
            {
                copied |= matches!(msg.body, PeerBody::Copied { .. });
            }
            sim.step(step);
        }
        sim.pass_moment();
    }
    copied
}

#[test]
pub(super) fn a_target_counts_only_when_all_that_was_copied_is_durable_everywhere() {
    let mut sim = Sim::new(4, 3, 1, 9);
    sim.settle();
    write_many(&mut sim, 300);
    sim.change_map(|m| m.out.push(OsdId::new(1)));
    let is_running = |sim: &Sim| {
        let mut running = pgs(sim).map(|(_, pg)| pg.seen().backfill_state() == BackfillState::Running);
        running.any(|r| r)
    };
    while !is_running(&sim) {
        match sim.steps().first() {
            Some(step) => sim.step(*step),
            None => sim.pass_moment(),
        }
    }
    // What is written meanwhile may be copied before it is durable on this member.
    let placement = sim.map().placement(PgId::new(POOL, 0));
    let lazy = placement
        .acting
        .osds()
        .find(|o| Some(*o) != placement.primary)
        .unwrap();
    let op = sim.build("o0", vec![write_full("meanwhile")]);
    let tid = sim.submit(op).unwrap();
    assert!(!copied_without_flush(&mut sim, lazy));
    assert!(sim.reply_to(tid).is_none());
    sim.step(Step::Flush(lazy));
    assert!(copied_without_flush(&mut sim, OsdId::new(9)));
    assert_eq!(sim.reply_to(tid).unwrap().result, 0);
    sim.settle_clean(9);
}
