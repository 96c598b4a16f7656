//! When the allocator is to give back what is free.
//!
//! It keeps what was freed for a while, and for ever where it is not called any more. That costs nothing while requests are
//! small, as the next one uses the memory again. Large values differ: they come in several sizes and copies, so
//! what one has left is of no use to the next. Those that are only read come again and again, so memory goes back when the OSD is idle.

/// Bytes of large values that were written after which it is worth the while.
const ENOUGH: usize = 8 << 20;
/// A value from which on it is large.
pub(super) const LARGE: usize = 64 << 10;
/// Calls of the store in a second that are next to nothing.
const FEW_CALLS: u64 = 64;

/// What has gone through the allocator's memory.
#[derive(Debug, Default)]
pub(super) struct Heap {
    /// Bytes of large values since memory was last given back.
    passed: usize,
    /// Whether large values have come that the store's index may not have taken in yet, and how often it had taken something in then.
    on_the_way: Option<u64>,
    /// Calls of the store at the last tick, and when memory was last given back.
    calls: u64,
    given_back: u64,
}

impl Heap {
    /// So many bytes of large values have come, which lie in no buffer of a pool.
    fn pass(&mut self, bytes: usize) {
        self.passed += bytes;
    }

    /// Bytes of large values have come that go on to the store's index, which has taken something in so often.
    pub(super) fn pass_to_index(&mut self, bytes: usize, taken_in: u64) {
        self.pass(bytes);
        self.on_the_way = Some(taken_in);
    }

    /// Whether memory is to be given back now, as large values have gone: many have passed, or the index has taken some in.
    pub(super) fn is_due(&mut self, taken_in: u64) -> bool {
        let indexed = self.on_the_way.is_some_and(|before| taken_in > before);
        if indexed {
            self.on_the_way = None;
        }
        let due = indexed || self.passed >= ENOUGH;
        if due {
            self.passed = 0;
        }
        due
    }

    /// A second has passed, and the store was called so often since it was opened. Whether memory is to be given back: the OSD is
    /// idle, and was not when that last happened.
    pub(super) fn tick(&mut self, calls: u64) -> bool {
        let is_idle = calls.abs_diff(self.calls) <= FEW_CALLS;
        self.calls = calls;
        let has_worked = self.passed > 0 || calls.abs_diff(self.given_back) > FEW_CALLS;
        if !is_idle || !has_worked {
            return false;
        }
        self.passed = 0;
        self.given_back = calls;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_after_large_values_and_when_work_has_ended() {
        let mut heap = Heap::default();
        assert!(!heap.is_due(0) && !heap.tick(10));
        for _ in 0..3 {
            heap.pass(ENOUGH / 4);
            assert!(!heap.is_due(0));
        }
        heap.pass(ENOUGH / 4);
        assert!(heap.is_due(0) && !heap.is_due(0));
        heap.pass_to_index(LARGE, 3);
        assert!(!heap.is_due(3) && heap.is_due(4) && !heap.is_due(5));
        assert!(!heap.tick(1000), "at work");
        assert!(heap.tick(1010) && !heap.tick(1020), "once");
        // A little now and then adds up.
        assert!(!heap.tick(1060) && heap.tick(1100));
        heap.pass(LARGE);
        assert!(heap.tick(1100));
    }
}
