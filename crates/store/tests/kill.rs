//! kill -9 of a process that writes to a store in a real file.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use spirula_store::device::{FileIo, PoolDevice};
use spirula_store::{
    BLOCK, Config, Depth, Devices, Dump, Event, MkfsOptions, Notify, ObjectKey, Store, StoreError, Token,
    Transaction, fsck, mkfs,
};

/// Contents of version `i` of an object.
fn contents(i: u64) -> Vec<u8> {
    let len = if i.is_multiple_of(7) {
        150_000
    } else {
        1000 + (i as usize * 37) % 9000
    };
    (0..len).map(|b| (b as u64 / 3 + i * 13) as u8).collect()
}

fn scratch(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    dir.join(format!("{name}-{}", std::process::id()))
}

fn read(store: &mut Store, key: &ObjectKey) -> Result<Bytes, StoreError> {
    store.read(key, 0, u64::MAX, Token(1))?;
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut events = Vec::new();
    while Instant::now() < deadline {
        store.poll(&mut events);
        for event in events.drain(..) {
            if let Event::Read(_, result) = event {
                return result;
            }
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    panic!("no answer");
}

/// The victim, run by [`run_and_kill`] in a process of its own: writes objects and prints the
/// number of each that is durable.
#[test]
fn child() {
    let (Ok(path), Ok(first)) = (
        std::env::var("SPIRULA_CRASH_FILE"),
        std::env::var("SPIRULA_CRASH_FIRST"),
    ) else {
        return;
    };
    let mut next: u64 = first.parse().unwrap();
    let cfg = Config {
        memtable_bytes: 1 << 20,
        ..Config::default()
    };
    let mut store = Store::open(Path::new(&path), None, None, cfg).unwrap();
    let mut events = Vec::new();
    let mut acknowledged = next;
    loop {
        while store.writable() && next - acknowledged < 16 {
            let key = ObjectKey::from(format!("object-{:03}", next % 200).as_str());
            let mut txn = Transaction::new();
            txn.truncate(&key, 0).write(&key, 0, Bytes::from(contents(next)));
            txn.set_info(&key, next.to_le_bytes().to_vec());
            store.submit(txn, Token(next)).unwrap();
            next += 1;
        }
        store.poll(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Committed(Token(i)) => {
                    acknowledged = i + 1;
                    writeln!(stdout(), "{i}").unwrap();
                }
                Event::Fatal(e) => panic!("{e}"),
                _ => {}
            }
        }
        stdout().flush().unwrap();
        let fd = store.event_fd();
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(
            fd,
            rustix::event::PollFlags::IN,
        )];
        let patience = rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 1_000_000,
        };
        rustix::event::poll(&mut fds, Some(&patience)).unwrap();
        store.clear_event_fd();
    }
}

/// The last write that was acknowledged, by this child or one before; `None` if there is none yet.
fn run_and_kill(path: &Path, first: u64, after: Duration) -> Option<u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env("SPIRULA_CRASH_FILE", path)
        .env("SPIRULA_CRASH_FIRST", first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let acknowledged = BufReader::new(out).lines().map_while(Result::ok);
        let last = acknowledged.filter_map(|l| l.parse().ok()).last();
        last.or(first.checked_sub(1))
    });
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let path = scratch("kill");
    let opts = MkfsOptions {
        log_bytes: 4 << 20,
        ..MkfsOptions::default()
    };
    mkfs(&path, 256 << 20, None, &opts).unwrap();
    let mut next = 0;
    for round in 0..6 {
        let acknowledged = run_and_kill(&path, next, Duration::from_millis(150 + 60 * round));
        let report = fsck(&path, None, None, Depth::Deep, &mut |_| {}).unwrap();
        assert!(report.is_clean(), "round {round}: {report}");
        let mut store = Store::open(&path, None, None, Config::default()).unwrap();
        for object in 0..200 {
            let key = ObjectKey::from(format!("object-{object:03}").as_str());
            let Some(onode) = store.load(&key).unwrap() else {
                assert!(
                    acknowledged.is_none_or(|a| object > a),
                    "round {round}: {key} is missing"
                );
                continue;
            };
            let version = u64::from_le_bytes(onode.info()[..8].try_into().unwrap());
            assert_eq!(version % 200, object);
            // Of those up to the last acknowledged one, the newest; or a later one.
            assert!(
                acknowledged.is_none_or(|a| version + 200 > a),
                "round {round}: {key} has version {version} of {acknowledged:?}"
            );
            assert!(
                read(&mut store, &key).unwrap() == contents(version),
                "round {round}: {key}"
            );
            next = next.max(version + 1);
        }
        drop(store);
        let summary = Dump::open(&path, None, None).unwrap().summary().unwrap();
        assert!(
            summary.contains("200 objects") || summary.contains("objects"),
            "{summary}"
        );
    }
    assert!(next > 50, "only {next} writes");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_separate_log_file_is_used_and_must_be_given() {
    let (path, log) = (scratch("main"), scratch("log"));
    let opts = MkfsOptions {
        log_bytes: 1 << 20,
        osd_uuid: [7; 16],
        ..MkfsOptions::default()
    };
    mkfs(&path, 64 << 20, Some(&log), &opts).unwrap();
    let key = ObjectKey::from("an object");
    {
        let mut store = Store::open(&path, Some(&log), None, Config::default()).unwrap();
        let mut txn = Transaction::new();
        txn.write(
            &key,
            5,
            vec![Bytes::from(vec![1; 3 * BLOCK]), Bytes::from(vec![2; 100_000])],
        );
        store.submit(txn, Token(4)).unwrap();
        let mut events = Vec::new();
        while !events.iter().any(|e| matches!(e, Event::Committed(Token(4)))) {
            store.poll(&mut events);
        }
    }
    assert!(matches!(
        Store::open(&path, None, None, Config::default()),
        Err(StoreError::NotAStore(_))
    ));
    let dump = Dump::open(&path, Some(&log), None).unwrap();
    assert!(dump.log().unwrap().contains("object an object"));
    assert!(dump.object(&key).unwrap().contains("size      112293"));
    drop(dump);
    let mut store = Store::open(&path, Some(&log), None, Config::default()).unwrap();
    assert!(
        matches!(
            Store::open(&path, Some(&log), None, Config::default()),
            Err(StoreError::InUse { pid: Some(pid), .. }) if pid == std::process::id()
        ),
        "locked"
    );
    let bytes = read(&mut store, &key).unwrap();
    assert_eq!(
        (bytes.len(), bytes[4], bytes[5], bytes[112_292]),
        (112_293, 0, 1, 2)
    );
    drop(store);
    assert!(
        fsck(&path, Some(&log), None, Depth::Deep, &mut |_| {})
            .unwrap()
            .is_clean()
    );
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(&log).unwrap();
}

#[test]
fn threads_do_where_io_uring_is_forbidden() {
    let path = scratch("pool");
    mkfs(
        &path,
        64 << 20,
        None,
        &MkfsOptions {
            log_bytes: 1 << 20,
            ..MkfsOptions::default()
        },
    )
    .unwrap();
    for round in 0..2 {
        let notify = Notify::new().unwrap();
        let file = Arc::new(FileIo::open(&path).unwrap());
        let main = Box::new(PoolDevice::new(file, notify.clone(), 2).unwrap());
        let mut store = Store::open_on(Devices { main, log: None }, Config::default(), notify, true).unwrap();
        let mut events = Vec::new();
        for i in 0..50 {
            let key = ObjectKey::from(format!("object-{i:03}").as_str());
            if round == 0 {
                let mut txn = Transaction::new();
                txn.write(&key, 0, Bytes::from(contents(i)));
                store.submit(txn, Token(i)).unwrap();
                store.poll(&mut events);
            } else {
                assert!(read(&mut store, &key).unwrap() == contents(i));
            }
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while round == 0 && !events.iter().any(|e| matches!(e, Event::Committed(Token(49)))) {
            store.poll(&mut events);
            assert!(Instant::now() < deadline, "never committed");
        }
    }
    assert!(
        fsck(&path, None, None, Depth::Deep, &mut |_| {})
            .unwrap()
            .is_clean()
    );
    std::fs::remove_file(&path).unwrap();
}
