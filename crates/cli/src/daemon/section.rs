//! A daemon's section of its configuration file.

use std::path::{Path, PathBuf};

use spirula_asok::Place;
use spirula_cephx::{AuthName, CryptoKey, Keyring};
use spirula_conf::{ConfFile, parse_mon_host, parse_size};
use spirula_denc::{EntityAddr, Fsid};
use zeroize::Zeroizing;

use super::{DaemonArgs, DaemonName, Kind, user};
use crate::error::Error;
use crate::pidfile::PidFile;

/// The default path of daemons' configuration, as in Ceph.
const DEFAULT_CONF: &str = "/etc/ceph/ceph.conf";

/// The options of one daemon.
pub(super) struct Section {
    /// The daemon.
    pub(super) daemon: DaemonName,
    /// Its name, as the section has it: `osd.0`.
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) file: ConfFile,
}

impl Section {
    pub(super) fn load(kind: Kind, args: &DaemonArgs) -> Result<Self, Error> {
        let path = match (&args.conf, std::env::var_os("CEPH_CONF")) {
            (Some(path), _) => path.clone(),
            (None, Some(path)) => path.into(),
            (None, None) => DEFAULT_CONF.into(),
        };
        let daemon = DaemonName::new(kind, args.id.as_str());
        let section = Self {
            name: daemon.to_string(),
            daemon,
            file: ConfFile::read(&path)?,
            path,
        };
        match section.file.check_security(&section.name) {
            Ok(()) => Ok(section),
            Err((line, what)) => Err(Error::Line {
                path: section.path,
                line,
                what,
            }),
        }
    }

    /// The daemon's id: `0` of `osd.0`.
    pub(super) fn id(&self) -> &str {
        self.daemon.id()
    }

    /// An option's value, or else its default; `None` where it is empty.
    pub(super) fn get(&self, key: &str) -> Option<String> {
        let value = self.file.get_or_default(&self.name, key);
        value.filter(|v| !v.is_empty())
    }

    pub(super) fn bad(&self, what: String) -> Error {
        Error::Option {
            path: self.path.clone(),
            what,
        }
    }

    fn need(&self, key: &str) -> Result<String, Error> {
        self.get(key)
            .ok_or_else(|| self.bad(format!("{key} is missing for {}", self.name)))
    }

    /// The path of the daemon's directory.
    pub(super) fn data_path(&self) -> Result<PathBuf, Error> {
        self.need(self.daemon.kind().data_option()).map(PathBuf::from)
    }

    /// The daemon's directory, closed to other users from here on.
    pub(super) fn data(&self) -> Result<PathBuf, Error> {
        let path = self.data_path()?;
        spirula_files::directory(&path)?;
        Ok(path)
    }

    pub(super) fn fsid(&self) -> Result<Fsid, Error> {
        let text = self.need("fsid")?;
        Fsid::parse(&text).ok_or_else(|| self.bad(format!("fsid: {text:?} is not a UUID")))
    }

    pub(super) fn monitors(&self) -> Result<Vec<EntityAddr>, Error> {
        let monitors = parse_mon_host(&self.need("mon_host")?);
        if monitors.is_empty() {
            Err(self.bad("no monitors in mon_host".into()))
        } else {
            Ok(monitors)
        }
    }

    pub(super) fn size(&self, key: &str, default: u64) -> Result<u64, Error> {
        match self.file.get(&self.name, key) {
            None => Ok(default),
            Some(text) => parse_size(&text).ok_or_else(|| self.bad(format!("{key}: {text:?} is not a size"))),
        }
    }

    /// Becomes the user that the command line or the configuration names. The directories of the
    /// admin socket and the pid file are made first where they are missing: `/run` is empty after
    /// each start of a machine, and only root may write to it.
    pub(super) fn enter_user(&self, args: &DaemonArgs) -> Result<(), Error> {
        let option = |given: &Option<String>, key: &str| given.clone().or_else(|| self.get(key));
        let match_path = args.setuser_match_path.clone();
        let wanted = user::Wanted {
            user: option(&args.setuser, "setuser"),
            group: option(&args.setgroup, "setgroup"),
            match_path: match_path.or_else(|| self.get("setuser_match_path").map(PathBuf::from)),
        };
        let files = ["admin_socket", "pid_file"].map(|key| self.get(key).map(PathBuf::from));
        let dirs = files.iter().flatten().filter_map(|f| f.parent());
        user::enter(&wanted, dirs)
    }

    /// The daemon's own key, by default from its directory (`osd_data`/keyring).
    pub(super) fn key(&self) -> Result<CryptoKey, Error> {
        let path = match self.file.get(&self.name, "keyring") {
            Some(path) => path.into(),
            None => self.data_path()?.join("keyring"),
        };
        let ring = read_keyring(&path)?;
        let name: AuthName = self
            .daemon
            .entity()
            .parse()
            .map_err(|_| self.bad(format!("{} is no entity", self.name)))?;
        ring.key(&name)
            .cloned()
            .ok_or_else(|| self.bad(format!("{}: no key of {}", path.display(), self.name)))
    }

    /// The admin socket's permissions for users other than the daemon's: `admin_socket_mode`, in
    /// octal.
    fn admin_socket_mode(&self) -> Result<Option<u32>, Error> {
        let Some(text) = self.get("admin_socket_mode") else {
            return Ok(None);
        };
        let mode = u32::from_str_radix(&text, 8).ok().filter(|m| *m <= 0o777);
        let mode =
            mode.ok_or_else(|| self.bad(format!("admin_socket_mode: {text:?} is no mode such as 0770")));
        mode.map(Some)
    }

    /// The admin socket. Its directory is made where it is missing: `/run` is empty after each
    /// start of a machine.
    pub(super) fn admin_socket(&self) -> Result<Option<Place>, Error> {
        let Some(path) = self.get("admin_socket").map(PathBuf::from) else {
            return Ok(None);
        };
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(|e| Error::path("create", dir, e))?;
        }
        let mode = self.admin_socket_mode()?;
        Ok(Some(Place { path, mode }))
    }

    /// Takes the pid file for as long as the daemon runs.
    pub(super) fn pid_file(&self) -> Result<Option<PidFile>, Error> {
        self.get("pid_file")
            .map(|p| PidFile::take(Path::new(&p)).map_err(|e| Error::path("take", Path::new(&p), e)))
            .transpose()
    }
}

/// Reads a file with keys.
pub(super) fn read_keyring(path: &Path) -> Result<Keyring, Error> {
    let text = Zeroizing::new(std::fs::read_to_string(path).map_err(|e| Error::path("read", path, e))?);
    Keyring::parse(&text).map_err(|e| Error::Option {
        path: path.to_owned(),
        what: e.to_string(),
    })
}

#[cfg(test)]
pub(super) fn test_section(name: &str, text: &str) -> Section {
    let daemon: DaemonName = name.parse().unwrap();
    Section {
        name: daemon.to_string(),
        daemon,
        path: "ceph.conf".into(),
        file: ConfFile::parse(text).unwrap_or_default(),
    }
}
