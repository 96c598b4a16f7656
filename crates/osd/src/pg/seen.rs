//! A read-only view of a PG: for reports, and for the PG itself before it handles a message.

use spirula_denc::{Micros, UTime};
use spirula_maps::{HObject, IntervalSet, OsdId};
use spirula_store::Usage;

use super::backfill::{Backfill, BackfillState};
use super::context::Context;
use super::copying::Copying;
use super::counters::Counters;
use super::describe::{OpRecord, Progress};
use super::dups::Dups;
use super::info::PgInfo;
use super::key;
use super::leadership::Leadership;
use super::log::PgLog;
use super::op::ClientOp;
use super::op_queue::OpQueue;
use super::recent::{PastState, Recent, State, Transition, past_states};
use super::role::Role;
use super::site::Site;
use super::snaps::trim::TrimState;
use super::stage::{Lane, StageState};
use super::store_queue::{Pending, StoreQueue};
use super::stored_copy::StoredCopy;
use super::watch::watchers::{WatchKey, Watcher};

/// The approximate bytes of a context in memory besides its object's state.
const CONTEXT_BYTES: usize = size_of::<Context>() + 128;

/// The memory of PGs.
#[derive(Debug, Clone, Copy, Default)]
pub struct PgMemory {
    /// Object contexts.
    pub contexts: Usage,
    /// Entries of the log, and requests that are remembered besides.
    pub log: Usage,
}

/// All parts of a PG.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    pub(super) site: &'a Site,
    pub(super) copy: &'a StoredCopy,
    pub(super) store: &'a StoreQueue,
    pub(super) lead: &'a Leadership,
    pub(super) role: &'a Role,
    pub(super) ops: &'a OpQueue,
    pub(super) copying: &'a Copying,
    pub(super) counters: &'a Counters,
    pub(super) recent: &'a Recent,
}

impl<'a> Seen<'a> {
    /// The PG's share of memory.
    #[cfg(test)]
    pub(crate) fn shares(self) -> super::config::Shares {
        self.site.shares
    }

    /// The PG's state.
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

    /// The ops that wait or are under way, and the progress of each.
    fn ops(self) -> impl Iterator<Item = (&'a ClientOp, Progress)> {
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
    pub fn op_records(self) -> impl Iterator<Item = OpRecord> {
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

    /// The info of the copy here, if there is one.
    pub fn info(self) -> Option<&'a PgInfo> {
        self.copy.exists.then_some(&self.copy.info)
    }

    /// The PG's log.
    pub fn log(self) -> &'a PgLog {
        &self.copy.log
    }

    /// The requests that are no longer in the log.
    pub fn dups(self) -> &'a Dups {
        &self.copy.dups
    }

    /// The attempt at peering that this OSD leads or follows.
    #[cfg(test)]
    pub(crate) fn attempt(self) -> super::message::PeeringId {
        self.lead.id
    }

    /// The number of PGs that this copy was last split for.
    pub fn split_for(self) -> u32 {
        self.copy.info.pg_num
    }

    /// Whether this OSD leads the PG.
    pub fn is_primary(self) -> bool {
        self.role.is_primary()
    }

    /// Whether this OSD leads the PG and serves clients.
    pub fn is_active(self) -> bool {
        matches!(self.role, Role::Active(_))
    }

    /// Whether there is no reason left to keep this PG: it has no copy and no role, gets none, and
    /// has nothing under way.
    pub fn is_gone(self) -> bool {
        !self.copy.exists
            && matches!(self.role, Role::Stray | Role::Idle)
            && (!self.site.is_to_be_here() || self.site.map.pool(self.site.pgid.pool).is_none())
            && self.store.commits.is_empty()
            && self.store.pending.is_empty()
            && self.store.folds.is_empty()
            && self.copying.source.is_none()
            && self.copying.target.is_none()
    }

    /// The OSDs that serve the PG.
    pub fn members(self) -> Vec<OsdId> {
        self.site.interval.place.acting.osds().collect()
    }

    /// The PG's state, and since when it lasts.
    pub fn stands_since(self) -> (State, UTime) {
        (self.recent.state(), self.recent.since())
    }

    /// The last transitions, the oldest first.
    pub fn transitions(self) -> Vec<Transition> {
        self.recent.recorder().entries()
    }

    /// The states that the PG has left, as far as it remembers, the oldest first.
    pub fn past_states(self) -> Vec<PastState> {
        past_states(&self.transitions())
    }

    /// The PG's last transitions, a line each, for the report on a failed test or simulation.
    pub fn recollection(self) -> String {
        self.recent.recorder().tell()
    }

    /// The PG's role and what it waits for, for the report on a failed test or simulation.
    pub fn trace(self) -> String {
        format!(
            "{} {:?}, {:?}, commits {:?}, store {:?}",
            self.site.pgid, self.lead.id, self.role, self.store.commits, self.store.pending
        )
    }

    /// The number of ops that wait or are under way.
    pub fn ops_in_flight(self) -> usize {
        let writes = if let Role::Active(a) = self.role {
            a.in_flight.len()
        } else {
            0
        };
        let reads = self
            .store
            .pending
            .values()
            .filter(|p| matches!(p, Pending::Op(_) | Pending::List(_)))
            .count();
        self.ops.held.len() + self.ops.contexts.waiting() + writes + reads
    }

    /// The number of writes as primary that are not durable everywhere.
    pub fn writes_in_flight(self) -> usize {
        match self.role {
            Role::Active(a) => a.in_flight.len(),
            _ => 0,
        }
    }

    /// When the ops that wait or are under way were received.
    pub fn ops_received(self) -> impl Iterator<Item = Micros> {
        self.ops().map(|(op, _)| op.stamps.received)
    }

    /// The watches that this primary knows of.
    pub fn watches(self) -> impl Iterator<Item = (HObject, &'a WatchKey, &'a Watcher)> {
        self.ops
            .watches
            .iter()
            .filter_map(|(object, k, w)| Some((key::parse_object_key(object)?, k, w)))
    }

    /// The approximate memory of the PG: contexts, and entries of the log with the requests
    /// remembered besides.
    pub fn memory(self) -> PgMemory {
        let contexts = self.ops.contexts.len();
        PgMemory {
            contexts: Usage {
                items: contexts,
                bytes: contexts * CONTEXT_BYTES + self.ops.contexts.extras(),
            },
            log: Usage {
                items: self.copy.log.len() + self.copy.dups.count(),
                bytes: self.copy.log.bytes() + self.copy.dups.bytes(),
            },
        }
    }

    /// The number of object contexts in memory.
    pub fn cached_contexts(self) -> usize {
        self.ops.contexts.len()
    }

    /// The removed snapshots that are to be trimmed.
    pub fn trim_queue(self) -> IntervalSet {
        self.role.trim_queue()
    }

    /// The state of trimming removed snapshots.
    pub fn trim_state(self) -> TrimState {
        self.role.trim_state(&*self.site.map)
    }

    /// Whether the PG builds a staging object, or wants to.
    pub(crate) fn stage_state(self, lane: Lane) -> StageState {
        self.ops.stages.state(lane)
    }

    /// The state of the backfill.
    pub fn backfill_state(self) -> BackfillState {
        self.role.backfill().map_or(BackfillState::Idle, Backfill::state)
    }

    /// Whether flags say that nothing is to be copied for now.
    pub fn is_copying_held(self) -> bool {
        self.role.backfill().is_some_and(|b| b.is_held(self.site))
    }

    /// Whether the PG would begin to copy now.
    pub fn may_copy(self, usec: Micros) -> bool {
        let now = self.copy.info.last_update;
        let backfill = self.role.backfill();
        backfill.is_some_and(|b| b.may_copy(self.site, now, usec))
    }

    /// The priority of copying, as in Ceph; 0 if this OSD does not serve.
    pub fn copy_priority(self) -> u8 {
        let backfill = self.role.backfill();
        backfill.map_or(0, |b| b.priority(self.site, self.lead.forced))
    }

    /// The urgency of the copy to this OSD, if a primary wants one, and whether that has its turn.
    pub fn incoming_bid(self) -> Option<(u8, bool)> {
        self.copying.incoming.bid()
    }
}
