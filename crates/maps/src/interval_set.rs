//! `interval_set<snapid_t>` of Ceph's `src/include/interval_set.h`: a set of integers as disjoint
//! ranges.

use std::collections::BTreeMap;
use std::fmt;

use spirula_denc::{Decode, Encode, Error, Extent, Reader, Result, Writer};

/// A range of integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Interval {
    /// The first integer.
    pub start: u64,
    /// The number of integers.
    pub len: u64,
}

impl Interval {
    /// One past the last integer, at most `u64::MAX`.
    pub const fn end(self) -> u64 {
        self.start.saturating_add(self.len)
    }
}

/// The bytes of a set of positions.
impl From<Interval> for Extent {
    fn from(Interval { start, len }: Interval) -> Self {
        Self { offset: start, len }
    }
}

/// A set of 64-bit integers, stored and encoded as maximal ranges.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct IntervalSet {
    /// Start to length, disjoint and not adjacent.
    ranges: BTreeMap<u64, u64>,
}

impl IntervalSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self {
            ranges: BTreeMap::new(),
        }
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The maximal ranges, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = Interval> {
        let interval = |(start, len): (&u64, &u64)| Interval {
            start: *start,
            len: *len,
        };
        self.ranges.iter().map(interval)
    }

    /// The number of integers in the set.
    pub fn count(&self) -> u64 {
        self.ranges.values().fold(0, |n, l| n.saturating_add(*l))
    }

    /// Whether `v` is in the set.
    pub fn contains(&self, v: u64) -> bool {
        self.ranges
            .range(..=v)
            .next_back()
            .is_some_and(|(s, l)| v - s < *l)
    }

    /// Adds one integer.
    pub fn insert(&mut self, v: u64) {
        self.insert_range(v, 1);
    }

    /// Adds `len` integers from `start`; a range that would pass the largest integer ends there.
    pub fn insert_range(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (mut first, mut end) = (start, start.saturating_add(len));
        // Swallow every range that overlaps or touches the new one.
        while let Some((&s, &l)) = self.ranges.range(..=end).next_back() {
            if s.saturating_add(l) < first {
                break;
            }
            first = first.min(s);
            end = end.max(s.saturating_add(l));
            self.ranges.remove(&s);
        }
        self.ranges.insert(first, end - first);
    }

    /// Removes `len` integers from `start`; those that are not in the set are ignored.
    pub fn remove_range(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = start.saturating_add(len);
        while let Some((&s, &l)) = self.ranges.range(..end).next_back() {
            let e = s.saturating_add(l);
            if e <= start {
                break;
            }
            self.ranges.remove(&s);
            if s < start {
                self.ranges.insert(s, start - s);
            }
            if e > end {
                self.ranges.insert(end, e - end);
            }
        }
    }

    /// The integers in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::new();
        let (mut a, mut b) = (self.ranges().peekable(), other.ranges().peekable());
        while let (Some(x), Some(y)) = (a.peek().copied(), b.peek().copied()) {
            let (start, end) = (x.start.max(y.start), x.end().min(y.end()));
            both.insert_range(start, end.saturating_sub(start));
            if x.end() <= y.end() {
                a.next();
            } else {
                b.next();
            }
        }
        both
    }

    /// The smallest `n` integers of the set.
    pub fn first(&self, n: u64) -> Self {
        let mut some = Self::new();
        let mut left = n;
        for Interval { start, len } in self.ranges() {
            some.insert_range(start, len.min(left));
            left = left.saturating_sub(len);
            if left == 0 {
                break;
            }
        }
        some
    }

    /// Adds all of `other`.
    pub fn union(&mut self, other: &Self) {
        for Interval { start, len } in other.ranges() {
            self.insert_range(start, len);
        }
    }

    /// Removes all of `other`.
    pub fn subtract(&mut self, other: &Self) {
        for Interval { start, len } in other.ranges() {
            self.remove_range(start, len);
        }
    }
}

impl FromIterator<u64> for IntervalSet {
    fn from_iter<T: IntoIterator<Item = u64>>(iter: T) -> Self {
        let mut set = Self::new();
        iter.into_iter().for_each(|v| set.insert(v));
        set
    }
}

/// `[1~3,7~1]`, in hexadecimal as Ceph prints snapshot ids.
impl fmt::Display for IntervalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, Interval { start, len }) in self.ranges().enumerate() {
            write!(f, "{}{start:x}~{len:x}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("]")
    }
}

impl Encode for IntervalSet {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.ranges);
    }
}

impl Decode for IntervalSet {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let n = r.count(16)?;
        let mut set = Self::new();
        for _ in 0..n {
            let (start, len) = (r.u64()?, r.u64()?);
            if len == 0 || start.checked_add(len).is_none() {
                return Err(Error::Invalid("interval set"));
            }
            set.insert_range(start, len);
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_a_set_of_integers(ops in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..12), 0..40)) {
            let mut set = IntervalSet::new();
            let mut model = std::collections::BTreeSet::new();
            for (add, start, len) in ops {
                if add {
                    set.insert_range(start, len);
                    model.extend(start..start + len);
                } else {
                    set.remove_range(start, len);
                    model.retain(|v| !(start..start + len).contains(v));
                }
                prop_assert!((0..80).all(|v| set.contains(v) == model.contains(&v)));
                prop_assert_eq!(set.count(), model.len() as u64);
                let ranges: Vec<_> = set.ranges().collect();
                let odd: IntervalSet = (0..80).filter(|v| v % 7 < 3).collect();
                let both = set.intersection(&odd);
                prop_assert!((0..80).all(|v| both.contains(v) == (model.contains(&v) && v % 7 < 3)));
                let five: Vec<u64> = model.iter().copied().take(5).collect();
                prop_assert_eq!(set.first(5), five.into_iter().collect());
                prop_assert!(ranges.windows(2).all(|w| w[0].end() < w[1].start), "{:?}", ranges);
            }
        }
    }
}
