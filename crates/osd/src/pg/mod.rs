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
mod counters;
mod delete;
pub mod describe;
pub mod dirty;
mod dispatch;
pub mod dups;
pub mod errno;
mod exec;
pub mod fetch;
mod force;
mod foreign;
mod full;
pub mod history;
pub mod image_io;
mod in_flight;
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
mod number;
pub mod object;
pub mod op;
mod op_checks;
mod op_order;
mod op_queue;
mod op_read;
mod op_write;
mod outbox;
mod output;
mod pace;
mod peering;
pub mod perf;
mod promise;
pub mod push;
mod reading;
pub mod recent;
pub mod repair;
mod replica;
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
mod waiting;
pub mod watch;

use op::ClientOp;
use repair::MarkLostError;
use serving::Serving;

use std::sync::Arc;

use spirula_denc::UTime;
use spirula_invariant::AtWork;
use spirula_maps::{HObject, IntervalSet, PgId};

pub use backfill::BackfillState;
use cluster::ClusterMap;
use config::PgConfig;
use copying::Copying;
use counters::Counters;
use delete::Deleting;
use describe::OpRecord;
use dups::{DupBatch, Dups};
use history::History;
use info::PgInfo;
use leadership::Leadership;
use log::{LogEntry, PgLog};
pub use object::StoredObject;
use op_queue::OpQueue;
use outbox::Outbox;
pub use output::{Claim, Ctx, Output, Page, Reader, StoreReply, Token};
pub use pace::Pace;
use promise::Promise;
use recent::{PastState, Recent, State, Transition};
use replicated::source::handler::Feeding;
use replicated::target::handler::Receiving;
use role::Role;
use seen::Seen;
use site::Site;
pub use snaps::trim::TrimState;
pub(crate) use stage::{Lane, StageState};
pub use stats::{PgCounts, PgReport};
use store_queue::{Pending, StoreQueue};
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
    recent: Recent,
}

impl Pg {
    /// A PG without a copy here.
    pub fn new(pgid: PgId, whoami: i32, slot: u32, cfg: Arc<PgConfig>, map: Arc<dyn ClusterMap>) -> Self {
        let site = Site::new(pgid, whoami, cfg, map);
        let recent = Recent::new(pgid, whoami, site.map.epoch());
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
            recent,
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
    pub(crate) fn attempt(&self) -> message::PeeringId {
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

    /// Remembers so many of its transitions from now on.
    pub(crate) fn remember(&mut self, transitions: usize) {
        self.recent.recorder().resize(transitions);
    }

    /// Says that the PG is worked on: where an invariant breaks meanwhile, its last transitions are told.
    pub(crate) fn at_work(&self) -> AtWork {
        self.recent.recorder().at_work()
    }

    /// Where the PG stands, and since when.
    pub fn standing(&self) -> (State, UTime) {
        (self.recent.state(), self.recent.since())
    }

    /// The last transitions, the oldest first.
    pub fn transitions(&self) -> Vec<Transition> {
        self.recent.recorder().entries()
    }

    /// The states that it has left, as far as it remembers, the oldest first.
    pub fn past_states(&self) -> Vec<PastState> {
        recent::past_states(&self.transitions())
    }

    /// What the PG waits for, at the time `usec` of the monotonic clock, in a sentence for people.
    pub fn sentence(&self, usec: u64) -> String {
        self.seen().sentence(&self.recent, usec)
    }

    /// Settings for what is executed from now on.
    pub fn set_config(&mut self, cfg: Arc<PgConfig>) {
        self.site.cfg = cfg;
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

    /// Deletes the copy here.
    fn deleting(&mut self) -> Deleting<'_> {
        Deleting {
            site: &self.site,
            copy: &mut self.copy,
            store: &mut self.store,
            role: &mut self.role,
            copying: &mut self.copying,
        }
    }

    /// How urgent it is to copy to this OSD, if anybody wants to, and whether that has its turn.
    pub fn incoming_bid(&self) -> Option<(u8, bool)> {
        self.copying.incoming.bid()
    }

    /// It is the turn of who wants to copy to this OSD.
    pub fn grant_incoming(&mut self, cx: &mut Ctx<'_>) {
        self.copying.incoming.grant(&mut self.outbox, cx);
    }

    /// Others come first. The primary asks again.
    pub fn revoke_incoming(&mut self, cx: &mut Ctx<'_>) {
        self.copying.incoming.revoke(&mut self.outbox, cx);
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

    /// Its last transitions, a line each, for the same report.
    pub fn recollection(&self) -> String {
        self.recent.recorder().tell()
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
}
