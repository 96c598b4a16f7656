//! When to make the allocator return free memory.
//!
//! The allocator keeps freed memory for a while, and for ever if it is not called any more. That
//! costs nothing while requests are small, as the next one uses the memory again. Large values
//! differ: they come in several sizes and copies, so that the memory of one is of no use to the
//! next. Large values that are only read come again and again, so memory is returned when the OSD
//! is idle.

/// The bytes of large values written after which returning memory is worth the while.
const ENOUGH: usize = 8 << 20;
/// The size from which on a value is large.
pub(super) const LARGE: usize = 64 << 10;
/// At most this many calls of the store in a second are next to nothing.
const FEW_CALLS: u64 = 64;

/// The large values that have gone through the allocator's memory.
#[derive(Debug, Default)]
pub(super) struct Heap {
    /// The bytes of large values since memory was last returned.
    passed: usize,
    /// How often the store's index had taken something in when the last large values came that it
    /// may not have taken in yet; `None` if there are no such values.
    on_the_way: Option<u64>,
    /// The calls of the store at the last tick, and at the time when memory was last returned.
    calls: u64,
    given_back: u64,
}

impl Heap {
    /// Notes `bytes` of large values that lie in no buffer of a pool.
    fn pass(&mut self, bytes: usize) {
        self.passed += bytes;
    }

    /// Notes `bytes` of large values that go on to the store's index, which has taken something in
    /// `taken_in` times.
    pub(super) fn pass_to_index(&mut self, bytes: usize, taken_in: u64) {
        self.pass(bytes);
        self.on_the_way = Some(taken_in);
    }

    /// Whether to return memory now, as large values have gone: many have passed, or the index has
    /// taken some in.
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

    /// Notes that a second has passed; the store was called `calls` times since it was opened.
    /// Returns whether to return memory: the OSD is idle, and was not when that last happened.
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
