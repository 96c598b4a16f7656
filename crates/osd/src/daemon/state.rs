//! The daemon's state, and how commands of the core are carried out.
//!
//! It knows no socket, timer or task: whoever owns it tells it what happens, makes the connections that it wants and takes what it
//! sends. That is the [`super::shell`], or a simulation.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use spirula_buf::Pool;
use spirula_conf::options::Values;
use spirula_denc::EntityAddr;
use spirula_invariant::Recorder;
use spirula_maps::{HObject, ObjectName, snap};
use spirula_monc::MonClient;
use spirula_msgr::recent::Transition as SessionTransition;
use spirula_msgr::{QueueAccount, Sender};
use spirula_proto::internal::report::{OsdAlive, OsdReport, PgTempWanted};
use spirula_proto::osd::{MOsdOp, MOsdOpReply};
use spirula_proto::{Payload, RawMessage};
use spirula_store::{Store, StoreError};
use tokio::sync::Notify;

use super::OsdError;
use super::alarms::Alarms;
use super::beat_links::BeatLinks;
use super::config::OsdConfig;
use super::host::Host;
use super::links::Links;
use super::load;
use super::maps::Maps;
use super::options::pg_config;
use super::perf::Perf;
use super::report::Reports;
use super::slow::SlowLog;
use super::space::Injected;
use super::store_io::StoreIo;
use super::unread::HungUp;
use crate::core::Core;
use crate::heartbeat::Heartbeats;
use crate::pg::account::{Party, Totals};
use crate::pg::config::PgConfig;
use crate::pg::image_io::ImageIo;
use crate::pg::message::PeerMessage;
use crate::pg::op::{COPIES, Client, ClientOp, OsdOp, Stamps, copied_bytes};
use crate::pg::txn::Txn;
use crate::pg::{Claim, Ctx, Output, StoreReply, Token};

/// Microseconds after which the monitors are asked again to record this OSD as up.
const ALIVE_AGAIN: u64 = 1_000_000;

/// Microseconds after which the monitors are asked again for a map of which a client spoke.
const MAP_AGAIN: u64 = 1_000_000;

/// Ticks between attempts to come up.
const BOOT_TICKS: u32 = 5;

/// A client's connection.
pub(super) struct Session {
    pub(super) sender: Sender,
    pub(super) client: Arc<Client>,
    /// The newest map it is known to have.
    pub(super) epoch: Cell<u32>,
}

/// Everything on the reactor.
pub struct Osd {
    pub(super) cfg: OsdConfig,
    /// Settings of the PGs that no option changes.
    pub(super) pg: PgConfig,
    pub(super) core: Core,
    pub(super) io: StoreIo,
    /// From one PG to another.
    to_self: VecDeque<RawMessage>,
    pub(super) maps: Maps,
    pub(super) sessions: BTreeMap<u64, Session>,
    /// Connections that other OSDs opened, for answers to them.
    pub(super) incoming: BTreeMap<i32, (u64, Sender)>,
    pub(super) links: Links,
    pub(super) heartbeats: Heartbeats,
    pub(super) beat_links: BeatLinks,
    /// When it was last looked at who shares PGs with this OSD.
    pub(super) heartbeats_sampled: u64,
    /// The epoch in which this process first came up; 0 for not yet.
    pub(super) boot_epoch: u32,
    pub(super) reports: Reports,
    pub(super) perf: Perf,
    pub(super) image_io: ImageIo,
    pub(super) hung_up: HungUp,
    pub(super) mon: MonClient,
    pub(super) addrs: Addrs,
    /// OSDs, this one among them, on which nothing may grow.
    pub(super) full: BTreeSet<i32>,
    /// Share of the space above which nothing may grow, whatever the monitors say.
    pub(super) failsafe_ratio: f64,
    pub(super) alarms: Alarms,
    /// The newest epoch in which the monitors were asked to record this OSD as up, and when.
    alive: (u32, u64),
    /// The newest epoch that a client spoke of and that is not here, and when it was asked for.
    wanted_map: (u32, u64),
    /// What the entities take whose clients are connected.
    parties: BTreeMap<String, Weak<Party>>,
    /// A new map has come.
    pub(super) map_news: Rc<Notify>,
    /// What the endpoints remember of their sessions.
    pub(super) sessions_recent: Vec<Recorder<SessionTransition>>,
    /// The options in force.
    pub(super) values: Values,
    pub(super) slow_log: SlowLog,
    /// A fullness that is only pretended.
    pub(super) injected_full: Option<Injected>,
    pub(super) host: Rc<dyn Host>,
    out: Vec<Output>,
    last_conn: u64,
    failed: Option<OsdError>,
    /// The daemon has said goodbye.
    pub(super) stopping: bool,
    /// It ends by itself, as it was told to or does only harm.
    pub(super) leaving: bool,
}

/// What an [`Osd`] is made of.
pub struct Parts {
    /// Its settings.
    pub cfg: OsdConfig,
    /// Those of its PGs that no option changes.
    pub pg: PgConfig,
    /// Its store.
    pub store: Store,
    /// Where data is read into.
    pub reads: Pool,
    /// The session with the monitors.
    pub mon: MonClient,
    /// Where it listens.
    pub addrs: Addrs,
    /// The machine it runs on.
    pub host: Rc<dyn Host>,
}

/// Where the daemon listens.
#[derive(Debug, Clone, Copy)]
pub struct Addrs {
    /// For clients.
    pub public: EntityAddr,
    /// For other OSDs.
    pub cluster: EntityAddr,
    /// For heartbeats on the network of the OSDs.
    pub heartbeat_back: EntityAddr,
    /// For heartbeats on that of the clients.
    pub heartbeat_front: EntityAddr,
}

impl Osd {
    /// The daemon's state as it starts: not up, and without connections.
    ///
    /// # Errors
    /// A store that is another OSD's, or whose records can't be read.
    pub fn new(p: Parts) -> Result<Self, OsdError> {
        let sb = p.store.superblock();
        if sb.fsid != p.cfg.fsid.0 || i64::from(sb.whoami) != i64::from(p.cfg.id) {
            return Err(OsdError::Config("the store belongs to another OSD or cluster"));
        }
        let mut store = p.store;
        let maps = Maps::load(&mut store, p.cfg.fsid)?;
        let mut io = StoreIo::new(store, p.reads);
        io.reads.totals = Arc::new(Totals::new(p.cfg.held_bytes()));
        io.writes.most_large = p.cfg.held_bytes() / 2;
        let values = Values::from_file(p.cfg.options.clone());
        let core = load::core(
            p.cfg.id,
            Arc::new(pg_config(&values, p.pg.clone())),
            &maps,
            &mut io,
        )?;
        let heartbeats = Heartbeats::new(p.cfg.id, super::heartbeat::settings(&values));
        Ok(Self {
            failsafe_ratio: values.float("osd_failsafe_full_ratio"),
            values,
            slow_log: SlowLog::default(),
            injected_full: None,
            alarms: Alarms::default(),
            alive: (0, 0),
            wanted_map: (0, 0),
            parties: BTreeMap::new(),
            map_news: Rc::new(Notify::new()),
            sessions_recent: Vec::new(),
            cfg: p.cfg,
            pg: p.pg,
            core,
            io,
            to_self: VecDeque::new(),
            maps,
            sessions: BTreeMap::new(),
            incoming: BTreeMap::new(),
            links: Links::default(),
            heartbeats,
            beat_links: BeatLinks::default(),
            heartbeats_sampled: 0,
            boot_epoch: 0,
            reports: Reports::default(),
            perf: Perf::default(),
            image_io: ImageIo::default(),
            hung_up: HungUp::default(),
            mon: p.mon,
            addrs: p.addrs,
            full: BTreeSet::new(),
            host: p.host,
            out: Vec::new(),
            last_conn: 0,
            failed: None,
            stopping: false,
            leaving: false,
        })
    }

    /// Whether the daemon can't go on.
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// What made the daemon stop by itself.
    pub fn take_failure(&mut self) -> Option<OsdError> {
        self.failed.take()
    }

    /// Whether the daemon wants to end in order.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// The PGs.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// The newest map.
    pub fn map(&self) -> &spirula_maps::OsdMap {
        self.maps.map()
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.io.store
    }

    /// Lets the store work; to be called after each batch of events, and while it has something under way.
    pub fn work(&mut self) {
        // First, so that others hear of a store that is full before they hear that what filled it is durable.
        self.check_room();
        self.poll_store();
        if self.io.heap.is_due(self.io.store.checkpoints()) {
            (self.cfg.give_back)();
        }
    }

    /// A second has passed, the `n`-th.
    pub fn tick(&mut self, n: u32) {
        self.drive(Core::handle_tick);
        self.give_back_space();
        self.report(true);
        self.expire_history();
        self.image_io.lapse(self.host.usec());
        self.log_slow_ops();
        if self.io.heap.tick(self.io.calls()) {
            (self.cfg.give_back)();
        }
        if n.is_multiple_of(BOOT_TICKS) {
            self.boot_if_down();
        }
    }

    /// Microseconds of a monotonic clock.
    pub fn usec(&self) -> u64 {
        self.host.usec()
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

    /// What all connections under an entity's key take together.
    pub(super) fn party(&mut self, entity: &str, unread: &QueueAccount, arrivals: &Pool) -> Arc<Party> {
        if let Some(party) = self.parties.get(entity).and_then(Weak::upgrade) {
            return party;
        }
        self.parties.retain(|_, p| p.strong_count() > 0);
        let party = Arc::new(Party::new(
            unread.clone(),
            arrivals.clone(),
            Arc::clone(&self.io.reads.totals),
        ));
        self.parties.insert(entity.to_owned(), Arc::downgrade(&party));
        party
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
            now: self.host.now(),
            usec,
            full: &self.full,
            out: &mut out,
            perf: &mut self.perf.core,
            images: &mut self.image_io,
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
            Output::Submit { token, txn, claim } => {
                let now = self.usec();
                self.io.submit(token, txn, claim, now)?;
            }
            Output::Lookup { token, key } => self.io.lookup(token, key)?,
            Output::Read {
                token,
                key,
                wants,
                reader,
            } => self.io.read(token, key, wants, reader)?,
            Output::List { token, from, to, max } => self.io.listing().list(token, from, to, max)?,
            Output::ListRecords { token, from, to, max } => {
                self.io.listing().list_records(token, &from, to, max)?
            }
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
            Output::HangUp { client } => {
                if let Some(s) = self.sessions.get(&client.conn) {
                    s.sender.close();
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
            Output::ClusterLog { priority, line } => self.cluster_log(priority, line),
            Output::ShareMap { client, epoch } => self.share_map(client.conn, epoch),
        }
        Ok(())
    }

    /// Submits records of the daemon's own to the store.
    pub(super) fn submit(&mut self, token: Token, txn: Txn) -> Result<(), StoreError> {
        let now = self.usec();
        self.io.submit(token, txn, Claim::All, now)
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
            let ready = match self.io.poll(self.host.usec()) {
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
    ///
    /// # Errors
    /// Where it does not decode.
    pub fn client_op(&mut self, conn: u64, msg: &RawMessage) -> spirula_proto::Result<()> {
        let m: MOsdOp = msg.decode()?;
        let Some(s) = self.sessions.get(&conn) else {
            return Ok(());
        };
        let client = Arc::clone(&s.client);
        s.epoch.set(s.epoch.get().max(m.epoch));
        let decoded = size_of::<ClientOp>() + msg.front.len() + m.ops.len() * size_of::<OsdOp>();
        let mut hold = client.held.take(decoded, msg.data.len());
        hold.set_copies(copied_bytes(&m.ops) * COPIES);
        if m.epoch > self.maps.epoch() {
            self.want_map(m.epoch);
        }
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
            spent: 0,
            hold: Some(hold),
            room: Default::default(),
            client,
        };
        if op.epoch < self.maps.epoch() {
            self.share_map(conn, op.epoch);
        }
        self.drive(|core, cx| core.handle_op(pgid, op, cx));
        Ok(())
    }

    /// A client says that there is a newer map: it may have come to the client first. Asked for once, however many say so.
    fn want_map(&mut self, epoch: u32) {
        let now = self.usec();
        if epoch > self.wanted_map.0 || now >= self.wanted_map.1 + MAP_AGAIN {
            self.wanted_map = (epoch.max(self.wanted_map.0), now);
            self.want_newest_map();
        }
    }

    /// A client's connection ended.
    pub fn client_closed(&mut self, conn: u64) {
        if let Some(s) = self.sessions.remove(&conn) {
            s.client.closed.store(true, Ordering::Relaxed);
            self.io.client_closed(&s.client);
            self.drive(|core, cx| core.handle_client_closed(conn, cx));
        }
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
