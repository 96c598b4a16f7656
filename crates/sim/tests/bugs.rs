//! Deliberate bugs, each of which is caught within so many seeds: that shows what the simulation would notice.
//!
//! `SPIRULA_BUG` looks for one alone.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::panic::catch_unwind;

use spirula_osd::pg::bug::Bug;
use spirula_sim::{Faults, Setup, run};

/// Each bug, and within how many seeds it is caught. The others are caught by the simulation in `spirula-osd`, whose runs are shorter and
/// in which a client reads wherever a primary is cut off.
const BUGS: [(Bug, u64); 6] = [
    (Bug::NoPrior, 100),
    (Bug::NoHistory, 100),
    (Bug::SkippedObject, 50),
    (Bug::AloneAck, 300),
    (Bug::TwiceDone, 50),
    (Bug::DirtyRead, 400),
];

/// Small and unlucky clusters, in which the last that knows something is often away.
fn unlucky(seed: u64) -> Setup {
    let base = Setup::of(seed);
    let (osds, size, min_size) =
        [(3, 3, 2), (4, 2, 1), (3, 2, 1), (4, 3, 2), (3, 3, 1)][usize::try_from(seed % 5).unwrap()];
    Setup {
        mons: 1,
        osds,
        size,
        min_size,
        most_down: usize::try_from(osds).unwrap(),
        calm_ms: [150, 300, 600][usize::try_from(seed / 5 % 3).unwrap()],
        grace: 4,
        seconds: 30,
        faults: Faults {
            clients: false,
            ..base.faults
        },
        ..base
    }
}

/// Whether any of the first `most` seeds notices a bug.
fn caught_by(bug: Bug, most: u64) -> Option<u64> {
    (1..=most).find(|seed| {
        let mut setup = unlucky(*seed);
        setup.pg.bug = Some(bug);
        // A bug may also break what the code asserts.
        match catch_unwind(|| run(*seed, &setup)) {
            Ok(Ok(_)) => false,
            Ok(Err(e)) => {
                let what = e.to_string();
                let line = what.lines().next().unwrap_or_default();
                println!(
                    "{bug:?}: seed {seed}: {}",
                    line.chars().take(200).collect::<String>()
                );
                true
            }
            Err(_) => true,
        }
    })
}

#[test]
fn deliberate_bugs_are_caught() {
    let only = std::env::var("SPIRULA_BUG").ok();
    let wanted = |bug: &Bug| only.as_ref().is_none_or(|o| *o == format!("{bug:?}"));
    let mut missed = Vec::new();
    for (bug, most) in BUGS.into_iter().filter(|(bug, _)| wanted(bug)) {
        match caught_by(bug, most) {
            Some(seed) => println!("{bug:?}: caught by seed {seed}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

#[test]
fn unlucky_clusters_survive_without_bugs() {
    for seed in 1..=30 {
        if let Err(e) = run(seed, &unlucky(seed)) {
            panic!("seed {seed}: {e}");
        }
    }
}
