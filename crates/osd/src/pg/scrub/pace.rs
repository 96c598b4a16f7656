//! How fast an OSD reads for scrubs, and how much it rests meanwhile: shared by its PGs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use spirula_denc::Micros;

use super::outlook::Speed;

/// Older measurements count for half after so much reading.
const RECENT: u64 = 30_000_000;
/// The bytes that must have been read before the speed counts as measured.
const ENOUGH: u64 = 16 << 20;

/// The pace of an OSD's scrubs, which the PGs of a reactor share.
#[derive(Debug, Clone, Default)]
pub struct ScrubPace(Arc<State>);

#[derive(Debug, Default)]
struct State {
    read: Work,
    looked: Work,
    /// How many times as long as it reads the OSD rests while clients work, and one more; 0 if
    /// nothing is known.
    rest: AtomicU32,
}

/// Work of one kind, and the time that it took.
#[derive(Debug, Default)]
struct Work {
    done: AtomicU64,
    /// Microseconds.
    took: AtomicU64,
}

impl Work {
    fn add(&self, done: u64, took: Micros) {
        let sum = self.took.fetch_add(took.count(), Ordering::Relaxed) + took.count();
        let all = self.done.fetch_add(done, Ordering::Relaxed) + done;
        if sum > RECENT {
            self.took.store(sum / 2, Ordering::Relaxed);
            self.done.store(all / 2, Ordering::Relaxed);
        }
    }

    fn sums(&self) -> (u64, f64) {
        let took = self.took.load(Ordering::Relaxed) as f64 / 1e6;
        (self.done.load(Ordering::Relaxed), took)
    }
}

impl ScrubPace {
    /// Notes that contents of so many bytes were read.
    pub(crate) fn read(&self, bytes: u64, took: Micros) {
        self.0.read.add(bytes, took);
    }

    /// Notes that so many objects were listed or looked up.
    pub(super) fn looked(&self, objects: u64, took: Micros) {
        self.0.looked.add(objects, took);
    }

    /// The speed of the last scrubs, once enough was read.
    pub(crate) fn speed(&self) -> Option<Speed> {
        let ((bytes, reading), (objects, looking)) = (self.0.read.sums(), self.0.looked.sums());
        (bytes >= ENOUGH && reading > 0.0).then(|| Speed {
            bytes: bytes as f64 / reading,
            look: looking / objects.max(1) as f64,
        })
    }

    /// Sets how many times as long as it reads the OSD is to rest.
    pub(crate) fn set_rest(&self, rest: u32) {
        self.0.rest.store(rest.saturating_add(1), Ordering::Relaxed);
    }

    /// How many times as long as it reads the OSD rests, if that is known.
    pub(super) fn rest(&self) -> Option<u32> {
        self.0.rest.load(Ordering::Relaxed).checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_is_that_of_the_last_reads() {
        let pace = ScrubPace::default();
        assert!(pace.speed().is_none() && pace.rest().is_none());
        let read = |n: u64, mib: u64, ms: u64| {
            (0..n).for_each(|_| pace.read(mib << 20, Micros::from_millis(ms)));
        };
        read(15, 1, 10);
        assert!(pace.speed().is_none(), "too little to tell");
        read(85, 1, 10);
        pace.looked(0, Micros::from_millis(5));
        pace.looked(1, Micros::from_millis(15));
        let speed = pace.speed().unwrap();
        assert_eq!(speed.bytes.round(), 104_857_600.0);
        assert_eq!(speed.look, 0.02);
        // The disk becomes slower by half.
        read(10_000, 1, 20);
        let now = pace.speed().unwrap().bytes / 1_048_576.0;
        assert!((50.0..51.0).contains(&now), "{now}");
        pace.set_rest(12);
        assert_eq!(pace.clone().rest(), Some(12));
    }
}
