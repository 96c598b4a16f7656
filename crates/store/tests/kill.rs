//! kill -9 of a process that writes to a store in a real file.

// A failed test may stop where it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Write, stderr, stdout};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use spirula_store::device::{FileIo, PoolDevice};
use spirula_store::{
    BLOCK, Config, Depth, Devices, Dump, Event, MkfsOptions, Notify, ObjectKey, Read, Store, StoreError,
    Token, Transaction, Way, fsck, mkfs,
};

/// The token of reads; those of writes are their numbers.
const READ: Token = Token(u64::MAX);

/// The token of data that is placed.
const PLACE: Token = Token(u64::MAX - 1);

/// The bytes of a version that are placed, if any are.
fn placed_bytes(i: u64) -> Option<usize> {
    i.is_multiple_of(14).then_some(36 * BLOCK)
}

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
    if let Read::Ready(result) = store.read(key, 0, u64::MAX, Way::Cached, Token(1))? {
        return result;
    }
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
    // The object that is being read, and its version when that began.
    let mut reading: Option<u64> = None;
    let mut random = spirula_random::Rng::new(next);
    let mut read = 0u64;
    // The data of the next version, if it is placed.
    let (mut placing, mut placed) = (false, None);
    let mut check = |store: &Store, version, found: Result<Bytes, StoreError>| {
        assert!(
            found.unwrap() == contents(version),
            "version {version} is not read"
        );
        read += 1;
        if read.is_multiple_of(100) {
            let (cached, repeated) = (store.stats().cached_reads, store.stats().repeated_reads);
            writeln!(stderr(), "READS {cached} {repeated}").unwrap();
        }
    };
    loop {
        while store.writable() && next - acknowledged < 16 {
            let key = ObjectKey::from(format!("object-{:03}", next % 200).as_str());
            let mut data = Bytes::from(contents(next));
            let mut txn = Transaction::new();
            txn.truncate(&key, 0);
            let ahead = placed_bytes(next).map_or(Bytes::new(), |bytes| data.split_to(bytes));
            if !ahead.is_empty() {
                let Some(placed) = placed.take() else {
                    if !placing {
                        store.place(ahead, PLACE).unwrap();
                        placing = true;
                    }
                    break;
                };
                txn.write_placed(&key, 0, placed);
            }
            txn.write(&key, ahead.len() as u64, data);
            txn.set_info(&key, next.to_le_bytes().to_vec());
            store.submit(txn, Token(next)).unwrap();
            next += 1;
        }
        // Of one of the last 150 objects the newest version, while others are written.
        if reading.is_none() && next > 200 {
            let version = next - 1 - random.below(150);
            let key = ObjectKey::from(format!("object-{:03}", version % 200).as_str());
            store.load(&key).unwrap();
            match store.read(&key, 0, u64::MAX, Way::Cached, READ).unwrap() {
                Read::Ready(found) => check(&store, version, found),
                Read::Pending => reading = Some(version),
            }
        }
        store.poll(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Committed(Token(i)) => {
                    acknowledged = i + 1;
                    writeln!(stdout(), "{i}").unwrap();
                }
                Event::Placed(PLACE, found) => {
                    placing = false;
                    placed = Some(found);
                }
                Event::Read(READ, found) => {
                    let version = reading.take().unwrap();
                    check(&store, version, found);
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

/// What is known of a child.
struct Killed {
    /// The last write that was acknowledged, by this child or one before; `None` if there is none
    /// yet.
    acknowledged: Option<u64>,
    /// Its reads that the page cache answered, and those that were repeated past it.
    cached: u64,
    repeated: u64,
}

fn run_and_kill(path: &Path, first: u64, after: Duration) -> Killed {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env("SPIRULA_CRASH_FILE", path)
        .env("SPIRULA_CRASH_FIRST", first.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = child.stdout.take().unwrap();
    let complaints = child.stderr.take().unwrap();
    let complaints = std::thread::spawn(move || {
        let said = std::io::read_to_string(complaints).unwrap();
        // The end of a line may be killed with its writer.
        let whole = said.rfind('\n').map_or("", |end| &said[..end]);
        whole.lines().map(str::to_owned).collect::<Vec<_>>()
    });
    let reader = std::thread::spawn(move || {
        let acknowledged = BufReader::new(out).lines().map_while(Result::ok);
        let last = acknowledged.filter_map(|l| l.parse().ok()).last();
        last.or(first.checked_sub(1))
    });
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    let (mut cached, mut repeated) = (0, 0);
    for line in complaints.join().unwrap() {
        let Some(reads) = line.strip_prefix("READS ") else {
            panic!("the writer said: {line}");
        };
        (cached, repeated) = reads
            .split_once(' ')
            .map(|(c, r)| (c.parse().unwrap(), r.parse().unwrap()))
            .unwrap();
    }
    Killed {
        acknowledged: reader.join().unwrap(),
        cached,
        repeated,
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let path = scratch("kill");
    let repeated = write_and_kill(&path);
    assert_eq!(repeated, 0, "the page cache had old contents");
    std::fs::remove_file(&path).unwrap();
}

/// On a block device the kernel keeps the page cache true to what is written past it in another way
/// than on a file.
#[test]
fn nothing_acknowledged_is_lost_on_a_block_device() {
    let file = scratch("kill-device");
    std::fs::File::create(&file).unwrap().set_len(256 << 20).unwrap();
    let losetup = |args: &[&std::ffi::OsStr]| {
        let out = Command::new("losetup").args(args).output();
        out.ok()
            .filter(|o| o.status.success())
            .map(|o| String::from_utf8(o.stdout).unwrap())
    };
    if let Some(device) = losetup(&["--find".as_ref(), "--show".as_ref(), file.as_ref()]) {
        let device = device.trim();
        let repeated = write_and_kill(Path::new(device));
        assert_eq!(repeated, 0, "the page cache had old contents");
        // Another process that reads the device brings back what the kernel has dropped.
        let reader = Reader::start(device);
        write_and_kill(Path::new(device));
        reader.stop();
        assert!(
            losetup(&["--detach".as_ref(), device.as_ref()]).is_some(),
            "{device} is still in use"
        );
    } else {
        writeln!(stderr(), "SKIPPED store on a block device: no loop devices here").unwrap();
    }
    std::fs::remove_file(&file).unwrap();
}

/// A thread that reads all of a device through the page cache, again and again.
struct Reader {
    ends: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl Reader {
    fn start(device: &str) -> Self {
        let ends = Arc::<AtomicBool>::default();
        let (file, seen) = (std::fs::File::open(device).unwrap(), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            let mut part = vec![0; 1 << 20];
            while !seen.load(Ordering::Relaxed) {
                let whole = (0..).map_while(|at| file.read_at(&mut part, at << 20).ok().filter(|n| *n > 0));
                whole.take_while(|_| !seen.load(Ordering::Relaxed)).for_each(drop);
            }
        });
        Self { ends, thread }
    }

    fn stop(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// Kills a process that writes and reads again and again, and checks what it leaves. Returns the
/// number of its reads that were repeated past the page cache.
fn write_and_kill(path: &Path) -> u64 {
    let opts = MkfsOptions {
        log_bytes: 4 << 20,
        ..MkfsOptions::default()
    };
    mkfs(path, 256 << 20, None, &opts).unwrap();
    let mut next = 0;
    let (mut cached, mut repeated) = (0, 0);
    for round in 0..6 {
        let killed = run_and_kill(path, next, Duration::from_millis(150 + 60 * round));
        let acknowledged = killed.acknowledged;
        cached += killed.cached;
        repeated += killed.repeated;
        let report = fsck(path, None, None, Depth::Deep, &mut |_| {}).unwrap();
        assert!(report.is_clean(), "round {round}: {report}");
        let mut store = Store::open(path, None, None, Config::default()).unwrap();
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
        let summary = Dump::open(path, None, None).unwrap().summary().unwrap();
        assert!(
            summary.contains("200 objects") || summary.contains("objects"),
            "{summary}"
        );
    }
    assert!(next > 50, "only {next} writes");
    assert!(cached > 0, "no read was answered by the page cache");
    repeated
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
