//! All PGs of one reactor: creates, splits and drops PGs as the map says, and hands events to them.
//! Without I/O.

mod outlook;
mod scheduler;
mod scrubs;
mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;
use spirula_denc::Micros;
use spirula_invariant::{dropped, invariant};
use spirula_maps::{Epoch, OsdId, PgId};

use crate::pg::cluster::ClusterMap;
use crate::pg::coded::redo::Redo;
use crate::pg::config::PgConfig;
use crate::pg::describe::{OpRecord, Progress};
use crate::pg::dups::DupBatch;
use crate::pg::info::PgInfo;
use crate::pg::link::LinkPeer;
use crate::pg::log::LogEntry;
use crate::pg::message::PeerMessage;
use crate::pg::op::{Client, ClientOp};
use crate::pg::perf::DropReason;
use crate::pg::recent;
use crate::pg::repair::MarkLostError;
use crate::pg::staged::Staged;
use crate::pg::{
    Ctx, Lane, Output, Pg, PgCounts, PgMemory, PgReport, Shared, StageState, StoreReply, Token, TrimState,
};

pub use outlook::{OsdScrubs, ScrubEnds, ScrubOutlook, ScrubToTell};
use scheduler::Scheduler;
pub use scheduler::{FlowState, SchedulerState};
use scrubs::ScrubTurns;
pub use turns::{CopyBids, NamedBid};

/// The slot in the tokens of the daemon's own store calls.
pub const DAEMON_SLOT: u32 = 0;

/// The most messages of one OSD that wait for a map.
const MOST_EARLY: usize = 4096;

/// How long a request waits for a map.
const EARLY_PATIENCE: Micros = Micros::from_secs(15);

/// The PGs that build staging objects of one kind, and the PGs that want to.
#[derive(Debug, Default)]
struct StageLane {
    running: Vec<u32>,
    wanted: VecDeque<u32>,
}

/// An event that waits for a newer map.
#[derive(Debug)]
enum Early {
    Op(ClientOp),
    Peer(OsdId, PeerMessage),
}

impl Early {
    /// The client's request, if the event is one.
    fn op(&self) -> Option<&ClientOp> {
        match self {
            Self::Op(op) => Some(op),
            Self::Peer(..) => None,
        }
    }

    /// Whether the event is a request that came on this connection.
    fn is_of(&self, conn: u64) -> bool {
        self.op().is_some_and(|op| op.client.conn == conn)
    }

    fn epoch(&self) -> Epoch {
        match self {
            Self::Op(op) => op.epoch,
            Self::Peer(_, m) => m.id.epoch,
        }
    }
}

/// A reactor's share of the PGs: each PG belongs to one reactor.
#[derive(Debug, Clone, Copy)]
pub struct Shard {
    /// This reactor's number.
    pub number: u32,
    /// The number of reactors.
    pub count: u32,
}

impl Shard {
    /// All PGs belong to the only reactor.
    pub const WHOLE: Self = Self { number: 0, count: 1 };
}

/// What has changed since turns were last granted.
#[derive(Debug, Default)]
struct Changed {
    /// Whether a PG has begun or stopped wanting to copy, wanting to be copied to, or copying.
    copies: bool,
    /// Whether a PG has begun or stopped wanting to trim snapshots, or trimming them.
    trims: bool,
}

/// The PGs of one reactor.
#[derive(Debug)]
pub struct Core {
    whoami: OsdId,
    shard: Shard,
    cfg: Arc<PgConfig>,
    map: Arc<dyn ClusterMap>,
    up: bool,
    pgs: HashMap<u32, Pg>,
    by_id: HashMap<PgId, u32>,
    next_slot: u32,
    /// The PGs that build staging objects, and the PGs that want to.
    lanes: [StageLane; Lane::ALL.len()],
    early: Vec<Early>,
    shared: Shared,
    scrubs: ScrubTurns,
    scheduler: Scheduler,
    /// How many transitions each PG remembers.
    remembered: usize,
    changed: Changed,
}

impl Core {
    /// A reactor without PGs. It does nothing until a map says that the OSD is up.
    pub fn new(whoami: OsdId, shard: Shard, cfg: Arc<PgConfig>, map: Arc<dyn ClusterMap>) -> Self {
        let rate = cfg.clients.part(shard.count);
        Self {
            whoami,
            shard,
            cfg,
            map,
            up: false,
            pgs: HashMap::new(),
            by_id: HashMap::new(),
            next_slot: DAEMON_SLOT,
            lanes: Default::default(),
            early: Vec::new(),
            shared: Shared::default(),
            scrubs: ScrubTurns::default(),
            scheduler: Scheduler::new(rate),
            remembered: 0,
            changed: Changed::default(),
        }
    }

    /// The number of the reactor, of `count`, that a PG belongs to.
    pub fn shard_of(pgid: PgId, count: u32) -> u32 {
        // Children of a split come after their parent by a power of two: mix, so that they spread.
        let mixed =
            (u64::from(pgid.seed) ^ pgid.pool.unsigned().rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed >> 33) % u64::from(count.max(1))) as u32
    }

    fn is_mine(&self, pgid: PgId) -> bool {
        Self::shard_of(pgid, self.shard.count) == self.shard.number
    }

    /// Adds a PG as the store remembers it, unless it belongs to another reactor. `map` is the
    /// newest stored map.
    pub fn load(&mut self, pgid: PgId, info: PgInfo, entries: Vec<LogEntry>) {
        if self.is_mine(pgid) {
            let slot = self.slot();
            let (cfg, map) = (Arc::clone(&self.cfg), Arc::clone(&self.map));
            let pg = Pg::load(pgid, self.whoami, slot, cfg, map, info, entries);
            self.add(slot, pg);
        }
    }

    /// Adds a PG, and gives it what all PGs of the reactor share.
    fn add(&mut self, slot: u32, mut pg: Pg) {
        pg.share(&self.shared);
        let share = recent::share(self.pgs.len() + 1);
        if std::mem::replace(&mut self.remembered, share) != share {
            self.pgs.values_mut().for_each(|pg| pg.remember(share));
        }
        pg.remember(share);
        let pgid = pg.pgid();
        let other = self.by_id.insert(pgid, slot);
        invariant!(other.is_none(), "a PG to be here once"; pg = pgid, epoch = self.map.epoch());
        self.pgs.insert(slot, pg);
        self.share_memory();
    }

    /// Tells all PGs their shares of the memory, which depend on the number of PGs.
    fn share_memory(&mut self) {
        let count = self.pgs.len();
        self.pgs.values_mut().for_each(|pg| pg.set_share(count));
    }

    /// Adds what the store remembers for a PG besides its log: requests, whose batches ascend, changes
    /// that may not be durable on all members, and staging objects.
    pub fn load_beside(&mut self, pgid: PgId, batches: Vec<DupBatch>, redo: Redo, staged: Staged) {
        if let Some(pg) = self.by_id.get(&pgid).and_then(|slot| self.pgs.get_mut(slot)) {
            pg.load_beside(batches, redo, staged);
        }
    }

    fn slot(&mut self) -> u32 {
        self.next_slot += 1;
        self.next_slot
    }

    /// Replaces the settings; the new ones apply to ops that are executed from now on.
    pub fn set_config(&mut self, cfg: Arc<PgConfig>) {
        self.pgs
            .values_mut()
            .for_each(|pg| pg.set_config(Arc::clone(&cfg)));
        self.scheduler.set_rate(cfg.clients.part(self.shard.count));
        self.cfg = cfg;
        self.share_memory();
    }

    /// The newest map.
    pub fn map(&self) -> &Arc<dyn ClusterMap> {
        &self.map
    }

    /// All PGs.
    pub fn pgs(&self) -> impl Iterator<Item = &Pg> {
        self.pgs.values()
    }

    /// A PG.
    pub fn pg(&self, pgid: PgId) -> Option<&Pg> {
        self.pgs.get(self.by_id.get(&pgid)?)
    }

    /// The number of events that wait for a newer map.
    pub fn waiting_for_map(&self) -> usize {
        self.early.len()
    }

    /// The memory that all PGs use together.
    pub fn memory(&self) -> PgMemory {
        self.pgs
            .values()
            .map(|pg| pg.seen().memory())
            .fold(PgMemory::default(), |all, pg| PgMemory {
                contexts: all.contexts + pg.contexts,
                log: all.log + pg.log,
            })
    }

    /// The number of object contexts in memory.
    pub fn cached_contexts(&self) -> usize {
        self.pgs.values().map(|pg| pg.seen().cached_contexts()).sum()
    }

    /// Forgets the object contexts that are not in use.
    pub fn drop_contexts(&mut self) {
        self.pgs.values_mut().for_each(Pg::drop_contexts);
    }

    /// The number of writes as primary that are not durable on all members.
    pub fn writes_in_flight(&self) -> usize {
        self.pgs.values().map(|pg| pg.seen().writes_in_flight()).sum()
    }

    /// The number of PGs here, by this OSD's role in them.
    pub fn pg_counts(&self) -> PgCounts {
        let mut counts = PgCounts::default();
        self.pgs.values().for_each(|pg| pg.seen().count_in(&mut counts));
        counts
    }

    /// Descriptions of all requests that wait or are under way.
    pub fn op_records(&self) -> impl Iterator<Item = OpRecord> {
        let early = self.early.iter().filter_map(Early::op);
        let early = early.map(|op| OpRecord::of(op, Progress::Delayed("wait for new map")));
        let queued = self.scheduler.ops();
        let queued = queued.map(|op| OpRecord::of(op, Progress::Delayed("queued for pg")));
        early
            .chain(queued)
            .chain(self.pgs.values().flat_map(|pg| pg.seen().op_records()))
    }

    /// When the requests that wait or are under way were received.
    pub fn ops_received(&self) -> impl Iterator<Item = Micros> {
        let early = self
            .early
            .iter()
            .filter_map(Early::op)
            .chain(self.scheduler.ops())
            .map(|op| op.stamps.received);
        early.chain(self.pgs.values().flat_map(|pg| pg.seen().ops_received()))
    }

    /// Reports on the PGs that this OSD leads.
    pub fn reports(&self) -> impl Iterator<Item = PgReport> {
        self.pgs.values().filter_map(|pg| pg.seen().report())
    }

    fn with(&mut self, slot: u32, cx: &mut Ctx<'_>, f: impl FnOnce(&mut Pg, &mut Ctx<'_>)) {
        let mut freed = Vec::new();
        if let Some(pg) = self.pgs.get_mut(&slot) {
            let _told = pg.at_work();
            let before = (pg.seen().trim_state(), turns::of(pg));
            f(pg, cx);
            pg.settle(cx);
            self.changed.trims |= pg.seen().trim_state() != before.0;
            self.changed.copies |= turns::of(pg) != before.1;
            freed = pg.splitting().freed();
            if pg.seen().is_gone() {
                let pgid = pg.pgid();
                self.pgs.remove(&slot);
                self.by_id.remove(&pgid);
                self.share_memory();
            }
        }
        for lane in Lane::ALL {
            self.schedule_stages(lane, slot, cx);
        }
        self.let_go(freed, cx);
    }

    /// Lets PGs call the store that waited for calls of the PG that they were split off from.
    fn let_go(&mut self, slots: Vec<u32>, cx: &mut Ctx<'_>) {
        for slot in slots {
            self.with(slot, cx, |pg, cx| pg.splitting().go(cx));
        }
    }

    fn stage_state(&self, lane: Lane, slot: u32) -> StageState {
        self.pgs
            .get(&slot)
            .map_or(StageState::Idle, |pg| pg.seen().stage_state(lane))
    }

    /// Lets the next staging objects begin, after something happened to the PG in `slot`.
    fn schedule_stages(&mut self, lane: Lane, slot: u32, cx: &mut Ctx<'_>) {
        let queue = &self.lanes[lane as usize];
        match self.stage_state(lane, slot) {
            // Nothing has changed for others.
            StageState::Idle if !queue.running.contains(&slot) => return,
            StageState::Waiting if !queue.wanted.contains(&slot) => {
                self.lanes[lane as usize].wanted.push_back(slot);
            }
            _ => {}
        }
        let mut running = std::mem::take(&mut self.lanes[lane as usize].running);
        loop {
            running.retain(|s| self.stage_state(lane, *s) == StageState::Running);
            if running.len() >= lane.width() {
                break;
            }
            let Some(next) = self.lanes[lane as usize].wanted.pop_front() else {
                break;
            };
            if self.stage_state(lane, next) != StageState::Waiting {
                continue;
            }
            if let Some(pg) = self.pgs.get_mut(&next) {
                let _told = pg.at_work();
                pg.start_stage(lane, cx);
                pg.settle(cx);
            }
            match self.stage_state(lane, next) {
                StageState::Running => running.push(next),
                StageState::Waiting => self.lanes[lane as usize].wanted.push_back(next),
                StageState::Idle => {}
            }
        }
        self.lanes[lane as usize].running = running;
    }

    /// Grants snapshot trimming to as many PGs as may trim at a time.
    fn grant_trims(&mut self, cx: &mut Ctx<'_>) {
        while std::mem::take(&mut self.changed.trims) {
            let state = |s: &u32| self.pgs.get(s).map(|pg| pg.seen().trim_state());
            let slots = self.slots();
            let trimming = slots
                .iter()
                .filter(|s| state(s) == Some(TrimState::Trimming))
                .count();
            let free = self.cfg.max_trimming_pgs.saturating_sub(trimming);
            let waiting = slots.iter().filter(|s| state(s) == Some(TrimState::Waiting));
            for slot in waiting.take(free).copied().collect::<Vec<_>>() {
                self.with(slot, cx, Pg::grant_trim);
            }
        }
    }

    fn exists_in_map(&self, pgid: PgId) -> bool {
        self.map.pool(pgid.pool).is_some_and(|p| pgid.seed < p.pg_num)
    }

    fn create(&mut self, pgid: PgId, cx: &mut Ctx<'_>) -> u32 {
        let slot = self.slot();
        let pg = Pg::new(
            pgid,
            self.whoami,
            slot,
            Arc::clone(&self.cfg),
            Arc::clone(&self.map),
        );
        self.add(slot, pg);
        let (map, up) = (Arc::clone(&self.map), self.up);
        if let Some(pg) = self.pgs.get_mut(&slot) {
            let _told = pg.at_work();
            pg.handle_map(map, false, up, cx);
            pg.settle(cx);
        }
        slot
    }

    /// Handles a client's request for PG `pgid`.
    pub fn handle_op(&mut self, pgid: PgId, op: ClientOp, cx: &mut Ctx<'_>) {
        if op.epoch > self.map.epoch() {
            // The client's rights in a pool may depend on the map to come, but a client without any
            // rights need not wait for it.
            if op.client.access.allows_nothing() {
                cx.deny(op, self.map.epoch());
            } else {
                self.early.push(Early::Op(op));
            }
            return; // It goes on with the map, or is given up.
        }
        self.shared.pace.note_op(cx.usec, op.traffic());
        let first = self.scheduler.enter(pgid, op, cx.usec);
        self.begin_ops(first.map(|op| (pgid, op)), cx);
    }

    /// Begins a request of a client, and those whose turn it is once others have ended.
    fn begin_ops(&mut self, first: Option<(PgId, ClientOp)>, cx: &mut Ctx<'_>) {
        let mut next = first;
        while let Some((pgid, op)) = next.take().or_else(|| self.scheduler.next(cx)) {
            match self.by_id.get(&pgid) {
                Some(&slot) => self.with(slot, cx, |pg, cx| pg.handle_op(op, cx)),
                None => cx.turn_away(op, self.map.epoch()),
            }
        }
    }

    /// The requests that wait for their turn, and those before them.
    pub fn scheduler(&self) -> SchedulerState {
        self.scheduler.state()
    }

    /// Whether OSD `from` may ask for a PG that is not here: `from` leads the PG, or this OSD is to
    /// have it.
    fn is_asked_by(&self, from: OsdId, pgid: PgId) -> bool {
        let place = self.map.placement(pgid);
        place.primary == Some(from) || place.up.contains(self.whoami) || place.acting.contains(self.whoami)
    }

    /// Handles a message of another OSD.
    pub fn handle_peer(&mut self, from: OsdId, msg: PeerMessage, cx: &mut Ctx<'_>) {
        if msg.id.epoch > self.map.epoch() {
            let is_of = |e: &&Early| matches!(e, Early::Peer(o, _) if *o == from);
            if msg.body.is_of_attempt() || self.early.iter().filter(is_of).count() >= MOST_EARLY {
                return dropped!(cx.perf.dropped, DropReason::PeerEarly);
            }
            self.early.push(Early::Peer(from, msg));
            return; // It goes on with the map.
        }
        let slot = match self.by_id.get(&msg.pgid) {
            Some(&slot) => slot,
            None if !self.up || !self.is_mine(msg.pgid) || !self.exists_in_map(msg.pgid) => {
                return dropped!(cx.perf.dropped, DropReason::PeerStale);
            }
            None if self.is_asked_by(from, msg.pgid) => self.create(msg.pgid, cx),
            None => {
                // By an older map it may be here.
                let is_stale = msg.id.epoch < self.map.epoch();
                return dropped!(cx.perf.dropped, DropReason::of_stranger(is_stale));
            }
        };
        self.with(slot, cx, |pg, cx| pg.handle_peer(from, msg, cx));
        self.grant_copies(cx);
        self.follow_scrubs(cx);
        self.begin_ops(None, cx);
    }

    /// Handles an answer of the store.
    pub fn handle_store(&mut self, token: Token, reply: StoreReply, cx: &mut Ctx<'_>) {
        if !self.pgs.contains_key(&token.slot()) {
            // The PG was deleted while the store worked.
            return dropped!(cx.perf.dropped, DropReason::StoreLate; token = token.0);
        }
        self.with(token.slot(), cx, |pg, cx| pg.handle_store(token, reply, cx));
        self.grant_trims(cx);
        self.grant_copies(cx);
        self.follow_scrubs(cx);
        self.begin_ops(None, cx);
    }

    /// Handles the loss of a connection to or from another OSD.
    pub fn handle_peer_reset(&mut self, peer: LinkPeer, cx: &mut Ctx<'_>) {
        for slot in self.slots() {
            self.with(slot, cx, |pg, cx| pg.handle_peer_reset(peer, cx));
        }
        self.grant_copies(cx);
        self.begin_ops(None, cx);
    }

    /// Handles the end of a client's connection.
    pub fn handle_client_closed(&mut self, conn: u64, cx: &mut Ctx<'_>) {
        self.early.retain(|e| !e.is_of(conn));
        self.scheduler.forget(conn);
        self.pgs
            .values_mut()
            .for_each(|pg| pg.handle_client_closed(conn, cx));
        self.begin_ops(None, cx);
    }

    /// Handles the passing of time; called about once a second.
    pub fn handle_tick(&mut self, cx: &mut Ctx<'_>) {
        self.give_up_early(cx);
        self.scheduler.tick(cx.usec);
        for slot in self.slots() {
            self.with(slot, cx, Pg::handle_tick);
        }
        // A pause may be over.
        self.changed.copies = true;
        self.grant_copies(cx);
        self.grant_trims(cx);
        // Before it fills slots that members may refuse.
        self.look_ahead(cx);
        self.begin_scrubs(cx);
        self.begin_ops(None, cx);
    }

    /// Hangs up on clients that have waited long for a map. The map was asked for, so either there
    /// is none, or the monitors can't be reached from here and the client had better look for the
    /// map itself. The client sends its requests again.
    fn give_up_early(&mut self, cx: &mut Ctx<'_>) {
        let is_late = |op: &ClientOp| cx.usec.saturating_sub(op.stamps.received) >= EARLY_PATIENCE;
        let late: BTreeMap<u64, Arc<Client>> = self
            .early
            .iter()
            .filter_map(Early::op)
            .filter(|op| is_late(op))
            .map(|op| (op.client.conn, Arc::clone(&op.client)))
            .collect();
        if late.is_empty() {
            return; // Others wait on.
        }
        self.early
            .retain(|e| !e.op().is_some_and(|op| late.contains_key(&op.client.conn)));
        cx.out
            .extend(late.into_values().map(|client| Output::HangUp { client }));
    }

    /// Forces a PG's copying before all others' at an operator's command, or stops forcing it.
    pub fn force_copy(&mut self, pgid: PgId, backfill: bool, on: bool, cx: &mut Ctx<'_>) {
        if let Some(&slot) = self.by_id.get(&pgid) {
            self.with(slot, cx, |pg, cx| pg.force_copy(backfill, on, cx));
            self.changed.copies = true;
            self.grant_copies(cx);
        }
    }

    /// Gives up, at an operator's command, the objects of a PG that no member can read. Returns
    /// their number.
    ///
    /// # Errors
    /// There are none, or they may still be somewhere.
    pub fn mark_lost(&mut self, pgid: PgId, cx: &mut Ctx<'_>) -> Result<usize, MarkLostError> {
        let mut result = Err(MarkLostError::NoneUnfound);
        if let Some(&slot) = self.by_id.get(&pgid) {
            self.with(slot, cx, |pg, cx| result = pg.mark_lost(cx));
        }
        result
    }

    /// Handles an alarm that has come due.
    pub fn handle_alarm(&mut self, cx: &mut Ctx<'_>) {
        for slot in self.slots() {
            self.with(slot, cx, Pg::handle_alarm);
        }
        if self.shared.scrubs.taken() == 0 {
            self.begin_scrubs(cx);
        }
        self.begin_ops(None, cx);
    }

    fn slots(&self) -> Vec<u32> {
        let mut slots: Vec<u32> = self.pgs.keys().copied().collect();
        slots.sort_unstable();
        slots
    }

    /// Handles the next map. `gap` says that maps between were missed; `up`, that the map has this
    /// OSD up as it runs now.
    pub fn handle_map(&mut self, map: Arc<dyn ClusterMap>, gap: bool, up: bool, cx: &mut Ctx<'_>) {
        invariant!(
            map.epoch() >= self.map.epoch(),
            "maps whose epochs ascend";
            osd = self.whoami, newest = self.map.epoch(), epoch = map.epoch()
        );
        self.split(&*map, &map, cx);
        self.map = Arc::clone(&map);
        self.up = up;
        for slot in self.slots() {
            self.with(slot, cx, |pg, cx| pg.handle_map(Arc::clone(&map), gap, up, cx));
        }
        if up {
            self.create_led(&*map, cx);
        }
        self.replay_early(cx);
        self.grant_trims(cx);
        self.changed.copies = true;
        self.grant_copies(cx);
        self.begin_ops(None, cx);
    }

    fn split(&mut self, map: &dyn ClusterMap, shared: &Arc<dyn ClusterMap>, cx: &mut Ctx<'_>) {
        for slot in self.slots() {
            let Some((pgid, old)) = self.pgs.get(&slot).map(|pg| (pg.pgid(), pg.seen().split_for())) else {
                continue;
            };
            let Some(pool) = map.pool(pgid.pool).filter(|p| p.pg_num > old) else {
                continue;
            };
            let children = pgid.split_children(old, pool.pg_num);
            // They stay with this reactor, as it is the daemon's only one (`Shard::WHOLE`): of several,
            // another might look for a child in vain, and would make it anew. Reactors that share PGs
            // out have to hand children over first.
            invariant!(
                children.iter().all(|child| self.is_mine(*child)),
                "PGs that are split off to belong to the reactor that has the others' objects";
                pg = pgid, epoch = map.epoch(), reactor = self.shard.number, reactors = self.shard.count
            );
            let children: Vec<(PgId, u32)> = children.into_iter().map(|child| (child, self.slot())).collect();
            if let Some(pg) = self.pgs.get_mut(&slot) {
                let split = pg.splitting().split(&children, pool.pg_num, shared, cx);
                for ((_, child_slot), new) in children.iter().zip(split) {
                    self.add(*child_slot, new);
                }
            }
        }
    }

    /// Creates the PGs that this OSD leads and does not have.
    fn create_led(&mut self, map: &dyn ClusterMap, cx: &mut Ctx<'_>) {
        for id in map.pool_ids() {
            let Some(pool) = map.pool(id) else { continue };
            for pgid in (0..pool.pg_num).map(|seed| PgId::new(id, seed)) {
                let new = self.is_mine(pgid) && !self.by_id.contains_key(&pgid);
                if new && map.placement(pgid).primary == Some(self.whoami) {
                    self.create(pgid, cx);
                }
            }
        }
    }

    fn replay_early(&mut self, cx: &mut Ctx<'_>) {
        let epoch = self.map.epoch();
        let (now, later) = std::mem::take(&mut self.early)
            .into_iter()
            .partition(|e| e.epoch() <= epoch);
        self.early = later;
        let now: Vec<Early> = now;
        for e in now {
            match e {
                Early::Op(op) => self.handle_op(op.pgid, op, cx),
                Early::Peer(from, m) => self.handle_peer(from, m, cx),
            }
        }
    }
}
