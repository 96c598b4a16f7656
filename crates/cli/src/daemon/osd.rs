//! `spirula osd`.

use std::path::{Path, PathBuf};

use spirula_conf::parse_size;
use spirula_denc::Fsid;
use spirula_maps::OsdId;
use spirula_osd::daemon::OsdConfig;
use spirula_store::EncryptionKey;

use super::address::{host_addresses, osd_addresses};
use super::encryption::{KeyArgs, check_kept, key_to_run, need_key, read_key, superblock};
use super::location::crush_location;
use super::section::Section;
use super::{DaemonArgs, Kind, stop_signal};
use crate::allocator;
use crate::device::{Identity, Plan, Request};
use crate::error::Error;
use crate::up::remove;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum OsdCommand {
    /// Make the store of a new OSD, on `osd_data`/block: a file, or a link to a block device
    Mkfs {
        #[command(flatten)]
        daemon: DaemonArgs,
        /// The OSD's UUID, as given to `ceph osd new`
        #[arg(long)]
        osd_uuid: String,
        /// Size of the store [default: all of a block device, 10G of a file]
        #[arg(long)]
        size: Option<String>,
        /// Overwrite what the file or device holds
        #[arg(long)]
        force: bool,
        /// Encrypt the store with the key that is found as `run` finds it
        #[arg(long)]
        encrypt: bool,
        #[command(flatten)]
        key: KeyArgs,
    },
    /// Run an OSD
    Run {
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        key: KeyArgs,
    },
    /// Take an OSD out of a cluster that `spirula up` has made: when others have what it has, it is
    /// purged, and its directory removed
    Rm(remove::Args),
    /// Change the keys that open the encrypted store of an OSD that does not run. Its data is not
    /// written again
    #[command(subcommand)]
    EncryptionKey(KeyCommand),
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum KeyCommand {
    /// Let the key in a file open the store too
    Add {
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        key: KeyArgs,
        /// The file with the new key
        new: PathBuf,
    },
    /// Let only the key that `run` would find open the store
    Retire {
        #[command(flatten)]
        daemon: DaemonArgs,
        #[command(flatten)]
        key: KeyArgs,
    },
}

/// Runs `spirula osd …`.
pub(crate) async fn osd(command: OsdCommand) -> Result<(), Error> {
    match command {
        OsdCommand::Mkfs {
            daemon,
            osd_uuid,
            size,
            force,
            encrypt,
            key,
        } => {
            if key.encryption_key_file.is_some() && !encrypt {
                return Err(Error::Usage("--encryption-key-file goes with --encrypt".into()));
            }
            let section = Section::load(Kind::Osd, &daemon)?;
            section.enter_user(&daemon)?;
            let uuid =
                Fsid::parse(&osd_uuid).ok_or_else(|| Error::Usage(format!("{osd_uuid:?} is not a UUID")))?;
            let parse = |text: String| {
                parse_size(&text).ok_or_else(|| Error::Usage(format!("{text:?} is not a size")))
            };
            let size = size.map(parse).transpose()?;
            let key = if encrypt {
                Some(need_key(&section, &key, uuid).await?)
            } else {
                None
            };
            mkfs(&section, uuid, size.unwrap_or(FILE_SIZE), size, force, key)
        }
        OsdCommand::Run { daemon, key } => {
            allocator::return_large();
            let section = Section::load(Kind::Osd, &daemon)?;
            section.enter_user(&daemon)?;
            // Before anything is left in the run directory that the right user could not take over.
            section.data()?;
            let _pid_file = section.pid_file()?;
            spirula_osd::daemon::run(config(&section, &key).await?, stop_signal())
                .await
                .map_err(|e| Error::Daemon(e.to_string()))
        }
        OsdCommand::Rm(args) => remove::run(args).await,
        OsdCommand::EncryptionKey(command) => change_key(command).await,
    }
}

async fn change_key(command: KeyCommand) -> Result<(), Error> {
    let (KeyCommand::Add { daemon, key, .. } | KeyCommand::Retire { daemon, key }) = &command;
    let section = Section::load(Kind::Osd, daemon)?;
    section.enter_user(daemon)?;
    let device = device(&section)?;
    let uuid = Fsid(superblock(&device)?.osd_uuid);
    let key = need_key(&section, key, uuid).await?;
    match &command {
        KeyCommand::Add { new, .. } => spirula_store::add_key(&device, &key, &read_key(new)?)?,
        KeyCommand::Retire { .. } => spirula_store::retire_keys(&device, &key)?,
    }
    Ok(())
}

fn id(section: &Section) -> Result<OsdId, Error> {
    let id = section.id();
    id.parse()
        .map_err(|_| Error::Usage(format!("{id:?} is not an OSD's number")))
}

/// The place of an OSD's store: `osd_data/block`, a file or a link to a device.
fn device(section: &Section) -> Result<PathBuf, Error> {
    Ok(section.data()?.join("block"))
}

/// Size of a store on a file by default.
const FILE_SIZE: u64 = 10 << 30;

fn mkfs(
    section: &Section,
    uuid: Fsid,
    file_size: u64,
    device_size: Option<u64>,
    force: bool,
    encryption_key: Option<EncryptionKey>,
) -> Result<(), Error> {
    let device = device(section)?;
    let log_device = section.get("osd_log_device").map(PathBuf::from);
    let (id, fsid) = (id(section)?, section.fsid()?);
    let request = Request {
        device: &device,
        log: log_device.as_deref(),
        file_size: Some(file_size),
        device_size,
        identity: Identity {
            whoami: id,
            fsid,
            uuid,
        },
        force,
    };
    let Plan::Make { size } = request.plan()? else {
        return check_kept(section, &device, encryption_key.as_ref());
    };
    spirula_osd::daemon::mkfs(&spirula_osd::daemon::MkfsConfig {
        id,
        device: &device,
        log_device: log_device.as_deref(),
        encryption_key,
        size,
        fsid,
        uuid,
    })
    .map_err(|e| Error::Daemon(e.to_string()))
}

/// Makes the store of OSD `n`, as `spirula osd mkfs` does: of `size` on a file, on all of a block
/// device, encrypted with `key`.
pub(crate) fn osd_mkfs_for(
    conf: &Path,
    n: OsdId,
    uuid: Fsid,
    size: u64,
    key: Option<EncryptionKey>,
) -> Result<(), Error> {
    let args = DaemonArgs::new(&n.to_string(), conf);
    mkfs(&Section::load(Kind::Osd, &args)?, uuid, size, None, false, key)
}

/// The default of an OSD's memory in bytes.
const OSD_MEMORY: u64 = 128 << 20;

async fn config(section: &Section, key: &KeyArgs) -> Result<OsdConfig, Error> {
    let memory = section.size("osd_memory_target", OSD_MEMORY)?;
    let addresses = osd_addresses(section, &host_addresses()?)?;
    let device = device(section)?;
    let encryption_key = key_to_run(section, key, &device).await?;
    Ok(OsdConfig {
        id: id(section)?,
        device,
        encryption_key,
        log_device: section.get("osd_log_device").map(PathBuf::from),
        fsid: section.fsid()?,
        monitors: section.monitors()?,
        key: section.key()?,
        public_addr: addresses.public,
        cluster_addr: addresses.cluster,
        admin_socket: section.admin_socket()?,
        memory_target: usize::try_from(memory)
            .map_err(|_| section.bad("osd_memory_target is more than this machine addresses".into()))?,
        crush_location: crush_location(section).await?,
        device_class: section.get("osd_crush_device_class").unwrap_or_default(),
        options: section.file.all_for(&section.name),
        give_back: allocator::give_back,
    })
}
