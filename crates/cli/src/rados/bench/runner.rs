//! Keeps a number of operations under way and measures them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use spirula_client::{Error, IoCtx, Result};
use spirula_denc::encode_to_vec;
use spirula_proto::osd::{AllocHintArgs, AllocHintFlags, ExtentArgs, OpArgs, OpCode, OsdOpIn, XattrArgs};
use spirula_proto::osd_op_data::{OmapVals, XattrInput};
use spirula_random::Rng;
use tokio::task::JoinSet;

use super::Destination;
use super::names::{self, Run};
use super::stats::Stats;

/// Pause between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// The kind of operation that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Seq,
    Rand,
}

/// A benchmark to run.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) run: Run,
    pub(super) to: Destination,
    pub(super) hints: bool,
    pub(super) verify: bool,
    pub(super) concurrent: usize,
    pub(super) time: Duration,
    /// The most operations.
    pub(super) most: u64,
}

/// A benchmark under way.
pub(super) struct Progress {
    plan: Plan,
    pub(super) start: Instant,
    pub(super) stats: RefCell<Stats>,
    /// Blocks that did not read back as they were written.
    pub(super) errors: Cell<u64>,
    random: RefCell<Rng>,
}

impl Progress {
    /// The number of the next operation, `None` at the end. The first of each worker always runs,
    /// so that a benchmark of zero seconds measures something.
    fn next(&self, first: bool) -> Option<u64> {
        let mut stats = self.stats.borrow_mut();
        let over = !first && self.start.elapsed() >= self.plan.time;
        if over || stats.started >= self.plan.most {
            return None;
        }
        let number = stats.started;
        stats.started += 1;
        drop(stats);
        if self.plan.kind != Kind::Rand {
            return Some(number);
        }
        Some(self.random.borrow_mut().below(self.plan.run.operations))
    }

    fn place(&self, number: u64) -> (String, u64) {
        let run = &self.plan.run;
        let object = names::object(run.pid, number / run.per_object());
        (object, run.op_size * (number % run.per_object()))
    }

    fn write_ops(&self, offset: u64, data: &Bytes) -> Vec<OsdOpIn> {
        let (run, to) = (&self.plan.run, &self.plan.to);
        let mut ops = Vec::with_capacity(2);
        if to.data && self.plan.hints {
            let flags = AllocHintFlags::SEQUENTIAL_WRITE
                .with(AllocHintFlags::SEQUENTIAL_READ)
                .with(AllocHintFlags::APPEND_ONLY)
                .with(AllocHintFlags::IMMUTABLE);
            let hint = AllocHintArgs {
                expected_object_size: run.object_size,
                expected_write_size: run.op_size,
                flags,
            };
            ops.push(OsdOpIn::new(
                OpCode::SETALLOCHINT,
                OpArgs::AllocHint(hint),
                Bytes::new(),
            ));
        }
        if to.data {
            let extent = ExtentArgs {
                offset,
                length: data.len() as u64,
                ..ExtentArgs::default()
            };
            ops.push(OsdOpIn::new(OpCode::WRITE, OpArgs::Extent(extent), data.clone()));
        }
        if to.omap {
            let key = format!("bench-omap-key-{offset}");
            let values = OmapVals::from([(key.into(), data.clone())]);
            ops.push(OsdOpIn::new(
                OpCode::OMAPSETVALS,
                OpArgs::None,
                encode_to_vec(&values),
            ));
        }
        if to.xattr {
            let key = format!("bench-xattr-key-{offset}");
            ops.push(XattrInput::op(
                OpCode::SETXATTR,
                key.as_bytes(),
                data,
                XattrArgs::default(),
            ));
        }
        ops
    }

    async fn write(&self, io: &IoCtx, number: u64, block: BytesMut) -> Result<BytesMut> {
        let mut block = block;
        names::fill(&mut block, number);
        let (object, offset) = self.place(number);
        let data = block.freeze();
        let start = Instant::now();
        let ops = self.write_ops(offset, &data);
        io.operate("write", &object, ops).await?;
        self.stats.borrow_mut().finish(start.elapsed());
        // The block is ours again once the messenger has let go of it.
        Ok(data
            .try_into_mut()
            .unwrap_or_else(|_| names::block(self.plan.run.op_size)))
    }

    async fn read(&self, io: &IoCtx, number: u64, expected: &mut BytesMut) -> Result<()> {
        let (object, offset) = self.place(number);
        let start = Instant::now();
        let data = io
            .read(&object, offset, self.plan.run.op_size)
            .await
            .inspect_err(|e| {
                eprintln!("read got {}", -e.errno());
            })?;
        self.stats.borrow_mut().finish(start.elapsed());
        if self.plan.verify {
            names::fill(expected, number);
            if data != expected[..] {
                eprintln!("{object} is not correct!");
                self.errors.set(self.errors.get() + 1);
            }
        }
        Ok(())
    }

    async fn work(self: Rc<Self>, io: IoCtx) -> Result<()> {
        let mut block = names::block(self.plan.run.op_size);
        let mut first = true;
        while let Some(number) = self.next(first) {
            first = false;
            if self.plan.kind == Kind::Write {
                block = self.write(&io, number, block).await?;
            } else {
                self.read(&io, number, &mut block).await?;
            }
        }
        Ok(())
    }
}

/// Runs a benchmark; `tick` is called at once and every second.
pub(super) async fn run(io: &IoCtx, plan: Plan, mut tick: impl FnMut(&Progress)) -> Result<Rc<Progress>> {
    let concurrent = plan.concurrent;
    let random = Rng::unseeded().map_err(|e| Error::Config(format!("no randomness: {e}")))?;
    let progress = Rc::new(Progress {
        stats: RefCell::new(Stats::new(plan.run.op_size, plan.run.object_size)),
        plan,
        start: Instant::now(),
        errors: Cell::new(0),
        random: RefCell::new(random),
    });
    let mut workers = JoinSet::new();
    for _ in 0..concurrent {
        workers.spawn_local(Rc::clone(&progress).work(io.clone()));
    }
    // Lets the workers begin, so that the first line shows operations under way.
    tokio::task::yield_now().await;
    let mut interval = tokio::time::interval(INTERVAL);
    loop {
        tokio::select! {
            done = workers.join_next() => match done {
                None => return Ok(progress),
                Some(Ok(done)) => done?,
                Some(Err(e)) => {
                    tracing::error!("{e}");
                    return Err(Error::Os { what: "benchmark", errno: spirula_client::errno::EIO });
                }
            },
            _ = interval.tick() => tick(&progress),
        }
    }
}
