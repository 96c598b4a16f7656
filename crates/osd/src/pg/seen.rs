//! A PG as it is looked at: by whoever asks how it is, and by itself before it heeds a message. Nothing is changed here.

use super::copying::Copying;
use super::counters::Counters;
use super::describe::{OpRecord, Progress};
use super::leadership::Leadership;
use super::op::ClientOp;
use super::op_queue::OpQueue;
use super::recent::State;
use super::role::Role;
use super::site::Site;
use super::store_queue::Pending;
use super::store_queue::StoreQueue;
use super::stored_copy::StoredCopy;

/// All parts of a PG.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) site: &'a Site,
    pub(super) copy: &'a StoredCopy,
    pub(super) store: &'a StoreQueue,
    pub(super) lead: &'a Leadership,
    pub(super) role: &'a Role,
    pub(super) ops: &'a OpQueue,
    pub(super) copying: &'a Copying,
    pub(super) counters: &'a Counters,
}

impl<'a> Seen<'a> {
    /// Where the PG stands.
    pub(super) fn standing(self) -> State {
        match self.role {
            Role::Idle => State::Idle,
            Role::Peering(p) => p.stage.standing(),
            Role::Active(a) => a.backfill.standing(),
            Role::Replica(r) if r.active => State::ReplicaActive,
            Role::Replica(_) => State::Replica,
            Role::Stray => State::Stray,
            Role::Deleting => State::Deleting,
        }
    }

    /// The ops that wait or are under way, and how far each has come.
    pub(super) fn ops(self) -> impl Iterator<Item = (&'a ClientOp, Progress)> {
        let in_flight = match &self.role {
            Role::Active(a) => Some(a.in_flight.iter()),
            _ => None,
        };
        let held = self.ops.held.iter();
        let held = held.map(|op| (op, Progress::Delayed("waiting for peered")));
        let writes = in_flight.into_iter().flatten();
        let writes = writes.filter_map(|w| Some((w.op()?, Progress::SubOps)));
        let queued = self.ops.contexts.queued();
        let queued = queued.map(|op| (op, Progress::Delayed("waiting for rw locks")));
        let reads = self.store.pending.values().filter_map(Pending::op);
        let reads = reads.map(|op| (op, Progress::Started));
        let leased = match &self.role {
            Role::Active(a) => Some(a.lease.ops()),
            _ => None,
        };
        let leased = leased.into_iter().flatten();
        let leased = leased.map(|op| (op, Progress::Delayed("waiting for readable")));
        held.chain(leased).chain(writes).chain(queued).chain(reads)
    }

    /// Descriptions of the ops that wait or are under way.
    pub(super) fn op_records(self) -> impl Iterator<Item = OpRecord> {
        let site = self.site;
        self.ops().map(|(op, progress)| {
            let mut record = OpRecord::of(op, progress);
            record.pgid = site.pgid;
            if progress == Progress::SubOps {
                record.peers = site.others();
            }
            record
        })
    }
}
