//! Changes of weights, and the values derived from them.

use crate::{Bucket, CrushMap, Error, Result};

impl CrushMap {
    /// Sets the weight of an item wherever it is, and of all buckets above; returns the number of
    /// buckets that hold it.
    ///
    /// # Errors
    /// [`Error::NoSuchItem`] where nothing holds it; [`Error::WeightOverflow`].
    pub fn adjust_item_weight(&mut self, item: i32, weight: u32) -> Result<usize> {
        self.edit(|map| {
            let holders: Vec<i32> = map
                .iter_buckets()
                .filter(|b| b.items.contains(&item))
                .map(|b| b.id)
                .collect();
            if holders.is_empty() {
                return Err(Error::NoSuchItem);
            }
            for bucket in &holders {
                map.set_weight_in(*bucket, item, weight, true)?;
            }
            map.reweighed()?;
            Ok(holders.len())
        })
    }

    /// Sets the weight of every device below a bucket; returns their number.
    ///
    /// # Errors
    /// [`Error::NoSuchItem`], [`Error::WeightOverflow`].
    pub fn adjust_subtree_weight(&mut self, bucket: i32, weight: u32) -> Result<usize> {
        self.edit(|map| {
            map.bucket(bucket).ok_or(Error::NoSuchItem)?;
            let inside: Vec<(i32, i32)> = map
                .iter_buckets()
                .filter(|b| map.subtree_contains(bucket, b.id))
                .flat_map(|b| b.items.iter().filter(|d| **d >= 0).map(|d| (b.id, *d)))
                .collect();
            for (holder, device) in &inside {
                map.set_weight_in(*holder, *device, weight, true)?;
            }
            map.reweighed()?;
            Ok(inside.len())
        })
    }

    /// Recomputes the weight of every bucket from its items' (`ceph osd crush reweight-all`).
    ///
    /// # Errors
    /// [`Error::WeightOverflow`].
    pub fn reweight_all(&mut self) -> Result<()> {
        self.edit(|map| {
            map.buckets.iter_mut().flatten().try_for_each(Bucket::recount)?;
            let leaves: Vec<i32> = map
                .iter_buckets()
                .filter(|b| b.items.iter().all(|i| *i >= 0))
                .map(|b| b.id)
                .collect();
            leaves.into_iter().try_for_each(|id| map.propagate(id))?;
            map.reweighed()
        })
    }

    /// Converts all straw buckets to straw2, whose weights do not influence each other.
    ///
    /// # Errors
    /// Where the map was invalid before.
    pub fn straw_to_straw2(&mut self) -> Result<()> {
        self.edit(|map| {
            map.buckets.iter_mut().flatten().for_each(Bucket::straw_to_straw2);
            Ok(())
        })
    }

    /// Sets an item's weight in one bucket and updates the sums above; returns whether the bucket
    /// holds the item.
    pub(crate) fn set_weight_in(
        &mut self,
        bucket: i32,
        item: i32,
        weight: u32,
        weight_sets: bool,
    ) -> Result<bool> {
        let version = self.tunables.straw_calc_version;
        let Ok(b) = self.bucket_mut(bucket) else {
            return Ok(false);
        };
        let Some(pos) = b.position(item) else {
            return Ok(false);
        };
        b.set_item_weight(pos, weight, version)?;
        if weight_sets {
            for set in self
                .choose_args
                .values_mut()
                .filter_map(|a| a.by_index.get_mut(&(!bucket as u32)))
            {
                set.weight_sets
                    .iter_mut()
                    .filter_map(|s| s.get_mut(pos))
                    .for_each(|slot| *slot = weight);
            }
        }
        self.propagate(bucket)?;
        Ok(true)
    }

    /// Updates the weights of all buckets above a bucket.
    pub(crate) fn propagate(&mut self, bucket: i32) -> Result<()> {
        let Some(weight) = self.bucket(bucket).map(|b| b.weight) else {
            return Ok(());
        };
        let above: Vec<i32> = self
            .iter_buckets()
            .filter(|b| b.items.contains(&bucket))
            .map(|b| b.id)
            .collect();
        for parent in above {
            self.set_weight_in(parent, bucket, weight, false)?;
        }
        Ok(())
    }

    /// Updates the values derived from weights: the sums of weight sets, and the shadow trees.
    pub(crate) fn reweighed(&mut self) -> Result<()> {
        for args in self.choose_args.values_mut() {
            args.resum(&self.buckets);
        }
        self.rebuild_shadows()
    }
}
