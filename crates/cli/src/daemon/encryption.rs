//! Finds the key of an OSD's encrypted store: in a file, or in the monitors under the names that
//! Ceph's tools use.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use spirula_cephx::AuthName;
use spirula_client::{Options, Rados};
use spirula_denc::{EntityType, Fsid};
use spirula_store::{EncryptionKey, KeyProblem, StoreError, Superblock};

use super::section::Section;
use crate::error::Error;

/// How long one attempt to reach the monitors may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Where a daemon looks for its key.
#[derive(Debug, clap::Args)]
pub(crate) struct KeyArgs {
    /// A file with the key of the encrypted store [default: that of
    /// `spirula_osd_encryption_key_file`; without it, the monitors are asked as the user in
    /// `osd_data`/lockbox.keyring]
    #[arg(long)]
    pub(crate) encryption_key_file: Option<PathBuf>,
}

/// The lockbox entity, which may only read the key of the OSD with this UUID.
pub(crate) fn lockbox_name(uuid: Fsid) -> AuthName {
    AuthName::new(EntityType::CLIENT, format!("osd-lockbox.{uuid}"))
}

/// The config-key under which the monitors keep the key of the OSD with this UUID.
pub(crate) fn config_key(uuid: Fsid) -> String {
    format!("dm-crypt/osd/{uuid}/luks")
}

/// The file with the lockbox entity's own key, in the OSD's directory.
pub(crate) const LOCKBOX: &str = "lockbox.keyring";

/// Reads a key from a file.
///
/// # Errors
/// Where it can't be read, or is too short for a key.
pub(crate) fn read_key(path: &Path) -> Result<EncryptionKey, Error> {
    let bytes = std::fs::read(path).map_err(|e| Error::path("read", path, e))?;
    EncryptionKey::new(bytes).map_err(|e| Error::Option {
        path: path.to_owned(),
        what: e.to_string(),
    })
}

/// The key of the OSD's store with this UUID; `None` where no place for it is configured.
pub(super) async fn find_key(
    section: &Section,
    args: &KeyArgs,
    uuid: Fsid,
) -> Result<Option<EncryptionKey>, Error> {
    let option = || section.get("spirula_osd_encryption_key_file").map(PathBuf::from);
    if let Some(path) = args.encryption_key_file.clone().or_else(option) {
        return read_key(&path).map(Some);
    }
    let lockbox = section.data_path()?.join(LOCKBOX);
    if lockbox.exists() {
        return ask_monitors(section, &lockbox, uuid).await.map(Some);
    }
    Ok(None)
}

/// As [`find_key`]; an error where no place for the key is configured.
pub(super) async fn need_key(section: &Section, args: &KeyArgs, uuid: Fsid) -> Result<EncryptionKey, Error> {
    let found = find_key(section, args, uuid).await?;
    let data = section.data_path()?;
    found.ok_or_else(|| {
        Error::Usage(format!(
            "{}: no key for its encrypted store: neither --encryption-key-file nor spirula_osd_encryption_key_file names a file, and \
             there is no {} to ask the monitors with",
            section.name,
            data.join(LOCKBOX).display()
        ))
    })
}

/// The superblock of the store at `device`, which errors name.
pub(super) fn superblock(device: &Path) -> Result<Superblock, Error> {
    spirula_store::superblock(device).map_err(|e| match e {
        StoreError::NotAStore(_) | StoreError::Damaged { .. } => Error::Option {
            path: device.to_owned(),
            what: e.to_string(),
        },
        other => other.into(),
    })
}

/// The key for a running OSD: `None` if its store is not encrypted and no key is configured.
pub(super) async fn key_to_run(
    section: &Section,
    args: &KeyArgs,
    device: &Path,
) -> Result<Option<EncryptionKey>, Error> {
    let store = superblock(device)?;
    let uuid = Fsid(store.osd_uuid);
    if store.is_encrypted() {
        return need_key(section, args, uuid).await.map(Some);
    }
    // One is found where it should be encrypted: then the store refuses it.
    find_key(section, args, uuid).await
}

/// Fails where a kept store is encrypted and no key is wanted, or the reverse; else warns that the
/// store was kept.
pub(super) fn check_kept(
    section: &Section,
    device: &Path,
    wanted: Option<&EncryptionKey>,
) -> Result<(), Error> {
    let store = superblock(device)?;
    let problem = match (store.is_encrypted(), wanted) {
        (true, None) => KeyProblem::Missing,
        (false, Some(_)) => KeyProblem::NotEncrypted,
        _ => {
            tracing::warn!(
                "{} holds the store of {} already; it was kept",
                device.display(),
                section.name
            );
            return Ok(());
        }
    };
    Err(Error::Store(StoreError::Key {
        osd: store.whoami,
        problem,
    }))
}

/// Asks the monitors for the key until they answer: they may come up after the OSD.
async fn ask_monitors(section: &Section, lockbox: &Path, uuid: Fsid) -> Result<EncryptionKey, Error> {
    let name = lockbox_name(uuid);
    let options = Options::load(Some(&section.path), &name, Some(lockbox), None, Some(CONNECT))?;
    let rados = loop {
        match Rados::connect(&options).await {
            Err(spirula_client::Error::Mon(spirula_monc::Error::Timeout)) => {
                tracing::warn!(
                    "{}: no monitor answers, which have its encryption key",
                    section.name
                );
            }
            other => break other?,
        }
    };
    let key = config_key(uuid);
    let command = json!({"prefix": "config-key get", "key": key}).to_string();
    let reply = rados.mon_command(&command, Bytes::new()).await?;
    if reply.result < 0 {
        return Err(Error::Daemon(format!(
            "{}: {name} does not get its encryption key {key} from the monitors: error {} {}",
            section.name, reply.result, reply.status
        )));
    }
    tracing::info!("{}: encryption key from the monitors", section.name);
    Ok(EncryptionKey::new(reply.output.to_vec())?)
}
