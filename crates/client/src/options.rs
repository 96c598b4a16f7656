//! Options of a connection, from `ceph.conf` and the usual command-line arguments.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use spirula_cephx::{AuthName, CryptoKey, Keyring};
use spirula_conf::{ConfFile, parse_mon_host};
use spirula_denc::EntityAddr;
use spirula_msgr::ModeLists;
use spirula_secret::Named;
use zeroize::Zeroizing;

use crate::{Error, Result};

/// The path of `ceph.conf` without `-c` and `CEPH_CONF`.
const CONF_DEFAULT: &str = "/etc/ceph/ceph.conf";
/// The paths of keyrings without a `keyring` option.
const KEYRINGS: [&str; 3] = [
    "/etc/ceph/$cluster.$name.keyring",
    "/etc/ceph/$cluster.keyring",
    "/etc/ceph/keyring",
];

/// The default time limit for a first session.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(300);

/// The options of a connection.
#[derive(Debug, Clone)]
pub struct Options {
    /// The entity that logs in.
    pub name: AuthName,
    /// Its key.
    pub key: CryptoKey,
    /// The monitors.
    pub monitors: Vec<EntityAddr>,
    /// Modes of connections (`ms_client_mode`, `ms_mon_client_mode`).
    pub modes: ModeLists,
    /// The time limit for a first session (`client_mount_timeout`).
    pub connect_timeout: Duration,
    /// The time limit of a request (`rados_osd_op_timeout`); zero for none.
    pub op_timeout: Duration,
    /// The address with nonce under which blocklists name this client; by default the address that
    /// peers see, with a random nonce.
    pub address: Option<EntityAddr>,
    /// Payload bytes in flight before the client stops reading from its sockets.
    pub memory: usize,
}

/// The default of [`Options::memory`].
const MEMORY: usize = 256 << 20;

/// Where [`Options`] come from: a configuration file, and what the command line says instead.
#[derive(Clone, Default)]
pub struct Source {
    /// The configuration file; by default that of `CEPH_CONF`, else the default path, which may be
    /// missing.
    pub conf: Option<PathBuf>,
    /// The entity that logs in.
    pub name: AuthName,
    /// Options that the command line sets, by their names with underscores.
    pub set: BTreeMap<String, String>,
    /// The time limit for a first session instead of `client_mount_timeout`.
    pub connect_timeout: Option<Duration>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("conf", &self.conf)
            .field("name", &self.name)
            .field("set", &Named(&self.set))
            .field("connect_timeout", &self.connect_timeout)
            .finish()
    }
}

/// The options of a [`Source`]: the command line's before the file's.
struct Lookup<'a> {
    set: &'a BTreeMap<String, String>,
    file: &'a ConfFile,
    section: String,
}

impl Lookup<'_> {
    fn get(&self, key: &str) -> Option<String> {
        self.set
            .get(key)
            .cloned()
            .or_else(|| self.file.get(&self.section, key))
    }

    fn seconds(&self, key: &str) -> Option<Duration> {
        let seconds: f64 = self.get(key)?.trim().parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

impl Source {
    /// Reads the file and determines the options of a connection.
    ///
    /// # Errors
    /// [`Error::Conf`], [`Error::NoMonitors`], [`Error::NoKey`], [`Error::NotInKeyring`], or
    /// [`Error::Config`] for a bad value.
    pub fn read(&self) -> Result<Options> {
        let file = self.file()?;
        let look = Lookup {
            set: &self.set,
            file: &file,
            section: self.name.to_string(),
        };
        let monitors = parse_mon_host(&look.get("mon_host").unwrap_or_default());
        if monitors.is_empty() {
            return Err(Error::NoMonitors);
        }
        if let Err((line, what)) = file.check_security(&look.section) {
            let path = self.path().unwrap_or_else(|| CONF_DEFAULT.into());
            return Err(Error::Conf(format!("{}: line {line}: {what}", path.display())));
        }
        let modes = ModeLists::from_options(|name| look.get(name)).map_err(Error::Config)?;
        Ok(Options {
            name: self.name.clone(),
            key: key(&look, &self.name)?,
            monitors,
            modes,
            connect_timeout: self
                .connect_timeout
                .or_else(|| look.seconds("client_mount_timeout"))
                .unwrap_or(MOUNT_TIMEOUT),
            op_timeout: look.seconds("rados_osd_op_timeout").unwrap_or_default(),
            address: None,
            memory: MEMORY,
        })
    }

    /// The value of one option for the entity; `None` if it is not set.
    ///
    /// # Errors
    /// [`Error::Conf`] where the file can't be read.
    pub fn option(&self, section: &str, key: &str) -> Result<Option<String>> {
        let file = self.file()?;
        let look = Lookup {
            set: &self.set,
            file: &file,
            section: section.to_owned(),
        };
        Ok(look.get(key))
    }

    /// The path of the configuration file that is named explicitly.
    fn path(&self) -> Option<PathBuf> {
        let of_environment = || std::env::var_os("CEPH_CONF").filter(|p| !p.is_empty());
        self.conf.clone().or_else(|| of_environment().map(PathBuf::from))
    }

    fn file(&self) -> Result<ConfFile> {
        let named = self.path();
        let path = named.as_deref().unwrap_or(Path::new(CONF_DEFAULT));
        match ConfFile::read(path) {
            Ok(file) => Ok(file),
            Err(spirula_conf::Error::Read { source, .. })
                if named.is_none() && source.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(ConfFile::default())
            }
            Err(e) => Err(Error::Conf(e.to_string())),
        }
    }
}

impl Options {
    /// Reads `conf` (or `CEPH_CONF`, or the default path) for the entity `name`; `keyring`,
    /// `mon_host` and `timeout` override the file.
    ///
    /// # Errors
    /// Those of [`Source::read`].
    pub fn load(
        conf: Option<&Path>,
        name: &AuthName,
        keyring: Option<&Path>,
        mon_host: Option<&str>,
        timeout: Option<Duration>,
    ) -> Result<Self> {
        let mut set = BTreeMap::new();
        if let Some(path) = keyring {
            set.insert("keyring".to_owned(), path.to_string_lossy().into_owned());
        }
        if let Some(hosts) = mon_host {
            set.insert("mon_host".to_owned(), hosts.to_owned());
        }
        let source = Source {
            conf: conf.map(Path::to_owned),
            name: name.clone(),
            set,
            connect_timeout: timeout,
        };
        source.read()
    }
}

fn parse_key(text: &str) -> Result<CryptoKey> {
    CryptoKey::from_base64(text.trim()).map_err(|e| Error::Config(format!("key: {e}")))
}

/// The entity's key: of an option, of a key file, or of the first keyring that has it.
fn key(look: &Lookup<'_>, name: &AuthName) -> Result<CryptoKey> {
    // A keyring on the command line is nearer than a key in the file.
    if !look.set.contains_key("keyring") {
        if let Some(text) = look.get("key") {
            return parse_key(&text);
        }
        if let Some(path) = look.get("keyfile") {
            let text = std::fs::read_to_string(&path).map_err(|e| Error::NoKey(format!("{path}: {e}")))?;
            let text = Zeroizing::new(text);
            return parse_key(&text);
        }
    }
    let section = name.to_string();
    let list = look.get("keyring").or_else(|| std::env::var("CEPH_KEYRING").ok());
    let candidates: Vec<PathBuf> = match list {
        Some(list) => list.split(',').map(|p| PathBuf::from(p.trim())).collect(),
        None => KEYRINGS
            .iter()
            .map(|p| PathBuf::from(p.replace("$cluster", "ceph").replace("$name", &section)))
            .collect(),
    };
    let mut tried = Vec::new();
    for path in candidates {
        match std::fs::read_to_string(&path).map(Zeroizing::new) {
            Ok(text) => {
                let ring =
                    Keyring::parse(&text).map_err(|e| Error::Config(format!("{}: {e}", path.display())))?;
                if let Some(key) = ring.key(name) {
                    return Ok(key.clone());
                }
                return Err(Error::NotInKeyring(format!(
                    "{} has no key for {name}",
                    path.display()
                )));
            }
            Err(e) => tried.push(format!("{}: {e}", path.display())),
        }
    }
    Err(Error::NoKey(format!(
        "no keyring for {name}: {}",
        tried.join("; ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AQBMbCBpAAAAABAAZBAGZ1iWXMqvo0B1K2Lq1w==";

    fn source(conf: &str) -> (PathBuf, Source) {
        let unique = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_nanos();
        let path = std::env::temp_dir().join(format!("spirula-options-{unique}-{}", std::process::id()));
        std::fs::write(&path, conf).unwrap();
        let source = Source {
            conf: Some(path.clone()),
            name: "client.x".parse().unwrap(),
            ..Source::default()
        };
        (path, source)
    }

    #[test]
    fn a_key_on_the_command_line_is_not_printed() {
        let set = [("key", KEY), ("mon_host", "h")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let source = Source {
            set: set.into(),
            ..Source::default()
        };
        let shown = format!("{source:?}");
        assert!(shown.contains(r#"{"key": …, "mon_host": "h"}"#), "{shown}");
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let conf =
            format!("[global]\nmon host = 10.0.0.1\nclient mount timeout = 7\n[client.x]\nkey = {KEY}\n");
        let (path, mut source) = source(&conf);
        let read = source.read().unwrap();
        assert_eq!(read.monitors[0].to_string(), "v2:10.0.0.1:3300/0");
        assert_eq!(read.connect_timeout, Duration::from_secs(7));
        source.set.insert("mon_host".into(), "10.0.0.2:1".into());
        source.connect_timeout = Some(Duration::from_secs(1));
        let read = source.read().unwrap();
        assert_eq!(read.monitors[0].to_string(), "v2:10.0.0.2:1/0");
        assert_eq!(read.connect_timeout, Duration::from_secs(1));
        source.set.insert("keyring".into(), "/nonexistent/keyring".into());
        assert!(matches!(source.read(), Err(Error::NoKey(_))));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_missing_is_named() {
        let (path, source) = source("[global]\n");
        assert!(matches!(source.read(), Err(Error::NoMonitors)));
        std::fs::remove_file(path).unwrap();
        assert!(matches!(source.read(), Err(Error::Conf(_))));
    }
}
