//! `spirula mon`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use spirula_cephx::{KeyType, Keyring};
use spirula_conf::parse_mon_host;
use spirula_denc::{AddrType, EntityAddr, EntityAddrVec, decode_all};
use spirula_maps::{MonInfo, MonMap};
use spirula_mon::{MkfsConfig, MonConfig};

use super::address::{host_addresses, mon_address};
use super::section::{Section, read_keyring};
use super::{DaemonArgs, Kind, stop_signal};
use crate::error::Error;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum MonCommand {
    /// Make the data of a new monitor: of a new cluster, or to join one
    Mkfs {
        #[command(flatten)]
        daemon: DaemonArgs,
        /// Keyring with the key of mon., and for a new cluster the other first entities:
        /// client.admin
        #[arg(long)]
        keyring: PathBuf,
        /// The cluster's monitors: a file made by `ceph mon getmap -o` or `monmaptool` [default:
        /// mon_initial_members with mon_host, or with mon_addr in their sections]
        #[arg(long)]
        monmap: Option<PathBuf>,
        /// Type of the keys that a new cluster makes: aes, which clients of all releases know, or
        /// aes256k, which Ceph's know since 19.2.6 and 20.2.4 and Linux since 7.0
        #[arg(long, default_value = "aes", value_parser = key_type)]
        key_type: KeyType,
    },
    /// Run a monitor
    Run {
        #[command(flatten)]
        daemon: DaemonArgs,
    },
}

/// Parses the name of a type of keys.
pub(crate) fn key_type(name: &str) -> Result<KeyType, String> {
    KeyType::from_name(name).ok_or_else(|| format!("{name:?} is no type of keys; there are aes and aes256k"))
}

/// Monitors by name, with their addresses.
type Monitors = Vec<(String, EntityAddrVec)>;

/// Runs `spirula mon …`.
pub(crate) async fn mon(command: MonCommand) -> Result<(), Error> {
    match command {
        MonCommand::Mkfs {
            daemon,
            keyring,
            monmap,
            key_type,
        } => {
            let section = Section::load(Kind::Mon, &daemon)?;
            section.enter_user(&daemon)?;
            let monitors = match monmap {
                Some(path) => read_monmap(&section, &path)?,
                None => initial_monitors(&section)?,
            };
            mkfs(&section, read_keyring(&keyring)?, monitors, key_type).await
        }
        MonCommand::Run { daemon } => {
            let section = Section::load(Kind::Mon, &daemon)?;
            section.enter_user(&daemon)?;
            // Before anything is left in the run directory that the right user could not take over.
            let data = section.data()?;
            let _pid_file = section.pid_file()?;
            let known = spirula_mon::known_address(&data, section.id());
            let known = known.map_err(|e| Error::Daemon(e.to_string()))?;
            let configured = configured_address(&section, section.id())?;
            if let (Some(known), Some(other)) = (known, configured.filter(|c| Some(*c) != known)) {
                tracing::warn!(
                    "{} listens on {known}, as the monitor map says, and not on {other}, as {} does",
                    section.name,
                    section.path.display()
                );
            }
            spirula_mon::run(config(&section, known)?, stop_signal())
                .await
                .map_err(|e| Error::Daemon(e.to_string()))
        }
    }
}

/// The configuration of the monitor. `known` is its address in a monitor map.
fn config(section: &Section, known: Option<SocketAddr>) -> Result<MonConfig, Error> {
    let bind = match known {
        Some(addr) => Some(addr),
        None => configured_address(section, section.id())?,
    };
    let bind = match bind {
        Some(addr) => Some(addr),
        None => mon_address(section, &host_addresses()?)?,
    };
    let missing = || {
        section.bad(format!(
            "no address of {}: it is in no monitor map, mon_addr is missing in its section, none of mon_host is this \
             host's, and neither public_addr nor public_network is set",
            section.name
        ))
    };
    Ok(MonConfig {
        data: section.data_path()?,
        name: section.id().to_owned(),
        fsid: section.fsid()?,
        bind: bind.ok_or_else(missing)?,
        admin_socket: section.admin_socket()?,
        options: section.file.all_for(&section.name),
    })
}

/// The names in `mon_initial_members`.
fn initial_members(section: &Section) -> Vec<String> {
    let text = section.get("mon_initial_members").unwrap_or_default();
    let words = text.split(|c: char| c == ',' || c.is_whitespace());
    words.filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

/// A monitor's configured address: `mon_addr` in its section, or its place in `mon_host`, if that
/// has one address for each of `mon_initial_members`.
fn configured_address(section: &Section, name: &str) -> Result<Option<SocketAddr>, Error> {
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

/// The monitors of a new cluster, as the configuration file names them; none if this one is alone.
fn initial_monitors(section: &Section) -> Result<Monitors, Error> {
    let names = initial_members(section);
    let own = section.id();
    if names == [own] {
        return Ok(Vec::new());
    }
    if names.is_empty() {
        let hosts = parse_mon_host(&section.get("mon_host").unwrap_or_default());
        return match hosts.len() {
            0 | 1 => Ok(Vec::new()),
            // Each of them would otherwise found a cluster of its own.
            n => Err(section.bad(format!(
                "mon_host has {n} monitors: their names are needed, in mon_initial_members or by --monmap"
            ))),
        };
    }
    let one = |name: String| match configured_address(section, &name)? {
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

/// The port of msgr1, and the port of msgr2 that Ceph gives to a monitor which only had the former.
const MSGR1_PORT: u16 = 6789;
const MSGR2_PORT: u16 = 3300;

/// A monitor's address for msgr2, the only protocol here. `monmaptool --add NAME IP` writes an
/// address for msgr1 alone; such a monitor gets the port that `ceph mon enable-msgr2` would give
/// it.
fn msgr2_address(addrs: &EntityAddrVec) -> Option<SocketAddr> {
    let of_msgr1 = || {
        let legacy = addrs.0.iter().find(|a| a.kind == AddrType::LEGACY)?.socket?;
        (legacy.port() == MSGR1_PORT).then(|| SocketAddr::new(legacy.ip(), MSGR2_PORT))
    };
    addrs.v2().and_then(|a| a.socket).or_else(of_msgr1)
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
    let infos = map.ranks.iter().filter_map(|n| map.mons.get(n));
    let one = |i: &MonInfo| match msgr2_address(&i.public_addrs) {
        Some(at) => Ok((i.name.clone(), EntityAddr::v2(at, 0).into())),
        None => Err(bad(format!(
            "mon.{} has no msgr2 address: {}",
            i.name, i.public_addrs
        ))),
    };
    infos.map(one).collect()
}

async fn mkfs(
    section: &Section,
    keyring: Keyring,
    monitors: Monitors,
    key_type: KeyType,
) -> Result<(), Error> {
    let own = monitors.iter().find(|(name, _)| name == section.id());
    let known = own.and_then(|(_, addrs)| addrs.v2()?.socket);
    let seed = MkfsConfig {
        keyring,
        monitors,
        key_type,
    };
    spirula_mon::mkfs(&config(section, known)?, &seed)
        .await
        .map_err(|e| Error::Daemon(e.to_string()))
}

/// Makes the data of monitor `id`, as `spirula mon mkfs` does.
pub(crate) async fn mon_mkfs_for(
    conf: &Path,
    id: &str,
    keyring: Keyring,
    key_type: KeyType,
) -> Result<(), Error> {
    let section = Section::load(Kind::Mon, &DaemonArgs::new(id, conf))?;
    let monitors = initial_monitors(&section)?;
    mkfs(&section, keyring, monitors, key_type).await
}

#[cfg(test)]
mod tests {
    use super::super::section::test_section;
    use super::*;

    fn initial(text: &str) -> Result<usize, String> {
        let monitors = initial_monitors(&test_section("mon.a", text));
        monitors.map(|m| m.len()).map_err(|e| e.to_string())
    }

    #[test]
    fn monitors_of_a_map_speak_msgr2() {
        let at = |words: &[&str]| {
            let parsed = words.iter().map(|w| w.parse().unwrap());
            msgr2_address(&EntityAddrVec(parsed.collect())).map(|a| a.to_string())
        };
        let some = |t: &str| Some(t.to_owned());
        assert_eq!(
            at(&["v2:10.0.0.1:3301/0", "v1:10.0.0.1:6789/0"]),
            some("10.0.0.1:3301")
        );
        assert_eq!(at(&["v1:10.0.0.1:6789/0"]), some("10.0.0.1:3300"));
        assert_eq!(at(&["v1:10.0.0.1:6790/0"]), None);
    }

    #[test]
    fn the_first_monitors_are_named() {
        assert_eq!(initial("mon_host = 10.0.0.1"), Ok(0));
        assert_eq!(
            initial("mon_initial_members = a\nmon_host = 10.0.0.1,10.0.0.2"),
            Ok(0)
        );
        assert_eq!(
            initial("mon_initial_members = a b\nmon_host = 10.0.0.1,10.0.0.2"),
            Ok(2)
        );
        let refused = |text| initial(text).unwrap_err();
        assert!(refused("mon_host = 10.0.0.1,10.0.0.2").contains("mon_host has 2 monitors"));
        assert!(
            refused("mon_initial_members = b c\nmon_host = 10.0.0.1,10.0.0.2").contains("--monmap is needed")
        );
        assert!(refused("mon_initial_members = a b\nmon_host = 10.0.0.1").contains("no address of mon.a"));
    }
}
