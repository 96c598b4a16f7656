//! Every region of a disk is flipped, torn or overwritten, at random places: scrubs find and mend what
//! matters, and clients never read it.
//!
//! A failure prints its seed; `SPIRULA_SEED=n` runs only that one, `SPIRULA_SEEDS=n` runs n of
//! them, and `SPIRULA_MINUTES=n` goes on with new ones for so long.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Mutex;

use spirula_sim::places::{Fate, Place, Region, damage};
use spirula_sim::{Faults, Setup, first_of};

#[path = "common/seeds.rs"]
mod common;
use common::{always_the_same, seeds};

/// The places that are damaged at once.
const AT_ONCE: usize = 10;

/// The cluster of a seed, every second one with a coded pool.
fn setup(seed: u64) -> Setup {
    let base = Setup {
        code: None,
        ..Setup::of(seed)
    };
    let base = if seed.is_multiple_of(2) {
        base.coded(seed)
    } else {
        base
    };
    Setup {
        seconds: 10,
        pause: 500_000,
        objects: 12,
        faults: Faults::NONE,
        ..base.redundant()
    }
}

#[test]
fn what_is_damaged_and_matters_is_found_and_mended() {
    let places = Mutex::new(BTreeMap::<Place, usize>::new());
    let failed = first_of(seeds(12), |seed| match damage(seed, &setup(seed), AT_ONCE) {
        Ok(found) => {
            let mut places = places.lock().unwrap();
            found.into_iter().for_each(|p| *places.entry(p).or_default() += 1);
            None
        }
        Err(e) => Some(e),
    });
    if let Some((seed, e)) = failed {
        panic!("seed {seed}, again with SPIRULA_SEED={seed} cargo test -p spirula-sim --test places:\n{e}");
    }
    let places = places.into_inner().unwrap();
    for (place, count) in &places {
        println!("{:?} {:?} {:?}: {count}", place.region, place.kind, place.fate);
    }
    let of = |region, fate| {
        let all = places
            .iter()
            .filter(|(p, _)| (p.region, p.fate) == (region, fate));
        all.map(|(_, count)| count).sum::<usize>()
    };
    // What is always in use is written anew.
    assert_eq!(of(Region::Superblock, Fate::Unused), 0);
}

#[test]
fn a_seed_always_gives_the_same_damage() {
    always_the_same(|seed| damage(seed, &setup(seed), AT_ONCE));
}
