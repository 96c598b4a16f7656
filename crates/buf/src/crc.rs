//! Checksums that travel with a buffer, so that each is computed only once.
//!
//! The messenger knows the CRC-32C of each 4 KiB block of a large buffer that it has received, and
//! the store of one that it has read. [`PoolBuf::freeze_checked`](crate::PoolBuf::freeze_checked)
//! stores these checksums under the buffer's address until the buffer returns to its pool, and any
//! holder of a slice may ask for them. The checksum of the whole follows from those of the blocks.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::ALIGN;

/// Slices below this are not looked up: computing is about as fast.
pub(crate) const MIN: usize = 16 << 10;

/// Checksums of a live buffer.
struct Noted {
    len: usize,
    crcs: Arc<[u32]>,
}

/// By the address of the buffer. The buffer is alive, so no other one overlaps it.
static NOTED: Mutex<BTreeMap<usize, Noted>> = Mutex::new(BTreeMap::new());

fn noted() -> MutexGuard<'static, BTreeMap<usize, Noted>> {
    NOTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores the checksums of a buffer: CRC-32C of each block of 4 KiB; the last block may be shorter.
pub(crate) fn note(buf: &[u8], crcs: Vec<u32>) {
    let crcs = Arc::from(crcs);
    noted().insert(buf.as_ptr().addr(), Noted { len: buf.len(), crcs });
}

/// Removes the checksums of a buffer whose content will change.
pub(crate) fn forget(at: usize) {
    noted().remove(&at);
}

/// Checksums of the blocks of `bytes` (the last of which may be shorter), if they are known.
///
/// They are known for a slice that starts with a block of a checked buffer and ends with one.
pub fn block_crcs(bytes: &Bytes) -> Option<Vec<u32>> {
    let (crcs, first, count) = find(bytes)?;
    let whole = bytes.len().is_multiple_of(ALIGN) || first + count == crcs.len() && ends(bytes);
    whole.then(|| crcs[first..first + count].to_vec())
}

/// Whether a slice ends where its buffer does.
fn ends(bytes: &Bytes) -> bool {
    let (at, noted) = (bytes.as_ptr().addr(), noted());
    let buffer = noted.range(..=at).next_back();
    buffer.is_some_and(|(start, n)| at + bytes.len() == start + n.len)
}

/// Checksums of a slice's buffer, the slice's first block and its number of blocks.
fn find(bytes: &Bytes) -> Option<(Arc<[u32]>, usize, usize)> {
    if bytes.len() < MIN {
        return None;
    }
    let at = bytes.as_ptr().addr();
    let noted = noted();
    let (start, n) = noted.range(..=at).next_back()?;
    let skip = at - start;
    if !skip.is_multiple_of(ALIGN) || skip + bytes.len() > n.len {
        return None;
    }
    Some((Arc::clone(&n.crcs), skip / ALIGN, bytes.len().div_ceil(ALIGN)))
}

/// Extends `crc` by the CRC-32C of all of `bytes`: from known checksums of blocks, or computed.
pub fn append(crc: u32, bytes: &Bytes) -> u32 {
    let Some((crcs, first, _)) = find(bytes) else {
        return crc32c::crc32c_append(crc, bytes);
    };
    let whole = bytes.len() / ALIGN;
    let crc = fold(crc, &crcs[first..first + whole]);
    // The end of a slice may lie within a block.
    crc32c::crc32c_append(crc, &bytes[whole * ALIGN..])
}

/// Extends `crc` by the CRC-32Cs of consecutive blocks of 4 KiB.
pub fn fold(crc: u32, blocks: &[u32]) -> u32 {
    let shift: &Shift = &SHIFT;
    blocks.iter().fold(crc, |crc, block| shift.apply(crc) ^ block)
}

/// The effect of a block of zeros on a CRC, which is linear: by each byte of the CRC.
struct Shift([[u32; 256]; 4]);

static SHIFT: LazyLock<Shift> = LazyLock::new(|| {
    let mut tables = [[0; 256]; 4];
    for (i, table) in (0u32..).zip(&mut tables) {
        for (byte, out) in (0u32..).zip(table) {
            *out = crc32c::crc32c_combine(byte << (8 * i), 0, ALIGN);
        }
    }
    Shift(tables)
});

impl Shift {
    fn apply(&self, crc: u32) -> u32 {
        let bytes = crc.to_le_bytes();
        (0..4).fold(0, |out, i| out ^ self.0[i][usize::from(bytes[i])])
    }
}

/// Computes the checksums of a buffer's blocks while the buffer is being filled, and that of the
/// whole.
#[derive(Debug, Default)]
pub struct BlockSums {
    blocks: Vec<u32>,
    /// The checksum of the current block so far, and its length so far.
    last: (u32, usize),
}

impl BlockSums {
    /// Adds the bytes that follow.
    pub fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (crc, have) = self.last;
            let (now, rest) = bytes.split_at(bytes.len().min(ALIGN - have));
            self.last = (crc32c::crc32c_append(crc, now), have + now.len());
            if self.last.1 == ALIGN {
                self.blocks.push(self.last.0);
                self.last = (0, 0);
            }
            bytes = rest;
        }
    }

    /// CRC-32C of all bytes so far.
    pub fn total(&self) -> u32 {
        let whole = fold(0, &self.blocks);
        match self.last {
            (_, 0) => whole,
            (crc, len) => crc32c::crc32c_combine(whole, crc, len),
        }
    }

    /// The blocks' checksums.
    pub fn into_blocks(mut self) -> Vec<u32> {
        if self.last.1 > 0 {
            self.blocks.push(self.last.0);
        }
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    fn checked(len: usize) -> (Bytes, Vec<u32>) {
        let pool = Pool::new(1 << 20);
        let mut buf = pool.get(len);
        buf.iter_mut()
            .zip(0u32..)
            .for_each(|(b, i)| *b = ((i * 7) >> 3) as u8);
        let mut sums = BlockSums::default();
        let (a, b) = buf.split_at(len / 3);
        sums.add(a);
        sums.add(b);
        assert_eq!(sums.total(), crc32c::crc32c(&buf));
        let blocks = sums.into_blocks();
        (buf.freeze_checked(blocks.clone()), blocks)
    }

    #[test]
    fn slices_know_their_checksums_as_long_as_the_buffer_lives() {
        let (b, blocks) = checked(100_000);
        assert_eq!(block_crcs(&b).as_ref(), Some(&blocks));
        assert_eq!(
            block_crcs(&b.slice(8192..40_960)).as_deref(),
            Some(&blocks[2..10])
        );
        assert_eq!(block_crcs(&b.slice(8192..)).as_deref(), Some(&blocks[2..]));
        assert_eq!(block_crcs(&b.slice(8191..40_959)), None);
        assert_eq!(block_crcs(&b.slice(8192..40_000)), None);
        assert_eq!(block_crcs(&b.slice(..8192)), None);
        for range in [0..100_000, 4096..98_304, 8192..90_001, 1..70_000, 0..10] {
            let part = b.slice(range);
            assert_eq!(append(77, &part), crc32c::crc32c_append(77, &part));
        }
        let at = b.as_ptr().addr();
        drop(b);
        assert!(!noted().contains_key(&at));
    }
}
