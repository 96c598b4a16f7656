//! The daemons' entry points: `spirula mon` and `spirula osd`, configured by a `ceph.conf` as Ceph's daemons are.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use spirula_cephx::{AuthName, CryptoKey, Keyring};
use spirula_conf::{ConfFile, parse_mon_host, parse_size};
use spirula_denc::{EntityAddr, EntityAddrVec, Fsid, decode_all};
use spirula_maps::MonMap;
use spirula_mon::{MkfsConfig, MonConfig};
use spirula_osd::daemon::OsdConfig;
use tokio::signal::unix::{SignalKind, signal};

use crate::device::{Identity, Plan, Request};
use crate::error::Error;
use crate::pidfile::PidFile;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum MonCommand {
    /// Make the data of a new monitor: of a new cluster, or to join one
    Mkfs {
        #[command(flatten)]
        daemon: DaemonArgs,
        /// Keyring with the key of mon., and for a new cluster the other first entities: client.admin
        #[arg(long)]
        keyring: PathBuf,
        /// The cluster's monitors: a file made by `ceph mon getmap -o` or `monmaptool` [default: mon_initial_members
        /// with mon_host, or with mon_addr in their sections]
        #[arg(long)]
        monmap: Option<PathBuf>,
    },
    /// Run a monitor
    Run {
        #[command(flatten)]
        daemon: DaemonArgs,
    },
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum OsdCommand {
    /// Make the store of a new OSD, on `osd_data`/block: a file, or a link to a block device
    Mkfs {
        #[command(flatten)]
        daemon: DaemonArgs,
        /// The OSD's UUID, as given to `ceph osd new`
        #[arg(long)]
        osd_uuid: String,
        /// Size of the store [default: all of a block device, 10G of a file]
        #[arg(long)]
        size: Option<String>,
        /// Overwrite what the file or device holds
        #[arg(long)]
        force: bool,
    },
    /// Run an OSD
    Run {
        #[command(flatten)]
        daemon: DaemonArgs,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct DaemonArgs {
    /// The daemon's id: `a`, `0`
    #[arg(long, short = 'i')]
    id: String,
    /// The configuration file
    #[arg(long, short = 'c')]
    conf: PathBuf,
}

/// A daemon's section of its configuration file.
struct Section {
    name: String,
    path: PathBuf,
    file: ConfFile,
}

impl Section {
    fn load(kind: &str, args: &DaemonArgs) -> Result<Self, Error> {
        let file = ConfFile::read(&args.conf)?;
        Ok(Self {
            name: format!("{kind}.{}", args.id),
            path: args.conf.clone(),
            file,
        })
    }

    fn get(&self, key: &str) -> Option<String> {
        self.file.get(&self.name, key)
    }

    fn bad(&self, what: String) -> Error {
        Error::Option {
            path: self.path.clone(),
            what,
        }
    }

    fn need(&self, key: &str) -> Result<String, Error> {
        self.get(key)
            .ok_or_else(|| self.bad(format!("{key} is missing for {}", self.name)))
    }

    fn path(&self, key: &str) -> Result<PathBuf, Error> {
        self.need(key).map(PathBuf::from)
    }

    fn fsid(&self) -> Result<Fsid, Error> {
        let text = self.need("fsid")?;
        Fsid::parse(&text).ok_or_else(|| self.bad(format!("fsid: {text:?} is not a UUID")))
    }

    fn monitors(&self) -> Result<Vec<EntityAddr>, Error> {
        let monitors = parse_mon_host(&self.need("mon_host")?);
        if monitors.is_empty() {
            Err(self.bad("no monitors in mon_host".into()))
        } else {
            Ok(monitors)
        }
    }

    fn size(&self, key: &str, default: u64) -> Result<u64, Error> {
        match self.get(key) {
            None => Ok(default),
            Some(text) => parse_size(&text).ok_or_else(|| self.bad(format!("{key}: {text:?} is not a size"))),
        }
    }

    fn bind(&self) -> Result<IpAddr, Error> {
        let text = self.need("public_addr")?;
        text.parse()
            .map_err(|_| self.bad(format!("public_addr: {text:?} is not an address")))
    }

    fn key(&self) -> Result<CryptoKey, Error> {
        let path = self.path("keyring")?;
        let ring = read_keyring(&path)?;
        let name: AuthName = self
            .name
            .parse()
            .map_err(|_| self.bad(format!("{} is no entity", self.name)))?;
        ring.key(&name)
            .cloned()
            .ok_or_else(|| self.bad(format!("{}: no key of {}", path.display(), self.name)))
    }

    /// Takes the pid file for as long as the daemon runs.
    fn pid_file(&self) -> Result<Option<PidFile>, Error> {
        self.get("pid_file")
            .map(|p| PidFile::take(Path::new(&p)).map_err(|e| Error::path("take", Path::new(&p), e)))
            .transpose()
    }

    fn crush_location(&self) -> BTreeMap<String, String> {
        let text = self
            .get("crush_location")
            .unwrap_or_else(|| "root=default host=$host".into());
        let host = spirula_conf::hostname();
        let pairs = text.split_whitespace().filter_map(|w| w.split_once('='));
        pairs
            .map(|(k, v)| (k.to_owned(), v.replace("$host", &host)))
            .collect()
    }
}

fn read_keyring(path: &Path) -> Result<Keyring, Error> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::path("read", path, e))?;
    Keyring::parse(&text).map_err(|e| Error::Option {
        path: path.to_owned(),
        what: e.to_string(),
    })
}

/// Runs `spirula mon …`.
pub(crate) async fn mon(command: MonCommand) -> Result<(), Error> {
    match command {
        MonCommand::Mkfs {
            daemon,
            keyring,
            monmap,
        } => {
            let section = Section::load("mon", &daemon)?;
            let monitors = match monmap {
                Some(path) => read_monmap(&section, &path)?,
                None => initial_monitors(&section)?,
            };
            mon_mkfs(&section, read_keyring(&keyring)?, monitors).await
        }
        MonCommand::Run { daemon } => {
            let section = Section::load("mon", &daemon)?;
            let _pid_file = section.pid_file()?;
            spirula_mon::run(mon_config(&section)?, stop_signal())
                .await
                .map_err(|e| Error::Daemon(e.to_string()))
        }
    }
}

fn mon_config(section: &Section) -> Result<MonConfig, Error> {
    let name = section.name.trim_start_matches("mon.");
    let bind = mon_addr(section, name)?;
    Ok(MonConfig {
        data: section.path("mon_data")?,
        name: name.to_owned(),
        fsid: section.fsid()?,
        bind: bind.ok_or_else(|| section.bad(format!("mon_addr is missing for {}", section.name)))?,
        admin_socket: section.get("admin_socket").map(PathBuf::from),
        options: section.file.all_for(&section.name),
    })
}

/// The names in `mon_initial_members`.
fn initial_members(section: &Section) -> Vec<String> {
    let text = section.get("mon_initial_members").unwrap_or_default();
    let words = text.split(|c: char| c == ',' || c.is_whitespace());
    words.filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

/// Where a monitor listens: `mon_addr` in its section, or its place in `mon_host`, where that has one address for each
/// of `mon_initial_members`.
fn mon_addr(section: &Section, name: &str) -> Result<Option<SocketAddr>, Error> {
    if let Some(text) = section.file.get(&format!("mon.{name}"), "mon_addr") {
        let addr = text.parse();
        return addr.map(Some).map_err(|_| {
            section.bad(format!(
                "mon_addr of mon.{name}: {text:?} is not an address with a port"
            ))
        });
    }
    let hosts = parse_mon_host(&section.get("mon_host").unwrap_or_default());
    let names = initial_members(section);
    let place = names.iter().position(|n| n == name);
    let host = place
        .filter(|_| hosts.len() == names.len())
        .and_then(|at| hosts.get(at));
    Ok(host.and_then(|h| h.socket))
}

type Monitors = Vec<(String, EntityAddrVec)>;

/// The monitors of a new cluster, as the configuration file names them; none where this one is alone.
fn initial_monitors(section: &Section) -> Result<Monitors, Error> {
    let names = initial_members(section);
    let own = section.name.trim_start_matches("mon.");
    if names.is_empty() || names == [own] {
        return Ok(Vec::new());
    }
    let one = |name: String| match mon_addr(section, &name)? {
        Some(at) => Ok((name, EntityAddr::v2(at, 0).into())),
        None => Err(section.bad(format!("no address of mon.{name}, one of mon_initial_members"))),
    };
    if !names.iter().any(|n| n == own) {
        let text = format!(
            "{} is none of mon_initial_members: --monmap is needed",
            section.name
        );
        return Err(section.bad(text));
    }
    names.into_iter().map(one).collect()
}

/// The monitors that a file with a monitor map names.
fn read_monmap(section: &Section, path: &Path) -> Result<Monitors, Error> {
    let bytes = std::fs::read(path).map_err(|e| Error::path("read", path, e))?;
    let bad = |what: String| Error::Option {
        path: path.to_owned(),
        what,
    };
    let map: MonMap = decode_all(&bytes).map_err(|e| bad(format!("not a monitor map: {e}")))?;
    if map.fsid != section.fsid()? {
        return Err(bad(format!("the monitor map of another cluster, {}", map.fsid)));
    }
    let names = map.ranks.iter().filter_map(|n| map.mons.get(n));
    Ok(names.map(|i| (i.name.clone(), i.public_addrs.clone())).collect())
}

async fn mon_mkfs(section: &Section, keyring: Keyring, monitors: Monitors) -> Result<(), Error> {
    let seed = MkfsConfig { keyring, monitors };
    spirula_mon::mkfs(&mon_config(section)?, &seed)
        .await
        .map_err(|e| Error::Daemon(e.to_string()))
}

/// Makes the data of monitor `id`, as `spirula mon mkfs` does.
pub(crate) async fn mon_mkfs_for(conf: &Path, id: &str, keyring: Keyring) -> Result<(), Error> {
    let args = DaemonArgs {
        id: id.to_owned(),
        conf: conf.to_owned(),
    };
    let section = Section::load("mon", &args)?;
    let monitors = initial_monitors(&section)?;
    mon_mkfs(&section, keyring, monitors).await
}

/// Completes when the daemon is asked to stop.
async fn asked_to_stop() -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

async fn stop_signal() {
    if let Err(e) = asked_to_stop().await {
        tracing::error!("{e}; only kill -9 stops this daemon");
        std::future::pending::<()>().await;
    }
}

/// Runs `spirula osd …`.
pub(crate) async fn osd(command: OsdCommand) -> Result<(), Error> {
    match command {
        OsdCommand::Mkfs {
            daemon,
            osd_uuid,
            size,
            force,
        } => {
            let section = Section::load("osd", &daemon)?;
            let uuid =
                Fsid::parse(&osd_uuid).ok_or_else(|| Error::Usage(format!("{osd_uuid:?} is not a UUID")))?;
            let parse = |text: String| {
                parse_size(&text).ok_or_else(|| Error::Usage(format!("{text:?} is not a size")))
            };
            let size = size.map(parse).transpose()?;
            osd_mkfs(&section, uuid, size.unwrap_or(FILE_SIZE), size, force)
        }
        OsdCommand::Run { daemon } => {
            let section = Section::load("osd", &daemon)?;
            let _pid_file = section.pid_file()?;
            spirula_osd::daemon::run(osd_config(&section)?, stop_signal())
                .await
                .map_err(|e| Error::Daemon(e.to_string()))
        }
    }
}

fn osd_id(section: &Section) -> Result<i32, Error> {
    let id = section.name.trim_start_matches("osd.");
    id.parse()
        .ok()
        .filter(|n| *n >= 0)
        .ok_or_else(|| Error::Usage(format!("{id:?} is not an OSD's number")))
}

/// Where an OSD's store lies: `osd_data/block`, a file or a link to a device.
fn osd_device(section: &Section) -> Result<PathBuf, Error> {
    Ok(section.path("osd_data")?.join("block"))
}

/// Size of a store on a file by default.
const FILE_SIZE: u64 = 10 << 30;

fn osd_mkfs(
    section: &Section,
    uuid: Fsid,
    file_size: u64,
    device_size: Option<u64>,
    force: bool,
) -> Result<(), Error> {
    let device = osd_device(section)?;
    let log_device = section.get("osd_log_device").map(PathBuf::from);
    let (id, fsid) = (osd_id(section)?, section.fsid()?);
    let request = Request {
        device: &device,
        log: log_device.as_deref(),
        file_size: Some(file_size),
        device_size,
        identity: Identity {
            whoami: id.unsigned_abs(),
            fsid,
            uuid,
        },
        force,
    };
    let Plan::Make { size } = request.plan()? else {
        tracing::warn!("{} holds this OSD's store already; it was kept", device.display());
        return Ok(());
    };
    spirula_osd::daemon::mkfs(&spirula_osd::daemon::MkfsConfig {
        id,
        device: &device,
        log_device: log_device.as_deref(),
        size,
        fsid,
        uuid,
    })
    .map_err(|e| Error::Daemon(e.to_string()))
}

/// Makes the store of OSD `n`, as `spirula osd mkfs` does: of `size` on a file, on all of a block device.
pub(crate) fn osd_mkfs_for(conf: &Path, n: u32, uuid: Fsid, size: u64) -> Result<(), Error> {
    let args = DaemonArgs {
        id: n.to_string(),
        conf: conf.to_owned(),
    };
    osd_mkfs(&Section::load("osd", &args)?, uuid, size, None, false)
}

/// What an OSD may take by default.
const OSD_MEMORY: u64 = 128 << 20;

fn osd_config(section: &Section) -> Result<OsdConfig, Error> {
    let memory = section.size("osd_memory_target", OSD_MEMORY)?;
    Ok(OsdConfig {
        id: osd_id(section)?,
        device: osd_device(section)?,
        log_device: section.get("osd_log_device").map(PathBuf::from),
        fsid: section.fsid()?,
        monitors: section.monitors()?,
        key: section.key()?,
        bind: section.bind()?,
        admin_socket: section.get("admin_socket").map(PathBuf::from),
        memory_target: usize::try_from(memory)
            .map_err(|_| section.bad("osd_memory_target is more than this machine addresses".into()))?,
        crush_location: section.crush_location(),
        device_class: section.get("osd_crush_device_class").unwrap_or_default(),
        options: section.file.all_for(&section.name),
    })
}
