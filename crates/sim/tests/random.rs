//! Random runs of whole clusters.
//!
//! A failure prints its seed; `SPIRULA_SEED=n` runs only that one, `SPIRULA_SEEDS=n` runs n of them, and `SPIRULA_MINUTES=n` goes on with
//! new ones for so long.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::{Duration, Instant};

use spirula_sim::{Faults, Setup, run};

fn var(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The seeds to run: those that a normal test has time for, or what the environment says.
fn seeds(normal: u64) -> Box<dyn Iterator<Item = u64>> {
    if let Some(seed) = var("SPIRULA_SEED") {
        return Box::new(seed..=seed);
    }
    if let Some(minutes) = var("SPIRULA_MINUTES") {
        let end = Instant::now() + Duration::from_secs(minutes * 60);
        // Never those that every test runs.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let first = now.unwrap().as_secs() << 20;
        return Box::new((first..).take_while(move |_| Instant::now() < end));
    }
    Box::new(1..=var("SPIRULA_SEEDS").unwrap_or(normal))
}

#[test]
fn clusters_survive_what_happens_to_them() {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .try_init();
    let (mut runs, mut events, mut answered, mut usec) = (0, 0, 0, 0);
    for seed in seeds(40) {
        match run(seed, &Setup::of(seed)) {
            Ok(o) => {
                runs += 1;
                events += o.events;
                answered += o.answered;
                usec += o.usec;
                if var("SPIRULA_SEED").is_some() {
                    println!("{o:?}");
                }
            }
            Err(e) => panic!(
                "seed {seed}, again with SPIRULA_SEED={seed} cargo test -p spirula-sim --test random:\n{e}"
            ),
        }
    }
    println!(
        "{runs} runs, {events} events, {answered} requests, {} s of virtual time",
        usec / 1_000_000
    );
}

#[test]
fn a_seed_always_gives_the_same_run() {
    for seed in seeds(6) {
        let (a, b) = (run(seed, &Setup::of(seed)), run(seed, &Setup::of(seed)));
        assert_eq!(a, b, "seed {seed}");
    }
}

#[test]
fn damaged_disks_never_return_what_nobody_wrote() {
    let mut unreadable = 0;
    for seed in seeds(20) {
        let base = Setup::of(seed);
        let setup = Setup {
            faults: Faults {
                rot: true,
                ..base.faults
            },
            calm_ms: 500,
            ..base
        };
        match run(seed, &setup) {
            Ok(o) => unreadable += o.unreadable,
            Err(e) => panic!("seed {seed}: {e}"),
        }
    }
    println!("{unreadable} reads were refused");
}
