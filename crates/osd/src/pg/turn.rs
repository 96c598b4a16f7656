//! The requests of clients that are under way on this OSD, counted by what they cost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spirula_denc::Micros;
use spirula_invariant::invariant;

/// What a request costs besides its bytes, in bytes.
pub const PER_OP: u64 = 16 << 10;
/// A request up to this cost is a small one.
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

/// Whether a request of this cost is a small one that large ones are to leave time for. What moves no
/// bytes, as the pings of watchers, is none.
pub fn is_small(cost: u64) -> bool {
    cost > PER_OP && cost <= SMALL
}

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
    /// Whether small requests began in this span, and in the one before.
    small: [AtomicBool; 2],
    rest: Mutex<Rest>,
}

/// The rest of large writes beside clients of small requests: in proportion to what the ones before
/// took, so that they have a share of the OSD's time.
#[derive(Debug, Default)]
struct Rest {
    /// When each of those that have ended since the last look began, and its cost.
    ended: Vec<(Micros, u64)>,
    /// Until when they rest.
    until: Micros,
    /// The time of the last look.
    now: Micros,
}

impl Rest {
    fn look(&mut self, now: Micros, proportion: impl FnOnce() -> f64) {
        self.now = now;
        if !self.ended.is_empty() {
            // Of several at a time each one has a part of the time.
            let part = |cost: u64| (cost as f64 / MOST_BESIDE_SMALL as f64).min(1.0);
            let took = |(began, cost)| now.saturating_sub(began).as_secs_f64() * part(cost);
            let took: f64 = self.ended.drain(..).map(took).sum();
            self.until = self.until.max(now) + Micros::from_secs_f64(took * proportion());
        }
        // What took longer has waited for something else.
        self.until = self.until.min(now + SPAN);
    }
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
            Load::LargeWrites if self.is_beside_small() => MOST_BESIDE_SMALL,
            Load::SmallWrites | Load::LargeWrites => MOST,
        }
    }

    /// Whether small requests have come lately.
    fn is_beside_small(&self) -> bool {
        self.small.iter().any(|s| s.load(Ordering::Relaxed))
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a further request with this load may begin, as of the last [`UnderWay::look`].
    pub fn has_room(&self, load: Load) -> bool {
        let rest = self.rest();
        let rests = load == Load::LargeWrites && rest.now < rest.until;
        !rests && self.cost(load) < self.most(load)
    }

    /// Counts a request of this cost that begins now.
    pub fn begin(self: &Arc<Self>, load: Load, cost: u64, now: Micros) -> Turn {
        let span = self.now.load(Ordering::Relaxed);
        if is_small(cost) {
            self.small[(span % 2) as usize].store(true, Ordering::Relaxed);
        }
        self.of_span(span)[load as usize].fetch_add(cost, Ordering::Relaxed);
        Turn {
            under_way: Arc::clone(self),
            began: now,
            span,
            load,
            cost,
        }
    }

    /// Notes whether several clients send requests.
    pub fn share(&self, shared: bool) {
        self.shared.store(shared, Ordering::Relaxed);
    }

    /// Forgets what has been under way for long at this time, and has large writes rest for those
    /// that have ended, for this proportion of what they took. Returns when more may begin even if
    /// none ends.
    pub fn look(&self, usec: Micros, proportion: impl FnOnce() -> f64) -> Micros {
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
        let mut rest = self.rest();
        rest.look(usec, proportion);
        let forgets = SPAN * (now + 1);
        if usec < rest.until {
            forgets.min(rest.until)
        } else {
            forgets
        }
    }
}

/// A request that counts as under way until this is dropped.
#[derive(Debug)]
pub struct Turn {
    under_way: Arc<UnderWay>,
    began: Micros,
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
            if self.load == Load::LargeWrites && self.is_shared() {
                self.under_way.rest().ended.push((self.began, self.cost));
            }
        }
    }
}
