//! The snapshots that are removed and trimmed everywhere: the OSDMap only has the recent ones.
//!
//! Keys: `POOL_LAST`, both in hexadecimal with leading zeros, for each maximal range of ids; the
//! value is the range's first id. A range is found by any id in it, as the first key that is not
//! before the id.

use spirula_denc::encode_to_vec;
use spirula_maps::{Interval, IntervalSet, PoolId, SnapId};

use super::stored;
use crate::core::LoadError;
use crate::kv::{KvRead, Txn};

const SERVICE: &str = "osd_snap";

fn key(pool: PoolId, last: SnapId) -> String {
    format!("{:016x}_{last:016x}", pool.unsigned())
}

/// The purged ranges of a pool as they were committed, with changes to be committed.
pub(crate) struct PurgedSnaps<'a> {
    kv: &'a dyn KvRead,
    pool: PoolId,
}

impl<'a> PurgedSnaps<'a> {
    pub(crate) fn new(kv: &'a dyn KvRead, pool: PoolId) -> Self {
        Self { kv, pool }
    }

    /// The range (first and last id) with the smallest last id that is not below `from`.
    fn range_from(&self, from: SnapId) -> Result<Option<(SnapId, SnapId)>, LoadError> {
        let Some((key, value)) = self.kv.next(SERVICE, &key(self.pool, from))? else {
            return Ok(None);
        };
        let Some((pool, last)) = key.split_once('_') else {
            return Err(LoadError::Missing("valid key of purged snapshots"));
        };
        let last = SnapId::from_str_radix(last, 16)
            .map_err(|_| LoadError::Missing("valid key of purged snapshots"))?;
        let first: SnapId = stored("purged snapshots", &value)?;
        Ok((u64::from_str_radix(pool, 16) == Ok(self.pool.unsigned())).then_some((first, last)))
    }

    /// Whether the snapshot is removed and trimmed everywhere.
    pub(crate) fn contains(&self, snap: SnapId) -> Result<bool, LoadError> {
        Ok(self.range_from(snap)?.is_some_and(|(first, _)| first <= snap))
    }

    /// All purged snapshots of the pool.
    pub(crate) fn all(&self) -> Result<IntervalSet, LoadError> {
        let mut all = IntervalSet::new();
        let mut from = 0;
        while let Some((first, last)) = self.range_from(from)? {
            all.insert_range(first, last - first + 1);
            from = last + 1;
        }
        Ok(all)
    }

    /// Adds snapshots. To be called once for each commit, as it does not see uncommitted changes.
    pub(crate) fn add(&self, snaps: &IntervalSet, txn: &mut Txn) -> Result<(), LoadError> {
        let mut all = snaps.clone();
        for added in snaps.ranges() {
            let end = added.end();
            let mut at = added.start.saturating_sub(1);
            while let Some((first, last)) = self.range_from(at)?.filter(|(first, _)| *first <= end) {
                txn.remove(SERVICE, key(self.pool, last));
                all.insert_range(first, last - first + 1);
                at = last + 1;
            }
        }
        for Interval { start, len } in all.ranges() {
            txn.put(SERVICE, key(self.pool, start + len - 1), encode_to_vec(&start));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kv::MemKv;

    proptest! {
        #[test]
        fn ranges_merge_and_are_found(adds in prop::collection::vec(prop::collection::btree_set(1u64..40, 1..6), 1..12)) {
            let mut kv = MemKv::default();
            let mut model = std::collections::BTreeSet::new();
            for (i, snaps) in adds.iter().enumerate() {
                model.extend(snaps);
                let mut txn = Txn::default();
                let set = snaps.iter().copied().collect();
                PurgedSnaps::new(&kv, PoolId::new(3)).add(&set, &mut txn).unwrap();
                PurgedSnaps::new(&kv, PoolId::new(4)).add(&[100 + i as u64].into_iter().collect(), &mut txn).unwrap();
                kv.apply(&txn);
                let purged = PurgedSnaps::new(&kv, PoolId::new(3));
                for s in 0..60 {
                    prop_assert_eq!(purged.contains(s).unwrap(), model.contains(&s));
                }
                let wanted: IntervalSet = model.iter().copied().collect();
                prop_assert_eq!(&purged.all().unwrap(), &wanted);
                // The other pool has one range.
                prop_assert_eq!(kv.scan(SERVICE).unwrap().len(), wanted.ranges().count() + 1);
            }
        }
    }
}
