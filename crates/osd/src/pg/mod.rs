//! The placement group as a state machine without I/O.
//!
//! Events come in through `handle_*`; commands go out through [`Ctx::out`]. The order of calls does not matter, except
//! that a map must be handed over ([`Pg::handle_map`]) before events that need it, and that the answers to
//! [`Output::Submit`] come in the order of submission.

pub mod account;
mod backfill;
pub mod bug;
pub mod cluster;
pub mod config;
mod context;
mod copy;
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
mod lease;
mod list;
pub mod log;
pub mod message;
pub mod object;
pub mod op;
mod op_checks;
mod op_read;
mod op_write;
mod output;
mod pace;
mod parts;
mod peering;
mod peering_plan;
mod peering_prior;
pub mod perf;
pub mod push;
pub mod repair;
mod replica;
mod replica_read;
mod snaps;
mod split;
mod stage;
mod stats;
mod sync_source;
mod sync_target;
pub mod txn;
pub mod watch;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use spirula_invariant::{dropped, impossible};
use spirula_maps::{EVersion, HObject, PgId};

use backfill::Backfill;
pub use backfill::BackfillState;
use cluster::{ClusterMap, PoolView};
use config::{PgConfig, Shares};
use context::Contexts;
use dups::{DupBatch, Dups};
pub(crate) use exec::IoCount;
use fetch::ReadError;
use force::Forced;
use full::Dropped;
use history::History;
use incoming::Incoming;
use info::PgInfo;
use interval::Interval;
use lease::{Lease, Promise};
use log::{LogEntry, PgLog};
use message::{PeerBody, PeerMessage, PeeringId};
use op::ClientOp;
pub use output::{Claim, Ctx, Output, Page, Reader, StoreReply, StoredObject, Token};
pub use pace::Pace;
use peering::Peering;
use perf::DropReason;
use repair::{Patient, Repairs};
use replica::Replica;
pub use snaps::trim::TrimState;
use snaps::trim::Trimmer;
use stage::Stages;
pub(crate) use stage::{Lane, StageState};
use stats::Counters;
pub use stats::{PgCounts, PgReport};
use sync_source::SyncSource;
use sync_target::SyncTarget;
use txn::{MetaOp, Txn};
use watch::Watches;

/// What this OSD is to the PG.
#[derive(Debug)]
enum Role {
    /// Nothing yet: the OSD is not up in the map it knows.
    Idle,
    /// It leads, and agrees with the other members.
    Peering(Box<Peering>),
    /// It leads, and serves.
    Active(Active),
    /// It follows a primary.
    Replica(Replica),
    /// It has, or had, a copy that belongs elsewhere.
    Stray,
    /// It is deleting its copy.
    Deleting,
}

/// A primary that serves.
#[derive(Debug)]
struct Active {
    /// The replicas, and up to where each is durable.
    peers: Vec<(i32, EVersion)>,
    /// Up to where this OSD itself is durable.
    local: EVersion,
    /// Up to where all are.
    committed: EVersion,
    /// Writes that are not durable everywhere, in order.
    in_flight: VecDeque<op_write::InFlight>,
    /// Lets it answer reads.
    lease: Box<Lease>,
    /// Brings up the members to be.
    backfill: Box<Backfill>,
    /// Trims removed snapshots.
    trimmer: Box<Trimmer>,
    /// Has objects repaired that members can't read.
    repairs: Box<Repairs>,
    /// When the oldest of them was sent (again).
    sent: u64,
}

/// What a transaction was for.
#[derive(Debug)]
enum Commit {
    /// A write of this version, as primary or replica.
    Write(EVersion),
    /// A push to this object that the holder waits for.
    Push { id: PeeringId, source: i32, key: Bytes },
    /// The activation of an attempt at peering.
    Activate { id: PeeringId, primary: i32 },
    /// A step of deleting the PG.
    Delete,
    /// Part of the object that the repair with this number makes whole.
    Repair(u32),
    /// Nothing waits for it.
    Record,
}

/// What an answer of the store was for.
#[derive(Debug)]
enum Pending {
    /// The object of a context.
    Context(Bytes),
    /// What a client op reads.
    Op(Box<op_read::Reading>),
    /// A listing for a client.
    List(Box<list::Listing>),
    /// A step of a feed to a sync target.
    Source(usize),
    /// A target's own objects in a scanned range.
    Target,
    /// Objects to delete.
    Delete,
    /// Objects to count.
    Count,
    /// Clones of a removed snapshot.
    Trim,
    /// A clone to be trimmed.
    TrimClone(Bytes),
    /// Omap pairs for the staging object that an op waits for.
    Stage(u32),
    /// Part of an object that another member repairs.
    Repair(Box<repair::Asked>),
}

impl Pending {
    fn op(&self) -> Option<&ClientOp> {
        match self {
            Self::Op(r) => Some(&r.op),
            Self::List(l) => Some(&l.op),
            _ => None,
        }
    }

    /// The client's op that waited for the answer.
    fn into_op(self) -> Option<ClientOp> {
        match self {
            Self::Op(r) => Some(r.op),
            Self::List(l) => Some(l.op),
            _ => None,
        }
    }
}

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
    pgid: PgId,
    whoami: i32,
    slot: u32,
    cfg: Arc<PgConfig>,
    map: Arc<dyn ClusterMap>,
    pool: PoolView,
    /// Whether there is a copy here: its info is stored.
    exists: bool,
    info: PgInfo,
    log: PgLog,
    /// Requests that are no longer in the log.
    dups: Dups,
    interval: Interval,
    /// Until when others may answer reads to whom this OSD has granted that; `None` before the first event: the OSD has just
    /// started.
    promised: Option<Promise>,
    role: Role,
    /// The attempt at peering that this OSD leads or follows.
    id: PeeringId,
    /// Attempts begun as primary; never goes back, so that old answers are told apart.
    rounds: u32,
    contexts: Contexts,
    watches: Watches,
    /// The primary that asked what is here, and was not answered yet.
    query_from: Option<i32>,
    /// Client ops that wait for the PG to be active.
    held: VecDeque<ClientOp>,
    /// Transactions that are not durable: number, time of submission, purpose.
    commits: VecDeque<(u32, u64, Commit)>,
    pending: HashMap<u32, Pending>,
    next_seq: u32,
    source: Option<SyncSource>,
    target: Option<SyncTarget>,
    /// The object that this member repairs.
    patient: Option<Patient>,
    /// Who copies to this OSD, or would like to.
    incoming: Option<Incoming>,
    /// The key of the object for which the last copy from here failed, as it can't be read.
    unreadable: Option<Bytes>,
    /// Holders of the newest copy that could not bring others up to it: others that have it too are asked first.
    unfit: BTreeSet<i32>,
    /// Members that had no room for all that they lack, in this interval.
    roomless: BTreeSet<i32>,
    /// How fast this OSD copies.
    pace: Pace,
    /// What an operator wants done first.
    forced: Forced,
    /// Staging objects, and the copies that are fetched.
    stages: Stages,
    /// Clients whose writes were dropped as there was no room.
    dropped: Dropped,
    counters: Counters,
    shares: Shares,
    /// Messages to this OSD itself, which holder and target, or primary and holder, may both be.
    to_self: VecDeque<PeerMessage>,
}

impl Pg {
    /// A PG without a copy here.
    pub fn new(pgid: PgId, whoami: i32, slot: u32, cfg: Arc<PgConfig>, map: Arc<dyn ClusterMap>) -> Self {
        let pool = map.pool(pgid.pool).unwrap_or_default();
        let interval = Interval::new(pgid, &*map);
        let history = History::of_new(map.epoch(), pool.created);
        Self {
            pgid,
            whoami,
            slot,
            exists: false,
            info: PgInfo {
                pg_num: pool.pg_num,
                history,
                ..PgInfo::default()
            },
            pool,
            map,
            log: PgLog::default(),
            dups: Dups::default(),
            interval,
            promised: Some(Promise::default()),
            role: Role::Idle,
            id: PeeringId::default(),
            rounds: 0,
            query_from: None,
            contexts: Contexts::default(),
            watches: Watches::default(),
            held: VecDeque::new(),
            commits: VecDeque::new(),
            pending: HashMap::new(),
            next_seq: 0,
            source: None,
            target: None,
            patient: None,
            incoming: None,
            unreadable: None,
            unfit: BTreeSet::new(),
            roomless: BTreeSet::new(),
            pace: Pace::default(),
            forced: Forced::default(),
            stages: Stages::default(),
            dropped: Dropped::default(),
            counters: Counters::default(),
            shares: cfg.shares(1),
            cfg,
            to_self: VecDeque::new(),
        }
    }

    /// A PG as the store remembers it. `entries` ascend.
    pub fn load(
        pgid: PgId,
        whoami: i32,
        slot: u32,
        cfg: Arc<PgConfig>,
        map: Arc<dyn ClusterMap>,
        mut info: PgInfo,
        entries: Vec<LogEntry>,
    ) -> Self {
        if let Some(last) = entries.last().filter(|e| e.version > info.last_update) {
            // The info is written when the PG is activated; since then the log tells.
            info.last_update = last.version;
            info.usage = last.usage;
        }
        // Trimmed entries are removed without the info being written.
        if let Some(first) = entries.first().filter(|e| e.version > info.log_tail) {
            info.log_tail = info
                .log_tail
                .max(EVersion::new(first.version.epoch, first.version.version - 1));
        }
        let newest = entries.iter().map(|e| e.user_version).max().unwrap_or(0);
        info.last_user_version = info.last_user_version.max(newest);
        let mut pg = Self::new(pgid, whoami, slot, cfg, map);
        pg.log = PgLog::from_entries(info.log_tail, info.last_update, entries);
        pg.info = info;
        pg.exists = true;
        pg.promised = None;
        pg
    }

    /// The requests that the store remembers besides the log; the batches ascend.
    pub fn load_dups(&mut self, batches: Vec<DupBatch>) {
        self.dups = Dups::from_batches(batches);
    }

    /// The requests that are no longer in the log.
    pub fn dups(&self) -> &Dups {
        &self.dups
    }

    /// The PG's id.
    pub fn pgid(&self) -> PgId {
        self.pgid
    }

    /// What the copy here says of itself, if there is one.
    pub fn info(&self) -> Option<&PgInfo> {
        self.exists.then_some(&self.info)
    }

    /// The attempt at peering that this OSD leads or follows.
    #[cfg(test)]
    pub(crate) fn attempt(&self) -> PeeringId {
        self.id
    }

    /// The PG's log.
    pub fn log(&self) -> &PgLog {
        &self.log
    }

    /// Copies at the pace of all PGs of the reactor from now on.
    pub fn share_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// The PG is one of so many on this reactor, which share what may be kept in memory.
    pub fn set_share(&mut self, pgs: usize) {
        self.shares = self.cfg.shares(pgs);
    }

    /// Settings for what is executed from now on.
    pub fn set_config(&mut self, cfg: Arc<PgConfig>) {
        self.cfg = cfg;
    }

    /// Whether this OSD leads the PG.
    pub fn is_primary(&self) -> bool {
        matches!(self.role, Role::Peering(_) | Role::Active(_))
    }

    /// Whether this OSD leads the PG and serves clients.
    pub fn is_active(&self) -> bool {
        matches!(self.role, Role::Active(_))
    }

    /// Whether nothing is left to keep this PG for: no copy, no role, none to come, nothing under way.
    pub fn is_gone(&self) -> bool {
        !self.exists
            && matches!(self.role, Role::Stray | Role::Idle)
            && (!self.interval.place.up.contains(&self.whoami) || self.map.pool(self.pgid.pool).is_none())
            && self.commits.is_empty()
            && self.pending.is_empty()
            && self.source.is_none()
            && self.target.is_none()
    }

    /// Ops that wait or are under way.
    pub fn ops_in_flight(&self) -> usize {
        let writes = if let Role::Active(a) = &self.role {
            a.in_flight.len()
        } else {
            0
        };
        let reads = self
            .pending
            .values()
            .filter(|p| matches!(p, Pending::Op(_) | Pending::List(_)))
            .count();
        self.held.len() + self.contexts.waiting() + writes + reads
    }

    /// Its role and what it waits for, for the report on a failed test or simulation.
    pub fn trace(&self) -> String {
        format!(
            "{} {:?}, {:?}, commits {:?}, store {:?}",
            self.pgid, self.id, self.role, self.commits, self.pending
        )
    }

    /// When the ops that wait or are under way were received.
    pub fn ops_received(&self) -> impl Iterator<Item = u64> {
        self.ops().map(|(op, _)| op.stamps.received)
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
        self.contexts.drop_idle();
    }

    /// What it has in memory, roughly: contexts, and entries of the log with the requests remembered besides.
    pub fn memory(&self) -> PgMemory {
        let contexts = self.contexts.len();
        PgMemory {
            contexts: (contexts, contexts * CONTEXT_BYTES + self.contexts.extras()),
            log: (
                self.log.len() + self.dups.count(),
                self.log.bytes() + self.dups.bytes(),
            ),
        }
    }

    /// Object contexts in memory.
    pub fn cached_contexts(&self) -> usize {
        self.contexts.len()
    }

    fn seq(&mut self) -> u32 {
        self.next_seq = self.next_seq.wrapping_add(1);
        self.next_seq
    }

    fn token(&mut self, what: Pending) -> Token {
        let seq = self.seq();
        self.pending.insert(seq, what);
        Token::new(self.slot, seq)
    }

    fn submit(&mut self, txn: Txn, what: Commit, cx: &mut Ctx<'_>) {
        self.submit_claim(txn, Claim::All, what, cx);
    }

    fn submit_claim(&mut self, txn: Txn, claim: Claim, what: Commit, cx: &mut Ctx<'_>) {
        let seq = self.seq();
        self.commits.push_back((seq, cx.usec, what));
        cx.out.push(Output::Submit {
            token: Token::new(self.slot, seq),
            txn,
            claim,
        });
    }

    fn send(&mut self, osd: i32, id: PeeringId, body: PeerBody, reply: bool, cx: &mut Ctx<'_>) {
        if osd == self.whoami {
            self.to_self.push_back(PeerMessage {
                pgid: self.pgid,
                id,
                body,
            });
            return;
        }
        let msg = PeerMessage {
            pgid: self.pgid,
            id,
            body,
        }
        .to_raw();
        cx.out.push(Output::Send { osd, msg, reply });
    }

    /// The record of the info as it is now.
    fn info_record(&self) -> MetaOp {
        MetaOp::Put(
            key::info_key(self.pgid),
            spirula_denc::encode_to_vec(&self.info).into(),
        )
    }

    fn save_info(&mut self, cx: &mut Ctx<'_>) {
        let txn = Txn {
            objects: Vec::new(),
            meta: vec![self.info_record()],
        };
        self.submit(txn, Commit::Record, cx);
    }

    /// The range of the store's keys that holds the PG's objects.
    fn range(&self) -> (Bytes, Bytes) {
        key::pg_range(self.pgid, self.pool.pg_num.max(1))
    }

    fn contains(&self, o: &HObject) -> bool {
        self.pgid.contains_hash(self.pool.pg_num.max(1), o.hash)
    }

    /// An answer of the store to one of the PG's requests.
    pub fn handle_store(&mut self, token: Token, reply: StoreReply, cx: &mut Ctx<'_>) {
        if let StoreReply::Committed = reply {
            let first = self.commits.pop_front().filter(|(seq, ..)| *seq == token.seq());
            let Some((_, submitted, what)) = first else {
                impossible!(
                    "transactions to be durable in the order of submission";
                    pg = self.pgid, epoch = self.map.epoch()
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
            let at = self.commits.iter().position(|(seq, ..)| *seq == token.seq());
            let Some((_, _, what)) = at.and_then(|at| self.commits.remove(at)) else {
                impossible!(
                    "a transaction that was refused to be one that was submitted";
                    pg = self.pgid, epoch = self.map.epoch()
                );
            };
            self.not_stored(what, cx);
            return;
        }
        let Some(what) = self.pending.remove(&token.seq()) else {
            // What was asked for in an earlier interval is no longer pending.
            return dropped!(cx.perf.dropped, DropReason::StoreLate; pg = self.pgid);
        };
        match (what, reply) {
            (Pending::Context(key), StoreReply::Object(r)) => self.context_loaded(&key, r, cx),
            (Pending::Op(op), StoreReply::Fetched(r, room)) => self.op_fetched(*op, r, room, cx),
            (Pending::Op(op), StoreReply::NotRead) => self.op_not_read(&op, cx),
            (Pending::Op(op), StoreReply::Object(r)) => self.clone_loaded(*op, r, cx),
            (Pending::Trim, StoreReply::Records(r)) => self.clones_listed(r, cx),
            (Pending::TrimClone(key), StoreReply::Object(r)) => self.trim_found(key, r, cx),
            (Pending::Stage(seq), StoreReply::Fetched(r, _)) => self.stage_read(seq, r, cx),
            (Pending::List(l), StoreReply::Objects(r)) => self.listed(*l, r, cx),
            (Pending::List(l), StoreReply::Fetched(r, _)) => self.list_fetched(*l, r, cx),
            (Pending::Repair(asked), reply) => self.repair_store(asked, reply, cx),
            (Pending::Source(feed), reply) => self.source_store(feed, reply, cx),
            (Pending::Target, StoreReply::Objects(r)) => self.target_scanned(r, cx),
            (Pending::Delete, StoreReply::Objects(r)) => self.delete_listed(r, cx),
            (Pending::Count, StoreReply::Objects(r)) => self.counted(r, cx),
            (what, reply) => impossible!(
                "an answer to the question";
                pg = self.pgid, epoch = self.map.epoch(), question = format!("{what:?}"), answer = format!("{reply:?}")
            ),
        }
    }

    fn committed(&mut self, what: Commit, cx: &mut Ctx<'_>) {
        match what {
            Commit::Write(v) => self.write_committed(v, cx),
            Commit::Push { id, source, .. } => self.push_committed(id, source, cx),
            Commit::Activate { id, primary } => self.activation_committed(id, primary, cx),
            Commit::Delete => self.delete_step(cx),
            Commit::Repair(number) => self.repair_committed(number, cx),
            Commit::Record => {}
        }
        if self.commits.is_empty() {
            self.quiesced(cx);
        }
    }

    /// The store had no room for a transaction.
    fn not_stored(&mut self, what: Commit, cx: &mut Ctx<'_>) {
        match what {
            Commit::Push { id, source, key } => self.push_refused_here(id, source, key, cx),
            Commit::Repair(number) => self.repair_refused(number, cx),
            what => impossible!(
                "what claims all room to be stored in any case";
                pg = self.pgid, epoch = self.map.epoch(), transaction = format!("{what:?}")
            ),
        }
        if self.commits.is_empty() {
            self.quiesced(cx);
        }
    }

    /// Delivers what the PG has said to itself. To be called after every event.
    pub fn settle(&mut self, cx: &mut Ctx<'_>) {
        while let Some(msg) = self.to_self.pop_front() {
            self.handle_peer(self.whoami, msg, cx);
        }
        self.backfill_on(cx);
        self.repair_on(cx);
        while let Some(msg) = self.to_self.pop_front() {
            self.handle_peer(self.whoami, msg, cx);
        }
        self.drop_stages(cx);
    }

    /// A message from another OSD about this PG. Its epoch is not newer than the PG's map.
    pub fn handle_peer(&mut self, from: i32, msg: PeerMessage, cx: &mut Ctx<'_>) {
        let id = msg.id;
        if self.is_foreign(from, id, &msg.body, cx) || self.is_stale_message(from, id, &msg.body, cx) {
            return;
        }
        match msg.body {
            PeerBody::RepOp {
                prev,
                entry,
                trim_to,
                stable,
                txn,
            } => self.rep_op(from, id, prev, entry, (trim_to, stable), txn, cx),
            PeerBody::RepCommitted(v) => self.rep_committed(from, v, cx),
            PeerBody::Query => self.queried(from, id, cx),
            PeerBody::Notify { info, promised } => self.notified(from, id, info, promised, cx),
            PeerBody::Lease { stamp, shared } => self.lease_wanted(from, id, stamp, shared, cx),
            PeerBody::LeaseGranted(stamp) => self.lease_granted(from, stamp, cx),
            PeerBody::ShareLease(stamp) => self.share_wanted(from, stamp, cx),
            PeerBody::LeaseShared {
                stamp,
                length,
                stable,
                epoch,
            } => self.lease_shared(from, id, (stamp, length, stable, epoch), cx),
            PeerBody::GetLog => self.log_wanted(from, id, cx),
            PeerBody::Log {
                tail,
                head,
                entries,
                dups,
            } => self.log_received(from, (tail, head), entries, dups, cx),
            PeerBody::StartSync(targets) => self.start_sync(from, id, targets, cx),
            PeerBody::SyncDone(osd) => self.sync_done(osd, cx),
            PeerBody::SyncFailed => self.sync_failed(cx),
            PeerBody::SyncRefused(osd) => self.sync_refused(osd, cx),
            PeerBody::Push(push) => self.pushed(from, id, push, cx),
            PeerBody::PushAck => self.push_acked(from, id, cx),
            PeerBody::PushRefused => self.push_refused(from, id, cx),
            PeerBody::Scan {
                from: start,
                to,
                objects,
            } => self.scan(from, id, start, to, objects, cx),
            PeerBody::ScanAck(needed) => self.scan_acked(from, id, needed, cx),
            PeerBody::Activate { info, log } => self.activate_member(from, id, info, log, cx),
            PeerBody::Reserve(priority) => self.turn_wanted(from, id, priority),
            PeerBody::Reserved => self.turn_granted(from, cx),
            PeerBody::Release => self.turn_released(from),
            PeerBody::Revoked => self.turn_revoked(from),
            PeerBody::Copied { info, log } => self.copied(from, id, info, log, cx),
            PeerBody::Activated => self.member_activated(from, cx),
            PeerBody::Remove => self.removed(from, id, cx),
            PeerBody::CopyRead(r) => self.copy_read(from, id.epoch, r, cx),
            PeerBody::CopyPart(p) => self.copy_part(from, p, cx),
            PeerBody::Repair(r) => self.repair_message(from, r, cx),
        }
    }
}
