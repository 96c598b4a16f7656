//! Starting and stopping the daemon.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use spirula_asok::AdminSocket;
use spirula_buf::{Budget, Pool};
use spirula_cephx::{AuthName, OsRandom, RandomSource};
use spirula_conf::options::Values;
use spirula_denc::{EntityAddr, EntityAddrVec, EntityName, EntityType};
use spirula_monc::{Event, GuestLimits, Guests, MonClient, Options, RefusalLog};
use spirula_msgr::{Acceptor, Config, ModeLists, Modes};
use spirula_store::StoreError;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::accept::Purpose;
use super::auth::Secrets;
use super::config::OsdConfig;
use super::host::SystemHost;
use super::mend::Damage;
use super::pressure::Pressure;
use super::refill::{self, Refilled};
use super::setup::Addrs;
use super::shell::{Dialer, Shared, Shell};
use super::state::{Osd, Parts};
use super::{OsdError, accept, admin, alarms, heartbeat, mon, unread};
use crate::pg::config::PgConfig;

/// How often statistics and time-outs are checked.
const TICK: Duration = Duration::from_secs(1);
/// Bytes of payloads that heartbeats may have: they have none, and a peer that claims otherwise
/// gets no more than this.
const HEARTBEAT_PAYLOAD: usize = 64 << 10;
/// Bytes of payloads that an OSD gets which does not serve.
const BARE_PAYLOAD: usize = 1 << 20;
/// How often it is checked whether waiting reads may begin.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// The number of reports after a new map.
const NEWS_REPORTS: u32 = 10;
const NEWS_INTERVAL: Duration = Duration::from_millis(100);
/// The error for an invalid range of ports.
const NO_PORTS: OsdError = OsdError::Config("ms_bind_port_min to ms_bind_port_max is no range of ports");
/// The bytes that an idle session takes, as measured with a thousand of them.
const SESSION_BYTES: usize = 13 << 10;
/// How long a goodbye may take to be sent.
const PARTING: Duration = Duration::from_millis(100);
/// How long a stop may take.
const STOP_TIME: Duration = Duration::from_secs(5);

/// Shares of the memory target.
struct Memory {
    /// Payloads from clients.
    clients: Pool,
    /// Payloads from other OSDs; with memory of their own, so that two full OSDs can still finish
    /// each other's writes.
    peers: Pool,
    /// Payloads read for replies.
    reads: Pool,
    /// The payload that the three pools share.
    payload: Budget,
    /// Bytes for the store's tables and caches.
    store: usize,
}

impl Memory {
    fn of(cfg: &OsdConfig) -> Self {
        let (own, lendable) = (cfg.own_payload_bytes(), cfg.lendable_payload_bytes());
        let budget = Budget::with_files(cfg.all_own_payload_bytes(), lendable, files(cfg));
        Self {
            clients: budget.pool(own),
            peers: budget.pool(own),
            reads: budget.pool(own),
            payload: budget,
            store: cfg.shared_memory() * 9 / 32,
        }
    }
}

/// The directory for payloads that are too much for memory: beside the store. `None` for an
/// encrypted store: they would lie there in the clear.
fn files(cfg: &OsdConfig) -> Option<PathBuf> {
    let dir = cfg.device.parent().filter(|_| cfg.encryption_key.is_none());
    dir.map(Path::to_owned)
}

/// Runs an OSD until `shutdown` completes or it fails. To be called on a current-thread runtime
/// inside a `LocalSet`.
///
/// # Errors
/// Where it can't start, or had to stop.
pub async fn run(cfg: OsdConfig, shutdown: impl Future<Output = ()>) -> Result<(), OsdError> {
    let mut shutdown = std::pin::pin!(shutdown);
    let mut damage = Damage::default();
    loop {
        let Err(error) = serve(&cfg, &mut damage, shutdown.as_mut()).await else {
            return Ok(());
        };
        if let Some(pages) = error.pages_to_cut() {
            damage.found(&pages, error)?;
            continue;
        }
        match error {
            OsdError::Store(error @ StoreError::Ruined { .. }) => {
                match refill::run(&cfg, error, &mut damage, shutdown.as_mut()).await? {
                    Refilled::GoesOn => {}
                    Refilled::ShutDown => return Ok(()),
                }
            }
            error => return Err(error),
        }
    }
}

/// The store's settings: its share of the memory, and the pool that it reads into.
fn store_config(memory: &Memory) -> spirula_store::Config {
    let mut config = spirula_store::Config::with_budget(memory.store);
    config.pool = Some(memory.reads.clone());
    config
}

/// Whether the store can be opened now.
///
/// # Errors
/// Why it can't.
pub(super) fn probe(cfg: &OsdConfig, damage: &mut Damage) -> Result<(), StoreError> {
    damage.open(cfg, store_config(&Memory::of(cfg))).map(drop)
}

/// Opens the store and serves.
async fn serve(
    cfg: &OsdConfig,
    damage: &mut Damage,
    shutdown: Pin<&mut impl Future<Output = ()>>,
) -> Result<(), OsdError> {
    let cfg = cfg.clone();
    let memory = Memory::of(&cfg);
    let pressure = Pressure::new(cfg.memory_target, cfg.payload_bytes());
    let limits = guest_limits(&cfg, spirula_msgr::raise_open_files());
    let store = damage.open(&cfg, store_config(&memory))?;
    let reads = memory.reads;
    let events_fd = store
        .event_fd()
        .try_clone_to_owned()
        .map_err(io_error("event fd"))?;

    let nonce = nonce()?;
    let values = Values::from_file(cfg.options.clone());
    let ports = values.bind_ports().ok_or(NO_PORTS)?;
    let listen = |ip| bind(ip, ports.clone(), nonce);
    let (public, public_addr) = listen(cfg.public_addr).await?;
    let (cluster, cluster_addr) = listen(cfg.cluster_addr).await?;
    let (hb_back, heartbeat_back) = listen(cfg.cluster_addr).await?;
    let (hb_front, heartbeat_front) = listen(cfg.public_addr).await?;
    let addrs = Addrs {
        public: public_addr,
        cluster: cluster_addr,
        heartbeat_back,
        heartbeat_front,
    };
    let name = EntityName::new(EntityType::OSD, i64::from(cfg.id));
    let modes = Modes::from(modes(&values));
    let messenger = |addr, pool| Rc::new(messenger(name, addr, pool, &modes));
    let client_side = messenger(public_addr, memory.clients);
    let peer_side = messenger(cluster_addr, memory.peers);
    let heartbeat_pool = Pool::new(HEARTBEAT_PAYLOAD);
    let back_side = messenger(heartbeat_back, heartbeat_pool.clone());
    let front_side = messenger(heartbeat_front, heartbeat_pool);
    let (mon, events) = session(&cfg, Rc::clone(&client_side));
    let dialer = Dialer {
        mon: mon.clone(),
        data: Rc::clone(&peer_side),
        beats: Rc::clone(&back_side),
    };
    let asok = cfg
        .admin_socket
        .as_ref()
        .map(AdminSocket::bind)
        .transpose()
        .map_err(io_error("admin socket"))?;
    let pg = PgConfig::default().within(cfg.shared_memory());
    let mut osd = Osd::new(Parts {
        cfg,
        pg,
        store,
        reads: reads.clone(),
        mon,
        addrs,
        host: Rc::new(SystemHost::new()),
        news: std::mem::take(&mut damage.news),
    })?;
    let guests = Guests::new(limits, client_side.pool.clone());
    osd.io.reads.unread = guests.unread();
    osd.setup.endpoints = [&client_side, &peer_side, &back_side, &front_side]
        .map(|side| side.recent.clone())
        .into();
    let _told = super::transitions::at_work(&osd);
    let shell = Shell::new(osd, dialer, guests);
    let (secrets, refusals) = (Secrets::new(), RefusalLog::default());

    let mut tasks = JoinSet::new();
    for (listener, purpose, side) in [
        (public, Purpose::Clients, client_side),
        (cluster, Purpose::Peers, peer_side),
        (hb_back, Purpose::Heartbeats, back_side),
        (hb_front, Purpose::Heartbeats, front_side),
    ] {
        tasks.spawn_local(accept::listen(
            Rc::clone(&shell),
            (listener, purpose),
            acceptor(side),
            (secrets.clone(), refusals.clone()),
        ));
    }
    tasks.spawn_local(mon::serve(Rc::clone(&shell), events, secrets));
    tasks.spawn_local(work_store(Rc::clone(&shell)));
    tasks.spawn_local(admit_reads(Rc::clone(&shell), reads));
    tasks.spawn_local(watch_store(Rc::clone(&shell), events_fd)?);
    tasks.spawn_local(tick(Rc::clone(&shell), memory.payload, pressure, modes));
    tasks.spawn_local(alarms::ring(Rc::clone(&shell)));
    tasks.spawn_local(unread::watch(Rc::clone(&shell)));
    tasks.spawn_local(report_news(Rc::clone(&shell)));
    tasks.spawn_local(heartbeat::run(Rc::clone(&shell)));
    tasks.spawn_local(beacons(Rc::clone(&shell)));
    if let Some(socket) = asok {
        let handler = Rc::new(admin::AdminHandler(Rc::clone(&shell)));
        tasks.spawn_local(async move { socket.serve(handler).await });
    }
    tracing::info!(%public_addr, %cluster_addr, "osd started");
    tokio::select! {
        () = shutdown => stop(&shell).await,
        () = shell.stop.notified() => {
            if shell.with(|o| o.is_leaving()) {
                stop(&shell).await;
            } else {
                part(&shell).await;
            }
        }
    }
    tasks.shutdown().await;
    hang_up(&shell).await;
    shell.failure().map_or(Ok(()), Err)
}

/// The limits for all clients together.
fn guest_limits(cfg: &OsdConfig, open_files: usize) -> GuestLimits {
    GuestLimits {
        sessions: (cfg.shared_memory() / 4 / SESSION_BYTES).min(open_files / 2),
        queued: cfg.shared_memory() / 8,
        queued_per_connection: cfg.client_bytes() + (8 << 20),
    }
}

fn io_error(what: &'static str) -> impl Fn(std::io::Error) -> OsdError {
    move |source| OsdError::Io {
        what: what.to_owned(),
        source,
    }
}

/// Starts the session with the monitors.
fn session(cfg: &OsdConfig, messenger: Rc<Config>) -> (MonClient, UnboundedReceiver<Event>) {
    let (mon, events) = MonClient::start(Options {
        messenger,
        monitors: cfg.monitors.clone(),
        name: AuthName::new(EntityType::OSD, cfg.id.to_string()),
        key: cfg.key.clone(),
        services: vec![EntityType::MON, EntityType::OSD],
        rotating: Some(EntityType::OSD),
    });
    mon.set_fsid(cfg.fsid);
    (mon, events)
}

/// A session with the monitors of an OSD that does not serve, and the addresses that it names.
///
/// # Errors
/// The system gives no random numbers.
pub(super) fn bare_session(
    cfg: &OsdConfig,
) -> Result<(MonClient, UnboundedReceiver<Event>, Addrs), OsdError> {
    let addr = EntityAddr::v2(SocketAddr::new(cfg.public_addr, 0), nonce()?);
    let values = Values::from_file(cfg.options.clone());
    let name = EntityName::new(EntityType::OSD, i64::from(cfg.id));
    let modes = Modes::from(modes(&values));
    let config = messenger(name, addr, Pool::new(BARE_PAYLOAD), &modes);
    let (mon, events) = session(cfg, Rc::new(config));
    let addrs = Addrs {
        public: addr,
        cluster: addr,
        heartbeat_back: addr,
        heartbeat_front: addr,
    };
    Ok((mon, events, addrs))
}

/// A number that distinguishes this process from the one before at the same address. Random, as a
/// container's first process always has the same process id.
fn nonce() -> Result<u32, OsdError> {
    let mut bytes = [0; 4];
    OsRandom
        .fill(&mut bytes)
        .map_err(|_| OsdError::Config("the system gives no random numbers"))?;
    // Monitors have 0.
    Ok(u32::from_le_bytes(bytes).max(1))
}

async fn bind(
    ip: IpAddr,
    ports: RangeInclusive<u16>,
    nonce: u32,
) -> Result<(TcpListener, EntityAddr), OsdError> {
    let listener = spirula_msgr::bind(ip, ports).await.map_err(io_error("bind"))?;
    let addr = listener.local_addr().map_err(io_error("bind"))?;
    Ok((listener, EntityAddr::v2(addr, nonce)))
}

fn acceptor(config: Rc<Config>) -> Rc<Acceptor> {
    Rc::new(Acceptor::new(config))
}

fn messenger(name: EntityName, addr: EntityAddr, pool: Pool, modes: &Modes) -> Config {
    Config {
        nonce: addr.nonce,
        modes: modes.clone(),
        ..Config::new(name, EntityAddrVec::from(addr), pool)
    }
}

/// Lets the store work after each batch of events.
async fn work_store(shell: Shared) {
    loop {
        shell.wake.notified().await;
        shell.work();
    }
}

/// Lets waiting reads go on when replies have left and there is room.
async fn admit_reads(shell: Shared, pool: Pool) {
    loop {
        let wanted = shell.with(|o| o.io.deferred_bytes());
        match wanted {
            Some(bytes) => {
                if pool.has_room(bytes) {
                    // It waits for its client to read, or for other reads to end.
                    tokio::time::sleep(LOOK_AGAIN).await;
                } else {
                    // The room may also be taken by data that is in no buffer.
                    let room = std::future::poll_fn(|cx| pool.poll_room(bytes, cx));
                    let _ = tokio::time::timeout(10 * LOOK_AGAIN, room).await;
                }
                shell.wake.notify_one();
                tokio::task::yield_now().await;
            }
            None => shell.deferred.notified().await,
        }
    }
}

/// Wakes the store's work when the device has completed something.
fn watch_store(shell: Shared, fd: std::os::fd::OwnedFd) -> Result<impl Future<Output = ()>, OsdError> {
    let fd = super::event_fd::readable(fd).map_err(io_error("event fd"))?;
    Ok(async move {
        while let Ok(mut ready) = fd.readable().await {
            // Tokio waits for edges, and each completion is one: the descriptor is never read.
            ready.clear_ready();
            shell.wake.notify_one();
        }
    })
}

/// The connection modes under these options, whose values were checked when they were set.
fn modes(values: &Values) -> ModeLists {
    ModeLists::from_options(|name| Some(values.get(name).to_owned())).unwrap_or_default()
}

async fn tick(shell: Shared, payload: Budget, mut pressure: Pressure, modes_in_use: Modes) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for n in 0u32.. {
        interval.tick().await;
        payload.trim();
        if let Some(resident) = shell.with(|o| o.setup.host.resident()) {
            let withheld = pressure.withheld(resident.bytes, payload.usage());
            payload.withhold(withheld);
            if withheld > 0 {
                shell.with(|o| (o.setup.cfg.give_back)());
            }
        }
        shell.with(|o| o.tick(n));
        modes_in_use.set(shell.with(|o| modes(&o.setup.values)));
    }
}

async fn beacons(shell: Shared) {
    loop {
        let pause = shell.with(|o| {
            o.send_beacon();
            o.beacon_pause()
        });
        tokio::time::sleep(pause).await;
    }
}

/// Reports at short intervals after each new map, so that its effects show at once.
async fn report_news(shell: Shared) {
    let news = shell.with(|o| Rc::clone(&o.maps.news));
    loop {
        news.notified().await;
        for _ in 0..NEWS_REPORTS {
            tokio::time::sleep(NEWS_INTERVAL).await;
            shell.with(|o| o.report(false));
        }
    }
}

/// Ends all connections, so that nothing holds the store any longer.
async fn hang_up(shell: &Shared) {
    shell.with(Osd::hang_up);
    let alone = async {
        while Rc::strong_count(shell) > 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(STOP_TIME, alone).await.is_err() {
        tracing::debug!("some connections did not end");
    }
}

/// Says goodbye if the daemon has failed because of damage: others are to take over at once.
async fn part(shell: &Shared) {
    if shell.with(|o| o.is_damaged()) {
        shell.with(|o| o.standing().say_goodbye());
        // So that it is sent.
        tokio::time::sleep(PARTING).await;
    }
}

/// Says goodbye, and writes back what the next start would otherwise have to replay.
async fn stop(shell: &Shared) {
    let idle = async {
        shell.with(|o| {
            o.standing().say_goodbye();
            o.io.store.checkpoint();
        });
        while !shell.with(|o| o.io.store.is_idle()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(STOP_TIME, idle).await.is_err() {
        tracing::info!("the store is still busy: its log will be replayed");
    }
}
