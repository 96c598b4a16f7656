//! Random runs of groups of the monitors' real log.
//!
//! A failure prints its seed; `SPIRULA_SEED=n` runs only that one, `SPIRULA_SEEDS=n` runs n of them, and `SPIRULA_MINUTES=n` goes on with
//! new ones for so long.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Mutex;

use spirula_sim::first_of;
use spirula_sim::group::{Outcome, Setup, run};

#[path = "common/seeds.rs"]
mod common;
use common::{always_the_same, seeds};

#[test]
fn groups_survive() {
    let sum = Mutex::new(Vec::<Outcome>::new());
    let failed = first_of(seeds(300), |seed| match run(seed, &Setup::of(seed)) {
        Ok(o) => {
            sum.lock().unwrap().push(o);
            None
        }
        Err(e) => Some(e),
    });
    if let Some((seed, e)) = failed {
        panic!(
            "seed {seed}, again with SPIRULA_SEED={seed} cargo test -p spirula-sim --test raft groups_survive:\n{e}"
        );
    }
    let all = sum.into_inner().unwrap();
    let of = |f: fn(&Outcome) -> u64| all.iter().map(f).sum::<u64>();
    println!(
        "{} runs, {} events, {} s of virtual time, {} transactions, {} confirmed reads, {} terms, {} snapshots, {} changes of members, {} power cuts, {} lost disks",
        all.len(),
        of(|o| o.events),
        of(|o| o.usec) / 1_000_000,
        of(|o| o.committed as u64),
        of(|o| o.reads),
        of(|o| o.terms),
        of(|o| o.snapshots),
        of(|o| o.changes),
        of(|o| o.cuts),
        of(|o| o.lost_disks),
    );
}

#[test]
fn a_seed_always_gives_the_same_run() {
    always_the_same(|seed| run(seed, &Setup::of(seed)));
}
