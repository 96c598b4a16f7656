//! Random runs of whole clusters.
//!
//! A failure prints its seed; `SPIRULA_SEED=n` runs only that one, `SPIRULA_SEEDS=n` runs n of
//! them, and `SPIRULA_MINUTES=n` goes on with new ones for so long.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Mutex;

use spirula_sim::{Faults, Outcome, Setup, first_of, run};
use tracing_subscriber::EnvFilter;

#[path = "common/seeds.rs"]
mod common;
use common::{always_the_same, seeds};

/// The sum of the runs' figures.
#[derive(Default)]
struct Sum {
    runs: u64,
    events: u64,
    answered: usize,
    member_reads: u64,
    unreadable: u64,
    full: u64,
    overrun: u64,
    mended: u64,
    refills: u64,
    seconds: u64,
}

/// Runs all seeds in their clusters.
fn survive(test: &str, seeds: impl Iterator<Item = u64> + Send, setup: fn(u64) -> Setup) -> Sum {
    let filter = EnvFilter::try_from_default_env().unwrap_or(EnvFilter::new("off"));
    let _ = tracing_subscriber::fmt().with_env_filter(filter).try_init();
    let sum = Mutex::new(Sum::default());
    let add = |o: Outcome| {
        let mut s = sum.lock().unwrap();
        s.runs += 1;
        s.events += o.events;
        s.answered += o.answered;
        s.member_reads += o.member_reads;
        s.unreadable += o.unreadable;
        s.full += u64::from(o.was_full);
        s.overrun += o.overrun;
        s.mended += o.mended;
        s.refills += o.refills;
        s.seconds += o.usec / 1_000_000;
    };
    let failed = first_of(seeds, |seed| run(seed, &setup(seed)).map(add).err());
    if let Some((seed, e)) = failed {
        panic!(
            "seed {seed}, again with SPIRULA_SEED={seed} cargo test -p spirula-sim --test random {test}:\n{e}"
        );
    }
    let sum = sum.into_inner().unwrap();
    println!(
        "{test}: {} runs, {} events, {} requests, of which other members answered {} and {} were refused, pools full in {}, \
         {} OSDs too full, {} with damaged indexes, {} filled again, {} s of virtual time",
        sum.runs,
        sum.events,
        sum.answered,
        sum.member_reads,
        sum.unreadable,
        sum.full,
        sum.overrun,
        sum.mended,
        sum.refills,
        sum.seconds
    );
    sum
}

#[test]
fn clusters_survive() {
    survive("clusters_survive", seeds(500), Setup::of);
}

#[test]
fn a_seed_always_gives_the_same_run() {
    always_the_same(|seed| {
        let base = Setup::of(seed);
        run(seed, &if seed % 2 == 0 { base.scrubbed() } else { base })
    });
}

#[test]
fn damaged_disks_never_return_what_nobody_wrote() {
    survive("damaged_disks", seeds(20), |seed| {
        let base = Setup::of(seed);
        Setup {
            faults: Faults {
                rot: 8,
                ..base.faults
            },
            calm_ms: 500,
            // Otherwise an OSD could serve alone, and the damaged disk have the only copy.
            ..base.redundant()
        }
    });
}

#[test]
fn ruined_stores_are_filled_again() {
    let sum = survive("ruined_stores_are_filled_again", seeds(60), |seed| {
        let base = Setup::of(seed);
        Setup {
            faults: Faults {
                ruins: 30,
                rot_index: 5,
                ..base.faults
            },
            calm_ms: 700,
            ..base.redundant()
        }
    });
    assert!(sum.runs < 60 || sum.mended > 0 && sum.refills > 0);
}

#[test]
fn misdirected_writes_are_noticed() {
    survive("misdirected_writes", seeds(60), Setup::misdirected);
}

#[test]
fn scrubs_err_nowhere() {
    survive("scrubs_err_nowhere", seeds(60), |seed| Setup::of(seed).scrubbed());
}

#[test]
fn scrubs_find_and_repair_what_rots() {
    survive("scrubs_find_and_repair_what_rots", seeds(40), |seed| {
        let base = Setup::of(seed);
        Setup {
            faults: Faults {
                rot_data: 8,
                ..base.faults
            },
            calm_ms: 500,
            ..base.redundant()
        }
        .scrubbed()
    });
}

#[test]
fn full_disks_get_room_again() {
    survive("full_disks", seeds(30), Setup::full);
}

#[test]
fn large_clusters_survive() {
    survive("large_clusters", seeds(12), Setup::large);
}
