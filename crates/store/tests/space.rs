//! The space below a store: freed blocks are reused and given back, and without space only new
//! writes fail.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use bytes::Bytes;
use spirula_store::device::{BlockIo, Fault, SimDisk};
use spirula_store::{
    Config, Depth, Devices, Event, MkfsOptions, Notify, ObjectKey, Read, Store, StoreError, Token,
    Transaction, Way, fsck_on, mkfs_on,
};

const MIB: u64 = 1 << 20;

fn format(disk: &SimDisk) {
    let opts = MkfsOptions {
        log_bytes: 512 << 10,
        ..MkfsOptions::default()
    };
    mkfs_on(&(Arc::new(disk.clone()) as Arc<dyn BlockIo>), None, &opts).unwrap();
}

fn open(disk: &SimDisk) -> Store {
    let devices = Devices {
        main: Box::new(disk.device()),
        log: None,
    };
    let config = Config {
        memtable_bytes: 1 << 20,
        index_cache_bytes: 1 << 20,
        ..Config::default()
    };
    Store::open_on(devices, config, Notify::new().unwrap(), false).unwrap()
}

fn key(i: usize) -> ObjectKey {
    ObjectKey::from(format!("object-{i:05}").as_str())
}

fn data(i: usize) -> Bytes {
    (0..128 << 10)
        .map(|b| (b / 7 + i * 31 + b % 13) as u8)
        .collect::<Vec<u8>>()
        .into()
}

fn write(store: &mut Store, i: usize) -> Result<(), StoreError> {
    let mut txn = Transaction::new();
    txn.write(&key(i), 0, data(i))
        .set_info(&key(i), vec![i as u8; 40]);
    store.submit(txn, Token(i as u64))
}

fn remove(store: &mut Store, i: usize) {
    let mut txn = Transaction::new();
    txn.remove(&key(i));
    store
        .submit(txn, Token(i as u64))
        .expect("removals always succeed");
}

/// Polls while there is anything to be done. `false`: the power went.
fn work(store: &mut Store) -> bool {
    let mut events = Vec::new();
    for _ in 0..100_000 {
        store.poll(&mut events);
        let fatal = events.iter().any(|e| matches!(e, Event::Fatal(_)));
        if fatal || !store.is_busy() {
            return !fatal;
        }
    }
    panic!("never idle");
}

/// Lets so many seconds pass.
fn wait(store: &mut Store, seconds: usize) -> bool {
    (0..seconds).all(|_| {
        store.tick(4 * MIB);
        work(store)
    })
}

fn check(store: &mut Store, i: usize) {
    let read = store.read(&key(i), 0, u64::MAX, Way::Cached, Token(9)).unwrap();
    if let Read::Ready(found) = read {
        assert!(found.unwrap() == data(i), "object {i} is wrong");
        return;
    }
    let mut events = Vec::new();
    for _ in 0..10_000 {
        store.poll(&mut events);
        for e in events.drain(..) {
            if let Event::Read(_, result) = e {
                assert!(result.unwrap() == data(i), "object {i} is wrong");
                return;
            }
        }
    }
    panic!("no answer");
}

fn assert_clean(disk: &SimDisk) {
    let dev: Arc<dyn BlockIo> = Arc::new(disk.clone());
    let report = fsck_on(&dev, None, Depth::Deep);
    assert!(report.is_clean(), "{report}");
}

#[test]
fn what_is_freed_is_used_again_and_given_back() {
    let disk = SimDisk::new(128 << 20, 1);
    format(&disk);
    let mut store = open(&disk);
    write(&mut store, 1000).unwrap();
    wait(&mut store, 6);
    let before = disk.occupied();
    assert!(before < 16 * MIB, "an empty store occupies {before}");
    for _ in 0..11 {
        for i in 0..64 {
            write(&mut store, i).unwrap();
            work(&mut store);
        }
        for i in 0..64 {
            remove(&mut store, i);
        }
        wait(&mut store, 5);
        let more = disk.occupied() - before;
        assert!(more < 16 * MIB, "8 MiB written and removed occupy {more}");
    }
    wait(&mut store, 30);
    let after = disk.occupied();
    assert!(
        after < before + 8 * MIB,
        "{after} after everything was removed, {before} before"
    );
    assert!(store.stats().discarded_bytes > 0);
    let s = store.statfs();
    assert_eq!(s.allocated, 128 << 10, "{s:?}");
    check(&mut store, 1000);
    drop(store);
    assert_clean(&disk);
    // Space left by an earlier run is given back, too.
    let mut store = open(&disk);
    check(&mut store, 1000);
    for i in 0..200 {
        write(&mut store, i).unwrap();
        work(&mut store);
    }
    for i in 0..200 {
        remove(&mut store, i);
    }
    wait(&mut store, 5);
    drop(store);
    let full = disk.occupied();
    let mut store = open(&disk);
    wait(&mut store, 30);
    assert!(disk.occupied() + 8 * MIB < full, "{} of {full}", disk.occupied());
    check(&mut store, 1000);
}

#[test]
fn a_power_cut_while_space_is_given_back_loses_nothing() {
    let mut discarded = 0;
    for seed in 0..16 {
        let disk = SimDisk::new(32 << 20, seed);
        format(&disk);
        let mut store = open(&disk);
        for i in 0..60 {
            write(&mut store, i).unwrap();
            work(&mut store);
        }
        wait(&mut store, 6);
        for i in (0..60).filter(|i| i % 4 != 0) {
            remove(&mut store, i);
        }
        // Nothing is free before a checkpoint.
        wait(&mut store, 3);
        let before = store.stats().discarded_bytes;
        disk.arm(Fault {
            cut_after: Some(seed * 8),
            ..Fault::default()
        });
        for second in 0..40 {
            if !wait(&mut store, 1) || disk.is_cut() {
                break;
            }
            // Meanwhile, blocks whose space was given back are written again.
            if write(&mut store, 200 + second).is_err() {
                break;
            }
        }
        discarded += store.stats().discarded_bytes - before;
        drop(store);
        let disk = disk.power_cycle(seed + 1);
        let mut store = open(&disk);
        for i in (0..60).filter(|i| i % 4 == 0) {
            check(&mut store, i);
        }
        wait(&mut store, 30);
        for i in (0..60).filter(|i| i % 4 == 0) {
            check(&mut store, i);
        }
        drop(store);
        assert_clean(&disk);
    }
    assert!(discarded > 0, "no cut came after something was given back");
}

#[test]
fn a_full_file_system_refuses_writes_and_nothing_else() {
    let disk = SimDisk::new(256 << 20, 3);
    format(&disk);
    let mut store = open(&disk);
    work(&mut store);
    let mut counts = Vec::new();
    for round in 0..3 {
        disk.set_room(20 * MIB);
        // Sometimes nobody says how little there is.
        let below = if round == 1 { u64::MAX } else { 20 * MIB };
        store.set_below(below, 2 * MIB);
        let s = store.statfs();
        assert!(round == 1 || s.available < 40 * MIB, "{s:?}");
        let mut count = 0;
        while write(&mut store, count).is_ok() {
            count += 1;
            assert!(work(&mut store), "the store failed");
        }
        counts.push(count);
        assert!(store.is_dry());
        let s = store.statfs();
        assert!(s.available < MIB && s.total < 64 * MIB, "{s:?}");
        for i in 0..count {
            check(&mut store, i);
        }
        // Others take all that is left.
        disk.set_room(0);
        if round == 2 {
            wait(&mut store, 6);
            drop(store);
            assert_clean(&disk);
            store = open(&disk);
            for i in 0..count {
                check(&mut store, i);
            }
        }
        for i in 0..count {
            remove(&mut store, i);
            assert!(work(&mut store), "the store failed");
        }
        assert!(wait(&mut store, 30), "the store failed");
        assert!(store.statfs().available > 2 * MIB);
        write(&mut store, 5000 + round).expect("there is room again");
        work(&mut store);
        check(&mut store, 5000 + round);
        disk.set_room(1 << 40);
        store.set_below(1 << 40, 0);
        wait(&mut store, 1);
        assert!(!store.is_dry());
    }
    assert!(counts.iter().all(|c| (100..400).contains(c)), "{counts:?}");
    wait(&mut store, 30);
    drop(store);
    assert_clean(&disk);
}

/// The index may grow faster than the background takes space for it: that is no lack of room as
/// long as the file system has some.
#[test]
fn an_index_that_grows_fast_does_not_fill_the_store() {
    let disk = SimDisk::new(256 << 20, 11);
    format(&disk);
    let mut store = open(&disk);
    let mut events = Vec::new();
    for i in 0..6000 {
        let mut txn = Transaction::new();
        txn.set_info(&key(i), vec![i as u8; 3000]);
        store.submit(txn, Token(i as u64)).unwrap();
        store.poll(&mut events);
        assert!(store.available() > 128 * MIB, "{} after {i}", store.available());
    }
    assert!(work(&mut store));
}

#[test]
fn what_was_submitted_is_compact_once_the_index_has_it() {
    let disk = SimDisk::new(64 << 20, 7);
    format(&disk);
    let mut store = open(&disk);
    (0..3).for_each(|i| write(&mut store, i).unwrap());
    let mark = store.compact();
    assert!(!store.is_compact(mark));
    let mut events = Vec::new();
    // Later changes don't matter to it.
    let polls = (0..100_000).find(|_| {
        write(&mut store, 3).unwrap();
        store.poll(&mut events);
        store.is_compact(mark)
    });
    assert!(polls.is_some() && store.stats().checkpoints > 0);
    assert!(store.stats().writeback_bytes + store.stats().direct_bytes > 0);
    assert!(work(&mut store));
    let mark = store.compact();
    assert!(!store.is_compact(mark));
    while !store.is_compact(mark) {
        store.poll(&mut events);
    }
    let mark = store.compact();
    assert!(store.is_compact(mark), "there is nothing to be moved");
}
