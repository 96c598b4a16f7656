//! Monitors: the real core, over a log that stands in for Raft.
//!
//! The log is one list of committed transactions. Raft's guarantees hold by construction: one
//! leader a term, chosen by a majority; nothing commits without a majority; a new leader has every
//! committed entry; an old leader's last proposals may have been committed or not. The core meets
//! all that it has to cope with: leaders that do not know yet that they no longer lead, followers
//! that are behind, messages that are forwarded and lost on the way, and terms that change under a
//! proposal.

mod log;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use spirula_cephx::{AuthName, CryptoKey, EntityAuth, KeyServer, KeyType, Keyring, ServerHandshake};
use spirula_denc::{EntityAddr, EntityAddrVec, EntityType, UTime};
use spirula_maps::OsdMap;
use spirula_mon::core::{Identity, Monitor, NewSession, Output, SessionId};
use spirula_mon::kv::{KvError, KvRead, MemKv, Txn};
use spirula_mon::{MkfsConfig, MonConfig, first_state};
use spirula_proto::internal::quorum::ForwardedClient;
use spirula_proto::mon::{MMonCommand, MMonCommandAck};
use spirula_proto::{MsgType, Payload, RawMessage};

use crate::clock::{Clock, SECOND};
use crate::net::{Kind, Node};
use crate::osd::OsdNode;
use crate::world::{Event, FSID, World};

/// How often monitors look at each other.
const LOOK: u64 = SECOND / 5;
/// Ticks of the core.
const TICK: u64 = SECOND / 2;
/// How soon a proposal or question without a majority is tried again.
const AGAIN: u64 = SECOND / 10;
/// The session of the operator, who is connected to every monitor.
const OPERATOR: SessionId = 1;

/// Events of monitors.
#[derive(Debug)]
pub(crate) enum MonEvent {
    /// The monitors look at each other.
    Look,
    /// A tick of the core's clock, in this life of the process.
    Tick(usize, u64),
    /// A majority may have accepted this proposal.
    Commit(u64),
    /// A majority may have confirmed that this monitor leads in this term.
    Confirm(usize, u64),
    /// A follower may have received the newest entries.
    Apply(usize),
    /// The leader gets a message of a client of this monitor.
    Forward(usize, u64, SessionId, Box<(ForwardedClient, RawMessage)>),
    /// A monitor gets the leader's answer for one of its clients.
    Routed(usize, u64, SessionId, Box<RawMessage>),
    /// A monitor is to end a client's session.
    CloseRouted(usize, u64, SessionId),
    /// A client of this monitor is gone.
    Gone(usize, u64, SessionId),
    /// This monitor asks for global ids.
    Ids(usize, Nonce),
    /// The process of this monitor starts again.
    Start(usize),
}

/// A number from real randomness, which two runs of a seed do not share and digests leave out.
#[derive(Clone, Copy)]
pub(crate) struct Nonce(u64);

impl std::fmt::Debug for Nonce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nonce")
    }
}

/// A store that the core reads and the log writes.
#[derive(Default)]
struct Kv(RefCell<MemKv>);

impl KvRead for Kv {
    fn get(&self, s: &str, k: &str) -> Result<Option<Bytes>, KvError> {
        self.0.borrow().get(s, k)
    }

    fn next(&self, s: &str, from: &str) -> Result<Option<(String, Bytes)>, KvError> {
        self.0.borrow().next(s, from)
    }

    fn scan(&self, s: &str) -> Result<Vec<(String, Bytes)>, KvError> {
        self.0.borrow().scan(s)
    }
}

/// The way to a session's client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Conn(u64),
    /// Through another monitor in this life of its process, which knows the client under this
    /// number.
    Through(usize, u64, SessionId),
    Operator,
}

/// The role that a monitor believes to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Leader(u64),
    Peon(usize, u64),
    Adrift,
}

struct MonNode {
    core: Option<Monitor>,
    kv: Rc<Kv>,
    life: u64,
    told: Told,
    /// The number of log entries that it has applied.
    applied: usize,
    ways: BTreeMap<SessionId, Way>,
    /// Sessions for clients of other monitors.
    forwarded: BTreeMap<(usize, u64, SessionId), SessionId>,
    next_session: SessionId,
    /// Since when its belief has been wrong.
    wrong_since: Option<u64>,
}

/// All monitors and their log.
pub(crate) struct Mons {
    nodes: Vec<MonNode>,
    log: Vec<Arc<Txn>>,
    term: u64,
    leader: Option<usize>,
    /// Since when there has been no leader with a majority.
    vacant_since: Option<u64>,
    /// How long that takes to cause an election.
    patience: u64,
    proposals: BTreeMap<u64, (usize, u64, Txn)>,
    last_proposal: u64,
    /// Answers to the operator.
    acks: Vec<MMonCommandAck>,
    last_tid: u64,
}

fn name(m: usize) -> String {
    char::from(b'a' + u8::try_from(m).unwrap_or(25)).to_string()
}

fn socket(m: usize) -> SocketAddr {
    let host = u8::try_from(m + 1).unwrap_or(u8::MAX);
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), 3300)
}

pub(crate) fn addr(m: usize) -> EntityAddr {
    EntityAddr::v2(socket(m), 0)
}

fn identity(m: usize) -> Identity {
    Identity {
        fsid: FSID,
        name: name(m),
        hostname: format!("monhost{m}"),
        addrs: addr(m).into(),
        mgr_addrs: EntityAddrVec::default(),
        metadata: BTreeMap::new(),
    }
}

/// The first state, as `mkfs` writes it.
fn first(count: usize, now: UTime) -> Result<Txn, String> {
    let config = MonConfig {
        data: PathBuf::new(),
        name: name(0),
        fsid: FSID,
        bind: socket(0),
        admin_socket: None,
        options: BTreeMap::new(),
    };
    let mut keyring = Keyring::default();
    let key = EntityAuth {
        key: CryptoKey::default(),
        caps: BTreeMap::new(),
    };
    keyring.entries.insert(AuthName::monitors(), key);
    let plan = MkfsConfig {
        monitors: (0..count).map(|m| (name(m), addr(m).into())).collect(),
        keyring,
        key_type: KeyType::Aes,
    };
    first_state(&config, &plan, now).map_err(|e| e.to_string())
}

impl Mons {
    pub(crate) fn new(count: usize, clock: &Clock) -> Result<Self, String> {
        let node = |_| MonNode {
            core: None,
            kv: Rc::default(),
            life: 0,
            told: Told::Adrift,
            applied: 0,
            ways: BTreeMap::new(),
            forwarded: BTreeMap::new(),
            next_session: OPERATOR,
            wrong_since: None,
        };
        Ok(Self {
            nodes: (0..count).map(node).collect(),
            log: vec![Arc::new(first(count, clock.now())?)],
            term: 1,
            leader: (count == 1).then_some(0),
            vacant_since: None,
            patience: 0,
            proposals: BTreeMap::new(),
            last_proposal: 0,
            acks: Vec::new(),
            last_tid: 0,
        })
    }

    pub(crate) fn life(&self, m: usize) -> u64 {
        self.nodes.get(m).map_or(0, |n| n.life)
    }

    pub(crate) fn count(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn at(&self, addr: SocketAddr) -> Option<usize> {
        (0..self.nodes.len()).find(|m| socket(*m) == addr)
    }

    /// The leader's OSD map, or that of another monitor.
    pub(crate) fn map(&self) -> Option<&OsdMap> {
        let of = |m: usize| self.nodes.get(m)?.core.as_ref().map(|c| c.osdmap());
        self.leader
            .and_then(of)
            .or_else(|| (0..self.nodes.len()).find_map(of))
    }

    /// The recorded transitions of the running monitors.
    pub(crate) fn traces(&self) -> String {
        self.nodes
            .iter()
            .filter_map(|n| n.core.as_ref())
            .map(Monitor::trace)
            .collect()
    }

    /// Whether every monitor runs and knows of the same leader.
    pub(crate) fn are_whole(&self) -> bool {
        let Some(leader) = self.leader else { return false };
        let knows = |(m, n): (usize, &MonNode)| {
            let told = if m == leader {
                Told::Leader(self.term)
            } else {
                Told::Peon(leader, self.term)
            };
            n.core.is_some() && n.told == told
        };
        self.nodes.iter().enumerate().all(knows)
    }

    fn runs(&self, m: usize) -> bool {
        self.nodes.get(m).is_some_and(|n| n.core.is_some())
    }
}

impl World {
    pub(crate) fn start_mons(&mut self) {
        // In some runs one is there only later.
        let late = self.mons.count() > 2 && self.rng.one_in(3);
        let now = self.mons.count() - usize::from(late);
        for m in 0..now {
            self.start_mon(m);
        }
        if late {
            let after = self.rng.between(SECOND, 60 * SECOND);
            self.after(after, Event::Mon(MonEvent::Start(now)));
        }
        self.after(LOOK, Event::Mon(MonEvent::Look));
    }

    pub(crate) fn start_mon(&mut self, m: usize) {
        let (alone, now, term) = (self.mons.count() == 1, self.clock.now(), self.mons.term);
        let Some(n) = self.mons.nodes.get_mut(m).filter(|n| n.core.is_none()) else {
            return;
        };
        n.life += 1;
        n.ways.clear();
        n.forwarded.clear();
        n.told = if alone { Told::Leader(term) } else { Told::Adrift };
        n.wrong_since = None;
        if n.applied == 0 {
            if let Some(first) = self.mons.log.first() {
                n.kv.0.borrow_mut().apply(first);
            }
            n.applied = 1;
        }
        let options = BTreeMap::from([("osd_heartbeat_grace".to_owned(), self.setup.grace.to_string())]);
        let life = n.life;
        let kv: Rc<dyn KvRead> = n.kv.clone();
        match Monitor::load(identity(m), kv, options, term, alone, now) {
            Ok(core) => n.core = Some(core),
            Err(e) => return self.fail(format!("mon.{} does not start: {e}", name(m))),
        }
        let new = session(AuthName::new(EntityType::CLIENT, "admin"), 1, "allow *", addr(m));
        n.next_session = OPERATOR + 1;
        n.ways.insert(OPERATOR, Way::Operator);
        self.with_mon(m, |c| c.open(OPERATOR, new, now));
        self.after(TICK, Event::Mon(MonEvent::Tick(m, life)));
    }

    /// Ends a monitor's process; applied entries stay.
    pub(crate) fn kill_mon(&mut self, m: usize) {
        if let Some(n) = self.mons.nodes.get_mut(m)
            && n.core.take().is_some()
        {
            n.life += 1;
            n.told = Told::Adrift;
            self.drop_conns(Node::Mon(m));
        }
    }

    fn with_mon<T>(&mut self, m: usize, f: impl FnOnce(&mut Monitor) -> T) -> Option<T> {
        let result = f(self.mons.nodes.get_mut(m)?.core.as_mut()?);
        self.after_mon(m);
        Some(result)
    }

    /// Carries out a core's commands.
    fn after_mon(&mut self, m: usize) {
        loop {
            let Some(core) = self.mons.nodes.get_mut(m).and_then(|n| n.core.as_mut()) else {
                return;
            };
            if let Some(e) = core.take_failure() {
                return self.fail(format!("mon.{}: {e}", name(m)));
            }
            let outputs = core.take_outputs();
            if outputs.is_empty() {
                break;
            }
            for output in outputs {
                self.carry_out(m, output);
            }
        }
        self.drain(Node::Mon(m));
    }

    fn carry_out(&mut self, m: usize, output: Output) {
        let delay = self.latency() + self.rng.between(200, 4_000) * self.mon_slowness;
        match output {
            Output::Send(id, msg) => match self.way(m, id) {
                Some(Way::Conn(conn)) => {
                    if let Some(c) = self.net.conns.get(&conn) {
                        c.senders[1].send(msg);
                    }
                }
                Some(Way::Through(peon, life, id)) => {
                    let routed = MonEvent::Routed(peon, life, id, Box::new(msg));
                    self.between_mons(m, peon, routed);
                }
                Some(Way::Operator) if msg.kind() == MsgType::MON_COMMAND_ACK => {
                    self.mons.acks.extend(msg.decode().ok());
                }
                _ => {}
            },
            Output::Close(id) => match self.way(m, id) {
                Some(Way::Conn(conn)) => {
                    if let Some(c) = self.net.conns.get(&conn) {
                        c.senders[1].close();
                    }
                }
                Some(Way::Through(peon, life, id)) => {
                    self.between_mons(m, peon, MonEvent::CloseRouted(peon, life, id));
                }
                _ => {}
            },
            Output::Propose(txn) => {
                let term = self.believed_term(m);
                self.mons.last_proposal += 1;
                let id = self.mons.last_proposal;
                self.mons.proposals.insert(id, (m, term, txn));
                self.after(delay, Event::Mon(MonEvent::Commit(id)));
            }
            Output::Confirm => {
                let term = self.believed_term(m);
                self.after(delay, Event::Mon(MonEvent::Confirm(m, term)));
            }
            Output::Forward(id, msg) => {
                let core = self.mons.nodes.get(m).and_then(|n| n.core.as_ref());
                let Some(client) = core.and_then(|c| c.client(id)) else {
                    return;
                };
                if let Told::Peon(leader, _) = self.told(m) {
                    let life = self.mons.life(m);
                    let forward = MonEvent::Forward(m, life, id, Box::new((client, msg)));
                    self.between_mons(m, leader, forward);
                }
            }
            Output::AskIds(nonce) => {
                if let Told::Peon(leader, _) = self.told(m) {
                    self.between_mons(m, leader, MonEvent::Ids(m, Nonce(nonce)));
                }
            }
            // Clocks are the same here, and there is no manager.
            Output::AskTimes(..) | Output::StartModule(_) | Output::AskModule(_) | Output::StopModule => {}
        }
    }

    /// Sends an event from one monitor to another, if the path is open.
    fn between_mons(&mut self, from: usize, to: usize, event: MonEvent) {
        if self.net.passes(Node::Mon(from), Node::Mon(to)) {
            // In order.
            let after = if self.net.slow { 3_000 } else { 400 };
            self.after(after, Event::Mon(event));
        }
    }

    fn way(&self, m: usize, id: SessionId) -> Option<Way> {
        self.mons.nodes.get(m)?.ways.get(&id).copied()
    }

    fn told(&self, m: usize) -> Told {
        self.mons.nodes.get(m).map_or(Told::Adrift, |n| n.told)
    }

    fn believed_term(&self, m: usize) -> u64 {
        match self.told(m) {
            Told::Leader(term) | Told::Peon(_, term) => term,
            Told::Adrift => 0,
        }
    }

    /// The monitors that `m` reaches and that reach it, itself among them.
    fn reached(&self, m: usize) -> Vec<usize> {
        let with =
            |o: &usize| self.mons.runs(*o) && (*o == m || self.net.joined(Node::Mon(m), Node::Mon(*o)));
        (0..self.mons.count()).filter(with).collect()
    }

    fn has_majority(&self, m: usize) -> bool {
        self.mons.runs(m) && self.reached(m).len() * 2 > self.mons.count()
    }

    pub(crate) fn on_mon(&mut self, event: MonEvent) {
        let now = self.clock.now();
        match event {
            MonEvent::Look => {
                self.look();
                self.after(LOOK, Event::Mon(MonEvent::Look));
            }
            MonEvent::Tick(m, life) if life == self.mons.life(m) && self.mons.runs(m) => {
                self.with_mon(m, |c| c.tick(now));
                self.after(TICK, Event::Mon(MonEvent::Tick(m, life)));
            }
            MonEvent::Tick(..) => {}
            MonEvent::Commit(id) => self.try_commit(id),
            MonEvent::Confirm(m, term) => {
                if self.mons.leader == Some(m) && term == self.mons.term && self.has_majority(m) {
                    self.with_mon(m, |c| c.confirmed(term, now));
                } else if self.told(m) == Told::Leader(term) {
                    self.after(AGAIN, Event::Mon(MonEvent::Confirm(m, term)));
                }
            }
            MonEvent::Apply(m) => {
                if let Some(leader) = self.mons.leader
                    && self.net.joined(Node::Mon(leader), Node::Mon(m))
                {
                    self.apply_log(m);
                }
            }
            MonEvent::Forward(from, life, id, message) => self.forwarded(from, life, id, *message),
            MonEvent::Routed(m, life, id, msg) => {
                if life == self.mons.life(m) {
                    self.with_mon(m, |c| c.routed(id, *msg, now));
                }
            }
            MonEvent::CloseRouted(m, life, id) => {
                if life == self.mons.life(m)
                    && let Some(Way::Conn(conn)) = self.way(m, id)
                {
                    if let Some(c) = self.net.conns.get(&conn) {
                        c.senders[1].close();
                    }
                    self.drain(Node::Mon(m));
                }
            }
            MonEvent::Gone(from, life, id) => {
                for m in 0..self.mons.count() {
                    let Some(n) = self.mons.nodes.get_mut(m) else {
                        continue;
                    };
                    if let Some(session) = n.forwarded.remove(&(from, life, id)) {
                        n.ways.remove(&session);
                        self.with_mon(m, |c| c.close(session, now));
                    }
                }
            }
            MonEvent::Ids(m, Nonce(nonce)) => {
                if let Some(leader) = self.mons.leader {
                    self.with_mon(leader, |c| c.ids_wanted(&name(m), nonce));
                }
            }
            MonEvent::Start(m) => self.start_mon(m),
        }
    }

    /// Hands the leader a message of another monitor's client.
    fn forwarded(
        &mut self,
        from: usize,
        life: u64,
        id: SessionId,
        (client, msg): (ForwardedClient, RawMessage),
    ) {
        let now = self.clock.now();
        let Told::Peon(leader, _) = self.told(from) else {
            return;
        };
        if !matches!(self.told(leader), Told::Leader(_)) {
            return;
        }
        let Some(n) = self.mons.nodes.get_mut(leader) else {
            return;
        };
        let known = n.forwarded.get(&(from, life, id)).copied();
        let session = match known.filter(|s| n.ways.contains_key(s)) {
            Some(session) => session,
            None => {
                let Ok(entity) = client.name.parse::<AuthName>() else {
                    return self.fail(format!("forwarded for {}", client.name));
                };
                let session = n.next_session;
                n.next_session += 1;
                n.ways.insert(session, Way::Through(from, life, id));
                n.forwarded.insert((from, life, id), session);
                let new = NewSession {
                    name: entity,
                    global_id: client.global_id,
                    caps: client.caps.clone(),
                    addr: client.addr,
                    ip: client.ip.parse().ok(),
                    features: client.features,
                    handshake: ServerHandshake::new(),
                };
                self.with_mon(leader, |c| c.open_forwarded(session, new, &client.host, now));
                session
            }
        };
        self.with_mon(leader, |c| c.message(session, msg, now));
    }

    /// Accepts a connection to a monitor; returns the session's number. The error says
    /// whether the connection was refused.
    pub(crate) fn mon_accept(&mut self, m: usize, conn: u64, from: Node) -> Result<u64, bool> {
        let now = self.clock.now();
        let (name, caps, addr) = match from {
            Node::Osd(o) => {
                let addr = self.osds.get(&o).map(|n| n.addrs.public).unwrap_or_default();
                (
                    AuthName::new(EntityType::OSD, o.to_string()),
                    "allow profile osd",
                    addr,
                )
            }
            Node::Client(c) => {
                let addr = self.client_identity(c).1;
                (AuthName::new(EntityType::CLIENT, "user"), "allow *", addr)
            }
            Node::Mon(_) => return Err(false),
        };
        let Some(n) = self.mons.nodes.get_mut(m) else {
            return Err(true);
        };
        let Some(core) = n.core.as_ref() else {
            return Err(true);
        };
        if !core.serves() {
            return Err(false);
        }
        let Some(gid) = core.auth().new_global_id() else {
            return Err(false);
        };
        let session = n.next_session;
        n.next_session += 1;
        n.ways.insert(session, Way::Conn(conn));
        self.with_mon(m, |c| c.open(session, self::session(name, gid, caps, addr), now));
        Ok(session)
    }

    /// The global id that a monitor gave the client behind a connection.
    pub(crate) fn mon_global_id(&self, conn: u64, session: SessionId) -> u64 {
        let Some(Node::Mon(m)) = self.net.conns.get(&conn).map(|c| c.ends[1]) else {
            return 0;
        };
        let core = self.mons.nodes.get(m).and_then(|n| n.core.as_ref());
        core.and_then(|c| c.client(session)).map_or(0, |c| c.global_id)
    }

    pub(crate) fn mon_message(&mut self, m: usize, session: SessionId, msg: RawMessage) {
        let now = self.clock.now();
        if self.way(m, session).is_some() {
            self.with_mon(m, |c| c.message(session, msg, now));
        }
    }

    /// Ends the session of a client whose connection to a monitor is over.
    pub(crate) fn mon_left(&mut self, m: usize, session: SessionId) {
        let now = self.clock.now();
        let Some(n) = self.mons.nodes.get_mut(m) else {
            return;
        };
        if n.ways.remove(&session).is_none() {
            return;
        }
        let life = n.life;
        self.with_mon(m, |c| c.close(session, now));
        if let Told::Peon(leader, _) = self.told(m) {
            self.between_mons(m, leader, MonEvent::Gone(m, life, session));
        }
    }

    /// The operator sends the leader a command, if there is a leader.
    pub(crate) fn command(&mut self, json: &str) {
        let Some(leader) = self
            .mons
            .leader
            .filter(|l| matches!(self.told(*l), Told::Leader(_)))
        else {
            return;
        };
        self.mons.last_tid += 1;
        let m = MMonCommand {
            fsid: FSID,
            cmd: vec![json.to_owned()],
            ..MMonCommand::default()
        };
        let (msg, now) = (m.to_message().with_tid(self.mons.last_tid), self.clock.now());
        self.with_mon(leader, |c| c.message(OPERATOR, msg, now));
    }

    /// Takes the answers to the operator since the last call.
    pub(crate) fn take_acks(&mut self) -> Vec<MMonCommandAck> {
        std::mem::take(&mut self.mons.acks)
    }

    /// Makes a daemon or client look for a monitor, after a moment.
    pub(crate) fn hunt_later(&mut self, node: Node) {
        let life = match node {
            Node::Osd(o) => self.osds.get(&o).map_or(0, |n| n.life),
            Node::Client(c) => self.clients.get(c).map_or(0, |n| n.life),
            Node::Mon(_) => return,
        };
        let after = self.rng.between(20_000, SECOND);
        self.after(after, Event::Hunt(node, life));
    }

    pub(crate) fn on_hunt(&mut self, node: Node, life: u64) {
        let current = match node {
            Node::Osd(o) => {
                let runs = |n: &&OsdNode| n.osd.is_some() || n.refill.is_some();
                self.osds.get(&o).filter(runs).map(|n| n.life)
            }
            Node::Client(c) => self.clients.get(c).map(|n| n.life),
            Node::Mon(_) => None,
        };
        if current == Some(life) {
            let m = usize::try_from(self.rng.below(self.mons.count() as u64)).unwrap_or(0);
            self.dial(node, Kind::Monitor, addr(m), Rc::default());
        }
    }

    /// Makes a client leave a silent monitor, as its session does.
    pub(crate) fn on_listen(&mut self, node: Node, conn: u64) {
        if !self.net.conns.contains_key(&conn) {
            return;
        }
        if self.is_silent(conn, 10 * SECOND) {
            return self.leave(conn);
        }
        self.after(3 * SECOND, Event::Listen(node, conn));
    }
}

fn session(name: AuthName, global_id: u64, caps: &str, addr: EntityAddr) -> NewSession {
    NewSession {
        name,
        global_id,
        caps: caps.to_owned(),
        addr,
        ip: addr.socket.map(|s| s.ip()),
        features: spirula_maps::features::PACIFIC_ALL,
        handshake: ServerHandshake::new(),
    }
}
