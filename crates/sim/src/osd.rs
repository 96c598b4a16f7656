//! OSDs: the daemon's real state on the real store, over simulated disk, timers and connections.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use spirula_buf::Pool;
use spirula_cephx::caps::ClassCall;
use spirula_cephx::{AuthName, CryptoKey};
use spirula_denc::{EntityAddr, EntityAddrVec, EntityName, EntityType, Micros};
use spirula_maps::{Epoch, OsdId};
use spirula_monc::{MonClient, Options};
use spirula_msgr::{Config, Sender};
use spirula_osd::daemon::{Refill, RefillParts};
use spirula_osd::heartbeat::Net;
use spirula_osd::pg::cluster::PoolView;
use spirula_osd::pg::link::{LinkKind, LinkPeer};
use spirula_osd::pg::op::{Access, Client};
use spirula_osd::{Addrs, Osd, OsdConfig, OsdError, Parts};
use spirula_proto::internal::heartbeat::Heartbeat;
use spirula_proto::{MsgType, RawMessage};
use spirula_store::device::{BlockIo, SimDisk};
use spirula_store::{Devices, MkfsOptions, Notify, Store, StoreError, mend_on, mkfs_on, remake_on};

use crate::clock::{Machine, SECOND};
use crate::net::{Kind, Label, Node};
use crate::world::{Event, FSID, World};

/// The memory target of an OSD in bytes.
const MEMORY: usize = 16 << 20;
/// The buffer pool of an OSD in bytes.
const PAYLOAD: usize = 64 << 20;
/// The pause of a daemon after it could not connect.
const LINK_PAUSE: u64 = SECOND / 5;
/// The pause of a daemon after it could not connect for heartbeats.
const BEAT_PAUSE: u64 = SECOND / 2;
/// The number of reports after a new map, and the time between them.
const NEWS: (u32, u64) = (10, SECOND / 10);

/// Timed events of an OSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The process starts.
    Start,
    /// The n-th tick, one a second.
    Tick(u32),
    /// Heartbeats are due.
    Beat,
    /// A beacon to the monitors is due.
    Beacon,
    /// A time at which the PGs asked to be woken.
    Alarm,
    /// An operation of the store completes, or may begin.
    Store,
    /// A report after a new map is due; this many follow.
    News(u32),
    /// A process with a ruined store asks again whether it is needed.
    Ask,
    /// The pause after a failed connection is over.
    LinkDown(LinkPeer),
    /// The pause after a failed heartbeat connection is over.
    BeatDown(OsdId, Net),
}

/// An OSD: its process while it runs, and the state that outlives it.
pub(crate) struct OsdNode {
    pub(crate) disk: SimDisk,
    pub(crate) osd: Option<Osd>,
    /// Counts processes.
    pub(crate) life: u64,
    pub(crate) addrs: Addrs,
    /// Whether its host has power.
    pub(crate) powered: bool,
    pub(crate) mon: MonClient,
    /// The factor by which its disk is slower than usual.
    pub(crate) slowness: u64,
    /// Its disk was damaged: it may refuse to start or to read.
    pub(crate) rotten: bool,
    /// The process that waits with a ruined store.
    pub(crate) refill: Option<Refill>,
    /// Pages of the index that were found to be damaged.
    damaged: Vec<u64>,
    storing: bool,
    alarm: Option<u64>,
    epoch: Epoch,
}

#[derive(Debug)]
pub(crate) struct AllowAll;

impl Access for AllowAll {
    fn allows(&self, _: &PoolView, _: &[u8], _: &[u8], _: bool, _: bool, _: &[ClassCall<'_>]) -> bool {
        true
    }

    fn allows_all(&self) -> bool {
        true
    }
}

fn ip(id: OsdId) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(
        10,
        0,
        1,
        u8::try_from(id.index() + 1).unwrap_or(u8::MAX),
    ))
}

fn addrs(id: OsdId, life: u64) -> Addrs {
    // Each process has another nonce.
    let nonce = u32::try_from(life).unwrap_or(u32::MAX);
    let at = |port| EntityAddr::v2(SocketAddr::new(ip(id), port), nonce);
    Addrs {
        public: at(6800),
        cluster: at(6801),
        heartbeat_back: at(6802),
        heartbeat_front: at(6803),
    }
}

/// A session with the monitors that is not established yet.
pub(crate) fn mon_client(name: AuthName, addr: EntityAddr) -> MonClient {
    let entity = EntityName::new(name.kind, 0);
    let messenger = Config::new(entity, EntityAddrVec::from(addr), Pool::new(PAYLOAD));
    let mon = MonClient::idle(Options {
        messenger: Rc::new(messenger),
        monitors: Vec::new(),
        name,
        key: CryptoKey::default(),
        services: Vec::new(),
        rotating: None,
    });
    mon.set_fsid(FSID);
    mon
}

fn format(disk: &SimDisk, log: usize, id: OsdId) -> Result<(), String> {
    let dev: Arc<dyn BlockIo> = Arc::new(disk.clone());
    let whoami = u32::from(id);
    let options = MkfsOptions {
        fsid: FSID.0,
        osd_uuid: [whoami as u8 + 1; 16],
        whoami,
        log_bytes: log as u64,
        key: None,
    };
    mkfs_on(&dev, None, &options).map(drop).map_err(|e| e.to_string())
}

/// Opens a store without threads.
pub(crate) fn open(disk: &SimDisk) -> Result<Store, String> {
    open_store(disk).map_err(|e| e.to_string())
}

fn open_store(disk: &SimDisk) -> Result<Store, StoreError> {
    let config = spirula_store::Config {
        memtable_bytes: 512 << 10,
        index_cache_bytes: 1 << 20,
        presence_bytes: 64 << 10,
        pool: Some(Pool::new(PAYLOAD)),
        ..spirula_store::Config::default()
    };
    let devices = Devices {
        main: Box::new(disk.device()),
        log: None,
    };
    let notify = Notify::new().map_err(|e| StoreError::Io {
        what: "eventfd".to_owned(),
        source: Arc::new(e),
    })?;
    Store::open_on(devices, config, notify, false)
}

/// Opens the store of a process, after damaged pages were cut out of its index. Damage that can't be
/// cut out has no pages.
fn open_mended(disk: &SimDisk, pages: &mut Vec<u64>) -> Result<Store, StoreError> {
    let dev: Arc<dyn BlockIo> = Arc::new(disk.clone());
    for _ in 0..10 {
        if !pages.is_empty() {
            mend_on(&dev, pages).map_err(|e| match e {
                StoreError::Ruined { detail, .. } => StoreError::Ruined {
                    detail,
                    pages: [].into(),
                },
                other => other,
            })?;
            pages.clear();
        }
        match open_store(disk) {
            Err(StoreError::Ruined { pages: more, .. }) if !more.is_empty() => pages.extend(more.iter()),
            opened => return opened,
        }
    }
    Err(StoreError::Invalid("a store that is damaged again and again"))
}

impl World {
    pub(crate) fn add_osd(&mut self, id: OsdId) {
        let seed = self.rng.number();
        let disk = SimDisk::new(self.setup.disk, seed);
        if let Err(e) = format(&disk, self.setup.log, id) {
            self.fail(e);
        }
        let node = OsdNode {
            disk,
            osd: None,
            life: 0,
            addrs: addrs(id, 0),
            powered: true,
            mon: mon_client(
                AuthName::new(EntityType::OSD, id.to_string()),
                addrs(id, 0).public,
            ),
            slowness: self.slowness,
            rotten: false,
            refill: None,
            damaged: Vec::new(),
            storing: false,
            alarm: None,
            epoch: Epoch::NONE,
        };
        self.osds.insert(id, node);
        let after = self.rng.below(SECOND);
        self.after(after, Event::Osd(id, 0, Timer::Start));
    }

    fn config(&self, id: OsdId) -> OsdConfig {
        OsdConfig {
            id,
            device: PathBuf::new(),
            log_device: None,
            encryption_key: None,
            fsid: FSID,
            monitors: Vec::new(),
            key: CryptoKey::default(),
            public_addr: ip(id),
            cluster_addr: ip(id),
            admin_socket: None,
            memory_target: MEMORY,
            crush_location: self.setup.location(id),
            device_class: "ssd".to_owned(),
            options: BTreeMap::from([("osd_heartbeat_grace".to_owned(), self.setup.grace.to_string())]),
            give_back: || (),
        }
    }

    fn machine(&mut self, id: OsdId) -> Rc<Machine> {
        Rc::new(Machine {
            clock: Rc::clone(&self.clock),
            since: self.clock.usec(),
            rng: RefCell::new(self.rng.fork()),
            name: format!("host{}", self.setup.host(id)),
        })
    }

    fn build(&mut self, id: OsdId) -> Result<Osd, OsdError> {
        let (host, cfg) = (self.machine(id), self.config(id));
        let Some(n) = self.osds.get_mut(&id) else {
            return Err(OsdError::Config("no such OSD"));
        };
        let addrs = addrs(id, n.life);
        n.addrs = addrs;
        n.mon = mon_client(AuthName::new(EntityType::OSD, id.to_string()), addrs.public);
        let parts = Parts {
            cfg,
            pg: self.setup.pg.clone(),
            store: open_mended(&n.disk, &mut n.damaged)?,
            reads: Pool::new(PAYLOAD),
            mon: n.mon.clone(),
            addrs,
            host,
            news: Vec::new(),
        };
        Osd::new(parts)
    }

    fn start_osd(&mut self, id: OsdId) {
        let is_down = |n: &&mut OsdNode| n.osd.is_none() && n.refill.is_none() && n.powered;
        let Some(n) = self.osds.get_mut(&id).filter(is_down) else {
            return;
        };
        n.life += 1;
        (n.storing, n.alarm, n.epoch) = (true, None, Epoch::NONE);
        let (life, rotten) = (n.life, n.rotten);
        match self.build(id) {
            Ok(osd) => {
                if let Some(n) = self.osds.get_mut(&id) {
                    n.epoch = osd.map().epoch;
                    n.osd = Some(osd);
                }
            }
            Err(OsdError::Store(e @ StoreError::Ruined { .. })) => return self.wait_with_ruin(id, &e),
            Err(e) => match e.pages_to_cut() {
                Some(pages) => return self.restart_damaged(id, &pages),
                // An OSD refuses a store that it can't read.
                None if rotten => return,
                None => return self.fail(format!("osd.{id} does not start: {e}")),
            },
        }
        for timer in [Timer::Tick(1), Timer::Beat, Timer::Beacon, Timer::Store] {
            let after = self.rng.below(SECOND / 2);
            self.after(after, Event::Osd(id, life, timer));
        }
        self.after(1, Event::Hunt(Node::Osd(id), life));
    }

    /// Begins to wait until nobody needs what a ruined store has.
    fn wait_with_ruin(&mut self, id: OsdId, error: &StoreError) {
        let (host, cfg) = (self.machine(id), self.config(id));
        let Some(n) = self.osds.get_mut(&id) else { return };
        let parts = RefillParts {
            pg: self.setup.pg.clone(),
            mon: n.mon.clone(),
            addrs: n.addrs,
            host,
        };
        n.refill = Some(Refill::new(cfg, parts, error.to_string()));
        let life = n.life;
        self.after(1, Event::Hunt(Node::Osd(id), life));
        self.after(SECOND, Event::Osd(id, life, Timer::Ask));
    }

    /// Calls `f` with a process that has a ruined store, and carries out what follows from it.
    fn with_refill<T>(&mut self, id: OsdId, f: impl FnOnce(&mut Refill) -> T) -> Option<T> {
        let n = self.osds.get_mut(&id)?;
        let result = f(n.refill.as_mut()?);
        if n.refill.as_ref().is_some_and(|r| r.outcome().is_some()) {
            self.remake(id);
        } else {
            self.drain(Node::Osd(id));
        }
        Some(result)
    }

    /// Makes a ruined store anew, and starts the OSD.
    fn remake(&mut self, id: OsdId) {
        self.drain(Node::Osd(id));
        self.kill_osd(id);
        let Some(n) = self.osds.get_mut(&id) else { return };
        n.damaged.clear();
        let dev: Arc<dyn BlockIo> = Arc::new(n.disk.clone());
        let life = n.life;
        match remake_on(&dev, None) {
            Ok(()) => {
                self.weather.refills += 1;
                self.after(SECOND, Event::Osd(id, life, Timer::Start));
            }
            Err(e) => self.fail(format!("osd.{id} is not made anew: {e}")),
        }
    }

    /// Ends an OSD's process at once.
    pub(crate) fn kill_osd(&mut self, id: OsdId) {
        if let Some(n) = self.osds.get_mut(&id)
            && (n.osd.take().is_some() || n.refill.take().is_some())
        {
            n.life += 1;
            self.drop_conns(Node::Osd(id));
        }
    }

    /// Cuts an OSD's power: data that its disk had not made durable may be lost.
    pub(crate) fn cut_power(&mut self, id: OsdId) {
        self.kill_osd(id);
        let seed = self.rng.number();
        if let Some(n) = self.osds.get_mut(&id) {
            n.powered = false;
            n.disk = n.disk.power_cycle(seed);
        }
    }

    /// Gives an OSD's host its power back, and starts the process if it does not run.
    pub(crate) fn revive_osd(&mut self, id: OsdId) {
        if let Some(n) = self.osds.get_mut(&id) {
            n.powered = true;
            self.start_osd(id);
        }
    }

    /// Calls `f` with an OSD, and carries out what follows from it.
    pub(crate) fn with_osd<T>(&mut self, id: OsdId, f: impl FnOnce(&mut Osd) -> T) -> Option<T> {
        let result = f(self.osds.get_mut(&id)?.osd.as_mut()?);
        self.after_osd(id);
        Some(result)
    }

    fn after_osd(&mut self, id: OsdId) {
        let Some(n) = self.osds.get_mut(&id) else { return };
        let Some(osd) = &mut n.osd else { return };
        if let Some(e) = osd.take_failure() {
            if let Some(pages) = e.pages_to_cut() {
                return self.restart_damaged(id, &pages);
            }
            if e.is_ruin() {
                return self.restart_damaged(id, &[]);
            }
            let is_full = matches!(e, OsdError::Store(StoreError::NoSpace { .. }));
            let may_stop = n.rotten || is_full && self.setup.fat;
            if !may_stop {
                self.fail(format!("osd.{id} stops: {e}"));
            }
            self.kill_osd(id);
            if is_full {
                // As the supervisor does.
                self.weather.overrun += 1;
                let life = self.osds.get(&id).map_or(0, |n| n.life);
                self.after(SECOND, Event::Osd(id, life, Timer::Start));
            }
            return;
        }
        if osd.is_leaving() {
            return self.kill_osd(id);
        }
        let (links, beats) = (osd.wanted_links(), osd.wanted_beat_links());
        let (life, epoch, alarm) = (n.life, osd.map().epoch, osd.next_alarm().map(Micros::count));
        let now = self.clock.usec();
        if !std::mem::replace(&mut n.storing, true) {
            let after = self.rng.between(5, 50);
            self.after(after, Event::Osd(id, life, Timer::Store));
        }
        self.set_alarm(id, life, alarm, now);
        let Some(n) = self.osds.get_mut(&id) else { return };
        if std::mem::replace(&mut n.epoch, epoch) != epoch {
            self.after(NEWS.1, Event::Osd(id, life, Timer::News(NEWS.0)));
        }
        for (peer, addr) in links {
            let cut = self.dial_cut(id, Kind::Data(peer), addr);
            self.with_daemon(id, |o| o.link_started(peer, Box::new(move || cut.set(true))));
        }
        for (peer, addr) in beats {
            let cut = self.dial_cut(id, Kind::Beats(peer), addr);
            self.with_daemon(id, |o| o.beat_link_started(peer, Box::new(move || cut.set(true))));
        }
        self.drain(Node::Osd(id));
    }

    /// Starts an OSD anew whose index is damaged, with these pages cut out.
    fn restart_damaged(&mut self, id: OsdId, pages: &[u64]) {
        self.kill_osd(id);
        if let Some(n) = self.osds.get_mut(&id) {
            n.damaged.extend(pages);
            let life = n.life;
            self.weather.mended += 1;
            self.after(SECOND / 10, Event::Osd(id, life, Timer::Start));
        }
    }

    fn with_daemon(&mut self, id: OsdId, f: impl FnOnce(&mut Osd)) {
        if let Some(osd) = self.osds.get_mut(&id).and_then(|n| n.osd.as_mut()) {
            f(osd);
        }
    }

    fn dial_cut(&mut self, id: OsdId, kind: Kind, addr: EntityAddr) -> Rc<Cell<bool>> {
        let cut = Rc::new(Cell::new(false));
        self.dial(Node::Osd(id), kind, addr, Rc::clone(&cut));
        cut
    }

    fn set_alarm(&mut self, id: OsdId, life: u64, alarm: Option<u64>, now: u64) {
        let Some(n) = self.osds.get_mut(&id) else { return };
        let Some(at) = alarm.filter(|at| n.alarm.is_none_or(|set| *at < set)) else {
            return;
        };
        n.alarm = Some(at);
        let Some(osd) = &n.osd else { return };
        let after = at.saturating_sub(osd.usec().count());
        self.at(now + after, Event::Osd(id, life, Timer::Alarm));
    }

    pub(crate) fn on_osd_timer(&mut self, id: OsdId, life: u64, timer: Timer) {
        if timer == Timer::Start {
            return self.start_osd(id);
        }
        if timer == Timer::Ask && self.osds.get(&id).is_some_and(|n| n.life == life) {
            if self.with_refill(id, Refill::tick).is_some() {
                self.after(10 * SECOND, Event::Osd(id, life, Timer::Ask));
            }
            return;
        }
        if self
            .osds
            .get(&id)
            .is_none_or(|n| n.life != life || n.osd.is_none())
        {
            return;
        }
        let again = match timer {
            Timer::Start | Timer::Ask => None,
            Timer::Tick(n) => {
                self.with_osd(id, |o| o.tick(n));
                Some((SECOND, Timer::Tick(n + 1)))
            }
            Timer::Beat => {
                let pause = self.with_osd(id, Osd::heartbeat_tick).unwrap_or_default();
                Some((u64::try_from(pause.as_micros()).unwrap_or(SECOND), Timer::Beat))
            }
            Timer::Beacon => {
                let beacon = |o: &mut Osd| {
                    o.send_beacon();
                    o.beacon_pause()
                };
                let pause = self.with_osd(id, beacon).unwrap_or_default();
                Some((u64::try_from(pause.as_micros()).unwrap_or(SECOND), Timer::Beacon))
            }
            Timer::Alarm => {
                if let Some(n) = self.osds.get_mut(&id) {
                    n.alarm = None;
                }
                self.with_osd(id, Osd::ring);
                None
            }
            Timer::Store => return self.store_moves(id, life),
            Timer::News(left) => {
                self.with_osd(id, |o| o.report(false));
                (left > 1).then_some((NEWS.1, Timer::News(left - 1)))
            }
            Timer::LinkDown(peer) => {
                self.with_osd(id, |o| o.link_down(peer));
                None
            }
            Timer::BeatDown(osd, net) => {
                self.with_osd(id, |o| o.beat_link_down((osd, net)));
                None
            }
        };
        if let Some((after, timer)) = again {
            self.after(after, Event::Osd(id, life, timer));
        }
    }

    /// Handles a completed operation of the store, or begins new ones.
    fn store_moves(&mut self, id: OsdId, life: u64) {
        if let Some(n) = self.osds.get_mut(&id) {
            n.storing = true;
        }
        self.with_osd(id, Osd::work);
        let Some(n) = self.osds.get_mut(&id) else { return };
        n.storing = n.osd.as_ref().is_some_and(|o| o.store().is_busy());
        if n.storing {
            let after = self.rng.between(20, 400) * self.osds.get(&id).map_or(1, |n| n.slowness);
            self.after(after, Event::Osd(id, life, Timer::Store));
        }
    }

    /// Accepts a connection to an OSD; returns the OSD's number for it. The error says
    /// whether the connection was refused.
    pub(crate) fn osd_accept(
        &mut self,
        id: OsdId,
        conn: u64,
        from: Node,
        kind: Kind,
        addr: EntityAddr,
    ) -> Result<u64, bool> {
        let Some(n) = self.osds.get(&id).filter(|n| n.osd.is_some()) else {
            return Err(true);
        };
        let a = n.addrs;
        if ![a.public, a.cluster, a.heartbeat_back, a.heartbeat_front].contains(&addr) {
            // Another process than was meant.
            return Err(false);
        }
        let Some(sender) = self.net.conns.get(&conn).map(|c| c.senders[1].clone()) else {
            return Err(false);
        };
        let number = match (from, kind) {
            (Node::Osd(osd), Kind::Data((_, LinkKind::Ordered))) => {
                self.with_osd(id, |o| o.osd_opened(osd, sender))
            }
            (Node::Client(c), _) => {
                let (name, addr) = self.client_identity(c);
                let client = move |conn| Arc::new(Client::new(conn, name, addr, Arc::new(AllowAll)));
                self.with_osd(id, |o| o.client_opened(sender, client))
            }
            _ => Some(0),
        };
        number.ok_or(true)
    }

    /// Reports an established connection to the OSD that wanted it. Returns whether the OSD still
    /// does.
    pub(crate) fn osd_dialled(
        &mut self,
        id: OsdId,
        conn: u64,
        kind: Kind,
        addr: EntityAddr,
        sender: &Sender,
    ) -> bool {
        let wanted = match kind {
            Kind::Data(peer) => self.with_osd(id, |o| o.link_up(peer, addr, sender)),
            Kind::Beats(peer) => self.with_osd(id, |o| o.beat_link_up(peer, addr, sender)),
            Kind::Monitor => {
                let number = self.net.conns.get(&conn).map_or(0, |c| c.number);
                let gid = self.mon_global_id(conn, number);
                if let Some(n) = self.osds.get(&id) {
                    n.mon.attach(sender.clone(), gid);
                }
                self.after(3 * SECOND, Event::Listen(Node::Osd(id), conn));
                let waits = self.with_refill(id, Refill::connected);
                waits
                    .or_else(|| self.with_osd(id, Osd::mon_connected))
                    .map(|()| true)
            }
            Kind::Client(..) => None,
        };
        wanted.unwrap_or(false)
    }

    /// Reports a failed connection to the OSD that wanted it.
    pub(crate) fn osd_dial_failed(&mut self, id: OsdId, kind: Kind, addr: EntityAddr, refused: bool) {
        let life = self.osds.get(&id).map_or(0, |n| n.life);
        match kind {
            Kind::Data((osd, _)) | Kind::Beats((osd, _)) if refused => {
                self.with_osd(id, |o| o.peer_refused(osd, addr));
            }
            _ => {}
        }
        let (pause, timer) = match kind {
            Kind::Data(peer) => (LINK_PAUSE, Timer::LinkDown(peer)),
            Kind::Beats((osd, net)) => (BEAT_PAUSE, Timer::BeatDown(osd, net)),
            Kind::Monitor => return self.hunt_later(Node::Osd(id)),
            Kind::Client(..) => return,
        };
        self.after(pause, Event::Osd(id, life, timer));
    }

    /// Reports the end of a connection to the OSD that made it.
    pub(crate) fn osd_lost(&mut self, id: OsdId, label: &Label) {
        match label.kind {
            Kind::Data(peer) => {
                self.with_osd(id, |o| o.link_down(peer));
            }
            Kind::Beats(peer) => match self.with_osd(id, |o| o.beat_link_broke(peer, label.addr)) {
                Some(true) => {
                    self.dial(Node::Osd(id), label.kind, label.addr, Rc::clone(&label.cut));
                }
                _ => {
                    self.with_osd(id, |o| o.beat_link_down(peer));
                }
            },
            Kind::Monitor => {
                if let Some(n) = self.osds.get(&id) {
                    n.mon.detach();
                }
                self.hunt_later(Node::Osd(id));
            }
            Kind::Client(..) => {}
        }
    }

    /// Reports the end of a connection to the OSD that accepted it.
    pub(crate) fn osd_left(&mut self, id: OsdId, label: &Label) {
        match (label.ends[0], label.kind) {
            (Node::Osd(osd), Kind::Data((_, LinkKind::Ordered))) => {
                self.with_osd(id, |o| o.osd_closed(osd, label.number))
            }
            (Node::Client(_), _) => self.with_osd(id, |o| o.client_closed(label.number)),
            _ => None,
        };
    }

    /// Delivers a message on a connection that an OSD made.
    pub(crate) fn osd_answered(&mut self, id: OsdId, conn: u64, kind: Kind, msg: &RawMessage) {
        let handled = match kind {
            Kind::Data((osd, _)) => self.with_osd(id, |o| o.osd_message(osd, msg)),
            Kind::Monitor => {
                let waits = self.with_refill(id, |r| r.message(msg));
                waits.or_else(|| self.with_osd(id, |o| o.mon_message(msg)))
            }
            Kind::Beats(peer) => match msg.decode::<Heartbeat>() {
                Ok(beat) => self.with_osd(id, |o| o.heartbeat_answer(peer, &beat)).map(Ok),
                Err(e) => Some(Err(e)),
            },
            Kind::Client(..) => None,
        };
        if let Some(Err(e)) = handled {
            self.fail(format!(
                "osd.{id} does not understand {} on {conn}: {e}",
                msg.kind()
            ));
        }
    }

    /// Delivers a message on a connection that an OSD accepted.
    pub(crate) fn osd_asked(
        &mut self,
        id: OsdId,
        conn: u64,
        from: Node,
        kind: Kind,
        number: u64,
        msg: &RawMessage,
    ) {
        let handled = match (from, kind) {
            (Node::Osd(osd), Kind::Data(_)) => self.with_osd(id, |o| o.osd_message(osd, msg)),
            (Node::Osd(osd), Kind::Beats(_)) => match msg.decode::<Heartbeat>() {
                Ok(beat) => {
                    let answers = self.with_osd(id, |o| o.heartbeat_asked(osd, &beat));
                    for answer in answers.into_iter().flatten() {
                        if let Some(c) = self.net.conns.get(&conn) {
                            c.senders[1].send(answer);
                        }
                    }
                    self.drain(Node::Osd(id));
                    None
                }
                Err(e) => Some(Err(e)),
            },
            (Node::Client(_), _) if msg.kind() == MsgType::OSD_OP => {
                self.with_osd(id, |o| o.client_op(number, msg))
            }
            _ => None,
        };
        if let Some(Err(e)) = handled {
            self.fail(format!("osd.{id} does not understand {}: {e}", msg.kind()));
        }
    }
}
