//! The layout of the device: the superblock and the fixed areas (see FORMAT.md, "Layout").

use std::sync::Arc;

use spirula_buf::Pool;

use crate::codec::{Dec, Enc};
use crate::config::{BLOCK, BLOCK64, MkfsOptions};
use crate::crypt::{SLOT_LEN, Slot};
use crate::device::BlockIo;
use crate::{Result, StoreError};

/// First bytes of a superblock.
pub(crate) const MAGIC: &[u8; 8] = b"SPIRULA\0";
/// Versions of the disk format, and of that of encrypted stores.
///
/// 1: the first. 2: objects are moved (step 18 of the log). 3: holes within blocks (version 2 of
/// the onode, step 19). 4: the first of encrypted stores, otherwise equal to 3. 5: ranges of blocks
/// are shared (step 20). 7: ranges of the index are lost.
///
/// A store is of version 3, or 4, until the first range is shared: builds that do not know step 20
/// open it as long as it has none. It is of version 7, or 8, only until its owner has acted on what
/// is lost.
const VERSION: [u32; 2] = [3, 4];
/// Versions of stores that share ranges of blocks.
const RANGES_VERSION: [u32; 2] = [5, 6];
/// Versions of stores that have lost ranges of the index; they may share ranges of blocks.
const LOST_VERSION: [u32; 2] = [7, 8];
/// The cipher of encrypted stores: AES-256-XTS.
const CIPHER_XTS: u32 = 1;
/// Most keys that can open a store.
pub(crate) const MAX_SLOTS: usize = 2;

/// Offsets of the two copies of the superblock, in bytes.
pub(crate) const SUPERBLOCKS: [u64; 2] = [0, 64 << 10];
/// The unencrypted start of the main device in bytes: the superblocks, and zeros.
pub(crate) const CLEAR: u64 = 128 << 10;
/// As [`CLEAR`], on a log's own device.
pub(crate) const LOG_CLEAR: u64 = BLOCK64;
/// Offsets of the two copies of the index map, in bytes.
pub(crate) const INDEX_MAPS: [u64; 2] = [128 << 10, 192 << 10];
/// Size of one copy of the index map, in bytes.
pub(crate) const INDEX_MAP_LEN: usize = 64 << 10;
/// The offset of the log on the main device, in bytes.
pub(crate) const LOG_START: u64 = 256 << 10;
/// The offset of the log on a device of its own (behind that device's superblock), in bytes.
pub(crate) const SEPARATE_LOG_START: u64 = BLOCK64;

/// Smallest log, in bytes.
pub(crate) const MIN_LOG: u64 = 256 << 10;
/// Most groups that a device is divided into, as long as they stay below [`MAX_GROUP`].
const MAX_GROUPS: u64 = 65_536;
const MAX_GROUP: u64 = 65_536;

/// The superblock: constant properties, and a count of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// The cluster this store belongs to.
    pub fsid: [u8; 16],
    /// The daemon this store belongs to.
    pub osd_uuid: [u8; 16],
    /// Number of the OSD.
    pub whoami: u32,
    /// Size of the device, in 4 KiB blocks.
    pub blocks: u64,
    /// Size of an allocation group, in blocks.
    pub group_blocks: u32,
    /// Whether the log lies on a device of its own.
    pub separate_log: bool,
    /// Size of the log, in blocks.
    pub log_blocks: u64,
    /// How often the store was opened for writing: seals the log records of one mount.
    pub mounts: u64,
    /// The data key, wrapped for each key that opens the store. `None` if it is not encrypted.
    pub(crate) slots: Option<Vec<Slot>>,
    /// Whether ranges of blocks may be shared: the log may have step 20.
    pub(crate) ranges: bool,
    /// Whether ranges of the index are lost, and its owner has not acted on that.
    pub(crate) lost: bool,
}

impl Superblock {
    /// Plans a new store.
    pub(crate) fn plan(size: u64, separate_log: Option<u64>, opts: &MkfsOptions) -> Result<Self> {
        let blocks = size / BLOCK64;
        let group_blocks = (blocks / MAX_GROUPS).next_power_of_two();
        let floor = if blocks >= 1 << 18 { 256 } else { 64 };
        let group_blocks = group_blocks.clamp(floor, MAX_GROUP) as u32;
        let log_bytes = match separate_log {
            Some(size) if size < opts.log_bytes => {
                return Err(StoreError::Invalid(
                    "the log device is smaller than a log has to be",
                ));
            }
            // Its header is hardly anything beside the log.
            Some(size) => size.saturating_sub(SEPARATE_LOG_START),
            None => opts.log_bytes,
        };
        let sb = Self {
            fsid: opts.fsid,
            osd_uuid: opts.osd_uuid,
            whoami: opts.whoami,
            blocks,
            group_blocks,
            separate_log: separate_log.is_some(),
            log_blocks: log_bytes / BLOCK64,
            mounts: 0,
            slots: opts.key.as_ref().map(|_| Vec::new()),
            ranges: false,
            lost: false,
        };
        if !(MIN_LOG..=1 << 40).contains(&log_bytes) {
            return Err(StoreError::Invalid("the log must have 256 KiB to 1 TiB"));
        }
        if sb.groups() < sb.fixed_groups() + 16 {
            return Err(StoreError::Invalid(
                "the device is too small for the log and an index",
            ));
        }
        Ok(sb)
    }

    /// Whether the store is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.slots.is_some()
    }

    /// The identity of this store, to which its slots are bound.
    pub(crate) fn identity(&self) -> [u8; 36] {
        let mut out = [0; 36];
        out[..4].copy_from_slice(&self.whoami.to_le_bytes());
        out[4..20].copy_from_slice(&self.fsid);
        out[20..].copy_from_slice(&self.osd_uuid);
        out
    }

    /// Counts one more opening for writing, which makes the copy written next the newer one.
    pub(crate) fn count_mount(&mut self) -> Result<()> {
        let next = self.mounts.checked_add(1);
        self.mounts = next.ok_or_else(|| StoreError::damaged("superblock", "number of mounts"))?;
        Ok(())
    }

    /// Version of the format.
    pub(crate) fn version(&self) -> u32 {
        let versions = match (self.lost, self.ranges) {
            (true, _) => LOST_VERSION,
            (false, true) => RANGES_VERSION,
            (false, false) => VERSION,
        };
        versions[usize::from(self.is_encrypted())]
    }

    /// Number of whole groups; blocks behind them are not used.
    pub(crate) fn groups(&self) -> u32 {
        (self.blocks / u64::from(self.group_blocks)) as u32
    }

    /// Groups at the start that hold superblocks, index maps and the log.
    pub(crate) fn fixed_groups(&self) -> u32 {
        let log = if self.separate_log { 0 } else { self.log_blocks };
        (LOG_START / BLOCK64 + log).div_ceil(u64::from(self.group_blocks)) as u32
    }

    /// Offset of the log on its device, in bytes.
    pub(crate) fn log_start(&self) -> u64 {
        if self.separate_log {
            SEPARATE_LOG_START
        } else {
            LOG_START
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK);
        out.extend_from_slice(MAGIC);
        let mut e = Enc(&mut out);
        e.u32(self.version());
        e.u32(self.whoami);
        e.0.extend_from_slice(&self.fsid);
        e.0.extend_from_slice(&self.osd_uuid);
        e.u64(self.blocks);
        e.u64(self.log_blocks);
        e.u64(self.mounts);
        e.u32(self.group_blocks);
        e.u32(u32::from(self.separate_log));
        if let Some(slots) = &self.slots {
            e.u32(CIPHER_XTS);
            e.u32(slots.len() as u32);
            slots.iter().for_each(|s| e.0.extend_from_slice(s));
        }
        out.resize(BLOCK - 4, 0);
        let crc = crc32c::crc32c(&out);
        Enc(&mut out).u32(crc);
        out
    }

    fn decode(block: &[u8]) -> Result<Self> {
        let (body, crc) = block.split_at(BLOCK - 4);
        if !body.starts_with(MAGIC) {
            return Err(StoreError::NotAStore("no magic at the start".into()));
        }
        if crc32c::crc32c(body).to_le_bytes() != crc {
            return Err(StoreError::damaged("superblock", "checksum mismatch"));
        }
        let sb = Self::decode_body(&body[MAGIC.len()..])?;
        sb.ok_or_else(|| StoreError::damaged("superblock", "fields out of range"))
    }

    fn decode_body(body: &[u8]) -> Result<Option<Self>> {
        let mut d = Dec::new(body);
        let (encrypted, ranges, lost) = match d.u32() {
            // The next opening for writing makes 1 and 2 to 3.
            Some(1..=3) => (false, false, false),
            Some(4) => (true, false, false),
            Some(5) => (false, true, false),
            Some(6) => (true, true, false),
            Some(7) => (false, true, true),
            Some(8) => (true, true, true),
            other => {
                return Err(StoreError::NotAStore(format!(
                    "format version {}",
                    other.unwrap_or(0)
                )));
            }
        };
        let mut read = || {
            let mut sb = Self {
                whoami: d.u32()?,
                fsid: d.take(16)?.try_into().ok()?,
                osd_uuid: d.take(16)?.try_into().ok()?,
                blocks: d.u64()?,
                log_blocks: d.u64()?,
                mounts: d.u64()?,
                group_blocks: d.u32()?,
                separate_log: d.u32()? != 0,
                slots: None,
                ranges,
                lost,
            };
            if encrypted {
                sb.slots = Some(decode_slots(&mut d)?);
            }
            Some(sb)
        };
        Ok(read().filter(Self::is_sane))
    }

    fn is_sane(&self) -> bool {
        self.group_blocks.is_power_of_two()
            && self.group_blocks >= 64
            && self.blocks / u64::from(self.group_blocks) <= u64::from(u32::MAX)
            && self.log_blocks >= MIN_LOG / BLOCK64
            && self.log_blocks <= 1 << 28
            && self.fixed_groups() < self.groups()
    }

    /// Reads the newer of the two valid copies. Fails if both are damaged.
    pub(crate) fn read(dev: &Arc<dyn BlockIo>) -> Result<Self> {
        let mut best: Result<Self> = Err(StoreError::NotAStore("empty".into()));
        for at in SUPERBLOCKS {
            let copy = read_block(dev, at).and_then(|b| Self::decode(&b));
            best = match (best, copy) {
                (Ok(a), Ok(b)) => Ok(if b.mounts > a.mounts { b } else { a }),
                (Ok(a), Err(_)) => Ok(a),
                (Err(_), other) => other,
            };
        }
        let sb = best?;
        if sb.blocks > dev.size() / BLOCK64 {
            return Err(StoreError::damaged(
                "device",
                format!("{} blocks, formatted with {}", dev.size() / BLOCK64, sb.blocks),
            ));
        }
        Ok(sb)
    }

    /// Whether both copies are valid and the same.
    pub(crate) fn is_whole(dev: &Arc<dyn BlockIo>) -> bool {
        let [a, b] = SUPERBLOCKS.map(|at| read_block(dev, at).and_then(|b| Self::decode(&b)));
        matches!((a, b), (Ok(a), Ok(b)) if a == b)
    }

    /// Writes both copies, one after the other, so that one is always whole.
    pub(crate) fn write(&self, dev: &Arc<dyn BlockIo>) -> Result<()> {
        for at in SUPERBLOCKS {
            let written = dev.write_at(at, &self.encode()).and_then(|()| dev.sync());
            written.map_err(|e| StoreError::io("write superblock", e))?;
        }
        Ok(())
    }

    /// Writes the header of a log device: a superblock that names its store. It has no slots, as it
    /// is not written again when keys are retired.
    pub(crate) fn write_log_header(&self, log: &Arc<dyn BlockIo>) -> Result<()> {
        let header = Self {
            slots: self.slots.as_ref().map(|_| Vec::new()),
            ..self.clone()
        };
        let written = log.write_at(0, &header.encode()).and_then(|()| log.sync());
        written.map_err(|e| StoreError::io("write log header", e))
    }

    /// Checks that `log` belongs to this store.
    pub(crate) fn check_log(&self, log: &Arc<dyn BlockIo>) -> Result<()> {
        let header = Self::decode(&read_block(log, 0)?)?;
        if (header.fsid, header.osd_uuid, header.log_blocks) != (self.fsid, self.osd_uuid, self.log_blocks) {
            return Err(StoreError::NotAStore(
                "the log device belongs to another store".into(),
            ));
        }
        Ok(())
    }
}

/// Whether a log's own device has a valid header.
pub(crate) fn is_log_header(log: &Arc<dyn BlockIo>) -> bool {
    read_block(log, 0).is_ok_and(|b| Superblock::decode(&b).is_ok())
}

fn decode_slots(d: &mut Dec<'_>) -> Option<Vec<Slot>> {
    if d.u32()? != CIPHER_XTS {
        return None;
    }
    let count = d.u32()? as usize;
    if count > MAX_SLOTS {
        return None;
    }
    (0..count).map(|_| d.take(SLOT_LEN)?.try_into().ok()).collect()
}

fn read_block(dev: &Arc<dyn BlockIo>, offset: u64) -> Result<Vec<u8>> {
    if dev.size() < offset + BLOCK64 {
        return Err(StoreError::NotAStore("too small".into()));
    }
    let mut buf = Pool::new(0).get(BLOCK);
    dev.read_at(offset, &mut buf)
        .map_err(|e| StoreError::io("read superblock", e))?;
    Ok(buf.to_vec())
}
