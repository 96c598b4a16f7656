//! Replays the corpus of `fuzz/corpus` and seeded changes of it: no panic, no memory beyond each
//! target's limit. `CORPUS_MUTATIONS` sets how many changes of each file are tried.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may fail as tests do"
)]

mod mutate;

use std::fs;
use std::path::{Path, PathBuf};

use mutate::Random;
use spirula_fuzzing::{Counting, TARGETS, Target};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Changes tried of each file.
const MUTATIONS: u64 = 24;
/// Changes tried of each file for the store, of which each run takes a disk.
const MUTATIONS_STORE: u64 = 2;

fn corpus_of(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target.name);
    let mut files: Vec<PathBuf> = fs::read_dir(&dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

/// Prints which input was running when a target panics.
struct Told<'a>(&'a Path, u64);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("input: {} change {}", self.0.display(), self.1);
        }
    }
}

fn replay(name: &str) {
    let target = Target::by_name(name).unwrap();
    let corpus = corpus_of(target);
    assert!(corpus.len() > 4, "the corpus of {name} is missing");
    let default = if name == "store" {
        MUTATIONS_STORE
    } else {
        MUTATIONS
    };
    let changes = std::env::var("CORPUS_MUTATIONS")
        .ok()
        .map_or(default, |n| n.parse().unwrap());
    // Memory that a target allocates once does not count for an input.
    (target.run)(&[]);
    for (at, (path, data)) in corpus.iter().enumerate() {
        let told = Told(path, 0);
        target.check(data);
        drop(told);
        for change in 1..=changes {
            let _told = Told(path, change);
            let mut random = Random::new(at as u64 * 1_000_003 + change);
            let other = &corpus[random.below(corpus.len())].1;
            target.check(&random.mutate(data, other));
            target.check(&random.grow(data));
        }
    }
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*

        #[test]
        fn every_target_is_replayed() {
            let names: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
            for name in names {
                let program = format!("{}/../../fuzz/fuzz_targets/{name}.rs", env!("CARGO_MANIFEST_DIR"));
                assert!(Path::new(&program).exists(), "{program}");
            }
        }
    };
}

replays! {
    msgr_raw msgr_frames message osd_op_data osdmap osdmap_incremental small_maps crush cephx_server
    cephx_authorizer cephx_client cephx_wire caps keyring conf nbd store osd_ops class_methods
    commands asok manager rbd
}

/// Repeated text: profiles with many grants, expressions that are large once compiled.
#[test]
fn long_capability_texts_take_memory_in_proportion() {
    let target = Target::by_name("caps").unwrap();
    (target.run)(b"profile rbd");
    for grant in [
        "allow r",
        "profile mgr",
        "profile rbd",
        "profile bootstrap-rbd",
        "allow command osd with addr regex a{255}{99}",
        "allow command \"osd blocklist\" with addr regex \"(.{99}){50}\" key regex \"([a-z]{99}){9}\"",
        "profile rbd network 10.0.0.0/8",
        "allow rw path=/a uid=1 gids=1,2,3",
    ] {
        for separator in [",", "; "] {
            let text = [grant].repeat(4000).join(separator);
            target.check(text.as_bytes());
        }
    }
    let many: String = (0..4000).map(|n| format!(" k{n} regex a{{255}}{{99}}")).collect();
    target.check(format!("allow command x with{many}").as_bytes());
}

#[test]
fn allocations_are_counted_at_their_highest() {
    let hungry = Target {
        name: "hungry",
        run: |_| {
            drop(vec![1u8; 5000]);
            let mut grown = Vec::<u8>::with_capacity(10_000);
            grown.reserve_exact(20_000);
        },
        base: 100_000,
    };
    let peak = hungry.check(&[]);
    assert!((30_000..31_000).contains(&peak), "{peak}");
}

#[test]
#[should_panic(expected = "5000 bytes allocated for 2 of input")]
fn too_much_memory_is_a_failure() {
    let hungry = Target {
        name: "hungry",
        run: |_| drop(vec![1u8; 5000]),
        base: 4000,
    };
    hungry.check(&[1, 2]);
}
