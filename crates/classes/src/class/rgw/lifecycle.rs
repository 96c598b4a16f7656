//! The buckets whose objects expire by rules, in the order of lifecycle processing. Formats:
//! `cls_rgw_lc_entry` and `cls_rgw_lc_obj_head` of Ceph's `src/cls/rgw/cls_rgw_types.h`, and
//! `cls_rgw_ops.h`.
//!
//! An entry is an omap key, the bucket's; the omap header is the head.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Writer, versioned};

use crate::method::{Nothing, stored, to_bytes};
use crate::{Error, Object, Result, omap};

versioned! {
    /// A bucket in lifecycle processing.
    #[derive(Eq)]
    pub(super) struct Entry("cls_rgw_lc_entry", version 1, compat 1) {
        /// Tenant, name and id of the bucket, which is also the omap key.
        pub(super) bucket: Bytes;
        /// When its processing began, in seconds since the epoch.
        pub(super) start_time: u64;
        /// How far that came: an `LC_BUCKET_STATUS` of radosgw.
        pub(super) status: u32;
    }

    /// Input of `lc_get_entry` and `lc_get_next_entry`.
    #[derive(Eq)]
    pub(super) struct MarkerOp("cls_rgw_lc_get_entry_op", version 1, compat 1) {
        /// An omap key.
        pub(super) marker: Bytes;
    }

    /// Output of `lc_get_entry`. Newer releases mark it as version 2, but read version 1 alike.
    #[derive(Eq)]
    pub(super) struct GetEntryReply("cls_rgw_lc_get_entry_ret", version 1, compat 1) {
        pub(super) entry: Entry;
    }

    /// Input and output of `lc_put_head` and `lc_get_head`.
    #[derive(Eq)]
    pub(super) struct HeadOp("cls_rgw_lc_put_head_op", version 1, compat 1) {
        pub(super) head: Head;
    }
}

/// The entry as releases before Pacific sent and stored it: bucket and status.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OldEntry {
    bucket: Bytes,
    status: i32,
}

impl Decode for OldEntry {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        let (bucket, status) = r.get()?;
        Ok(Self { bucket, status })
    }
}

impl From<OldEntry> for Entry {
    fn from(old: OldEntry) -> Self {
        Self {
            bucket: old.bucket,
            start_time: 0,
            status: old.status.cast_unsigned(),
        }
    }
}

/// Input of `lc_set_entry` and `lc_rm_entry`, output of `lc_get_next_entry`
/// (`cls_rgw_lc_set_entry_op` and the like).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EntryOp {
    entry: Entry,
}

impl Encode for EntryOp {
    fn encode(&self, w: &mut Writer) {
        w.section(2, 2, |w| w.put(&self.entry));
    }
}

impl Decode for EntryOp {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("cls_rgw_lc_set_entry_op", 2, |version, r| {
            let entry = match version {
                ..2 => r.get::<OldEntry>()?.into(),
                2.. => r.get()?,
            };
            Ok(Self { entry })
        })
    }
}

/// How far the processing of all buckets came (`cls_rgw_lc_obj_head`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// When the last round began, in seconds since the epoch.
    start_date: u64,
    /// The bucket at which it is.
    marker: Bytes,
    /// When it was through all buckets of this object, in seconds since the epoch; version 2, of
    /// Reef.
    shard_rollover_date: u64,
}

impl Encode for Head {
    /// Version 1 without a rollover. In version 2 compat stays 1, unlike in Ceph: radosgw of 16.2
    /// then reads the head, too.
    fn encode(&self, w: &mut Writer) {
        let version = if self.shard_rollover_date == 0 { 1 } else { 2 };
        w.section(version, 1, |w| {
            w.put(&self.start_date);
            w.put(&self.marker);
            if version == 2 {
                w.put(&self.shard_rollover_date);
            }
        });
    }
}

impl Decode for Head {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("cls_rgw_lc_obj_head", 2, |version, r| {
            Ok(Self {
                start_date: r.get()?,
                marker: r.get()?,
                shard_rollover_date: if version < 2 { 0 } else { r.get()? },
            })
        })
    }
}

/// Input of `lc_list_entries` (`cls_rgw_lc_list_entries_op`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ListOp {
    /// The version of the structure, in which the reply is encoded, too.
    version: u8,
    /// The omap key after which to begin.
    marker: Bytes,
    max_entries: u32,
}

impl Decode for ListOp {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("cls_rgw_lc_list_entries_op", 3, |version, r| {
            Ok(Self {
                version,
                marker: r.get()?,
                max_entries: r.get()?,
            })
        })
    }
}

/// Output of `lc_list_entries` (`cls_rgw_lc_list_entries_ret`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ListReply {
    version: u8,
    entries: Vec<Entry>,
    truncated: bool,
}

impl Encode for ListReply {
    /// Up to version 2, the reply is a map of statuses.
    fn encode(&self, w: &mut Writer) {
        w.section(self.version, 1, |w| {
            match self.version {
                ..3 => {
                    let mut statuses = BTreeMap::new();
                    for entry in &self.entries {
                        statuses.entry(&entry.bucket).or_insert(entry.status);
                    }
                    w.count(statuses.len());
                    for (bucket, status) in statuses {
                        w.put(bucket);
                        w.put(&status);
                    }
                }
                3.. => w.put(&self.entries),
            }
            w.put(&self.truncated);
        });
    }
}

pub(super) fn get_entry(object: &mut dyn Object, op: MarkerOp) -> Result<GetEntryReply> {
    let entry = stored(&omap::get(object, &op.marker)?)?;
    Ok(GetEntryReply { entry })
}

pub(super) fn set_entry(object: &mut dyn Object, op: EntryOp) -> Result<Nothing> {
    let value = to_bytes(&op.entry);
    omap::set(object, op.entry.bucket, value).map(|()| Nothing)
}

pub(super) fn rm_entry(object: &mut dyn Object, op: EntryOp) -> Result<Nothing> {
    omap::remove(object, op.entry.bucket).map(|()| Nothing)
}

/// The first entry after a key, an empty one where none follows.
pub(super) fn get_next_entry(object: &mut dyn Object, op: MarkerOp) -> Result<EntryOp> {
    let page = object.omap_vals(&op.marker, b"", 1)?;
    match page.items.first() {
        Some((_, value)) => stored(value).map(|entry| EntryOp { entry }),
        None => Ok(EntryOp::default()),
    }
}

pub(super) fn list_entries(object: &mut dyn Object, op: ListOp) -> Result<ListReply> {
    let page = object.omap_vals(&op.marker, b"", op.max_entries.into())?;
    let entry =
        |(_, value): (Bytes, Bytes)| stored(&value).or_else(|_| stored::<OldEntry>(&value).map(Entry::from));
    Ok(ListReply {
        version: op.version,
        entries: page.items.into_iter().map(entry).collect::<Result<_>>()?,
        truncated: page.more,
    })
}

pub(super) fn put_head(object: &mut dyn Object, op: HeadOp) -> Result<Nothing> {
    object.omap_set_header(to_bytes(&op.head)).map(|()| Nothing)
}

/// The head, an empty one if it was never written.
pub(super) fn get_head(object: &mut dyn Object, _: Nothing) -> Result<HeadOp> {
    let bytes = object.omap_header()?;
    let head = match bytes.is_empty() {
        true => Head::default(),
        false => stored(&bytes).map_err(|_| Error::EINVAL)?,
    };
    Ok(HeadOp { head })
}
