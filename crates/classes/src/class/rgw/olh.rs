//! Which version of an object is current, its OLH (object logical head): `rgw_bucket_olh_entry` of
//! Ceph's `src/cls/rgw/cls_rgw_types.h`.
//!
//! The RADOS object that clients read by the object's name follows this entry: radosgw applies the
//! entry's log to it, and trims the log then.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::versioned;

use super::entry::{self, DirEntry, EntryFlags};
use super::key::ObjectKey;
use super::{header, keys, resharding};
use crate::method::Nothing;
use crate::{Error, Object, Result, omap};

/// Epochs in one listing of the log at most.
const MAX_LOG_EPOCHS: usize = 1000;

/// The first epoch: 1 is that of an object from before the bucket had versions.
const FIRST_EPOCH: u64 = 2;

/// What is to be done to the RADOS object, `OLHLogOp`.
pub(super) mod log_op {
    /// It leads to a version.
    pub(in super::super) const LINK: u8 = 1;
    /// It goes away.
    pub(in super::super) const UNLINK: u8 = 2;
    /// A version's RADOS object goes away.
    pub(in super::super) const REMOVE_INSTANCE: u8 = 3;
}

versioned! {
    /// Something to be done to the RADOS object.
    #[derive(Eq)]
    pub(super) struct OlhLogEntry("rgw_bucket_olh_log_entry", version 1, compat 1) {
        pub(super) epoch: u64;
        /// [`log_op`].
        pub(super) op: u8;
        pub(super) op_tag: Bytes;
        pub(super) key: ObjectKey;
        pub(super) delete_marker: bool;
    }

    /// The OLH.
    #[derive(Eq)]
    pub(super) struct OlhEntry("rgw_bucket_olh_entry", version 1, compat 1) {
        /// The current version.
        pub(super) key: ObjectKey;
        /// Whether that is a delete marker.
        pub(super) delete_marker: bool;
        /// Counts the changes; zones that follow another one take over its epochs.
        pub(super) epoch: u64;
        /// By epoch, what is to be done.
        pub(super) pending_log: BTreeMap<u64, Vec<OlhLogEntry>>;
        /// The RADOS object that the entry is about: another one has another tag.
        pub(super) tag: Bytes;
        pub(super) exists: bool;
        /// Whether the RADOS object is to go away, as no version is left.
        pub(super) pending_removal: bool;
    }

    /// Input of `bucket_read_olh_log`: the epoch after which to begin. Input of
    /// `bucket_trim_olh_log`: the last epoch to be removed.
    #[derive(Eq)]
    pub(super) struct LogOp("rgw_cls_read_olh_log_op", version 1, compat 1) {
        olh: ObjectKey;
        epoch: u64;
        olh_tag: Bytes;
    }

    /// Output of `bucket_read_olh_log`.
    #[derive(Eq)]
    pub(super) struct ReadLogReply("rgw_cls_read_olh_log_ret", version 1, compat 1) {
        log: BTreeMap<u64, Vec<OlhLogEntry>>;
        is_truncated: bool;
    }

    /// Input of `bucket_clear_olh`.
    #[derive(Eq)]
    pub(super) struct ClearOp("rgw_cls_bucket_clear_olh_op", version 1, compat 1) {
        key: ObjectKey;
        olh_tag: Bytes;
    }
}

impl OlhEntry {
    /// Moves to the epoch of a change, 0 for the next one. Returns whether the change is not older
    /// than those that were made.
    pub(super) fn start_change(&mut self, epoch: u64) -> bool {
        let epoch = match (epoch, self.epoch) {
            (0, 0) => FIRST_EPOCH,
            (0, last) => last.saturating_add(1),
            (epoch, last) if epoch < last => return false,
            (epoch, _) => epoch,
        };
        self.epoch = epoch;
        true
    }

    pub(super) fn set_current(&mut self, key: ObjectKey, delete_marker: bool) {
        self.key = key;
        self.delete_marker = delete_marker;
    }

    /// Logs what is to be done.
    pub(super) fn log(&mut self, entry: OlhLogEntry) {
        self.pending_log.entry(self.epoch).or_default().push(entry);
    }
}

pub(super) fn find(object: &mut dyn Object, name: &[u8]) -> Result<Option<OlhEntry>> {
    entry::read(object, &keys::olh(name))
}

pub(super) fn write(object: &mut dyn Object, name: &[u8], olh: &OlhEntry) -> Result<()> {
    entry::write(object, keys::olh(name), olh)
}

/// The OLH of that tag. ECANCELED where it has another tag; none has the empty one.
fn of_tag(object: &mut dyn Object, key: &ObjectKey, tag: &[u8]) -> Result<OlhEntry> {
    if !key.instance.is_empty() {
        return Err(Error::EINVAL);
    }
    let olh = find(object, &key.name)?.unwrap_or_default();
    match olh.tag == tag {
        true => Ok(olh),
        false => Err(Error::ECANCELED),
    }
}

pub(super) fn read_log(object: &mut dyn Object, op: LogOp) -> Result<ReadLogReply> {
    let mut olh = of_tag(object, &op.olh, &op.olh_tag)?;
    let mut log = match op.epoch.checked_add(1) {
        Some(first) => olh.pending_log.split_off(&first),
        None => BTreeMap::new(),
    };
    let rest = log.keys().nth(MAX_LOG_EPOCHS).copied();
    let is_truncated = rest.map(|rest| log.split_off(&rest)).is_some();
    Ok(ReadLogReply { log, is_truncated })
}

pub(super) fn trim_log(object: &mut dyn Object, op: LogOp) -> Result<Nothing> {
    let mut olh = of_tag(object, &op.olh, &op.olh_tag)?;
    resharding::refuse_in_progress(&header::read(object)?)?;
    olh.pending_log.retain(|epoch, _| *epoch > op.epoch);
    write(object, &op.olh.name, &olh).map(|()| Nothing)
}

/// Removes the OLH, and what says under the object's name that it has versions.
pub(super) fn clear(object: &mut dyn Object, op: ClearOp) -> Result<Nothing> {
    resharding::refuse_in_progress(&header::read(object)?)?;
    of_tag(object, &op.key, &op.olh_tag)?;
    omap::remove(object, keys::olh(&op.key.name))?;
    let plain: Option<DirEntry> = entry::read(object, &op.key.name)?;
    if plain.is_some_and(|e| e.flags.contains(EntryFlags::VERSION_MARKER)) {
        omap::remove(object, op.key.name)?;
    }
    Ok(Nothing)
}
