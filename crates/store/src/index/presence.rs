//! A Bloom filter of fixed size that tells which objects may exist, so that creating an object
//! needs no look-up.

use std::sync::atomic::{AtomicBool, Ordering};

use fastbloom::AtomicBloomFilter;
use hashbrown::DefaultHashBuilder;

use crate::ObjectKey;

/// Bits set for each object.
const HASHES: u32 = 5;
/// Objects are inserted while there are at least this many bits for each: with fewer, most answers
/// would be "perhaps" anyway.
const MIN_BITS: u64 = 3;

/// The filter. It never misses an existing object.
pub(crate) struct Presence {
    filter: AtomicBloomFilter<DefaultHashBuilder>,
    /// Whether all objects of the index at its opening are in the filter.
    learnt: AtomicBool,
}

impl Presence {
    /// An empty filter of about `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            filter: AtomicBloomFilter::with_num_bits(bytes.max(64) * 8)
                .hasher(DefaultHashBuilder::default())
                .hashes(HASHES),
            learnt: AtomicBool::new(false),
        }
    }

    /// Whether inserting that many objects is worth it.
    pub(crate) fn is_useful_for(&self, objects: u64) -> bool {
        objects.saturating_mul(MIN_BITS) <= self.filter.num_bits() as u64
    }

    /// Adds an object.
    pub(crate) fn insert(&self, key: &[u8]) {
        self.filter.insert(key);
    }

    /// Notes that all objects of the index have been inserted.
    pub(crate) fn set_learnt(&self) {
        self.learnt.store(true, Ordering::Release);
    }

    /// `false` if there is no such object.
    pub(crate) fn may_exist(&self, key: &ObjectKey) -> bool {
        !self.learnt.load(Ordering::Acquire) || self.filter.contains(key.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_inserted_is_never_missing_and_most_others_are() {
        let p = Presence::new(16 << 10);
        assert!(p.may_exist(&"anything".into()));
        assert!(p.is_useful_for(40_000) && !p.is_useful_for(50_000));
        let key = |i: u32| ObjectKey::new(format!("object {i}").as_bytes());
        (0..10_000).for_each(|i| p.insert(key(i).as_slice()));
        p.set_learnt();
        assert!((0..10_000).all(|i| p.may_exist(&key(i))));
        let wrong = (10_000..20_000).filter(|i| p.may_exist(&key(*i))).count();
        assert!(wrong < 500, "{wrong} of 10,000");
    }
}
