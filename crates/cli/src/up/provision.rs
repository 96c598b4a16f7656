//! Making daemons that don't exist yet, in the steps that an administrator would take.

use std::path::Path;

use bytes::Bytes;
use serde_json::json;
use spirula_cephx::{AuthName, CryptoKey, Env, KeyType, Keyring};
use spirula_denc::{EntityType, Fsid, UTime};
use spirula_store::EncryptionKey;

use super::census;
use crate::admin::Admin;
use crate::daemon;
use crate::error::Error;
use crate::layout::{Layout, Spec, write_durably};

/// A daemon's directory holds this file once the daemon was made completely.
pub(super) const READY: &str = "ready";

pub(super) fn is_ready(layout: &Layout, name: &str) -> bool {
    layout.data(name).join(READY).exists()
}

fn set_ready(layout: &Layout, name: &str) -> Result<(), Error> {
    write_durably(&layout.data(name).join(READY), b"ready\n")
}

fn new_key(kind: KeyType) -> Result<CryptoKey, Error> {
    CryptoKey::generate(kind, &Env::system(UTime::now()))
        .map_err(|e| Error::Daemon(format!("no new key: {e}")))
}

/// The key of an entity in a keyring's file, where both are there.
fn kept_key(path: &Path, name: &AuthName) -> Option<CryptoKey> {
    let text = std::fs::read_to_string(path).ok()?;
    Keyring::parse(&text).ok()?.key(name).cloned()
}

/// Makes the monitors that are missing. All have the key of `mon.`; that and the key of `client.admin` are new where no
/// monitor is there yet.
pub(super) async fn mons(layout: &Layout, spec: &Spec) -> Result<(), Error> {
    let names: Vec<String> = spec
        .mons()
        .into_iter()
        .map(|(id, _)| format!("mon.{id}"))
        .collect();
    let (ready, missing): (Vec<_>, Vec<_>) = names.iter().partition(|n| is_ready(layout, n));
    if missing.is_empty() {
        return Ok(());
    }
    let keyring = |name: &String| layout.data(name).join("keyring");
    let shared = ready
        .iter()
        .find_map(|n| kept_key(&keyring(n), &AuthName::monitors()));
    let admin = AuthName::new(EntityType::CLIENT, "admin");
    let admin = shared
        .as_ref()
        .and_then(|_| kept_key(&layout.admin_keyring(), &admin));
    let kind = spec.key_type()?;
    let key = |kept: Option<CryptoKey>| kept.map_or_else(|| new_key(kind), Ok);
    let all = "allow *";
    let own = format!(
        "[mon.]\n\tkey = {}\n\tcaps mon = \"{all}\"\n",
        key(shared)?.to_base64()
    );
    let admin = format!(
        "[client.admin]\n\tkey = {}\n\tcaps mds = \"{all}\"\n\tcaps mgr = \"{all}\"\n\tcaps mon = \"{all}\"\n\tcaps osd = \"{all}\"\n",
        key(admin)?.to_base64()
    );
    if ready.is_empty() {
        write_durably(&layout.admin_keyring(), admin.as_bytes())?;
    }
    let initial = Keyring::parse(&format!("{own}{admin}"))
        .map_err(|e| Error::Daemon(format!("initial keyring: {e}")))?;
    for name in missing {
        let data = layout.data(name);
        if data.exists() {
            // A crash in the middle of making it: nothing in it was ever used.
            std::fs::remove_dir_all(&data).map_err(|e| Error::path("remove", &data, e))?;
        }
        spirula_files::directory(&data)?;
        write_durably(&data.join("keyring"), own.as_bytes())?;
        let id = name.trim_start_matches("mon.");
        daemon::mon_mkfs_for(&layout.conf(), id, initial.clone(), kind).await?;
    }
    // All at once: had some been made with other keys, they would never find each other.
    names.iter().try_for_each(|name| set_ready(layout, name))
}

/// Begins an OSD: its UUID is kept first, so that a second attempt finds the entry that the first one made in the cluster's map.
pub(super) fn begin_osd(layout: &Layout, n: u32) -> Result<Fsid, Error> {
    let data = layout.data(&format!("osd.{n}"));
    spirula_files::directory(&data)?;
    if let Some(uuid) = census::uuid(&data) {
        return Ok(uuid);
    }
    let uuid = census::stored(&data).unwrap_or_else(|| Fsid(uuid::Uuid::new_v4().into_bytes()));
    write_durably(&data.join("fsid"), format!("{uuid}\n").as_bytes())?;
    Ok(uuid)
}

/// Makes an OSD, or what is missing of one that was begun: an entry in the cluster's map, a key, a store. A store that is there
/// is kept.
pub(super) async fn osd(layout: &Layout, spec: &Spec, admin: &Admin, n: u32) -> Result<(), Error> {
    let name = format!("osd.{n}");
    let data = layout.data(&name);
    let uuid = begin_osd(layout, n)?;
    let key_file = data.join("keyring");
    let key = match std::fs::read_to_string(&key_file)
        .ok()
        .and_then(|t| Keyring::parse(&t).ok())
    {
        Some(ring) => name.parse().ok().and_then(|n| ring.key(&n).cloned()),
        None => None,
    };
    let key = match key {
        Some(key) => key,
        None => {
            let key = new_key(spec.key_type()?)?;
            let text = format!("[{name}]\n\tkey = {}\n", key.to_base64());
            write_durably(&key_file, text.as_bytes())?;
            key
        }
    };
    let secrets = json!({"cephx_secret": key.to_base64()}).to_string();
    let command = json!({"prefix": "osd new", "uuid": uuid.to_string(), "id": n, "format": "json"});
    admin.command(command, secrets.into()).await?;
    // What was begun encrypted is finished so.
    let lockbox = data.join(daemon::LOCKBOX);
    let encryption_key = match spec.encrypt || lockbox.exists() {
        true => Some(encryption_key(admin, &lockbox, uuid).await?),
        false => None,
    };
    daemon::osd_mkfs_for(&layout.conf(), n, uuid, spec.osd_size, encryption_key)?;
    set_ready(layout, &name)
}

/// The key of a new encrypted store, which the monitors keep, and the keyring with which the OSD asks them for it: both under
/// the names that Ceph's tools give them.
async fn encryption_key(admin: &Admin, lockbox: &Path, uuid: Fsid) -> Result<EncryptionKey, Error> {
    let (entity, place) = (daemon::lockbox_name(uuid).to_string(), daemon::config_key(uuid));
    let caps = format!("allow command \"config-key get\" with key=\"{place}\"");
    let command =
        json!({"prefix": "auth get-or-create", "entity": entity, "caps": ["mon", caps], "format": "json"});
    let answer = admin.command(command, Bytes::new()).await?;
    let key = answer[0]["key"]
        .as_str()
        .ok_or_else(|| Error::Daemon(format!("the monitors give no key of {entity}")))?;
    let new = || Ok(Bytes::copy_from_slice(EncryptionKey::random()?.as_bytes()));
    let kept = admin.kept_or_new(&place, new).await?;
    let text = format!("[{entity}]\n\tkey = {key}\n");
    write_durably(lockbox, text.as_bytes())?;
    Ok(EncryptionKey::new(kept.to_vec())?)
}
