//! A new monitor's first state.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use spirula_cephx::Keyring;
use spirula_crush::CrushMap;
use spirula_denc::{EntityAddr, UTime};
use spirula_maps::{MonMap, OsdMap, OsdMapFlags, release};

use super::{Error, MonConfig, io_error};
use crate::kv::{KvRead, Txn};
use crate::options::Values;
use crate::raft::{Raft, Store};
use crate::service::{Auth, MonMaps, OsdMaps};

/// What a new cluster starts with, besides the monitor's own configuration.
#[derive(Debug, Clone, Default)]
pub struct MkfsConfig {
    /// All monitors with their addresses; empty for this one alone.
    pub members: BTreeMap<String, SocketAddr>,
    /// The first entities: `mon.`, `client.admin`, …, with their capabilities.
    pub keyring: Keyring,
}

/// Writes the first state of a new cluster into the monitor's directory, which is created. The failure domain of the
/// first CRUSH rule is the bucket type in option `osd_crush_chooseleaf_type`.
///
/// # Errors
/// [`Error::Config`] where the directory holds a monitor already; otherwise what the disk says.
pub async fn mkfs(config: &MonConfig, seed: &MkfsConfig) -> Result<(), Error> {
    std::fs::create_dir_all(&config.data).map_err(io_error(config.data.display().to_string()))?;
    let store = Store::open(&config.store_path())?;
    if store
        .get("monmap", "current")
        .map_err(crate::core::LoadError::from)?
        .is_some()
    {
        return Err(Error::Config(format!(
            "{} holds a monitor already",
            config.data.display()
        )));
    }
    let now = UTime::now();
    let mut txn = Txn::default();
    MonMaps::put(&monmap(config, seed, now), &mut txn);
    OsdMaps::create(&osdmap(config, now)?, &mut txn);
    Auth::create(&seed.keyring, &mut txn);
    let members = BTreeMap::from([(0, config.bind.to_string())]);
    let (raft, _applied) = Raft::start(0, store, &members).await?;
    raft.propose(Arc::new(txn)).await?;
    Ok(raft.shutdown().await?)
}

fn monmap(config: &MonConfig, seed: &MkfsConfig, now: UTime) -> MonMap {
    let mut map = MonMap::initial(config.fsid, now);
    for (name, addr) in &seed.members {
        map.add(name, EntityAddr::v2(*addr, 0).into());
    }
    if !seed.members.contains_key(&config.name) {
        map.add(&config.name, config.addrs());
    }
    map.epoch = 1;
    map
}

fn osdmap(config: &MonConfig, now: UTime) -> Result<OsdMap, Error> {
    let values = Values::from_file(config.options.clone());
    let types = CrushMap::new().types;
    let wanted = i32::try_from(values.int("osd_crush_chooseleaf_type")).unwrap_or(1);
    let domain = types.get(&wanted).map_or("host", String::as_str);
    let mut map = OsdMap::new(config.fsid, CrushMap::with_default_root(domain)?);
    map.epoch = 1;
    map.created = now;
    map.modified = now;
    map.flags = OsdMapFlags::NEW_CLUSTER;
    map.full_ratio = values.float("mon_osd_full_ratio") as f32;
    map.backfillfull_ratio = values.float("mon_osd_backfillfull_ratio") as f32;
    map.nearfull_ratio = values.float("mon_osd_nearfull_ratio") as f32;
    map.require_min_compat_client = release::LUMINOUS;
    map.require_osd_release = release::PACIFIC;
    let words = values
        .get("osd_pool_default_erasure_code_profile")
        .split(' ')
        .filter_map(|w| w.split_once('='));
    let profile = words.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    map.erasure_code_profiles.insert("default".to_owned(), profile);
    Ok(map)
}
