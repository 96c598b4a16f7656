//! Ranges that one object gets from another one: no data is copied, nothing but the range changes,
//! and blocks are counted.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod contents;

use std::sync::Arc;

use bytes::Bytes;
use contents::{data, key};
use spirula_store::device::{BlockIo, SimDisk};
use spirula_store::{
    Config, Depth, Devices, EncryptionKey, Event, MkfsOptions, Notify, Onode, Op, Read, Store, StoreError,
    Token, Transaction, Way, fsck_on, mkfs_on, unlock,
};

const BLOCK: u64 = 4096;
const MIB: usize = 1 << 20;

struct Tried {
    disk: SimDisk,
    store: Store,
    encryption: Option<EncryptionKey>,
}

fn range(from: &str, to: &str, offset: u64, len: u64, at: u64) -> Op {
    Op::CloneRange {
        from: key(from),
        to: key(to),
        offset,
        len,
        at,
    }
}

fn io(disk: &SimDisk) -> Arc<dyn BlockIo> {
    Arc::new(disk.clone())
}

fn open(disk: &SimDisk, encryption: Option<&EncryptionKey>) -> Store {
    let devices = Devices {
        main: Box::new(disk.device()),
        log: None,
    };
    let devices = devices.unlock(encryption).unwrap();
    Store::open_on(devices, Config::default(), Notify::new().unwrap(), false).unwrap()
}

impl Tried {
    fn new(encryption: Option<EncryptionKey>) -> Self {
        let disk = SimDisk::new(64 * MIB, 3);
        let opts = MkfsOptions {
            log_bytes: 2 << 20,
            key: encryption.clone(),
            ..MkfsOptions::default()
        };
        mkfs_on(&io(&disk), None, &opts).unwrap();
        let store = open(&disk, encryption.as_ref());
        Self {
            disk,
            store,
            encryption,
        }
    }

    /// Submits operations, and waits until they are durable.
    fn submit(&mut self, ops: Vec<Op>) {
        self.store.submit(Transaction { ops }, Token(1)).unwrap();
        let mut events = Vec::new();
        while !events.iter().any(|e| matches!(e, Event::Committed(_))) {
            self.store.poll(&mut events);
        }
    }

    fn write(&mut self, name: &str, offset: u64, data: Bytes) {
        let mut txn = Transaction::new();
        txn.write(&key(name), offset, data);
        self.submit(txn.ops);
    }

    fn refused(&mut self, ops: Vec<Op>) -> &'static str {
        match self.store.submit(Transaction { ops }, Token(1)) {
            Err(StoreError::Invalid(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    /// Brings everything into the index.
    fn settle(&mut self) {
        self.store.checkpoint();
        while !self.store.is_idle() {
            self.store.poll(&mut Vec::new());
        }
    }

    fn onode(&mut self, name: &str) -> Arc<Onode> {
        self.store.load(&key(name)).unwrap().unwrap()
    }

    fn read(&mut self, name: &str) -> Vec<u8> {
        let read = self.store.read(&key(name), 0, u64::MAX, Way::Direct, Token(2));
        if let Read::Ready(found) = read.unwrap() {
            return found.unwrap().to_vec();
        }
        let mut events = Vec::new();
        loop {
            self.store.poll(&mut events);
            if let Some(Event::Read(_, found)) = events.pop() {
                return found.unwrap().to_vec();
            }
        }
    }

    /// Starts anew after a power cut.
    fn cut(&mut self) {
        self.disk = self.disk.power_cycle(4);
        self.store = open(&self.disk, self.encryption.as_ref());
    }

    fn assert_clean(&self) {
        let (dev, _) = unlock(io(&self.disk), None, self.encryption.as_ref()).unwrap();
        let report = fsck_on(&dev, None, Depth::Deep);
        assert!(report.is_clean(), "{report}");
    }

    /// A large write by way of another object; then all bytes are there, and none was written
    /// twice.
    fn take_over(&mut self, remove: bool) {
        let (old, new) = (data(1, 6 * MIB), data(2, 4 * MIB));
        self.write("object", 0, old.clone());
        self.write("staged", 0, new.clone());
        self.settle();
        assert_eq!(self.store.statfs().allocated, 10 << 20);
        let before = self.store.stats();
        let mut ops = vec![range("staged", "object", 0, 4 << 20, 1 << 20)];
        if remove {
            ops.push(Op::Remove(key("staged")));
        }
        self.submit(ops);
        let after = self.store.stats();
        assert_eq!(after.log_bytes - before.log_bytes, BLOCK);
        assert_eq!(after.direct_bytes, before.direct_bytes);
        self.cut();
        self.assert_clean();
        let mut expected = old.to_vec();
        expected[MIB..5 * MIB].copy_from_slice(&new);
        assert!(self.read("object") == expected);
        self.settle();
        assert_eq!(self.store.stats().writeback_bytes, 0);
        assert_eq!(self.store.statfs().allocated, 6 << 20);
        self.assert_clean();
    }
}

#[test]
fn a_range_is_taken_over_without_a_copy() {
    for encryption in [None, Some(EncryptionKey::new(vec![b'k'; 32]).unwrap())] {
        let mut tried = Tried::new(encryption.clone());
        tried.take_over(true);
        // The object's blocks are its own, as if they had been written to it.
        assert!(tried.onode("object").extents().iter().all(|e| !e.shared));
        tried.write("object", 2 << 20, data(3, 4096));
        tried.assert_clean();

        let mut tried = Tried::new(encryption);
        tried.take_over(false);
        let shared = |o: &Onode| {
            o.extents()
                .iter()
                .filter(|e| e.shared)
                .map(|e| e.len())
                .sum::<u32>()
        };
        assert_eq!(shared(&tried.onode("object")), 1024);
        assert_eq!(shared(&tried.onode("staged")), 1024);
        // What is written to one of them does not show in the other.
        tried.write("object", (1 << 20) + 10, data(3, 5000));
        tried.cut();
        assert!(tried.read("staged") == data(2, 4 * MIB));
        tried.submit(vec![Op::Remove(key("staged"))]);
        tried.settle();
        assert_eq!(tried.store.statfs().allocated, 6 << 20);
        tried.assert_clean();
    }
}

#[test]
fn a_range_is_taken_from_what_its_own_transaction_wrote() {
    let mut tried = Tried::new(None);
    let mut txn = Transaction::new();
    txn.write(&key("staged"), 0, data(1, MIB + 100))
        .push(range("staged", "object", 0, 1 << 20, 4096))
        .touch(&key("object"))
        .remove(&key("staged"));
    tried.submit(txn.ops);
    tried.cut();
    assert_eq!(tried.read("object")[..4096], [0; 4096]);
    assert!(tried.read("object")[4096..] == data(1, MIB + 100)[..MIB]);
    assert!(tried.store.load(&key("staged")).unwrap().is_none());
    tried.settle();
    assert_eq!(tried.store.statfs().allocated, 1 << 20);
    tried.assert_clean();
}

#[test]
fn what_the_source_does_not_have_reads_as_zeros() {
    let mut tried = Tried::new(None);
    tried.write("source", 0, data(1, 3 * 4096));
    tried.write("source", 5 * BLOCK, data(2, 4096));
    // Its last block keeps bytes that were cut off.
    tried.submit(vec![Op::Truncate {
        key: key("source"),
        size: 5 * BLOCK + 1000,
    }]);
    tried.write("target", 0, data(3, 12 * 4096));
    tried.settle();
    tried.submit(vec![
        range("source", "target", 2 * BLOCK, 5 * BLOCK, BLOCK),
        range("missing", "target", 0, BLOCK, 8 * BLOCK),
        range("missing", "new", 0, 0, 0),
    ]);
    let mut expected = data(3, 12 * 4096).to_vec();
    expected[4096..6 * 4096].fill(0);
    expected[4096..2 * 4096].copy_from_slice(&data(1, 3 * 4096)[2 * 4096..]);
    expected[4 * 4096..][..1000].copy_from_slice(&data(2, 1000));
    expected[8 * 4096..9 * 4096].fill(0);
    let ranges = [
        0..2 * BLOCK,
        4 * BLOCK..4 * BLOCK + 1000,
        6 * BLOCK..8 * BLOCK,
        9 * BLOCK..12 * BLOCK,
    ];
    for _ in 0..2 {
        assert!(tried.read("target") == expected);
        assert_eq!(tried.onode("target").data_ranges(0, u64::MAX), ranges);
        assert_eq!(tried.onode("new").size(), 0);
        assert_eq!(tried.read("source").len() as u64, 5 * BLOCK + 1000);
        tried.cut();
        tried.assert_clean();
    }
}

#[test]
fn a_range_that_ends_within_a_block_is_the_end_of_its_object() {
    let within = "a copied range ends within a block, before the end of its object";
    let mut tried = Tried::new(None);
    tried.write("source", 0, data(1, 9000));
    tried.write("target", 0, data(2, 5001));
    let short = || range("source", "target", 0, 5000, 0);
    assert_eq!(tried.refused(vec![short()]), within);
    assert!(tried.read("target") == data(2, 5001));
    // Operations before it count.
    let grown = Op::Truncate {
        key: key("target"),
        size: 5001,
    };
    let copy = Op::Clone {
        from: key("source"),
        to: key("target"),
        pairs: true,
    };
    let moved = Op::Move {
        from: key("source"),
        to: key("target"),
    };
    for before in [grown, copy, moved] {
        let ops = vec![Op::Remove(key("target")), before, short()];
        assert_eq!(tried.refused(ops), within);
    }
    tried.submit(vec![Op::Remove(key("target")), short()]);
    tried.submit(vec![
        range("source", "target", 0, 9000, 0),
        Op::Touch(key("target")),
    ]);
    assert!(tried.read("target") == data(1, 9000));
    tried.submit(vec![range("source", "target", 4096, 100, 8192 * 2)]);
    // The rest of its last block does not come to light as it grows.
    tried.submit(vec![Op::Truncate {
        key: key("target"),
        size: 20_000,
    }]);
    let read = tried.read("target");
    assert!(read[16_384..16_484] == data(1, 9000)[4096..4196]);
    assert_eq!(read[16_484..], [0; 20_000 - 16_484]);
    assert_eq!(read[9000..16_384], [0; 16_384 - 9000]);
    tried.assert_clean();
}

#[test]
fn ranges_that_no_object_can_get_are_refused() {
    let mut tried = Tried::new(None);
    tried.write("source", 0, data(1, 9000));
    let largest = spirula_store::MAX_OBJECT_SIZE;
    let cases = [
        (range("source", "source", 0, BLOCK, BLOCK), "within one object"),
        (range("source", "target", 100, BLOCK, 0), "start with a block"),
        (range("source", "target", 0, BLOCK, 100), "start with a block"),
        (range("source", "target", largest, BLOCK, 0), "largest object"),
        (range("source", "target", 0, BLOCK, largest), "largest object"),
        (range("source", "target", BLOCK, u64::MAX, 0), "largest object"),
        (range("source", "target", 0, u64::MAX, BLOCK), "largest object"),
    ];
    for (op, why) in cases {
        let refused = tried.refused(vec![op]);
        assert!(refused.contains(why), "{refused}");
    }
    assert!(tried.store.load(&key("target")).unwrap().is_none());
}
