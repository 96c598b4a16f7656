//! The traces that an encrypted store leaves on its devices, and the keys that open it.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use spirula_store::device::{BlockIo, SimDisk};
use spirula_store::{
    Config, Depth, Devices, Dump, EncryptionKey, Event, KeyProblem, MkfsOptions, Notify, ObjectKey, Op,
    Placed, Store, StoreError, Token, Transaction, add_key, fsck, mkfs, mkfs_on, retire_keys, superblock,
};

const DISK: usize = 24 << 20;
const LOG: usize = 1 << 20;

fn key(byte: u8) -> EncryptionKey {
    EncryptionKey::new(vec![byte; 32]).unwrap()
}

fn options(key: Option<EncryptionKey>) -> MkfsOptions {
    MkfsOptions {
        whoami: 3,
        osd_uuid: [9; 16],
        log_bytes: 1 << 20,
        key,
        ..MkfsOptions::default()
    }
}

fn settle(store: &mut Store) {
    let mut events = Vec::new();
    store.checkpoint();
    while !store.is_idle() {
        store.poll(&mut events);
        assert!(!events.iter().any(|e| matches!(e, Event::Fatal(_))));
    }
}

fn wait_placed(store: &mut Store) -> Placed {
    let mut events = Vec::new();
    loop {
        store.poll(&mut events);
        for event in events.drain(..) {
            if let Event::Placed(_, placed) = event {
                return placed;
            }
        }
    }
}

/// Writes markers into all parts of an object, small and large, that are overwritten and merged
/// into the index.
fn write_markers(store: &mut Store) {
    for i in 0..300usize {
        let object = ObjectKey::from(format!("MARK-name-{i:04}").as_str());
        let len = if i % 20 == 0 { 300_000 } else { 700 };
        let mut txn = Transaction::new();
        txn.write(&object, 0, Bytes::from(b"MARK-data ".repeat(len / 10)))
            .set_info(&object, b"MARK-info".to_vec())
            .meta_put(format!("MARK-meta-{i}"), b"MARK-value".to_vec());
        txn.push(Op::SetAttr {
            key: object.clone(),
            name: "MARK-xattr".into(),
            value: "MARK-xattr".into(),
        });
        txn.push(Op::OmapSet {
            key: object.clone(),
            pairs: vec![("MARK-omap".into(), "MARK-omap".into())],
        });
        txn.push(Op::OmapHeader {
            key: object.clone(),
            header: "MARK-header".into(),
        });
        txn.push(Op::Write {
            key: object.clone(),
            offset: 100,
            data: Bytes::from_static(b"MARK-over").into(),
        });
        if len > 700 {
            let data = Bytes::from(b"MARK-data ".repeat(4096));
            store.place(data, Token(2)).unwrap();
            txn.write_placed(&object, 1 << 20, wait_placed(store));
        }
        store.submit(txn, Token(1)).unwrap();
        store.poll(&mut Vec::new());
        if i % 100 == 50 {
            settle(store);
        }
    }
}

fn marks(disk: &SimDisk) -> usize {
    let mut raw = vec![0; usize::try_from(disk.size()).unwrap()];
    disk.read_at(0, &mut raw).unwrap();
    raw.windows(5).filter(|w| *w == b"MARK-").count()
}

/// Marks on the main device and on the log, before the last generation is settled and after.
fn left_behind(key: Option<EncryptionKey>) -> [usize; 4] {
    let (main, log) = (SimDisk::new(DISK, 1), SimDisk::new(LOG, 2));
    let io = |disk: &SimDisk| Arc::new(disk.clone()) as Arc<dyn BlockIo>;
    mkfs_on(&io(&main), Some(&io(&log)), &options(key.clone())).unwrap();
    let devices = Devices {
        main: Box::new(main.device()),
        log: Some(Box::new(log.device())),
    };
    let config = Config {
        memtable_bytes: 256 << 10,
        ..Config::default()
    };
    let devices = devices.unlock(key.as_ref()).unwrap();
    let mut store = Store::open_on(devices, config, Notify::new().unwrap(), false).unwrap();
    write_markers(&mut store);
    let before = [marks(&main), marks(&log)];
    settle(&mut store);
    [before[0], before[1], marks(&main), marks(&log)]
}

#[test]
fn nothing_of_an_object_is_left_in_the_clear() {
    assert_eq!(left_behind(Some(key(1))), [0; 4]);
    let plain = left_behind(None);
    assert!(
        plain.iter().all(|n| *n > 100),
        "the search finds nothing: {plain:?}"
    );
}

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("spirula-encryption-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn file(&self) -> PathBuf {
        self.0.join("block")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn problem(path: &Path, key: Option<&EncryptionKey>) -> KeyProblem {
    match Store::open(path, None, key, Config::default()).map(drop) {
        Err(StoreError::Key { osd: 3, problem }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_store_is_opened_by_its_key_alone_and_never_changed_by_others() {
    let dir = Dir::new("keys");
    let path = dir.file();
    mkfs(&path, 64 << 20, None, &options(Some(key(1)))).unwrap();
    let before = std::fs::read(&path).unwrap();
    assert_eq!(problem(&path, None), KeyProblem::Missing);
    assert_eq!(problem(&path, Some(&key(2))), KeyProblem::Wrong);
    for wrong in [None, Some(&key(2))] {
        assert!(matches!(
            fsck(&path, None, wrong, Depth::Shallow, &mut |_| {}),
            Err(StoreError::Key { .. })
        ));
        assert!(Dump::open(&path, None, wrong).is_err());
    }
    assert!(matches!(
        add_key(&path, &key(2), &key(3)),
        Err(StoreError::Key { .. })
    ));
    assert!(retire_keys(&path, &key(2)).is_err());
    assert!(before == std::fs::read(&path).unwrap());
    assert!(superblock(&path).unwrap().is_encrypted());
    assert!(
        fsck(&path, None, Some(&key(1)), Depth::Deep, &mut |_| {})
            .unwrap()
            .is_clean()
    );
    // A store in the clear that was put in the place of one that is encrypted is not written to.
    mkfs(&path, 64 << 20, None, &options(None)).unwrap();
    assert_eq!(problem(&path, Some(&key(1))), KeyProblem::NotEncrypted);
    assert!(Store::open(&path, None, None, Config::default()).is_ok());
}

#[test]
fn keys_are_changed_without_writing_the_data_again() {
    let dir = Dir::new("change");
    let path = dir.file();
    mkfs(&path, 64 << 20, None, &options(Some(key(1)))).unwrap();
    let mut store = Store::open(&path, None, Some(&key(1)), Config::default()).unwrap();
    write_markers(&mut store);
    settle(&mut store);
    drop(store);
    let before = std::fs::read(&path).unwrap();
    add_key(&path, &key(1), &key(2)).unwrap();
    let full = add_key(&path, &key(1), &key(3));
    assert!(matches!(
        full,
        Err(StoreError::Key {
            problem: KeyProblem::Full,
            ..
        })
    ));
    for either in [key(1), key(2)] {
        let report = fsck(&path, None, Some(&either), Depth::Deep, &mut |_| {}).unwrap();
        assert!(report.is_clean() && report.objects == 300, "{report}");
    }
    retire_keys(&path, &key(2)).unwrap();
    assert_eq!(problem(&path, Some(&key(1))), KeyProblem::Wrong);
    let report = fsck(&path, None, Some(&key(2)), Depth::Deep, &mut |_| {}).unwrap();
    assert!(report.is_clean() && report.objects == 300, "{report}");
    let after = std::fs::read(&path).unwrap();
    assert!(before[128 << 10..] == after[128 << 10..]);
    // Neither copy of the superblock has the retired slot.
    let slot = &before[88..88 + 60];
    assert!(!after.windows(60).any(|w| w == slot));
}

/// An encrypted store has a version that builds without encryption refuse, and any other store the
/// version before. Stores of the oldest versions have a newer one after they were opened, and the
/// newest one once they share ranges.
#[test]
fn versions_tell_what_is_encrypted_and_what_is_shared() {
    let dir = Dir::new("version");
    let path = dir.file();
    for (key, old, new, shared) in [(None, 2u32, 3u32, 5u32), (Some(key(1)), 4, 4, 6)] {
        mkfs(&path, 64 << 20, None, &options(key.clone())).unwrap();
        let mut raw = std::fs::read(&path).unwrap();
        for copy in [0, 64 << 10] {
            let block = &mut raw[copy..copy + 4096];
            assert_eq!(block[8..12], new.to_le_bytes());
            block[8..12].copy_from_slice(&old.to_le_bytes());
            let crc = crc32c::crc32c(&block[..4092]);
            block[4092..].copy_from_slice(&crc.to_le_bytes());
        }
        std::fs::write(&path, raw).unwrap();
        drop(Store::open(&path, None, key.as_ref(), Config::default()).unwrap());
        let raw = std::fs::read(&path).unwrap();
        assert_eq!(raw[8..12], new.to_le_bytes());
        assert_eq!(raw[(64 << 10) + 8..][..4], new.to_le_bytes());

        let mut store = Store::open(&path, None, key.as_ref(), Config::default()).unwrap();
        let mut txn = Transaction::new();
        txn.push(Op::CloneRange {
            from: ObjectKey::new(b"from"),
            to: ObjectKey::new(b"to"),
            offset: 0,
            len: 4096,
            at: 0,
        });
        store.submit(txn, Token(1)).unwrap();
        drop(store);
        let raw = std::fs::read(&path).unwrap();
        assert_eq!(raw[8..12], shared.to_le_bytes());
        assert_eq!(raw[(64 << 10) + 8..][..4], shared.to_le_bytes());
        drop(Store::open(&path, None, key.as_ref(), Config::default()).unwrap());
    }
}
