//! Payloads that travel with the checksums the disk will keep, so that they are computed once.

use bytes::Bytes;
use spirula_denc::{Error, Reader, Result, Writer};

/// CRC-32C of each block of a payload; the last block may be short. Blocks are counted from the payload's
/// start, which the sender aligns to the object's blocks where it wants the sums to be reused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockSums {
    /// Bytes of a block: a power of two, or 0 where there are no sums.
    pub block: u32,
    /// One for each block.
    pub crc32c: Vec<u32>,
}

impl BlockSums {
    /// No sums: the receiver computes its own.
    pub const NONE: Self = Self {
        block: 0,
        crc32c: Vec::new(),
    };

    /// Whether there are sums.
    pub fn is_some(&self) -> bool {
        self.block != 0
    }

    /// Whether there is one sum for each block of `len` bytes, or none at all.
    pub fn fits(&self, len: usize) -> bool {
        if self.block == 0 {
            return self.crc32c.is_empty();
        }
        let Ok(block) = usize::try_from(self.block) else {
            return false;
        };
        block.is_power_of_two() && self.crc32c.len() == len.div_ceil(block)
    }
}

/// A payload in the data segment and its sums in the front segment. The sums are as the sender says: whoever
/// must not trust them checks them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckedData {
    /// The bytes, shared with the message.
    pub data: Bytes,
    /// Their sums.
    pub sums: BlockSums,
}

impl CheckedData {
    pub(super) fn encode(&self, w: &mut Writer) {
        w.count(self.data.len());
        w.u32(self.sums.block);
        if self.sums.is_some() {
            for sum in &self.sums.crc32c {
                w.u32(*sum);
            }
        }
    }

    /// Reads sums, and takes the bytes from `at` on from the data segment; moves `at` behind them.
    pub(super) fn decode(r: &mut Reader<'_>, data: &crate::BytesList, at: &mut usize) -> Result<Self> {
        let len = usize::try_from(r.u32()?).map_err(|_| Error::Invalid("payload length"))?;
        let left = data.len() - *at;
        let bytes = data
            .slice(*at, len)
            .ok_or(Error::Truncated { wanted: len, left })?;
        *at += len;
        let block = r.u32()?;
        let mut sums = BlockSums {
            block,
            crc32c: Vec::new(),
        };
        if block != 0 {
            if !block.is_power_of_two() {
                return Err(Error::Invalid("checksum block"));
            }
            let n = len.div_ceil(usize::try_from(block).map_err(|_| Error::Invalid("checksum block"))?);
            let wanted = n.saturating_mul(4);
            if wanted > r.remaining() {
                return Err(Error::Truncated {
                    wanted,
                    left: r.remaining(),
                });
            }
            sums.crc32c.reserve_exact(n);
            for _ in 0..n {
                sums.crc32c.push(r.u32()?);
            }
        }
        Ok(Self { data: bytes, sums })
    }
}
