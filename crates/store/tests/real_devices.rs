//! The devices on real files with a real kernel.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Write as _, stderr};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;
use spirula_buf::Pool;
use spirula_random::Rng;
use spirula_store::device::{Device, Done, FileIo, Io, IoKind, PoolDevice, UringDevice};
use spirula_store::{BLOCK, Notify, Way};

fn scratch(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    dir.join(format!("{name}-{}", std::process::id()))
}

/// Waits for the completion of what was queued, sleeping until the device signals it.
fn complete(device: &mut dyn Device, notify: &Notify, out: &mut Vec<Done>) {
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
        let mut fds = [PollFd::from_borrowed_fd(notify.as_fd(), PollFlags::IN)];
        let patience = Timespec {
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
        Err(e) => writeln!(stderr(), "SKIPPED io_uring: {e}").unwrap(),
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
        writeln!(stderr(), "SKIPPED io_uring: it is not available").unwrap();
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
