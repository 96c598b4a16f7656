//! The omap header of a shard: `rgw_bucket_dir_header` of Ceph's `src/cls/rgw/cls_rgw_types.h`.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::versioned;

use super::entry::{DirEntry, EntryMeta};
use super::resharding::BucketInstance;
use crate::method::{Nothing, stored, to_bytes};
use crate::{Error, Object, Result};

fn complete_stats(version: u8, stats: &mut CategoryStats) {
    if version < 3 {
        stats.actual_size = stats.total_size;
    }
}

versioned! {
    /// The sums of all entries of one category. Ceph's numbers wrap, and so do these.
    #[derive(Copy, Eq)]
    pub(super) struct CategoryStats("rgw_bucket_category_stats", version 3, compat 2, oldest 2, fix complete_stats) {
        /// Bytes for the clients.
        total_size: u64;
        /// The same, each object rounded up to 4 KiB.
        total_size_rounded: u64;
        pub(super) num_entries: u64;
        /// Bytes that are stored.
        actual_size: u64, since 3;
    }

    /// The header. Version 8, of 20.2, counts a log of changes that this class does not keep.
    #[derive(Eq)]
    pub(super) struct DirHeader("rgw_bucket_dir_header", version 7, compat 2, oldest 2) {
        /// By `RGWObjCategory`.
        pub(super) stats: BTreeMap<u8, CategoryStats>;
        /// Seconds after which a pending operation counts as lost; 0 for the default.
        pub(super) tag_timeout: u64, since 3;
        /// Counts the changes of the header.
        pub(super) version: u64, since 4;
        /// The highest id in the index's log so far.
        @reserved(u64 = 0, since 4)
        pub(super) max_marker: Bytes, since 5;
        pub(super) new_instance: BucketInstance, since 6;
        /// Whether nothing is logged.
        pub(super) sync_stopped: bool, since 7;
    }

    /// Input of `bucket_set_tag_timeout`.
    #[derive(Eq)]
    pub(super) struct TagTimeoutOp("rgw_cls_tag_timeout_op", version 1, compat 1) {
        tag_timeout: u64;
    }

    /// Input of `bucket_update_stats`.
    #[derive(Eq)]
    pub(super) struct UpdateStatsOp("rgw_cls_bucket_update_stats_op", version 1, compat 1) {
        /// Whether `stats` replaces the sums, instead of being added to them.
        absolute: bool;
        stats: BTreeMap<u8, CategoryStats>;
    }
}

impl CategoryStats {
    fn of(meta: &EntryMeta) -> Self {
        const BLOCK: u64 = 4096;
        let size = meta.accounted_size;
        Self {
            total_size: size,
            total_size_rounded: size.wrapping_add(BLOCK - 1) & !(BLOCK - 1),
            num_entries: 1,
            actual_size: meta.size,
        }
    }

    fn combine(&mut self, other: Self, with: fn(u64, u64) -> u64) {
        self.total_size = with(self.total_size, other.total_size);
        self.total_size_rounded = with(self.total_size_rounded, other.total_size_rounded);
        self.num_entries = with(self.num_entries, other.num_entries);
        self.actual_size = with(self.actual_size, other.actual_size);
    }
}

impl DirHeader {
    /// Counts an object.
    pub(super) fn account(&mut self, meta: &EntryMeta) {
        let stats = self.stats.entry(meta.category).or_default();
        stats.combine(CategoryStats::of(meta), u64::wrapping_add);
    }

    /// Counts the object of an entry no more, if it exists.
    pub(super) fn unaccount(&mut self, entry: &DirEntry) {
        if entry.exists {
            let stats = self.stats.entry(entry.meta.category).or_default();
            stats.combine(CategoryStats::of(&entry.meta), u64::wrapping_sub);
        }
    }
}

/// The header; one that was never written is empty.
pub(super) fn read(object: &mut dyn Object) -> Result<DirHeader> {
    let bytes = object.omap_header()?;
    match bytes.is_empty() {
        true => Ok(DirHeader::default()),
        false => stored(&bytes),
    }
}

/// Writes the header under its next version.
pub(super) fn write(object: &mut dyn Object, mut header: DirHeader) -> Result<()> {
    header.version = header.version.wrapping_add(1);
    object.omap_set_header(to_bytes(&header))
}

pub(super) fn init_index(object: &mut dyn Object, _: Nothing) -> Result<Nothing> {
    if !object.omap_header()?.is_empty() {
        return Err(Error::EINVAL);
    }
    write(object, DirHeader::default()).map(|()| Nothing)
}

pub(super) fn set_tag_timeout(object: &mut dyn Object, op: TagTimeoutOp) -> Result<Nothing> {
    let mut header = read(object)?;
    header.tag_timeout = op.tag_timeout;
    write(object, header).map(|()| Nothing)
}

pub(super) fn update_stats(object: &mut dyn Object, op: UpdateStatsOp) -> Result<Nothing> {
    let mut header = read(object)?;
    for (category, stats) in op.stats {
        let known = header.stats.entry(category).or_default();
        match op.absolute {
            true => *known = stats,
            false => known.combine(stats, u64::wrapping_add),
        }
    }
    write(object, header).map(|()| Nothing)
}
