//! The garbage collector's queue: data of deleted and overwritten objects that is to be removed
//! later. Formats and results are those of Ceph's `src/cls/rgw_gc`.
//!
//! An entry is a chain of RADOS objects under a tag, and the time from which it may be removed.
//! Entries stay where they are in the queue; that the time of one was put off is noted beside it,
//! in the head's urgent data, or in an attribute where that is full.

mod deferred;

use bytes::Bytes;
use spirula_denc::{Reader, UTime, encode_to_vec, versioned};

use self::deferred::{Deferred, Spilled, UrgentData};
use super::queue::{self, Entries, Entry, Head, enqueue, read_spilled, write_spilled};
use super::rgw::gc_entry::{ListOp, ListReply, ObjInfo, SetEntryOp};
use crate::method::{Nothing, class, to_bytes};
use crate::{Error, Object, Result};

class! { "rgw_gc" {
    "rgw_gc_queue_init": RD | WR => init;
    "rgw_gc_queue_enqueue": RD | WR => enqueue_entry;
    "rgw_gc_queue_list_entries": RD => list_entries;
    "rgw_gc_queue_remove_entries": RD | WR => remove_entries;
    "rgw_gc_queue_update_entry": RD | WR => update_entry;
} }

/// Bytes of urgent data in the head: Ceph's `rgw_gc_max_deferred_entries_size`.
const MAX_URGENT_DATA: u64 = 3072;
/// Entries where the client leaves the number open.
const DEFAULT_MAX: u32 = 128;

versioned! {
    /// Input of `rgw_gc_queue_init`.
    #[derive(Eq)]
    pub(super) struct InitOp("cls_rgw_gc_queue_init_op", version 1, compat 1) {
        /// Bytes for entries.
        pub(super) size: u64;
        /// The number of tags whose time may be put off.
        pub(super) num_deferred_entries: u64;
    }

    /// Input of `rgw_gc_queue_remove_entries`.
    #[derive(Eq)]
    pub(super) struct RemoveOp("cls_rgw_gc_queue_remove_entries_op", version 1, compat 1) {
        /// The number of entries from the front on, without those that were put off, which go with
        /// them.
        pub(super) num_entries: u64;
    }
}

fn init(object: &mut dyn Object, op: InitOp) -> Result<Nothing> {
    let urgent_data = UrgentData {
        // Of the number the lower 32 bits are kept.
        max_entries: op.num_deferred_entries as u32,
        ..UrgentData::default()
    };
    let op = queue::InitOp {
        queue_size: op.size,
        max_urgent_data_size: MAX_URGENT_DATA,
        urgent_data: to_bytes(&urgent_data),
    };
    queue::init(object, op)
}

/// A time from now on, as in the 32 bits of an encoded time.
fn after(object: &mut dyn Object, seconds: u32) -> UTime {
    let now = object.now();
    UTime {
        sec: now.sec.wrapping_add(seconds),
        ..now
    }
}

fn enqueue_entry(object: &mut dyn Object, mut op: SetEntryOp) -> Result<Nothing> {
    op.info.time = after(object, op.expiration_secs);
    let mut head = Head::read(object)?;
    enqueue(object, &mut head, &[to_bytes(&op.info)])?;
    head.write(object)
}

fn decode_info(object: &mut dyn Object, entry: &Entry) -> Result<ObjInfo> {
    // Decoded, the shortest names take several times their bytes.
    object.reserve(entry.data.len() as u64 * 4)?;
    Reader::new(&entry.data).get().map_err(|_| Error::EINVAL)
}

/// Lists entries, without those whose time was put off. Of `max`, also those count that are left
/// out as their time has not come.
fn list_entries(object: &mut dyn Object, op: ListOp) -> Result<ListReply> {
    let head = Head::read(object)?;
    let mut deferred = Deferred::read(&head)?;
    let now = object.now();
    let max = if op.max == 0 { DEFAULT_MAX } else { op.max };
    let mut entries = Entries::from(object, &head, &op.marker)?;
    let mut reply = ListReply::default();
    let mut count = 0;
    while count < max {
        let Some(entry) = entries.next()? else {
            break;
        };
        let info = decode_info(entries.object, &entry)?;
        if deferred.is_put_off(entries.object, &info)? {
            continue;
        }
        count += 1;
        if !op.expired_only || info.time <= now {
            reply.entries.push(info);
        }
    }
    reply.truncated = !entries.at_end();
    if reply.truncated {
        reply.next_marker = entries.position().to_bytes();
    }
    Ok(reply)
}

/// Removes entries from the front on, and what was noted of them.
fn remove_entries(object: &mut dyn Object, op: RemoveOp) -> Result<Nothing> {
    let mut head = Head::read(object)?;
    let mut deferred = Deferred::read(&head)?;
    let max = match op.num_entries {
        0 => u64::from(DEFAULT_MAX),
        n => n,
    };
    let mut entries = Entries::from(object, &head, b"")?;
    let mut count = 0;
    let end = loop {
        let at = entries.position();
        let Some(entry) = entries.next()? else {
            break entries.position();
        };
        let info = decode_info(entries.object, &entry)?;
        if deferred.is_put_off(entries.object, &info)? {
            continue;
        }
        // As in Ceph, also the note of the first entry that stays is dropped.
        deferred.forget(entries.object, &info)?;
        if count == max {
            break at;
        }
        count += 1;
    };
    queue::remove(object, &mut head, end)?;
    head.urgent_data = to_bytes(&deferred.urgent);
    head.write(object)
}

/// Puts off the time of an entry; ENOSPC where there are too many such.
fn update_entry(object: &mut dyn Object, op: SetEntryOp) -> Result<Nothing> {
    let time = after(object, op.expiration_secs);
    let tag = op.info.tag;
    let mut head = Head::read(object)?;
    let mut urgent: UrgentData = Reader::new(&head.urgent_data).get().map_err(|_| Error::EINVAL)?;
    if let Some(noted) = urgent.times.get_mut(&tag) {
        *noted = time;
    } else {
        let spilled: Option<Spilled> = read_spilled(object)?;
        let mut spilled = spilled.unwrap_or_default();
        if let Some(noted) = spilled.get_mut(&tag) {
            *noted = time;
            write_spilled(object, &spilled)?;
        } else {
            add(object, &head, &mut urgent, spilled, (tag, time))?;
        }
    }
    if urgent.entries() > urgent.max_entries {
        return Err(Error::ENOSPC);
    }
    head.urgent_data = to_bytes(&urgent);
    head.write(object)
}

/// Notes a tag's time in the urgent data or, where the head has no room for it, in the attribute.
fn add(
    object: &mut dyn Object,
    head: &Head,
    urgent: &mut UrgentData,
    mut spilled: Spilled,
    (tag, time): (Bytes, UTime),
) -> Result<()> {
    urgent.times.insert(tag.clone(), time);
    urgent.head_entries = urgent.head_entries.wrapping_add(1);
    if encode_to_vec(urgent).len() as u64 <= head.max_urgent_data_size {
        return Ok(());
    }
    urgent.times.remove(&tag);
    urgent.head_entries = urgent.head_entries.wrapping_sub(1);
    urgent.xattr_entries = urgent.xattr_entries.wrapping_add(1);
    spilled.insert(tag, time);
    write_spilled(object, &spilled)
}

#[cfg(test)]
mod tests {
    use spirula_denc::{Decode, Encode, decode_all};

    use super::*;
    use crate::testing::{State, View, replay_in_view};

    /// The bytes with maps in our order, in which Ceph does not write them.
    fn in_order<T: Decode + Encode>(bytes: Bytes) -> Bytes {
        decode_all::<T>(&bytes).map_or(bytes, |value| to_bytes(&value))
    }

    #[test]
    fn recorded() {
        let state = |state: &State| {
            let mut state = state.clone();
            state.data = queue::with_urgent_data(&state.data, in_order::<UrgentData>);
            for value in state.attrs.values_mut() {
                *value = in_order::<Spilled>(std::mem::take(value));
            }
            state
        };
        let output = |_: &str, output| output;
        replay_in_view(
            include_str!("../../../testdata/rgw_gc.txt"),
            View { state, output },
        );
    }
}
