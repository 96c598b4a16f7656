//! The daemon around the core: sockets, the clock, the store and the admin socket.
//!
//! One thread runs everything but disk flushes, which run on the runtime's blocking threads. Build the runtime with
//! `new_current_thread().enable_all().max_blocking_threads(2)` and call [`run`] inside a `LocalSet`.

mod admin;
mod auth;
mod host;
mod manager;
mod mkfs;
mod shell;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use spirula_asok::AdminSocket;
use spirula_buf::Pool;
use spirula_denc::{EntityAddr, EntityAddrVec, EntityName, EntityType, Fsid, UTime};
use spirula_msgr::{Acceptor, ConMode, Config};
use tokio::net::TcpListener;

pub use host::{host_metadata, hostname};
pub use mkfs::{MkfsConfig, mkfs};

use crate::core::{Identity, LoadError, Monitor};
use crate::raft::{self, Raft, Store, StoreError};
use shell::Shell;

/// How often the core is told that time passes.
const TICK: Duration = Duration::from_millis(250);
/// How often the free space on the disk is looked at.
const DISK_CHECK: Duration = Duration::from_secs(5);
/// Memory for messages being received, all sessions together.
const RECEIVE_BYTES: usize = 8 << 20;

/// What a monitor is started with.
#[derive(Debug, Clone)]
pub struct MonConfig {
    /// Its directory; holds `store.db`.
    pub data: PathBuf,
    /// Its name: `a` in `mon.a`.
    pub name: String,
    /// The cluster.
    pub fsid: Fsid,
    /// Where it listens; the address in the monitor map.
    pub bind: SocketAddr,
    /// Where the admin socket goes, if there is to be one.
    pub admin_socket: Option<PathBuf>,
    /// Options from `ceph.conf` and the command line.
    pub options: BTreeMap<String, String>,
}

impl MonConfig {
    /// The address in the monitor map. Monitors have nonce 0.
    fn addrs(&self) -> EntityAddrVec {
        EntityAddr::v2(self.bind, 0).into()
    }

    fn store_path(&self) -> PathBuf {
        self.data.join("store.db")
    }
}

/// Why the monitor cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or socket.
    #[error("{what}: {source}")]
    Io {
        /// Which.
        what: String,
        /// Why.
        source: std::io::Error,
    },
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
    /// The first CRUSH map could not be made.
    #[error("crush map: {0}")]
    Crush(#[from] spirula_crush::Error),
}

fn io_error(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}

/// Runs the monitor until `shutdown` is ready. Must be called inside a `LocalSet` or `LocalRuntime`.
///
/// # Errors
/// Where it cannot start, and where the store or the log fails: it then stops and must not be retried in place.
pub async fn run(config: MonConfig, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
    let option = |name: &str| config.options.get(name).map(String::as_str);
    spirula_conf::auth_methods::check_all(option).map_err(Error::Config)?;
    let store = Store::open(&config.store_path())?;
    let members = BTreeMap::from([(0, config.bind.to_string())]);
    let (raft, mut applied) = Raft::start(0, store.clone(), &members).await?;
    // What committed before is in the state that is loaded now.
    while applied.try_recv().is_ok() {}
    let mgr_side = manager::bind(config.bind.ip()).await?;
    let me = Identity {
        fsid: config.fsid,
        name: config.name.clone(),
        hostname: hostname(),
        addrs: config.addrs(),
        mgr_addrs: mgr_side.addr.into(),
        metadata: host_metadata(),
    };
    let core = Monitor::load(
        me,
        Rc::new(store),
        config.options.clone(),
        raft.term(),
        UTime::now(),
    )?;
    check_identity(&config, &core)?;
    let listener = TcpListener::bind(config.bind)
        .await
        .map_err(io_error(format!("binding {}", config.bind)))?;
    let admin = match &config.admin_socket {
        Some(path) => Some(AdminSocket::bind(path).map_err(io_error(path.display().to_string()))?),
        None => None,
    };
    let (shell, mut failed) = Shell::new(core, raft.clone());
    if let Some(socket) = admin {
        let handler = Rc::new(admin::Admin(shell.clone()));
        tokio::task::spawn_local(async move { socket.serve(handler).await });
    }
    let acceptor = Rc::new(Acceptor::new(messenger(&config, &shell)));
    tracing::info!(
        "mon.{} listens on {}, as manager on {}",
        config.name,
        config.bind,
        mgr_side.addr
    );
    tokio::task::spawn_local(manager::listen(shell.clone(), mgr_side));
    shell.carry_out();

    let mut disk_check = tokio::time::interval(DISK_CHECK);
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut shutdown = std::pin::pin!(shutdown);
    let result = loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break Ok(()),
            Some(e) = failed.recv() => break Err(e),
            news = applied.recv() => match news {
                Some(a) => shell.with_core(|c| c.committed(&a, UTime::now())),
                None => break Err(raft::Error::Raft("stopped".to_owned()).into()),
            },
            _ = disk_check.tick() => {
                shell.with_core(|c| host::disk_use(&config.store_path()).map(|d| c.disk(d)));
            }
            _ = tick.tick() => shell.with_core(|c| c.tick(UTime::now())),
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => {
                    tokio::task::spawn_local(shell::serve(shell.clone(), acceptor.clone(), stream, from));
                }
                Err(e) => {
                    // Out of file descriptors, most likely: wait for some to be given back.
                    tracing::warn!("accepting: {e}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    };
    raft.shutdown().await?;
    result
}

fn check_identity(config: &MonConfig, core: &Monitor) -> Result<(), Error> {
    let map = &core.monmap.map;
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

fn messenger(config: &MonConfig, shell: &Rc<Shell>) -> Rc<Config> {
    let mut c = Config::new(
        EntityName::new(EntityType::MON, 0),
        config.addrs(),
        Pool::new(RECEIVE_BYTES),
    );
    if let Some(modes) = shell.value("ms_mon_service_mode", ConMode::parse_list) {
        c.con_modes = modes;
    }
    // The largest inputs are CRUSH maps and keyrings.
    (c.limits.front, c.limits.middle, c.limits.data) = (4 << 20, 64 << 10, 16 << 20);
    Rc::new(c)
}
