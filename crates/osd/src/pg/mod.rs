//! The placement group as a state machine without I/O.
//!
//! Events come in through `handle_*`; commands go out through [`Ctx::out`]. The order of calls does
//! not matter, except that a map must be handed over ([`Pg::handle_map`]) before events that need
//! it, and that the answers to [`Output::Submit`] come in the order of submission.

pub mod account;
pub mod ahead;
mod backend;
mod backfill;
pub mod bug;
pub mod cluster;
pub(crate) mod coded;
mod compare;
pub mod config;
mod context;
mod copy;
mod copying;
mod counters;
mod delete;
pub mod describe;
pub mod digests;
pub mod dirty;
mod dispatch;
pub mod dups;
mod exec;
pub mod fetch;
mod force;
mod foreign;
mod full;
pub mod history;
mod hold;
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
pub mod link;
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
pub mod placed_data;
mod promise;
pub mod push;
mod rate;
mod reading;
pub mod recent;
pub mod repair;
mod replica;
mod replicated;
mod replies;
mod role;
pub mod scrub;
mod seen;
mod serving;
mod site;
mod snaps;
mod split;
mod stage;
pub(crate) mod staged;
mod stats;
mod store_queue;
mod stored_copy;
mod ticks;
pub mod turn;
pub mod txn;
pub mod versions;
mod waiting;
pub mod watch;

use op::ClientOp;
use repair::MarkLostError;
use serving::Serving;

use std::sync::Arc;

use spirula_invariant::AtWork;
use spirula_maps::{OsdId, PgId};

pub use backfill::BackfillState;
use cluster::ClusterMap;
use coded::fold::Fragments;
use coded::redo::Redo;
use config::PgConfig;
use copying::Copying;
use copying::source::handler::Feeding;
use copying::target::handler::Receiving;
use counters::Counters;
use delete::Deleting;
use dups::{DupBatch, Dups};
use history::History;
use info::PgInfo;
use leadership::Leadership;
use led::Led;
use log::LogEntry;
pub use object::StoredObject;
use op_queue::OpQueue;
use outbox::Outbox;
pub use output::{Claim, Ctx, Output, Page, Reader, StoreReply, Token};
pub use pace::Pace;
use promise::Promise;
pub use rate::{ClientRate, Rate};
use recent::Recent;
use role::Role;
use scrub::Scrubbed;
use scrub::handler::Scrubbing;
pub use scrub::schedule::Due as ScrubDue;
pub use scrub::{Order, ScrubPace, ScrubSlots};
pub use seen::{PgMemory, Seen};
use site::Site;
pub use snaps::trim::TrimState;
pub(crate) use stage::{Lane, StageState};
use staged::Staged;
pub use stats::{
    PgCounts, PgReport, ReportedCopies, ReportedLog, ReportedPlace, ReportedSnaps, ReportedWork,
};
use store_queue::StoreQueue;
use stored_copy::StoredCopy;
use watch::WatchMemory;

/// What the PGs of a reactor share.
#[derive(Debug, Clone, Default)]
pub struct Shared {
    /// The memory of watches and notifications.
    pub watches: WatchMemory,
    /// The pace at which they copy and scrub.
    pub pace: Pace,
    /// The scrubs under way.
    pub scrubs: ScrubSlots,
    /// Their pace.
    pub scrub_pace: ScrubPace,
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
    scrubbed: Scrubbed,
}

impl Pg {
    /// A PG without a copy here.
    pub fn new(pgid: PgId, whoami: OsdId, slot: u32, cfg: Arc<PgConfig>, map: Arc<dyn ClusterMap>) -> Self {
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
            scrubbed: Scrubbed::default(),
        }
    }

    /// A PG as the store remembers it. `entries` ascend.
    pub fn load(
        pgid: PgId,
        whoami: OsdId,
        slot: u32,
        cfg: Arc<PgConfig>,
        map: Arc<dyn ClusterMap>,
        info: PgInfo,
        entries: Vec<LogEntry>,
    ) -> Self {
        let mut pg = Self::new(pgid, whoami, slot, cfg, map);
        pg.site.follow(info.part.layout);
        pg.store.fragments = Fragments::of(info.part);
        pg.copy = StoredCopy::load(info, entries);
        pg.lead.promised = None;
        pg
    }

    /// Adds what the store remembers besides the log: requests, whose batches ascend, changes that may
    /// not be durable on all members, and staging objects.
    pub fn load_beside(&mut self, batches: Vec<DupBatch>, redo: Redo, staged: Staged) {
        self.copy.dups = Dups::from_batches(batches);
        self.copy.redo = redo;
        self.copy.staged = staged;
    }

    /// The PG's id.
    pub fn pgid(&self) -> PgId {
        self.site.pgid
    }

    /// Gives the PG what all PGs of the reactor share.
    pub fn share(&mut self, shared: &Shared) {
        self.ops.watches.share_memory(shared.watches.clone());
        self.copying.pace = shared.pace.clone();
        self.scrubbed.slots = shared.scrubs.clone();
        self.scrubbed.pace = shared.scrub_pace.clone();
    }

    /// Sets the PG's share of memory as one of `pgs` PGs on this reactor.
    pub fn set_share(&mut self, pgs: usize) {
        self.site.shares = self.site.cfg.shares(pgs);
    }

    /// Makes the PG remember this many of its transitions from now on.
    pub(crate) fn remember(&mut self, transitions: usize) {
        self.recent.recorder().resize(transitions);
    }

    /// Marks the PG as being worked on: if an invariant breaks meanwhile, its last transitions are
    /// reported.
    pub(crate) fn at_work(&self) -> AtWork {
        self.recent.recorder().at_work()
    }

    /// Replaces the settings, for ops that are executed from now on.
    pub fn set_config(&mut self, cfg: Arc<PgConfig>) {
        self.site.cfg = cfg;
    }

    /// A read-only view of the PG.
    pub fn seen(&self) -> Seen<'_> {
        Seen {
            site: &self.site,
            copy: &self.copy,
            store: &self.store,
            lead: &self.lead,
            role: &self.role,
            ops: &self.ops,
            copying: &self.copying,
            counters: &self.counters,
            recent: &self.recent,
        }
    }

    /// The part that serves clients.
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

    /// Handles a request of a client. Its epoch is not newer than the PG's map.
    pub fn handle_op(&mut self, op: ClientOp, cx: &mut Ctx<'_>) {
        let before = cx.perf.dropped.total();
        self.serving().handle_op(op, cx);
        self.recent.note_dropped(before, None, cx);
    }

    /// Handles the end of a client's connection. Its requests that have not begun never will: on
    /// its next connection it sends again those that it still wants.
    pub fn handle_client_closed(&mut self, conn: u64, cx: &Ctx<'_>) {
        self.serving().handle_client_closed(conn, cx);
    }

    /// Grants the PG's turn to trim.
    pub fn grant_trim(&mut self, cx: &mut Ctx<'_>) {
        self.serving().trimming().grant_trim(cx);
    }

    /// Begins to build the next staging object.
    pub(crate) fn start_stage(&mut self, lane: Lane, cx: &mut Ctx<'_>) {
        self.serving().staging().start_stage(lane, cx);
    }

    /// Deletes the objects that no member can read. Returns their number.
    ///
    /// # Errors
    /// There are none, or they may still be somewhere.
    pub fn mark_lost(&mut self, cx: &mut Ctx<'_>) -> Result<usize, MarkLostError> {
        let unfound = self.seen().unfound().len();
        self.serving().repairing().mark_lost(unfound, cx)
    }

    /// The source's side of a copy, whether this OSD serves or not.
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

    /// The target's side of a copy.
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

    /// The handler of a primary's questions.
    fn led(&mut self) -> Led<'_> {
        Led {
            site: &self.site,
            copy: &mut self.copy,
            store: &mut self.store,
            outbox: &mut self.outbox,
            lead: &mut self.lead,
            role: &mut self.role,
            ops: &mut self.ops,
            copying: &mut self.copying,
        }
    }

    /// The handler that deletes the copy here.
    fn deleting(&mut self) -> Deleting<'_> {
        Deleting {
            site: &self.site,
            copy: &mut self.copy,
            store: &mut self.store,
            role: &mut self.role,
            copying: &mut self.copying,
        }
    }

    /// The part that directs scrubs.
    pub(crate) fn scrubbing(&mut self) -> Scrubbing<'_> {
        Scrubbing::of(self.serving())
    }

    /// Grants the turn to the primary that wants to copy to this OSD.
    pub fn grant_incoming(&mut self, cx: &mut Ctx<'_>) {
        self.copying.incoming.grant(&mut self.outbox, cx);
    }

    /// Revokes the turn of the primary that copies to this OSD because others come first. The
    /// primary asks again.
    pub fn revoke_incoming(&mut self, cx: &mut Ctx<'_>) {
        self.copying.incoming.revoke(&mut self.outbox, cx);
    }

    /// Forgets the object contexts that are not in use.
    pub fn drop_contexts(&mut self) {
        self.ops.contexts.drop_idle();
    }
}
