//! The requests of clients that are under way on this OSD, counted by what they cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use spirula_denc::Micros;
use spirula_invariant::invariant;

/// A write up to this cost is a small one.
const SMALL: u64 = 128 << 10;
/// The time after which a request is forgotten, or twice as much.
const SPAN: Micros = Micros::from_millis(250);
/// The cost of writes under way, of small ones and of large ones, from which on others wait.
const MOST: u64 = 6 << 20;
/// The cost of large writes from which on others wait while there are small ones: one of the size
/// that RBD and CephFS use at a time.
const MOST_BESIDE_SMALL: u64 = 4 << 20;
/// The number of loads.
pub const LOADS: usize = 3;

/// What a request puts on the OSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// A write that costs up to 128 KiB.
    SmallWrites = 0,
    /// Another write.
    LargeWrites = 1,
    /// A read.
    Reads = 2,
}

impl Load {
    /// All loads.
    pub const ALL: [Self; LOADS] = [Self::SmallWrites, Self::LargeWrites, Self::Reads];

    /// The load of a request of this cost, in bytes.
    pub fn of(writes: bool, cost: u64) -> Self {
        match (writes, cost <= SMALL) {
            (false, _) => Self::Reads,
            (true, true) => Self::SmallWrites,
            (true, false) => Self::LargeWrites,
        }
    }
}

/// The cost of requests under way. What has been under way for a quarter of a second, or half of one,
/// is forgotten: it waits for something else than this OSD, and keeps nobody waiting.
#[derive(Debug, Default)]
pub struct UnderWay {
    /// The number of the span of time.
    now: AtomicU64,
    /// Whether they are of several clients.
    shared: AtomicBool,
    /// The cost of requests that began in this span, and in the one before.
    costs: [[AtomicU64; LOADS]; 2],
    /// Whether small writes began in this span, and in the one before.
    small: [AtomicBool; 2],
}

impl UnderWay {
    fn of_span(&self, span: u64) -> &[AtomicU64; LOADS] {
        &self.costs[(span % 2) as usize]
    }

    /// The cost of the requests with a load that are under way, in bytes.
    pub fn cost(&self, load: Load) -> u64 {
        let of = |costs: &[AtomicU64; LOADS]| costs[load as usize].load(Ordering::Relaxed);
        self.costs.iter().map(of).sum()
    }

    /// The cost of the requests with a load under way from which on others wait. Reads wait for
    /// nothing here.
    pub fn most(&self, load: Load) -> u64 {
        match load {
            Load::Reads => u64::MAX,
            Load::LargeWrites if self.small.iter().any(|s| s.load(Ordering::Relaxed)) => MOST_BESIDE_SMALL,
            Load::SmallWrites | Load::LargeWrites => MOST,
        }
    }

    /// Counts a request of this cost from now on.
    pub fn begin(self: &Arc<Self>, load: Load, cost: u64) -> Turn {
        let span = self.now.load(Ordering::Relaxed);
        if load == Load::SmallWrites {
            self.small[(span % 2) as usize].store(true, Ordering::Relaxed);
        }
        self.of_span(span)[load as usize].fetch_add(cost, Ordering::Relaxed);
        Turn {
            under_way: Arc::clone(self),
            span,
            load,
            cost,
        }
    }

    /// Notes whether several clients send requests.
    pub fn share(&self, shared: bool) {
        self.shared.store(shared, Ordering::Relaxed);
    }

    /// Forgets what has been under way for long at this time. Returns when it does so again.
    pub fn forget(&self, usec: Micros) -> Micros {
        let now = usec.count() / SPAN.count();
        let before = self.now.load(Ordering::Relaxed);
        // All that began two spans ago, or earlier.
        for span in (before + 1..=now).rev().take(2) {
            self.of_span(span)
                .iter()
                .for_each(|c| c.store(0, Ordering::Relaxed));
            self.small[(span % 2) as usize].store(false, Ordering::Relaxed);
        }
        self.now.store(now.max(before), Ordering::Relaxed);
        SPAN * (now + 1)
    }
}

/// A request that counts as under way until this is dropped.
#[derive(Debug)]
pub struct Turn {
    under_way: Arc<UnderWay>,
    /// The span of time in which the request began.
    span: u64,
    load: Load,
    cost: u64,
}

impl Turn {
    /// Whether several clients send requests.
    pub fn is_shared(&self) -> bool {
        self.under_way.shared.load(Ordering::Relaxed)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let now = self.under_way.now.load(Ordering::Relaxed);
        if now - self.span < 2 {
            let cost = &self.under_way.of_span(self.span)[self.load as usize];
            let before = cost.fetch_sub(self.cost, Ordering::Relaxed);
            invariant!(before >= self.cost, "what is under way to end once"; before = before, cost = self.cost);
        }
    }
}
