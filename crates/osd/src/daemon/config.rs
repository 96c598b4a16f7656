//! The settings with which a daemon is made and started.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use spirula_cephx::CryptoKey;
use spirula_denc::{EntityAddr, Fsid};
use spirula_maps::OsdId;
use spirula_store::{EncryptionKey, MkfsOptions};

use super::OsdError;

/// A daemon's settings.
#[derive(Debug, Clone)]
pub struct OsdConfig {
    /// The OSD's number.
    pub id: OsdId,
    /// The file or block device of its store.
    pub device: PathBuf,
    /// A separate file or device for the store's log.
    pub log_device: Option<PathBuf>,
    /// The key that opens the store, if it is encrypted.
    pub encryption_key: Option<EncryptionKey>,
    /// The cluster's id.
    pub fsid: Fsid,
    /// The monitors' addresses.
    pub monitors: Vec<EntityAddr>,
    /// The key of `osd.ID`.
    pub key: CryptoKey,
    /// The address to listen on for clients; ports are from `ms_bind_port_min` to
    /// `ms_bind_port_max`.
    pub public_addr: IpAddr,
    /// The address to listen on for other OSDs.
    pub cluster_addr: IpAddr,
    /// The admin socket.
    pub admin_socket: Option<spirula_asok::Place>,
    /// The bytes of memory that the OSD may use.
    pub memory_target: usize,
    /// The OSD's place in the CRUSH map, such as `host=a`.
    pub crush_location: BTreeMap<String, String>,
    /// The OSD's device class; if empty, `hdd` or `ssd` as its device is.
    pub device_class: String,
    /// Options that were set, for `config show`, by their official names.
    pub options: BTreeMap<String, String>,
    /// Makes the process' allocator return free memory.
    pub give_back: fn(),
}

/// The bytes that an OSD takes besides payload, tables and caches: its program, stacks, maps, and
/// what the allocator keeps.
const FIXED_MEMORY: usize = 24 << 20;
/// The memory target that [`FIXED_MEMORY`] is for. With a smaller target the allocator keeps as
/// much, for which everything else leaves out a quarter of the difference.
const DEFAULT_TARGET: usize = 128 << 20;

impl OsdConfig {
    /// Bytes of the target that payload, tables and caches share.
    pub(super) fn shared_memory(&self) -> usize {
        let fixed = FIXED_MEMORY + DEFAULT_TARGET.saturating_sub(self.memory_target) / 4;
        self.memory_target
            .saturating_sub(fixed)
            .max(self.memory_target / 8 * 3)
    }

    /// The bytes of payloads that clients, other OSDs and reads each have for themselves. A payload
    /// larger than half of that passes one at a time: at the default target, half is an object's
    /// usual 4 MiB.
    pub(super) fn own_payload_bytes(&self) -> usize {
        self.shared_memory() / 12
    }

    /// The bytes of payloads that the three have for themselves together.
    pub(super) fn all_own_payload_bytes(&self) -> usize {
        3 * self.own_payload_bytes()
    }

    /// The bytes of payloads that clients, other OSDs and reads may borrow.
    pub(super) fn lendable_payload_bytes(&self) -> usize {
        self.shared_memory() / 8
    }

    /// The bytes of payloads, all together.
    pub(super) fn payload_bytes(&self) -> usize {
        self.all_own_payload_bytes() + self.lendable_payload_bytes()
    }

    /// The bytes besides payload that clients' requests may take while they wait or are under way.
    pub(super) fn held_bytes(&self) -> usize {
        self.shared_memory() / 8
    }

    /// The bytes of clients' payloads that may be in memory.
    pub(super) fn client_bytes(&self) -> usize {
        self.own_payload_bytes() + self.lendable_payload_bytes()
    }
}

/// The settings of a store to be made.
#[derive(Debug, Clone)]
pub struct MkfsConfig<'a> {
    /// The OSD's number.
    pub id: OsdId,
    /// The file (which is created) or block device.
    pub device: &'a Path,
    /// A separate file or device for the log.
    pub log_device: Option<&'a Path>,
    /// The key that will open the store; without it, the store is not encrypted.
    pub encryption_key: Option<EncryptionKey>,
    /// The size in bytes, for a file.
    pub size: u64,
    /// The cluster's id.
    pub fsid: Fsid,
    /// The store's own id, any random one.
    pub uuid: Fsid,
}

/// Makes the store of a new OSD. Everything on the device is lost.
///
/// # Errors
/// Where the device can't be opened or is too small.
pub fn mkfs(c: &MkfsConfig<'_>) -> Result<(), OsdError> {
    let opts = MkfsOptions {
        fsid: c.fsid.0,
        osd_uuid: c.uuid.0,
        whoami: c.id.into(),
        key: c.encryption_key.clone(),
        ..MkfsOptions::default()
    };
    spirula_store::mkfs(c.device, c.size, c.log_device, &opts)?;
    Ok(())
}
