//! Pseudo-random numbers for benchmarks.

use std::cell::Cell;

/// xorshift64 (G. Marsaglia, 2003): well spread, not secret.
pub(crate) struct Random(Cell<u64>);

impl Random {
    /// Another sequence in each process.
    pub(crate) fn new() -> Self {
        let seed = spirula_denc::UTime::now().nsec ^ std::process::id();
        Self(Cell::new(u64::from(seed) | 1))
    }

    /// The next number.
    pub(crate) fn next(&self) -> u64 {
        let mut x = self.0.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.set(x);
        x
    }

    /// A number from `least` to `most`, both included; `least` if that is not smaller.
    pub(crate) fn between(&self, least: u64, most: u64) -> u64 {
        match most.checked_sub(least) {
            None | Some(0) => least,
            Some(u64::MAX) => self.next(),
            Some(span) => least + self.next() % (span + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_their_range_and_reach_its_ends() {
        let r = Random::new();
        let seen: std::collections::BTreeSet<u64> = (0..1000).map(|_| r.between(3, 6)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert_eq!(r.between(5, 5), 5);
        assert_eq!(r.between(5, 4), 5);
        r.between(0, u64::MAX);
    }
}
