//! `bucket_link_olh`: a version, or a delete marker, becomes the current one of its object. Formats:
//! Ceph's `src/cls/rgw/cls_rgw_ops.h`.

use bytes::Bytes;
use spirula_denc::{UTime, versioned};

use super::bi_log::{self, LogEntry, LogFlags, ZoneSet};
use super::entry::{EntryMeta, EntryVersion, NullVersion, operation};
use super::key::ObjectKey;
use super::olh::{self, OlhEntry, OlhLogEntry, log_op};
use super::version::{self, CONVERTED_EPOCH, Conversion, Version};
use super::{header, resharding};
use crate::error::unless;
use crate::method::Nothing;
use crate::{Error, Object, Result};

versioned! {
    /// Input.
    #[derive(Eq)]
    pub(super) struct LinkOp("rgw_cls_link_olh_op", version 5, compat 1, oldest 5) {
        key: ObjectKey;
        /// That of the RADOS object that leads to the current version.
        olh_tag: Bytes;
        delete_marker: bool;
        op_tag: Bytes;
        /// What a delete marker is to be.
        meta: EntryMeta;
        /// The epoch in another zone; 0 for the next one.
        olh_epoch: u64;
        log_op: bool;
        bilog_flags: u16;
        /// If not zero: a version that was changed at this time or later stays as it is.
        @reserved(u64 = 0)
        unmod_since: UTime;
        /// Whether that means the nanosecond, not the second.
        high_precision_time: bool;
        zones_trace: ZoneSet;
    }
}

impl LinkOp {
    fn log(&self, op: u8, delete_marker: bool, epoch: u64) -> OlhLogEntry {
        OlhLogEntry {
            epoch,
            op,
            op_tag: self.op_tag.clone(),
            key: self.key.clone(),
            delete_marker,
        }
    }

    fn is_too_old_for(&self, mtime: UTime) -> bool {
        let precise = |t: UTime| match self.high_precision_time {
            true => t,
            false => UTime::from_secs(t.sec),
        };
        !self.unmod_since.is_zero() && precise(mtime) >= precise(self.unmod_since)
    }
}

/// A delete marker may follow another one, as S3 has it and the newest releases do; 16.2 to 18.2 answer
/// ENOENT.
pub(super) fn link_olh(object: &mut dyn Object, op: LinkOp) -> Result<Nothing> {
    let mut header = header::read(object)?;
    resharding::refuse_in_progress(&header)?;
    let null = if op.delete_marker {
        NullVersion::DeleteMarkerFirst
    } else {
        NullVersion::Data
    };
    let (mut version, exists) = Version::find(object, &op.key, null)?;
    if !exists && !op.delete_marker {
        return Err(Error::ENOENT);
    }
    if exists && op.is_too_old_for(version.entry.meta.mtime) {
        return Ok(Nothing);
    }
    let is_replaced = match op.key.instance.is_empty() {
        true => replace_null(object, &op)?,
        false => exists && !version.entry.is_delete_marker() && op.delete_marker,
    };
    if op.delete_marker {
        version.set_delete_marker(op.meta.clone());
    }
    let found = olh::find(object, &op.key.name)?;
    let has_olh = found.is_some();
    let mut olh = found.unwrap_or_default();
    let last_epoch = olh.epoch;
    if !olh.start_change(op.olh_epoch) {
        // The OLH stays as it is: what an old delete marker replaces is not removed, as in Ceph.
        version.write(object, op.olh_epoch, false)?;
        return Ok(Nothing);
    }
    // Of two versions with the same epoch, which another zone has ordered, the lower one wins.
    let is_current = olh.epoch > last_epoch || olh.key.instance >= op.key.instance;
    if has_olh {
        replace_current(object, &op, &mut olh, is_current)?;
    } else {
        create_olh(object, &op, &mut olh, &mut version, is_current)?;
    }
    olh.log(op.log(log_op::LINK, op.delete_marker, olh.epoch));
    if is_replaced {
        olh.log(op.log(log_op::REMOVE_INSTANCE, false, olh.epoch));
    }
    if is_current {
        olh.set_current(op.key.clone(), op.delete_marker);
    }
    olh.exists = true;
    olh::write(object, &op.key.name, &olh)?;
    version.write(object, olh.epoch, is_current)?;
    if !op.log_op || header.sync_stopped {
        return Ok(Nothing);
    }
    let log = log_entry(op, &version, olh.epoch);
    bi_log::append(object, &mut header, log)?;
    header::write(object, header).map(|()| Nothing)
}

/// The version without a name and its delete marker have entries of their own. Of the other one than
/// is written, listings forget. Returns whether a delete marker replaces the version.
fn replace_null(object: &mut dyn Object, op: &LinkOp) -> Result<bool> {
    let null = if op.delete_marker {
        NullVersion::Data
    } else {
        NullVersion::DeleteMarkerFirst
    };
    // One that can't be read is overwritten.
    let Some((other, exists)) = unless(Version::find(object, &op.key, null), &[Error::EIO])? else {
        return Ok(false);
    };
    if exists && other.entry.is_delete_marker() != op.delete_marker {
        other.unlist(object)?;
    }
    let is_replaced = exists && !other.entry.is_delete_marker() && op.delete_marker;
    if !is_replaced {
        other.remove(object)?;
    }
    Ok(is_replaced)
}

/// The version takes the place of the current one. ECANCELED where the RADOS object is another one
/// than the caller knows.
fn replace_current(object: &mut dyn Object, op: &LinkOp, olh: &mut OlhEntry, is_current: bool) -> Result<()> {
    if olh.tag != op.olh_tag {
        if !olh.pending_removal {
            return Err(Error::ECANCELED);
        }
        olh.tag = op.olh_tag.clone();
    }
    if is_current && olh.exists && olh.key != op.key {
        version::demote(object, &olh.key)?;
    }
    olh.pending_removal = false;
    Ok(())
}

/// The object had no versions so far.
fn create_olh(
    object: &mut dyn Object,
    op: &LinkOp,
    olh: &mut OlhEntry,
    version: &mut Version,
    is_current: bool,
) -> Result<()> {
    let is_null = op.key.instance.is_empty();
    let conversion = Conversion {
        demote: is_current,
        list: !(is_null && op.delete_marker),
    };
    version::convert(object, &op.key.name, conversion)?;
    olh.tag = op.olh_tag.clone();
    if is_null {
        version.entry.versioned_epoch = CONVERTED_EPOCH;
    }
    Ok(())
}

fn log_entry(op: LinkOp, version: &Version, epoch: u64) -> LogEntry {
    let meta = &version.entry.meta;
    let entry_version = EntryVersion {
        epoch,
        ..EntryVersion::default()
    };
    let mut log = LogEntry {
        tag: op.op_tag,
        op: operation::LINK_OLH,
        bilog_flags: op.bilog_flags | LogFlags::VERSIONED_OP.0,
        zones_trace: op.zones_trace,
        ..LogEntry::of(&op.key, meta.mtime, entry_version)
    };
    if op.delete_marker {
        log.op = operation::LINK_OLH_DELETE_MARKER;
        log.owner = meta.owner.clone();
        log.owner_display_name = meta.owner_display_name.clone();
    }
    log
}
