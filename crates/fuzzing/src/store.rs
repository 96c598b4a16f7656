//! A store on a disk that has decayed, or that an attacker has changed and sealed again.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use spirula_store::device::{BlockIo, SimDisk};
use spirula_store::{
    BLOCK, Config, Depth, Devices, Event, MkfsOptions, Notify, ObjectKey, Op, PageLimit, Read, Store, Token,
    Transaction, Way, fsck_on, mkfs_on,
};

use crate::input::Input;

/// Size of the disk: little more than the least.
const DISK: usize = 6 << 20;
const LOG: u64 = 256 << 10;
/// Polls after which a store must have finished an operation.
const POLLS: usize = 20_000;
/// Objects of the sound store.
const OBJECTS: u8 = 24;
/// The most changes of one input.
const EDITS: usize = 16;

/// A sound store, and its blocks that are not empty.
struct Sound {
    image: Vec<u8>,
    used: Vec<usize>,
}

static SOUND: LazyLock<Option<Sound>> = LazyLock::new(|| {
    let disk = SimDisk::new(DISK, 1);
    fill(&disk)?;
    let mut image = vec![0; DISK];
    disk.read_at(0, &mut image).ok()?;
    let blocks = image.chunks(BLOCK).enumerate();
    let used = blocks.filter(|(_, b)| b.iter().any(|b| *b != 0)).map(|(i, _)| i);
    Some(Sound {
        used: used.collect(),
        image,
    })
});

fn config() -> Config {
    Config {
        memtable_bytes: 64 << 10,
        memtable_entries: 20,
        index_cache_bytes: 1 << 20,
        onode_cache_bytes: 4000,
        direct_min: 16 << 10,
        group_bytes: 32 << 10,
        ..Config::default()
    }
}

/// `None` where the store or the system refuses.
fn open(disk: &SimDisk) -> Option<Store> {
    let devices = Devices {
        main: Box::new(disk.device()),
        log: None,
    };
    Store::open_on(devices, config(), Notify::new().ok()?, false).ok()
}

fn key(number: u8) -> ObjectKey {
    ObjectKey::new(&[b'k', number])
}

/// Objects in the index and in the log; small and large ones, with attributes and omap.
fn fill(disk: &SimDisk) -> Option<()> {
    let io: Arc<dyn BlockIo> = Arc::new(disk.clone());
    let opts = MkfsOptions {
        log_bytes: LOG,
        ..MkfsOptions::default()
    };
    mkfs_on(&io, None, &opts).ok()?;
    let mut store = open(disk)?;
    for number in 0..OBJECTS {
        store.submit(change(number), Token(number.into())).ok()?;
        settle(&mut store, number % 4 == 3);
        if number == OBJECTS / 2 {
            store.checkpoint();
            settle(&mut store, true);
        }
    }
    Some(())
}

fn change(number: u8) -> Transaction {
    let len = [100, 5000, 40_000][usize::from(number) % 3];
    let mut txn = Transaction::new();
    txn.push(Op::Write {
        key: key(number),
        offset: offset(number),
        data: Bytes::from(vec![number | 1; len]).into(),
    });
    txn.set_attr(&key(number), "name", vec![number; 20]);
    txn.push(Op::OmapSet {
        key: key(number),
        pairs: vec![(Bytes::from_static(b"a"), Bytes::from_static(b"1"))],
    });
    txn
}

/// The offset of an object's bytes.
fn offset(number: u8) -> u64 {
    u64::from(number) * 100
}

/// Polls until nothing is left to do, or only until everything is in the log. Returns whether the
/// store still works.
fn settle(store: &mut Store, idle: bool) -> bool {
    let mut events = Vec::new();
    for _ in 0..POLLS {
        store.poll(&mut events);
        if events.iter().any(|e| matches!(e, Event::Fatal(_))) {
            return false;
        }
        let committed = events.iter().any(|e| matches!(e, Event::Committed(_)));
        if store.is_idle() || (committed && !idle) {
            return true;
        }
    }
    assert!(store.is_idle(), "a store never comes to rest");
    false
}

/// The first byte chooses whether checksums of superblocks and log are made valid again (bit 0).
/// Then come edits: the place (a block that is not empty, and an offset in it; two bytes each), the
/// kind of edit, and its value.
pub(crate) fn run(data: &[u8]) {
    let Some(sound) = &*SOUND else {
        return assert!(data.len() > usize::MAX / 2, "no store can be made");
    };
    let mut input = Input::new(data);
    let sealed = input.u8() & 1 == 1;
    let mut image = sound.image.clone();
    for _ in 0..EDITS {
        if input.is_empty() {
            break;
        }
        let block = sound.used[usize::from(input.u16()) % sound.used.len()];
        let at = block * BLOCK + usize::from(input.u16()) % (BLOCK - 8);
        match input.u8() {
            0 => image[at..at + 8].copy_from_slice(&input.array::<8>()),
            1 => image[at..at + 4].copy_from_slice(&input.array::<4>()),
            2 => image[block * BLOCK..][..BLOCK].fill(0),
            3 => {
                let from = sound.used[usize::from(input.u16()) % sound.used.len()] * BLOCK;
                image.copy_within(from..from + BLOCK, block * BLOCK);
            }
            xor => image[at] ^= xor,
        }
    }
    if sealed {
        seal(&mut image);
    }
    let disk = SimDisk::new(DISK, 3);
    if disk.write_at(0, &image).and_then(|()| disk.sync()).is_err() {
        return;
    }
    drop(image);
    let io: Arc<dyn BlockIo> = Arc::new(disk.clone());
    let report = fsck_on(&io, None, Depth::Deep);
    assert!(
        data.len() > 1 || report.is_clean(),
        "a sound store is not sound: {report}"
    );
    if let Some(store) = open(&disk) {
        use_store(store, !sealed);
    }
}

/// Makes the checksums of superblocks and of groups in the log valid (`FORMAT.md` of the store).
fn seal(image: &mut [u8]) {
    let crc_at = |image: &mut [u8], from: usize, at: usize| {
        let crc = crc32c::crc32c(&image[from..at]).to_le_bytes();
        image[at..at + 4].copy_from_slice(&crc);
    };
    for superblock in [0, 64 << 10] {
        crc_at(image, superblock, superblock + BLOCK - 4);
    }
    for group in (256 << 10..512 << 10).step_by(BLOCK) {
        if !image[group..].starts_with(b"SLOG") {
            continue;
        }
        let len = image[group + 4..]
            .first_chunk()
            .map_or(0, |c| u32::from_le_bytes(*c));
        let payload = group + 64..(group + 64).saturating_add(len as usize);
        if let Some(payload) = image.get(payload) {
            let crc = crc32c::crc32c(payload).to_le_bytes();
            image[group + 44..group + 48].copy_from_slice(&crc);
        }
        crc_at(image, group, group + 60);
    }
}

/// Reads everything, writes, and reads again. Data that is read without an error must be what was
/// written, if only chance has changed the disk: `by_chance`.
fn use_store(mut store: Store, by_chance: bool) {
    let end = u64::from(OBJECTS);
    let mut events = Vec::new();
    for number in 0..OBJECTS {
        let token = Token(number.into());
        match store.read(&key(number), 0, 1 << 20, Way::Cached, token) {
            Ok(Read::Ready(result)) => events.push(Event::Read(token, result)),
            Ok(Read::Pending) => {}
            Err(_) => return,
        }
        let limit = PageLimit::new(10, usize::MAX);
        let _ = store.omap_list(&key(number), b"", None, limit, Token(end + 1));
        let _ = store.omap_get(&key(number), &[Bytes::from_static(b"a")], limit, Token(end + 1));
    }
    let _ = store.list(&key(0), None, 100, Token(end));
    for _ in 0..POLLS {
        store.poll(&mut events);
        if store.is_idle() {
            break;
        }
    }
    for event in events {
        match event {
            Event::Read(Token(number), Ok(bytes)) if by_chance => {
                let start = usize::try_from(offset(number as u8))
                    .unwrap_or(0)
                    .min(bytes.len());
                let (zeros, written) = bytes.split_at(start);
                assert!(
                    zeros.iter().all(|b| *b == 0) && written.iter().all(|b| *b == number as u8 | 1),
                    "a damaged object is read"
                );
            }
            Event::Fatal(_) => return,
            _ => {}
        }
    }
    let _ = store.statfs();
    if store.writable() && store.submit(change(3), Token(0)).is_ok() {
        settle(&mut store, true);
    }
}
