//! Damage, errors and full disks, without encryption and with it.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use spirula_store::device::{BlockIo, Fault, SimDisk};
use spirula_store::{
    Config, Depth, Devices, EncryptionKey, Event, FsckReport, MkfsOptions, Notify, ObjectKey, Op, Read,
    Store, StoreError, Token, Transaction, Way, fsck_on, mkfs_on, unlock,
};

thread_local! {
    /// Whether this thread's stores are encrypted.
    static ENCRYPTED: Cell<bool> = const { Cell::new(false) };
}

fn encryption_key() -> Option<EncryptionKey> {
    ENCRYPTED
        .get()
        .then(|| EncryptionKey::new(vec![b'k'; 32]).unwrap())
}

#[test]
fn encrypted_stores_notice_and_survive_the_same() {
    ENCRYPTED.set(true);
    a_device_can_be_formatted_again();
    contents_with_one_checksum_are_not_taken_for_each_other();
    a_large_write_over_contents_with_its_checksums_is_there_as_a_whole_or_not_at_all();
    a_large_write_whose_blocks_were_overwritten_at_once_is_not_taken_for_lost();
    flipped_bits_are_reported_and_never_returned();
    misdirected_writes_never_return_what_was_not_written();
    a_full_disk_refuses_writes_lets_removals_through_and_fills_again();
    a_failed_flush_or_write_poisons_the_store();
    a_failed_read_is_typed_and_harmless();
    damage_in_the_middle_of_the_log_is_not_taken_for_its_end();
    another_device_is_refused();
}

fn io(disk: &SimDisk) -> Arc<dyn BlockIo> {
    Arc::new(disk.clone())
}

fn fsck_deep(disk: &SimDisk) -> FsckReport {
    let (dev, _) = unlock(io(disk), None, encryption_key().as_ref()).unwrap();
    fsck_on(&dev, None, Depth::Deep)
}

fn format(disk: &SimDisk) {
    let opts = MkfsOptions {
        log_bytes: 512 << 10,
        key: encryption_key(),
        ..MkfsOptions::default()
    };
    mkfs_on(&io(disk), None, &opts).unwrap();
}

fn small() -> Config {
    Config {
        memtable_bytes: 256 << 10,
        index_cache_bytes: 1 << 20,
        ..Config::default()
    }
}

fn open(disk: &SimDisk) -> Result<Store, StoreError> {
    open_with(disk, small())
}

fn open_with(disk: &SimDisk, config: Config) -> Result<Store, StoreError> {
    let devices = Devices {
        main: Box::new(disk.device()),
        log: None,
    };
    let devices = devices.unlock(encryption_key().as_ref())?;
    Store::open_on(devices, config, Notify::new().unwrap(), false)
}

fn key(i: usize) -> ObjectKey {
    ObjectKey::from(format!("object-{i:05}").as_str())
}

fn data(i: usize, len: usize) -> Bytes {
    (0..len)
        .map(|b| (b / 7 + i * 31 + b % 13) as u8)
        .collect::<Vec<u8>>()
        .into()
}

fn write(store: &mut Store, i: usize, len: usize) -> Result<(), StoreError> {
    let mut txn = Transaction::new();
    txn.write(&key(i), 0, data(i, len))
        .set_info(&key(i), vec![i as u8; 40]);
    store.submit(txn, Token(i as u64))
}

/// Polls until everything is written back.
fn settle(store: &mut Store) -> Vec<Event> {
    let mut events = Vec::new();
    store.checkpoint();
    for _ in 0..100_000 {
        store.poll(&mut events);
        if store.is_idle() || events.iter().any(|e| matches!(e, Event::Fatal(_))) {
            return events;
        }
    }
    panic!("never idle");
}

fn read(store: &mut Store, i: usize) -> Result<Bytes, StoreError> {
    if let Read::Ready(result) = store.read(&key(i), 0, u64::MAX, Way::Cached, Token(9))? {
        return result;
    }
    let mut events = Vec::new();
    for _ in 0..10_000 {
        store.poll(&mut events);
        for e in events.drain(..) {
            if let Event::Read(_, result) = e {
                return result;
            }
        }
    }
    panic!("no answer");
}

#[test]
fn a_device_can_be_formatted_again() {
    let disk = SimDisk::new(24 << 20, 1);
    for round in 0..3 {
        format(&disk);
        let mut store = open(&disk).unwrap();
        assert_eq!(store.statfs().objects, 0);
        for i in 0..400 {
            write(&mut store, i + round, 5000).unwrap();
        }
        settle(&mut store);
        drop(store);
        let mut store = open(&disk).unwrap();
        assert_eq!(read(&mut store, 100).unwrap(), data(100, 5000));
    }
}

/// A block that begins with a text and its checksum: all such blocks have one checksum.
fn checksummed(text: u8) -> Bytes {
    let mut block = vec![text; 36];
    block.extend(crc32c::crc32c(&block).to_le_bytes());
    block.resize(4096, 7);
    block.into()
}

#[test]
fn contents_with_one_checksum_are_not_taken_for_each_other() {
    assert_eq!(crc32c::crc32c(&checksummed(1)), crc32c::crc32c(&checksummed(2)));
    let disk = SimDisk::new(24 << 20, 1);
    format(&disk);
    let mut store = open(&disk).unwrap();
    // Overwritten in place; removed, with the next one in the same place; and read while it is
    // written.
    for (round, remove, while_read) in [(1, false, false), (2, true, false), (3, false, true)] {
        let put = |store: &mut Store, text: u8, remove: bool| {
            let mut txn = Transaction::new();
            if remove {
                txn.push(Op::Remove(key(round)));
            }
            txn.write(&key(round), 0, checksummed(text));
            store.submit(txn, Token(1)).unwrap();
        };
        put(&mut store, 1, false);
        settle(&mut store);
        if while_read {
            let read = store.read(&key(round), 0, 4096, Way::Cached, Token(8)).unwrap();
            assert!(matches!(read, Read::Pending));
        } else {
            assert_eq!(read(&mut store, round).unwrap(), checksummed(1));
        }
        put(&mut store, 2, remove);
        settle(&mut store);
        assert_eq!(read(&mut store, round).unwrap(), checksummed(2));
        assert_eq!(read(&mut store, round).unwrap(), checksummed(2));
    }
}

/// Freed blocks that hold other contents with the same checksums are not taken for those of a large
/// write that was lost.
#[test]
fn a_large_write_over_contents_with_its_checksums_is_there_as_a_whole_or_not_at_all() {
    const BLOCKS: usize = 48;
    for seed in 0..100u64 {
        let disk = SimDisk::new(6 << 20, seed);
        format(&disk);
        let mut store = open(&disk).unwrap();
        disk.arm(Fault {
            cut_after: Some(600 + seed * 3),
            ..Fault::default()
        });
        let (mut events, mut acknowledged) = (Vec::new(), 0);
        for text in 1..=u8::MAX {
            let mut txn = Transaction::new();
            txn.write(&key(1), 0, Bytes::from(checksummed(text).repeat(BLOCKS)));
            if store.submit(txn, Token(u64::from(text))).is_err() {
                break;
            }
            if text % 8 == 0 {
                // So that blocks that were freed can be used again.
                store.checkpoint();
            }
            while !store.is_idle() && !events.iter().any(|e| matches!(e, Event::Fatal(_))) {
                store.poll(&mut events);
            }
            if events.drain(..).any(|e| matches!(e, Event::Fatal(_))) {
                break;
            }
            acknowledged = text;
        }
        assert!(disk.is_cut(), "seed {seed}: {acknowledged} writes");
        drop(store);
        let disk = disk.power_cycle(seed);
        let found = read(&mut open(&disk).unwrap(), 1).unwrap();
        let whole = [acknowledged, acknowledged + 1].map(|text| checksummed(text).repeat(BLOCKS));
        let texts: Vec<u8> = found.chunks(4096).map(|b| b[0]).collect();
        assert!(
            whole.contains(&found.to_vec()),
            "seed {seed}: {acknowledged} was acknowledged; blocks hold {texts:?}"
        );
    }
}

#[test]
fn a_large_write_whose_blocks_were_overwritten_at_once_is_not_taken_for_lost() {
    for moved in [false, true] {
        let disk = SimDisk::new(24 << 20, 1);
        format(&disk);
        let config = Config {
            // So that the generation is closed, and settled, but is too little for the index.
            memtable_bytes: 64 << 10,
            ..small()
        };
        let mut store = open_with(&disk, config).unwrap();
        let mut txn = Transaction::new();
        let first = key(if moved { 2 } else { 1 });
        txn.write(&first, 0, data(1, 128 << 10));
        if moved {
            let to = key(1);
            txn.push(Op::Move { from: first, to });
        }
        txn.write(&key(1), 4096, data(2, 20 << 10));
        store.submit(txn, Token(1)).unwrap();
        let mut events = Vec::new();
        while !store.is_idle() {
            store.poll(&mut events);
        }
        assert!(events.iter().any(|e| matches!(e, Event::Committed(Token(1)))));
        assert_eq!(
            (store.stats().checkpoints, store.stats().writeback_bytes),
            (0, 20 << 10)
        );
        // The process dies, and the power goes.
        drop(store);
        let disk = disk.power_cycle(2);
        let mut expected = data(1, 128 << 10).to_vec();
        expected[4096..4096 + (20 << 10)].copy_from_slice(&data(2, 20 << 10));
        let mut store = open(&disk).unwrap();
        assert_eq!(read(&mut store, 1).unwrap(), expected);
    }
}

#[test]
fn flipped_bits_are_reported_and_never_returned() {
    for seed in 0..60u64 {
        let disk = SimDisk::new(8 << 20, seed);
        format(&disk);
        let mut store = open(&disk).unwrap();
        for i in 0..60 {
            write(&mut store, i, if i % 5 == 0 { 100_000 } else { 6000 }).unwrap();
        }
        settle(&mut store);
        drop(store);
        // Anywhere behind the superblocks and the log: data, index, or free space.
        let start = (256 << 10) + (512 << 10);
        for n in 0..40 {
            let at = start + (seed as usize * 7_919_317 + n * 104_729 * 13) % ((8 << 20) - start);
            disk.flip_bit(at, n as u32);
        }
        let deep = fsck_deep(&disk);
        let mut bad = 0;
        match open(&disk) {
            Ok(mut store) => {
                for i in 0..60 {
                    match read(&mut store, i) {
                        Ok(bytes) => {
                            let len = if i % 5 == 0 { 100_000 } else { 6000 };
                            assert!(bytes == data(i, len), "seed {seed}: object {i} is wrong");
                        }
                        Err(StoreError::Corrupt { .. } | StoreError::IndexPage { .. }) => bad += 1,
                        Err(e) => panic!("seed {seed}: {e}"),
                    }
                }
            }
            Err(StoreError::Ruined { .. }) => bad += 1,
            Err(e) => panic!("seed {seed}: {e}"),
        }
        assert_eq!(
            bad > 0,
            !deep.is_clean(),
            "seed {seed}: reads found {bad}, fsck says {deep}"
        );
    }
}

#[test]
fn misdirected_writes_never_return_what_was_not_written() {
    let (mut bad, mut refused) = (0, 0);
    for seed in 0..120u64 {
        let disk = SimDisk::new(8 << 20, seed);
        format(&disk);
        let mut store = open(&disk).unwrap();
        let len = |i: usize| if i.is_multiple_of(5) { 100_000 } else { 6000 };
        for i in 0..40 {
            write(&mut store, i, len(i)).unwrap();
        }
        settle(&mut store);
        disk.arm(Fault {
            misdirect: Some(seed % 60),
            ..Fault::default()
        });
        // Others, and each of those that are there once more, with other contents.
        let again = |i: usize| data(i + 1000, len(i));
        for i in 0..60 {
            let mut txn = Transaction::new();
            txn.write(&key(i), 0, again(i));
            if store.submit(txn, Token(1)).is_err() {
                break;
            }
            store.poll(&mut Vec::new());
        }
        let mut look = |store: &mut Store, restarted: bool| {
            for i in 0..60 {
                match read(store, i) {
                    Ok(found) => {
                        // A log whose last record went elsewhere ends before it.
                        let old = restarted && (i < 40 && found == data(i, len(i)));
                        assert!(old || found == again(i), "seed {seed}: object {i} is wrong");
                    }
                    Err(StoreError::NoObject(_)) if restarted && i >= 40 => {}
                    Err(_) => bad += 1,
                }
            }
        };
        settle(&mut store);
        look(&mut store, false);
        drop(store);
        match open(&disk) {
            Ok(mut store) => look(&mut store, true),
            Err(StoreError::Ruined { .. }) => refused += 1,
            Err(e) => panic!("seed {seed}: {e}"),
        }
    }
    println!("{bad} reads and {refused} stores were refused");
    assert!(bad > 0, "nothing was ever misdirected");
}

#[test]
fn a_full_disk_refuses_writes_lets_removals_through_and_fills_again() {
    let disk = SimDisk::new(8 << 20, 5);
    format(&disk);
    let mut store = open(&disk).unwrap();
    let mut counts = Vec::new();
    for _ in 0..3 {
        let mut count = 0;
        loop {
            match write(&mut store, count, 20_000) {
                Ok(()) => count += 1,
                Err(StoreError::NoSpace { .. }) => {
                    settle(&mut store);
                    if write(&mut store, count, 20_000).is_err() {
                        break;
                    }
                    count += 1;
                }
                Err(e) => panic!("{e}"),
            }
            store.poll(&mut Vec::new());
        }
        settle(&mut store);
        counts.push(count);
        assert!(store.statfs().available < 64 << 10, "{:?}", store.statfs());
        for i in 0..count {
            assert_eq!(read(&mut store, i).unwrap(), data(i, 20_000));
        }
        for i in 0..count {
            let mut txn = Transaction::new();
            txn.truncate(&key(i), 10)
                .remove(&key(i))
                .meta_put(format!("log-{i}"), vec![0; 100]);
            store.submit(txn, Token(1)).expect("removals always succeed");
            store.poll(&mut Vec::new());
        }
        settle(&mut store);
        assert_eq!(store.statfs().objects, 0);
        let report = fsck_deep(&disk);
        assert!(report.is_clean(), "{report}");
    }
    assert!(
        counts[0] > 100 && counts.iter().all(|c| c.abs_diff(counts[0]) < 30),
        "{counts:?}"
    );
}

#[test]
fn a_failed_flush_or_write_poisons_the_store() {
    for fault in [
        Fault {
            fail_flush: Some(3),
            ..Fault::default()
        },
        Fault {
            fail_write: Some(2),
            ..Fault::default()
        },
    ] {
        let disk = SimDisk::new(8 << 20, 3);
        format(&disk);
        let mut store = open(&disk).unwrap();
        settle(&mut store);
        disk.arm(fault);
        let (mut committed, mut fatal, mut refused) = (0, 0, false);
        for i in 0..200 {
            refused |= write(&mut store, i, 5000).is_err();
            let mut events = Vec::new();
            store.poll(&mut events);
            for e in events {
                match e {
                    Event::Committed(_) => {
                        assert_eq!(fatal, 0, "acknowledged after a failure");
                        committed += 1;
                    }
                    Event::Fatal(_) => fatal += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!((fatal, refused), (1, true));
        assert!(matches!(
            store.lookup(&key(0), Token(0)),
            Err(StoreError::Fatal(_))
        ));
        drop(store);
        let disk = disk.power_cycle(9);
        let mut store = open(&disk).unwrap();
        for i in 0..committed {
            assert_eq!(read(&mut store, i).unwrap(), data(i, 5000));
        }
    }
}

#[test]
fn a_failed_read_is_typed_and_harmless() {
    let disk = SimDisk::new(8 << 20, 3);
    format(&disk);
    let mut store = open(&disk).unwrap();
    write(&mut store, 1, 5000).unwrap();
    settle(&mut store);
    disk.arm(Fault {
        fail_read: Some(0),
        ..Fault::default()
    });
    assert!(matches!(read(&mut store, 1), Err(StoreError::ReadFailed { .. })));
    assert_eq!(read(&mut store, 1).unwrap(), data(1, 5000));
    assert!(matches!(read(&mut store, 2), Err(StoreError::NoObject(_))));
}

#[test]
fn damage_in_the_middle_of_the_log_is_not_taken_for_its_end() {
    let disk = SimDisk::new(8 << 20, 3);
    format(&disk);
    let mut store = open(&disk).unwrap();
    for i in 0..8 {
        write(&mut store, i, 3000).unwrap();
        let mut events = Vec::new();
        while events.is_empty() {
            store.poll(&mut events);
        }
    }
    drop(store);
    let report = fsck_deep(&disk);
    assert!(report.is_clean() && report.replayed == 8, "{report}");
    disk.flip_bit((256 << 10) + 3 * 4096 + 200, 1);
    let refused = open(&disk).err().unwrap();
    assert!(matches!(refused, StoreError::Ruined { .. }));
    assert!(
        refused
            .to_string()
            .starts_with("the store is ruined: log is damaged"),
        "{refused}"
    );
}

#[test]
fn another_device_is_refused() {
    let disk = SimDisk::new(8 << 20, 3);
    assert!(matches!(open(&disk), Err(StoreError::NotAStore(_))));
    format(&disk);
    // One copy of the superblock may be lost.
    disk.flip_bit(100, 3);
    assert!(open(&disk).is_ok());
    disk.flip_bit(100, 3);
    disk.flip_bit((64 << 10) + 100, 3);
    assert!(matches!(
        open(&disk),
        Err(StoreError::Damaged {
            what: "superblock",
            ..
        })
    ));
}
