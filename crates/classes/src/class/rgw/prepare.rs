//! Preparing an operation on an object: before radosgw changes the object, the index knows that it
//! may. Formats: Ceph's `src/cls/rgw/cls_rgw_ops.h`.

use bytes::Bytes;
use spirula_denc::versioned;

use super::entry::{self, DirEntry, NullVersion, Pending};
use super::key::ObjectKey;
use super::{header, resharding};
use crate::method::Nothing;
use crate::{Error, Object, Result};

versioned! {
    /// Input. What it has for the log is ignored: only completed operations are logged.
    #[derive(Eq)]
    pub(super) struct PrepareOp("rgw_cls_obj_prepare_op", version 7, compat 5, oldest 5) {
        op: u8;
        /// The name under which the operation is completed.
        tag: Bytes;
        locator: Bytes;
        @reserved(bool = false)
        key: ObjectKey;
    }
}

pub(super) fn prepare_op(object: &mut dyn Object, op: PrepareOp) -> Result<Nothing> {
    if op.tag.is_empty() {
        return Err(Error::EINVAL);
    }
    resharding::refuse_in_progress(&header::read(object)?)?;
    let (index_key, entry) = entry::find(object, &op.key, NullVersion::Data)?;
    let mut entry = entry.unwrap_or_else(|| DirEntry {
        key: op.key,
        locator: op.locator,
        ..DirEntry::default()
    });
    let pending = Pending {
        timestamp: object.now(),
        op: op.op,
        ..Pending::default()
    };
    entry.pending.insert(op.tag, pending);
    entry::write(object, index_key, &entry).map(|()| Nothing)
}
