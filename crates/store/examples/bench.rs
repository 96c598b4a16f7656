//! Measures a store:
//! `cargo run --release -p spirula-store --example bench -- FILE [SIZE_MIB] [OBJECTS]`.
//!
//! FILE (and FILE.log, if `--log` is given) is overwritten, and encrypted with `--encrypt`. Prints
//! throughput, latency, CPU per operation and memory.

use std::collections::HashMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;
use spirula_buf::Pool;
use spirula_store::{
    Config, EncryptionKey, Event, Lookup, MkfsOptions, ObjectKey, Read, Store, Token, Transaction, Way, mkfs,
};

type Res<T> = Result<T, Box<dyn Error>>;

/// CPU time of this process, in µs.
fn cpu_us() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 * 1e6 + t.tv_nsec as f64 / 1e3
}

fn status(field: &str) -> String {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(field)).unwrap_or("");
    line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
}

struct Bench {
    store: Store,
    events: Vec<Event>,
}

impl Bench {
    fn open(path: &Path, log: Option<&Path>, key: Option<&EncryptionKey>) -> Res<Self> {
        Ok(Self {
            store: Store::open(
                path,
                log,
                key,
                Config {
                    pool: Some(Pool::new(64 << 20)),
                    ..Config::default()
                },
            )?,
            events: Vec::new(),
        })
    }

    /// Sleeps until the store has events, then takes them.
    fn wait(&mut self) -> Res<std::vec::Drain<'_, Event>> {
        self.store.poll(&mut self.events);
        if self.events.is_empty() {
            let fd = self.store.event_fd();
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(
                fd,
                rustix::event::PollFlags::IN,
            )];
            rustix::event::poll(&mut fds, None)?;
            self.store.clear_event_fd();
            self.store.poll(&mut self.events);
        }
        Ok(self.events.drain(..))
    }

    /// Keeps `depth` operations of `total` under way; `start` begins one, and says whether it is
    /// done.
    fn run(
        &mut self,
        name: &str,
        total: u64,
        depth: u64,
        bytes: u64,
        mut start: impl FnMut(&mut Store, u64) -> Res<bool>,
    ) -> Res<()> {
        let before = self.store.stats();
        let (begin, cpu) = (Instant::now(), cpu_us());
        let (mut next, mut done) = (0, 0);
        let mut began: HashMap<u64, Instant> = HashMap::new();
        let mut latencies = Vec::new();
        while done < total {
            while next < total && next - done < depth && self.store.writable() {
                let at = Instant::now();
                if start(&mut self.store, next)? {
                    done += 1;
                    latencies.push(at.elapsed().as_secs_f64() * 1e6);
                } else {
                    began.insert(next, at);
                }
                next += 1;
            }
            if began.is_empty() {
                continue;
            }
            let finished: Vec<u64> = self.wait_tokens()?;
            for token in finished {
                done += 1;
                if let Some(at) = began.remove(&token) {
                    latencies.push(at.elapsed().as_secs_f64() * 1e6);
                }
            }
        }
        let secs = begin.elapsed().as_secs_f64();
        latencies.sort_by(f64::total_cmp);
        let at = |q: f64| latencies[((latencies.len() - 1) as f64 * q) as usize];
        let after = self.store.stats();
        println!(
            "{name:34} {:9.0} op/s {:8.1} MB/s {:7.1} us cpu/op  p50 {:7.0} us  p99 {:7.0} us  rss {}  threads {}",
            total as f64 / secs,
            (total * bytes) as f64 / secs / 1e6,
            (cpu_us() - cpu) / total as f64,
            at(0.5),
            at(0.99),
            status("VmRSS"),
            status("Threads"),
        );
        println!(
            "{:34} log {} MB in {} groups, direct {} MB, write-back {} MB, index {} MB, {} checkpoints",
            "",
            (after.log_bytes - before.log_bytes) / 1_000_000,
            after.groups - before.groups,
            (after.direct_bytes - before.direct_bytes) / 1_000_000,
            (after.writeback_bytes - before.writeback_bytes) / 1_000_000,
            (after.index_bytes - before.index_bytes) / 1_000_000,
            after.checkpoints - before.checkpoints,
        );
        Ok(())
    }

    fn wait_tokens(&mut self) -> Res<Vec<u64>> {
        let mut out = Vec::new();
        for event in self.wait()? {
            match event {
                Event::Committed(t) => out.push(t.0),
                Event::Read(t, r) => {
                    r?;
                    out.push(t.0);
                }
                Event::Lookup(t, r) => {
                    r?;
                    out.push(t.0);
                }
                Event::Fatal(e) => return Err(e.into()),
                Event::List(..)
                | Event::Pairs(..)
                | Event::Placed(..)
                | Event::Checked(..)
                | Event::Judged(..) => {}
            }
        }
        Ok(out)
    }

    fn settle(&mut self) -> Res<()> {
        self.store.checkpoint();
        while !self.store.is_idle() {
            self.store.poll(&mut self.events);
            self.events.clear();
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        Ok(())
    }
}

fn key(kind: &str, i: u64) -> ObjectKey {
    ObjectKey::from(format!("{:08x}{kind}{i:012}", (i as u32).wrapping_mul(0x9e37_79b9)).as_str())
}

/// Submits transaction `i`; it is done when it is durable.
fn submit(store: &mut Store, txn: Transaction, i: u64) -> Res<bool> {
    store.submit(txn, Token(i))?;
    Ok(false)
}

/// Begins read `i`, and says whether it is done.
fn read(store: &mut Store, key: &ObjectKey, offset: u64, len: u64, i: u64) -> Res<bool> {
    Ok(match store.read(key, offset, len, Way::Cached, Token(i))? {
        Read::Ready(found) => found.map(|_| true)?,
        Read::Pending => false,
    })
}

/// The writes of an OSD for a small object: data, object info, snapset, a log entry, the PG's info.
fn small_write(kind: &str, i: u64, data: &Bytes) -> Transaction {
    let key = key(kind, i);
    let mut txn = Transaction::new();
    txn.write(&key, 0, data.clone())
        .set_info(&key, vec![i as u8; 250])
        .set_attr(&key, &b"snapset"[..], &[0u8; 31][..])
        .meta_put(format!("log.{:03}.{i:016}", i % 32), vec![1u8; 200])
        .meta_put(format!("info.{:03}", i % 32), vec![2u8; 400]);
    if i > 32 * 100 {
        let upto = i - 32 * 100;
        txn.meta_delete(format!("log.{:03}.{upto:016}", upto % 32));
    }
    txn
}

fn main() -> Res<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let path = PathBuf::from(
        args.first()
            .ok_or("usage: bench FILE [SIZE_MIB] [OBJECTS] [--log] [--encrypt]")?,
    );
    let number = |i: usize, default: u64| args.get(i).and_then(|s| s.parse().ok()).unwrap_or(default);
    let (size, objects) = (number(1, 12_288) << 20, number(2, 1_000_000));
    let log = args
        .iter()
        .any(|a| a == "--log")
        .then(|| path.with_extension("log"));
    let encrypt = args.iter().any(|a| a == "--encrypt");
    let encryption = encrypt.then(|| EncryptionKey::new(vec![7; 32])).transpose()?;
    let options = MkfsOptions {
        key: encryption.clone(),
        ..MkfsOptions::default()
    };
    let begin = Instant::now();
    mkfs(&path, size, log.as_deref(), &options)?;
    println!("mkfs {:.3} s", begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    let mut b = Bench::open(&path, log.as_deref(), encryption.as_ref())?;
    println!(
        "open {:.3} s, rss {}",
        begin.elapsed().as_secs_f64(),
        status("VmRSS")
    );
    let pool = Pool::new(256 << 20);
    let filled = |len: usize| {
        let mut buf = pool.get(len);
        buf.iter_mut().enumerate().for_each(|(i, b)| *b = (i * 7) as u8);
        buf.freeze()
    };
    let (small, large) = (filled(4096), filled(4 << 20));
    for depth in [1, 16] {
        let kind = format!("s{depth}");
        b.run(
            &format!("4 KiB write, new object, depth {depth}"),
            30_000,
            depth,
            4096,
            |s, i| submit(s, small_write(&kind, i, &small), i),
        )?;
    }
    b.run("4 KiB overwrite, 16", 30_000, 16, 4096, |s, i| {
        submit(s, small_write("s16", i % 10_000, &small), i)
    })?;
    for round in ["first write", "overwrite"] {
        b.run(&format!("4 MiB write, 16, {round}"), 500, 16, 4 << 20, |s, i| {
            let mut txn = Transaction::new();
            let key = key("large", i);
            txn.write(&key, 0, large.clone()).set_info(&key, vec![3u8; 250]);
            submit(s, txn, i)
        })?;
    }
    b.settle()?;
    b.run("4 KiB random read of 4 MiB, 16", 50_000, 16, 4096, |s, i| {
        let object = i.wrapping_mul(7919) % 500;
        let at = i.wrapping_mul(104_729) % 1024 * 4096;
        read(s, &key("large", object), at, 4096, i)
    })?;
    b.run("4 MiB read, 16", 500, 16, 4 << 20, |s, i| {
        read(s, &key("large", i), 0, 4 << 20, i)
    })?;
    b.run("4 KiB random overwrite of 4 MiB, 16", 50_000, 16, 4096, |s, i| {
        let mut txn = Transaction::new();
        let key = key("large", i.wrapping_mul(7919) % 500);
        txn.write(&key, i.wrapping_mul(104_729) % 1024 * 4096, small.clone());
        txn.set_info(&key, vec![3u8; 250])
            .meta_put(format!("log.{:03}.{i:016}", i % 32), vec![1u8; 200]);
        submit(s, txn, i)
    })?;
    b.run(
        &format!("{objects} small objects, 64"),
        objects,
        64,
        4096,
        |s, i| submit(s, small_write("m", i, &small), i),
    )?;
    b.settle()?;
    println!(
        "after {objects} objects: rss {}, peak {}",
        status("VmRSS"),
        status("VmHWM")
    );
    b.run("4 KiB read of a random small object", 50_000, 16, 4096, |s, i| {
        let key = key("m", i.wrapping_mul(2_654_435_761) % objects);
        read(s, &key, 0, 4096, i)
    })?;
    b.run("lookup of a random small object", 50_000, 16, 0, |s, i| {
        let key = key("m", i.wrapping_mul(40_503) % objects);
        Ok(matches!(s.lookup(&key, Token(i))?, Lookup::Ready(_)))
    })?;
    println!("{:?}\n{:?}", b.store.statfs(), b.store.stats());
    drop(b);
    let begin = Instant::now();
    let b = Bench::open(&path, log.as_deref(), encryption.as_ref())?;
    println!(
        "open again {:.3} s; peak rss {}",
        begin.elapsed().as_secs_f64(),
        status("VmHWM")
    );
    drop(b);
    Ok(())
}
