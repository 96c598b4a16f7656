//! The queue of buckets whose index is to be resharded. Formats: `cls_rgw_reshard_entry` of Ceph's
//! `src/cls/rgw/cls_rgw_types.h`, and `cls_rgw_ops.h`.
//!
//! An entry is an omap key: tenant, colon, bucket.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, UTime, Writer, versioned};

use crate::method::{Nothing, stored, to_bytes};
use crate::{Error, Object, Result, omap};

/// Entries that one listing reads at most.
const MAX_LIST: u32 = 1000;

versioned! {
    /// Input of `reshard_add`.
    #[derive(Eq)]
    pub(super) struct AddOp("cls_rgw_reshard_add_op", version 2, compat 1) {
        pub(super) entry: Entry;
        /// Whether an entry of the bucket stays as it is; of Tentacle.
        pub(super) create_only: bool, since 2;
    }

    /// Input of `reshard_list`.
    #[derive(Eq)]
    pub(super) struct ListOp("cls_rgw_reshard_list_op", version 1, compat 1) {
        pub(super) max: u32;
        /// The omap key after which to begin.
        pub(super) marker: Bytes;
    }

    /// Output of `reshard_list`.
    #[derive(Eq)]
    pub(super) struct ListReply("cls_rgw_reshard_list_ret", version 1, compat 1) {
        pub(super) entries: Vec<Entry>;
        pub(super) truncated: bool;
    }

    /// Input of `reshard_get`, in which tenant and bucket count, and its output.
    #[derive(Eq)]
    pub(super) struct GetOp("cls_rgw_reshard_get_op", version 1, compat 1) {
        pub(super) entry: Entry;
    }

    /// Input of `reshard_remove`.
    #[derive(Eq)]
    pub(super) struct RemoveOp("cls_rgw_reshard_remove_op", version 1, compat 1) {
        pub(super) tenant: Bytes;
        pub(super) bucket_name: Bytes;
        /// If not empty, an entry with another id stays.
        pub(super) bucket_id: Bytes;
    }
}

/// A bucket in the queue (`cls_rgw_reshard_entry`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// When it was queued.
    time: UTime,
    tenant: Bytes,
    bucket_name: Bytes,
    bucket_id: Bytes,
    /// The id of the new bucket instance; in version 1 only, later releases need none.
    new_instance_id: Bytes,
    old_num_shards: u32,
    new_num_shards: u32,
    /// Who wants it: 0 is unknown, 1 an administrator, 2 radosgw itself; version 3, of Tentacle.
    initiator: u8,
}

impl Encode for Entry {
    /// Version 1, as radosgw of 16.2 can't read later ones, unless the initiator is known: with
    /// another one, radosgw of 20.2 would shrink an index at once.
    fn encode(&self, w: &mut Writer) {
        let version = if self.initiator == 0 { 1 } else { 3 };
        w.section(version, 1, |w| {
            w.put(&self.time);
            w.put(&self.tenant);
            w.put(&self.bucket_name);
            w.put(&self.bucket_id);
            if version == 1 {
                w.put(&self.new_instance_id);
            }
            w.put(&self.old_num_shards);
            w.put(&self.new_num_shards);
            if version == 3 {
                w.put(&self.initiator);
            }
        });
    }
}

impl Decode for Entry {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("cls_rgw_reshard_entry", 3, |version, r| {
            Ok(Self {
                time: r.get()?,
                tenant: r.get()?,
                bucket_name: r.get()?,
                bucket_id: r.get()?,
                new_instance_id: if version < 2 { r.get()? } else { Bytes::new() },
                old_num_shards: r.get()?,
                new_num_shards: r.get()?,
                initiator: if version < 3 { 0 } else { r.get()? },
            })
        })
    }
}

fn key(tenant: &[u8], bucket_name: &[u8]) -> Bytes {
    [tenant, b":", bucket_name].concat().into()
}

pub(super) fn add(object: &mut dyn Object, op: AddOp) -> Result<Nothing> {
    let key = key(&op.entry.tenant, &op.entry.bucket_name);
    if op.create_only && omap::find(object, &key)?.is_some() {
        return Err(Error::EEXIST);
    }
    omap::set(object, key, to_bytes(&op.entry)).map(|()| Nothing)
}

pub(super) fn list(object: &mut dyn Object, op: ListOp) -> Result<ListReply> {
    // A number that is zero or, as a signed one, negative lists nothing, but says whether there is
    // more than a page.
    let wanted = usize::try_from(op.max.cast_signed()).unwrap_or(0);
    let max = if op.max == 0 {
        MAX_LIST
    } else {
        op.max.min(MAX_LIST)
    };
    let page = object.omap_vals(&op.marker, b"", max.into())?;
    let entries = page.items.iter().take(wanted).map(|(_, value)| stored(value));
    Ok(ListReply {
        entries: entries.collect::<Result<_>>()?,
        truncated: page.more,
    })
}

pub(super) fn get(object: &mut dyn Object, op: GetOp) -> Result<GetOp> {
    let key = key(&op.entry.tenant, &op.entry.bucket_name);
    let entry = stored(&omap::get(object, &key)?)?;
    Ok(GetOp { entry })
}

pub(super) fn remove(object: &mut dyn Object, op: RemoveOp) -> Result<Nothing> {
    let key = key(&op.tenant, &op.bucket_name);
    let entry: Entry = stored(&omap::get(object, &key)?)?;
    if op.bucket_id.is_empty() || op.bucket_id == entry.bucket_id {
        omap::remove(object, key)?;
    }
    Ok(Nothing)
}
