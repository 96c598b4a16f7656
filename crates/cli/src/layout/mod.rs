//! The paths of a cluster made by `spirula up`, and its specification.

mod conf_file;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spirula_cephx::KeyType;
use spirula_denc::Fsid;
use spirula_maps::OsdId;

use crate::daemon::{self, DaemonName, Kind};
use crate::error::Error;
use crate::pidfile::PidFile;

/// The most monitors that `spirula up` runs; their names are the first letters of the alphabet.
pub(crate) const MAX_MONS: u8 = 7;

/// The name of the n-th monitor.
fn mon_id(n: usize) -> String {
    let n = u8::try_from(n).unwrap_or(MAX_MONS);
    char::from(b'a' + n.min(MAX_MONS)).to_string()
}

/// The specification of the cluster in a directory; kept as `cluster.json` beside the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// Version of this file: 1.
    pub(crate) version: u32,
    /// The cluster's id, as text.
    pub(crate) fsid: String,
    /// The monitor's address; its port was chosen free when the cluster was made and stays.
    pub(crate) mon: SocketAddr,
    /// The addresses of the monitors after the first, if there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) more_mons: Vec<SocketAddr>,
    /// The numbers of the OSDs.
    #[serde(with = "osd_ids")]
    pub(crate) osds: BTreeSet<OsdId>,
    /// Bytes of each new OSD's store.
    pub(crate) osd_size: u64,
    /// Whether new OSDs' stores are encrypted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) encrypt: bool,
    /// The type of new keys, where it is another than the one that clients of all releases know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key_type: Option<String>,
}

/// The paths of one cluster's directory.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The directory `dir`, made absolute; it need not exist.
    pub(crate) fn new(dir: &Path) -> Result<Self, Error> {
        let root = std::path::absolute(dir).map_err(|e| Error::path("resolve", dir, e))?;
        Ok(Self { root })
    }

    /// Whether `ceph.conf` can name the paths in this directory, and the system its sockets.
    ///
    /// # Errors
    /// Where it can't.
    pub(crate) fn check_name(&self) -> Result<(), Error> {
        // Characters with a meaning in the file's grammar, in all implementations, or in
        // metavariables.
        const SPECIAL: &str = "\"'#;\\$";
        // `sun_path` has 108 bytes, the last one zero; the longest name of a socket gets its place.
        const LONGEST: usize = 107 - "/run/osd.4194304.asok".len();
        let why = match self.root.to_str() {
            None => "it is not UTF-8".to_owned(),
            Some(t) if t.contains(|c: char| c.is_control() || SPECIAL.contains(c)) => {
                "ceph.conf has no place for quotes, #, ;, $, backslashes and control characters in it"
                    .to_owned()
            }
            Some(t) if t.len() > LONGEST => {
                format!(
                    "for the paths of sockets it may have {LONGEST} bytes, not {}",
                    t.len()
                )
            }
            Some(_) => return Ok(()),
        };
        let dir = self.root.display();
        Err(Error::Usage(format!("a cluster can't be made in {dir}: {why}")))
    }

    /// Whether a new cluster may take this directory, which closes it to other users.
    ///
    /// # Errors
    /// If others may use the directory and it holds something that an administrator does not
    /// prepare for a cluster.
    pub(crate) fn check_free(&self) -> Result<(), Error> {
        use std::os::unix::fs::PermissionsExt;
        let Ok(meta) = self.root.metadata() else {
            return Ok(());
        };
        if meta.permissions().mode() & 0o077 == 0 {
            return Ok(());
        }
        let failed = |e| Error::path("read", &self.root, e);
        for entry in std::fs::read_dir(&self.root).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let name = name.to_string_lossy();
            let is_daemon = Kind::ALL.iter().any(|k| name.starts_with(&format!("{k}.")));
            let ours = ["ceph.", "cluster.", "run", "log"];
            // Every new ext4 file system has it.
            if name != "lost+found" && !is_daemon && !ours.iter().any(|start| name.starts_with(start)) {
                return Err(Error::Usage(format!(
                    "a cluster needs a directory of its own, which nobody else may use: {} is open to others and holds {name}",
                    self.root.display()
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn conf(&self) -> PathBuf {
        self.root.join("ceph.conf")
    }

    pub(crate) fn admin_keyring(&self) -> PathBuf {
        self.root.join("ceph.client.admin.keyring")
    }

    pub(crate) fn data(&self, daemon: &DaemonName) -> PathBuf {
        self.root.join(daemon.to_string())
    }

    /// The keyring of `daemon`, as the configuration file names it.
    pub(crate) fn keyring(&self, daemon: &DaemonName) -> PathBuf {
        self.data(daemon).join("keyring")
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// The admin socket of `daemon`, as the configuration file names it.
    pub(crate) fn admin_socket(&self, daemon: &DaemonName) -> PathBuf {
        self.root.join("run").join(format!("{daemon}.asok"))
    }

    /// The pid file of a daemon or of the supervisor.
    pub(crate) fn pid_file(&self, process: impl fmt::Display) -> PathBuf {
        self.run().join(format!("{process}.pid"))
    }

    /// The socket on which the supervisor tells its state.
    pub(crate) fn supervisor_socket(&self) -> PathBuf {
        self.run().join("supervisor.sock")
    }

    /// Takes the lock under which the specification changes; `None` if another process has it.
    pub(crate) fn try_lock(&self) -> Result<Option<PidFile>, Error> {
        let path = self.lock_file();
        match PidFile::take(&path) {
            Ok(held) => Ok(Some(held)),
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => Ok(None),
            Err(e) => Err(Error::path("lock", &path, e)),
        }
    }

    /// The file that is locked.
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.root.join("cluster.lock")
    }

    /// The log of a daemon or of the supervisor.
    pub(crate) fn log_file(&self, process: impl fmt::Display) -> PathBuf {
        self.root.join("log").join(format!("{process}.log"))
    }

    fn spec_file(&self) -> PathBuf {
        self.root.join("cluster.json")
    }

    /// The daemons of `spec`, in starting order.
    pub(crate) fn daemons(spec: &Spec) -> Vec<DaemonName> {
        Kind::ALL
            .into_iter()
            .flat_map(|kind| spec.daemons(kind))
            .collect()
    }

    /// The spec of the cluster here, `None` where there is no cluster yet.
    pub(crate) fn load_spec(&self) -> Result<Option<Spec>, Error> {
        let path = self.spec_file();
        match std::fs::read(&path) {
            Ok(bytes) => {
                let spec: Spec =
                    serde_json::from_slice(&bytes).map_err(|e| Error::Spec { path, source: e })?;
                Ok(Some(spec))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::path("read", &path, e)),
        }
    }

    /// Writes the specification if it has changed; a crash leaves the old file or the new one.
    pub(crate) fn save_spec(&self, spec: &Spec) -> Result<(), Error> {
        let path = self.spec_file();
        // A disk that is full keeps nobody from starting the cluster that is there.
        if self.load_spec()?.as_ref() == Some(spec) {
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(spec).map_err(|e| Error::Spec {
            path: path.clone(),
            source: e,
        })?;
        write_durably(&path, &text)
    }

    /// Makes the directories, and `ceph.conf` if it is missing: an administrator's edits stay, and
    /// lines of an earlier version become those of this one. Existing directories are closed to
    /// others, as earlier versions left them open.
    pub(crate) fn create(&self, spec: &Spec) -> Result<(), Error> {
        for dir in [self.root.clone(), self.run(), self.root.join("log")] {
            spirula_files::directory(&dir)?;
        }
        let daemons = Self::daemons(spec).into_iter().map(|name| self.data(&name));
        for dir in daemons.filter(|dir| dir.exists()) {
            spirula_files::directory(&dir)?;
        }
        let conf = self.conf();
        if !conf.exists() {
            return write_durably(&conf, conf_file::text(&self.root, spec).as_bytes());
        }
        // One that lies elsewhere is the administrator's own.
        if conf.is_symlink() {
            return Ok(());
        }
        let old = std::fs::read_to_string(&conf).map_err(|e| Error::path("read", &conf, e))?;
        match conf_file::mended(&old, &self.root, spec) {
            Some(new) => write_durably(&conf, new.as_bytes()),
            None => Ok(()),
        }
    }
}

impl Spec {
    /// The monitors' names and addresses.
    pub(crate) fn mons(&self) -> Vec<(String, SocketAddr)> {
        let all = std::iter::once(&self.mon).chain(&self.more_mons);
        all.enumerate().map(|(n, at)| (mon_id(n), *at)).collect()
    }

    /// The daemons of this kind.
    pub(crate) fn daemons(&self, kind: Kind) -> Vec<DaemonName> {
        match kind {
            Kind::Mon => self
                .mons()
                .into_iter()
                .map(|(id, _)| DaemonName::mon(id))
                .collect(),
            Kind::Osd => self.osds.iter().map(|n| DaemonName::osd(*n)).collect(),
        }
    }

    /// The type of new keys.
    ///
    /// # Errors
    /// Where the file names one that this version does not know.
    pub(crate) fn key_type(&self) -> Result<KeyType, Error> {
        match &self.key_type {
            None => Ok(KeyType::Aes),
            Some(name) => daemon::key_type(name).map_err(Error::Usage),
        }
    }

    /// A new cluster on `bind`, with a fresh id and free ports for its monitors.
    pub(crate) fn new(bind: IpAddr, mons: u8, osds: u32, osd_size: u64) -> Result<Self, Error> {
        // All are held while the next is sought, so that they differ.
        let mut held = Vec::new();
        for _ in 0..mons.max(1) {
            held.push(free_address(bind).map_err(|source| Error::Bind { bind, source })?);
        }
        let addrs: Result<Vec<SocketAddr>, _> = held.iter().map(TcpListener::local_addr).collect();
        let mut addrs = addrs.map_err(|source| Error::Bind { bind, source })?;
        let mon = addrs.remove(0);
        let fsid = Fsid(uuid::Uuid::new_v4().into_bytes()).to_string();
        Ok(Self {
            version: 1,
            fsid,
            mon,
            more_mons: addrs,
            osds: OsdId::below(osds).collect(),
            osd_size,
            encrypt: false,
            key_type: None,
        })
    }
}

/// OSDs in `cluster.json`: their number where they are the first ones, as all versions write it, or
/// else a list of them, which versions that know only numbers refuse.
mod osd_ids {
    use std::collections::BTreeSet;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use spirula_maps::OsdId;

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Osds {
        First(u32),
        These(BTreeSet<OsdId>),
    }

    pub(super) fn serialize<S: Serializer>(ids: &BTreeSet<OsdId>, s: S) -> Result<S::Ok, S::Error> {
        let are_first = |n: &u32| ids.iter().copied().eq(OsdId::below(*n));
        match u32::try_from(ids.len()).ok().filter(are_first) {
            Some(n) => Osds::First(n),
            None => Osds::These(ids.clone()),
        }
        .serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeSet<OsdId>, D::Error> {
        Ok(match Osds::deserialize(d)? {
            Osds::First(n) => OsdId::below(n).collect(),
            Osds::These(ids) => ids,
        })
    }
}

/// Whether a monitor could listen on `addr` now. Waits a little for a killed one to be gone.
pub(crate) async fn await_address(addr: SocketAddr) -> Result<(), Error> {
    const ATTEMPTS: u32 = 40;
    const PAUSE: Duration = Duration::from_millis(50);
    let mut attempt = 1;
    loop {
        match TcpListener::bind(addr) {
            Ok(_) => return Ok(()),
            Err(source) if attempt == ATTEMPTS => return Err(Error::MonAddress { addr, source }),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        attempt += 1;
    }
}

/// A free address for a monitor. Its port lies below those that the system gives to outgoing
/// connections: such a connection could take the port while the monitor is down, and a client that
/// dials it could even connect to itself.
fn free_address(bind: IpAddr) -> std::io::Result<TcpListener> {
    const PORTS: std::ops::Range<u16> = 10_000..32_000;
    const ATTEMPTS: u32 = 100;
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrInUse);
    for _ in 0..ATTEMPTS {
        let random = uuid::Uuid::new_v4().as_u128() % u128::from(PORTS.end - PORTS.start);
        let port = PORTS.start + random as u16;
        match TcpListener::bind((bind, port)) {
            Ok(listener) => return Ok(listener),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// Replaces `path` by `bytes`; a crash leaves the old file or the new one, never a part. Only this
/// user may read it.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    use std::io::Write;
    let tmp = path.with_extension("new");
    match std::fs::remove_file(&tmp) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Error::path("remove", &tmp, e)),
        _ => {}
    }
    let mut options = std::fs::OpenOptions::new();
    let mut f = spirula_files::open(&tmp, options.write(true).create_new(true))?;
    let written = (|| {
        f.write_all(bytes)?;
        f.sync_all()?;
        std::fs::rename(&tmp, path)?;
        match path.parent() {
            Some(dir) => std::fs::File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    })();
    written.map_err(|e| Error::path("write", path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_osds_are_told_by_their_number_and_others_by_a_list() {
        let mut spec = Spec::new(IpAddr::from([127, 0, 0, 1]), 1, 3, 1 << 30).unwrap();
        let of = |spec: &Spec| serde_json::to_value(spec).unwrap()["osds"].to_string();
        assert_eq!(of(&spec), "3");
        spec.osds.remove(&OsdId::new(1));
        assert_eq!(of(&spec), "[0,2]");
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec);
    }
}
