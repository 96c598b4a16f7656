//! Chance, of two kinds: [`fill`] takes the system's, which nobody can guess; an [`Rng`] gives the
//! same numbers for a seed on every machine, for simulations, tests and benchmarks.

use std::io;

/// Fills `bytes` from the operating system's generator.
///
/// # Errors
/// The system has none to give; nothing that must not be guessed may be done without it.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::from)
}

/// xorshift64* (<https://www.jstatsoft.org/article/view/v008i14>): spread, no secrecy.
///
/// The tests of deliberate bugs and of random histories name seeds: another sequence is another
/// test.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds shall have nothing in common.
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((z ^ (z >> 31)) | 1)
    }

    /// A generator that is another one each time.
    ///
    /// # Errors
    /// Those of [`fill`].
    pub fn unseeded() -> io::Result<Self> {
        let mut seed = [0; 8];
        fill(&mut seed)?;
        Ok(Self::new(u64::from_le_bytes(seed)))
    }

    /// A number of 56 bits.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    /// A number below `n`, or 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.number() % n.max(1)
    }

    /// A place in a list of `len`, or 0.
    pub fn index(&mut self, len: usize) -> usize {
        // Below `len`, so it fits.
        self.below(len as u64) as usize
    }

    /// A number from `from` to before `to`; `from` where there is none between.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from))
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these, if there is one.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let at = self.index(from.len());
        from.get(at)
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.number() as u8).collect()
    }

    /// Another generator, which does not depend on how often this one is asked.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.number())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const NUMBERS: [u64; 3] = [0x4b_46a5_5df3_611b, 0xd7_e1f1_410e_763e, 0x5f_14ec_6697_5f9b];

    #[test]
    fn a_seed_gives_the_same_numbers_on_every_machine() {
        let mut rng = Rng::new(1);
        let numbers: Vec<u64> = (0..3).map(|_| rng.number()).collect();
        assert_eq!(numbers, NUMBERS);
        assert_ne!(Rng::new(2).number(), NUMBERS[0]);
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_its_ends() {
        let mut rng = Rng::unseeded().unwrap();
        let seen: BTreeSet<u64> = (0..1000).map(|_| rng.between(3, 7)).collect();
        assert_eq!(seen, (3..7).collect());
        assert_eq!((rng.between(5, 5), rng.between(5, 4), rng.below(0)), (5, 5, 0));
        assert_eq!((rng.index(0), rng.pick::<u8>(&[])), (0, None));
        assert!(rng.below(u64::MAX) < 1 << 56);
    }

    #[test]
    fn the_system_gives_other_bytes_each_time() {
        let [mut a, mut b] = [[0; 16]; 2];
        fill(&mut a).unwrap();
        fill(&mut b).unwrap();
        assert_ne!(a, b);
    }
}
