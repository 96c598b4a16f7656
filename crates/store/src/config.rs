//! Sizes and limits.

use spirula_buf::Pool;

use crate::EncryptionKey;

/// Unit of allocation, checksums and direct I/O, in bytes.
pub const BLOCK: usize = 4096;
/// [`BLOCK`] as `u64`.
pub(crate) const BLOCK64: u64 = BLOCK as u64;

/// Run-time settings of a store. None of them is part of the disk format.
#[derive(Clone)]
pub struct Config {
    /// Bytes that changes may occupy until the index has taken them in. A quarter each: the active
    /// generation, the one being written back, the one that waits for the index, and the one that
    /// the index takes in. A further quarter is used when one more generation has to wait for its
    /// write-back; then [`Store::writable`](crate::Store::writable) returns false.
    pub memtable_bytes: usize,
    /// The most objects and pairs that wait for the index.
    pub memtable_entries: usize,
    /// Cache of the index library, in bytes.
    pub index_cache_bytes: usize,
    /// Bytes of the filter that tells which objects do not exist: useful up to three objects a
    /// byte.
    pub presence_bytes: usize,
    /// Cache of onodes, in bytes.
    pub onode_cache_bytes: usize,
    /// Whether small reads may go through the system's page cache, which keeps what they read while
    /// memory is free.
    pub cached_reads: bool,
    /// Writes of at least this many bytes go to free extents directly; smaller ones through the
    /// log.
    pub direct_min: usize,
    /// Bytes of placed data that are on their way to the device at a time, so that the log does not
    /// wait behind more. The rest waits.
    pub place_at_once: usize,
    /// Largest write to the log, in bytes (a single larger transaction makes a larger one).
    pub group_bytes: usize,
    /// The pool of buffers for reads; `None`: a pool of the store's own.
    pub pool: Option<Pool>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            memtable_bytes: 20 << 20,
            memtable_entries: 16_000,
            // The page cache stands behind it.
            index_cache_bytes: 6 << 20,
            presence_bytes: 1 << 20,
            onode_cache_bytes: 6 << 20,
            cached_reads: true,
            direct_min: 64 << 10,
            place_at_once: 512 << 10,
            group_bytes: 1 << 20,
            pool: None,
        }
    }
}

impl Config {
    /// The most memory of one generation of changes, in bytes.
    pub(crate) fn generation_bytes(&self) -> usize {
        self.memtable_bytes / 4
    }

    /// Settings that share `total` bytes over caches and memtables as the defaults do (those are
    /// for 36 MiB, of which 3 MiB are left for what is not counted).
    pub fn with_budget(total: usize) -> Self {
        let d = Self::default();
        let share = |bytes: usize| bytes / 36 * (total >> 20).max(4);
        Self {
            memtable_bytes: share(d.memtable_bytes),
            memtable_entries: d.memtable_entries,
            index_cache_bytes: share(d.index_cache_bytes),
            presence_bytes: share(d.presence_bytes),
            onode_cache_bytes: share(d.onode_cache_bytes),
            ..d
        }
    }
}

/// Parameters of `mkfs`, fixed for the life of the store.
#[derive(Debug, Clone)]
pub struct MkfsOptions {
    /// The cluster this store belongs to.
    pub fsid: [u8; 16],
    /// The daemon this store belongs to.
    pub osd_uuid: [u8; 16],
    /// Number of the OSD, for humans.
    pub whoami: u32,
    /// Size of the log, in bytes: rounded down to blocks. At least 256 KiB. A log device has at
    /// least this size: what a transaction may carry depends on the log's.
    pub log_bytes: u64,
    /// Encrypts the store, and opens it from then on.
    pub key: Option<EncryptionKey>,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        Self {
            fsid: [0; 16],
            osd_uuid: [0; 16],
            whoami: 0,
            log_bytes: 64 << 20,
            key: None,
        }
    }
}

/// Space and contents, in bytes unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatFs {
    /// The capacity of the device without the reserve, as far as the file system below still has
    /// the space.
    pub total: u64,
    /// Bytes that may still be allocated to objects.
    pub available: u64,
    /// Held back so that removals and metadata never fail, the index included.
    pub reserved: u64,
    /// Occupied by object data.
    pub allocated: u64,
    /// Sum of the objects' sizes.
    pub stored: u64,
    /// Occupied by the index (onodes, omap, meta).
    pub index: u64,
    /// Occupied by the log and the superblocks.
    pub fixed: u64,
    /// Number of objects.
    pub objects: u64,
}
