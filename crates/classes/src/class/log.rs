//! A log in the object's omap, in the order of time. Formats: Ceph's `src/cls/log/cls_log_types.h`
//! and `cls_log_ops.h`.
//!
//! The key of an entry is [`time_key`] and a suffix that is unique within a microsecond, unless the
//! client gives the key.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{UTime, versioned};

use crate::method::{Nothing, class, stored, to_bytes};
use crate::time_key::{TIME_KEY_PREFIX, key_or_time, starts_at_or_after, time_key};
use crate::{Error, Object, Result};

class! { "log" {
    "add": RD | WR => add;
    "list": RD => list;
    "trim": RD | WR => trim;
    "info": RD => info;
} }

/// Entries in one listing at most.
const MAX_LIST: u64 = 1000;

versioned! {
    /// An entry.
    #[derive(Eq)]
    pub(crate) struct Entry("cls_log_entry", version 2, compat 1) {
        pub(crate) section: Bytes;
        pub(crate) name: Bytes;
        pub(crate) timestamp: UTime;
        pub(crate) data: Bytes;
        /// The key.
        pub(crate) id: Bytes, since 2;
    }

    /// The omap header.
    #[derive(Eq)]
    pub(crate) struct Header("cls_log_header", version 1, compat 1) {
        /// The highest key so far.
        pub(crate) max_marker: Bytes;
        /// The latest time so far.
        pub(crate) max_time: UTime;
    }

    /// Input of `add`.
    #[derive(Eq)]
    pub(crate) struct AddOp("cls_log_add_op", version 2, compat 1) {
        pub(crate) entries: Vec<Entry>;
        /// Entries older than the latest one are stored at its time.
        pub(crate) monotonic_inc: bool = true, since 2;
    }

    /// Input of `list`.
    #[derive(Eq)]
    pub(crate) struct ListOp("cls_log_list_op", version 1, compat 1) {
        pub(crate) from_time: UTime;
        /// If not empty, the key after which to begin, instead of `from_time`.
        pub(crate) marker: Bytes;
        /// The end of the listing, excluded; ignored unless `from_time` is set.
        pub(crate) to_time: UTime;
        pub(crate) max_entries: i32;
    }

    /// Output of `list`.
    #[derive(Eq)]
    pub(crate) struct ListReply("cls_log_list_ret", version 1, compat 1) {
        pub(crate) entries: Vec<Entry>;
        /// The last key that was read.
        pub(crate) marker: Bytes;
        pub(crate) truncated: bool;
    }

    /// Input of `trim`: each bound as a time or, if not empty, as a key; the end is included.
    #[derive(Eq)]
    pub(crate) struct TrimOp("cls_log_trim_op", version 2, compat 1) {
        pub(crate) from_time: UTime;
        pub(crate) to_time: UTime;
        pub(crate) from_marker: Bytes, since 2;
        pub(crate) to_marker: Bytes, since 2;
    }

    /// Input of `info`.
    #[derive(Eq)]
    pub(crate) struct InfoOp("cls_log_info_op", version 1, compat 1) {}

    /// Output of `info`.
    #[derive(Eq)]
    pub(crate) struct InfoReply("cls_log_info_ret", version 1, compat 1) {
        pub(crate) header: Header;
    }
}

/// The header; an undecodable one counts as none.
fn read_header(object: &mut dyn Object) -> Result<Header> {
    let bytes = object.omap_header()?;
    Ok(stored(&bytes).unwrap_or_default())
}

fn add(object: &mut dyn Object, op: AddOp) -> Result<Nothing> {
    let mut header = read_header(object)?;
    for mut entry in op.entries {
        let mut time = entry.timestamp;
        if op.monotonic_inc && time < header.max_time {
            time = header.max_time;
        }
        header.max_time = header.max_time.max(time);
        if entry.id.is_empty() {
            entry.id = (time_key(time) + &object.subop_version()).into();
        }
        header.max_marker = header.max_marker.max(entry.id.clone());
        object.omap_set(&BTreeMap::from([(entry.id.clone(), to_bytes(&entry))]))?;
    }
    object.omap_set_header(to_bytes(&header))?;
    Ok(Nothing)
}

fn list(object: &mut dyn Object, op: ListOp) -> Result<ListReply> {
    let from = key_or_time(op.marker, op.from_time);
    let bounded = !op.from_time.is_zero() && op.to_time >= op.from_time;
    let end = bounded.then(|| time_key(op.to_time));
    // A negative number is a huge one.
    let max = u64::try_from(op.max_entries).unwrap_or(MAX_LIST);
    let max = if max == 0 { MAX_LIST } else { max.min(MAX_LIST) };
    let page = object.omap_vals(&from, TIME_KEY_PREFIX, max)?;
    let mut reply = ListReply {
        truncated: page.more,
        ..ListReply::default()
    };
    for (key, value) in page.items {
        let past = end
            .as_ref()
            .is_some_and(|end| starts_at_or_after(&key, end.as_bytes()));
        reply.marker = key;
        if past {
            reply.truncated = false;
            break;
        }
        // Undecodable values are skipped.
        reply.entries.extend(stored(&value).ok());
    }
    Ok(reply)
}

fn trim(object: &mut dyn Object, op: TrimOp) -> Result<Nothing> {
    let begin = key_or_time(op.from_marker, op.from_time);
    // One past the end: the next microsecond, or the next key that there could be.
    let end = match op.to_marker.is_empty() {
        true => time_key(next_usec(op.to_time)).into_bytes(),
        false => [&op.to_marker[..], &[0]].concat(),
    };
    let first = object.omap_keys(&begin, 1)?.items.into_iter().next();
    match first.filter(|key| end.as_slice() >= &key[..]) {
        Some(first) => object.omap_remove_range(&first, &end).map(|()| Nothing),
        None => Err(Error::ENODATA),
    }
}

/// The time a microsecond later, carried into the seconds as Ceph's `utime_t` does it.
fn next_usec(time: UTime) -> UTime {
    const SECOND: u32 = 1_000_000_000;
    let nsec = time.nsec.wrapping_add(1000);
    match nsec > SECOND {
        true => UTime {
            sec: time.sec.saturating_add(nsec / SECOND),
            nsec: nsec % SECOND,
        },
        false => UTime { nsec, ..time },
    }
}

fn info(object: &mut dyn Object, _: InfoOp) -> Result<InfoReply> {
    let header = read_header(object)?;
    Ok(InfoReply { header })
}
