//! The requests of clients that are under way on this OSD, counted by what they cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use spirula_invariant::invariant;

/// A request up to this cost is a small one.
const SMALL: u64 = 128 << 10;
/// The number of sizes.
pub const SIZES: usize = 2;

/// The size of a request, by its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Up to 128 KiB.
    Small = 0,
    /// Larger ones.
    Large = 1,
}

impl Size {
    /// All sizes.
    pub const ALL: [Self; SIZES] = [Self::Small, Self::Large];

    /// The size of a request of this cost, in bytes.
    pub fn of(cost: u64) -> Self {
        if cost <= SMALL { Self::Small } else { Self::Large }
    }
}

/// The cost of requests under way. What is under way for more than a second or two is forgotten: it
/// waits for something else than this OSD, and keeps nobody waiting.
#[derive(Debug, Default)]
pub struct UnderWay {
    /// The number of the second.
    now: AtomicU64,
    /// Whether they are of several clients.
    shared: AtomicBool,
    /// The cost of requests that began in this second, and in the one before.
    costs: [[AtomicU64; SIZES]; 2],
}

impl UnderWay {
    fn of_second(&self, second: u64) -> &[AtomicU64; SIZES] {
        &self.costs[(second % 2) as usize]
    }

    /// The cost of the requests of a size that are under way, in bytes.
    pub fn cost(&self, size: Size) -> u64 {
        self.costs
            .iter()
            .map(|c| c[size as usize].load(Ordering::Relaxed))
            .sum()
    }

    /// Counts a request of this cost from now on.
    pub fn begin(self: &Arc<Self>, cost: u64) -> Turn {
        let second = self.now.load(Ordering::Relaxed);
        self.of_second(second)[Size::of(cost) as usize].fetch_add(cost, Ordering::Relaxed);
        Turn {
            under_way: Arc::clone(self),
            second,
            cost,
        }
    }

    /// Notes whether several clients send requests.
    pub fn share(&self, shared: bool) {
        self.shared.store(shared, Ordering::Relaxed);
    }

    /// Begins the next second.
    pub fn tick(&self) {
        let next = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        let forgotten = self.of_second(next);
        forgotten.iter().for_each(|c| c.store(0, Ordering::Relaxed));
    }
}

/// A request that counts as under way until this is dropped.
#[derive(Debug)]
pub struct Turn {
    under_way: Arc<UnderWay>,
    /// The second in which the request began.
    second: u64,
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
        if now - self.second < 2 {
            let size = Size::of(self.cost) as usize;
            let before = self.under_way.of_second(self.second)[size].fetch_sub(self.cost, Ordering::Relaxed);
            invariant!(before >= self.cost, "what is under way to end once"; before = before, cost = self.cost);
        }
    }
}
