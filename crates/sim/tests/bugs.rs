//! Deliberate bugs, each of which is caught within a number of seeds: they show what the simulation
//! notices.
//!
//! `SPIRULA_BUG` looks for one alone.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::panic::catch_unwind;

use spirula_denc::Micros;
use spirula_osd::pg::bug::Bug;
use spirula_osd::pg::config::PgConfig;
use spirula_sim::{Faults, Setup, first_of, run};

/// A kind of cluster.
type Kind = fn(u64) -> Setup;

/// Each bug, the clusters in which it is looked for, and the number of seeds within which it is
/// caught.
const BUGS: [(Bug, &str, Kind, u64); 34] = [
    (Bug::NoPrior, "unlucky", unlucky, 50),
    (Bug::NoHistory, "unlucky", unlucky, 50),
    (Bug::SkippedObject, "unlucky", unlucky, 50),
    (Bug::AloneAck, "abandoned", abandoned, 50),
    (Bug::TwiceDone, "unlucky", unlucky, 50),
    (Bug::DirtyRead, "isolated", isolated, 200),
    (Bug::NoUpThru, "hurried", hurried, 150),
    (Bug::NoLease, "isolated", isolated, 200),
    (Bug::NoSharedWait, "isolated", isolated, 200),
    (Bug::KeptDivergent, "abandoned", abandoned, 100),
    (Bug::EarlyAck, "dark", dark, 200),
    (Bug::NoMinSize, "lonely", lonely, 100),
    (Bug::NoResend, "shaky", shaky, 100),
    (Bug::KeptTemporary, "unlucky", unlucky, 50),
    (Bug::ForgottenDelta, "coded unlucky", coded_unlucky, 20),
    (Bug::TwiceAdded, "coded lonely", coded_lonely, 60),
    (Bug::EarlySweep, "staged", staged, 50),
    (Bug::KeptCut, "busy", busy, 100),
    (Bug::MixedVersions, "busy", busy, 300),
    (Bug::EarlyForget, "coded unlucky", coded_unlucky, 400),
    (Bug::CountedHoles, "coded lonely", coded_lonely, 100),
    (Bug::KeptRole, "busy", busy, 100),
    (Bug::KeptDirt, "coded unlucky", coded_unlucky, 100),
    (Bug::UnseenWrites, "scrubbed", scrubbed, 20),
    (Bug::SkippedLast, "rotting", rotting, 50),
    (Bug::UncountedWrites, "scrubbed", scrubbed, 50),
    (Bug::ForgottenLook, "rotting", rotting, 50),
    (Bug::KeptSlot, "scrubbed", scrubbed, 20),
    (Bug::FeignedRepair, "rotting", rotting, 50),
    (Bug::MixedAhead, "scrubbed", scrubbed, 50),
    (Bug::MixedAhead, "busy", busy, 30),
    (Bug::ToldOnce, "scrubbed", scrubbed, 50),
    (Bug::StaleDigest, "scrubbed", scrubbed, 100),
    (Bug::EarlyRefill, "ruined", ruined, 50),
];

const KINDS: [(&str, Kind); 14] = [
    ("unlucky", unlucky),
    ("isolated", isolated),
    ("abandoned", abandoned),
    ("dark", dark),
    ("shaky", shaky),
    ("lonely", lonely),
    ("hurried", hurried),
    ("coded unlucky", coded_unlucky),
    ("staged", staged),
    ("busy", busy),
    ("coded lonely", coded_lonely),
    ("scrubbed", scrubbed),
    ("rotting", rotting),
    ("ruined", ruined),
];

fn pick<T: Copy>(seed: u64, of: &[T]) -> T {
    of[usize::try_from(seed % of.len() as u64).unwrap()]
}

/// A small cluster, all OSDs of which may be away.
fn small(seed: u64) -> Setup {
    small_of(Setup::of(seed), seed)
}

/// A small cluster with a coded pool.
fn small_coded(seed: u64) -> Setup {
    small_of(Setup::of(seed).coded(seed), seed)
}

fn small_of(base: Setup, seed: u64) -> Setup {
    let (osds, size, min_size) = match base.code {
        None => pick(seed, &[(3, 3, 2), (4, 2, 1), (3, 2, 1), (4, 3, 2), (3, 3, 1)]),
        Some(_) => (base.osds, base.size, base.min_size),
    };
    Setup {
        mons: 1,
        osds,
        size,
        min_size,
        most_down: usize::try_from(osds).unwrap(),
        grace: 4,
        seconds: 30,
        ..base
    }
}

/// Clusters in which PGs are scrubbed all the time, while clients write to a few objects.
fn scrubbed(seed: u64) -> Setup {
    Setup {
        calm_ms: 100,
        seconds: 5,
        pause: 30_000,
        faults: Faults {
            breaks: 4,
            ..Faults::NONE
        },
        ..Setup::of(seed)
    }
    .scrubbed()
}

/// Such clusters, one disk of which is damaged, and in which nothing else happens.
fn rotting(seed: u64) -> Setup {
    let base = Setup::of(seed);
    Setup {
        faults: Faults {
            rot_data: 1,
            ..Faults::NONE
        },
        calm_ms: 1000,
        seconds: 10,
        objects: 40,
        pause: 100_000,
        ..base.redundant()
    }
    .scrubbed()
}

/// Clusters of two OSDs, one of which alone may serve, and whose store is then ruined now and then.
fn ruined(seed: u64) -> Setup {
    Setup {
        code: None,
        osds: 2,
        size: 2,
        min_size: 1,
        most_down: 2,
        lonely: true,
        calm_ms: 2000,
        faults: Faults {
            deaths: 6,
            ruins: 2,
            ..Faults::NONE
        },
        ..small(seed)
    }
}

/// Small and unlucky clusters, in which the last OSD with some data is often away.
fn unlucky(seed: u64) -> Setup {
    unlucky_of(small(seed), seed)
}

fn coded_unlucky(seed: u64) -> Setup {
    unlucky_of(small_coded(seed), seed)
}

/// Such clusters in which most changes of several blocks are so large that members stage them first.
fn staged(seed: u64) -> Setup {
    let base = coded_unlucky(seed);
    Setup {
        pg: PgConfig {
            large_change: 5000,
            portion: 8192,
            ..base.pg.clone()
        },
        ..base
    }
}

fn unlucky_of(base: Setup, seed: u64) -> Setup {
    Setup {
        calm_ms: pick(seed / 5, &[150, 300, 600]),
        faults: Faults {
            clients: 0,
            ..Faults::ALL
        },
        ..base
    }
}

/// Clusters whose OSDs are cut off now and then, together with a client that reads there, from
/// primaries and others.
fn isolated(seed: u64) -> Setup {
    let base = small(seed);
    Setup {
        calm_ms: 2000,
        readers: 1,
        balanced: true,
        pause: 700_000,
        faults: Faults {
            isolations: 10,
            slanders: 3,
            deaths: 2,
            ..Faults::NONE
        },
        pg: PgConfig {
            // So long that an isolated OSD still has its lease when the others go on.
            read_lease: pick(seed / 5, &[Micros::from_secs(1), Micros::from_secs(12)]),
            ..base.pg.clone()
        },
        ..base
    }
}

/// Clusters of many objects, whose clients often end when they are cut off: their writes may be on
/// one OSD alone.
fn abandoned(seed: u64) -> Setup {
    Setup {
        calm_ms: 2000,
        objects: 40,
        pg_num: 8,
        faults: Faults {
            isolations: 10,
            clients: 3,
            slanders: 3,
            deaths: 2,
            ..Faults::NONE
        },
        ..small(seed)
    }
}

/// Clusters that write much and lose their power often.
fn dark(seed: u64) -> Setup {
    Setup {
        calm_ms: 1500,
        pause: 300_000,
        objects: 12,
        faults: Faults {
            deaths: 6,
            blackouts: 10,
            slow_disks: 10,
            ..Faults::NONE
        },
        ..small(seed)
    }
}

/// Clusters of which often one OSD is left, or as many as hold all data, which may not serve.
fn lonely(seed: u64) -> Setup {
    lonely_of(small(seed))
}

fn coded_lonely(seed: u64) -> Setup {
    lonely_of(small_coded(seed))
}

fn lonely_of(base: Setup) -> Setup {
    let (code, size) = match base.code {
        None => (None, 3),
        Some(_) => (Some((2, 2)), 4),
    };
    Setup {
        code,
        osds: size.into(),
        size,
        min_size: size - 1,
        most_down: size.into(),
        calm_ms: 700,
        faults: Faults {
            deaths: 10,
            slanders: 2,
            ..Faults::NONE
        },
        ..base
    }
}

/// Clusters of two OSDs, one of which alone may serve and is often gone before the monitor, which is
/// often gone too, has recorded that it does.
fn hurried(seed: u64) -> Setup {
    Setup {
        code: None,
        osds: 2,
        size: 2,
        min_size: 1,
        most_down: 2,
        calm_ms: 400,
        pause: 200_000,
        objects: 12,
        pg_num: 8,
        faults: Faults {
            deaths: 10,
            slanders: 10,
            monitors: 10,
            ..Faults::NONE
        },
        ..small(seed)
    }
}

/// Clusters whose connections break all the time, while nothing else happens.
fn shaky(seed: u64) -> Setup {
    Setup {
        calm_ms: 200,
        pause: 500_000,
        objects: 12,
        seconds: 10,
        faults: Faults {
            breaks: 1,
            ..Faults::NONE
        },
        ..small(seed)
    }
}

/// Clusters with coded pools whose clients change few objects at the same time, while connections
/// break, disks are slow and PGs move.
fn busy(seed: u64) -> Setup {
    let base = small_coded(seed);
    Setup {
        osds: u32::from(base.size) + 1,
        calm_ms: 60,
        pause: 150_000,
        objects: 5,
        seconds: 15,
        faults: Faults {
            breaks: 8,
            slow_disks: 3,
            moves: 1,
            deaths: 1,
            ..Faults::NONE
        },
        ..base
    }
}

/// The failure by which a seed catches a bug, if it does.
fn caught(bug: Bug, seed: u64, kind: Kind) -> Option<String> {
    let mut setup = kind(seed);
    setup.pg.bug = Some(bug);
    // A bug may also break an assertion of the code.
    match catch_unwind(|| run(seed, &setup)) {
        Ok(Ok(_)) => None,
        Ok(Err(e)) => {
            let what = e.to_string();
            let line = what.lines().next().unwrap_or_default();
            Some(line.chars().take(100).collect())
        }
        Err(_) => Some("something is taken for granted that is not so".to_owned()),
    }
}

#[test]
fn deliberate_bugs_are_caught() {
    let only = std::env::var("SPIRULA_BUG").ok();
    let wanted = |bug: Bug| only.as_ref().is_none_or(|o| *o == format!("{bug:?}"));
    let mut missed = Vec::new();
    for (bug, name, kind, most) in BUGS.into_iter().filter(|b| wanted(b.0)) {
        match first_of(1..=most, |seed| caught(bug, seed, kind)) {
            Some((seed, how)) => println!("{bug:?}: seed {seed} of {name} clusters: {how}"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}

#[test]
fn such_clusters_survive_without_bugs() {
    for (name, kind) in KINDS {
        if let Some((seed, e)) = first_of(1..=30, |seed| run(seed, &kind(seed)).err()) {
            panic!("seed {seed} of {name} clusters: {e}");
        }
    }
}
