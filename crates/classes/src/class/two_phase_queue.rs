//! A queue whose room is reserved before entries are committed to it: the class `2pc_queue`.
//! Formats: Ceph's `src/cls/2pc_queue/cls_2pc_queue_types.h` and `cls_2pc_queue_ops.h`.
//!
//! Numbers of entries are stored as by the releases that have `2pc_queue_get_topic_stats`; readers of
//! earlier ones skip them.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Reader, UTime, versioned};

use super::queue::{self, ENTRY_OVERHEAD, Entries, Head, Marker, enqueue, read_spilled, write_spilled};
use crate::method::{Nothing, class, to_bytes};
use crate::{Error, Object, Result};

class! { "2pc_queue" {
    "2pc_queue_init": RD | WR => init;
    "2pc_queue_get_capacity": RD => queue::get_capacity;
    "2pc_queue_get_topic_stats": RD => get_topic_stats;
    "2pc_queue_reserve": RD | WR => reserve;
    "2pc_queue_commit": RD | WR => commit;
    "2pc_queue_abort": RD | WR => abort;
    "2pc_queue_list_reservations": RD => list_reservations;
    "2pc_queue_list_entries": RD => queue::list_entries;
    "2pc_queue_remove_entries": RD | WR => remove_entries;
    "2pc_queue_expire_reservations": RD | WR => expire_reservations;
} }

/// Bytes of urgent data in the head: about 1000 reservations.
const MAX_URGENT_DATA: u64 = 23552;

/// Reservations by their ids. Ceph writes them in no particular order.
type Reservations = BTreeMap<u32, Reservation>;

versioned! {
    /// Room for entries that are to come.
    #[derive(Eq)]
    pub(crate) struct Reservation("cls_2pc_reservation", version 2, compat 1) {
        /// Bytes of the entries' data.
        pub(crate) size: u64;
        /// When it was made.
        pub(crate) timestamp: UTime;
        /// The number of entries.
        pub(crate) entries: u32, since 2;
    }

    /// The urgent data in the head.
    #[derive(Eq)]
    pub(crate) struct UrgentData("cls_2pc_urgent_data", version 2, compat 1) {
        /// Bytes that are reserved. The overhead of reserved entries is added and, as in Ceph, never
        /// subtracted.
        pub(crate) reserved_size: u64;
        /// The id that a reservation got last.
        pub(crate) last_id: u32;
        pub(crate) reservations: Reservations;
        /// Whether reservations were ever put into the attribute.
        pub(crate) has_xattrs: bool;
        /// The number of entries in the queue.
        pub(crate) committed_entries: u32, since 2;
    }

    /// Input of `2pc_queue_reserve`.
    #[derive(Eq)]
    pub(crate) struct ReserveOp("cls_2pc_queue_reserve_op", version 1, compat 1) {
        /// Bytes of the entries' data.
        pub(crate) size: u64;
        pub(crate) entries: u32;
    }

    /// Output of `2pc_queue_reserve`, and input of `2pc_queue_abort`.
    #[derive(Eq)]
    pub(crate) struct IdOp("cls_2pc_queue_abort_op", version 1, compat 1) {
        pub(crate) id: u32;
    }

    /// Input of `2pc_queue_commit`.
    #[derive(Eq)]
    pub(crate) struct CommitOp("cls_2pc_queue_commit_op", version 1, compat 1) {
        pub(crate) id: u32;
        pub(crate) entries: Vec<Bytes>;
    }

    /// Output of `2pc_queue_list_reservations`.
    #[derive(Eq)]
    pub(crate) struct ReservationsReply("cls_2pc_queue_reservations_ret", version 1, compat 1) {
        pub(crate) reservations: Reservations;
    }

    /// Input of `2pc_queue_expire_reservations`.
    #[derive(Eq)]
    pub(crate) struct ExpireOp("cls_2pc_queue_expire_op", version 1, compat 1) {
        /// Reservations from before this time go.
        pub(crate) stale_time: UTime;
    }

    /// Input of `2pc_queue_remove_entries`.
    #[derive(Eq)]
    pub(crate) struct RemoveOp("cls_2pc_queue_remove_op", version 2, compat 1) {
        /// The marker of the first entry that stays, or of the queue's end.
        pub(crate) end_marker: Bytes;
        /// The number of entries that go; zero where the client does not count them.
        pub(crate) entries_to_remove: u32, since 2;
    }

    /// Output of `2pc_queue_get_topic_stats`.
    #[derive(Eq)]
    pub(crate) struct StatsReply("cls_queue_get_stats_ret", version 1, compat 1) {
        /// Bytes of all entries.
        pub(crate) queue_size: u64;
        pub(crate) queue_entries: u32;
    }
}

impl UrgentData {
    /// Reads the urgent data; EINVAL where it can't be decoded.
    fn read(head: &Head) -> Result<Self> {
        Reader::new(&head.urgent_data).get().map_err(|_| Error::EINVAL)
    }

    fn write(&self, object: &mut dyn Object, mut head: Head) -> Result<Nothing> {
        head.urgent_data = to_bytes(self);
        head.write(object)
    }

    /// Takes a reservation out of the head or the attribute, if it is there.
    fn take(&mut self, object: &mut dyn Object, id: u32) -> Result<Option<Reservation>> {
        if let Some(found) = self.reservations.remove(&id) {
            return Ok(Some(found));
        }
        let mut spilled = self.spilled(object)?;
        let found = spilled.remove(&id);
        if found.is_some() {
            write_spilled(object, &spilled)?;
        }
        Ok(found)
    }

    /// The reservations in the attribute.
    fn spilled(&self, object: &mut dyn Object) -> Result<Reservations> {
        match self.has_xattrs {
            true => Ok(read_spilled(object)?.unwrap_or_default()),
            false => Ok(Reservations::new()),
        }
    }

    fn release(&mut self, size: u64) {
        self.reserved_size = self.reserved_size.wrapping_sub(size);
    }
}

fn init(object: &mut dyn Object, op: queue::InitOp) -> Result<Nothing> {
    let op = queue::InitOp {
        queue_size: op.queue_size,
        max_urgent_data_size: MAX_URGENT_DATA,
        urgent_data: to_bytes(&UrgentData::default()),
    };
    queue::init(object, op)
}

fn get_topic_stats(object: &mut dyn Object, _: Nothing) -> Result<StatsReply> {
    let head = Head::read(object)?;
    Ok(StatsReply {
        queue_size: head.capacity() - head.free(),
        queue_entries: UrgentData::read(&head)?.committed_entries,
    })
}

/// Reserves room; ENOSPC where there is not so much.
fn reserve(object: &mut dyn Object, op: ReserveOp) -> Result<IdOp> {
    if op.size == 0 || op.entries == 0 {
        return Err(Error::EINVAL);
    }
    let mut head = Head::read(object)?;
    let mut urgent = UrgentData::read(&head)?;
    let wanted = op.size.saturating_add(u64::from(op.entries) * ENTRY_OVERHEAD);
    if wanted.saturating_add(urgent.reserved_size) > head.free() {
        return Err(Error::ENOSPC);
    }
    urgent.reserved_size += wanted;
    urgent.last_id = urgent.last_id.wrapping_add(1);
    let id = urgent.last_id;
    let reservation = Reservation {
        size: op.size,
        timestamp: object.now(),
        entries: op.entries,
    };
    // Only a reservation of four thousand million calls ago has the same id.
    if urgent.reservations.insert(id, reservation.clone()).is_some() {
        return Err(Error::EAGAIN);
    }
    head.urgent_data = to_bytes(&urgent);
    if head.urgent_data.len() as u64 > head.max_urgent_data_size {
        urgent.reservations.remove(&id);
        let mut spilled: Reservations = read_spilled(object)?.unwrap_or_default();
        if spilled.insert(id, reservation).is_some() {
            return Err(Error::EAGAIN);
        }
        write_spilled(object, &spilled)?;
        urgent.has_xattrs = true;
        head.urgent_data = to_bytes(&urgent);
    }
    head.write(object)?;
    Ok(IdOp { id })
}

/// Adds entries to the queue, in the room that was reserved for them.
fn commit(object: &mut dyn Object, op: CommitOp) -> Result<Nothing> {
    let mut head = Head::read(object)?;
    let mut urgent = UrgentData::read(&head)?;
    let reservation = urgent.take(object, op.id)?.ok_or(Error::ENOENT)?;
    if op.entries.iter().map(|e| e.len() as u64).sum::<u64>() > reservation.size {
        return Err(Error::EINVAL);
    }
    enqueue(object, &mut head, &op.entries)?;
    urgent.release(reservation.size);
    urgent.committed_entries = urgent.committed_entries.wrapping_add(reservation.entries);
    urgent.write(object, head)
}

fn abort(object: &mut dyn Object, op: IdOp) -> Result<Nothing> {
    let head = Head::read(object)?;
    let mut urgent = UrgentData::read(&head)?;
    match urgent.take(object, op.id)? {
        Some(reservation) => {
            urgent.release(reservation.size);
            urgent.write(object, head)
        }
        None => Ok(Nothing),
    }
}

fn list_reservations(object: &mut dyn Object, _: Nothing) -> Result<ReservationsReply> {
    let head = Head::read(object)?;
    let urgent = UrgentData::read(&head)?;
    let mut reservations = urgent.spilled(object)?;
    reservations.extend(urgent.reservations);
    Ok(ReservationsReply { reservations })
}

fn expire_reservations(object: &mut dyn Object, op: ExpireOp) -> Result<Nothing> {
    let head = Head::read(object)?;
    let mut urgent = UrgentData::read(&head)?;
    let mut spilled = urgent.spilled(object)?;
    let mut sizes = Vec::new();
    let mut stays = |_: &u32, reservation: &mut Reservation| {
        let stays = reservation.timestamp >= op.stale_time;
        sizes.extend((!stays).then_some(reservation.size));
        stays
    };
    urgent.reservations.retain(&mut stays);
    let count = spilled.len();
    spilled.retain(&mut stays);
    if sizes.is_empty() {
        return Ok(Nothing);
    }
    if spilled.len() < count {
        write_spilled(object, &spilled)?;
    }
    sizes.into_iter().for_each(|size| urgent.release(size));
    urgent.write(object, head)
}

fn remove_entries(object: &mut dyn Object, op: RemoveOp) -> Result<Nothing> {
    let mut head = Head::read(object)?;
    let count = match op.entries_to_remove {
        0 => count_until(object, &head, &op.end_marker)?,
        n => n,
    };
    queue::remove(object, &mut head, Marker::parse(&op.end_marker))?;
    let mut urgent = UrgentData::read(&head)?;
    urgent.committed_entries = urgent.committed_entries.wrapping_sub(count);
    urgent.write(object, head)
}

/// The number of entries before a marker, or of all.
fn count_until(object: &mut dyn Object, head: &Head, end_marker: &Bytes) -> Result<u32> {
    let mut entries = Entries::from(object, head, b"")?;
    let mut count = 0u32;
    while entries.position().to_bytes() != *end_marker && entries.next()?.is_some() {
        count = count.wrapping_add(1);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use spirula_denc::{Encode, decode_all, encode_to_vec};

    use super::*;
    use crate::testing::{State, View, World, replay_in_view};

    fn without_entries(mut reservations: Reservations) -> Reservations {
        reservations.values_mut().for_each(|r| r.entries = 0);
        reservations
    }

    /// The object without what Ceph 16.2 does not know, and with all reservations in the head, where
    /// as many as 16.2 has there have no room with their numbers of entries.
    fn plain(state: &State) -> State {
        let mut state = state.clone();
        let attribute = Bytes::from_static(queue::SPILL_ATTRIBUTE);
        let spilled = state.attrs.get(&attribute).map(|value| decode_all(value));
        let Some(spilled) = spilled.unwrap_or(Ok(Reservations::new())).ok() else {
            return state;
        };
        state.attrs.remove(&attribute);
        state.data = queue::with_urgent_data(&state.data, |bytes| {
            let Ok(mut urgent) = decode_all::<UrgentData>(&bytes) else {
                return bytes;
            };
            urgent.reservations.extend(spilled);
            urgent.reservations = without_entries(urgent.reservations);
            (urgent.has_xattrs, urgent.committed_entries) = (false, 0);
            to_bytes(&urgent)
        });
        state
    }

    #[test]
    fn recorded() {
        let output = |method: &str, output: Bytes| {
            if method != "2pc_queue_list_reservations" || output.is_empty() {
                return output;
            }
            let reply: ReservationsReply = decode_all(&output).unwrap();
            to_bytes(&ReservationsReply {
                reservations: without_entries(reply.reservations),
            })
        };
        let view = View { state: plain, output };
        replay_in_view(include_str!("../../testdata/two_phase_queue.txt"), view);
    }

    /// Results as the source of Ceph's Squid tells them: older releases do not count entries.
    #[test]
    fn entries_are_counted() {
        let mut world = World::default();
        let call = |world: &mut World, method: &str, op: &dyn Fn() -> Vec<u8>| {
            let (code, out) = world.call("2pc_queue", &format!("2pc_queue_{method}"), &op());
            assert_eq!(code, 0, "{method}");
            out
        };
        fn op<T: Encode>(op: T) -> impl Fn() -> Vec<u8> {
            move || encode_to_vec(&op)
        }
        let stats = |world: &mut World| {
            let out = call(world, "get_topic_stats", &op(Nothing));
            let reply: StatsReply = decode_all(&out).unwrap();
            (reply.queue_size, reply.queue_entries)
        };
        let size = queue::InitOp {
            queue_size: 33,
            ..queue::InitOp::default()
        };
        call(&mut world, "init", &op(size));
        for id in 1..=3 {
            call(&mut world, "reserve", &op(ReserveOp { size: 1, entries: 1 }));
            let entries = vec!["e".into()];
            call(&mut world, "commit", &op(CommitOp { id, entries }));
            // Ceph never gives back a reservation's overhead, so that fewer fit.
            world.state.data = queue::with_urgent_data(&world.state.data, |bytes| {
                let mut urgent: UrgentData = decode_all(&bytes).unwrap();
                urgent.reserved_size = 0;
                to_bytes(&urgent)
            });
        }
        assert_eq!(stats(&mut world), (33, 3));
        let remove = |end_marker: &'static str, entries_to_remove| {
            op(RemoveOp {
                end_marker: end_marker.into(),
                entries_to_remove,
            })
        };
        call(&mut world, "remove_entries", &remove("0/24587", 1));
        assert_eq!(stats(&mut world), (22, 2));
        call(&mut world, "remove_entries", &remove("0/24598", 0));
        assert_eq!(stats(&mut world), (11, 1));
        call(&mut world, "remove_entries", &remove("1/24576", 0));
        assert_eq!(stats(&mut world), (0, 0));
    }
}
