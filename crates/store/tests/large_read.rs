//! Reads of more bytes than the device reads at a time, of an object in many pieces.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use bytes::Bytes;
use spirula_store::device::{BlockIo, Fault, SimDisk};
use spirula_store::{
    Config, Devices, Event, MkfsOptions, Notify, ObjectKey, Read, Store, StoreError, Token, Transaction, Way,
    mkfs_on,
};

const MIB: usize = 1 << 20;
const PIECE: usize = 192 << 10;
const PIECES: usize = 20 * MIB / PIECE;
const READ: Token = Token(u64::MAX);

/// A store, and the content of its object.
struct Tried {
    disk: SimDisk,
    store: Store,
    contents: Vec<u8>,
    writes: u64,
}

fn object(name: &str) -> ObjectKey {
    ObjectKey::from(name)
}

impl Tried {
    fn new() -> Self {
        let disk = SimDisk::new(384 * MIB, 1);
        let io: Arc<dyn BlockIo> = Arc::new(disk.clone());
        mkfs_on(&io, None, &MkfsOptions::default()).unwrap();
        let main = Box::new(disk.device());
        let devices = Devices { main, log: None }.unlock(None).unwrap();
        let store = Store::open_on(devices, Config::default(), Notify::new().unwrap(), false).unwrap();
        Self {
            disk,
            store,
            contents: Vec::new(),
            writes: 0,
        }
    }

    fn write(&mut self, at: usize, len: usize) {
        self.writes += 1;
        let seed = self.writes as usize;
        let bytes: Vec<u8> = (0..len).map(|b| (b / 5 + seed * 17 + b % 11) as u8).collect();
        self.contents.resize(self.contents.len().max(at + len), 0);
        self.contents[at..at + len].copy_from_slice(&bytes);
        let mut txn = Transaction::new();
        txn.write(&object("read"), at as u64, Bytes::from(bytes));
        // A write between two pieces keeps them apart on the device.
        txn.write(
            &object("other"),
            self.writes * PIECE as u64,
            Bytes::from(vec![7; PIECE]),
        );
        self.store.submit(txn, Token(self.writes)).unwrap();
    }

    /// An object with holes, in pieces that do not lie beside each other, written to its place.
    fn fragmented() -> Self {
        let mut tried = Self::new();
        for piece in (0..PIECES).filter(|n| n % 7 != 3) {
            tried.write(piece * PIECE, PIECE);
        }
        tried.settle();
        tried
    }

    fn poll(&mut self) -> Option<Result<Bytes, StoreError>> {
        let mut events = Vec::new();
        self.store.poll(&mut events);
        let mut read = None;
        for event in events {
            match event {
                Event::Read(READ, result) => read = Some(result),
                Event::Fatal(e) => panic!("{e}"),
                _ => {}
            }
        }
        read
    }

    /// Polls until everything is written back; returns the answer of a read that came meanwhile.
    fn settle(&mut self) -> Option<Result<Bytes, StoreError>> {
        self.store.checkpoint();
        let mut read = None;
        for _ in 0..1_000_000 {
            read = self.poll().or(read);
            if self.store.is_idle() {
                return read;
            }
        }
        panic!("never idle");
    }

    fn start_read(&mut self, from: usize, to: usize) {
        let len = (to - from) as u64;
        let read = self
            .store
            .read(&object("read"), from as u64, len, Way::Cached, READ)
            .unwrap();
        assert!(matches!(read, Read::Pending), "large reads ask the device");
    }

    fn read(&mut self, from: usize, to: usize) -> Result<Bytes, StoreError> {
        self.start_read(from, to);
        (0..1_000_000).find_map(|_| self.poll()).expect("no answer")
    }
}

#[test]
fn a_large_read_finds_what_is_in_many_pieces_in_memory_and_nowhere() {
    let mut tried = Tried::fragmented();
    let end = tried.contents.len();
    assert!(end > 2 * (8 << 20));
    let same = |tried: &mut Tried, from: usize, to: usize| {
        assert!(
            tried.read(from, to).unwrap() == tried.contents[from..to],
            "{from}..{to} differs"
        );
    };
    same(&mut tried, 0, end);
    same(&mut tried, 5, end - 7);
    // Whole blocks, parts of blocks and such in holes that are not written to their place yet.
    for n in 0..60 {
        tried.write(n * 333 * 1024 + n * 5, if n % 2 == 0 { 90 } else { 13_000 });
    }
    same(&mut tried, 0, end);
    tried.settle();
    same(&mut tried, 0, end);
    same(&mut tried, 4097, end - 4097);
}

#[test]
fn a_large_read_is_of_one_moment() {
    let mut tried = Tried::fragmented();
    let before = tried.contents.clone();
    tried.start_read(0, before.len());
    for piece in 0..PIECES {
        tried.write(piece * PIECE, PIECE);
    }
    let read = tried.settle().unwrap().unwrap();
    assert!(read == before, "what was written later was read");
    assert!(tried.read(0, before.len()).unwrap() == tried.contents);
}

#[test]
fn a_large_read_that_fails_in_the_middle_is_an_error_and_harmless() {
    let mut tried = Tried::fragmented();
    let end = tried.contents.len();
    for nth in [1, 30, 80] {
        tried.disk.arm(Fault {
            fail_read: Some(nth),
            ..Fault::default()
        });
        assert!(matches!(tried.read(0, end), Err(StoreError::ReadFailed { .. })));
        assert!(tried.settle().is_none(), "answered twice");
        assert!(tried.read(0, end).unwrap() == tried.contents);
    }
}
