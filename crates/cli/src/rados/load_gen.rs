//! `load-gen`: reads and writes at random places of random objects, at a given rate.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use bytes::Bytes;
use spirula_client::IoCtx;
use spirula_random::Rng;
use spirula_text::general;
use tokio::task::JoinSet;

use super::{Done, Tool, complain, number};

/// Pause between two lines.
const INTERVAL: Duration = Duration::from_secs(1);
/// Characters of objects' names, and how many there are behind `obj-`.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const NAME_LEN: usize = 15;
const MIB: f64 = (1 << 20) as f64;

/// What the options of load-gen ask for.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct LoadArgs {
    /// With load-gen: how many objects [default: 200]
    #[arg(long, value_name = "N")]
    num_objects: Option<String>,
    /// With load-gen: size of the smallest object [default: 1024]
    #[arg(long, value_name = "SIZE")]
    min_object_size: Option<String>,
    /// With load-gen: size of the largest object [default: 5G]
    #[arg(long, value_name = "SIZE")]
    max_object_size: Option<String>,
    /// With load-gen: bytes of the smallest operation [default: 1024]
    #[arg(long, value_name = "SIZE")]
    min_op_len: Option<String>,
    /// With load-gen: bytes of the largest operation [default: 2M]
    #[arg(long, value_name = "SIZE")]
    max_op_len: Option<String>,
    /// With load-gen: concurrent operations [default: 16]
    #[arg(long, value_name = "N")]
    max_ops: Option<String>,
    /// With load-gen: bytes under way at most [default: 10M]
    #[arg(long, value_name = "SIZE")]
    max_backlog: Option<String>,
    /// With load-gen: how many of 100 operations read [default: 80]
    #[arg(long, value_name = "N")]
    read_percent: Option<String>,
    /// With load-gen: bytes a second [default: 5M]
    #[arg(long, value_name = "SIZE")]
    target_throughput: Option<String>,
    /// With load-gen: seconds [default: 60]
    #[arg(long, value_name = "SECONDS")]
    run_length: Option<String>,
    /// With load-gen: operations begin at multiples of this
    #[arg(long, value_name = "SIZE")]
    offset_align: Option<String>,
}

/// The least and the most bytes of an object or an operation.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    least: u64,
    most: u64,
}

/// An operation that has ended.
struct Finished {
    id: u64,
    /// The operation's bytes.
    len: u64,
}

/// The options' values.
struct Plan {
    objects: u64,
    object_size: Bounds,
    op_len: Bounds,
    max_ops: usize,
    max_backlog: u64,
    read_percent: u64,
    throughput: u64,
    /// The seconds of the run as given, 0 by default.
    given_length: u64,
    align: u64,
}

impl Plan {
    fn parse(a: &LoadArgs) -> Result<Self, i32> {
        // 0 stands for the default, as in the official tool.
        let or = |name: &str, text: &Option<String>, default: u64| {
            number(name, text.as_deref()).map(|v| v.filter(|v| *v > 0).unwrap_or(default))
        };
        let max_ops = or("max-ops", &a.max_ops, 16)?;
        Ok(Self {
            objects: or("num-objects", &a.num_objects, 200)?,
            object_size: Bounds {
                least: or("min-object-size", &a.min_object_size, 1024)?,
                most: or("max-object-size", &a.max_object_size, 5 << 30)?,
            },
            op_len: Bounds {
                least: or("min-op-len", &a.min_op_len, 1024)?,
                most: or("max-op-len", &a.max_op_len, 2 << 20)?,
            },
            max_ops: usize::try_from(max_ops).unwrap_or(usize::MAX),
            max_backlog: or("max-backlog", &a.max_backlog, 10 << 20)?,
            read_percent: number("read-percent", a.read_percent.as_deref())?.unwrap_or(80),
            throughput: or("target-throughput", &a.target_throughput, 5 << 20)?,
            given_length: or("run-length", &a.run_length, 0)?,
            align: or("offset-align", &a.offset_align, 1)?,
        })
    }

    fn length(&self) -> Duration {
        Duration::from_secs(if self.given_length > 0 {
            self.given_length
        } else {
            60
        })
    }
}

struct Object {
    name: String,
    len: u64,
}

/// A run under way.
struct Load {
    io: IoCtx,
    plan: Plan,
    random: Rng,
    objects: Vec<Object>,
    start: Instant,
    /// Bytes of begun operations, and of complete ones.
    sent: u64,
    completed: u64,
    last_op: u64,
    /// The operations under way.
    ops: JoinSet<Finished>,
}

fn say(text: &str) {
    let mut out = io::stdout().lock();
    // A reader that went away does not end the load.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

impl Load {
    fn new(io: IoCtx, plan: Plan, random: Rng) -> Self {
        Self {
            io,
            plan,
            random,
            objects: Vec::new(),
            start: Instant::now(),
            sent: 0,
            completed: 0,
            last_op: 0,
            ops: JoinSet::new(),
        }
    }

    fn new_object(&mut self) -> Object {
        let mut name = String::from("obj-");
        let letters = (0..NAME_LEN).map(|_| ALPHABET[self.random.index(ALPHABET.len())]);
        name.extend(letters.map(char::from));
        let Bounds { least, most } = self.plan.object_size;
        Object {
            name,
            len: self.random.between(least, most.saturating_add(1)),
        }
    }

    /// Makes the objects: only their last byte is written.
    async fn prepare(&mut self) -> Done {
        let failed = |_| complain(1, "aio_write failed\nload-gen bootstrap failed");
        let mut writes = JoinSet::new();
        for _ in 0..self.plan.objects {
            let object = self.new_object();
            while writes.len() > self.plan.max_ops {
                writes
                    .join_next()
                    .await
                    .into_iter()
                    .flatten()
                    .collect::<Result<(), _>>()
                    .map_err(failed)?;
            }
            let (io, name, at) = (self.io.clone(), object.name.clone(), object.len - 1);
            writes.spawn_local(async move { io.write(&name, at, Bytes::from_static(&[0])).await });
            self.objects.push(object);
        }
        while let Some(done) = writes.join_next().await {
            done.into_iter().collect::<Result<(), _>>().map_err(failed)?;
        }
        Ok(())
    }

    /// Begins one operation.
    fn begin(&mut self) {
        let Some(object) = self.random.pick(&self.objects) else {
            return;
        };
        let Bounds { least, most } = self.plan.op_len;
        let len = self.random.between(least, most.saturating_add(1)).min(object.len);
        let off = self.random.below(object.len + 1).min(object.len - len);
        let off = off - off % self.plan.align;
        let reads = self.random.below(100) < self.plan.read_percent;
        let kind = if reads { "READ" } else { "WRITE" };
        say(&format!("{kind} : oid={} off={off} len={len}", object.name));
        let (io, name, id) = (self.io.clone(), object.name.clone(), self.last_op);
        self.last_op += 1;
        self.sent += len;
        self.ops.spawn_local(async move {
            let result = if reads {
                io.read(&name, off, len).await.map(drop)
            } else {
                let zeros = vec![0; usize::try_from(len).unwrap_or(0)];
                io.write(&name, off, zeros).await
            };
            if let Err(e) = result {
                // The load goes on, as with the official tool.
                tracing::warn!("{name}: {e}");
            }
            Finished { id, len }
        });
    }

    /// Completed MiB a second since the start, from whole bytes a second.
    fn rate(&self) -> String {
        let rate = self.completed as f64 / self.start.elapsed().as_secs_f64().max(1e-9);
        general(rate.trunc() / MIB, 3)
    }

    fn finished(&mut self, done: Result<Finished, tokio::task::JoinError>) {
        match done {
            Ok(Finished { id, len }) => {
                self.completed += len;
                say(&format!("op {id} completed, throughput={}MB/sec", self.rate()));
            }
            Err(e) => tracing::error!("{e}"),
        }
    }

    async fn run(&mut self) {
        self.start = Instant::now();
        let (mut stamp, mut seconds) = (self.start, 0);
        loop {
            let done = tokio::time::timeout(INTERVAL, async {
                match self.ops.join_next().await {
                    Some(done) => done,
                    None => std::future::pending().await,
                }
            });
            if let Ok(done) = done.await {
                self.finished(done);
            }
            let now = Instant::now();
            if now - self.start > self.plan.length() {
                break;
            }
            if now - stamp >= INTERVAL {
                seconds += 1;
                stamp = now;
                let (rate, pending) = (self.rate(), self.sent - self.completed);
                say(&format!(
                    "{seconds:>5}: throughput={rate}MB/sec pending data={pending}"
                ));
            }
            let expected = self.plan.throughput as f64 * self.start.elapsed().as_secs_f64();
            while (self.sent as f64) < expected
                && self.sent - self.completed < self.plan.max_backlog
                && self.ops.len() < self.plan.max_ops
            {
                self.begin();
            }
        }
        say("waiting for all operations to complete");
        while let Some(done) = self.ops.join_next().await {
            self.finished(done);
        }
    }

    async fn clean_up(&self) {
        say("cleaning up objects");
        for object in &self.objects {
            if let Err(e) = self.io.remove(&object.name).await {
                eprintln!("couldn't remove obj: {} ret={}", object.name, e.errno().code());
            }
        }
    }
}

impl Tool {
    /// `load-gen`.
    pub(super) async fn load_gen(&self) -> Done {
        let Some(io) = &self.io else {
            eprintln!("error: must specify pool");
            return Err(self.usage());
        };
        let plan = Plan::parse(&self.args.load)?;
        let random = Rng::unseeded().map_err(|e| complain(1, format!("no randomness: {e}")))?;
        say(&format!("run length {} seconds", plan.given_length));
        say(&format!("preparing {} objects", plan.objects));
        let mut load = Load::new(io.clone(), plan, random);
        load.prepare().await?;
        say(&format!(
            "load-gen will run {} seconds",
            load.plan.length().as_secs()
        ));
        load.run().await;
        load.clean_up().await;
        Ok(())
    }
}
