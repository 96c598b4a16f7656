//! Large data on its way to free blocks, past the log.

use bytes::Bytes;
use spirula_buf::Pool;
use spirula_invariant::invariant;

use crate::alloc::{Kind, Run};
use crate::config::{BLOCK, BLOCK64};
use crate::onode::block_crcs;
use crate::state::State;

/// A write: offset on the device in bytes, and whole blocks that are aligned in memory.
pub(crate) type BlockWrite = (u64, Vec<Bytes>);

/// Data and the blocks that were allocated for it.
pub(crate) struct Laid {
    pub(crate) runs: Vec<Run>,
    /// A checksum of each block.
    pub(crate) crcs: Vec<u32>,
    /// A write for each run.
    pub(crate) writes: Vec<BlockWrite>,
}

impl State {
    /// Allocates blocks for whole blocks of data; as many are free.
    pub(crate) fn lay_out(&mut self, bufs: Vec<Bytes>) -> Laid {
        let bufs = aligned(bufs, &self.pool);
        let crcs: Vec<u32> = bufs.iter().flat_map(known_or_computed).collect();
        let bytes: u64 = bufs.iter().map(|b| b.len() as u64).sum();
        invariant!(
            bytes == crcs.len() as u64 * BLOCK64,
            "a checksum of each whole block";
            bytes = bytes,
            checksums = crcs.len(),
        );
        let runs = self.allocate(crcs.len() as u32, Kind::Large);
        let mut at = 0;
        let mut writes = Vec::with_capacity(runs.len());
        for run in &runs {
            let len = u64::from(run.len) * BLOCK64;
            writes.push((run.pblk * BLOCK64, slices(&bufs, at, len)));
            at += len;
        }
        invariant!(at == bytes, "a place for all of a write"; bytes = bytes, placed = at);
        Laid { runs, crcs, writes }
    }

    /// Allocates blocks; as many are free.
    pub(crate) fn allocate(&mut self, count: u32, kind: Kind) -> Vec<Run> {
        let mut runs = Vec::new();
        self.alloc.alloc(count, kind, &mut runs);
        runs
    }
}

/// The data in buffers that the device takes: copied if they are not aligned.
fn aligned(bufs: Vec<Bytes>, pool: &Pool) -> Vec<Bytes> {
    let fits = |b: &Bytes| b.as_ptr().addr().is_multiple_of(BLOCK) && b.len().is_multiple_of(BLOCK);
    if bufs.iter().all(fits) {
        return bufs;
    }
    let len = bufs.iter().map(Bytes::len).sum();
    let mut bounce = pool.get(len);
    let mut at = 0;
    for b in &bufs {
        bounce[at..at + b.len()].copy_from_slice(b);
        at += b.len();
    }
    vec![bounce.freeze()]
}

/// Checksums of the blocks of a buffer.
fn known_or_computed(buf: &Bytes) -> Vec<u32> {
    spirula_buf::crc::block_crcs(buf).unwrap_or_else(|| block_crcs(buf).collect())
}

/// The part `[offset, offset + len)` of consecutive buffers, without copying.
pub(crate) fn slices(parts: &[Bytes], mut offset: u64, mut len: u64) -> Vec<Bytes> {
    let mut out = Vec::new();
    for part in parts {
        let size = part.len() as u64;
        let skip = offset.min(size);
        let take = (size - skip).min(len);
        offset -= skip;
        len -= take;
        if take > 0 {
            out.push(part.slice(skip as usize..(skip + take) as usize));
        }
    }
    out
}

/// As [`slices`], in one buffer.
pub(crate) fn gather(parts: &[Bytes], offset: u64, len: u64) -> Bytes {
    let mut found = slices(parts, offset, len);
    if found.len() == 1 {
        return found.swap_remove(0);
    }
    found.concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_parts() {
        let parts = [
            Bytes::from_static(b"abc"),
            Bytes::from_static(b"defg"),
            Bytes::from_static(b"h"),
        ];
        assert_eq!(gather(&parts, 2, 3), "cde");
        assert_eq!(gather(&parts, 3, 4), "defg");
        assert_eq!(gather(&parts, 0, 0), "");
        assert_eq!(slices(&parts, 3, 5).len(), 2);
    }
}
