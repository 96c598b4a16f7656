//! Data that comes to the device before the transaction that refers to it.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod contents;

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use contents::{data, key};
use spirula_buf::Pool;
use spirula_store::device::{BlockIo, Device, Done, Fault, Io, IoKind, SimDevice, SimDisk};
use spirula_store::{
    Config, Depth, Devices, EncryptionKey, Event, Extent, MkfsOptions, Notify, Onode, Op, Placed, Read,
    Store, StoreError, Token, Transaction, Way, fsck_on, mkfs_on, unlock,
};

const BLOCK: u64 = 4096;
const MIB: usize = 1 << 20;
/// The bytes of placements that are under way at a time.
const AT_ONCE: usize = 512 << 10;

fn io(disk: &SimDisk) -> Arc<dyn BlockIo> {
    Arc::new(disk.clone())
}

/// What a gate in front of a disk holds back and lets pass.
#[derive(Default)]
struct Gate {
    closed: bool,
    /// Large writes that came while it was closed.
    writes: Vec<Io>,
    /// Those that may pass.
    released: Vec<Io>,
    /// Flushes so far.
    flushes: usize,
}

impl Gate {
    fn bytes(&self) -> usize {
        self.writes.iter().map(large_bytes).sum()
    }

    fn release(&mut self) {
        self.released.append(&mut self.writes);
    }
}

/// Bytes of a write of data that is large.
fn large_bytes(io: &Io) -> usize {
    match &io.kind {
        IoKind::Write { bufs, durable, .. } if !durable => {
            let len = bufs.iter().map(Bytes::len).sum();
            if len < 64 << 10 { 0 } else { len }
        }
        _ => 0,
    }
}

struct Gated {
    device: SimDevice,
    gate: Arc<Mutex<Gate>>,
}

impl Device for Gated {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn queue(&mut self, io: Io) {
        let mut gate = self.gate.lock().unwrap();
        gate.flushes += usize::from(matches!(io.kind, IoKind::Flush));
        match large_bytes(&io) > 0 && gate.closed {
            true => gate.writes.push(io),
            false => self.device.queue(io),
        }
    }

    fn kick(&mut self) {
        let mut gate = self.gate.lock().unwrap();
        gate.released.drain(..).for_each(|io| self.device.queue(io));
        self.device.kick();
    }

    fn reap(&mut self, out: &mut Vec<Done>) {
        self.device.reap(out);
    }

    fn blocking(&self) -> Arc<dyn BlockIo> {
        self.device.blocking()
    }
}

struct Tried {
    disk: SimDisk,
    store: Store,
    encryption: Option<EncryptionKey>,
    gate: Arc<Mutex<Gate>>,
    events: Vec<Event>,
}

fn config() -> Config {
    Config {
        memtable_bytes: 256 << 10,
        index_cache_bytes: 1 << 20,
        ..Config::default()
    }
}

fn open(disk: &SimDisk, encryption: Option<&EncryptionKey>) -> (Store, Arc<Mutex<Gate>>) {
    let gate = Arc::<Mutex<Gate>>::default();
    let devices = Devices {
        main: Box::new(Gated {
            device: disk.device(),
            gate: Arc::clone(&gate),
        }),
        log: None,
    };
    let devices = devices.unlock(encryption).unwrap();
    let store = Store::open_on(devices, config(), Notify::new().unwrap(), false).unwrap();
    (store, gate)
}

impl Tried {
    fn new(size: usize, encryption: Option<EncryptionKey>) -> Self {
        Self::on(SimDisk::new(size, 3), encryption)
    }

    fn on(disk: SimDisk, encryption: Option<EncryptionKey>) -> Self {
        let opts = MkfsOptions {
            log_bytes: 2 << 20,
            key: encryption.clone(),
            ..MkfsOptions::default()
        };
        mkfs_on(&io(&disk), None, &opts).unwrap();
        let (store, gate) = open(&disk, encryption.as_ref());
        Self {
            disk,
            store,
            encryption,
            gate,
            events: Vec::new(),
        }
    }

    /// Starts anew after a power cut.
    fn cut(&mut self) {
        self.disk = self.disk.power_cycle(4);
        (self.store, self.gate) = open(&self.disk, self.encryption.as_ref());
        self.events.clear();
    }

    /// Polls until an event of which `get` makes something.
    fn wait<T>(&mut self, get: impl Fn(&Event) -> Option<T>) -> T {
        for _ in 0..10_000 {
            if let Some(at) = self.events.iter().position(|e| get(e).is_some()) {
                return get(&self.events.remove(at)).unwrap();
            }
            self.store.poll(&mut self.events);
        }
        panic!("no answer");
    }

    fn wait_committed(&mut self, token: u64) {
        self.wait(|e| matches!(e, Event::Committed(t) if t.0 == token).then_some(()));
    }

    fn wait_placed(&mut self, token: u64) -> Placed {
        for _ in 0..10_000 {
            self.store.poll(&mut self.events);
            let is_it = |e: &Event| matches!(e, Event::Placed(t, _) if t.0 == token);
            if let Some(at) = self.events.iter().position(is_it)
                && let Event::Placed(_, placed) = self.events.remove(at)
            {
                return placed;
            }
        }
        panic!("no answer");
    }

    fn place(&mut self, data: Bytes) -> Placed {
        self.store.place(data, Token(77)).unwrap();
        self.wait_placed(77)
    }

    fn submit(&mut self, txn: Transaction) {
        self.store.submit(txn, Token(1)).unwrap();
        self.wait_committed(1);
    }

    fn use_placed(&mut self, name: &str, offset: u64, placed: Placed) {
        let mut txn = Transaction::new();
        txn.write_placed(&key(name), offset, placed);
        self.submit(txn);
    }

    /// Brings everything into the index.
    fn settle(&mut self) {
        self.store.checkpoint();
        while !self.store.is_idle() {
            self.store.poll(&mut self.events);
            self.events.retain(|e| !matches!(e, Event::Committed(_)));
        }
    }

    fn read(&mut self, name: &str) -> Vec<u8> {
        let read = self.store.read(&key(name), 0, u64::MAX, Way::Direct, Token(2));
        match read.unwrap() {
            Read::Ready(found) => found.unwrap().to_vec(),
            Read::Pending => self.wait(|e| match e {
                Event::Read(_, found) => Some(found.clone().unwrap().to_vec()),
                _ => None,
            }),
        }
    }

    fn write(&mut self, name: &str, data: Bytes) {
        let mut txn = Transaction::new();
        txn.write(&key(name), 0, data);
        self.submit(txn);
    }

    fn onode(&mut self, name: &str) -> Arc<Onode> {
        self.store.load(&key(name)).unwrap().unwrap()
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap()
    }

    fn assert_clean(&self) {
        let (dev, _) = unlock(io(&self.disk), None, self.encryption.as_ref()).unwrap();
        let report = fsck_on(&dev, None, Depth::Deep);
        assert!(report.is_clean(), "{report}");
    }

    fn allocated(&self) -> u64 {
        self.store.statfs().allocated
    }
}

fn encryption() -> Option<EncryptionKey> {
    Some(EncryptionKey::new(vec![b'k'; 32]).unwrap())
}

/// As a write of the same data: over an end with something behind it, within an object, and behind
/// a hole.
#[test]
fn what_is_placed_becomes_an_object_s_as_if_it_was_written() {
    for encryption in [None, encryption()] {
        let mut tried = Tried::new(64 * MIB, encryption);
        let mut expected = Vec::new();
        for (i, offset) in [0, BLOCK, 2 * BLOCK, 30 * BLOCK].into_iter().enumerate() {
            for (j, old) in [0, 5000, 2 * BLOCK, 300_000].into_iter().enumerate() {
                let names = [format!("written-{i}-{j}"), format!("placed-{i}-{j}")];
                let new = data(i + j, 25 * BLOCK as usize);
                for name in &names {
                    let mut txn = Transaction::new();
                    txn.write(&key(name), 0, data(9, old as usize + 600))
                        .truncate(&key(name), old)
                        .set_info(&key(name), "info");
                    tried.submit(txn);
                }
                let mut txn = Transaction::new();
                txn.write(&key(&names[0]), offset, new.clone());
                tried.submit(txn);
                let placed = tried.place(new);
                tried.use_placed(&names[1], offset, placed);
                expected.push(names);
            }
        }
        for _ in 0..2 {
            for [written, placed] in &expected {
                assert!(tried.read(placed) == tried.read(written), "{placed}");
                let [written, placed] = [written, placed].map(|n| tried.onode(n));
                assert_eq!(placed.size(), written.size());
                assert_eq!(placed.info(), "info");
                assert_eq!(placed.data_ranges(0, u64::MAX), written.data_ranges(0, u64::MAX));
                let blocks = |o: &Onode| o.extents().iter().map(Extent::len).sum::<u32>();
                assert_eq!(blocks(&placed), blocks(&written));
            }
            tried.cut();
            tried.assert_clean();
        }
    }
}

/// What is submitted is small, and waits for no write of data nor for a flush.
#[test]
fn the_transaction_that_uses_it_waits_for_nothing() {
    let mut tried = Tried::new(64 * MIB, None);
    let placed = tried.place(data(1, 4 * MIB));
    assert_eq!(placed.bytes(), 4 << 20);
    let (before, flushes) = (tried.store.stats(), tried.gate().flushes);
    tried.gate().closed = true;
    tried.use_placed("object", 0, placed);
    let after = tried.store.stats();
    assert_eq!(after.log_bytes - before.log_bytes, 2 * BLOCK);
    assert_eq!(after.direct_bytes, before.direct_bytes);
    assert_eq!(tried.gate().flushes, flushes);
    tried.cut();
    assert!(tried.read("object") == data(1, 4 * MIB));
}

#[test]
fn what_is_dropped_unused_is_free_again() {
    let mut tried = Tried::new(16 * MIB, None);
    tried.write("object", data(1, MIB));
    tried.settle();
    let all = tried.store.statfs();
    assert_eq!(all.allocated, 1 << 20);
    for round in 0..20 {
        let placed = tried.place(data(round, 4 * MIB));
        let s = tried.store.statfs();
        assert_eq!(s.allocated, 5 << 20);
        assert_eq!(s.available, all.available - (4 << 20));
        assert!(!tried.store.is_freeing());
        drop(placed);
        // Even before the store gets to it.
        assert!(tried.store.is_freeing());
        let s = tried.store.statfs();
        assert_eq!((s.allocated, s.available), (all.allocated, all.available));
        if round % 2 == 0 {
            tried.store.poll(&mut tried.events);
            assert!(!tried.store.is_freeing());
            let s = tried.store.statfs();
            assert_eq!((s.allocated, s.available), (all.allocated, all.available));
        }
    }
    // So is one that nobody waits for any more, and one in a transaction that is not submitted.
    tried.store.place(data(1, MIB), Token(5)).unwrap();
    tried.settle();
    tried.events.clear();
    let mut txn = Transaction::new();
    txn.write_placed(&key("another"), 0, tried.place(data(1, MIB)));
    drop(txn);
    tried.store.poll(&mut tried.events);
    assert_eq!(tried.allocated(), 1 << 20);
    // A handle may outlive its store.
    let placed = tried.place(data(1, MIB));
    tried.cut();
    drop(placed);
    tried.store.poll(&mut tried.events);
    assert_eq!(tried.allocated(), 1 << 20);
    assert!(tried.read("object") == data(1, MIB));
    tried.assert_clean();
}

#[test]
fn blocks_that_nobody_used_are_free_after_a_crash() {
    for encryption in [None, encryption()] {
        let mut tried = Tried::new(16 * MIB, encryption);
        tried.write("object", data(1, MIB));
        let placed = tried.place(data(2, 2 * MIB));
        let used = tried.place(data(3, MIB));
        // One is on its way; one is used, and the log does not have that.
        tried.store.place(data(4, MIB), Token(5)).unwrap();
        let mut txn = Transaction::new();
        txn.write_placed(&key("object"), 1 << 20, used);
        tried.store.submit(txn, Token(6)).unwrap();
        assert_eq!(tried.allocated(), 5 << 20);
        tried.cut();
        drop(placed);
        tried.assert_clean();
        assert_eq!(tried.allocated(), 1 << 20);
        assert!(tried.read("object") == data(1, MIB));
        // All of it can be used, and the log has nothing against that.
        let rest = tried.store.available() as usize / MIB;
        for i in 0..rest {
            tried.write(&format!("new-{i}"), data(i, MIB));
        }
        tried.cut();
        tried.assert_clean();
        for i in 0..rest {
            assert!(tried.read(&format!("new-{i}")) == data(i, MIB));
        }
    }
}

#[test]
fn a_refused_transaction_can_be_submitted_again() {
    let mut tried = Tried::new(16 * MIB, None);
    let placed = tried.place(data(1, MIB));
    let mut count = 0;
    loop {
        let mut txn = Transaction::new();
        txn.write(&key(&format!("filler-{count}")), 0, data(count, 1000));
        match tried.store.submit(txn, Token(1)) {
            Ok(()) => tried.wait_committed(1),
            Err(StoreError::NoSpace { .. }) => break,
            Err(e) => panic!("{e}"),
        }
        count += 1;
    }
    let mut txn = Transaction::new();
    txn.write(&key("small"), 0, data(2, 20_000))
        .write_placed(&key("object"), BLOCK, placed);
    for _ in 0..3 {
        let refused = tried.store.try_submit(&mut txn, Token(2));
        assert!(matches!(refused, Err(StoreError::NoSpace { .. })), "{refused:?}");
        tried.settle();
    }
    assert!(tried.store.load(&key("object")).unwrap().is_none());
    for i in 0..count {
        let mut txn = Transaction::new();
        txn.remove(&key(&format!("filler-{i}")));
        tried.submit(txn);
    }
    tried.settle();
    tried.store.try_submit(&mut txn, Token(2)).unwrap();
    assert!(txn.ops.is_empty());
    tried.wait_committed(2);
    tried.cut();
    assert!(tried.read("object")[BLOCK as usize..] == data(1, MIB));
    assert!(tried.read("small") == data(2, 20_000));
    tried.settle();
    assert_eq!(tried.allocated(), (1 << 20) + 5 * BLOCK);
    tried.assert_clean();
}

#[test]
fn what_can_not_be_placed_or_used_is_refused() {
    let mut tried = Tried::new(16 * MIB, None);
    let invalid = |refused: Result<(), StoreError>| match refused {
        Err(StoreError::Invalid(why)) => why,
        other => panic!("{other:?}"),
    };
    for len in [0, 4096, 3 * 4096 - 1, 3 * 4096 + 1] {
        let why = invalid(tried.store.place(data(1, len), Token(1)));
        assert!(why.contains("whole blocks"), "{why}");
    }
    let (before, most) = (tried.store.statfs(), tried.store.available() as usize / 4096);
    for len in [most + 1, most * 2] {
        let refused = tried.store.place(data(1, len * 4096), Token(1));
        assert!(matches!(refused, Err(StoreError::NoSpace { .. })), "{refused:?}");
        assert_eq!(tried.store.statfs(), before);
    }
    let placed = tried.place(data(1, 2 * 4096));
    let mut txn = Transaction::new();
    txn.write_placed(&key("object"), 100, placed);
    let why = invalid(tried.store.submit(txn, Token(1)));
    assert!(why.contains("start with a block"), "{why}");
    let placed = tried.place(data(1, 2 * 4096));
    let mut txn = Transaction::new();
    txn.write_placed(&key("object"), spirula_store::MAX_OBJECT_SIZE - BLOCK, placed);
    let why = invalid(tried.store.submit(txn, Token(1)));
    assert!(why.contains("largest object"), "{why}");
    // Blocks of another store, or of this one before it was opened again.
    let placed = tried.place(data(1, 2 * 4096));
    tried.cut();
    let mut txn = Transaction::new();
    txn.write_placed(&key("object"), 0, placed);
    let why = invalid(tried.store.submit(txn, Token(1)));
    assert!(why.contains("another store"), "{why}");
    assert!(tried.store.load(&key("object")).unwrap().is_none());
    tried.store.poll(&mut tried.events);
    assert_eq!(tried.allocated(), 0);
    // All that there is may be placed, in pieces that lie where there is room.
    let mut count = 0;
    while let Ok(()) = tried.store.place(data(count, 64 << 10), Token(7)) {
        let placed = tried.wait_placed(7);
        tried.use_placed(&format!("object-{count}"), 0, placed);
        if tried.store.available() > 64 << 10 {
            tried.write(&format!("small-{count}"), data(count, 5000));
        }
        count += 1;
    }
    assert!(tried.store.available() < 128 << 10);
    tried.cut();
    tried.assert_clean();
    for i in 0..count {
        assert!(tried.read(&format!("object-{i}")) == data(i, 64 << 10));
    }
}

/// Neither small transactions nor a checkpoint wait for a placement, and none touches its blocks.
#[test]
fn a_placement_keeps_nothing_waiting() {
    for encryption in [None, encryption()] {
        let mut tried = Tried::new(32 * MIB, encryption);
        tried.gate().closed = true;
        tried.store.place(data(1, MIB), Token(5)).unwrap();
        tried.store.poll(&mut tried.events);
        assert_eq!(tried.gate().bytes(), AT_ONCE);
        tried.gate().closed = false;
        let checkpoints = tried.store.checkpoints();
        for i in 0..400 {
            let mut txn = Transaction::new();
            txn.write(&key(&format!("small-{}", i % 50)), 0, data(i, 20_000))
                .remove(&key(&format!("small-{}", (i + 20) % 50)));
            tried.submit(txn);
            if i % 40 == 39 {
                let mark = tried.store.compact();
                while !tried.store.is_compact(mark) {
                    tried.store.poll(&mut tried.events);
                }
            }
        }
        assert!(tried.store.checkpoints() > checkpoints + 8);
        assert!(tried.store.is_busy() && !tried.store.is_idle());
        tried.gate().release();
        let placed = tried.wait_placed(5);
        // Now it is there, and has not been used.
        for i in 0..400 {
            tried.write(&format!("small-{}", i % 50), data(i, 20_000));
        }
        tried.settle();
        tried.use_placed("object", 0, placed);
        tried.settle();
        assert!(tried.read("object") == data(1, MIB));
        tried.cut();
        assert!(tried.read("object") == data(1, MIB));
        for i in 350..400 {
            assert!(tried.read(&format!("small-{}", i % 50)) == data(i, 20_000));
        }
        tried.assert_clean();
    }
}

#[test]
fn little_is_under_way_at_a_time_and_the_rest_waits_in_order() {
    let pool = Pool::new(0);
    let filled = |seed, len| {
        let mut buf = pool.get(len);
        buf.copy_from_slice(&data(seed, len));
        buf.freeze()
    };
    let mut tried = Tried::new(128 * MIB, None);
    tried.gate().closed = true;
    let sizes = [3, 3, 3, 1, 12, 2, 4, 4, 4];
    for (i, size) in sizes.into_iter().enumerate() {
        let data = filled(i, size * MIB);
        tried.store.place(data, Token(i as u64)).unwrap();
    }
    assert_eq!(pool.budget().usage().in_use, 36 << 20);
    for i in 0..36 * MIB / AT_ONCE {
        assert_eq!(tried.gate().bytes(), AT_ONCE, "turn {i}");
        tried.gate().release();
        (0..50).for_each(|_| tried.store.poll(&mut tried.events));
    }
    let mut handles = Vec::new();
    for i in 0..sizes.len() {
        handles.push(tried.wait_placed(i as u64));
    }
    // The device has it, so the memory is free.
    assert_eq!(pool.budget().usage().in_use, 0);
    assert!(tried.store.is_idle());
    for (i, placed) in handles.into_iter().enumerate() {
        tried.use_placed(&format!("object-{i}"), 0, placed);
    }
    tried.cut();
    for (i, size) in sizes.into_iter().enumerate() {
        assert!(tried.read(&format!("object-{i}")) == data(i, size * MIB));
    }
}

#[test]
fn small_transactions_wait_behind_few_writes_of_what_is_placed() {
    let mut tried = Tried::new(64 * MIB, None);
    tried.gate().closed = true;
    tried.store.place(data(1, 8 * MIB), Token(1)).unwrap();
    assert_eq!(tried.gate().bytes(), AT_ONCE);
    // Small ones go their way meanwhile.
    tried.write("small", data(2, 100));
    let next = |tried: &mut Tried| {
        tried.gate().release();
        (0..50).for_each(|_| tried.store.poll(&mut tried.events));
        tried.gate().bytes()
    };
    let gentle: Vec<usize> = (0..7).map(|_| next(&mut tried)).collect();
    assert_eq!(gentle, [AT_ONCE / 2; 7]);
    // No other one came while almost 2 MiB were placed.
    assert_eq!(next(&mut tried), AT_ONCE);
    tried.write("small", data(3, 100));
    assert_eq!(next(&mut tried), AT_ONCE / 2);
    tried.gate().closed = false;
    tried.gate().release();
    let placed = tried.wait_placed(1);
    // What uses placed data is no small one, nor what hands its blocks on, nor records alone.
    tried.store.place(data(4, 4 * MIB), Token(2)).unwrap();
    tried.wait_placed(2);
    let mut hands_on = Transaction::new();
    hands_on.push(Op::CloneRange {
        from: key("large"),
        to: key("taken"),
        offset: 0,
        len: 8 * MIB as u64,
        at: 0,
    });
    hands_on.push(Op::Remove(key("large")));
    let mut records = Transaction::new();
    records.meta_put("record", "value");
    tried.gate().closed = true;
    tried.use_placed("large", 0, placed);
    tried.store.submit(hands_on, Token(0)).unwrap();
    tried.store.submit(records, Token(0)).unwrap();
    tried.store.place(data(5, 4 * MIB), Token(3)).unwrap();
    assert!(tried.gate().bytes() > AT_ONCE / 2);
}

#[test]
fn placements_and_large_writes_share_flushes() {
    let mut tried = Tried::new(64 * MIB, None);
    tried.settle();
    let before = tried.gate().flushes;
    for i in 0..32 {
        tried
            .store
            .place(data(i, 128 << 10), Token(100 + i as u64))
            .unwrap();
        let mut txn = Transaction::new();
        txn.write(&key(&format!("object-{i}")), 0, data(i, 128 << 10));
        tried.store.submit(txn, Token(i as u64)).unwrap();
    }
    for i in 0..32 {
        tried.wait_placed(100 + i);
        tried.wait_committed(i);
    }
    let flushes = tried.gate().flushes - before;
    assert!(flushes < 32, "{flushes} flushes");
}

#[test]
fn a_placement_that_fails_stops_the_store() {
    for encryption in [None, encryption()] {
        for (fail_write, fail_flush) in [(Some(0), None), (Some(1), None), (None, Some(0))] {
            let mut tried = Tried::new(16 * MIB, encryption.clone());
            tried.write("object", data(1, MIB));
            tried.settle();
            tried.disk.arm(Fault {
                fail_write,
                fail_flush,
                ..Fault::default()
            });
            for i in 0..3 {
                tried.store.place(data(2, MIB), Token(i)).unwrap();
            }
            (0..50).for_each(|_| tried.store.poll(&mut tried.events));
            let fatal = |e: &&Event| matches!(e, Event::Fatal(_));
            assert_eq!(tried.events.iter().filter(fatal).count(), 1, "{:?}", tried.events);
            let is_placed = |e: &Event| matches!(e, Event::Placed(..));
            let at = tried
                .events
                .iter()
                .position(|e| matches!(e, Event::Fatal(_)))
                .unwrap();
            assert!(!tried.events[at..].iter().any(is_placed), "{:?}", tried.events);
            assert!(fail_flush.is_none() || !tried.events.iter().any(is_placed));
            let refused = tried.store.place(data(2, MIB), Token(9));
            assert!(matches!(refused, Err(StoreError::Fatal(_))), "{refused:?}");
            tried.cut();
            tried.assert_clean();
            assert_eq!(tried.allocated(), 1 << 20);
            assert!(tried.read("object") == data(1, MIB));
        }
    }
}

#[test]
fn flipped_bits_of_placed_data_are_noticed() {
    for encryption in [None, encryption()] {
        let mut tried = Tried::new(16 * MIB, encryption);
        // Before it is used, too: nobody has read it then.
        for early in [true, false] {
            let name = format!("object-{early}");
            let placed = tried.place(data(1, MIB));
            let flip = |tried: &mut Tried, block: u64| {
                let offset = block * BLOCK + 1234;
                tried.disk.flip_bit(offset as usize, 5);
            };
            if early {
                // The only blocks in use.
                let before = tried.disk.copied(1);
                tried.use_placed(&name, 0, placed);
                let block = tried.onode(&name).extents()[0].pblk + 9;
                let mut raw = [0; BLOCK as usize];
                before.read_at(block * BLOCK, &mut raw).unwrap();
                assert!(raw.iter().any(|b| *b != 0), "it was there before it was used");
                flip(&mut tried, block);
            } else {
                tried.use_placed(&name, 0, placed);
                tried.settle();
                let block = tried.onode(&name).extents()[0].pblk + 9;
                flip(&mut tried, block);
            }
            let read = tried.store.read(&key(&name), 0, 1 << 20, Way::Cached, Token(2));
            assert!(matches!(read.unwrap(), Read::Pending));
            let error = tried.wait(|e| match e {
                Event::Read(_, found) => Some(found.clone().unwrap_err()),
                _ => None,
            });
            assert!(
                matches!(&error, StoreError::Corrupt { offset, .. } if *offset == 9 * BLOCK),
                "{error}"
            );
            let (dev, _) = unlock(io(&tried.disk), None, tried.encryption.as_ref()).unwrap();
            assert!(!fsck_on(&dev, None, Depth::Deep).is_clean());
        }
    }
}

/// Blocks that begin with a text and its checksum: all such blocks have one checksum.
fn checksummed(text: u8, blocks: usize) -> Bytes {
    let mut block = vec![text; 36];
    block.extend(crc32c::crc32c(&block).to_le_bytes());
    block.resize(4096, 7);
    block.repeat(blocks).into()
}

/// Freed blocks that hold other contents with the same checksums are not taken for placed data that
/// was lost.
#[test]
fn what_is_handed_over_is_durable() {
    const BLOCKS: usize = 48;
    for seed in 0..100u64 {
        let mut tried = Tried::on(SimDisk::new(8 << 20, seed), None);
        tried.disk.arm(Fault {
            cut_after: Some(600 + seed * 3),
            ..Fault::default()
        });
        let mut acknowledged = 0;
        for text in 1..=u8::MAX {
            if tried.store.place(checksummed(text, BLOCKS), Token(1)).is_err() {
                break;
            }
            let mut events = Vec::new();
            while !events
                .iter()
                .any(|e| matches!(e, Event::Placed(..) | Event::Fatal(_)))
            {
                tried.store.poll(&mut events);
            }
            let Some(Event::Placed(_, placed)) = events.pop() else {
                break;
            };
            let mut txn = Transaction::new();
            txn.write_placed(&key("object"), 0, placed);
            if tried.store.submit(txn, Token(u64::from(text))).is_err() {
                break;
            }
            if text % 8 == 0 {
                // So that blocks that were freed can be used again.
                tried.store.checkpoint();
            }
            while !tried.store.is_idle() && !events.iter().any(|e| matches!(e, Event::Fatal(_))) {
                tried.store.poll(&mut events);
            }
            if events.drain(..).any(|e| matches!(e, Event::Fatal(_))) {
                break;
            }
            acknowledged = text;
        }
        assert!(
            tried.disk.is_cut(),
            "seed {seed}: {acknowledged} were acknowledged"
        );
        tried.cut();
        let found = tried.read("object");
        let whole = [acknowledged, acknowledged + 1].map(|text| checksummed(text, BLOCKS));
        let texts: Vec<u8> = found.chunks(4096).map(|b| b[0]).collect();
        assert!(
            whole.contains(&found.into()),
            "seed {seed}: {acknowledged} was acknowledged; blocks hold {texts:?}"
        );
        tried.assert_clean();
    }
}

/// What is accepted has its space below, and space is not given back below placed data.
#[test]
fn the_space_below_is_there_and_stays() {
    let mut tried = Tried::new(256 * MIB, None);
    tried.settle();
    tried.disk.set_room(80 << 20);
    let mut handles = Vec::new();
    // Nobody says how little there is.
    let refused = loop {
        match tried.store.place(data(handles.len(), MIB), Token(3)) {
            Ok(()) => handles.push(tried.wait_placed(3)),
            Err(e) => break e,
        }
    };
    assert!(matches!(refused, StoreError::NoSpace { .. }), "{refused}");
    assert!(tried.store.is_dry());
    assert!((60..90).contains(&handles.len()), "{}", handles.len());
    // Others take all that is left.
    tried.disk.set_room(0);
    let occupied = tried.disk.occupied();
    let tick = |tried: &mut Tried| {
        for _ in 0..30 {
            tried.store.tick(64 << 20);
            tried.store.poll(&mut tried.events);
            while tried.store.is_busy() {
                tried.store.poll(&mut tried.events);
            }
            tried.events.clear();
        }
    };
    tick(&mut tried);
    assert!(tried.disk.occupied() + (2 << 20) > occupied);
    // Every second one is dropped, and its space goes.
    let (kept, dropped): (Vec<_>, Vec<_>) = handles.into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
    let bytes = (dropped.len() << 20) as u64;
    drop(dropped);
    tick(&mut tried);
    let left = occupied - tried.disk.occupied();
    assert!((bytes / 2..=bytes).contains(&left), "{left} of {bytes} bytes");
    for (i, placed) in kept {
        tried.use_placed(&format!("object-{i}"), 0, placed);
        assert!(tried.read(&format!("object-{i}")) == data(i, MIB));
    }
    tried.cut();
    tried.assert_clean();
}
