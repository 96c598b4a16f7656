//! States that are broken on purpose: records that this store cannot have written are refused, and
//! impossible states end the daemon before they reach a disk.

use std::sync::Arc;

use bytes::Bytes;

use crate::alloc::Run;
use crate::config::{BLOCK, BLOCK64};
use crate::device::{BlockIo, IoKind, SimDisk};
use crate::log::{Found, Record};
use crate::lost::Losses;
use crate::open::{Devices, Mounted};
use crate::replay::replay;
use crate::state::State;
use crate::step::{NewRun, RangeOf, Step};
use crate::store::{Purpose, Store};
use crate::table::Dirty;
use crate::{Config, Event, MkfsOptions, Notify, ObjectKey, Op, StoreError, Token, Transaction, mkfs_on};

fn disk() -> SimDisk {
    let disk = SimDisk::new(16 << 20, 7);
    let opts = MkfsOptions {
        log_bytes: 512 << 10,
        ..MkfsOptions::default()
    };
    mkfs_on(&io(&disk), None, &opts).unwrap();
    disk
}

fn io(disk: &SimDisk) -> Arc<dyn BlockIo> {
    Arc::new(disk.clone())
}

/// A store with an object of two blocks.
fn store() -> Store {
    let devices = Devices {
        main: Box::new(disk().device()),
        log: None,
    };
    let mut store = Store::open_on(devices, Config::default(), Notify::new().unwrap(), false).unwrap();
    let mut txn = Transaction::new();
    txn.write(&key(), 0, Bytes::from(vec![1; 2 * BLOCK]));
    store.submit(txn, Token(1)).unwrap();
    store
}

fn key() -> ObjectKey {
    "an object".into()
}

fn poll(store: &mut Store, rounds: usize) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..rounds {
        store.poll(&mut events);
    }
    events
}

/// The state of an empty store.
fn state() -> State {
    let dev = io(&disk());
    let mounted = Mounted::read(&dev, None, Arc::clone(&dev), Config::default(), false);
    mounted.unwrap().state
}

fn record(seq: u64, steps: &[Step]) -> Found {
    let mut out = Vec::new();
    steps.iter().for_each(|s| s.encode(&mut out));
    Found {
        seq,
        group: 1,
        steps: out,
    }
}

fn inline(offset: u64, len: usize, new: &[(u32, u64, u32)]) -> Step {
    let new_run = |(lblk, pblk, len): &(u32, u64, u32)| NewRun {
        lblk: *lblk,
        run: Run {
            pblk: *pblk,
            len: *len,
        },
    };
    Step::Inline {
        offset,
        data: vec![7; len].into(),
        new: new.iter().map(new_run).collect(),
    }
}

fn range_of(source: ObjectKey, from: u32, to: u32, len: u32) -> Step {
    Step::RangeOf(RangeOf {
        source,
        from,
        to,
        len,
        kept: true,
    })
}

/// First block for objects.
fn first(state: &State) -> u64 {
    (0..).find(|b| state.alloc.is_free(*b)).unwrap()
}

#[test]
fn records_that_do_not_fit_are_damage_and_place_nothing() {
    let mut state = state();
    let at = first(&state);
    let written = [Step::Object(key()), inline(0, 2 * BLOCK, &[(0, at, 2)])];
    replay(&mut state, &record(1, &written), &mut Losses::default()).unwrap();
    let copied = [
        Step::Object("a copy".into()),
        Step::CloneOf {
            source: key(),
            omap: 0,
        },
    ];
    replay(&mut state, &record(2, &copied), &mut Losses::default()).unwrap();
    let whole = Step::Object("new".into());
    let cases = [
        (vec![Step::Touch], "changes no object"),
        (vec![Step::Delete(Bytes::from_static(b"x"))], "a pair of no kind"),
        (vec![whole.clone(), inline(0, 0, &[])], "writes nothing"),
        (
            vec![whole.clone(), inline(0, 5000, &[(0, at + 8, 1)])],
            "writes to a block without a place",
        ),
        (
            vec![whole.clone(), inline(0, 10, &[(1, at + 8, 1)])],
            "places blocks that it does not write",
        ),
        (
            vec![whole.clone(), inline(0, 10, &[(0, at, 1)])],
            "allocates blocks that are used",
        ),
        (
            vec![whole.clone(), inline(0, 10, &[(0, 0, 1)])],
            "allocates blocks that are used",
        ),
        (
            vec![Step::Object(key()), inline(0, BLOCK, &[])],
            "overwrites a block of another object",
        ),
        (
            vec![whole.clone(), inline(u64::MAX - 1, 9, &[])],
            "reaches beyond the largest object",
        ),
        (
            vec![whole.clone(), Step::Size(u64::MAX)],
            "reaches beyond the largest object",
        ),
        (
            vec![
                whole.clone(),
                Step::Punch {
                    lblk: u32::MAX,
                    len: 2,
                },
            ],
            "reaches beyond the largest object",
        ),
        (
            vec![whole.clone(), Step::MoveOf("missing".into())],
            "has no source",
        ),
        (vec![Step::Object(key()), Step::MoveOf(key())], "has no source"),
        (
            vec![whole.clone(), range_of("missing".into(), 0, 0, 1)],
            "has no source",
        ),
        (
            vec![Step::Object(key()), range_of(key(), 0, 1, 1)],
            "has no source",
        ),
        (vec![whole.clone(), range_of(key(), 1, 0, 0)], "is about no block"),
        (
            vec![whole.clone(), range_of(key(), u32::MAX, 0, 2)],
            "reaches beyond the largest object",
        ),
        (
            vec![whole.clone(), range_of(key(), 0, u32::MAX, 1)],
            "reaches beyond the largest object",
        ),
    ];
    let used = state.alloc.used();
    for (steps, expected) in cases {
        state.current = None;
        let refused = replay(&mut state, &record(3, &steps), &mut Losses::default());
        let Err(StoreError::Damaged { what: "log", detail }) = refused else {
            panic!("{steps:?}: {refused:?}")
        };
        assert!(
            detail.contains("transaction 3 ") && detail.contains(expected),
            "{detail}"
        );
        assert_eq!(state.alloc.used(), used, "{steps:?}");
    }
    let gap = replay(&mut state, &record(4, &[]), &mut Losses::default());
    assert!(
        gap.as_ref()
            .is_err_and(|e| e.to_string().contains("transaction 4 follows transaction 2")),
        "{gap:?}"
    );
}

#[test]
#[should_panic(expected = "expected a block that is mapped or new, object an object, block 1")]
fn a_step_that_places_half_of_its_data_ends_the_daemon() {
    let mut state = state();
    let at = first(&state);
    state.ensure_loaded(&key()).unwrap();
    state.apply(&Step::Object(key()));
    state.apply(&inline(0, 2 * BLOCK, &[(0, at, 1)]));
}

#[test]
#[should_panic(expected = "expected a checksum of each block, object an object")]
fn a_large_write_without_all_checksums_ends_the_daemon() {
    let mut state = state();
    let pblk = first(&state);
    state.ensure_loaded(&key()).unwrap();
    state.apply(&Step::Object(key()));
    state.apply(&Step::Direct {
        lblk: 0,
        runs: vec![Run { pblk, len: 2 }],
        crcs: vec![1],
    });
}

#[test]
#[should_panic(expected = "expected an object that was loaded, object an object")]
fn an_object_that_was_not_loaded_is_not_taken_for_a_missing_one() {
    state().apply(&Step::Object(key()));
}

#[test]
fn contents_are_not_written_over_the_log_the_index_or_free_blocks() {
    let free = first(&store().state);
    for block in [3, free] {
        let mut store = store();
        let dirty = Dirty::Full(vec![0; BLOCK].into());
        store.state.active().dirty.insert(block, dirty);
        store.checkpoint();
        let events = poll(&mut store, 50);
        let Some(Event::Fatal(e)) = events.last() else {
            panic!("{events:?}")
        };
        let expected = format!("block {block} is written, and is no object's");
        assert!(e.to_string().contains(&expected), "{e}");
        assert!(store.submit(Transaction::new(), Token(2)).is_err());
    }
}

#[test]
#[should_panic(expected = "expected a record for each transaction, in order, transaction 3, last 1")]
fn a_transaction_that_is_not_logged_is_noticed() {
    let mut store = store();
    store.log.push(Record {
        seq: 3,
        token: Token(0),
        steps: Vec::new(),
        waiting: 0,
    });
}

#[test]
#[should_panic(expected = "expected the next durable transactions for the index")]
fn the_index_is_never_ahead_of_the_log() {
    let mut store = store();
    store.seal();
    store.state.tables[0].settled = true;
    store.draining = true;
    store.advance_checkpoint();
}

#[test]
#[should_panic(expected = "expected no operation after a failure")]
fn nothing_is_written_after_a_failure() {
    let mut store = store();
    store.fail("for the test");
    store.queue(IoKind::Flush, Purpose::DirectFlush);
}

#[test]
fn blocks_that_a_transaction_may_need_are_free_before_it_begins() {
    let mut store = store();
    poll(&mut store, 50);
    // All but one block; then an object is cut and grows again, for which its last block is written
    // anew.
    let free = u32::try_from(store.state.alloc.free()).unwrap();
    let mut runs = Vec::new();
    store
        .state
        .alloc
        .alloc(free, crate::alloc::Kind::Small, &mut runs);
    let mut txn = Transaction::new();
    txn.truncate(&key(), 100).truncate(&key(), 5000);
    let admitted = store.state.admit(&txn, 1 << 20, true);
    assert!(
        matches!(admitted, Err(StoreError::NoSpace { needed: BLOCK64, .. })),
        "{admitted:?}"
    );
    // The last blocks of both objects may be written anew for a range.
    let mut txn = Transaction::new();
    txn.push(Op::CloneRange {
        from: key(),
        to: "another".into(),
        offset: 0,
        len: 3 * BLOCK64,
        at: BLOCK64,
    });
    let admitted = store.state.admit(&txn, 1 << 20, true);
    assert!(
        matches!(admitted, Err(StoreError::NoSpace { needed, .. }) if needed == 2 * BLOCK64),
        "{admitted:?}"
    );
    let mut txn = Transaction::new();
    txn.truncate(&key(), 5000).truncate(&key(), 0);
    store.state.admit(&txn, 1 << 20, true).unwrap();
}

#[test]
fn a_log_device_that_is_too_small_is_refused_and_left_as_it_is() {
    let opts = MkfsOptions {
        log_bytes: 1 << 20,
        ..MkfsOptions::default()
    };
    let main = SimDisk::new(16 << 20, 7);
    let small = SimDisk::new((1 << 20) - BLOCK, 8);
    let refused = mkfs_on(&io(&main), Some(&io(&small)), &opts);
    assert!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");
    let mut start = vec![1; BLOCK];
    small.read_at(0, &mut start).unwrap();
    assert!(start.iter().all(|byte| *byte == 0));
    let exact = SimDisk::new(1 << 20, 8);
    mkfs_on(&io(&main), Some(&io(&exact)), &opts).unwrap();
}
