//! Deliberate bugs of the log's store, each of which is caught within a number of seeds: they show
//! what the simulation of the log notices.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use spirula_mon::raft::Store;
use spirula_mon::raft::bug::Bug;
use spirula_sim::first_of;
use spirula_sim::group::{Setup, run};

/// Gives a store a bug.
type Prepare = fn(Store) -> Store;

/// Each bug, and the number of seeds within which it is caught.
const BUGS: [(Bug, Prepare, u64); 8] = [
    (Bug::LazyVote, |s| s.with_bug(Some(Bug::LazyVote)), 50),
    (Bug::LazyAppend, |s| s.with_bug(Some(Bug::LazyAppend)), 20),
    (Bug::KeptTail, |s| s.with_bug(Some(Bug::KeptTail)), 100),
    (Bug::OldMembers, |s| s.with_bug(Some(Bug::OldMembers)), 150),
    (Bug::MixedSnapshot, |s| s.with_bug(Some(Bug::MixedSnapshot)), 20),
    (Bug::LazySnapshot, |s| s.with_bug(Some(Bug::LazySnapshot)), 150),
    (Bug::MixedStage, |s| s.with_bug(Some(Bug::MixedStage)), 150),
    (Bug::UncountedApply, |s| s.with_bug(Some(Bug::UncountedApply)), 20),
];

/// The number of seeds within which a monitor that takes its old node id with an empty disk is
/// noticed.
const FORGETFUL: u64 = 200;

/// The failure of a seed, if it fails.
fn fails(seed: u64, setup: &Setup) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(|| run(seed, setup))) {
        Ok(Ok(_)) => None,
        Ok(Err(e)) => Some(e.to_string()),
        // openraft found its own state broken.
        Err(_) => Some("panic".to_owned()),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("")
}

#[test]
fn deliberate_bugs_are_caught() {
    let only = std::env::var("SPIRULA_BUG").ok();
    for (bug, prepare, within) in BUGS {
        let name = format!("{bug:?}");
        if only.as_ref().is_some_and(|o| *o != name) {
            continue;
        }
        let found = first_of(1..=within, |seed| {
            let setup = Setup {
                prepare,
                ..Setup::of(seed)
            };
            fails(seed, &setup)
        });
        match found {
            Some((seed, what)) => println!("{name}: seed {seed}: {}", first_line(&what)),
            None => panic!("{name} is not caught within {within} seeds"),
        }
    }
}

#[test]
fn a_number_that_is_kept_without_its_disk_is_caught() {
    let forgetful = first_of(1..=FORGETFUL, |seed| {
        let setup = Setup {
            forgetful: true,
            ..Setup::of(seed)
        };
        fails(seed, &setup)
    });
    match forgetful {
        Some((seed, what)) => println!("a kept number: seed {seed}: {}", first_line(&what)),
        None => panic!("that a number is kept without its disk is not caught within {FORGETFUL} seeds"),
    }
}
