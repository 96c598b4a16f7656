//! A whole cluster of cores on fake stores, a fake network and a fake map, all driven by one seed.
//! For tests.

mod ahead;
mod classes;
mod coded;
mod copies;
mod copy;
mod copying;
mod core;
mod digests;
mod dropped;
mod dups;
mod foreign;
mod hostile;
mod image_io;
mod map;
mod mixed;
mod omap;
mod on_coded;
mod ops;
mod parts;
mod patches;
mod peering;
mod random;
mod recent;
mod repair;
mod replica_read;
mod room;
mod scrub;
mod scrub_pace;
mod scrub_told;
mod snaps;
mod split;
mod stage;
mod store;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::{EntityAddr, EntityName, EntityType, Micros, UTime};
use spirula_maps::{Epoch, HObject, ObjectName, OsdId, PgId, PoolId, ReqId, SnapContext, snap};
use spirula_proto::osd::{MOsdOpReply, MWatchNotify, OpArgs, OpCode, OsdFlags, OsdOpIn};
use spirula_proto::{MsgType, RawMessage};
use spirula_random::Rng;

use spirula_cephx::caps::ClassCall;

use crate::core::{Core, Shard};
use crate::pg::cluster::{ClusterMap, PoolView};
use crate::pg::config::PgConfig;
use crate::pg::describe::OpRecord;
use crate::pg::image_io::ImageIo;
use crate::pg::link::LinkKind;
use crate::pg::message::PeerMessage;
use crate::pg::op::{Access, Client, ClientOp, OsdOp};
use crate::pg::perf::{CorePerf, DropReason};
use crate::pg::placed_data::PlacedData;
use crate::pg::versions::Versions;
use crate::pg::{Claim, Ctx, Output, StoreReply, Token};
use map::FakeMap;
use spirula_proto::internal::Edition;
use store::FakeStore;

const POOL: PoolId = PoolId::new(1);

#[derive(Debug)]
struct AllowAll;

impl Access for AllowAll {
    fn allows(&self, _: &PoolView, _: &[u8], _: &[u8], _: bool, _: bool, _: &[ClassCall<'_>]) -> bool {
        true
    }

    fn allows_all(&self) -> bool {
        true
    }
}

/// One OSD: its core while it runs, and its store, which survives.
struct Node {
    core: Option<Core>,
    store: FakeStore,
    /// Answers of the store on their way.
    answers: VecDeque<(Token, StoreReply)>,
    /// The OSD's counts by image.
    images: ImageIo,
    versions: Versions,
    /// The newest map it stored.
    epoch: Epoch,
    /// Since when it has its store.
    kept_since: Option<Epoch>,
    /// Maps on their way.
    maps: VecDeque<Epoch>,
}

/// A step that could happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Deliver(OsdId, OsdId),
    /// Data that goes ahead of a change arrives.
    DeliverAhead(OsdId, OsdId),
    Answer(OsdId),
    Flush(OsdId),
    Map(OsdId),
    /// The monitors hear that an OSD is up.
    Alive,
    /// The monitors hear of an acting set that is wanted.
    Temp,
}

struct Sim {
    nodes: BTreeMap<OsdId, Node>,
    /// All maps by epoch.
    maps: BTreeMap<Epoch, Arc<FakeMap>>,
    links: BTreeMap<(OsdId, OsdId), VecDeque<RawMessage>>,
    /// The connections on which data goes ahead of changes.
    ahead_links: BTreeMap<(OsdId, OsdId), VecDeque<RawMessage>>,
    replies: VecDeque<MOsdOpReply>,
    /// The OSDs' requests to be recorded as up, on the way to the monitors.
    alive: VecDeque<(OsdId, Epoch)>,
    /// Acting sets wanted, on the way to the monitors.
    temp: VecDeque<(OsdId, PgId, Vec<OsdId>)>,
    /// The messages to clients about watches, by connection.
    events: VecDeque<(u64, MWatchNotify)>,
    /// Times at which the cores want to be called.
    alarms: BTreeSet<Micros>,
    /// Bytes of messages between OSDs, those of replication left out.
    peering_bytes: usize,
    /// The number of messages that were dropped as their senders may not send them, or as too
    /// early.
    foreign: u64,
    /// How often a store was asked about an object.
    reads: usize,
    /// How often data was placed ahead of its change.
    placed: usize,
    /// Lines of the cluster log.
    cluster_log: Vec<String>,
    /// Connections of clients that were ended.
    hung_up: Vec<u64>,
    /// How often a client was to be sent newer maps.
    maps_shared: u32,
    rng: Rng,
    usec: Micros,
    tid: u64,
    client: Arc<Client>,
    cfg: Arc<PgConfig>,
    /// The OSDs without room.
    full: BTreeSet<OsdId>,
    /// The version of the last message on each way.
    written_in: BTreeMap<(OsdId, OsdId), u16>,
    /// The OSDs whose stores refuse every transaction that they may refuse.
    roomless: BTreeSet<OsdId>,
    /// The OSDs that are cut off from all others.
    isolated: BTreeSet<OsdId>,
    /// Whether disks and monitors take long, compared with everything else.
    is_slow: bool,
    seen_states: BTreeSet<String>,
}

impl Sim {
    fn new(osds: u16, size: u32, pg_num: u32, seed: u64) -> Self {
        Self::with_config(osds, size, pg_num, seed, PgConfig::default())
    }

    fn with_config(osds: u16, size: u32, pg_num: u32, seed: u64, mut cfg: PgConfig) -> Self {
        if !seed.is_multiple_of(2) {
            // Coded changes of some blocks are large.
            (cfg.large_change, cfg.portion) = (5000, 8192);
        }
        let addr: EntityAddr = "v2:127.0.0.1:1000/7".parse().unwrap();
        let name = EntityName::new(EntityType::CLIENT, 4100);
        let client = Arc::new(Client::new(1, name, addr, Arc::new(AllowAll)));
        let mut sim = Self {
            nodes: BTreeMap::new(),
            maps: BTreeMap::new(),
            links: BTreeMap::new(),
            ahead_links: BTreeMap::new(),
            replies: VecDeque::new(),
            alive: VecDeque::new(),
            temp: VecDeque::new(),
            events: VecDeque::new(),
            alarms: BTreeSet::new(),
            peering_bytes: 0,
            foreign: 0,
            reads: 0,
            placed: 0,
            cluster_log: Vec::new(),
            hung_up: Vec::new(),
            maps_shared: 0,
            rng: Rng::new(seed),
            usec: Micros::new(1),
            tid: 0,
            client,
            cfg: Arc::new(cfg),
            full: BTreeSet::new(),
            written_in: BTreeMap::new(),
            roomless: BTreeSet::new(),
            isolated: BTreeSet::new(),
            is_slow: false,
            seen_states: BTreeSet::new(),
        };
        let mut map = FakeMap::new(osds);
        sim.maps.insert(Epoch::new(1), Arc::new(map.clone()));
        for id in OsdId::below(osds.into()) {
            sim.nodes.insert(
                id,
                Node {
                    core: None,
                    store: FakeStore::default(),
                    answers: VecDeque::new(),
                    images: ImageIo::default(),
                    versions: Versions::default(),
                    epoch: Epoch::new(1),
                    kept_since: None,
                    maps: VecDeque::new(),
                },
            );
            sim.start(id);
        }
        map.epoch = Epoch::new(2);
        OsdId::below(osds.into()).for_each(|o| map.mark_up(o));
        map.add_pool(POOL, size, pg_num);
        sim.publish(map);
        sim
    }

    fn random(&mut self, n: usize) -> usize {
        self.rng.index(n)
    }

    /// One of the first `n` OSDs.
    fn random_osd(&mut self, n: usize) -> OsdId {
        OsdId::new(self.random(n) as u16)
    }

    fn map(&self) -> FakeMap {
        (**self.maps.values().next_back().unwrap()).clone()
    }

    /// Publishes the next map, which nodes get later.
    fn publish(&mut self, map: FakeMap) {
        let epoch = map.epoch;
        self.maps.insert(epoch, Arc::new(map));
        for n in self.nodes.values_mut().filter(|n| n.core.is_some()) {
            n.maps.push_back(epoch);
        }
    }

    fn change_map(&mut self, f: impl FnOnce(&mut FakeMap)) {
        let mut map = self.map();
        map.epoch = map.epoch.next();
        f(&mut map);
        self.publish(map);
    }

    /// Starts a node from its store. It is up in the first map that says so after this.
    fn start(&mut self, id: OsdId) {
        let n = self.nodes.get_mut(&id).unwrap();
        let map: Arc<dyn ClusterMap> = self.maps[&n.epoch].clone();
        let mut core = Core::new(id, Shard::WHOLE, Arc::clone(&self.cfg), map);
        n.store.load(&mut core);
        n.core = Some(core);
        n.answers.clear();
        n.maps = self.maps.range(n.epoch.next()..).map(|(e, _)| *e).collect();
    }

    /// Kills a node as by kill -9 and a power cut: unflushed data is gone, and everything on the
    /// way to or from the node.
    fn crash(&mut self, id: OsdId) {
        let n = self.nodes.get_mut(&id).unwrap();
        n.core = None;
        n.store.crash();
        n.answers.clear();
        n.maps.clear();
        self.cut(id);
    }

    /// Gives a node that is down an empty store. It begins with the newest map.
    fn replace_disk(&mut self, id: OsdId) {
        let newest = *self.maps.last_key_value().unwrap().0;
        let n = self.nodes.get_mut(&id).unwrap();
        assert!(n.core.is_none());
        (n.store, n.epoch, n.kept_since) = (FakeStore::default(), newest, None);
    }

    /// Drops messages on the way to or from a node, and tells the others.
    fn cut(&mut self, id: OsdId) {
        for links in [&mut self.links, &mut self.ahead_links] {
            links.retain(|(a, b), _| *a != id && *b != id);
        }
        let others: Vec<OsdId> = self.nodes.keys().copied().filter(|o| *o != id).collect();
        for o in others {
            self.forget_versions(o, id);
            self.with(o, |core, cx| core.handle_peer_reset((id, LinkKind::Ordered), cx));
        }
    }

    /// Forgets the versions of two nodes whose connection has ended: the next peer at the other end
    /// may be another program.
    fn forget_versions(&mut self, a: OsdId, b: OsdId) {
        for (at, of) in [(a, b), (b, a)] {
            self.nodes.get_mut(&at).unwrap().versions.forget(of);
        }
    }

    /// A node is of a version that speaks this edition of the messages between OSDs.
    fn speak(&mut self, id: OsdId, edition: Edition) {
        self.nodes.get_mut(&id).unwrap().versions = Versions::speaking(edition);
        self.cut(id);
    }

    /// Drops the messages on the way between two nodes.
    fn cut_link(&mut self, a: OsdId, b: OsdId) {
        self.forget_versions(a, b);
        for links in [&mut self.links, &mut self.ahead_links] {
            links.remove(&(a, b));
            links.remove(&(b, a));
        }
        self.with(a, |core, cx| core.handle_peer_reset((b, LinkKind::Ordered), cx));
        self.with(b, |core, cx| core.handle_peer_reset((a, LinkKind::Ordered), cx));
    }

    /// Drops the data on its way from one node to another ahead of changes.
    fn cut_ahead(&mut self, from: OsdId, to: OsdId) {
        self.ahead_links.remove(&(from, to));
        self.with(from, |core, cx| core.handle_peer_reset((to, LinkKind::Ahead), cx));
    }

    /// Cuts a node off from all others.
    fn isolate(&mut self, id: OsdId) {
        self.isolated.insert(id);
        self.alive.retain(|(o, _)| *o != id);
        self.temp.retain(|(o, ..)| *o != id);
    }

    /// Connects a node to the others again; messages sent meanwhile are lost.
    fn reconnect(&mut self, id: OsdId) {
        self.isolated.remove(&id);
        self.alive.retain(|(o, _)| *o != id);
        self.temp.retain(|(o, ..)| *o != id);
        for o in self.nodes.keys().copied().collect::<Vec<_>>() {
            if o != id {
                self.cut_link(o, id);
            }
        }
    }

    fn crash_and_mark_down(&mut self, id: OsdId) {
        self.crash(id);
        self.change_map(|m| m.mark_down(id));
    }

    fn start_and_mark_up(&mut self, id: OsdId) {
        self.start(id);
        self.change_map(|m| m.mark_up(id));
    }

    fn with(&mut self, id: OsdId, f: impl FnOnce(&mut Core, &mut Ctx<'_>)) {
        let (mut out, mut perf, mut refused) = (Vec::new(), CorePerf::default(), Vec::new());
        let now = UTime::from_secs(1000 + self.usec.as_secs() as u32);
        let node = self.nodes.get_mut(&id).unwrap();
        let Some(core) = &mut node.core else { return };
        let mut cx = Ctx {
            now,
            usec: self.usec,
            kept_since: node.kept_since,
            full: &self.full,
            versions: &node.versions,
            out: &mut out,
            perf: &mut perf,
            images: &mut node.images,
            slow_after: Micros::MAX,
            described: None,
        };
        f(core, &mut cx);
        let foreign = [
            DropReason::PeerForeign,
            DropReason::PeerUnsound,
            DropReason::PeerEarly,
        ];
        self.foreign += foreign.map(|r| perf.dropped.of(r)).iter().sum::<u64>();
        for r in core.reports() {
            self.seen_states.insert(r.state.join("+"));
        }
        for o in out {
            match o {
                Output::Submit { token, txn, claim } => {
                    if self.roomless.contains(&id) && claim != Claim::All {
                        refused.push(token);
                    } else {
                        hostile::assert_fits(&txn);
                        node.store.submit(token, txn);
                    }
                }
                Output::Place { token, data } => {
                    let room = !self.roomless.contains(&id);
                    let placed = room.then(|| PlacedData::new(data));
                    self.placed += usize::from(room);
                    node.answers.push_back((token, StoreReply::Placed(placed)));
                }
                Output::Lookup { token, key } => {
                    let r = node.store.lookup(&key);
                    node.answers.push_back((token, r));
                }
                Output::Read {
                    token, key, wants, ..
                } => {
                    self.reads += 1;
                    let r = node.store.read(&key, &wants);
                    node.answers.push_back((token, r));
                }
                Output::List { token, from, to, max } => {
                    let r = node.store.list(&from, &to, max);
                    node.answers.push_back((token, r));
                }
                Output::ListRecords { token, from, to, max } => {
                    let r = node.store.list_records(&from, &to, max);
                    node.answers.push_back((token, r));
                }
                Output::Send { osd, msg, .. } => {
                    if msg.header.kind == MsgType::PEERING {
                        self.peering_bytes += msg.front.len() + msg.data.len();
                    }
                    hostile::assert_passes(&msg);
                    let links = match LinkKind::of(msg.kind()) {
                        LinkKind::Ordered => &mut self.links,
                        LinkKind::Ahead => &mut self.ahead_links,
                    };
                    links.entry((id, osd)).or_default().push_back(msg);
                }
                Output::Reply { reply, .. } => self.replies.push_back(*reply),
                Output::WatchNotify { client, msg } => self.events.push_back((client.conn, *msg)),
                Output::HangUp { client } => self.hung_up.push(client.conn),
                Output::Alarm { usec } => drop(self.alarms.insert(usec)),
                Output::Alive { epoch } => self.alive.push_back((id, epoch)),
                Output::PgTemp { pgid, acting } => self.temp.push_back((id, pgid, acting)),
                Output::ClusterLog { line, .. } => self.cluster_log.push(line),
                Output::ShareMap { .. } => self.maps_shared += 1,
            }
        }
        // Before anything that was submitted later is durable.
        for token in refused {
            self.refuse(id, token);
        }
    }

    /// Refuses a transaction, as the store has no room for it.
    fn refuse(&mut self, id: OsdId, token: Token) {
        self.with(id, |core, cx| core.handle_store(token, StoreReply::NoRoom, cx));
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if !self.alive.is_empty() {
            steps.push(Step::Alive);
        }
        if !self.temp.is_empty() {
            steps.push(Step::Temp);
        }
        for (links, is_ahead) in [(&self.links, false), (&self.ahead_links, true)] {
            for ((a, b), q) in links {
                let apart = self.isolated.contains(a) || self.isolated.contains(b);
                if !q.is_empty() && self.nodes[b].core.is_some() && !apart {
                    steps.push(match is_ahead {
                        true => Step::DeliverAhead(*a, *b),
                        false => Step::Deliver(*a, *b),
                    });
                }
            }
        }
        for (id, n) in &self.nodes {
            if n.core.is_none() {
                continue;
            }
            if !n.answers.is_empty() {
                steps.push(Step::Answer(*id));
            }
            if n.store.has_unflushed() {
                steps.push(Step::Flush(*id));
            }
            if !n.maps.is_empty() && !self.isolated.contains(id) {
                steps.push(Step::Map(*id));
            }
        }
        steps
    }

    /// Lets time pass, and rings the cores' alarms.
    fn advance(&mut self, usec: Micros) {
        self.usec += usec;
        let later = self.alarms.split_off(&(self.usec + Micros::new(1)));
        if std::mem::replace(&mut self.alarms, later).is_empty() {
            return;
        }
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.with(id, Core::handle_alarm);
        }
    }

    fn deliver(&mut self, from: OsdId, to: OsdId, msg: &RawMessage) {
        self.written_in.insert((from, to), msg.header.compat_version);
        let versions = &mut self.nodes.get_mut(&to).unwrap().versions;
        let msg = versions.read(from, msg).unwrap();
        self.with(to, |core, cx| core.handle_peer(from, msg, cx));
    }

    fn step(&mut self, step: Step) {
        self.advance(Micros::new(100));
        match step {
            Step::Deliver(a, b) => {
                let msg = self.links.get_mut(&(a, b)).and_then(VecDeque::pop_front).unwrap();
                self.deliver(a, b, &msg);
            }
            Step::DeliverAhead(a, b) => {
                let links = &mut self.ahead_links;
                let msg = links.get_mut(&(a, b)).and_then(VecDeque::pop_front).unwrap();
                self.deliver(a, b, &msg);
            }
            Step::Alive => {
                let (id, want) = self.alive.pop_front().unwrap();
                let map = self.map();
                if map.is_up(id) && want > map.up_thru(id) {
                    self.change_map(|m| m.mark_alive(id, want));
                }
            }
            Step::Temp => {
                let (id, pgid, acting) = self.temp.pop_front().unwrap();
                let map = self.map();
                let old = map.temp.get(&pgid).cloned().unwrap_or_default();
                if map.is_up(id) && acting.iter().all(|o| map.is_up(*o)) && acting != old {
                    self.change_map(|m| match acting.is_empty() {
                        true => drop(m.temp.remove(&pgid)),
                        false => drop(m.temp.insert(pgid, acting)),
                    });
                }
            }
            Step::Answer(id) => {
                let (token, reply) = self.nodes.get_mut(&id).unwrap().answers.pop_front().unwrap();
                self.with(id, |core, cx| core.handle_store(token, reply, cx));
            }
            Step::Flush(id) => {
                for token in self.nodes.get_mut(&id).unwrap().store.flush() {
                    self.with(id, |core, cx| core.handle_store(token, StoreReply::Committed, cx));
                }
            }
            Step::Map(id) => {
                let epoch = self.nodes.get_mut(&id).unwrap().maps.pop_front().unwrap();
                let map = self.maps[&epoch].clone();
                let node = self.nodes.get_mut(&id).unwrap();
                let gap = epoch > node.epoch.next();
                // Up as it runs now: not in the maps of its earlier life.
                let up = map.is_up(id)
                    && self.maps[self.maps.keys().next_back().unwrap()].up_from(id) == map.up_from(id);
                if up {
                    node.kept_since.get_or_insert(map.up_from(id));
                }
                self.with(id, |core, cx| core.handle_map(map, gap, up, cx));
                // The map is stored with the transactions before it; it counts when they do.
                let node = self.nodes.get_mut(&id).unwrap();
                for token in node.store.flush() {
                    self.with(id, |core, cx| core.handle_store(token, StoreReply::Committed, cx));
                }
                self.nodes.get_mut(&id).unwrap().epoch = epoch;
            }
        }
    }

    /// Random steps, at most `n`.
    fn run_some(&mut self, n: usize) {
        for _ in 0..n {
            let steps = self.steps();
            if steps.is_empty() {
                return;
            }
            let at = self.random(steps.len());
            let slow = matches!(steps[at], Step::Flush(_) | Step::Alive | Step::Temp);
            if self.is_slow && slow && self.random(8) != 0 {
                continue;
            }
            self.step(steps[at]);
        }
    }

    /// Runs until nothing can happen, with time passing now and then.
    fn settle(&mut self) {
        for _ in 0..4 {
            self.run_some(200_000);
            self.advance(Micros::from_secs(12));
            for id in self.nodes.keys().copied().collect::<Vec<_>>() {
                self.with(id, Core::handle_tick);
            }
            self.run_some(200_000);
        }
        assert!(
            self.steps().is_empty(),
            "does not come to rest: {:?}",
            self.steps()
        );
    }

    /// Lets a second pass.
    fn pass_moment(&mut self) {
        self.advance(Micros::from_secs(1));
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.with(id, Core::handle_tick);
        }
    }

    /// Lets time pass second by second.
    fn pass(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.pass_moment();
            self.run_some(200_000);
        }
    }

    fn object(&self, name: &str) -> HObject {
        let n = ObjectName::from(name);
        let hash = map::hash_name(name.as_bytes());
        HObject::new(
            POOL.signed(),
            ObjectName::EMPTY,
            ObjectName::EMPTY,
            n,
            snap::NOSNAP,
            hash,
        )
    }

    fn pgid_of(&self, o: &HObject) -> PgId {
        let pg_num = self.map().pool(POOL).unwrap().pg_num;
        (0..pg_num)
            .map(|s| PgId::new(POOL, s))
            .find(|p| p.contains_hash(pg_num, o.hash))
            .unwrap()
    }

    fn build(&mut self, name: &str, ops: Vec<OsdOpIn>) -> ClientOp {
        self.tid += 1;
        let object = self.object(name);
        ClientOp {
            client: Arc::clone(&self.client),
            tid: self.tid,
            reqid: ReqId {
                name: self.client.name,
                tid: self.tid,
                inc: 0,
            },
            pgid: self.pgid_of(&object),
            object,
            epoch: self.map().epoch,
            flags: OsdFlags::ONDISK,
            mtime: UTime::from_secs(77),
            ops: ops.into_iter().map(OsdOp::from).collect(),
            snapid: snap::NOSNAP,
            snapc: SnapContext::default(),
            retry_attempt: 0,
            trace: Default::default(),
            stamps: Default::default(),
            taken: Default::default(),
        }
    }

    /// The map says whether the pool is full.
    fn set_full(&mut self, full: bool) {
        self.change_map(|m| m.pools.get_mut(&POOL).unwrap().full = full);
        self.run_some(100_000);
    }

    /// Sends an op to the primary in the newest map; `None` if there is none.
    fn submit(&mut self, op: ClientOp) -> Option<u64> {
        let primary = self.map().placement(op.pgid).primary?;
        let tid = op.tid;
        if self.nodes[&primary].core.is_none() || self.isolated.contains(&primary) {
            return None;
        }
        let pgid = op.pgid;
        self.with(primary, |core, cx| core.handle_op(pgid, op, cx));
        Some(tid)
    }

    fn reply_to(&mut self, tid: u64) -> Option<MOsdOpReply> {
        let at = self.replies.iter().position(|r| r.tid == tid)?;
        self.replies.remove(at)
    }

    /// Executes an op and waits for its reply.
    fn call(&mut self, name: &str, ops: Vec<OsdOpIn>) -> MOsdOpReply {
        let op = self.build(name, ops);
        self.call_op(op)
    }

    fn call_op(&mut self, op: ClientOp) -> MOsdOpReply {
        let tid = self.submit(op).expect("no primary");
        self.run_some(100_000);
        let reply = self.reply_to(tid);
        reply.unwrap_or_else(|| panic!("no reply: {:?}", self.states()))
    }

    fn write_full(&mut self, name: &str, data: &str) -> MOsdOpReply {
        self.call(name, vec![write_full(data)])
    }

    fn read(&mut self, name: &str) -> Result<Bytes, i32> {
        let r = self.call(name, vec![extent(OpCode::READ, 0, 0, "")]);
        if r.result < 0 {
            Err(r.result)
        } else {
            Ok(r.ops[0].data.to_bytes())
        }
    }

    /// States of all PGs, as their primaries say.
    /// The requests that wait or are under way, on all nodes.
    fn records(&self) -> Vec<OpRecord> {
        let cores = self.nodes.values().filter_map(|n| n.core.as_ref());
        cores.flat_map(Core::op_records).collect()
    }

    fn states(&self) -> Vec<String> {
        let cores = self.nodes.values().filter_map(|n| n.core.as_ref());
        let mut all: Vec<String> = cores
            .flat_map(|c| {
                c.reports()
                    .map(|r| format!("{} {}", r.pgid, r.state.join("+")))
                    .collect::<Vec<_>>()
            })
            .collect();
        all.sort();
        all
    }

    /// The work of every OSD on the PGs that are not clean, for the report on a failed test.
    fn traces(&self) -> String {
        let is_clean = |pgid: &str| self.states().contains(&format!("{pgid} active+clean"));
        let nodes = self
            .nodes
            .iter()
            .filter_map(|(id, n)| n.core.as_ref().map(|c| (id, c)));
        nodes
            .flat_map(|(id, c)| c.pgs().map(move |pg| (id, pg)))
            .filter(|(_, pg)| !is_clean(&pg.pgid().to_string()))
            .map(|(id, pg)| format!("osd.{id}: {}\n{}", pg.seen().trace(), pg.seen().recollection()))
            .collect()
    }

    /// Runs until nothing can happen, twice as some things take that long; then all PGs must be
    /// clean.
    fn settle_clean(&mut self, seed: u64) {
        self.settle();
        self.settle();
        assert!(
            self.all_clean(),
            "seed {seed}: {:?}\n{}",
            self.states(),
            self.traces()
        );
    }

    fn all_clean(&self) -> bool {
        let pg_num = self.map().pool(POOL).map_or(0, |p| p.pg_num) as usize;
        let states = self.states();
        states.len() == pg_num && states.iter().all(|s| s.ends_with("active+clean"))
    }
}

fn extent(code: OpCode, offset: u64, length: u64, data: &str) -> OsdOpIn {
    let e = spirula_proto::osd::ExtentArgs {
        offset,
        length,
        ..Default::default()
    };
    OsdOpIn::new(code, OpArgs::Extent(e), Bytes::copy_from_slice(data.as_bytes()))
}

/// How many seeds to run: `SPIRULA_SEEDS`, or as many as a normal test has time for. `SPIRULA_SEED`
/// runs one alone.
fn seeds(normal: u64) -> std::ops::RangeInclusive<u64> {
    let var = |name| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    match (var("SPIRULA_SEED"), var("SPIRULA_SEEDS")) {
        (Some(seed), _) => seed..=seed,
        (None, n) => 1..=n.unwrap_or(normal),
    }
}

fn write_at(offset: u64, data: &str) -> OsdOpIn {
    extent(OpCode::WRITE, offset, data.len() as u64, data)
}

fn write_full(data: &str) -> OsdOpIn {
    extent(OpCode::WRITEFULL, 0, data.len() as u64, data)
}

fn plain(code: OpCode) -> OsdOpIn {
    OsdOpIn::new(code, OpArgs::None, Bytes::new())
}
