//! Random runs of groups of the monitors' real log.
//!
//! A failure prints its seed; `SPIRULA_SEED=n` runs only that one, `SPIRULA_SEEDS=n` runs n of
//! them, and `SPIRULA_MINUTES=n` goes on with new ones for so long.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Mutex;

use spirula_proto::internal::Edition;
use spirula_sim::first_of;
use spirula_sim::group::{Outcome, Programs, Setup, run};

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

/// Three monitors that are restarted, one after the other, with a program of another version.
fn replaced(from: Edition, to: Edition, presumes: bool) -> Result<Outcome, spirula_sim::Failure> {
    let setup = Setup {
        members: 3,
        programs: Programs::Replaced(from, to),
        presumes,
        ..Setup::of(1)
    };
    run(1, &setup)
}

#[test]
fn a_group_is_upgraded_one_monitor_after_the_other() {
    let upgraded = replaced(Edition::Previous, Edition::Current, false).unwrap();
    assert!(upgraded.committed > 10, "{upgraded:?}");
}

#[test]
fn a_group_goes_back_to_the_version_before() {
    let back = replaced(Edition::Current, Edition::Previous, false).unwrap();
    assert!(back.committed > 10, "{back:?}");
}

#[test]
fn a_monitor_that_writes_in_its_own_version_is_noticed() {
    for (from, to) in [
        (Edition::Previous, Edition::Current),
        (Edition::Current, Edition::Previous),
    ] {
        let failed = replaced(from, to, true).unwrap_err().to_string();
        assert!(failed.contains("does not understand"), "{failed}");
    }
}
