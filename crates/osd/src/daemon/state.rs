//! The daemon's state, and how commands of the core are carried out.
//!
//! It knows no socket, timer or task: its owner hands it the events, makes the connections that it
//! wants and takes the messages that it sends. The owner is the [`super::shell`], or a simulation.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use spirula_buf::Pool;
use spirula_conf::options::Values;
use spirula_denc::Micros;
use spirula_invariant::{dropped, impossible};
use spirula_maps::{HObject, ObjectName, snap};
use spirula_monc::MonClient;
use spirula_proto::internal::report::PgTempWanted;
use spirula_proto::mon::LogPriority;
use spirula_proto::osd::MOsdOp;
use spirula_proto::{Payload, RawMessage};
use spirula_store::{Store, StoreError};

use super::OsdError;
use super::alarms::Alarms;
use super::clients::Clients;
use super::config::OsdConfig;
use super::dropped::Dropped;
use super::heartbeat::{Beating, Beats};
use super::host::Host;
use super::index_check::{Checking, IndexCheck};
use super::life::Life;
use super::load;
use super::maps::Maps;
use super::mend;
use super::mons::Mons;
use super::options::pg_config;
use super::peers::Peers;
use super::perf::Perf;
use super::report::{Reporting, Reports};
use super::setup::{Addrs, Setup};
use super::space::{Space, Spacing};
use super::standing::Standing;
use super::store_io::StoreIo;
use crate::core::{Core, DAEMON_SLOT};
use crate::pg::account::Totals;
use crate::pg::config::PgConfig;
use crate::pg::op::{COPIES, ClientOp, OsdOp, Stamps, Taken, copied_bytes};
use crate::pg::txn::Txn;
use crate::pg::{Claim, Ctx, Output, Token};

/// Ticks between attempts to come up.
const BOOT_TICKS: u32 = 5;

/// All state of the reactor. Each part is changed by its own methods, or by a handler that has
/// borrowed it.
pub struct Osd {
    /// This OSD's identity, and the options in force.
    pub(super) setup: Setup,
    /// The PGs.
    pub(super) core: Core,
    /// The store, and the calls under way there.
    pub(super) io: StoreIo,
    pub(super) maps: Maps,
    pub(super) clients: Clients,
    /// The other OSDs.
    pub(super) peers: Peers,
    /// Heartbeats.
    pub(super) beats: Beats,
    /// The monitors.
    pub(super) mons: Mons,
    /// The state of the reports to the monitors.
    pub(super) reports: Reports,
    pub(super) space: Space,
    pub(super) perf: Perf,
    pub(super) alarms: Alarms,
    pub(super) life: Life,
    /// The check of the store's index.
    pub(super) index: IndexCheck,
    /// Scratch for commands of the core; kept for its memory.
    out: Vec<Output>,
}

/// The parts that an [`Osd`] is made of.
pub struct Parts {
    /// Its settings.
    pub cfg: OsdConfig,
    /// The settings of its PGs that no option changes.
    pub pg: PgConfig,
    /// Its store.
    pub store: Store,
    /// The pool that data is read into.
    pub reads: Pool,
    /// The session with the monitors.
    pub mon: MonClient,
    /// The addresses that it listens on.
    pub addrs: Addrs,
    /// The machine it runs on.
    pub host: Rc<dyn Host>,
    /// Lines for the cluster log, about what was done before it started.
    pub news: Vec<String>,
}

impl Osd {
    /// The daemon's state as it starts: not up, and without connections.
    ///
    /// # Errors
    /// A store that is another OSD's, or whose records can't be read.
    pub fn new(p: Parts) -> Result<Self, OsdError> {
        let sb = p.store.superblock();
        if sb.fsid != p.cfg.fsid.0 || sb.whoami != u32::from(p.cfg.id) {
            return Err(OsdError::Config("the store belongs to another OSD or cluster"));
        }
        let mut io = StoreIo::new(p.store, p.reads);
        // Before anything else looks at what is there.
        let lost = mend::settle(&mut io)?;
        let maps = Maps::load(&mut io.store, p.cfg.fsid)?;
        let index = IndexCheck::load(&mut io.store)?;
        let mut mons = Mons::new(p.mon);
        for line in p.news.into_iter().chain(lost) {
            tracing::warn!("{line}");
            mons.log_later(LogPriority::WARN, format!("osd.{}: {line}", p.cfg.id));
        }
        io.reads.totals = Arc::new(Totals::new(p.cfg.held_bytes()));
        io.writes.most_large = p.cfg.held_bytes() / 2;
        let values = Values::from_file(p.cfg.options.clone());
        let core = load::core(
            p.cfg.id,
            Arc::new(pg_config(&values, p.pg.clone())),
            &maps,
            &mut io,
        )?;
        Ok(Self {
            core,
            io,
            maps,
            clients: Clients::default(),
            peers: Peers::default(),
            beats: Beats::new(p.cfg.id, &values),
            mons,
            reports: Reports::default(),
            space: Space::new(&values),
            perf: Perf::default(),
            alarms: Alarms::default(),
            life: Life::default(),
            index,
            out: Vec::new(),
            setup: Setup {
                cfg: p.cfg,
                pg: p.pg,
                addrs: p.addrs,
                values,
                host: p.host,
                endpoints: Vec::new(),
            },
        })
    }

    /// The handler of the space here.
    pub(super) fn spacing(&mut self) -> Spacing<'_> {
        Spacing {
            setup: &self.setup,
            maps: &self.maps,
            store: &mut self.io.store,
            writes: &mut self.io.writes,
            space: &mut self.space,
            reports: &mut self.reports,
            mons: &self.mons,
            peers: &self.peers,
            partners: self.beats.core.partners().len(),
        }
    }

    /// The handler of heartbeats.
    pub(super) fn beating(&mut self) -> Beating<'_> {
        Beating {
            setup: &self.setup,
            maps: &self.maps,
            pgs: &self.core,
            beats: &mut self.beats,
            mons: &self.mons,
            dropped: &mut self.perf.dropped,
            full: self.space.full.contains(&self.setup.id()),
        }
    }

    /// The handler of this OSD's standing in the cluster.
    pub(super) fn standing(&mut self) -> Standing<'_> {
        Standing {
            setup: &self.setup,
            maps: &self.maps,
            store: &self.io.store,
            heartbeats: &mut self.beats.core,
            mons: &mut self.mons,
            life: &mut self.life,
        }
    }

    /// The handler of the check of the index.
    pub(super) fn checking(&mut self) -> Checking<'_> {
        Checking {
            setup: &self.setup,
            maps: &self.maps,
            io: &mut self.io,
            check: &mut self.index,
            mons: &mut self.mons,
            life: &mut self.life,
        }
    }

    /// The handler of reports to the monitors.
    pub(super) fn reporting(&mut self) -> Reporting<'_> {
        Reporting {
            setup: &self.setup,
            maps: &self.maps,
            pgs: &self.core,
            store: &self.io.store,
            writes: &self.io.writes,
            heartbeats: &self.beats.core,
            perf: &mut self.perf,
            reports: &mut self.reports,
            mons: &mut self.mons,
        }
    }

    /// Whether the newest map says that this process is up.
    pub(super) fn is_up(&self) -> bool {
        self.maps.have_up(&self.setup)
    }

    /// Whether the daemon can't go on.
    pub fn has_failed(&self) -> bool {
        self.life.has_failed()
    }

    /// Whether the daemon can't go on because its store is damaged.
    pub(super) fn is_damaged(&self) -> bool {
        self.life.is_damaged()
    }

    /// Takes the error that made the daemon stop by itself.
    pub fn take_failure(&mut self) -> Option<OsdError> {
        self.life.take_failure()
    }

    /// Whether the daemon wants to end in order.
    pub fn is_leaving(&self) -> bool {
        self.life.is_leaving()
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

    /// Lets the store work; to be called after each batch of events, and while the store has
    /// something under way.
    pub fn work(&mut self) {
        // First, so that others hear that the store is full before they hear that the write that
        // filled it is durable.
        self.spacing().check_room();
        self.poll_store();
        if self.io.heap.is_due(self.io.store.checkpoints()) {
            (self.setup.cfg.give_back)();
        }
    }

    /// Handles the `n`-th second that has passed.
    pub fn tick(&mut self, n: u32) {
        self.permit_scrubs();
        self.drive(Core::handle_tick);
        self.spacing().give_back();
        self.report(true);
        let now = self.usec();
        self.perf.history.expire(now);
        self.perf.images.lapse(now);
        self.reporting().log_slow_ops();
        self.io.store.give_back();
        if self.io.heap.tick(self.io.calls()) {
            (self.setup.cfg.give_back)();
        }
        if n.is_multiple_of(BOOT_TICKS) {
            self.standing().boot_if_down();
        }
    }

    /// The time by a monotonic clock.
    pub fn usec(&self) -> Micros {
        self.setup.usec()
    }

    pub(super) fn fail(&mut self, e: OsdError) {
        self.life.fail(self.setup.id(), e);
    }

    /// Ends all connections.
    pub(super) fn hang_up(&mut self) {
        self.clients.hang_up();
        self.peers.hang_up();
        self.beats.links.hang_up();
    }

    /// Hands an event to the core and carries out what it commands.
    pub(super) fn drive(&mut self, f: impl FnOnce(&mut Core, &mut Ctx<'_>)) {
        self.run_core(f);
        loop {
            if let Some((token, reply)) = self.io.take_ready() {
                self.run_core(|core, cx| core.handle_store(token, reply, cx));
            } else if let Some(msg) = self.peers.next_to_self() {
                let id = self.setup.id();
                match self.peers.versions.read(id, &msg) {
                    Ok(m) => self.run_core(|core, cx| core.handle_peer(id, m, cx)),
                    Err(error) => {
                        impossible!("a message to this OSD itself that it understands"; error = error)
                    }
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
            now: self.setup.now(),
            usec,
            kept_since: self.maps.kept_since(),
            full: &self.space.full,
            versions: &self.peers.versions,
            out: &mut out,
            perf: &mut self.perf.core,
            images: &mut self.perf.images,
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
            Output::Place { token, data } => self.io.place(token, data)?,
            Output::Lookup { token, key } => self.io.lookup(token, key)?,
            Output::Read {
                token,
                key,
                wants,
                reader,
                has_room,
            } => self.io.read(token, key, wants, reader, has_room)?,
            Output::List { token, from, to, max } => self.io.listing().list(token, from, to, max)?,
            Output::ListRecords { token, from, to, max } => {
                self.io.listing().list_records(token, &from, to, max)?
            }
            Output::Send { osd, msg, reply } => match reply {
                true => self.peers.answer(osd, msg, &mut self.perf.dropped),
                false => {
                    let (me, dropped) = (self.setup.id(), &mut self.perf.dropped);
                    self.peers.send(osd, msg, me, &self.maps, dropped);
                }
            },
            Output::Reply {
                client,
                reply,
                data_off,
                stamps,
                record,
            } => {
                self.perf.op_done(&reply, &stamps, self.usec(), record);
                let mut msg = reply.to_message();
                msg.header.data_off = data_off;
                self.clients.send(&client, msg, &mut self.perf.dropped);
            }
            Output::WatchNotify { client, msg } => {
                self.clients
                    .send(&client, msg.to_message(), &mut self.perf.dropped);
            }
            Output::HangUp { client } => self.clients.hang_up_on(&client),
            Output::Alarm { usec } => self.alarms.set(usec),
            Output::Alive { epoch } => {
                let now = self.usec();
                self.mons.ask_alive(epoch, self.maps.epoch(), now);
            }
            Output::PgTemp { pgid, acting } => self.mons.want_acting(PgTempWanted {
                epoch: self.maps.epoch(),
                acting: [(pgid, acting.into())].into(),
            }),
            Output::ClusterLog { priority, line } => self.mons.cluster_log(&self.setup, priority, line),
            Output::ShareMap { client, epoch } => self.clients.share_map(client.conn, epoch, &self.maps),
        }
        Ok(())
    }

    /// Submits records of the daemon's own to the store.
    pub(super) fn submit(&mut self, token: Token, txn: Txn) -> Result<(), StoreError> {
        let now = self.usec();
        self.io.submit(token, txn, Claim::All, now)
    }

    /// Lets the store work, and hands its answers to the core, until there are no more.
    pub(super) fn poll_store(&mut self) {
        // A store that has failed is not asked again.
        while !self.has_failed() {
            let ready = match self.io.poll(self.setup.usec()) {
                Ok(ready) => ready,
                Err(e) => return self.fail(e.into()),
            };
            for news in std::mem::take(&mut self.io.index_news) {
                if let Err(e) = self.checking().take(news) {
                    self.fail(e.into());
                }
            }
            if ready.is_empty() {
                break;
            }
            // The daemon does not wait for its own records.
            for (token, reply) in ready.into_iter().filter(|(t, _)| t.slot() != DAEMON_SLOT) {
                self.drive(|core, cx| core.handle_store(token, reply, cx));
            }
        }
    }

    /// Handles a client's request.
    ///
    /// # Errors
    /// Where it does not decode.
    pub fn client_op(&mut self, conn: u64, msg: &RawMessage) -> spirula_proto::Result<()> {
        let m: MOsdOp = msg.decode()?;
        let Some(s) = self.clients.sessions.get(&conn) else {
            dropped!(self.perf.dropped, Dropped::FromGoneClient; connection = conn);
            return Ok(());
        };
        let client = Arc::clone(&s.client);
        s.epoch.set(s.epoch.get().max(m.epoch));
        let decoded = size_of::<ClientOp>() + msg.front.len() + m.ops.len() * size_of::<OsdOp>();
        let mut hold = client.held.take(decoded, msg.data.len());
        hold.set_copies(copied_bytes(&m.ops) * COPIES);
        if m.epoch > self.maps.epoch() {
            let (here, now) = (self.maps.epoch(), self.usec());
            self.mons.want_map(m.epoch, here, now);
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
            taken: Taken {
                hold: Some(hold),
                ..Taken::default()
            },
            client,
        };
        if op.epoch < self.maps.epoch() {
            self.clients.share_map(conn, op.epoch, &self.maps);
        }
        self.drive(|core, cx| core.handle_op(pgid, op, cx));
        Ok(())
    }

    /// Handles the end of a client's connection.
    pub fn client_closed(&mut self, conn: u64) {
        if let Some(s) = self.clients.sessions.remove(&conn) {
            s.client.closed.store(true, Ordering::Relaxed);
            self.io.client_closed(&s.client);
            self.drive(|core, cx| core.handle_client_closed(conn, cx));
        }
    }
}

/// The object's head, whichever snapshot is meant, with names of its own: names that point into a
/// message keep all of it in memory, and contexts and log entries live long.
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
