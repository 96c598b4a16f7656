//! Data that comes to the device before the transaction that refers to it.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use spirula_store::device::{BlockIo, Device, Done, Fault, Io, IoKind, SimDevice, SimDisk};
use spirula_store::{
    Config, Depth, Devices, EncryptionKey, Event, MkfsOptions, Notify, ObjectKey, Onode, Placed, Read, Store,
    StoreError, Token, Transaction, Way, fsck_on, mkfs_on, unlock,
};

const BLOCK: u64 = 4096;
const MIB: usize = 1 << 20;

fn key(name: &str) -> ObjectKey {
    ObjectKey::from(name)
}

fn data(seed: usize, len: usize) -> Bytes {
    (0..len)
        .map(|b| (b / 7 + seed * 31 + b % 13 + 1) as u8)
        .collect::<Vec<u8>>()
        .into()
}

fn io(disk: &SimDisk) -> Arc<dyn BlockIo> {
    Arc::new(disk.clone())
}

/// Large writes on their way to a disk, which may be held back.
#[derive(Default)]
struct Held {
    closed: bool,
    writes: Vec<Io>,
    /// The most bytes that were held at a time.
    most: usize,
}

/// A disk behind a gate for large writes: what comes to it while it is closed waits there.
struct Gated {
    device: SimDevice,
    held: Arc<Mutex<Held>>,
}

fn large_bytes(io: &Io) -> usize {
    match &io.kind {
        IoKind::Write { bufs, durable, .. } if !durable => {
            Some(bufs.iter().map(Bytes::len).sum()).filter(|len| *len >= 64 << 10)
        }
        _ => None,
    }
    .unwrap_or(0)
}

impl Device for Gated {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn queue(&mut self, io: Io) {
        let mut held = self.held.lock().unwrap();
        if large_bytes(&io) == 0 || !held.closed {
            return self.device.queue(io);
        }
        held.writes.push(io);
        held.most = held.most.max(held.writes.iter().map(large_bytes).sum());
    }

    fn kick(&mut self) {
        let mut held = self.held.lock().unwrap();
        if !held.closed {
            held.writes.drain(..).for_each(|io| self.device.queue(io));
        }
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
    gate: Arc<Mutex<Held>>,
    events: Vec<Event>,
}

fn config() -> Config {
    Config {
        memtable_bytes: 256 << 10,
        index_cache_bytes: 1 << 20,
        ..Config::default()
    }
}

fn open(disk: &SimDisk, encryption: Option<&EncryptionKey>) -> (Store, Arc<Mutex<Held>>) {
    let gate = Arc::<Mutex<Held>>::default();
    let devices = Devices {
        main: Box::new(Gated {
            device: disk.device(),
            held: Arc::clone(&gate),
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

    fn allocated(&self) -> u64 {
        self.store.statfs().allocated
    }
}

#[test]
fn what_is_placed_becomes_an_object_s() {
    for encryption in [None, Some(EncryptionKey::new(vec![b'k'; 32]).unwrap())] {
        let mut tried = Tried::new(64 * MIB, encryption);
        let placed = tried.place(data(1, 4 * MIB));
        assert_eq!(placed.bytes(), 4 << 20);
        let before = tried.store.stats();
        tried.use_placed("object", 2 * BLOCK, placed);
        let after = tried.store.stats();
        assert_eq!(after.log_bytes - before.log_bytes, 2 * BLOCK);
        assert_eq!(after.direct_bytes, before.direct_bytes);
        tried.cut();
        let found = tried.read("object");
        assert_eq!(found[..8192], [0; 8192]);
        assert!(found[8192..] == data(1, 4 * MIB));
    }
}
