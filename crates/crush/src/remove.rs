//! Removes items from the hierarchy.

use std::collections::BTreeMap;

use crate::choose_args::index_of;
use crate::{CrushMap, Error, Result};

impl CrushMap {
    /// Removes an item from all buckets, and then the item itself with its name and class; with
    /// `unlink_only` a bucket and a device's class stay.
    ///
    /// # Errors
    /// [`Error::NoSuchItem`]; [`Error::NotEmpty`] or [`Error::InUse`] for a bucket that has items
    /// or is taken from.
    pub fn remove_item(&mut self, item: i32, unlink_only: bool) -> Result<()> {
        self.edit(|map| map.remove(item, unlink_only))
    }

    pub(crate) fn remove(&mut self, item: i32, unlink_only: bool) -> Result<()> {
        self.check_removable(item, unlink_only)?;
        let mut found = false;
        for bucket in self.iter_buckets().map(|b| b.id).collect::<Vec<_>>() {
            found |= self.remove_child(bucket, item)?;
        }
        if self.forget(item, unlink_only)? || found {
            Ok(())
        } else {
            Err(Error::NoSuchItem)
        }
    }

    /// Removes an item from the buckets below (and from) `ancestor` only.
    ///
    /// # Errors
    /// As [`CrushMap::remove_item`].
    pub fn remove_item_under(&mut self, item: i32, ancestor: i32, unlink_only: bool) -> Result<()> {
        self.edit(|map| {
            map.bucket(ancestor).ok_or(Error::WrongKind(ancestor))?;
            map.check_removable(item, unlink_only)?;
            let inside: Vec<i32> = map
                .iter_buckets()
                .map(|b| b.id)
                .filter(|id| map.subtree_contains(ancestor, *id))
                .collect();
            let mut found = false;
            for bucket in inside {
                found |= map.remove_child(bucket, item)?;
            }
            if !found {
                return Err(Error::NoSuchItem);
            }
            map.forget(item, unlink_only)?;
            map.reweighed()
        })
    }

    /// Removes the first occurrence of the item from the bucket; returns whether there was one.
    pub(crate) fn remove_child(&mut self, bucket: i32, item: i32) -> Result<bool> {
        let version = self.tunables.straw_calc_version;
        let b = self.bucket_mut(bucket)?;
        let Some(pos) = b.position(item) else {
            return Ok(false);
        };
        // A tree bucket keeps the place and only empties it, so its alternative weights stay in
        // step.
        let len = b.len();
        b.remove_at(pos, version)?;
        if b.len() + 1 == len {
            self.choose_args
                .values_mut()
                .for_each(|args| args.item_removed(bucket, pos));
        }
        self.propagate(bucket)?;
        Ok(true)
    }

    fn check_removable(&self, item: i32, unlink_only: bool) -> Result<()> {
        if item >= 0 || unlink_only {
            return Ok(());
        }
        if !self.bucket(item).ok_or(Error::NoSuchItem)?.is_empty() {
            return Err(Error::NotEmpty(item));
        }
        if self.is_in_use(item) {
            Err(Error::InUse(item))
        } else {
            Ok(())
        }
    }

    /// Whether a shadow tree or a rule refers to the bucket (a rule also through the bucket's
    /// shadow).
    fn is_in_use(&self, item: i32) -> bool {
        self.shadows
            .values()
            .flat_map(BTreeMap::values)
            .any(|shadow| *shadow == item)
            || self
                .iter_rules()
                .flat_map(|(_, r)| r.takes())
                .any(|root| root == item || self.unshadow(root).0 == item)
    }

    /// Removes the name and class of an item that no bucket holds any more; returns whether it did.
    fn forget(&mut self, item: i32, unlink_only: bool) -> Result<bool> {
        let known = self.names.contains_key(&item) || self.bucket(item).is_some();
        if !known || self.is_held(item) || (item < 0 && self.is_in_use(item)) {
            return Ok(false);
        }
        if !unlink_only {
            if item < 0 {
                self.drop_bucket(item);
            }
            self.item_class.remove(&item);
        }
        if item >= 0 || !unlink_only {
            self.names.remove(&item);
        }
        self.reweighed()?;
        Ok(true)
    }

    /// Removes a bucket's slot and everything that belongs to the bucket.
    pub(crate) fn drop_bucket(&mut self, id: i32) {
        if let Some(slot) = index_of(id).and_then(|i| self.buckets.get_mut(i)) {
            *slot = None;
        }
        self.names.remove(&id);
        self.shadows.remove(&id);
        self.item_class.remove(&id);
        for args in self.choose_args.values_mut() {
            args.by_index.remove(&(!id as u32));
        }
    }
}
