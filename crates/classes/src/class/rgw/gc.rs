//! The garbage collector's list: data of deleted and overwritten objects that is to be removed
//! later. Formats: `cls_rgw_gc_obj_info` and what is in it, of Ceph's
//! `src/cls/rgw/cls_rgw_types.h`, and `cls_rgw_ops.h`.
//!
//! An entry is a chain of RADOS objects under a tag. It is stored twice in the omap: by its tag,
//! and by the time from which it may be removed.

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_denc::{UTime, versioned};

use super::gc_entry::{ListOp, ListReply, ObjInfo, SetEntryOp};
use crate::error::unless;
use crate::method::{Nothing, stored, to_bytes};
use crate::{Error, Object, Result, omap};

/// The prefix of the keys by tag.
const BY_TAG: &[u8] = b"0_";
/// The prefix of the keys by time; these are behind those by tag.
const BY_TIME: &[u8] = b"1_";
/// Entries in one listing where the client leaves the number open.
const DEFAULT_LIST: u32 = 128;

versioned! {
    /// Input of `gc_defer_entry`.
    #[derive(Eq)]
    pub(super) struct DeferEntryOp("cls_rgw_gc_defer_entry_op", version 1, compat 1) {
        /// Seconds from now on.
        pub(super) expiration_secs: u32;
        pub(super) tag: Bytes;
    }

    /// Input of `gc_remove`.
    #[derive(Eq)]
    pub(super) struct RemoveOp("cls_rgw_gc_remove_op", version 1, compat 1) {
        pub(super) tags: Vec<Bytes>;
    }
}

fn tag_key(tag: &[u8]) -> Bytes {
    [BY_TAG, tag].concat().into()
}

fn time_key(time: UTime) -> Bytes {
    let text = format!("{:011}.{:09}", time.sec, time.nsec);
    [BY_TIME, text.as_bytes()].concat().into()
}

/// Stores an entry for a time from now on; if the tag has one, that gives way, but not if it can't
/// be decoded.
fn update(object: &mut dyn Object, mut info: ObjInfo, expiration_secs: u32) -> Result<Nothing> {
    let old = omap::get(object, &tag_key(&info.tag)).and_then(|bytes| stored::<ObjInfo>(&bytes));
    if let Some(old) = unless(old, &[Error::ENOENT, Error::EIO])? {
        omap::remove(object, time_key(old.time))?;
    }
    let now = object.now();
    // As in the 32 bits of an encoded time.
    info.time = UTime {
        sec: now.sec.wrapping_add(expiration_secs),
        ..now
    };
    let value = to_bytes(&info);
    omap::set(object, tag_key(&info.tag), value.clone())?;
    omap::set(object, time_key(info.time), value)?;
    Ok(Nothing)
}

pub(super) fn set_entry(object: &mut dyn Object, op: SetEntryOp) -> Result<Nothing> {
    update(object, op.info, op.expiration_secs)
}

pub(super) fn defer_entry(object: &mut dyn Object, op: DeferEntryOp) -> Result<Nothing> {
    let info = stored(&omap::get(object, &tag_key(&op.tag))?)?;
    update(object, info, op.expiration_secs)
}

pub(super) fn list(object: &mut dyn Object, op: ListOp) -> Result<ListReply> {
    let after = match op.marker.is_empty() {
        true => Bytes::from_static(BY_TIME),
        false => op.marker,
    };
    let end = op.expired_only.then(|| time_key(object.now()));
    let max = if op.max == 0 { DEFAULT_LIST } else { op.max };
    let page = object.omap_vals(&after, b"", max.into())?;
    let mut reply = ListReply {
        truncated: page.more,
        ..ListReply::default()
    };
    for (key, value) in page.items {
        if end.as_ref().is_some_and(|end| key >= *end) || !key.starts_with(BY_TIME) {
            reply.truncated = false;
            reply.next_marker = Bytes::new();
            break;
        }
        reply.entries.push(stored(&value)?);
        if reply.truncated {
            reply.next_marker = key;
        }
    }
    Ok(reply)
}

pub(super) fn remove(object: &mut dyn Object, op: RemoveOp) -> Result<Nothing> {
    let keys: BTreeSet<Bytes> = op.tags.iter().map(|tag| tag_key(tag)).collect();
    let found = object.omap_by_keys(&keys)?;
    let mut gone = BTreeSet::new();
    for (key, value) in found {
        let info: ObjInfo = stored(&value)?;
        gone.extend([key, time_key(info.time)]);
    }
    // Tags without an entry are no error.
    if !gone.is_empty() {
        object.omap_remove(&gone)?;
    }
    Ok(Nothing)
}
