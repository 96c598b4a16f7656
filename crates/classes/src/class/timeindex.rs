//! Values in the object's omap under times. Formats: Ceph's
//! `src/cls/timeindex/cls_timeindex_types.h` and `cls_timeindex_ops.h`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::{UTime, versioned};

use crate::method::{Nothing, class};
use crate::text::{is_space, until_nul};
use crate::time_key::{TIME_KEY_PREFIX, key_or_time, starts_after, starts_at_or_after, time_key};
use crate::{Error, Object, Result};

class! { "timeindex" {
    "add": RD | WR => add;
    "list": RD => list;
    "trim": RD | WR => trim;
} }

/// Entries in one listing at most.
const MAX_LIST: u64 = 1000;
/// Entries that one trim removes at most.
const MAX_TRIM: u64 = 1000;
/// Bytes of a key's extension that a listing returns at most.
const MAX_EXTENSION: usize = 255;

versioned! {
    /// An entry.
    #[derive(Eq)]
    pub(crate) struct Entry("cls_timeindex_entry", version 1, compat 1) {
        pub(crate) time: UTime;
        /// The part of the key that is unique within one time.
        pub(crate) extension: Bytes;
        pub(crate) value: Bytes;
    }

    /// Input of `add`.
    #[derive(Eq)]
    pub(crate) struct AddOp("cls_timeindex_add_op", version 1, compat 1) {
        pub(crate) entries: Vec<Entry>;
    }

    /// Input of `list`.
    #[derive(Eq)]
    pub(crate) struct ListOp("cls_timeindex_list_op", version 1, compat 1) {
        pub(crate) from_time: UTime;
        /// If not empty, the key after which to begin, instead of `from_time`.
        pub(crate) marker: Bytes;
        /// The end of the listing, excluded; ignored if it is before `from_time`.
        pub(crate) to_time: UTime;
        pub(crate) max_entries: i32;
    }

    /// Output of `list`.
    #[derive(Eq)]
    pub(crate) struct ListReply("cls_timeindex_list_ret", version 1, compat 1) {
        pub(crate) entries: Vec<Entry>;
        /// The last key in the reply.
        pub(crate) marker: Bytes;
        pub(crate) truncated: bool;
    }

    /// Input of `trim`: each bound as a time or, if not empty, as a key; the end is included.
    #[derive(Eq)]
    pub(crate) struct TrimOp("cls_timeindex_trim_op", version 1, compat 1) {
        pub(crate) from_time: UTime;
        pub(crate) to_time: UTime;
        pub(crate) from_marker: Bytes;
        pub(crate) to_marker: Bytes;
    }
}

fn add(object: &mut dyn Object, op: AddOp) -> Result<Nothing> {
    for entry in op.entries {
        let key = [time_key(entry.time).as_bytes(), &entry.extension].concat();
        object.omap_set(&BTreeMap::from([(key.into(), entry.value)]))?;
    }
    Ok(Nothing)
}

fn list(object: &mut dyn Object, op: ListOp) -> Result<ListReply> {
    let from = key_or_time(op.marker, op.from_time);
    let end = (op.to_time >= op.from_time).then(|| time_key(op.to_time));
    // A negative number is a huge one.
    let max = u64::try_from(op.max_entries).unwrap_or(MAX_LIST).min(MAX_LIST);
    let page = object.omap_vals(&from, TIME_KEY_PREFIX, max)?;
    let mut reply = ListReply {
        truncated: page.more,
        ..ListReply::default()
    };
    for (key, value) in page.items {
        if end
            .as_ref()
            .is_some_and(|end| starts_at_or_after(&key, end.as_bytes()))
        {
            reply.truncated = false;
            break;
        }
        if let Some((time, extension)) = parse_key(&key) {
            reply.entries.push(Entry {
                time,
                extension,
                value,
            });
        }
        reply.marker = key;
    }
    Ok(reply)
}

/// Time and extension of a key, as Ceph's `sscanf` with `1_%d.%d_%255s` parses them: microseconds
/// become nanoseconds, and the extension ends at a blank. `None` where the key ends before the
/// time.
fn parse_key(key: &[u8]) -> Option<(UTime, Bytes)> {
    let mut rest = until_nul(key).strip_prefix(TIME_KEY_PREFIX)?;
    if rest.iter().all(|b| is_space(*b)) {
        return None;
    }
    let mut time = UTime::ZERO;
    let Some(sec) = scan_number(&mut rest) else {
        return Some((time, Bytes::new()));
    };
    time.sec = sec;
    let nsec = rest.strip_prefix(b".").and_then(|r| {
        rest = r;
        scan_number(&mut rest)
    });
    let Some(nsec) = nsec else {
        return Some((time, Bytes::new()));
    };
    time.nsec = nsec;
    let word = rest.strip_prefix(b"_").unwrap_or_default();
    let word = word
        .iter()
        .skip_while(|b| is_space(**b))
        .take_while(|b| !is_space(**b));
    Some((time, word.take(MAX_EXTENSION).copied().collect()))
}

/// Parses a decimal number at the start of `text`, which moves past it; the number wraps as `int`
/// does.
fn scan_number(text: &mut &[u8]) -> Option<u32> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (number, rest) = text.split_at_checked(digits).filter(|(n, _)| !n.is_empty())?;
    *text = rest;
    let value = number.iter().fold(0u64, |n, d| {
        n.saturating_mul(10).saturating_add(u64::from(d - b'0'))
    });
    Some((value.min(i64::MAX as u64) & u64::from(u32::MAX)) as u32)
}

fn trim(object: &mut dyn Object, op: TrimOp) -> Result<Nothing> {
    let from = key_or_time(op.from_marker, op.from_time);
    let end = key_or_time(op.to_marker, op.to_time);
    let page = object.omap_vals(&from, TIME_KEY_PREFIX, MAX_TRIM)?;
    let keys: BTreeSet<Bytes> = page
        .items
        .into_iter()
        .map(|(key, _)| key)
        .take_while(|key| !starts_after(key, &end))
        .collect();
    if keys.is_empty() {
        return Err(Error::ENODATA);
    }
    object.omap_remove(&keys).map(|()| Nothing)
}
