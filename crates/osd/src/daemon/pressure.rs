//! The payload memory that is not lent while the process takes more than its target.
//!
//! The shares of memory leave [`FIXED_MEMORY`](super::config) for what nobody counts: the program,
//! the index's pages, what the allocator keeps because pieces of it are in use on most pages. A long
//! mix of requests can make that more. Then payloads get less, as they are what can wait.

use spirula_buf::BudgetUsage;

/// What the peak of other memory falls by in a second: it comes again soon.
const FADES: usize = 1 << 20;

/// What other memory may grow by before the next second, on a machine that is too busy to do anything
/// in time.
const GROWS: usize = 8 << 20;

/// The memory besides payloads, second by second.
pub(super) struct Pressure {
    /// The bytes of memory that the process may take.
    target: usize,
    /// The bytes that all payloads together may take, with those that are lent.
    payloads: usize,
    /// The most bytes besides payloads of late.
    others: usize,
}

impl Pressure {
    pub(super) fn new(target: usize, payloads: usize) -> Self {
        Self {
            target,
            payloads,
            others: 0,
        }
    }

    /// The bytes of payload memory that are not to be lent in the next second, if the process has
    /// `resident` bytes in memory now.
    pub(super) fn withheld(&mut self, resident: usize, payload: BudgetUsage) -> usize {
        let others = resident.saturating_sub(payload.in_use + payload.kept);
        self.others = others.max(self.others.saturating_sub(FADES));
        self.payloads
            .saturating_sub(self.target.saturating_sub(self.others + GROWS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn usage(in_use: usize, kept: usize) -> BudgetUsage {
        BudgetUsage {
            in_use,
            kept,
            withheld: 0,
        }
    }

    #[test]
    fn less_is_lent_as_other_memory_grows_and_more_when_that_has_gone() {
        let mut pressure = Pressure::new(128 * MIB, 39 * MIB);
        assert_eq!(pressure.withheld(22 * MIB, usage(0, 0)), 0);
        // Payloads themselves may be as many as they like.
        assert_eq!(pressure.withheld(111 * MIB, usage(20 * MIB, 10 * MIB)), 0);
        assert_eq!(pressure.withheld(111 * MIB, usage(10 * MIB, 10 * MIB)), 10 * MIB);
        assert_eq!(pressure.withheld(200 * MIB, usage(0, 0)), 39 * MIB);
        let others = 200 * MIB;
        for second in 1..200 {
            let most = (others - second * MIB).max(22 * MIB);
            let left = 120 * MIB - most.min(120 * MIB);
            let held = pressure.withheld(22 * MIB, usage(0, 0));
            assert_eq!(held, (39 * MIB).saturating_sub(left), "{second}");
        }
    }
}
