//! How many PGs an OSD scrubs at a time, as their primary or as a member.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The scrubs under way on an OSD, which the PGs of a reactor count together.
#[derive(Debug, Clone, Default)]
pub struct ScrubSlots(Arc<Slots>);

/// A scrub that counts as under way until this is dropped.
#[derive(Debug)]
pub struct ScrubSlot(Arc<Slots>);

#[derive(Debug, Default)]
struct Slots {
    taken: AtomicUsize,
    /// Whether scheduled scrubs are to wait for other hours.
    closed: AtomicBool,
}

impl ScrubSlots {
    /// Begins a scrub if fewer than `most` are under way.
    pub(crate) fn take(&self, most: usize) -> Option<ScrubSlot> {
        let more = |n: usize| (n < most).then_some(n + 1);
        self.0
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        Some(ScrubSlot(Arc::clone(&self.0)))
    }

    /// The number of scrubs under way.
    pub(crate) fn taken(&self) -> usize {
        self.0.taken.load(Ordering::Relaxed)
    }

    /// Sets whether scheduled scrubs are permitted at this hour.
    pub(crate) fn permit(&self, permitted: bool) {
        self.0.closed.store(!permitted, Ordering::Relaxed);
    }
}

impl ScrubSlot {
    /// Whether scheduled scrubs are permitted at this hour.
    pub(super) fn is_permitted(&self) -> bool {
        !self.0.closed.load(Ordering::Relaxed)
    }
}

impl Drop for ScrubSlot {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_under_way_than_may_be() {
        let slots = ScrubSlots::default();
        let first = slots.take(2);
        let second = slots.clone().take(2);
        assert!(first.is_some() && second.is_some() && slots.take(2).is_none());
        drop(first);
        assert_eq!(slots.taken(), 1);
        assert!(slots.take(2).is_some());
    }
}
