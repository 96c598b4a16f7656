//! A queue of entries in a ring that is the object's data. Formats and results are those of Ceph's
//! `src/cls/queue`. The classes `rgw_gc` and `2pc_queue` are such queues with more in the head.

mod entries;
mod head;
mod spill;

use bytes::Bytes;
use spirula_denc::versioned;

#[cfg(test)]
pub(super) use {head::with_urgent_data, spill::ATTRIBUTE as SPILL_ATTRIBUTE};

pub(super) use entries::{Entries, Entry, enqueue, remove};
pub(super) use head::{ENTRY_OVERHEAD, Head, Marker};
pub(super) use spill::{read_spilled, write_spilled};

use crate::error::unless;
use crate::method::{Nothing, class};
use crate::{Error, Object, Result};

class! { "queue" {
    "queue_init": RD | WR => init;
    "queue_get_capacity": RD => get_capacity;
    "queue_enqueue": RD | WR => enqueue_entries;
    "queue_list_entries": RD => list_entries;
    "queue_remove_entries": RD | WR => remove_entries;
} }

versioned! {
    /// Input of `queue_init`.
    #[derive(Eq)]
    pub(super) struct InitOp("cls_queue_init_op", version 1, compat 1) {
        /// Bytes for entries.
        pub(super) queue_size: u64;
        /// Bytes for urgent data in the head.
        pub(super) max_urgent_data_size: u64;
        pub(super) urgent_data: Bytes;
    }

    /// Input of `queue_enqueue`.
    #[derive(Eq)]
    pub(super) struct EnqueueOp("cls_queue_enqueue_op", version 1, compat 1) {
        pub(super) entries: Vec<Bytes>;
    }

    /// Input of `queue_list_entries`.
    #[derive(Eq)]
    pub(super) struct ListOp("cls_queue_list_op", version 2, compat 1) {
        pub(super) max: u64;
        /// The [`Marker`] of the entry to begin with; empty for the first.
        pub(super) start_marker: Bytes;
        /// If not empty, the marker of the entry at which to end, excluded.
        pub(super) end_marker: Bytes, since 2;
    }

    /// Output of `queue_list_entries`.
    #[derive(Eq)]
    pub(super) struct ListReply("cls_queue_list_ret", version 1, compat 1) {
        pub(super) is_truncated: bool;
        /// The marker of the entry that follows, or of the queue's end.
        pub(super) next_marker: Bytes;
        pub(super) entries: Vec<Entry>;
    }

    /// Input of `queue_remove_entries`.
    #[derive(Eq)]
    pub(super) struct RemoveOp("cls_queue_remove_op", version 1, compat 1) {
        /// The marker of the first entry that stays, or of the queue's end.
        pub(super) end_marker: Bytes;
    }

    /// Output of `queue_get_capacity`.
    #[derive(Eq)]
    pub(super) struct CapacityReply("cls_queue_get_capacity_ret", version 1, compat 1) {
        /// Bytes for entries.
        pub(super) queue_capacity: u64;
    }
}

/// Makes an empty queue of whatever the object is, unless that is a queue already.
pub(super) fn init(object: &mut dyn Object, op: InitOp) -> Result<Nothing> {
    if unless(Head::read(object), &[Error::EINVAL])?.is_some() {
        return Err(Error::EEXIST);
    }
    Head::new(op.queue_size, op.max_urgent_data_size, op.urgent_data).write(object)
}

pub(super) fn get_capacity(object: &mut dyn Object, _: Nothing) -> Result<CapacityReply> {
    let queue_capacity = Head::read(object)?.capacity();
    Ok(CapacityReply { queue_capacity })
}

fn enqueue_entries(object: &mut dyn Object, op: EnqueueOp) -> Result<Nothing> {
    let mut head = Head::read(object)?;
    enqueue(object, &mut head, &op.entries)?;
    head.write(object)
}

pub(super) fn list_entries(object: &mut dyn Object, op: ListOp) -> Result<ListReply> {
    let head = Head::read(object)?;
    let mut entries = Entries::from(object, &head, &op.start_marker)?;
    let mut reply = ListReply::default();
    // No number is no limit.
    let max = if op.max == 0 { u64::MAX } else { op.max };
    while (reply.entries.len() as u64) < max && entries.position().to_bytes() != op.end_marker {
        let Some(entry) = entries.next()? else {
            break;
        };
        reply.entries.push(entry);
    }
    reply.is_truncated = !entries.at_end();
    reply.next_marker = entries.position().to_bytes();
    Ok(reply)
}

fn remove_entries(object: &mut dyn Object, op: RemoveOp) -> Result<Nothing> {
    let mut head = Head::read(object)?;
    remove(object, &mut head, Marker::parse(&op.end_marker))?;
    head.write(object)
}

#[cfg(test)]
mod tests {
    use spirula_denc::encode_to_vec;

    use super::*;
    use crate::testing::World;

    fn queue(size: u64) -> World {
        let mut world = World::default();
        let op = InitOp {
            queue_size: size,
            ..InitOp::default()
        };
        assert_eq!(world.call("queue", "queue_init", &encode_to_vec(&op)).0, 0);
        world
    }

    fn enqueue(world: &mut World, entries: &[&'static str]) -> i32 {
        let op = EnqueueOp {
            entries: entries.iter().map(|e| Bytes::from(*e)).collect(),
        };
        world.call("queue", "queue_enqueue", &encode_to_vec(&op)).0
    }

    /// What Ceph gets wrong, or never ends with.
    #[test]
    fn entries_are_not_overwritten_and_places_must_be_in_the_queue() {
        let mut world = queue(20);
        assert_eq!(enqueue(&mut world, &["0123456789", "more"]), -28);
        assert_eq!(enqueue(&mut world, &["0123456789"]), 0);
        assert_eq!(enqueue(&mut world, &[]), 0);
        let mut world = queue(100);
        assert_eq!(enqueue(&mut world, &["a", "b"]), 0);
        for (marker, good) in [
            ("0/1035", true),
            ("0/1046", true),
            ("0/1047", false),
            ("1/1024", false),
        ] {
            let op = RemoveOp {
                end_marker: marker.into(),
            };
            let code = world
                .clone()
                .call("queue", "queue_remove_entries", &encode_to_vec(&op))
                .0;
            assert_eq!(code, if good { 0 } else { -22 }, "{marker}");
        }
        for (marker, code) in [("0/1046", 0), ("0/1047", -22), ("0/18446744073709551615", -22)] {
            let op = ListOp {
                start_marker: marker.into(),
                ..ListOp::default()
            };
            let found = world.call("queue", "queue_list_entries", &encode_to_vec(&op)).0;
            assert_eq!(found, code, "{marker}");
        }
    }

    #[test]
    fn a_listing_ends_before_its_end_marker() {
        let mut world = queue(100);
        assert_eq!(enqueue(&mut world, &["a", "b", "c"]), 0);
        let op = ListOp {
            max: 9,
            end_marker: "0/1046".into(),
            ..ListOp::default()
        };
        let (code, out) = world.call("queue", "queue_list_entries", &encode_to_vec(&op));
        let reply: ListReply = spirula_denc::decode_all(&out).unwrap();
        assert_eq!((code, reply.entries.len(), reply.is_truncated), (0, 2, true));
        assert_eq!(reply.next_marker, "0/1046");
    }
}
