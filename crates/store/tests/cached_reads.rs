//! Reads through the page cache: they return what was written past it last.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use spirula_buf::Pool;
use spirula_random::Rng;
use spirula_store::device::{
    BlockIo, Device, Done, Fault, FileIo, Io, IoKind, PoolDevice, SimDisk, UringDevice,
};
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

fn scratch(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    dir.join(format!("{name}-{}", std::process::id()))
}

/// Waits for the completion of what was queued, sleeping until the device signals it.
fn complete(device: &mut dyn Device, notify: &Notify, out: &mut Vec<Done>) {
    use std::os::fd::AsFd;
    device.kick();
    let begin = Instant::now();
    loop {
        device.reap(out);
        if !out.is_empty() {
            return;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "a completion was not signalled"
        );
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(
            notify.as_fd(),
            rustix::event::PollFlags::IN,
        )];
        let patience = rustix::time::Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut fds, Some(&patience)).unwrap();
        notify.clear();
    }
}

/// Writes past the page cache and reads through it, on a real file with a real kernel.
#[test]
fn what_is_written_past_the_page_cache_shows_through_it() {
    const BLOCKS: u64 = 64;
    let path = scratch("shows-through");
    let file = Arc::new(FileIo::create(&path, BLOCKS * BLOCK as u64).unwrap());
    let notify = Notify::new().unwrap();
    let ring = UringDevice::new(Arc::clone(&file), &notify);
    let threads = PoolDevice::new(Arc::clone(&file), notify.clone(), 2).unwrap();
    let mut devices: Vec<Box<dyn Device>> = vec![Box::new(threads)];
    match ring {
        Ok(ring) => devices.push(Box::new(ring)),
        Err(e) => eprintln!("SKIPPED io_uring: {e}"),
    }
    let pool = Pool::new(1 << 20);
    for mut device in devices {
        let mut rng = Rng::new(1);
        let mut held = [0u8; BLOCKS as usize];
        let (mut out, mut cached) = (Vec::new(), 0);
        for round in 0..3000u64 {
            let block = rng.below(BLOCKS);
            let offset = block * BLOCK as u64;
            let mut buf = pool.get(BLOCK);
            let kind = if rng.below(3) == 0 || held[block as usize] == 0 {
                held[block as usize] = (round % 255) as u8 + 1;
                buf.fill(held[block as usize]);
                IoKind::Write {
                    offset,
                    bufs: vec![buf.freeze()],
                    durable: false,
                }
            } else if device.read_cached(offset, &mut buf) {
                cached += 1;
                assert!(
                    buf.iter().all(|b| *b == held[block as usize]),
                    "round {round}, at once"
                );
                continue;
            } else {
                IoKind::Read {
                    offset,
                    buf,
                    way: Way::Cached,
                }
            };
            device.queue(Io { tag: round, kind });
            complete(&mut *device, &notify, &mut out);
            for done in out.drain(..) {
                done.result.unwrap();
                if let Some(buf) = done.buf {
                    assert!(buf.iter().all(|b| *b == held[block as usize]), "round {round}");
                }
            }
        }
        // A file system without a page cache of its own answers none at once.
        assert!(
            cached > 100 || cached == 0,
            "only {cached} reads were answered at once"
        );
    }
    std::fs::remove_file(&path).unwrap();
}

/// The ring signals completions while it is asked for others: none may be slept over.
#[test]
fn no_completion_goes_unnoticed() {
    const BLOCKS: u64 = 256;
    let path = scratch("unnoticed");
    let file = Arc::new(FileIo::create(&path, BLOCKS * BLOCK as u64).unwrap());
    let notify = Notify::new().unwrap();
    let Ok(mut ring) = UringDevice::new(file, &notify) else {
        eprintln!("SKIPPED io_uring: it is not available");
        std::fs::remove_file(&path).unwrap();
        return;
    };
    let pool = Pool::new(4 << 20);
    let mut rng = Rng::new(2);
    let (mut under_way, mut done) = (0, 0);
    let mut out = Vec::new();
    for tag in 0.. {
        if tag < 20_000 {
            let mut buf = pool.get(BLOCK);
            let offset = rng.below(BLOCKS) * BLOCK as u64;
            let kind = match rng.below(8) {
                0 => IoKind::Flush,
                1 | 2 => {
                    buf.fill(1);
                    IoKind::Write {
                        offset,
                        bufs: vec![buf.freeze()],
                        durable: rng.below(2) == 0,
                    }
                }
                n => IoKind::Read {
                    offset,
                    buf,
                    way: [Way::Direct, Way::Cached][n as usize % 2],
                },
            };
            ring.queue(Io { tag, kind });
            under_way += 1;
        }
        if under_way == 0 {
            break;
        }
        // A few at once, of which some complete while the ring is asked for others.
        if under_way < rng.below(12) && tag < 20_000 {
            continue;
        }
        complete(&mut ring, &notify, &mut out);
        under_way -= out.len() as u64;
        done += out.len();
        out.drain(..).for_each(|d| d.result.unwrap());
    }
    assert_eq!(done, 20_000);
    std::fs::remove_file(&path).unwrap();
}
