//! Completing an operation on an object, or cancelling it. Formats: Ceph's
//! `src/cls/rgw/cls_rgw_ops.h`.

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_denc::versioned;

use super::bi_log::{self, LogEntry, ZoneSet};
use super::entry::{self, DirEntry, EntryFlags, EntryMeta, EntryVersion, NullVersion, operation};
use super::header::{self, DirHeader};
use super::key::ObjectKey;
use super::{keys, resharding};
use crate::error::unless;
use crate::method::{Nothing, stored};
use crate::{Error, Object, Result, omap};

/// Entries that are read and removed at once: an upload has up to 10,000 parts.
const REMOVED_AT_ONCE: usize = 1000;

versioned! {
    /// Input.
    #[derive(Eq)]
    pub(super) struct CompleteOp("rgw_cls_obj_complete_op", version 9, compat 7, oldest 7) {
        op: u8;
        @reserved(u64 = 0)
        meta: EntryMeta;
        /// That of the preparation; clients from before there were preparations have none.
        tag: Bytes;
        locator: Bytes;
        /// Entries that go away with the operation, such as those of an upload's parts.
        remove_objs: Vec<ObjectKey>;
        version: EntryVersion;
        log_op: bool;
        key: ObjectKey;
        bilog_flags: u16, since 8;
        zones_trace: ZoneSet, since 9;
    }
}

pub(super) fn complete_op(object: &mut dyn Object, op: CompleteOp) -> Result<Nothing> {
    let mut header = header::read(object).map_err(|e| match e {
        Error::NotFetched => e,
        Error::Errno(_) => Error::EINVAL,
    })?;
    resharding::refuse_in_progress(&header)?;
    let (index_key, found) = entry::find(object, &op.key, NullVersion::Data)?;
    let is_stored = found.is_some();
    let mut entry = found.unwrap_or_else(|| DirEntry {
        key: op.key.clone(),
        version: op.version,
        meta: op.meta.clone(),
        locator: op.locator.clone(),
        ..DirEntry::default()
    });
    entry.index_version = header.version;
    // What was a delete marker is none any more.
    entry.flags = entry.flags.intersection(EntryFlags::VERSION);
    if !op.tag.is_empty() && !entry.pending.remove(&op.tag) {
        return Err(Error::EINVAL);
    }
    let is_stale = op.version.pool == entry.version.pool
        && op.version.epoch != 0
        && op.version.epoch <= entry.version.epoch;
    let what = if is_stale { operation::CANCEL } else { op.op };
    entry.version = op.version;
    let is_logging = op.log_op && !header.sync_stopped;
    let mut changed = true;
    match what {
        operation::CANCEL => {
            changed = false;
            if !op.tag.is_empty() {
                cancel(object, index_key, &entry)?;
            }
        }
        operation::DEL => {
            header.unaccount(&entry);
            entry.meta = op.meta;
            changed = is_stored;
            if is_stored && entry.pending.is_empty() {
                omap::remove(object, index_key)?;
            } else if is_stored {
                entry.exists = false;
                entry::write(object, index_key, &entry)?;
            }
        }
        operation::ADD => {
            header.unaccount(&entry);
            header.account(&op.meta);
            entry.meta = op.meta;
            entry.key = op.key.clone();
            entry.exists = true;
            entry.tag = op.tag.clone();
            entry::write(object, index_key, &entry)?;
        }
        _ => {}
    }
    if is_logging && changed {
        let log = LogEntry {
            op: what,
            tag: op.tag,
            bilog_flags: op.bilog_flags,
            zones_trace: op.zones_trace,
            ..LogEntry::of(&op.key, entry.meta.mtime, entry.version)
        };
        bi_log::append(object, &mut header, log)?;
    }
    for keys in op.remove_objs.chunks(REMOVED_AT_ONCE) {
        remove(object, &mut header, keys)?;
    }
    header::write(object, header).map(|()| Nothing)
}

/// Forgets a pending operation, and with the last one an object that does not exist.
fn cancel(object: &mut dyn Object, index_key: Bytes, entry: &DirEntry) -> Result<()> {
    match !entry.exists && entry.pending.is_empty() {
        true => omap::remove(object, index_key),
        false => entry::write(object, index_key, entry),
    }
}

/// Removes those of the entries that are there and can be read. 16.2 and 17.2 log that, newer releases
/// don't: other zones never had the entries of an upload.
fn remove(object: &mut dyn Object, header: &mut DirHeader, keys: &[ObjectKey]) -> Result<()> {
    let index_keys = keys.iter().map(keys::entry).collect();
    let mut values = object.omap_by_keys(&index_keys)?;
    let mut gone = BTreeSet::new();
    for key in keys {
        let index_key = keys::entry(key);
        let value = values.remove(&index_key);
        let Some(entry) = value.and_then(|v| stored::<DirEntry>(&v).ok()) else {
            continue;
        };
        let found = match entry.flags.contains(EntryFlags::VERSION_MARKER) {
            // Its version without a name is meant.
            true => unless(entry::find(object, key, NullVersion::Data), &[Error::EIO])?,
            false => Some((index_key, Some(entry))),
        };
        if let Some((index_key, Some(entry))) = found {
            header.unaccount(&entry);
            gone.insert(index_key);
        }
    }
    match gone.is_empty() {
        true => Ok(()),
        false => object.omap_remove(&gone),
    }
}
