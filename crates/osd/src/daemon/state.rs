//! The daemon's state, and how commands of the core are carried out.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hashbrown::HashMap;
use spirula_conf::options::Values;
use spirula_denc::{EntityAddr, UTime};
use spirula_maps::{HObject, ObjectName, snap};
use spirula_monc::MonClient;
use spirula_msgr::Sender;
use spirula_proto::internal::report::{OsdAlive, OsdReport, PgTempWanted};
use spirula_proto::osd::{MOsdOp, MOsdOpReply};
use spirula_proto::{Payload, RawMessage};
use spirula_store::StoreError;
use tokio::sync::Notify;

use super::OsdError;
use super::alarms::Alarms;
use super::beat_links::BeatLinks;
use super::config::OsdConfig;
use super::links::Links;
use super::maps::Maps;
use super::perf::Perf;
use super::report::Reports;
use super::slow::SlowLog;
use super::space::Injected;
use super::store_io::StoreIo;
use crate::core::Core;
use crate::heartbeat::Heartbeats;
use crate::pg::message::PeerMessage;
use crate::pg::op::{Client, ClientOp, OsdOp, Stamps};
use crate::pg::{Ctx, Output, StoreReply, Token};

/// Microseconds after which the monitors are asked again to record this OSD as up.
const ALIVE_AGAIN: u64 = 1_000_000;

/// A client's connection.
pub(super) struct Session {
    pub(super) sender: Sender,
    pub(super) client: Arc<Client>,
    /// The newest map it is known to have.
    pub(super) epoch: Cell<u32>,
}

/// Everything on the reactor.
pub(super) struct Osd {
    pub(super) cfg: OsdConfig,
    pub(super) core: Core,
    pub(super) io: StoreIo,
    /// From one PG to another.
    to_self: VecDeque<RawMessage>,
    pub(super) maps: Maps,
    pub(super) sessions: HashMap<u64, Session>,
    /// Connections that other OSDs opened, for answers to them.
    pub(super) incoming: HashMap<i32, (u64, Sender)>,
    pub(super) links: Links,
    pub(super) heartbeats: Heartbeats,
    pub(super) beat_links: BeatLinks,
    /// When it was last looked at who shares PGs with this OSD.
    pub(super) heartbeats_sampled: u64,
    /// The epoch in which this process first came up; 0 for not yet.
    pub(super) boot_epoch: u32,
    pub(super) reports: Reports,
    pub(super) perf: Perf,
    pub(super) mon: MonClient,
    pub(super) addrs: Addrs,
    /// OSDs, this one among them, on which nothing may grow.
    pub(super) full: BTreeSet<i32>,
    /// Share of the space above which nothing may grow, whatever the monitors say.
    pub(super) failsafe_ratio: f64,
    pub(super) alarms: Alarms,
    /// The newest epoch in which the monitors were asked to record this OSD as up, and when.
    alive: (u32, u64),
    /// A new map has come.
    pub(super) map_news: Rc<Notify>,
    /// Bytes below which this OSD is full.
    pub(super) reserve: u64,
    /// The options in force.
    pub(super) values: Values,
    pub(super) slow_log: SlowLog,
    /// A fullness that is only pretended.
    pub(super) injected_full: Option<Injected>,
    started: Instant,
    out: Vec<Output>,
    last_conn: u64,
    failed: Option<OsdError>,
    /// The daemon has said goodbye.
    pub(super) stopping: bool,
    /// It ends by itself, as it was told to or does only harm.
    pub(super) leaving: bool,
}

/// What the daemon's tasks share.
pub(super) struct Shell {
    osd: RefCell<Osd>,
    /// The store has work.
    pub(super) wake: Notify,
    /// Reads wait for room.
    pub(super) deferred: Notify,
    /// The daemon is to stop.
    pub(super) stop: Notify,
}

/// A task's handle on the daemon.
pub(super) type Shared = Rc<Shell>;

/// The parts that an [`Osd`] is made of.
pub(super) struct Parts {
    pub(super) cfg: OsdConfig,
    pub(super) core: Core,
    pub(super) io: StoreIo,
    pub(super) maps: Maps,
    pub(super) links: Links,
    pub(super) beat_links: BeatLinks,
    pub(super) mon: MonClient,
    pub(super) addrs: Addrs,
}

/// Where the daemon listens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addrs {
    pub(super) public: EntityAddr,
    pub(super) cluster: EntityAddr,
    pub(super) heartbeat_back: EntityAddr,
    pub(super) heartbeat_front: EntityAddr,
}

impl Shell {
    pub(super) fn new(p: Parts) -> Shared {
        let values = Values::from_file(p.cfg.options.clone());
        let heartbeats = Heartbeats::new(p.cfg.id, super::heartbeat::settings(&values));
        let osd = Osd {
            failsafe_ratio: values.float("osd_failsafe_full_ratio"),
            values,
            slow_log: SlowLog::default(),
            injected_full: None,
            reserve: 0,
            alarms: Alarms::default(),
            alive: (0, 0),
            map_news: Rc::new(Notify::new()),
            cfg: p.cfg,
            core: p.core,
            io: p.io,
            to_self: VecDeque::new(),
            maps: p.maps,
            sessions: HashMap::new(),
            incoming: HashMap::new(),
            links: p.links,
            heartbeats,
            beat_links: p.beat_links,
            heartbeats_sampled: 0,
            boot_epoch: 0,
            reports: Reports::default(),
            perf: Perf::default(),
            mon: p.mon,
            addrs: p.addrs,
            full: BTreeSet::new(),
            started: Instant::now(),
            out: Vec::new(),
            last_conn: 0,
            failed: None,
            stopping: false,
            leaving: false,
        };
        Rc::new(Self {
            osd: RefCell::new(osd),
            wake: Notify::new(),
            deferred: Notify::new(),
            stop: Notify::new(),
        })
    }

    /// Runs `f` on the daemon's state, and has the store work afterwards. Not to be called from within itself.
    pub(super) fn with<R>(self: &Rc<Self>, f: impl FnOnce(&mut Osd) -> R) -> R {
        let (r, failed) = {
            let mut osd = self.osd.borrow_mut();
            let r = f(&mut osd);
            osd.links.start_wanted(self);
            osd.beat_links.start_wanted(self);
            if osd.leaving {
                self.stop.notify_one();
            }
            (r, osd.failed.is_some())
        };
        if failed {
            self.stop.notify_one()
        } else {
            self.wake.notify_one()
        }
        r
    }

    /// Lets the store work, without asking for more of it.
    pub(super) fn work(self: &Rc<Self>) {
        let failed = {
            let mut osd = self.osd.borrow_mut();
            // First, so that others hear of a store that is full before they hear that what filled it is durable.
            osd.check_room();
            osd.poll_store();
            osd.links.start_wanted(self);
            osd.beat_links.start_wanted(self);
            if osd.io.deferred_bytes().is_some() {
                self.deferred.notify_one();
            }
            osd.failed.is_some() || osd.leaving
        };
        if failed {
            self.stop.notify_one();
        }
    }

    /// What made the daemon stop by itself.
    pub(super) fn failure(&self) -> Option<OsdError> {
        self.osd.borrow_mut().failed.take()
    }
}

impl Osd {
    /// Microseconds of a monotonic clock.
    pub(super) fn usec(&self) -> u64 {
        // Never 0, which means "not yet".
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX) + 1
    }

    /// Ends the daemon in order.
    pub(super) fn stop_itself(&mut self) {
        self.leaving = true;
        // It must not ask to be up again meanwhile.
        self.stopping = true;
    }

    pub(super) fn fail(&mut self, e: OsdError) {
        tracing::error!("osd.{} stops: {e}", self.cfg.id);
        self.failed.get_or_insert(e);
    }

    /// Ends all connections.
    pub(super) fn hang_up(&mut self) {
        self.sessions.values().for_each(|s| s.sender.close());
        self.incoming.values().for_each(|(_, s)| s.close());
        self.links.hang_up();
        self.beat_links.hang_up();
    }

    pub(super) fn next_conn(&mut self) -> u64 {
        self.last_conn += 1;
        self.last_conn
    }

    /// Hands an event to the core and carries out what it commands.
    pub(super) fn drive(&mut self, f: impl FnOnce(&mut Core, &mut Ctx<'_>)) {
        self.run_core(f);
        loop {
            if let Some((token, reply)) = self.io.take_ready() {
                self.run_core(|core, cx| core.handle_store(token, reply, cx));
            } else if let Some(msg) = self.to_self.pop_front() {
                let id = self.cfg.id;
                match PeerMessage::from_raw(&msg) {
                    Ok(m) => self.run_core(|core, cx| core.handle_peer(id, m, cx)),
                    Err(error) => tracing::error!(%error, "a message to this OSD itself"),
                }
            } else {
                break;
            }
        }
    }

    fn run_core(&mut self, f: impl FnOnce(&mut Core, &mut Ctx<'_>)) {
        let mut out = std::mem::take(&mut self.out);
        let usec = self.usec();
        let mut cx = Ctx {
            now: UTime::now(),
            usec,
            full: &self.full,
            out: &mut out,
            perf: &mut self.perf.core,
            slow_after: self.perf.history.threshold(),
            described: None,
        };
        f(&mut self.core, &mut cx);
        for o in out.drain(..) {
            if let Err(e) = self.carry_out(o) {
                self.fail(e.into());
            }
        }
        self.out = out;
    }

    fn carry_out(&mut self, o: Output) -> Result<(), StoreError> {
        match o {
            Output::Submit { token, txn } => self.io.submit(token, txn)?,
            Output::Lookup { token, key } => self.io.lookup(token, key)?,
            Output::Read { token, key, wants } => self.io.read(token, key, wants)?,
            Output::List { token, from, to, max } => self.io.list(token, from, to, max)?,
            Output::ListRecords { token, from, to, max } => self.io.list_records(token, &from, to, max)?,
            Output::Send {
                osd,
                msg,
                reply: true,
            } => {
                if let Some((_, sender)) = self.incoming.get(&osd) {
                    sender.send(msg);
                }
            }
            Output::Send {
                osd,
                msg,
                reply: false,
            } if osd == self.cfg.id => self.to_self.push_back(msg),
            Output::Send {
                osd,
                msg,
                reply: false,
            } => self.links.send(osd, msg, &self.maps),
            Output::Reply {
                client,
                reply,
                data_off,
                stamps,
                record,
            } => {
                self.perf.op_done(&reply, &stamps, self.usec(), record);
                self.reply(&client, &reply, data_off);
            }
            Output::WatchNotify { client, msg } => {
                if let Some(s) = self.sessions.get(&client.conn) {
                    s.sender.send(msg.to_message());
                }
            }
            Output::Alarm { usec } => self.alarms.set(usec),
            Output::Alive { epoch } => self.ask_alive(epoch),
            Output::PgTemp { pgid, acting } => {
                let epoch = self.maps.epoch();
                let acting = [(pgid, acting)].into();
                self.mon
                    .send(OsdReport::PgTemp(PgTempWanted { epoch, acting }).to_message());
            }
            Output::ShareMap { client, epoch } => self.share_map(client.conn, epoch),
        }
        Ok(())
    }

    /// Asks the monitors to record that this OSD is up in `want`: once for all PGs, and again where that had no effect.
    fn ask_alive(&mut self, want: u32) {
        let now = self.usec();
        if want > self.alive.0 || now >= self.alive.1 + ALIVE_AGAIN {
            let epoch = self.maps.epoch();
            self.alive = (want.max(self.alive.0), now);
            let want = self.alive.0;
            self.mon
                .send(OsdReport::Alive(OsdAlive { epoch, want }).to_message());
        }
    }

    fn reply(&mut self, client: &Client, reply: &MOsdOpReply, data_off: u16) {
        if let Some(s) = self.sessions.get(&client.conn) {
            let mut msg = reply.to_message();
            msg.header.data_off = data_off;
            s.sender.send(msg);
        }
    }

    /// Sends a client the maps after `epoch`, once.
    pub(super) fn share_map(&self, conn: u64, epoch: u32) {
        let Some(s) = self.sessions.get(&conn) else { return };
        let known = s.epoch.get().max(epoch);
        if let Some(msg) = self.maps.since(known) {
            s.epoch.set(self.maps.epoch());
            s.sender.send(msg);
        }
    }

    /// Lets the store work, and hands its answers to the core, until it has none.
    pub(super) fn poll_store(&mut self) {
        loop {
            let ready = match self.io.poll() {
                Ok(ready) => ready,
                Err(e) => return self.fail(e.into()),
            };
            if ready.is_empty() {
                return;
            }
            for (token, reply) in ready {
                self.store_reply(token, reply);
            }
        }
    }

    fn store_reply(&mut self, token: Token, reply: StoreReply) {
        if token.slot() != crate::core::DAEMON_SLOT {
            self.drive(|core, cx| core.handle_store(token, reply, cx));
        }
    }

    /// A client's request.
    pub(super) fn client_op(&mut self, conn: u64, msg: &RawMessage) -> spirula_proto::Result<()> {
        let m: MOsdOp = msg.decode()?;
        let Some(s) = self.sessions.get(&conn) else {
            return Ok(());
        };
        let client = Arc::clone(&s.client);
        s.epoch.set(s.epoch.get().max(m.epoch));
        let received = self.usec();
        let pgid = m.spg.pgid;
        let op = ClientOp {
            reqid: m.reqid(client.name),
            tid: m.tid,
            pgid,
            object: compact_head(m.object()),
            epoch: m.epoch,
            flags: m.flags,
            mtime: m.mtime,
            snapid: m.snapid,
            retry_attempt: m.retry_attempt,
            ops: m.ops.into_iter().map(OsdOp::from).collect(),
            snapc: m.snapc,
            trace: m.trace,
            stamps: Stamps {
                received,
                ..Stamps::default()
            },
            client,
        };
        if op.epoch < self.maps.epoch() {
            self.share_map(conn, op.epoch);
        }
        self.drive(|core, cx| core.handle_op(pgid, op, cx));
        Ok(())
    }

    /// A client's connection ended.
    pub(super) fn client_closed(&mut self, conn: u64) {
        if let Some(s) = self.sessions.remove(&conn) {
            s.client.closed.store(true, Ordering::Relaxed);
            self.drive(|core, cx| core.handle_client_closed(conn, cx));
        }
    }

    /// A message of another OSD.
    pub(super) fn peer_message(&mut self, from: i32, msg: &RawMessage) -> spirula_proto::Result<()> {
        let m = PeerMessage::from_raw(msg)?;
        self.drive(|core, cx| core.handle_peer(from, m, cx));
        Ok(())
    }
}

/// The object's head, whatever snapshot is meant, with names of its own: those of a message keep all of it in memory, and contexts and log entries live
/// long.
fn compact_head(o: HObject) -> HObject {
    let own = |n: ObjectName| {
        if n.is_empty() {
            ObjectName::EMPTY
        } else {
            ObjectName::from(n.as_bytes())
        }
    };
    HObject {
        oid: own(o.oid),
        key: own(o.key),
        nspace: own(o.nspace),
        snap: snap::NOSNAP,
        ..o
    }
}
