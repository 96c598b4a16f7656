//! What the sums in a shard's header should be. Formats: Ceph's `src/cls/rgw/cls_rgw_ops.h`.

use std::ops::ControlFlow;

use bytes::Bytes;
use spirula_denc::versioned;

use super::entry::{DirEntry, EntryFlags};
use super::header::{self, DirHeader};
use super::{keys, resharding};
use crate::method::{Nothing, stored};
use crate::{Object, Result, omap};

versioned! {
    /// Output of `bucket_check_index`.
    #[derive(Eq)]
    pub(super) struct CheckReply("rgw_cls_check_index_ret", version 1, compat 1) {
        existing: DirHeader;
        calculated: DirHeader;
    }
}

pub(super) fn check_index(object: &mut dyn Object, _: Nothing) -> Result<CheckReply> {
    let existing = header::read(object)?;
    let calculated = calculate(object, &existing)?;
    Ok(CheckReply { existing, calculated })
}

pub(super) fn rebuild_index(object: &mut dyn Object, _: Nothing) -> Result<Nothing> {
    let existing = header::read(object)?;
    resharding::refuse_in_progress(&existing)?;
    let calculated = calculate(object, &existing)?;
    header::write(object, calculated).map(|()| Nothing)
}

/// A header with the sums of what is in the omap. Of the versions of an object, which have plain
/// entries too, the instance entries count.
fn calculate(object: &mut dyn Object, existing: &DirHeader) -> Result<DirHeader> {
    let mut sums = DirHeader {
        tag_timeout: existing.tag_timeout,
        version: existing.version,
        sync_stopped: existing.sync_stopped,
        ..DirHeader::default()
    };
    let mut plain = |key: Bytes, value: Bytes| {
        if key.first() == Some(&keys::SPECIAL) {
            return Ok(ControlFlow::Break(()));
        }
        let entry: DirEntry = stored(&value)?;
        if entry.exists && entry.flags == EntryFlags::empty() {
            sums.account(&entry.meta);
        }
        Ok(ControlFlow::Continue(()))
    };
    omap::scan(object, b"", b"", &mut plain)?;
    omap::scan(object, keys::END, b"", &mut plain)?;
    omap::scan(object, keys::INSTANCE, keys::INSTANCE, |_, value| {
        let entry: DirEntry = stored(&value)?;
        if entry.exists {
            sums.account(&entry.meta);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(sums)
}
