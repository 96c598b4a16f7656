//! Who connects to which cluster, as `ceph.conf` and the usual command-line arguments say it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use spirula_cephx::{AuthName, CryptoKey, Keyring};
use spirula_conf::{ConfFile, parse_mon_host};
use spirula_denc::EntityAddr;
use spirula_msgr::ConMode;

use crate::{Error, Result};

/// Where `ceph.conf` is sought without `-c` and `CEPH_CONF`.
const CONF_DEFAULT: &str = "/etc/ceph/ceph.conf";
/// Where keyrings are sought without a `keyring` option.
const KEYRINGS: [&str; 3] = [
    "/etc/ceph/$cluster.$name.keyring",
    "/etc/ceph/$cluster.keyring",
    "/etc/ceph/keyring",
];

/// What a connection needs to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who logs in.
    pub name: AuthName,
    /// Its key.
    pub key: CryptoKey,
    /// The monitors.
    pub monitors: Vec<EntityAddr>,
    /// Modes towards monitors and OSDs, in order of preference.
    pub con_modes: Vec<ConMode>,
    /// How long to try for a session (`client_mount_timeout`).
    pub connect_timeout: Duration,
}

impl Options {
    /// Reads `conf` (or `CEPH_CONF`, or the default place) for the entity `name`; `keyring`, `mon_host` and
    /// `timeout` override what stands there.
    ///
    /// # Errors
    /// [`Error::Config`] where there are no monitors or no key.
    pub fn load(
        conf: Option<&Path>,
        name: &AuthName,
        keyring: Option<&Path>,
        mon_host: Option<&str>,
        timeout: Option<Duration>,
    ) -> Result<Self> {
        let path = match (conf, std::env::var_os("CEPH_CONF")) {
            (Some(path), _) => path.to_owned(),
            (None, Some(path)) => PathBuf::from(path),
            (None, None) => PathBuf::from(CONF_DEFAULT),
        };
        let file = ConfFile::read(&path).map_err(|e| Error::Config(e.to_string()))?;
        let section = name.to_string();
        let option = |key: &str| file.get(&section, key);
        let hosts = mon_host
            .map(str::to_owned)
            .or_else(|| option("mon_host"))
            .unwrap_or_default();
        let monitors = parse_mon_host(&hosts);
        if monitors.is_empty() {
            return Err(Error::Config(format!(
                "{}: no monitors in mon_host",
                path.display()
            )));
        }
        let modes = option("ms_client_mode").unwrap_or_else(|| "crc secure".into());
        let con_modes = ConMode::parse_list(&modes).ok_or_else(|| {
            Error::Config(format!(
                "ms_client_mode: {modes:?} is not a list of crc and secure"
            ))
        })?;
        let key = match option("key").filter(|_| keyring.is_none()) {
            Some(text) => CryptoKey::from_base64(&text).map_err(|e| Error::Config(format!("key: {e}")))?,
            None => find_key(&file, name, keyring)?,
        };
        Ok(Self {
            name: name.clone(),
            key,
            monitors,
            con_modes,
            connect_timeout: timeout.unwrap_or(Duration::from_secs(300)),
        })
    }
}

/// The entity's key in the first keyring that has it.
fn find_key(file: &ConfFile, name: &AuthName, keyring: Option<&Path>) -> Result<CryptoKey> {
    let section = name.to_string();
    let candidates: Vec<PathBuf> = match keyring {
        Some(path) => vec![path.to_owned()],
        None => match file.get(&section, "keyring") {
            Some(list) => list.split(',').map(|p| PathBuf::from(p.trim())).collect(),
            None => KEYRINGS
                .iter()
                .map(|p| PathBuf::from(p.replace("$cluster", "ceph").replace("$name", &section)))
                .collect(),
        },
    };
    let mut tried = Vec::new();
    for path in candidates {
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let ring =
                    Keyring::parse(&text).map_err(|e| Error::Config(format!("{}: {e}", path.display())))?;
                if let Some(key) = ring.key(name) {
                    return Ok(key.clone());
                }
                tried.push(format!("{} has no key for {name}", path.display()));
            }
            Err(e) => tried.push(format!("{}: {e}", path.display())),
        }
    }
    Err(Error::Config(format!(
        "no keyring found for {name}: {}",
        tried.join("; ")
    )))
}
