//! Making OSDs.

use std::path::Path;

use bytes::Bytes;
use serde_json::json;
use spirula_denc::Fsid;
use spirula_maps::OsdId;
use spirula_store::EncryptionKey;

use super::super::census;
use super::{kept_key, new_key, section, set_ready};
use crate::admin::Admin;
use crate::daemon::{self, DaemonName, Kind};
use crate::error::Error;
use crate::layout::{Layout, Spec, write_durably};

/// Begins an OSD: its UUID is stored first, so that a second attempt finds the first one's entry in
/// the cluster's map.
pub(in crate::up) fn begin(layout: &Layout, n: OsdId) -> Result<Fsid, Error> {
    let data = layout.data(&DaemonName::osd(n));
    spirula_files::directory(&data)?;
    if let Some(uuid) = census::uuid(&data) {
        return Ok(uuid);
    }
    let uuid = census::stored(&data).unwrap_or_else(|| Fsid(uuid::Uuid::new_v4().into_bytes()));
    write_durably(&data.join("fsid"), format!("{uuid}\n").as_bytes())?;
    Ok(uuid)
}

/// Makes an OSD, or the missing parts of one that was begun: an entry in the cluster's map, a key,
/// a store. An existing store is kept.
pub(in crate::up) async fn make(layout: &Layout, spec: &Spec, admin: &Admin, n: OsdId) -> Result<(), Error> {
    let name = DaemonName::osd(n);
    let data = layout.data(&name);
    let uuid = begin(layout, n)?;
    let entity = name.entity();
    let key_file = layout.keyring(&name);
    let kept = entity.parse().ok().and_then(|e| kept_key(&key_file, &e));
    let key = match kept {
        Some(key) => key,
        None => {
            let key = new_key(spec.key_type()?)?;
            let text = section(&entity, &key.to_base64(), Kind::Osd.caps());
            write_durably(&key_file, text.as_bytes())?;
            key
        }
    };
    let secrets = json!({"cephx_secret": key.to_base64()}).to_string();
    let command = json!({"prefix": "osd new", "uuid": uuid.to_string(), "id": n, "format": "json"});
    admin.command(command, secrets.into()).await?;
    // An OSD that was begun encrypted is finished encrypted.
    let lockbox = data.join(daemon::LOCKBOX);
    let encryption_key = match spec.encrypt || lockbox.exists() {
        true => Some(encryption_key(admin, &lockbox, uuid).await?),
        false => None,
    };
    daemon::osd_mkfs_for(&layout.conf(), n, uuid, spec.osd_size, encryption_key)?;
    set_ready(layout, &name)
}

/// Makes the key of a new encrypted store, which the monitors keep, and the keyring with which the
/// OSD asks them for it: both under the names that Ceph's tools use.
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
    write_durably(lockbox, section(&entity, key, &[]).as_bytes())?;
    Ok(EncryptionKey::new(kept.to_vec())?)
}
