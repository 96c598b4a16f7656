//! The daemon around the core: sockets, the clock, the store and the admin socket.
//!
//! One thread runs everything but disk flushes, which run on the runtime's blocking threads. Build
//! the runtime with `new_current_thread().enable_all().max_blocking_threads(2)` and call [`run`]
//! inside a `LocalSet`.

mod admin;
mod auth;
mod heard;
mod host;
mod hub;
mod link;
mod manager;
mod members;
mod mkfs;
mod module;
mod peer;
mod place;
mod seed;
mod shell;
mod speech;
mod timecheck;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use spirula_asok::AdminSocket;
use spirula_buf::Pool;
use spirula_denc::{EntityAddr, EntityAddrVec, EntityName, EntityType, Fsid, UTime};
use spirula_monc::{GuestLimits, Guests};
use spirula_msgr::{Acceptor, Config, ModeLists, Modes};
use spirula_proto::internal::quorum::MonHello;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

pub use mkfs::{MkfsConfig, first_state, mkfs};
pub use place::known_address;

use crate::core::{Identity, LoadError, Monitor};
use crate::options::Values;
use crate::raft::{self, Applied, Call, Raft, Store, StoreError};
use hub::{Event, Hub};
use seed::Seed;
use shell::Shell;

/// The store, in the monitor's directory.
const STORE: &str = "store.db";
/// How often the core is told that time passes.
const TICK: Duration = Duration::from_millis(250);
/// How often the free space on the disk is looked at.
const DISK_CHECK: Duration = Duration::from_secs(5);
/// How long it may take to establish a connection to another monitor.
const DIAL: Duration = Duration::from_secs(2);
/// Memory for messages of other monitors being received.
const RECEIVE_BYTES: usize = 8 << 20;
/// Memory for messages of sessions being received: of daemons together, and of clients together.
const RECEIVE_BYTES_OF_SESSIONS: usize = 4 << 20;
/// The most sessions of daemons, and of clients.
const SESSIONS: usize = 4096;
/// Bytes that may wait for sessions that do not read: those of daemons, and those of clients.
const QUEUED: usize = 8 << 20;
/// Bytes at which a session that does not read is ended.
const QUEUED_FOR_ONE: usize = 16 << 20;

/// The limits of all sessions of one kind.
fn guests(open_files: usize, pool: Pool) -> Guests {
    let limits = GuestLimits {
        sessions: SESSIONS.min(open_files / 4),
        queued: QUEUED,
        queued_per_connection: QUEUED_FOR_ONE,
    };
    Guests::new(limits, pool)
}

/// The configuration of a monitor.
#[derive(Debug, Clone)]
pub struct MonConfig {
    /// Its directory; holds `store.db`.
    pub data: PathBuf,
    /// Its name: `a` in `mon.a`.
    pub name: String,
    /// The cluster's id.
    pub fsid: Fsid,
    /// The address that it listens on, as in the monitor map.
    pub bind: SocketAddr,
    /// The place of the admin socket, if there is to be one.
    pub admin_socket: Option<spirula_asok::Place>,
    /// Options from `ceph.conf` and the command line.
    pub options: BTreeMap<String, String>,
}

impl MonConfig {
    /// This monitor as a member of the log's group.
    fn node(&self) -> raft::Node {
        raft::Node {
            addr: self.bind.to_string(),
            name: self.name.clone(),
        }
    }

    /// The address in the monitor map. Monitors have nonce 0.
    fn addrs(&self) -> EntityAddrVec {
        EntityAddr::v2(self.bind, 0).into()
    }

    fn store_path(&self) -> PathBuf {
        self.data.join(STORE)
    }
}

/// Why the monitor cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or socket.
    #[error("{what}: {source}")]
    Io {
        /// The file or socket.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// A directory that is not the monitor's alone.
    #[error(transparent)]
    Files(#[from] spirula_files::Error),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The replicated log.
    #[error(transparent)]
    Raft(#[from] raft::Error),
    /// The committed state.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The configuration does not fit the store.
    #[error("{0}")]
    Config(String),
    /// The monitor is no member of the cluster any more.
    #[error("mon.{0} was removed from the monitor map: it ends, and its data is of no use any more")]
    Removed(String),
    /// The first CRUSH map could not be made.
    #[error("crush map: {0}")]
    Crush(#[from] spirula_crush::Error),
}

fn io_error(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}

/// Runs the monitor until `shutdown` is ready. Must be called inside a `LocalSet` or
/// `LocalRuntime`.
///
/// # Errors
/// Where it cannot start, and where the store or the log fails: it then stops and must not be
/// retried in place.
pub async fn run(config: MonConfig, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
    let store = Store::open(&config.store_path())?;
    let seed = Seed::load(&store)?;
    let (calls, queue) = unbounded_channel();
    let (raft, applied) = Raft::start(store.clone(), calls).await?;
    match &seed {
        // Founding was interrupted.
        Some(seed) if raft.is_alone() => seed::found(&raft, &store, config.node(), seed).await?,
        _ => raft.lead_alone().await?,
    }
    let listener = TcpListener::bind(config.bind)
        .await
        .map_err(io_error(format!("binding {}", config.bind)))?;
    let me = MonHello {
        fsid: config.fsid,
        name: config.name.clone(),
        node: raft.id(),
        addrs: config.addrs(),
    };
    let messenger = Rc::new(messenger(&config, &store, seed.as_ref())?);
    let dialling = Rc::new(Config {
        handshake_timeout: DIAL,
        ..(*messenger).clone()
    });
    let (events, inbox) = unbounded_channel();
    let open_files = spirula_msgr::raise_open_files();
    let sessions = Sessions {
        daemons: guests(open_files, Pool::new(RECEIVE_BYTES_OF_SESSIONS)),
        clients: guests(open_files, Pool::new(RECEIVE_BYTES_OF_SESSIONS)),
    };
    let hub = Hub::new(me, raft.clone(), seed.clone(), dialling, events);
    let daemon = Daemon {
        accepting: spawn_accepting(&hub, listener, messenger, sessions),
        carrying: spawn_carrying(&hub, queue),
        config,
        store,
        hub,
    };
    let mut shutdown = pin!(shutdown);
    let result = daemon.run(seed, applied, inbox, shutdown.as_mut()).await;
    raft.shutdown().await?;
    result
}

/// The parts of a running monitor.
struct Daemon {
    config: MonConfig,
    store: Store,
    hub: Rc<Hub>,
    accepting: JoinHandle<()>,
    carrying: JoinHandle<()>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.accepting.abort();
        self.carrying.abort();
    }
}

impl Daemon {
    async fn run(
        &self,
        seed: Option<Seed>,
        mut applied: UnboundedReceiver<Applied>,
        inbox: UnboundedReceiver<Event>,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Error> {
        let seed = seed.filter(|_| !seed::has_state(&self.store).unwrap_or(false) || !self.is_member());
        if let Some(seed) = &seed {
            tracing::info!("mon.{} looks for its cluster", self.config.name);
            tokio::select! {
                () = shutdown.as_mut() => return Ok(()),
                done = seed::become_member(&self.hub, &self.store, seed, &mut applied) => done?,
            }
        }
        // Everything committed before is in the state that is loaded now.
        while applied.try_recv().is_ok() {}
        let ports = Values::from_file(self.config.options.clone()).bind_ports();
        let no_ports =
            || Error::Config("ms_bind_port_min to ms_bind_port_max is no range of ports".to_owned());
        let mgr_side = manager::bind(self.config.bind.ip(), ports.ok_or_else(no_ports)?).await?;
        let shell = self.load(&mgr_side)?;
        let _told = (shell.peek(Monitor::at_work), self.hub.dialling().recent.at_work());
        // Bound only now: the socket tells that there is somebody to answer.
        let _socket = match &self.config.admin_socket {
            Some(path) => Some(serve_admin(path, &shell)?),
            None => None,
        };
        tracing::info!(
            "mon.{} listens on {}, as manager on {}",
            self.config.name,
            self.config.bind,
            mgr_side.addr
        );
        let _manager = Task(tokio::task::spawn_local(manager::listen(
            shell.clone(),
            mgr_side,
            self.modes(),
        )));
        shell.carry_out();
        self.serve(&shell, applied, inbox, shutdown).await
    }

    /// The modes of all connections, also those of the manager's endpoint.
    fn modes(&self) -> Modes {
        self.hub.dialling().modes.clone()
    }

    fn is_member(&self) -> bool {
        let raft = self.hub.raft();
        raft.view().voters.contains_key(&raft.id())
    }

    fn load(&self, mgr_side: &manager::Endpoint) -> Result<Rc<Shell>, Error> {
        let config = &self.config;
        let me = Identity {
            fsid: config.fsid,
            name: config.name.clone(),
            hostname: spirula_conf::hostname(),
            addrs: config.addrs(),
            mgr_addrs: mgr_side.addr.into(),
            metadata: host::metadata(&config.store_path()),
        };
        let view = self.hub.raft().view();
        let alone = self.hub.raft().is_alone() && view.leads;
        let core = Monitor::load(
            me,
            Rc::new(self.store.clone()),
            config.options.clone(),
            view.term,
            alone,
            UTime::now(),
        )?;
        check_identity(config, &core)?;
        let shell = Shell::new(core, self.hub.clone());
        self.hub.enter(&shell, &view);
        Ok(shell)
    }

    async fn serve(
        &self,
        shell: &Rc<Shell>,
        mut applied: UnboundedReceiver<Applied>,
        mut inbox: UnboundedReceiver<Event>,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), Error> {
        let mut disk_check = tokio::time::interval(DISK_CHECK);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut log = self.hub.raft().watch();
        let commit = |a: &Applied| shell.with_core(|c| c.committed(a, UTime::now()));
        loop {
            tokio::select! {
                biased;
                () = shutdown.as_mut() => return Ok(()),
                news = applied.recv() => match news {
                    Some(a) => commit(&a),
                    None => {
                        let why = self.hub.raft().view().failed;
                        return Err(raft::Error::Raft(why.unwrap_or_else(|| "stopped".to_owned())).into());
                    }
                },
                Some(event) = inbox.recv() => {
                    // An event refers to the state in which everything committed before is applied.
                    while let Ok(a) = applied.try_recv() {
                        commit(&a);
                    }
                    self.handle(shell, event)?;
                }
                _ = log.changed() => self.hub.look(),
                _ = disk_check.tick() => {
                    let disk = host::disk_use(&self.config.store_path());
                    self.hub.disk(disk);
                    shell.with_core(|c| disk.map(|d| c.disk(d)));
                }
                _ = tick.tick() => {
                    self.hub.tick();
                    shell.with_core(|c| c.tick(UTime::now()));
                    self.modes().set(shell.peek(|c| modes(c.values())));
                }
            }
        }
    }

    fn handle(&self, shell: &Shell, event: Event) -> Result<(), Error> {
        match event {
            Event::Lead(term, certain) => self.hub.leads(term, certain),
            Event::Confirmed(term) => shell.with_core(|c| c.confirmed(term, UTime::now())),
            Event::Linked(addr) => self.hub.relinked(addr),
            Event::MembersKept(made) => {
                self.hub.set_keeping(false);
                if made {
                    self.hub.keep_members();
                }
            }
            Event::Failed(e) => return Err(e),
        }
        Ok(())
    }
}

/// A task that ends when this is dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn serve_admin(place: &spirula_asok::Place, shell: &Rc<Shell>) -> Result<Task, Error> {
    let socket = AdminSocket::bind(place).map_err(io_error(place.path.display().to_string()))?;
    let handler = Rc::new(admin::Admin(shell.clone()));
    let task = tokio::task::spawn_local(async move { socket.serve(handler).await });
    Ok(Task(task))
}

/// The sessions other than those of other monitors, separately for clients and daemons: clients
/// take no room from daemons.
#[derive(Clone)]
struct Sessions {
    daemons: Guests,
    clients: Guests,
}

fn spawn_accepting(
    hub: &Rc<Hub>,
    listener: TcpListener,
    messenger: Rc<Config>,
    sessions: Sessions,
) -> JoinHandle<()> {
    let (hub, acceptor) = (hub.clone(), Rc::new(Acceptor::new(messenger)));
    tokio::task::spawn_local(async move {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let served =
                        shell::serve(hub.clone(), acceptor.clone(), (stream, from), sessions.clone());
                    tokio::task::spawn_local(served);
                }
                Err(e) => {
                    // Out of file descriptors, most likely: wait for some to be given back.
                    tracing::warn!("accepting: {e}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    })
}

fn spawn_carrying(hub: &Rc<Hub>, mut queue: UnboundedReceiver<Call>) -> JoinHandle<()> {
    let hub = hub.clone();
    tokio::task::spawn_local(async move {
        while let Some(call) = queue.recv().await {
            hub.carry(call);
        }
    })
}

fn check_identity(config: &MonConfig, core: &Monitor) -> Result<(), Error> {
    let map = &core.view.state.monmap.map;
    if map.fsid != config.fsid {
        return Err(Error::Config(format!(
            "the store belongs to cluster {}, not {}",
            map.fsid, config.fsid
        )));
    }
    match map.mons.get(&config.name) {
        None => Err(Error::Config(format!(
            "mon.{} is not in the monitor map",
            config.name
        ))),
        Some(info) if info.public_addrs != config.addrs() => Err(Error::Config(format!(
            "the monitor map has mon.{} at {}, not at {}",
            config.name,
            info.public_addrs,
            config.addrs()
        ))),
        Some(_) => Ok(()),
    }
}

/// The connection modes under these options, whose values were checked when they were set.
fn modes(values: &Values) -> ModeLists {
    ModeLists::from_options(|name| Some(values.get(name).to_owned())).unwrap_or_default()
}

/// The monitor's rank, which is its number in messages; 0 if it has none yet.
fn rank(config: &MonConfig, store: &Store, seed: Option<&Seed>) -> Result<usize, Error> {
    let map = match seed::has_state(store)? {
        true => Some(crate::service::MonMaps::read(store)?.map),
        false => seed.map(|s| s.monmap.clone()),
    };
    Ok(map.and_then(|m| m.rank_of(&config.name)).unwrap_or(0))
}

fn messenger(config: &MonConfig, store: &Store, seed: Option<&Seed>) -> Result<Config, Error> {
    let rank = rank(config, store, seed)?;
    let mut values = Values::from_file(config.options.clone());
    let central = crate::service::Config::read(store)?;
    values.set_central(central.for_daemon("mon", &config.name, &spirula_conf::hostname(), ""));
    let mut c = Config::new(
        EntityName::new(EntityType::MON, i64::try_from(rank).unwrap_or(0)),
        config.addrs(),
        Pool::new(RECEIVE_BYTES),
    );
    c.modes = modes(&values).into();
    // The largest inputs are CRUSH maps and keyrings. Between monitors a message has another one
    // within its data.
    (c.limits.front, c.limits.middle, c.limits.data) = (4 << 20, 64 << 10, 24 << 20);
    Ok(c)
}
