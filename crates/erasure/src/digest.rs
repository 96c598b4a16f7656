//! Short digests of fragments that are coded as the fragments themselves.
//!
//! A digest takes its fragment as rows of [`FragmentDigest::LEN`] bytes and sums them up, each times a
//! coefficient that depends on the row's number and a seed. All sums are over GF(2^8), so the digest
//! of a coding unit's fragment is what the code makes of the data units' digests: members compare
//! fragments of any size without sending them. A wrong byte always shows; several in one column of
//! the rows cancel each other with a chance of 1 in 255 for each seed.

use std::collections::BTreeMap;

use crate::kernel::Kernel;
use crate::{Code, Unit, UnitSet};

/// The digest of a fragment.
#[derive(Debug, Clone)]
pub struct FragmentDigest {
    seed: u64,
    kernel: Kernel,
    sum: [u8; Self::LEN],
}

/// What the digests of an object's fragments say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The fragments belong together.
    Whole,
    /// This fragment is wrong: the others belong together without it.
    Wrong(Unit),
    /// Some fragment is wrong, and nothing tells which.
    Undecided,
}

impl FragmentDigest {
    /// The bytes of a digest.
    pub const LEN: usize = 64;

    /// The digest of nothing, or of zeros. Only digests of one seed can be compared.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            kernel: Kernel::best(),
            sum: [0; Self::LEN],
        }
    }

    /// Adds bytes of the fragment at an offset. Bytes that are not added count as zeros.
    pub fn add(&mut self, offset: u64, mut bytes: &[u8]) {
        let len = Self::LEN as u64;
        // Less than a row.
        let (mut row, mut column) = (offset / len, (offset % len) as usize);
        while !bytes.is_empty() {
            let here = bytes.len().min(Self::LEN - column);
            let (part, rest) = bytes.split_at(here);
            let sum = &mut self.sum[column..column + here];
            self.kernel.mul_add(coefficient(self.seed, row), sum, part);
            (bytes, row, column) = (rest, row + 1, 0);
        }
    }

    /// The digest.
    pub fn sum(&self) -> [u8; Self::LEN] {
        self.sum
    }
}

/// What a row is multiplied by: not 0. The mixing is that of `splitmix64`
/// (<https://prng.di.unimi.it/splitmix64.c>).
fn coefficient(seed: u64, row: u64) -> u8 {
    let mut n = seed.wrapping_add(row.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((n ^ n >> 31) % 255) as u8 + 1
}

impl Code {
    /// Judges fragments by their digests. Where all are there and one is wrong, which one it is
    /// shows with two coding units or more.
    pub fn judge(&self, digests: &BTreeMap<Unit, [u8; FragmentDigest::LEN]>) -> Verdict {
        let all: UnitSet = digests.keys().copied().collect();
        if self.agree(digests, all) {
            return Verdict::Whole;
        }
        let without = |unit: Unit| {
            let mut rest = all;
            rest.remove(unit);
            rest
        };
        // More than k must agree: any k do.
        let told = |unit: &Unit| {
            let rest = without(*unit);
            rest.len() > self.k() && self.agree(digests, rest)
        };
        let mut wrong = all.iter().filter(told);
        match (wrong.next(), wrong.next()) {
            (Some(unit), None) => Verdict::Wrong(unit),
            _ => Verdict::Undecided,
        }
    }

    /// Whether fragments belong together: the first k give all the others. Fewer always do.
    fn agree(&self, digests: &BTreeMap<Unit, [u8; FragmentDigest::LEN]>, units: UnitSet) -> bool {
        let Ok(plan) = self.plan(units, units) else {
            return true;
        };
        let of = |unit: &Unit| digests.get(unit).map_or(&[][..], |d| &d[..]);
        let sources: Vec<&[u8]> = plan.sources().iter().map(of).collect();
        let mut made = vec![[0; FragmentDigest::LEN]; plan.wanted().len()];
        let mut out: Vec<&mut [u8]> = made.iter_mut().map(|d| &mut d[..]).collect();
        plan.run(&sources, &mut out);
        let pairs = plan.wanted().iter().zip(&made);
        pairs.into_iter().all(|(unit, made)| of(unit) == made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CodeKind;

    /// The fragments of some data, `len` bytes each.
    fn fragments(code: &Code, len: usize) -> BTreeMap<Unit, Vec<u8>> {
        let byte = |unit: u8, at: usize| (at * 7 + at / 251 + usize::from(unit) * 31) as u8;
        let data: Vec<Vec<u8>> = (0..code.k())
            .map(|u| (0..len).map(|at| byte(u, at)).collect())
            .collect();
        let mut parity = vec![vec![0; len]; code.m().into()];
        let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut out: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        code.encode(&sources, &mut out);
        let data = (0..).map(Unit::Data).zip(data);
        data.chain((0..).map(Unit::Parity).zip(parity)).collect()
    }

    fn digest(fragment: &[u8], pieces: usize) -> [u8; FragmentDigest::LEN] {
        let mut d = FragmentDigest::new(42);
        for (i, piece) in fragment.chunks(pieces).enumerate() {
            d.add((i * pieces) as u64, piece);
        }
        d.sum()
    }

    fn digests(all: &BTreeMap<Unit, Vec<u8>>) -> BTreeMap<Unit, [u8; FragmentDigest::LEN]> {
        all.iter().map(|(unit, f)| (*unit, digest(f, 4096))).collect()
    }

    #[test]
    fn a_digest_does_not_depend_on_how_it_is_added_up() {
        let all = fragments(&Code::new(CodeKind::of(4, 2), 4, 2).unwrap(), 10_000);
        let one = &all[&Unit::Data(1)];
        for pieces in [1, 63, 64, 65, 1000] {
            assert_eq!(digest(one, pieces), digest(one, 10_000), "{pieces}");
        }
        let mut zeros = one.clone();
        zeros.extend([0; 500]);
        assert_eq!(digest(&zeros, 4096), digest(one, 4096));
        assert_ne!(digest(one, 4096), digest(&all[&Unit::Data(2)], 4096));
    }

    #[test]
    fn fragments_that_belong_together_do_so_by_their_digests() {
        for (k, m) in [(2, 1), (3, 2), (4, 2), (8, 4)] {
            let code = Code::new(CodeKind::of(k, m), k, m).unwrap();
            let all = digests(&fragments(&code, 9000));
            assert_eq!(code.judge(&all), Verdict::Whole, "{k}+{m}");
            // Any that are left do, too.
            for unit in all.keys() {
                let mut some = all.clone();
                some.remove(unit);
                assert_eq!(code.judge(&some), Verdict::Whole, "{k}+{m} without {unit:?}");
            }
        }
    }

    #[test]
    fn a_wrong_fragment_shows_and_with_two_coding_units_which_one_it_is() {
        for (k, m) in [(2, 1), (3, 2), (4, 2), (8, 4)] {
            let code = Code::new(CodeKind::of(k, m), k, m).unwrap();
            let all = fragments(&code, 9000);
            for unit in all.keys() {
                for at in [0, 4095, 8999] {
                    let mut bad = all.clone();
                    bad.get_mut(unit).unwrap()[at] ^= 1;
                    let told = if m > 1 {
                        Verdict::Wrong(*unit)
                    } else {
                        Verdict::Undecided
                    };
                    assert_eq!(code.judge(&digests(&bad)), told, "{k}+{m}, {unit:?} at {at}");
                }
                // An old block in its place, with all others as new.
                let mut stale = all.clone();
                stale.get_mut(unit).unwrap()[4096..8192].fill(7);
                assert_ne!(code.judge(&digests(&stale)), Verdict::Whole);
            }
        }
    }
}
