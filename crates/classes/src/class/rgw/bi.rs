//! Index entries as they are stored, for moving an index to other shards and for repairs. Formats:
//! Ceph's `src/cls/rgw/cls_rgw_ops.h`.

use bytes::Bytes;
use spirula_denc::versioned;

use super::entry::DirEntry;
use super::key::ObjectKey;
use super::keys;
use super::olh::OlhEntry;
use crate::method::{Nothing, stored};
use crate::{Error, Object, Result, omap};

/// Kinds of entries, `BIIndexType`.
mod kind {
    pub(super) const PLAIN: u8 = 1;
    pub(super) const INSTANCE: u8 = 2;
    pub(super) const OLH: u8 = 3;
}

/// Entries in one listing at most.
const MAX_LIST: u32 = 1000;

versioned! {
    /// An entry.
    #[derive(Eq)]
    pub(super) struct RawEntry("rgw_cls_bi_entry", version 1, compat 1) {
        /// [`kind`].
        kind: u8;
        index_key: Bytes;
        data: Bytes;
    }

    /// Input of `bi_get`.
    #[derive(Eq)]
    pub(super) struct GetOp("rgw_cls_bi_get_op", version 1, compat 1) {
        key: ObjectKey;
        kind: u8;
    }

    /// Input of `bi_put`, output of `bi_get`.
    #[derive(Eq)]
    pub(super) struct OneEntry("rgw_cls_bi_put_op", version 1, compat 1) {
        entry: RawEntry;
    }

    /// Input of `bi_list`.
    #[derive(Eq)]
    pub(super) struct ListOp("rgw_cls_bi_list_op", version 2, compat 1) {
        max: u32;
        /// If not empty, the one object whose entries are wanted.
        name_filter: Bytes;
        /// The index key after which to begin.
        marker: Bytes;
        /// Whether changes are wanted that were logged while the index moves. There are none.
        reshard_log: bool, since 2;
    }

    /// Output of `bi_list`.
    #[derive(Eq)]
    pub(super) struct ListReply("rgw_cls_bi_list_ret", version 1, compat 1) {
        entries: Vec<RawEntry>;
        is_truncated: bool;
    }
}

pub(super) fn get(object: &mut dyn Object, op: GetOp) -> Result<OneEntry> {
    let index_key = match op.kind {
        kind::PLAIN => op.key.name,
        kind::INSTANCE => keys::entry(&op.key),
        kind::OLH => keys::olh(&op.key.name),
        _ => return Err(Error::EINVAL),
    };
    let data = omap::get(object, &index_key)?;
    Ok(OneEntry {
        entry: RawEntry {
            kind: op.kind,
            index_key,
            data,
        },
    })
}

pub(super) fn put(object: &mut dyn Object, op: OneEntry) -> Result<Nothing> {
    omap::set(object, op.entry.index_key, op.entry.data).map(|()| Nothing)
}

/// Lists the plain entries whose names are ASCII, the instance entries, the OLH entries, and the
/// other plain ones.
pub(super) fn list(object: &mut dyn Object, op: ListOp) -> Result<ListReply> {
    let mut reply = ListReply::default();
    if op.reshard_log {
        return Ok(reply);
    }
    let max = op.max.min(MAX_LIST) as usize;
    for part in [plain_before, instances, olhs, plain_behind] {
        let missing = max.saturating_sub(reply.entries.len());
        reply.is_truncated = part(object, &op, missing, &mut reply.entries)?;
        if reply.is_truncated {
            break;
        }
    }
    reply.is_truncated |= reply.entries.len() > max;
    reply.entries.truncate(max);
    Ok(reply)
}

fn plain_before(object: &mut dyn Object, op: &ListOp, max: usize, found: &mut Vec<RawEntry>) -> Result<bool> {
    match op.marker.first() {
        Some(first) if *first >= keys::SPECIAL => Ok(false),
        _ => plain(object, op, &op.marker, max, found),
    }
}

fn plain_behind(object: &mut dyn Object, op: &ListOp, max: usize, found: &mut Vec<RawEntry>) -> Result<bool> {
    plain(object, op, (&op.marker[..]).max(keys::END), max, found)
}

/// Lists plain entries after `after`. Returns whether there are more.
fn plain(
    object: &mut dyn Object,
    op: &ListOp,
    after: &[u8],
    max: usize,
    found: &mut Vec<RawEntry>,
) -> Result<bool> {
    let is_before = after < &[keys::SPECIAL][..];
    let page = object.omap_vals(after, &op.name_filter, max as u64)?;
    for (index_key, data) in page.items {
        if is_before && index_key.first().is_some_and(|b| *b >= keys::SPECIAL) {
            return Ok(false);
        }
        let entry: DirEntry = stored(&data)?;
        if !op.name_filter.is_empty() && entry.key.name > op.name_filter {
            return Ok(false);
        }
        found.push(RawEntry {
            kind: kind::PLAIN,
            index_key,
            data,
        });
    }
    Ok(page.more)
}

fn instances(object: &mut dyn Object, op: &ListOp, max: usize, found: &mut Vec<RawEntry>) -> Result<bool> {
    let first = keys::instance(&ObjectKey::of_name(op.name_filter.clone()));
    let name = |data: &Bytes| stored::<DirEntry>(data).map(|e| e.key.name);
    special(
        object,
        op,
        Part {
            kind: kind::INSTANCE,
            prefix: keys::INSTANCE,
            first,
            name,
        },
        max,
        found,
    )
}

fn olhs(object: &mut dyn Object, op: &ListOp, max: usize, found: &mut Vec<RawEntry>) -> Result<bool> {
    let first = keys::olh(&op.name_filter);
    let name = |data: &Bytes| stored::<OlhEntry>(data).map(|e| e.key.name);
    special(
        object,
        op,
        Part {
            kind: kind::OLH,
            prefix: keys::OLH,
            first,
            name,
        },
        max,
        found,
    )
}

/// One kind of entries that are not plain.
struct Part {
    kind: u8,
    prefix: &'static [u8],
    /// The first key that an object's entries can have.
    first: Bytes,
    /// The object's name in an entry.
    name: fn(&Bytes) -> Result<Bytes>,
}

/// Lists entries of one kind. Returns whether there are more.
fn special(
    object: &mut dyn Object,
    op: &ListOp,
    part: Part,
    max: usize,
    found: &mut Vec<RawEntry>,
) -> Result<bool> {
    let from = match op.name_filter.is_empty() {
        true => Bytes::from_static(part.prefix),
        false => part.first,
    };
    // A marker of another kind of entry is before these or behind them.
    let is_behind = op.marker > from && op.marker.first() == Some(&keys::SPECIAL);
    let after = if is_behind {
        op.marker.clone()
    } else {
        from.clone()
    };
    let mut items = Vec::new();
    if after != op.marker
        && let Some(value) = omap::find(object, &after)?
    {
        items.push((after.clone(), value));
    }
    let mut more = false;
    if let Some(missing) = max.checked_sub(items.len()).filter(|missing| *missing > 0) {
        let page = object.omap_vals(&after, b"", missing as u64)?;
        items.extend(page.items);
        more = page.more;
    }
    for (index_key, data) in items {
        if !index_key.starts_with(&from) {
            return Ok(false);
        }
        let name = (part.name)(&data)?;
        if !op.name_filter.is_empty() && name != op.name_filter {
            return Ok(false);
        }
        found.push(RawEntry {
            kind: part.kind,
            index_key,
            data,
        });
    }
    Ok(more)
}
