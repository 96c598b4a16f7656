//! What the sums in a shard's header should be. Formats: Ceph's `src/cls/rgw/cls_rgw_ops.h`.

use std::ops::ControlFlow;

use spirula_denc::versioned;

use super::entry::{DirEntry, EntryFlags};
use super::header::{self, DirHeader};
use super::{keys, resharding};
use crate::method::{Nothing, stored};
use crate::omap::{self, Range};
use crate::{Object, Result};

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

/// The plain entries before and behind all others, and the instance entries.
const COUNTED: [Range; 3] = [
    Range {
        after: b"",
        prefix: b"",
    },
    Range {
        after: keys::END,
        prefix: b"",
    },
    Range {
        after: keys::INSTANCE,
        prefix: keys::INSTANCE,
    },
];

/// The number of the range of instance entries.
const INSTANCES: u32 = 2;

/// A header with the sums of what is in the omap. Of the versions of an object, which have plain
/// entries too, the instance entries count.
fn calculate(object: &mut dyn Object, existing: &DirHeader) -> Result<DirHeader> {
    let sums = DirHeader {
        tag_timeout: existing.tag_timeout,
        version: existing.version,
        sync_stopped: existing.sync_stopped,
        ..DirHeader::default()
    };
    omap::fold(object, &COUNTED, sums, |sums, range, key, value| {
        let is_instance = range == INSTANCES;
        if !is_instance && key.first() == Some(&keys::SPECIAL) {
            return Ok(ControlFlow::Break(()));
        }
        let entry: DirEntry = stored(&value)?;
        if entry.exists && (is_instance || entry.flags == EntryFlags::empty()) {
            sums.account(&entry.meta);
        }
        Ok(ControlFlow::Continue(()))
    })
}
