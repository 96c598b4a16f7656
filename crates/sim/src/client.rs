//! Clients: the real objecter, with workers that each send one request after the other and record
//! the answers.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use bytes::Bytes;
use spirula_cephx::AuthName;
use spirula_client::objecter::{Action, Aim, Core, Outcome, Resend, request};
use spirula_denc::{EntityAddr, EntityName, EntityType, Reader, encode_to_vec};
use spirula_errno::{EAGAIN, EIO, ENOENT, Errno};
use spirula_maps::{Epoch, ObjectLocator, ObjectName, OsdId, PoolFlags, PoolId, SpgId};
use spirula_monc::MonClient;
use spirula_msgr::Sender;
use spirula_proto::osd::{ExtentArgs, MOsdOp, MOsdOpReply, OpArgs, OpCode, OsdFlags, OsdOpIn};
use spirula_proto::osd_op_data::{OmapKeys, OmapVals};
use spirula_proto::{MsgType, Payload, RawMessage};
use tokio::sync::oneshot;

use crate::clock::SECOND;
use crate::history::{Answer, Contents, HEAD, Op, decode, encode, whole_blocks};
use crate::linear::MOST;
use crate::net::{Kind, Label, Node};
use crate::osd::mon_client;
use crate::world::{Event, World};

/// The pool that all objects are in: a cluster's first.
pub(crate) const POOL: PoolId = PoolId::new(1);
/// The omap key of an object's pair.
const KEY: &str = "pair";
/// The pause of a client after it could not connect.
const RETRY: u64 = SECOND / 10;
/// The error of a comparison that differs at the first byte is this, and so on.
const MAX_ERRNO: i32 = 4095;
/// Requests to an object that are left over for the last reads.
const SPARE: usize = 8;

/// The first tid of a read from a member that is not primary, far beyond the objecter's.
const FIRST_READ: u64 = 1 << 40;

/// The way of a request.
enum Way {
    /// To the OSD that the objecter chooses.
    Objecter(oneshot::Receiver<Outcome>),
    /// To a member that is not primary, under this tid.
    Member { osd: OsdId, tid: u64 },
}

/// A request under way.
struct Asked {
    object: usize,
    call: usize,
    op: Op,
    way: Way,
}

/// A session with an OSD.
struct OsdSession {
    number: u64,
    cut: Rc<Cell<bool>>,
    addr: EntityAddr,
    sender: Option<Sender>,
}

/// A client.
pub(crate) struct ClientNode {
    core: Core,
    mon: MonClient,
    /// Counts processes.
    pub(crate) life: u64,
    name: EntityName,
    addr: EntityAddr,
    sessions: BTreeMap<OsdId, OsdSession>,
    workers: Vec<Option<Asked>>,
    /// Reads that were sent to members other than the primary.
    reads: u64,
}

fn identity(index: usize, life: u64) -> (EntityName, EntityAddr) {
    let number = i64::try_from(index).unwrap_or(0) * 1000 + 10_000 + i64::try_from(life).unwrap_or(0);
    let host = u8::try_from(index + 1).unwrap_or(u8::MAX);
    let socket = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 2, host)), 0);
    let nonce = u32::try_from(number).unwrap_or(0);
    (
        EntityName::new(EntityType::CLIENT, number),
        EntityAddr::v2(socket, nonce),
    )
}

fn node(index: usize, life: u64, workers: usize) -> ClientNode {
    let (name, addr) = identity(index, life);
    ClientNode {
        core: Core::default(),
        mon: mon_client(AuthName::new(EntityType::CLIENT, "user"), addr),
        life,
        name,
        addr,
        sessions: BTreeMap::new(),
        workers: (0..workers).map(|_| None).collect(),
        reads: FIRST_READ,
    }
}

fn extent(code: OpCode, data: Bytes) -> OsdOpIn {
    let args = ExtentArgs {
        length: data.len() as u64,
        ..ExtentArgs::default()
    };
    OsdOpIn::new(code, OpArgs::Extent(args), data)
}

fn truncate(to: usize) -> OsdOpIn {
    let args = ExtentArgs {
        offset: to as u64,
        ..ExtentArgs::default()
    };
    OsdOpIn::new(OpCode::TRUNCATE, OpArgs::Extent(args), Bytes::new())
}

fn plain(code: OpCode, data: Vec<u8>) -> OsdOpIn {
    OsdOpIn::new(code, OpArgs::None, data)
}

impl World {
    pub(crate) fn add_client(&mut self) {
        let index = self.clients.len();
        let new = node(index, 1, self.setup.workers);
        self.clients.push(new);
        self.start_client(index);
    }

    /// Replaces a client's process; requests of the old one are never answered.
    pub(crate) fn replace_client(&mut self, index: usize) {
        let Some(old) = self.clients.get_mut(index) else {
            return;
        };
        let new = node(index, old.life + 1, old.workers.len());
        *old = new;
        self.drop_conns(Node::Client(index));
        self.start_client(index);
    }

    fn start_client(&mut self, index: usize) {
        let Some(c) = self.clients.get(index) else { return };
        let (life, workers) = (c.life, c.workers.len());
        c.mon.subscribe("osdmap", 0);
        self.after(1, Event::Hunt(Node::Client(index), life));
        if self.weather.begun {
            self.start_workers(index, life, workers);
        }
    }

    fn start_workers(&mut self, index: usize, life: u64, workers: usize) {
        for worker in 0..workers {
            let after = self.rng.below(SECOND / 2);
            self.after(after, Event::Work(index, life, worker));
        }
    }

    /// Whether all clients know of the pool.
    pub(crate) fn know_the_pool(&self) -> bool {
        let knows = |c: &ClientNode| c.core.map().is_some_and(|m| m.pool(POOL).is_some());
        self.clients.iter().all(knows)
    }

    /// All clients begin to work.
    pub(crate) fn begin_work(&mut self) {
        for index in 0..self.clients.len() {
            let (life, workers) = (self.clients[index].life, self.clients[index].workers.len());
            self.start_workers(index, life, workers);
        }
    }

    /// While there is too little room, makes idle workers delete existing objects.
    pub(crate) fn make_room(&mut self) {
        if self.is_full() || self.has_state("_toofull") {
            for index in 0..self.clients.len() {
                let free = self.clients[index].workers.iter().position(Option::is_none);
                let object = usize::try_from(self.rng.below(self.setup.objects as u64)).unwrap_or(0);
                if let Some(worker) = free.filter(|_| self.is_served(object)) {
                    self.ask(index, worker, object, Op::Delete);
                }
            }
        }
    }

    /// Whether the object's PG serves, as its primary reports.
    fn is_served(&self, object: usize) -> bool {
        let name = ObjectName::from(format!("o{object}").as_str());
        let map = self.mons.map();
        let pg = map.and_then(|m| m.raw_pg_to_pg(m.object_to_raw_pg(&name, &ObjectLocator::pool(POOL))?));
        let running = self.osds.values().filter_map(|n| n.osd.as_ref());
        let mut reports = running.flat_map(|o| o.core().reports());
        reports.any(|r| Some(r.pgid) == pg && r.state.contains(&"active"))
    }

    /// Whether a PG reports a state that ends with `end`.
    pub(crate) fn has_state(&self, end: &str) -> bool {
        let running = self.osds.values().filter_map(|n| n.osd.as_ref());
        let mut reports = running.flat_map(|o| o.core().reports());
        reports.any(|r| r.state.iter().any(|s| s.ends_with(end)))
    }

    /// Whether the monitors say that the pool is full.
    pub(crate) fn is_full(&self) -> bool {
        let pool = self.mons.map().and_then(|m| m.pool(POOL));
        pool.is_some_and(|p| p.flags.contains(PoolFlags::FULL))
    }

    /// The name and address under which an OSD knows a client.
    pub(crate) fn client_identity(&self, index: usize) -> (EntityName, EntityAddr) {
        self.clients
            .get(index)
            .map(|c| (c.name, c.addr))
            .unwrap_or_default()
    }

    /// Whether no request is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.clients.iter().all(|c| c.workers.iter().all(Option::is_none))
    }

    /// What requests wait for, for the report on a failed run.
    pub(crate) fn waiting(&self) -> String {
        let mut out = String::new();
        for (i, c) in self.clients.iter().enumerate() {
            let epoch = c.core.map().map_or(Epoch::NONE, |m| m.epoch);
            for asked in c.workers.iter().flatten() {
                out += &format!(
                    "client {i} with map {epoch}: {:?} of o{}\n",
                    asked.op, asked.object
                );
            }
        }
        out
    }

    pub(crate) fn on_work(&mut self, index: usize, life: u64, worker: usize) {
        let free = |c: &ClientNode| c.life == life && c.workers.get(worker).is_some_and(Option::is_none);
        if !self.weather.working || !self.clients.get(index).is_some_and(free) {
            return;
        }
        let reads = index < self.setup.readers;
        // Mostly an object of its own, so that a client that is cut off with one OSD still has an
        // object there.
        let object = match self.rng.below(3) {
            1.. if !reads && self.setup.workers >= self.setup.objects => worker % self.setup.objects,
            _ => usize::try_from(self.rng.below(self.setup.objects as u64)).unwrap_or(0),
        };
        if self.history.calls(object).len() + SPARE < MOST {
            // The first one makes room, and waits for nothing else.
            let makes_room = worker == 0 && self.setup.fat;
            if makes_room && !(self.is_full() && self.is_served(object)) {
                return self.after(SECOND / 4, Event::Work(index, life, worker));
            }
            let op = match self.rng.below(10) {
                _ if makes_room => Op::Delete,
                _ if reads => Op::Read,
                _ if self.setup.fat && self.rng.one_in(2) => Op::Append(self.history.value()),
                0..=2 => Op::Write(self.history.value()),
                3 => Op::Append(self.history.value()),
                4 => Op::SetPair(self.history.value()),
                5 if self.rng.one_in(3) => Op::Delete,
                6 | 7 if self.setup.code.is_some() || self.setup.faults.scrubs > 0 => self.edit(object),
                _ => Op::Read,
            };
            self.ask(index, worker, object, op);
        } else {
            self.after(SECOND, Event::Work(index, life, worker));
        }
    }

    /// A change of part of an object's data, which members of a coded pool add to their fragments, and
    /// after which the digest of the data is unknown.
    fn edit(&mut self, object: usize) -> Op {
        match self.history.first(object) {
            Some(first) if self.rng.one_in(3) => Op::Cut(first),
            Some(old) => Op::Replace {
                old,
                new: self.history.value(),
            },
            None => Op::Write(self.history.value()),
        }
    }

    /// A worker sends a request.
    pub(crate) fn ask(&mut self, index: usize, worker: usize, object: usize, op: Op) {
        let process = index * 100 + worker;
        let call = self.history.begin(process, object, op);
        let msg = self.request(object, op);
        let Some(way) = self.send_somewhere(index, op, msg) else {
            return;
        };
        if let Some(place) = self
            .clients
            .get_mut(index)
            .and_then(|c| c.workers.get_mut(worker))
        {
            *place = Some(Asked {
                object,
                call,
                op,
                way,
            });
        }
        self.after_client(index);
    }

    fn send_somewhere(&mut self, index: usize, op: Op, msg: MOsdOp) -> Option<Way> {
        let may = self.weather.working && self.setup.balanced && self.setup.code.is_none();
        let any = may && op.is_read() && self.rng.one_in(2);
        match any.then(|| self.ask_member(index, &msg)).flatten() {
            Some(way) => Some(way),
            None => {
                let core = &mut self.clients.get_mut(index)?.core;
                Some(Way::Objecter(core.submit(msg, Aim::Object, Resend::Always)))
            }
        }
    }

    /// Sends a read to a member that is not primary, if the client has a session with it, as
    /// `librados` does for balanced reads.
    fn ask_member(&mut self, index: usize, msg: &MOsdOp) -> Option<Way> {
        let c = self.clients.get_mut(index)?;
        let map = c.core.map()?;
        let raw = map.object_to_raw_pg(&msg.oid, &msg.locator)?;
        let pg = map.raw_pg_to_pg(raw)?;
        let place = map.map_pg(pg);
        let others = place.acting.osds().filter(|o| Some(*o) != place.acting_primary);
        let others: Vec<OsdId> = others.collect();
        let osd = *self.rng.pick(&others)?;
        let sender = c.sessions.get(&osd)?.sender.as_ref()?;
        c.reads += 1;
        let read = MOsdOp {
            tid: c.reads,
            spg: SpgId::whole(pg),
            hash: raw.seed,
            epoch: map.epoch,
            flags: msg.flags.with(OsdFlags::BALANCE_READS),
            retry_attempt: 0,
            ..msg.clone()
        };
        sender.send(read.to_message());
        Some(Way::Member { osd, tid: c.reads })
    }

    /// Hands reads that a member will not answer to the objecter.
    fn ask_primary(&mut self, index: usize, which: impl Fn(OsdId, u64) -> bool) {
        let workers = self.clients.get(index).map_or(0, |c| c.workers.len());
        for worker in 0..workers {
            let asked = self.clients.get(index).and_then(|c| c.workers[worker].as_ref());
            let Some((object, op)) = asked.and_then(|a| match a.way {
                Way::Member { osd, tid } if which(osd, tid) => Some((a.object, a.op)),
                _ => None,
            }) else {
                continue;
            };
            let msg = self.request(object, op);
            let Some(c) = self.clients.get_mut(index) else {
                return;
            };
            let answer = c.core.submit(msg, Aim::Object, Resend::Always);
            if let Some(a) = &mut c.workers[worker] {
                a.way = Way::Objecter(answer);
            }
        }
    }

    /// Takes a member's answer to a read.
    fn member_answered(&mut self, index: usize, reply: MOsdOpReply) {
        if reply.result == -EAGAIN {
            return self.ask_primary(index, |_, tid| tid == reply.tid);
        }
        let Some(c) = self.clients.get_mut(index) else {
            return;
        };
        let waits = |a: &Option<Asked>| {
            a.as_ref()
                .is_some_and(|a| matches!(a.way, Way::Member { tid, .. } if tid == reply.tid))
        };
        if let Some(worker) = c.workers.iter().position(waits) {
            self.history.member_reads += 1;
            self.finish(index, worker, Ok(reply));
        }
    }

    fn request(&mut self, object: usize, op: Op) -> MOsdOp {
        let len = match self.rng.below(12) {
            0..=7 if self.setup.fat => self.rng.between(50_000, 250_000),
            0 => self.rng.between(60_000, 90_000),
            1 | 2 => self.rng.between(3_000, 20_000),
            // So that most objects have several units.
            3..=5 if self.setup.code.is_some() => self.rng.between(3_000, 20_000),
            _ => self.rng.below(200),
        };
        let len = usize::try_from(len).unwrap_or(0);
        let len = match op {
            Op::Replace { old, .. } | Op::Cut(old) => self.history.len_of(old),
            _ if len > 4000 => whole_blocks(len),
            _ => len,
        };
        if let Op::Write(v) | Op::Append(v) | Op::Replace { new: v, .. } = op {
            self.history.note_len(v, len);
        }
        let sums = self.setup.sums;
        let body = |v| encode(v, len, sums);
        let expects = |first| extent(OpCode::CMPEXT, body(first).slice(..HEAD));
        let name = ObjectName::from(format!("o{object}").as_str());
        let mut msg = request(ObjectLocator::pool(POOL), name);
        msg.mtime = self.clock.now();
        msg.flags = match op {
            Op::Read => OsdFlags::READ,
            // So it goes out where nothing may grow any more.
            Op::Delete => OsdFlags::WRITE.with(OsdFlags::ONDISK).with(OsdFlags::FULL_TRY),
            _ => OsdFlags::WRITE.with(OsdFlags::ONDISK),
        };
        msg.ops = match op {
            Op::Write(v) => vec![extent(OpCode::WRITEFULL, body(v))],
            Op::Append(v) => vec![extent(OpCode::APPEND, body(v))],
            Op::Replace { old, new } => vec![expects(old), extent(OpCode::WRITE, body(new))],
            Op::Cut(first) => vec![expects(first), truncate(HEAD + len)],
            Op::Delete => vec![plain(OpCode::DELETE, Vec::new())],
            Op::SetPair(v) => {
                let pairs = OmapVals::from([(KEY.into(), v.to_le_bytes().to_vec().into())]);
                vec![plain(OpCode::OMAPSETVALS, encode_to_vec(&pairs))]
            }
            Op::Read => {
                let keys = OmapKeys::from([KEY.into()]);
                let pair = plain(OpCode::OMAPGETVALSBYKEYS, encode_to_vec(&keys));
                vec![extent(OpCode::READ, Bytes::new()), pair]
            }
        };
        msg
    }

    /// Carries out the objecter's actions, and takes its answers.
    fn after_client(&mut self, index: usize) {
        while let Some(action) = self.clients.get_mut(index).and_then(|c| c.core.poll()) {
            match action {
                Action::Open(osd, addr, number) => self.open_session(index, osd, addr, number),
                Action::Close(osd) => self.close_session(index, osd),
                Action::Send(osd, msg) => {
                    let session = self.clients.get(index).and_then(|c| c.sessions.get(&osd));
                    if let Some(sender) = session.and_then(|s| s.sender.as_ref()) {
                        sender.send(msg);
                    }
                }
                Action::Subscribe(from) => self.monitor_of(index, |m| m.subscribe("osdmap", u64::from(from))),
                Action::FullMap => self.monitor_of(index, |m| m.subscribe_once("osdmap", 0)),
                Action::Received(epoch) => self.monitor_of(index, |m| m.received("osdmap", u64::from(epoch))),
            }
        }
        self.drain(Node::Client(index));
        self.take_answers(index);
    }

    fn monitor_of(&self, index: usize, f: impl FnOnce(&MonClient)) {
        if let Some(c) = self.clients.get(index) {
            f(&c.mon);
        }
    }

    fn open_session(&mut self, index: usize, osd: OsdId, addr: EntityAddr, number: u64) {
        self.close_session(index, osd);
        let cut = Rc::new(Cell::new(false));
        let session = OsdSession {
            number,
            cut: Rc::clone(&cut),
            addr,
            sender: None,
        };
        if let Some(c) = self.clients.get_mut(index) {
            c.sessions.insert(osd, session);
            self.dial(Node::Client(index), Kind::Client(osd, number), addr, cut);
        }
    }

    fn close_session(&mut self, index: usize, osd: OsdId) {
        let old = self.clients.get_mut(index).and_then(|c| c.sessions.remove(&osd));
        if let Some(s) = old {
            s.cut.set(true);
        }
    }

    fn take_answers(&mut self, index: usize) {
        let workers = self.clients.get(index).map_or(0, |c| c.workers.len());
        for worker in 0..workers {
            let Some(c) = self.clients.get_mut(index) else {
                return;
            };
            let answer = c.workers[worker].as_mut().and_then(|a| match &mut a.way {
                Way::Objecter(answer) => answer.try_recv().ok(),
                Way::Member { .. } => None,
            });
            if let Some(outcome) = answer {
                self.finish(index, worker, outcome);
            }
        }
    }

    /// Hands a worker its answer; it goes on after a pause.
    fn finish(&mut self, index: usize, worker: usize, outcome: Outcome) {
        let Some(c) = self.clients.get_mut(index) else {
            return;
        };
        let (life, asked) = (c.life, c.workers[worker].take());
        if let Some(asked) = asked {
            self.answered(&asked, outcome);
        }
        let after = match self.rng.below(4) {
            0 => self.rng.below(2_000),
            _ => self.rng.below(self.setup.pause),
        };
        self.after(after, Event::Work(index, life, worker));
    }

    fn answered(&mut self, asked: &Asked, outcome: Outcome) {
        let answer = match outcome {
            Ok(reply) => answer(asked.op, &reply),
            Err(errno) => Err(format!("ends with {errno}")),
        };
        match answer {
            Ok(Some(answer)) => {
                self.trace.note(|| (asked.object, asked.call, answer.clone()));
                self.history.end(asked.object, asked.call, answer);
            }
            // All that there is to read is damaged: no answer is a wrong one.
            Ok(None) if self.weather.rotten => self.history.forget_read(),
            Ok(None) => self.fail(format!("{:?} of o{} ends with EIO", asked.op, asked.object)),
            Err(e) => self.fail(format!("{:?} of o{}: {e}", asked.op, asked.object)),
        }
    }

    /// Reports an established connection to a client. Returns whether the client still wants it.
    pub(crate) fn client_dialled(&mut self, index: usize, conn: u64, kind: Kind, sender: Sender) -> bool {
        match kind {
            Kind::Monitor => {
                let number = self.net.conns.get(&conn).map_or(0, |c| c.number);
                let gid = self.mon_global_id(conn, number);
                self.monitor_of(index, |m| m.attach(sender, gid));
                self.after(3 * SECOND, Event::Listen(Node::Client(index), conn));
            }
            Kind::Client(osd, number) => {
                let session = self.clients.get_mut(index).and_then(|c| c.sessions.get_mut(&osd));
                let Some(session) = session.filter(|s| s.number == number) else {
                    return false;
                };
                session.sender = Some(sender);
                self.clients[index].core.handle_up(osd, number);
                self.after_client(index);
            }
            Kind::Data(_) | Kind::Beats(_) => return false,
        }
        true
    }

    pub(crate) fn client_dial_failed(&mut self, index: usize, kind: Kind) {
        match kind {
            Kind::Monitor => self.hunt_later(Node::Client(index)),
            Kind::Client(osd, number) => self.after(RETRY, Event::Redial(index, osd, number)),
            Kind::Data(_) | Kind::Beats(_) => {}
        }
    }

    pub(crate) fn on_redial(&mut self, index: usize, osd: OsdId, number: u64) {
        let session = self.clients.get(index).and_then(|c| c.sessions.get(&osd));
        if let Some(s) = session.filter(|s| s.number == number) {
            let (addr, cut) = (s.addr, Rc::clone(&s.cut));
            self.dial(Node::Client(index), Kind::Client(osd, number), addr, cut);
        }
    }

    /// Reports the end of a connection to a client.
    pub(crate) fn client_lost(&mut self, index: usize, label: &Label) {
        match label.kind {
            Kind::Monitor => {
                self.monitor_of(index, MonClient::detach);
                self.hunt_later(Node::Client(index));
            }
            Kind::Client(osd, number) => {
                let Some(c) = self.clients.get_mut(index) else {
                    return;
                };
                if let Some(s) = c.sessions.get_mut(&osd).filter(|s| s.number == number) {
                    s.sender = None;
                    c.core.handle_down(osd, number);
                    self.ask_primary(index, |o, _| o == osd);
                    self.after(RETRY, Event::Redial(index, osd, number));
                    self.after_client(index);
                }
            }
            Kind::Data(_) | Kind::Beats(_) => {}
        }
    }

    pub(crate) fn client_message(&mut self, index: usize, kind: Kind, msg: &RawMessage) {
        let Some(c) = self.clients.get_mut(index) else {
            return;
        };
        let handled = match (kind, msg.kind()) {
            (_, MsgType::OSD_MAP) => match msg.decode() {
                Ok(m) => {
                    c.core.handle_maps(&m);
                    // The members may have changed.
                    self.ask_primary(index, |_, _| true);
                    Ok(())
                }
                Err(e) => Err(e),
            },
            (Kind::Client(..), MsgType::OSD_OP_REPLY) => match msg.decode::<MOsdOpReply>() {
                Ok(m) if m.tid > FIRST_READ => {
                    self.member_answered(index, m);
                    Ok(())
                }
                decoded => decoded.map(|m| c.core.handle_reply(m)),
            },
            _ => Ok(()),
        };
        if let Err(e) = handled {
            self.fail(format!("client {index} does not understand {}: {e}", msg.kind()));
        }
        self.after_client(index);
    }
}

/// The answer in a reply; `None` if the object is damaged that was to be read or compared.
fn answer(op: Op, reply: &MOsdOpReply) -> Result<Option<Answer>, String> {
    match (op, Errno::of_result(reply.result)) {
        (Op::Read | Op::Delete, Some(ENOENT)) => Ok(Some(Answer::NoObject)),
        (Op::Read | Op::Replace { .. } | Op::Cut(_), Some(EIO)) => Ok(None),
        (Op::Replace { .. } | Op::Cut(_), Some(e)) if e.code() >= MAX_ERRNO => Ok(Some(Answer::Differs)),
        (Op::Read, None) => {
            let part = |i: usize| reply.ops.get(i).map(|o| o.data.to_bytes()).unwrap_or_default();
            let data = decode(&part(0)).ok_or("data that nobody wrote")?;
            let pairs: OmapVals = Reader::new(&part(1)).get().map_err(|e| e.to_string())?;
            let value = |b: &Bytes| Some(u32::from_le_bytes(b.as_ref().try_into().ok()?));
            let pair = match pairs.iter().next() {
                Some((_, v)) => Some(value(v).ok_or("a pair that nobody set")?),
                None => None,
            };
            Ok(Some(Answer::Found(Contents { data, pair })))
        }
        (_, None) => Ok(Some(Answer::Done)),
        (_, Some(e)) => Err(format!("ends with {e}")),
    }
}
