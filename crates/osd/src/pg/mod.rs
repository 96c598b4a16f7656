//! The placement group as a state machine without I/O.
//!
//! Events come in through `handle_*`; commands go out through [`Ctx::out`]. The order of calls does not matter, except
//! that a map must be handed over ([`Pg::handle_map`]) before events that need it, and that the answers to
//! [`Output::Submit`] come in the order of submission.

pub mod account;
mod backend;
mod backfill;
pub mod bug;
pub mod cluster;
pub mod config;
mod context;
mod copy;
mod copying;
mod delete;
pub mod describe;
pub mod dirty;
pub mod dups;
pub mod errno;
mod exec;
pub mod fetch;
mod force;
mod foreign;
mod full;
pub mod history;
pub mod image_io;
mod incoming;
pub mod info;
mod interval;
pub mod key;
pub mod layout;
mod leadership;
mod leading;
mod lease;
mod led;
mod list;
pub mod log;
mod maps;
pub mod message;
pub mod object;
pub mod op;
mod op_checks;
mod op_queue;
mod op_read;
mod op_write;
mod outbox;
mod output;
mod pace;
mod peering;
mod peering_plan;
mod peering_prior;
pub mod perf;
mod promise;
pub mod push;
pub mod repair;
mod replica;
mod replica_read;
mod replicated;
mod replies;
mod role;
mod seen;
mod serving;
mod site;
mod snaps;
mod split;
mod stage;
mod staged;
mod stats;
mod store_queue;
mod stored_copy;
mod ticks;
pub mod txn;
pub mod watch;

use op::ClientOp;
use repair::MarkLostError;
use serving::Serving;

use std::sync::Arc;

use spirula_invariant::{dropped, impossible};
use spirula_maps::{HObject, IntervalSet, PgId};

pub use backfill::BackfillState;
use cluster::ClusterMap;
use config::PgConfig;
use copying::Copying;
use describe::OpRecord;
use dups::{DupBatch, Dups};
use history::History;
use info::PgInfo;
use leadership::Leadership;
use log::{LogEntry, PgLog};
use message::{PeerBody, PeerMessage, PeeringId};
pub use object::StoredObject;
use op_queue::OpQueue;
use outbox::Outbox;
pub use output::{Claim, Ctx, Output, Page, Reader, StoreReply, Token};
pub use pace::Pace;
use perf::DropReason;
use promise::Promise;
use replica::Following;
use replicated::source::Feeding;
use replicated::target::Receiving;
use role::Role;
use seen::Seen;
use site::Site;
pub use snaps::trim::TrimState;
pub(crate) use stage::{Lane, StageState};
use stats::Counters;
pub use stats::{PgCounts, PgReport};
use store_queue::{Commit, Pending, StoreQueue};
use stored_copy::StoredCopy;
use watch::WatchMemory;
use watch::watchers::{WatchKey, Watcher};

/// What a context takes in memory besides what its object's state holds, roughly, in bytes.
const CONTEXT_BYTES: usize = size_of::<context::Context>() + 128;

/// What PGs have in memory: how many, and their bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct PgMemory {
    /// Object contexts.
    pub contexts: (usize, usize),
    /// Entries of the log, and requests that are remembered besides.
    pub log: (usize, usize),
}

/// A placement group on this OSD.
#[derive(Debug)]
pub struct Pg {
    site: Site,
    copy: StoredCopy,
    store: StoreQueue,
    outbox: Outbox,
    lead: Leadership,
    role: Role,
    ops: OpQueue,
    copying: Copying,
    counters: Counters,
}

impl Pg {
    /// A PG without a copy here.
    pub fn new(pgid: PgId, whoami: i32, slot: u32, cfg: Arc<PgConfig>, map: Arc<dyn ClusterMap>) -> Self {
        let site = Site::new(pgid, whoami, cfg, map);
        let copy = StoredCopy {
            info: PgInfo {
                pg_num: site.pool.pg_num,
                history: History::of_new(site.map.epoch(), site.pool.created),
                ..PgInfo::default()
            },
            ..StoredCopy::default()
        };
        Self {
            site,
            copy,
            store: StoreQueue::new(slot),
            outbox: Outbox::new(pgid, whoami),
            lead: Leadership {
                promised: Some(Promise::default()),
                ..Leadership::default()
            },
            role: Role::Idle,
            ops: OpQueue::default(),
            copying: Copying::default(),
            counters: Counters::default(),
        }
    }

    /// A PG as the store remembers it. `entries` ascend.
    pub fn load(
        pgid: PgId,
        whoami: i32,
        slot: u32,
        cfg: Arc<PgConfig>,
        map: Arc<dyn ClusterMap>,
        info: PgInfo,
        entries: Vec<LogEntry>,
    ) -> Self {
        let mut pg = Self::new(pgid, whoami, slot, cfg, map);
        pg.copy = StoredCopy::load(info, entries);
        pg.lead.promised = None;
        pg
    }

    /// The requests that the store remembers besides the log; the batches ascend.
    pub fn load_dups(&mut self, batches: Vec<DupBatch>) {
        self.copy.dups = Dups::from_batches(batches);
    }

    /// The requests that are no longer in the log.
    pub fn dups(&self) -> &Dups {
        &self.copy.dups
    }

    /// The PG's id.
    pub fn pgid(&self) -> PgId {
        self.site.pgid
    }

    /// What the copy here says of itself, if there is one.
    pub fn info(&self) -> Option<&PgInfo> {
        self.copy.exists.then_some(&self.copy.info)
    }

    /// The attempt at peering that this OSD leads or follows.
    #[cfg(test)]
    pub(crate) fn attempt(&self) -> PeeringId {
        self.lead.id
    }

    /// The PG's log.
    pub fn log(&self) -> &PgLog {
        &self.copy.log
    }

    /// Copies at the pace of all PGs of the reactor from now on.
    pub fn share_pace(&mut self, pace: Pace) {
        self.copying.pace = pace;
    }

    /// The PG is one of so many on this reactor, which share what may be kept in memory.
    pub fn set_share(&mut self, pgs: usize) {
        self.site.shares = self.site.cfg.shares(pgs);
    }

    /// Settings for what is executed from now on.
    pub fn set_config(&mut self, cfg: Arc<PgConfig>) {
        self.site.cfg = cfg;
    }

    /// Hands a message to the replica that this OSD is, if it is one.
    fn as_replica(&mut self, from: i32, cx: &mut Ctx<'_>, f: impl FnOnce(&mut Following<'_>, &mut Ctx<'_>)) {
        if !self.serving().follow(|r| f(r, cx)) {
            dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
    }

    /// A member would like to answer reads.
    fn share_wanted(&mut self, from: i32, stamp: u64, cx: &mut Ctx<'_>) {
        if self
            .serving()
            .lease(|l| l.share_wanted(from, stamp, cx))
            .is_none()
        {
            dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
    }

    /// The PG as it is looked at.
    fn seen(&self) -> Seen<'_> {
        Seen {
            site: &self.site,
            copy: &self.copy,
            store: &self.store,
            lead: &self.lead,
            role: &self.role,
            ops: &self.ops,
            copying: &self.copying,
            counters: &self.counters,
        }
    }

    /// Descriptions of the ops that wait or are under way.
    pub fn op_records(&self) -> impl Iterator<Item = OpRecord> {
        self.seen().op_records()
    }

    /// What serves clients.
    fn serving(&mut self) -> Serving<'_> {
        Serving {
            site: &self.site,
            copy: &mut self.copy,
            store: &mut self.store,
            outbox: &mut self.outbox,
            lead: &mut self.lead,
            role: &mut self.role,
            ops: &mut self.ops,
            copying: &mut self.copying,
            counters: &mut self.counters,
        }
    }

    /// Counts the memory of watches together with all other PGs of the reactor.
    pub fn share_watch_memory(&mut self, memory: WatchMemory) {
        self.ops.watches.share_memory(memory);
    }

    /// The removed snapshots that are to be trimmed.
    pub fn trim_queue(&self) -> IntervalSet {
        self.role.trim_queue()
    }

    /// The watches that this primary knows of.
    pub fn watches(&self) -> impl Iterator<Item = (HObject, &WatchKey, &Watcher)> {
        self.ops
            .watches
            .iter()
            .filter_map(|(object, k, w)| Some((key::parse_object_key(object)?, k, w)))
    }

    /// What the PG is doing about removed snapshots.
    pub fn trim_state(&self) -> TrimState {
        self.role.trim_state(&*self.site.map)
    }

    /// A request of a client. Its epoch is not newer than the PG's map.
    pub fn handle_op(&mut self, op: ClientOp, cx: &mut Ctx<'_>) {
        self.serving().handle_op(op, cx);
    }

    /// A client's connection ended. What it sent and has not begun never will: on its next connection it sends again what it still wants.
    pub fn handle_client_closed(&mut self, conn: u64, cx: &Ctx<'_>) {
        self.serving().handle_client_closed(conn, cx);
    }

    /// Drops the watches whose time is over, or whose client is shut out.
    pub fn check_watches(&mut self, cx: &mut Ctx<'_>) {
        self.serving().check_watches(cx);
    }

    /// It is the PG's turn to trim.
    pub fn grant_trim(&mut self, cx: &mut Ctx<'_>) {
        self.serving().trimming().grant_trim(cx);
    }

    /// Whether the PG builds a staging object, or would like to.
    pub(crate) fn stage_state(&self, lane: Lane) -> StageState {
        self.ops.stages.state(lane)
    }

    /// Begins to build the next staging object.
    pub(crate) fn start_stage(&mut self, lane: Lane, cx: &mut Ctx<'_>) {
        self.serving().staging().start_stage(lane, cx);
    }

    /// Deletes the objects that no member can read. Returns how many.
    ///
    /// # Errors
    /// There are none, or they may still be somewhere.
    pub fn mark_lost(&mut self, cx: &mut Ctx<'_>) -> Result<usize, MarkLostError> {
        let unfound = self.seen().unfound().len();
        self.serving().repairing().mark_lost(unfound, cx)
    }

    /// The primary's report; `None` from others.
    pub fn report(&self) -> Option<PgReport> {
        self.seen().report()
    }

    pub(crate) fn count_in(&self, counts: &mut PgCounts) {
        counts.all += 1;
        match self.role {
            Role::Peering(_) | Role::Active(_) => counts.primary += 1,
            Role::Replica(_) => counts.replica += 1,
            Role::Stray => counts.stray += 1,
            Role::Deleting => counts.removing += 1,
            Role::Idle => {}
        }
    }

    /// The OSDs that serve the PG.
    pub fn members(&self) -> Vec<i32> {
        self.site.interval.place.acting.osds().collect()
    }

    /// The side of a copy that reads, whether this OSD serves or not.
    fn feeding(&mut self) -> Feeding<'_> {
        Feeding {
            site: &self.site,
            copy: &self.copy,
            store: &mut self.store,
            outbox: &mut self.outbox,
            id: self.lead.id,
            backfill: self.role.backfill(),
            copying: &mut self.copying,
            counters: &mut self.counters,
        }
    }

    /// The side of a copy that is brought up to another one.
    fn receiving(&mut self) -> Receiving<'_> {
        Receiving {
            site: &self.site,
            copy: &mut self.copy,
            store: &mut self.store,
            outbox: &mut self.outbox,
            role: &self.role,
            id: self.lead.id,
            target: &mut self.copying.target,
        }
    }

    /// A primary asks whether it is its turn to copy to this OSD.
    fn turn_wanted(&mut self, from: i32, id: PeeringId, priority: u8, cx: &mut Ctx<'_>) {
        let to_be = matches!(self.role, Role::Stray) && self.site.is_to_be_here();
        if !to_be || !self.site.is_leader(from, id) {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
        self.copying.turn_wanted(from, id, priority);
    }

    /// How urgent it is to copy to this OSD, if anybody wants to, and whether that has its turn.
    pub fn incoming_bid(&self) -> Option<(u8, bool)> {
        self.copying.incoming_bid()
    }

    /// It is the turn of who wants to copy to this OSD.
    pub fn grant_incoming(&mut self, cx: &mut Ctx<'_>) {
        self.copying.grant_incoming(&mut self.outbox, cx);
    }

    /// Others come first. The primary asks again.
    pub fn revoke_incoming(&mut self, cx: &mut Ctx<'_>) {
        self.copying.revoke_incoming(&mut self.outbox, cx);
    }

    /// The last of this OSD's transactions is durable.
    fn quiesced(&mut self, cx: &mut Ctx<'_>) {
        if !self.agree(cx, |a, cx| a.quiesced(cx)) && matches!(self.role, Role::Replica(_) | Role::Stray) {
            self.answer_query(cx);
        }
    }

    /// Whether this OSD leads the PG.
    pub fn is_primary(&self) -> bool {
        self.role.is_primary()
    }

    /// Whether this OSD leads the PG and serves clients.
    pub fn is_active(&self) -> bool {
        matches!(self.role, Role::Active(_))
    }

    /// Whether nothing is left to keep this PG for: no copy, no role, none to come, nothing under way.
    pub fn is_gone(&self) -> bool {
        !self.copy.exists
            && matches!(self.role, Role::Stray | Role::Idle)
            && (!self.site.is_to_be_here() || self.site.map.pool(self.site.pgid.pool).is_none())
            && self.store.commits.is_empty()
            && self.store.pending.is_empty()
            && self.copying.source.is_none()
            && self.copying.target.is_none()
    }

    /// Ops that wait or are under way.
    pub fn ops_in_flight(&self) -> usize {
        let writes = if let Role::Active(a) = &self.role {
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

    /// Its role and what it waits for, for the report on a failed test or simulation.
    pub fn trace(&self) -> String {
        format!(
            "{} {:?}, {:?}, commits {:?}, store {:?}",
            self.site.pgid, self.lead.id, self.role, self.store.commits, self.store.pending
        )
    }

    /// When the ops that wait or are under way were received.
    pub fn ops_received(&self) -> impl Iterator<Item = u64> {
        self.seen().ops().map(|(op, _)| op.stamps.received)
    }

    /// Writes as primary that are not durable everywhere.
    pub fn writes_in_flight(&self) -> usize {
        match &self.role {
            Role::Active(a) => a.in_flight.len(),
            _ => 0,
        }
    }

    /// Forgets the object contexts that are not in use.
    pub fn drop_contexts(&mut self) {
        self.ops.contexts.drop_idle();
    }

    /// What it has in memory, roughly: contexts, and entries of the log with the requests remembered besides.
    pub fn memory(&self) -> PgMemory {
        let contexts = self.ops.contexts.len();
        PgMemory {
            contexts: (contexts, contexts * CONTEXT_BYTES + self.ops.contexts.extras()),
            log: (
                self.copy.log.len() + self.copy.dups.count(),
                self.copy.log.bytes() + self.copy.dups.bytes(),
            ),
        }
    }

    /// Object contexts in memory.
    pub fn cached_contexts(&self) -> usize {
        self.ops.contexts.len()
    }

    /// An answer of the store to one of the PG's requests.
    pub fn handle_store(&mut self, token: Token, reply: StoreReply, cx: &mut Ctx<'_>) {
        if let StoreReply::Committed = reply {
            let first = self
                .store
                .commits
                .pop_front()
                .filter(|(seq, ..)| *seq == token.seq());
            let Some((_, submitted, what)) = first else {
                impossible!(
                    "transactions to be durable in the order of submission";
                    pg = self.site.pgid, epoch = self.site.map.epoch()
                );
            };
            let took = cx.usec.saturating_sub(submitted);
            cx.perf.commits.add(took);
            if matches!((&what, &self.role), (Commit::Write(_), Role::Replica(_))) {
                cx.perf.sub_ops.add(took);
            }
            self.committed(what, cx);
            return;
        }
        if let StoreReply::NoRoom = reply {
            let at = self
                .store
                .commits
                .iter()
                .position(|(seq, ..)| *seq == token.seq());
            let Some((_, _, what)) = at.and_then(|at| self.store.commits.remove(at)) else {
                impossible!(
                    "a transaction that was refused to be one that was submitted";
                    pg = self.site.pgid, epoch = self.site.map.epoch()
                );
            };
            self.not_stored(what, cx);
            return;
        }
        let Some(what) = self.store.pending.remove(&token.seq()) else {
            // What was asked for in an earlier interval is no longer pending.
            return dropped!(cx.perf.dropped, DropReason::StoreLate; pg = self.site.pgid);
        };
        match (what, reply) {
            (Pending::Context(key), StoreReply::Object(r)) => self.serving().context_loaded(&key, r, cx),
            (Pending::Op(op), StoreReply::Fetched(r, room)) => self.serving().op_fetched(*op, r, room, cx),
            (Pending::Op(op), StoreReply::NotRead) => self.serving().op_not_read(&op, cx),
            (Pending::Op(op), StoreReply::Object(r)) => self.serving().clone_loaded(*op, r, cx),
            (Pending::Trim, StoreReply::Records(r)) => self.serving().trimming().clones_listed(r, cx),
            (Pending::TrimClone(key), StoreReply::Object(r)) => {
                self.serving().trimming().trim_found(key, r, cx)
            }
            (Pending::Stage(seq), StoreReply::Fetched(r, _)) => {
                self.serving().staging().stage_read(seq, r, cx)
            }
            (Pending::List(l), StoreReply::Objects(r)) => self.serving().listed(*l, r, cx),
            (Pending::List(l), StoreReply::Fetched(r, _)) => self.serving().list_fetched(*l, r, cx),
            (Pending::Repair(asked), reply) => self.serving().mending().repair_store(asked, reply, cx),
            (Pending::Source(feed), reply) => self.feeding().source_store(feed, reply, cx),
            (Pending::Target, StoreReply::Objects(r)) => self.receiving().target_scanned(r, cx),
            (Pending::Delete, StoreReply::Objects(r)) => self.delete_listed(r, cx),
            (Pending::Count, StoreReply::Objects(r)) => drop(self.agree(cx, |a, cx| a.counted(r, cx))),
            (what, reply) => impossible!(
                "an answer to the question";
                pg = self.site.pgid, epoch = self.site.map.epoch(), question = format!("{what:?}"), answer = format!("{reply:?}")
            ),
        }
    }

    fn committed(&mut self, what: Commit, cx: &mut Ctx<'_>) {
        match what {
            Commit::Write(v) => self.serving().write_committed(v, cx),
            Commit::Push { id, source, .. } => self.receiving().push_committed(id, source, cx),
            Commit::Activate { id, primary } => self.activation_committed(id, primary, cx),
            Commit::Delete => self.delete_step(cx),
            Commit::Repair(number) => self.serving().mending().repair_committed(number, cx),
            Commit::Record => {}
        }
        if self.store.commits.is_empty() {
            self.quiesced(cx);
        }
    }

    /// The store had no room for a transaction.
    fn not_stored(&mut self, what: Commit, cx: &mut Ctx<'_>) {
        match what {
            Commit::Push { id, source, key } => self.receiving().push_refused_here(id, source, key, cx),
            Commit::Repair(number) => self.serving().mending().repair_refused(number, cx),
            what => impossible!(
                "what claims all room to be stored in any case";
                pg = self.site.pgid, epoch = self.site.map.epoch(), transaction = format!("{what:?}")
            ),
        }
        if self.store.commits.is_empty() {
            self.quiesced(cx);
        }
    }

    /// A message from another OSD about this PG. Its epoch is not newer than the PG's map.
    pub fn handle_peer(&mut self, from: i32, msg: PeerMessage, cx: &mut Ctx<'_>) {
        let id = msg.id;
        if self.seen().is_foreign(from, id, &msg.body, cx)
            || self.seen().is_stale_message(from, id, &msg.body, cx)
        {
            return;
        }
        match msg.body {
            PeerBody::RepOp {
                prev,
                entry,
                trim_to,
                stable,
                txn,
            } => self.as_replica(from, cx, |r, cx| {
                r.rep_op(from, id, prev, entry, (trim_to, stable), txn, cx)
            }),
            PeerBody::RepCommitted(v) => self.serving().rep_committed(from, v, cx),
            PeerBody::Query => self.queried(from, id, cx),
            PeerBody::Notify { info, promised } => self.notified(from, id, info, promised, cx),
            PeerBody::Lease { stamp, shared } => {
                self.as_replica(from, cx, |r, cx| r.lease_wanted(from, id, stamp, shared, cx))
            }
            PeerBody::LeaseGranted(stamp) => self.serving().lease_granted(from, stamp, cx),
            PeerBody::ShareLease(stamp) => self.share_wanted(from, stamp, cx),
            PeerBody::LeaseShared {
                stamp,
                length,
                stable,
                epoch,
            } => self.as_replica(from, cx, |r, cx| {
                r.lease_shared(from, id, (stamp, length, stable, epoch), cx)
            }),
            PeerBody::GetLog => self.log_wanted(from, id, cx),
            PeerBody::Log {
                tail,
                head,
                entries,
                dups,
            } => self.log_received(from, (tail, head), entries, dups, cx),
            PeerBody::StartSync(targets) => self.feeding().start_sync(from, id, targets, cx),
            PeerBody::SyncDone(osd) => self.sync_done(osd, cx),
            PeerBody::SyncFailed => self.sync_failed(cx),
            PeerBody::SyncRefused(osd) => self.sync_refused(osd, cx),
            PeerBody::Push(push) => self.receiving().pushed(from, id, push, cx),
            PeerBody::PushAck => self.feeding().push_acked(from, id, cx),
            PeerBody::PushRefused => self.feeding().push_refused(from, id, cx),
            PeerBody::Scan {
                from: start,
                to,
                objects,
            } => self.receiving().scan(from, id, start, to, objects, cx),
            PeerBody::ScanAck(needed) => self.feeding().scan_acked(from, id, needed, cx),
            PeerBody::Activate { info, log } => self.activate_member(from, id, info, log, cx),
            PeerBody::Reserve(priority) => self.turn_wanted(from, id, priority, cx),
            PeerBody::Reserved => drop(self.backfill(|b| b.turn_granted(from, cx))),
            PeerBody::Release => self.copying.turn_released(from),
            PeerBody::Revoked => drop(self.backfill(|b| b.turn_revoked(from))),
            PeerBody::Copied { info, log } => self.receiving().copied(from, id, info, log, cx),
            PeerBody::Activated => self.member_activated(from, cx),
            PeerBody::Remove => self.removed(from, id, cx),
            PeerBody::CopyRead(r) => self.serving().copy_read(from, id.epoch, r, cx),
            PeerBody::CopyPart(p) => self.serving().staging().copy_part(from, p, cx),
            PeerBody::Repair(r) => self.serving().repairing().repair_message(from, r, cx),
        }
    }
}
