//! A member that was away gets only the changed parts of objects.

use super::*;
use crate::pg::Rate;
use crate::pg::bug::Bug;
use crate::pg::config::Window;

const AWAY: OsdId = OsdId::new(2);
const KIB: usize = 1 << 10;

fn cluster(sync_objects: usize, seed: u64) -> Sim {
    let cfg = PgConfig {
        sync_objects,
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(3, 3, 1, seed, cfg);
    sim.settle();
    sim
}

fn large(n: usize, len: usize) -> String {
    let mut text = format!("object {n} ").repeat(len / 8);
    text.truncate(len);
    text
}

impl Sim {
    /// Bytes that are sent until osd.2 is a member again.
    fn bring_back(&mut self) -> usize {
        let before = self.peering_bytes;
        self.start_and_mark_up(AWAY);
        self.settle();
        assert!(self.all_clean(), "{:?}\n{}", self.states(), self.traces());
        self.peering_bytes - before
    }
}

/// The bytes sent for `objects` objects of 4 MiB, each changed by these ops.
fn sent_for(objects: usize, sync_objects: usize, change: &[OsdOpIn]) -> usize {
    let mut sim = cluster(sync_objects, 3);
    for i in 0..objects {
        sim.write_full(&format!("o{i}"), &large(i, 4 << 20));
        sim.call(&format!("o{i}"), vec![ops::set("name", "value")]);
    }
    sim.crash_and_mark_down(AWAY);
    sim.settle();
    for i in 0..objects {
        assert_eq!(sim.call(&format!("o{i}"), change.to_vec()).result, 0);
    }
    let sent = sim.bring_back();
    sim.assert_all_agree();
    sent
}

#[test]
fn an_overwrite_in_a_large_object_is_all_that_is_sent() {
    let overwrite = write_at(1 << 20, &"x".repeat(4 * KIB));
    for sync_objects in [64, 1] {
        let sent = sent_for(8, sync_objects, std::slice::from_ref(&overwrite));
        // The removal of an attribute can't be told from the remaining ones.
        let whole = sent_for(8, sync_objects, &[overwrite.clone(), ops::remove("name")]);
        println!("8 objects of 4 MiB, 4 KiB of each overwritten: {sent} bytes, else {whole}");
        assert!(sent < 8 * 8 * KIB, "{sent}");
        assert!(whole > 8 << 22, "{whole}");
    }
}

#[test]
pub(super) fn whatever_was_done_to_an_object_is_done_to_its_copy() {
    for (seed, sync_objects) in [(4, 64), (5, 1)] {
        let mut sim = cluster(sync_objects, seed);
        let before = |i: usize| {
            vec![
                write_full(&large(i, 64 * KIB)),
                ops::set("a", "1"),
                ops::set("b", "2"),
                omap::set(&[("k", "v"), ("l", "w")]),
            ]
        };
        let truncate = |size| extent(OpCode::TRUNCATE, size, 0, "");
        let changes: Vec<Vec<OsdOpIn>> = vec![
            vec![write_at(100, "x")],
            vec![write_at(70_000, "beyond the end")],
            vec![truncate(10)],
            vec![truncate(10), truncate(50_000)],
            vec![truncate(100_000)],
            vec![extent(OpCode::ZERO, 5000, 20_000, "")],
            vec![extent(OpCode::ZERO, 5000, 20_000, ""), write_at(6000, "x")],
            vec![extent(OpCode::APPEND, 0, 4, "more")],
            vec![ops::set("a", "3")],
            vec![ops::remove("a")],
            vec![omap::set(&[("m", "x")])],
            vec![plain(OpCode::OMAPCLEAR)],
            vec![plain(OpCode::DELETE)],
            vec![plain(OpCode::DELETE), write_at(0, "again")],
            vec![write_full("")],
            vec![write_full("short")],
            (0..15).map(|i| write_at(i * 4000, "one of many")).collect(),
        ];
        for i in 0..changes.len() {
            sim.call(&format!("o{i}"), before(i));
        }
        sim.crash_and_mark_down(AWAY);
        sim.settle();
        for (i, change) in changes.iter().enumerate() {
            assert_eq!(sim.call(&format!("o{i}"), change.clone()).result, 0);
            // Later changes add to the first.
            sim.call(&format!("o{i}"), vec![write_at(300 + i as u64, "later")]);
        }
        sim.write_full("new", "made meanwhile");
        sim.bring_back();
        sim.assert_all_agree();
    }
}

#[test]
pub(super) fn clones_come_with_their_heads() {
    let mut sim = cluster(64, 6);
    for i in 0..4 {
        sim.write_full(&format!("o{i}"), &large(i, 8 * KIB));
    }
    sim.write_at_snaps("o1", vec![write_at(3, "before")], 2, &[2]);
    sim.write_at_snaps("o3", vec![write_at(3, "before")], 2, &[2]);
    sim.crash_and_mark_down(AWAY);
    sim.settle();
    for i in 0..3 {
        sim.write_at_snaps(&format!("o{i}"), vec![write_at(9, "after")], 4, &[4, 2]);
    }
    sim.remove_snaps(&[2]);
    sim.settle();
    sim.bring_back();
    sim.assert_all_agree();
}

/// Changes objects all the time while they are copied in the background, in small parts, so that
/// most copies are torn and several rounds are made. Returns whether the copies are equal in the
/// end.
fn copies_what_changes(seed: u64, bug: Option<Bug>) -> bool {
    let small = Window {
        pushes: 4,
        bytes: 64,
        chunk: 16,
    };
    let cfg = PgConfig {
        sync_objects: 2,
        sync_bytes: 20,
        backfill_window: small,
        busy_window: small,
        // More of the changes come while it copies, the less it rests.
        recovery: Rate {
            rest: (seed % 3) as f64,
            ..PgConfig::default().recovery
        },
        bug,
        ..PgConfig::default()
    };
    let mut sim = Sim::with_config(3, 3, 1, seed, cfg);
    sim.settle();
    for i in 0..6 {
        sim.write_full(&format!("o{i}"), &large(i, 100));
        sim.call(
            &format!("o{i}"),
            vec![omap::set(&[("k", "v")]), ops::set("a", "v")],
        );
    }
    sim.crash_and_mark_down(AWAY);
    sim.settle();
    for i in 0..6 {
        sim.call(&format!("o{i}"), vec![write_at(20, "while it was away")]);
    }
    sim.start_and_mark_up(AWAY);
    for n in 0..120 {
        let steps = sim.random(20);
        sim.run_some(steps);
        if n % 10 == 9 {
            sim.pass_moment();
        }
        let (at, value) = (sim.random(120) as u64, format!("v{n}"));
        let change = match sim.random(10) {
            0 => vec![extent(OpCode::TRUNCATE, at, 0, "")],
            1 => vec![extent(OpCode::ZERO, at, 30, "")],
            2 => vec![omap::set(&[(["k", "l"][sim.random(2)], &value)])],
            3 => vec![ops::set("a", &value)],
            4 => vec![plain(OpCode::DELETE)],
            5 => vec![write_full(&value)],
            _ => vec![write_at(at, &value)],
        };
        let name = format!("o{}", sim.random(6));
        let op = sim.build(&name, change);
        sim.submit(op);
    }
    sim.settle_clean(seed);
    sim.agree(&Vec::from_iter(sim.nodes.keys().copied()))
}

#[test]
pub(super) fn what_changes_while_it_is_copied_is_copied_again() {
    for seed in 0..300 {
        assert!(copies_what_changes(seed, None), "seed {seed}");
    }
    let caught = (0..300).find(|seed| !copies_what_changes(*seed, Some(Bug::LateBase)));
    println!("LateBase: caught by seed {caught:?}");
    assert!(caught.is_some(), "not noticed");
}

/// The member dies again while it is brought up, or another one does, while clients go on writing.
#[test]
pub(super) fn a_patch_that_was_interrupted_never_counts() {
    for seed in 0..200 {
        let mut sim = cluster([1, 64][seed as usize % 2], seed);
        sim.is_slow = seed % 3 == 0;
        for i in 0..6 {
            sim.write_full(&format!("o{i}"), &large(i, 300));
        }
        for round in 0..3 {
            sim.crash_and_mark_down(AWAY);
            sim.settle();
            for i in 0..6 {
                let at = sim.random(400) as u64;
                sim.call(&format!("o{i}"), vec![write_at(at, &format!("round {round}"))]);
            }
            sim.start_and_mark_up(AWAY);
            for _ in 0..3 {
                let n = sim.random(80);
                sim.run_some(n);
                let at = sim.random(300) as u64;
                let op = sim.build("o1", vec![write_at(at, "meanwhile")]);
                sim.submit(op);
                let dead = if sim.random(2) == 0 {
                    AWAY
                } else {
                    sim.random_osd(3)
                };
                sim.crash_and_mark_down(dead);
                let n = sim.random(40);
                sim.run_some(n);
                sim.start_and_mark_up(dead);
            }
            sim.settle_clean(seed);
            sim.assert_all_agree();
        }
    }
}
