//! Alternative weights and ids for straw2 draws, per pool or for all pools.

use std::collections::BTreeMap;

use crate::{Bucket, Weights};

/// The key of the alternative weights that apply to every pool without its own
/// (`DEFAULT_CHOOSE_ARGS`, shown as "(compat)").
pub const DEFAULT_CHOOSE_ARGS: i64 = -1;

/// Replacements for one bucket's draws.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChooseArg {
    /// Weights by position in the result, then by item; the last set serves all further positions.
    /// Empty: the bucket's own weights.
    pub weight_sets: Vec<Vec<u32>>,
    /// Ids to hash in place of the items. Empty: the items themselves.
    pub ids: Vec<i32>,
}

impl ChooseArg {
    /// Whether nothing is replaced; such an entry is not encoded.
    pub fn is_empty(&self) -> bool {
        self.weight_sets.is_empty() && self.ids.is_empty()
    }

    /// The weights for a position in the result, where they fit the bucket.
    pub(crate) fn weights(&self, position: usize, len: usize) -> Option<&[u32]> {
        let set = self
            .weight_sets
            .get(position)
            .or_else(|| self.weight_sets.last())?;
        (set.len() == len).then_some(set)
    }

    /// The ids to hash, where they fit the bucket.
    pub(crate) fn ids(&self, len: usize) -> Option<&[i32]> {
        (self.ids.len() == len).then_some(&self.ids)
    }

    fn sums(&self) -> Vec<u32> {
        self.weight_sets
            .iter()
            .map(|s| s.iter().fold(0, |a: u32, w| a.saturating_add(*w)))
            .collect()
    }
}

/// One set of replacements, by bucket id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChooseArgs {
    /// Entries by bucket *index* (`-1 - id`), the order in which they are encoded.
    pub by_index: BTreeMap<u32, ChooseArg>,
}

/// A bucket's index from its id, for negative ids.
pub(crate) fn index_of(id: i32) -> Option<usize> {
    // !id == -1 - id
    (id < 0).then_some(!id as usize)
}

impl ChooseArgs {
    /// The replacements for a bucket.
    #[inline]
    pub fn get(&self, bucket: i32) -> Option<&ChooseArg> {
        if bucket < 0 {
            self.by_index.get(&(!bucket as u32))
        } else {
            None
        }
    }

    /// The replacements for a bucket, created where missing. `None` for a device.
    pub fn entry(&mut self, bucket: i32) -> Option<&mut ChooseArg> {
        (bucket < 0).then(|| self.by_index.entry(!bucket as u32).or_default())
    }

    /// Number of weight sets, taken from the first bucket that has any; 1 where none has.
    pub fn positions(&self) -> usize {
        self.by_index
            .values()
            .map(|a| a.weight_sets.len())
            .find(|n| *n > 0)
            .unwrap_or(1)
    }

    /// Drops entries of buckets that are gone or draw otherwise, and fits the length of weight
    /// sets.
    pub(crate) fn conform(&mut self, buckets: &[Option<Bucket>]) {
        self.by_index.retain(|index, arg| {
            let Some(Some(b)) = buckets.get(*index as usize) else {
                return false;
            };
            if !matches!(b.weights, Weights::Straw2(_)) {
                return false;
            }
            for set in &mut arg.weight_sets {
                set.resize(b.len(), 0);
            }
            !arg.is_empty()
        });
    }

    /// Adds weights for an item at the end of a bucket.
    pub(crate) fn item_added(&mut self, bucket: i32, item: i32, weight: u32) {
        let Some(arg) = self.entry(bucket) else { return };
        for set in &mut arg.weight_sets {
            set.push(weight);
        }
        if !arg.ids.is_empty() {
            arg.ids.push(item);
        }
    }

    /// Removes the weights of the item that was at `pos` of a bucket.
    pub(crate) fn item_removed(&mut self, bucket: i32, pos: usize) {
        let Some(arg) = self.entry(bucket) else { return };
        for set in &mut arg.weight_sets {
            if pos < set.len() {
                set.remove(pos);
            }
        }
        if pos < arg.ids.len() {
            arg.ids.remove(pos);
        }
    }

    /// The sums of a bucket's weight sets; empty where it has none.
    pub(crate) fn bucket_sums(&self, bucket: i32) -> Vec<u32> {
        self.get(bucket).map(ChooseArg::sums).unwrap_or_default()
    }

    /// Makes every bucket's weight in its parents' weight sets the sum of its own sets, from the
    /// bottom up. Straw2 buckets above ones with weight sets get them where they have none, as from
    /// their own weights.
    pub(crate) fn resum(&mut self, buckets: &[Option<Bucket>]) {
        let positions = self.positions();
        // Each pass settles at least one more level of the hierarchy.
        for _ in 0..buckets.len() {
            let mut changed = false;
            for b in buckets.iter().flatten() {
                changed |= self.resum_bucket(b, positions);
            }
            if !changed {
                return;
            }
        }
    }

    fn resum_bucket(&mut self, b: &Bucket, positions: usize) -> bool {
        let Weights::Straw2(own) = &b.weights else {
            return false;
        };
        let mut changed = false;
        for (pos, child) in b.items.iter().enumerate().filter(|(_, i)| **i < 0) {
            let sums = self.bucket_sums(*child);
            if sums.is_empty() {
                continue;
            }
            let arg = self.by_index.entry(!b.id as u32).or_default();
            if arg.weight_sets.is_empty() {
                arg.weight_sets = vec![own.clone(); positions];
            }
            if arg.weight_sets.len() != sums.len() {
                continue;
            }
            for (slot, sum) in arg
                .weight_sets
                .iter_mut()
                .filter_map(|s| s.get_mut(pos))
                .zip(sums)
            {
                changed |= *slot != sum;
                *slot = sum;
            }
        }
        changed
    }
}
