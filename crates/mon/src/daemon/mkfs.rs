//! A new monitor's first state.

use std::collections::BTreeMap;

use spirula_cephx::{AuthName, CryptoKey, EntityAuth, Env, KeyType, Keyring};
use spirula_crush::CrushMap;
use spirula_denc::{EntityAddrVec, EntityType, UTime, encode_to_vec};
use spirula_maps::{Epoch, MonMap, OsdMap, OsdMapFlags, release};

use super::seed::{Seed, found};
use super::{Error, MonConfig};
use crate::kv::{KvRead, Txn};
use crate::options::Values;
use crate::raft::{Raft, Store};
use crate::service::{Auth, Ciphers, MonMaps, OsdMaps};

/// The contents of a new cluster, besides the monitor's own configuration.
#[derive(Debug, Clone)]
pub struct MkfsConfig {
    /// The monitors of the cluster, by rank: the first ones of a new cluster, or those of an
    /// existing one. Empty for this one alone.
    pub monitors: Vec<(String, EntityAddrVec)>,
    /// The key of `mon.`, and for a new cluster the other first entities: `client.admin`, … with
    /// their capabilities.
    pub keyring: Keyring,
    /// The type of new keys in a new cluster (`auth_preferred_cipher`), also of its bootstrap keys.
    pub key_type: KeyType,
}

/// Makes a monitor's directory. One that is alone in its cluster gets the first state; another one
/// keeps what it needs until it is made a member, or until the monitors of a new cluster have found
/// each other. The failure domain of the first CRUSH rule is the bucket type in option
/// `osd_crush_chooseleaf_type`.
///
/// # Errors
/// [`Error::Config`] where the directory holds a monitor already, or the keyring no key of `mon.`;
/// otherwise what the disk says.
pub async fn mkfs(config: &MonConfig, plan: &MkfsConfig) -> Result<(), Error> {
    spirula_files::directory(&config.data)?;
    let store = Store::open(&config.store_path())?;
    let is_used = store
        .get("monmap", "current")
        .map_err(crate::core::LoadError::from)?
        .is_some();
    if is_used || store.seed()?.is_some() {
        return Err(Error::Config(format!(
            "{} holds a monitor already",
            config.data.display()
        )));
    }
    let now = UTime::now();
    let monmap = monmap(config, plan, now);
    let first = first_state(config, plan, now)?;
    let alone = monmap.ranks == [config.name.clone()];
    let key = plan.keyring.key(&AuthName::monitors()).cloned();
    if key.is_none() && !alone {
        return Err(Error::Config("the keyring holds no key of mon.".to_owned()));
    }
    let seed = Seed {
        monmap,
        key: key.unwrap_or_default(),
        first,
    };
    // Never 0, which is that of groups of one made before monitors had numbers.
    let number = Env::system(now)
        .random_u64()
        .map_err(|e| Error::Config(format!("no number for the monitor: {e}")))?
        .max(1);
    store.plant(number, &encode_to_vec(&seed))?;
    if alone {
        // There is nobody to call.
        let (calls, _) = tokio::sync::mpsc::unbounded_channel();
        let (raft, _applied) = Raft::start(store.clone(), calls).await?;
        found(&raft, &store, config.node(), &seed).await?;
        raft.shutdown().await?;
    }
    Ok(())
}

/// The state that a new cluster begins with.
///
/// # Errors
/// Where options make no CRUSH map, or the system gives no random numbers.
pub fn first_state(config: &MonConfig, plan: &MkfsConfig, now: UTime) -> Result<Txn, Error> {
    let mut first = Txn::default();
    MonMaps::put(&monmap(config, plan, now), &mut first);
    OsdMaps::create(&osdmap(config, now)?, &mut first);
    let ciphers = Ciphers::preferring(plan.key_type);
    let entities = with_bootstrap_keys(&plan.keyring, ciphers.preferred(), now)?;
    Auth::create(&entities, &ciphers, &mut first);
    Ok(first)
}

/// The entities with which daemons and gateways are made; a new cluster has a key for each, as an
/// official one has.
const BOOTSTRAP: [&str; 6] = ["mds", "mgr", "osd", "rbd", "rbd-mirror", "rgw"];

/// The first entities, with the bootstrap keys that the keyring lacks.
fn with_bootstrap_keys(given: &Keyring, key_type: KeyType, now: UTime) -> Result<Keyring, Error> {
    let no_key = |e| Error::Config(format!("no new key: {e}"));
    let mut all = given.clone();
    for kind in BOOTSTRAP {
        let name = AuthName::new(EntityType::CLIENT, format!("bootstrap-{kind}"));
        if all.entries.contains_key(&name) {
            continue;
        }
        let key = CryptoKey::generate(key_type, &Env::system(now)).map_err(no_key)?;
        let caps = BTreeMap::from([("mon".to_owned(), format!("allow profile bootstrap-{kind}"))]);
        all.entries.insert(name, EntityAuth { key, caps });
    }
    Ok(all)
}

fn monmap(config: &MonConfig, plan: &MkfsConfig, now: UTime) -> MonMap {
    let mut map = MonMap::initial(config.fsid, now);
    for (name, addrs) in &plan.monitors {
        map.add(name, addrs.clone());
    }
    if plan.monitors.is_empty() {
        map.add(&config.name, config.addrs());
    }
    map.epoch = Epoch::new(1);
    map
}

fn osdmap(config: &MonConfig, now: UTime) -> Result<OsdMap, Error> {
    let values = Values::from_file(config.options.clone());
    let types = CrushMap::new().types;
    let wanted = i32::try_from(values.int("osd_crush_chooseleaf_type")).unwrap_or(1);
    let domain = types.get(&wanted).map_or("host", String::as_str);
    let mut map = OsdMap::new(config.fsid, CrushMap::with_default_root(domain)?);
    map.epoch = Epoch::new(1);
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
