//! Reads through the page cache: they return what was written past it last.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use bytes::Bytes;
use spirula_random::Rng;
use spirula_store::device::{BlockIo, Fault, SimDisk};
use spirula_store::{
    BLOCK, Config, Devices, Event, MkfsOptions, Notify, ObjectKey, Read, Store, Token, Transaction, Way,
    mkfs_on,
};

fn key(i: usize) -> ObjectKey {
    ObjectKey::from(format!("object-{i:03}").as_str())
}

fn contents(object: usize, version: u64) -> Bytes {
    let mut rng = Rng::new(object as u64 * 1000 + version);
    (0..BLOCK)
        .map(|_| rng.below(256) as u8)
        .collect::<Vec<u8>>()
        .into()
}

fn open(disk: &SimDisk) -> Store {
    let io: Arc<dyn BlockIo> = Arc::new(disk.clone());
    mkfs_on(&io, None, &MkfsOptions::default()).unwrap();
    let main = Box::new(disk.device());
    let devices = Devices { main, log: None }.unlock(None).unwrap();
    Store::open_on(devices, Config::default(), Notify::new().unwrap(), false).unwrap()
}

fn write(store: &mut Store, object: usize, version: u64) {
    let mut txn = Transaction::new();
    txn.write(&key(object), 0, contents(object, version));
    store.submit(txn, Token(0)).unwrap();
}

/// Waits until all is written back.
fn settle(store: &mut Store) {
    store.checkpoint();
    let mut events = Vec::new();
    for _ in 0..100_000 {
        store.poll(&mut events);
        if store.is_idle() {
            return;
        }
    }
    panic!("never idle");
}

fn read(store: &mut Store, object: usize, way: Way) -> Bytes {
    if let Read::Ready(result) = store.read(&key(object), 0, u64::MAX, way, Token(1)).unwrap() {
        return result.unwrap();
    }
    answer(store)
}

/// The answer of a read that goes on.
fn answer(store: &mut Store) -> Bytes {
    let mut events = Vec::new();
    for _ in 0..10_000 {
        store.poll(&mut events);
        for event in events.drain(..) {
            if let Event::Read(_, result) = event {
                return result.unwrap();
            }
        }
    }
    panic!("no answer");
}

#[test]
fn the_second_read_is_answered_at_once() {
    let mut store = open(&SimDisk::new(96 << 20, 1));
    write(&mut store, 1, 1);
    settle(&mut store);
    for (way, cached, device) in [
        (Way::Direct, 0, 1),
        (Way::Direct, 0, 2),
        (Way::Cached, 0, 3),
        (Way::Cached, 1, 3),
    ] {
        assert_eq!(read(&mut store, 1, way), contents(1, 1));
        let stats = store.stats();
        assert_eq!(
            (stats.cached_reads, stats.device_reads),
            (cached, device),
            "{way:?}"
        );
    }
    store.set_cached_reads(false);
    assert_eq!(read(&mut store, 1, Way::Cached), contents(1, 1));
    assert_eq!(store.stats().device_reads, 4, "nothing is cached when it is off");
    store.set_cached_reads(true);
    write(&mut store, 1, 2);
    settle(&mut store);
    assert_eq!(read(&mut store, 1, Way::Cached), contents(1, 2));
    assert_eq!(store.stats().repeated_reads, 0);
}

/// Of a large object that is read in order the page cache has most blocks when they are asked for.
#[test]
fn what_is_read_in_order_is_read_ahead() {
    const BLOCKS: usize = 256;
    let mut store = open(&SimDisk::new(96 << 20, 1));
    let all: Vec<Bytes> = (0..BLOCKS).map(|n| contents(7, n as u64)).collect();
    for object in [7, 8] {
        let mut txn = Transaction::new();
        for (n, block) in all.iter().enumerate() {
            txn.write(&key(object), (n * BLOCK) as u64, block.clone());
        }
        store.submit(txn, Token(7)).unwrap();
        settle(&mut store);
    }
    let read = |store: &mut Store, object: usize, n: usize| {
        let (offset, len) = ((n * BLOCK) as u64, BLOCK as u64);
        let asked = store.read(&key(object), offset, len, Way::Cached, Token(1));
        let found = match asked.unwrap() {
            Read::Ready(result) => result.unwrap(),
            Read::Pending => answer(store),
        };
        assert_eq!(found, all[n], "block {n}");
        // What is read ahead comes meanwhile.
        (0..100).for_each(|_| store.poll(&mut Vec::new()));
    };
    (0..BLOCKS).rev().for_each(|n| read(&mut store, 7, n));
    assert_eq!(store.stats().ahead_reads, 0, "read out of order");
    store.set_cached_reads(false);
    (0..BLOCKS).for_each(|n| read(&mut store, 8, n));
    assert_eq!(store.stats().ahead_reads, 0, "it is off");
    store.set_cached_reads(true);
    (0..BLOCKS).for_each(|n| read(&mut store, 7, n));
    assert_eq!(store.stats().ahead_reads, 0, "the page cache has it");
    let before = store.stats();
    (0..BLOCKS).for_each(|n| read(&mut store, 8, n));
    let stats = store.stats();
    assert!(stats.ahead_reads > 0);
    assert!(stats.device_reads - before.device_reads <= 2, "{stats:?}");
}

/// Pages that another process brought back while their blocks were written.
#[test]
fn old_contents_in_the_page_cache_are_noticed() {
    let disk = SimDisk::new(96 << 20, 1);
    let mut store = open(&disk);
    let mut repeated = 0;
    for version in 1..200 {
        let object = version as usize % 5;
        disk.arm(Fault {
            stale: Some(version % 4),
            ..Fault::default()
        });
        write(&mut store, object, version);
        settle(&mut store);
        for attempt in 0..3 {
            let found = read(&mut store, object, Way::Cached);
            assert_eq!(
                found,
                contents(object, version),
                "version {version}, attempt {attempt}"
            );
        }
        let now = store.stats().repeated_reads;
        assert!(now <= repeated + 1, "the page stays: {now} after {repeated}");
        repeated = now;
    }
    assert!(repeated > 10, "only {repeated} old pages were met");
    assert_eq!(store.stats().corruptions, 0);
}

/// Contents that are wrong on the device are an error, whatever way they are read.
#[test]
fn damage_below_the_page_cache_is_reported() {
    let disk = SimDisk::new(96 << 20, 1);
    let mut store = open(&disk);
    write(&mut store, 1, 1);
    settle(&mut store);
    let mut block = vec![0; BLOCK];
    let place = (0..(96 << 20) / BLOCK)
        .map(|b| b * BLOCK)
        .filter(|at| {
            disk.read_at(*at as u64, &mut block).unwrap();
            block == contents(1, 1)
        })
        .last()
        .expect("the block");
    disk.flip_bit(place + 77, 3);
    let read = store.read(&key(1), 0, u64::MAX, Way::Cached, Token(1)).unwrap();
    assert!(matches!(read, Read::Pending));
    let mut events = Vec::new();
    for _ in 0..1000 {
        store.poll(&mut events);
    }
    let [Event::Read(_, Err(_))] = &events[..] else {
        panic!("{events:?}");
    };
    let stats = store.stats();
    assert_eq!((stats.repeated_reads, stats.corruptions), (1, 1));
}
