//! What watches and notifications of all PGs of a reactor take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Counts the memory, and numbers the notifications.
#[derive(Debug, Clone, Default)]
pub struct WatchMemory(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicUsize,
    notifications: AtomicU32,
}

/// Memory that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    of: WatchMemory,
    bytes: usize,
}

impl WatchMemory {
    /// Counts `bytes`, unless that makes more than `limit`.
    pub(super) fn take(&self, bytes: usize, limit: usize) -> Option<Charge> {
        let charge = self.take_always(bytes);
        (self.0.bytes.load(Ordering::Relaxed) <= limit).then_some(charge)
    }

    /// Counts `bytes` that are in use anyway.
    pub(super) fn take_always(&self, bytes: usize) -> Charge {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        Charge {
            of: self.clone(),
            bytes,
        }
    }

    /// The number of the next notification.
    pub(super) fn next_number(&self) -> u32 {
        self.0.notifications.fetch_add(1, Ordering::Relaxed)
    }
}

impl Charge {
    /// Counts `other` as part of this.
    pub(super) fn merge(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.of.0.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_until_it_is_dropped() {
        let memory = WatchMemory::default();
        let mut a = memory.take(60, 100).unwrap();
        assert!(memory.take(41, 100).is_none());
        a.merge(memory.take(40, 100).unwrap());
        assert!(memory.take(1, 100).is_none());
        let always = memory.take_always(500);
        drop(a);
        assert!(memory.take(1, 100).is_none());
        drop(always);
        assert!(memory.take(100, 100).is_some());
    }
}
