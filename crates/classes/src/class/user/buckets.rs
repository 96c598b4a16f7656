//! The buckets of a user, each an omap key. Formats: Ceph's `src/cls/user/cls_user_ops.h`.

use bytes::Bytes;
use spirula_denc::{UTime, versioned};

use super::bucket::{Bucket, BucketEntry};
use super::stats::Header;
use crate::method::{Nothing, stored, to_bytes};
use crate::{Error, Object, Result, omap};

/// Buckets in one listing at most.
const MAX_LIST: u64 = 1000;

versioned! {
    /// Input of `set_buckets_info`.
    #[derive(Eq)]
    pub(super) struct SetOp("cls_user_set_buckets_op", version 1, compat 1) {
        pub(super) entries: Vec<BucketEntry>;
        /// Whether buckets are added, rather than sizes set of buckets that are there.
        pub(super) add: bool;
        pub(super) time: UTime;
    }

    /// Input of `remove_bucket`.
    #[derive(Eq)]
    pub(super) struct RemoveOp("cls_user_remove_bucket_op", version 1, compat 1) {
        pub(super) bucket: Bucket;
    }

    /// Input of `list_buckets`.
    #[derive(Eq)]
    pub(super) struct ListOp("cls_user_list_buckets_op", version 2, compat 1) {
        /// The name after which to begin.
        pub(super) marker: Bytes;
        pub(super) max_entries: i32;
        /// The name at which to end, excluded, unless it is empty.
        pub(super) end_marker: Bytes, since 2;
    }

    /// Output of `list_buckets`.
    #[derive(Eq)]
    pub(super) struct ListReply("cls_user_list_buckets_ret", version 1, compat 1) {
        pub(super) entries: Vec<BucketEntry>;
        /// The last name if more follow.
        pub(super) marker: Bytes;
        pub(super) truncated: bool;
    }
}

/// The entry of a bucket, if it has one; EINVAL without a name.
fn find(object: &mut dyn Object, name: &[u8]) -> Result<Option<BucketEntry>> {
    if name.is_empty() {
        return Err(Error::EINVAL);
    }
    omap::find(object, name)?.as_ref().map(stored).transpose()
}

pub(super) fn set_info(object: &mut dyn Object, op: SetOp) -> Result<Nothing> {
    let mut header = Header::read(object)?;
    for update in op.entries {
        let name = update.bucket.name.clone();
        let mut entry = match find(object, &name)? {
            // The bucket was removed meanwhile.
            None if !op.add => continue,
            None => update.clone(),
            Some(entry) => entry,
        };
        if op.add {
            // The bucket may be another one of that name, or have a new index.
            entry.bucket.bucket_id = update.bucket.bucket_id;
            entry.creation_time = update.creation_time;
            entry.creation_secs = update.creation_secs;
        }
        if entry.user_stats_sync {
            header.stats.subtract(&entry);
        }
        if !op.add {
            entry.size = update.size;
            entry.size_rounded = update.size_rounded;
            entry.count = update.count;
        }
        entry.user_stats_sync = true;
        omap::set(object, name, to_bytes(&entry))?;
        header.stats.add(&entry);
    }
    header.last_stats_update = header.last_stats_update.max(op.time);
    header.write(object)
}

pub(super) fn remove(object: &mut dyn Object, op: RemoveOp) -> Result<Nothing> {
    let mut header = Header::read(object)?;
    let name = op.bucket.name;
    let Some(entry) = find(object, &name)? else {
        return Ok(Nothing);
    };
    omap::remove(object, name)?;
    if entry.user_stats_sync {
        header.stats.subtract(&entry);
        header.write(object)?;
    }
    Ok(Nothing)
}

pub(super) fn list(object: &mut dyn Object, op: ListOp) -> Result<ListReply> {
    // A negative number is a huge one.
    let max = u64::try_from(op.max_entries).unwrap_or(MAX_LIST).min(MAX_LIST);
    let page = object.omap_vals(&op.marker, b"", max)?;
    let mut reply = ListReply {
        truncated: page.more,
        ..ListReply::default()
    };
    let mut last = Bytes::new();
    for (name, value) in page.items {
        if !op.end_marker.is_empty() && op.end_marker <= name {
            reply.truncated = false;
            break;
        }
        // Undecodable entries are skipped.
        reply.entries.extend(stored(&value).ok());
        last = name;
    }
    if reply.truncated {
        reply.marker = last;
    }
    Ok(reply)
}
