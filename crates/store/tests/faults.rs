//! Damage, errors and full disks.

use std::sync::Arc;

use bytes::Bytes;
use spirula_store::device::{BlockIo, Fault, SimDisk};
use spirula_store::{
    Config, Depth, Devices, Event, MkfsOptions, Notify, ObjectKey, Store, StoreError, Token, Transaction, fsck_on,
    mkfs_on,
};

fn io(disk: &SimDisk) -> Arc<dyn BlockIo> {
    Arc::new(disk.clone())
}

fn format(disk: &SimDisk) {
    let opts = MkfsOptions { log_bytes: 512 << 10, ..MkfsOptions::default() };
    mkfs_on(&io(disk), None, &opts).unwrap();
}

fn small() -> Config {
    Config { memtable_bytes: 256 << 10, index_cache_bytes: 1 << 20, data_cache_bytes: 0, ..Config::default() }
}

fn open(disk: &SimDisk) -> Result<Store, StoreError> {
    let devices = Devices { main: Box::new(disk.device()), log: None };
    Store::open_on(devices, small(), Notify::new().unwrap(), false)
}

fn key(i: usize) -> ObjectKey {
    ObjectKey::from(format!("object-{i:05}").as_str())
}

fn data(i: usize, len: usize) -> Bytes {
    (0..len).map(|b| (b / 7 + i * 31 + b % 13) as u8).collect::<Vec<u8>>().into()
}

fn write(store: &mut Store, i: usize, len: usize) -> Result<(), StoreError> {
    let mut txn = Transaction::new();
    txn.write(&key(i), 0, data(i, len)).set_info(&key(i), vec![i as u8; 40]);
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
    store.read(&key(i), 0, u64::MAX, Token(9))?;
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
