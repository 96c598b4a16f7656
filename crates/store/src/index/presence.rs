//! Which objects may exist: a Bloom filter of fixed size, so that creating an object needs no look-up.

use std::sync::atomic::{AtomicBool, Ordering};

use fastbloom::AtomicBloomFilter;
use hashbrown::DefaultHashBuilder;

use crate::ObjectKey;

/// Bits set for each object.
const HASHES: u32 = 5;
/// Objects are learnt while there are at least so many bits for each: with fewer, most answers would be "perhaps" anyway.
const MIN_BITS: u64 = 3;

/// Never says of an object that exists that it is missing.
pub(crate) struct Presence {
    filter: AtomicBloomFilter<DefaultHashBuilder>,
    /// All objects that were in the index when it was opened are in the filter.
    learnt: AtomicBool,
}

impl Presence {
    /// A filter of about `bytes`, which knows nothing yet.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            filter: AtomicBloomFilter::with_num_bits(bytes.max(64) * 8)
                .hasher(DefaultHashBuilder::default())
                .hashes(HASHES),
            learnt: AtomicBool::new(false),
        }
    }

    /// Whether it is worth learning that many objects.
    pub(crate) fn is_useful_for(&self, objects: u64) -> bool {
        objects.saturating_mul(MIN_BITS) <= self.filter.num_bits() as u64
    }

    /// Adds an object.
    pub(crate) fn insert(&self, key: &[u8]) {
        self.filter.insert(key);
    }

    /// Everything that is in the index has been inserted.
    pub(crate) fn set_learnt(&self) {
        self.learnt.store(true, Ordering::Release);
    }

    /// `false`: there is no such object.
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
        let key = |i: u32| ObjectKey::new(bytes::Bytes::from(format!("object {i}")));
        (0..10_000).for_each(|i| p.insert(key(i).as_slice()));
        p.set_learnt();
        assert!((0..10_000).all(|i| p.may_exist(&key(i))));
        let wrong = (10_000..20_000).filter(|i| p.may_exist(&key(*i))).count();
        assert!(wrong < 500, "{wrong} of 10,000");
    }
}
