//! The log of an index's changes, which other zones follow: `rgw_bi_log_entry` of Ceph's
//! `src/cls/rgw/cls_rgw_types.h`.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_denc::{UTime, flags, transparent, versioned};

use super::entry::{self, EntryVersion, operation};
use super::header::{self, DirHeader};
use super::key::ObjectKey;
use super::{keys, packed};
use crate::method::{Nothing, stored};
use crate::{Error, Object, Result};

flags! {
    /// Flags of a logged change.
    pub(super) struct LogFlags(u16), joined "," {
        /// It changed which version of an object is current.
        VERSIONED_OP = 0, "versioned";
    }
}

/// `RGWPendingState` of a change that is done.
const COMPLETE: u8 = 1;

/// A zone that a change has passed: its name or, with a bucket, `zone:bucket`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Zone(Bytes);

transparent!(Zone);

impl Zone {
    fn parts(&self) -> (&[u8], Option<&[u8]>) {
        let colon = self.0.iter().position(|b| *b == b':');
        match colon.and_then(|at| Some((self.0.get(..at)?, self.0.get(at + 1..)?))) {
            Some((zone, bucket)) => (zone, Some(bucket)),
            None => (&self.0, None),
        }
    }
}

impl Ord for Zone {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for Zone {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The zones that a change has passed.
pub(super) type ZoneSet = BTreeSet<Zone>;

versioned! {
    /// A change.
    #[derive(Eq)]
    pub(super) struct LogEntry("rgw_bi_log_entry", version 4, compat 1) {
        /// The key behind its prefix.
        pub(super) id: Bytes;
        pub(super) object: Bytes;
        pub(super) timestamp: UTime;
        pub(super) version: EntryVersion;
        pub(super) tag: Bytes;
        pub(super) op: u8 = operation::UNKNOWN;
        pub(super) state: u8;
        /// The header's version before the change.
        pub(super) index_version: u64, via packed;
        pub(super) instance: Bytes, since 2;
        pub(super) bilog_flags: u16, since 2;
        /// The owner of a delete marker.
        pub(super) owner: Bytes, since 3;
        pub(super) owner_display_name: Bytes, since 3;
        pub(super) zones_trace: ZoneSet, since 4;
    }

    /// Input of `bi_log_list`.
    #[derive(Eq)]
    pub(super) struct ListOp("cls_rgw_bi_log_list_op", version 1, compat 1) {
        /// The id after which to begin.
        marker: Bytes;
        max: u32;
    }

    /// Output of `bi_log_list`.
    #[derive(Eq)]
    pub(super) struct ListReply("cls_rgw_bi_log_list_ret", version 1, compat 1) {
        entries: Vec<LogEntry>;
        truncated: bool;
    }

    /// Input of `bi_log_trim`: the entries after `start_marker` and up to `end_marker`, or to the end
    /// if that is empty.
    #[derive(Eq)]
    pub(super) struct TrimOp("cls_rgw_bi_log_trim_op", version 1, compat 1) {
        start_marker: Bytes;
        end_marker: Bytes;
    }
}

impl LogEntry {
    /// A change of an object that is done.
    pub(super) fn of(key: &ObjectKey, timestamp: UTime, version: EntryVersion) -> Self {
        Self {
            object: key.name.clone(),
            instance: key.instance.clone(),
            timestamp,
            version,
            state: COMPLETE,
            ..Self::default()
        }
    }
}

/// Logs a change of an entry.
pub(super) fn append(object: &mut dyn Object, header: &mut DirHeader, mut log: LogEntry) -> Result<()> {
    log.index_version = header.version;
    write(object, header, log)
}

/// Writes a log entry under the next id. The caller writes the header.
fn write(object: &mut dyn Object, header: &mut DirHeader, mut log: LogEntry) -> Result<()> {
    log.id = format!("{:011}.{}", header.version, object.subop_version()).into();
    header.max_marker = header.max_marker.clone().max(log.id.clone());
    entry::write(object, [keys::LOG, &log.id].concat().into(), &log)
}

pub(super) fn list(object: &mut dyn Object, op: ListOp) -> Result<ListReply> {
    let after = [keys::LOG, &op.marker].concat();
    let page = object.omap_vals(&after, b"", op.max.into())?;
    let mut reply = ListReply {
        truncated: page.more,
        ..ListReply::default()
    };
    for (key, value) in page.items {
        if key[..] > *keys::INSTANCE {
            reply.truncated = false;
            break;
        }
        reply.entries.push(stored(&value)?);
    }
    Ok(reply)
}

pub(super) fn trim(object: &mut dyn Object, op: TrimOp) -> Result<Nothing> {
    let begin = [keys::LOG, &op.start_marker].concat();
    // One past the end: the next prefix, or the next key that there could be.
    let end = match op.end_marker.is_empty() {
        true => keys::INSTANCE.to_vec(),
        false => [keys::LOG, &op.end_marker, &[0]].concat(),
    };
    let first = object.omap_keys(&begin, 1)?.items.into_iter().next();
    match first.filter(|key| end.as_slice() >= &key[..]) {
        Some(first) => object.omap_remove_range(&first, &end).map(|()| Nothing),
        None => Err(Error::ENODATA),
    }
}

/// Logs that other zones must compare everything, as changes were not logged.
pub(super) fn resync(object: &mut dyn Object, _: Nothing) -> Result<Nothing> {
    switch(object, operation::RESYNC, false)
}

/// Logs that no further change is logged.
pub(super) fn stop(object: &mut dyn Object, _: Nothing) -> Result<Nothing> {
    switch(object, operation::SYNC_STOP, true)
}

fn switch(object: &mut dyn Object, op: u8, stopped: bool) -> Result<Nothing> {
    let mut header = header::read(object)?;
    let now = object.now();
    let log = LogEntry {
        op,
        ..LogEntry::of(&ObjectKey::default(), now, EntryVersion::default())
    };
    write(object, &mut header, log)?;
    header.sync_stopped = stopped;
    header::write(object, header).map(|()| Nothing)
}
