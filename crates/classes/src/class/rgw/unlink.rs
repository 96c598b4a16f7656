//! `bucket_unlink_instance`: a version, or a delete marker, goes away. Formats: Ceph's
//! `src/cls/rgw/cls_rgw_ops.h`.

use bytes::Bytes;
use spirula_denc::versioned;

use super::bi_log::{self, LogEntry, LogFlags, ZoneSet};
use super::entry::{EntryVersion, NullVersion, operation};
use super::key::ObjectKey;
use super::keys::NULL_INSTANCE;
use super::olh::{self, OlhEntry, OlhLogEntry, log_op};
use super::version::{self, CONVERTED_EPOCH, Conversion, Version};
use super::{header, resharding};
use crate::method::Nothing;
use crate::{Error, Object, Result};

versioned! {
    /// Input.
    #[derive(Eq)]
    pub(super) struct UnlinkOp("rgw_cls_unlink_instance_op", version 3, compat 1) {
        key: ObjectKey;
        op_tag: Bytes;
        /// The epoch in another zone; 0 for the next one.
        olh_epoch: u64;
        log_op: bool;
        bilog_flags: u16;
        /// That of the RADOS object that leads to the current version.
        olh_tag: Bytes, since 2;
        zones_trace: ZoneSet, since 3;
    }
}

impl UnlinkOp {
    fn log(&self, op: u8, key: ObjectKey, delete_marker: bool, epoch: u64) -> OlhLogEntry {
        OlhLogEntry {
            epoch,
            op,
            op_tag: self.op_tag.clone(),
            key,
            delete_marker,
        }
    }
}

/// ENOENT where the version has gone already, which releases up to 17.2 call a success. To radosgw it
/// is the same; newer ones forget then that they tried.
pub(super) fn unlink_instance(object: &mut dyn Object, op: UnlinkOp) -> Result<Nothing> {
    let mut header = header::read(object)?;
    resharding::refuse_in_progress(&header)?;
    let mut key = op.key.clone();
    if key.instance == NULL_INSTANCE {
        key.instance.clear();
    }
    let (mut version, exists) = Version::find(object, &key, NullVersion::DeleteMarkerFirst)?;
    if !exists {
        return Err(Error::ENOENT);
    }
    let mut olh = match olh::find(object, &key.name)? {
        Some(olh) => olh,
        None => {
            let conversion = Conversion {
                demote: true,
                list: true,
            };
            version::convert(object, &key.name, conversion)?;
            version.entry.versioned_epoch = CONVERTED_EPOCH;
            OlhEntry {
                key: key.clone(),
                tag: op.olh_tag.clone(),
                ..OlhEntry::default()
            }
        }
    };
    let is_delete_marker = version.entry.is_delete_marker();
    version.unlist(object)?;
    if !olh.start_change(op.olh_epoch) {
        if !is_delete_marker {
            olh.log(op.log(log_op::REMOVE_INSTANCE, op.key.clone(), false, op.olh_epoch));
            olh::write(object, &key.name, &olh)?;
        }
        return Ok(Nothing);
    }
    if olh.key == key {
        make_next_current(object, &op, &mut olh, &version)?;
    }
    match is_delete_marker {
        // Nothing but the index has it.
        true => version.remove(object)?,
        false => olh.log(op.log(log_op::REMOVE_INSTANCE, op.key.clone(), false, olh.epoch)),
    }
    olh::write(object, &key.name, &olh)?;
    if !op.log_op || header.sync_stopped {
        return Ok(Nothing);
    }
    let entry_version = EntryVersion {
        epoch: olh.epoch,
        ..EntryVersion::default()
    };
    let log = LogEntry {
        tag: op.op_tag,
        op: operation::UNLINK_INSTANCE,
        bilog_flags: op.bilog_flags | LogFlags::VERSIONED_OP.0,
        zones_trace: op.zones_trace,
        ..LogEntry::of(&op.key, version.entry.meta.mtime, entry_version)
    };
    bi_log::append(object, &mut header, log)?;
    header::write(object, header).map(|()| Nothing)
}

/// The version after the current one becomes current; without one, the object is gone.
fn make_next_current(
    object: &mut dyn Object,
    op: &UnlinkOp,
    olh: &mut OlhEntry,
    version: &Version,
) -> Result<()> {
    if let Some(next) = version.next(object)? {
        let delete_marker = version::promote(object, &next)?;
        olh.set_current(next.clone(), delete_marker);
        olh.log(op.log(log_op::LINK, next, delete_marker, olh.epoch));
        return Ok(());
    }
    // The name stays: it tells to which shard the entry belongs.
    let nothing = ObjectKey::of_name(version.key.name.clone());
    olh.set_current(nothing.clone(), false);
    olh.log(op.log(log_op::UNLINK, nothing, false, olh.epoch));
    olh.exists = false;
    olh.pending_removal = true;
    Ok(())
}
