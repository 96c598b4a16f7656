//! CHECKSUM: checksums of an object's chunks, computed where the data is.

use spirula_denc::Writer;
use spirula_errno::*;
use spirula_proto::osd::{ChecksumArgs, ChecksumType};
use xxhash_rust::{xxh32, xxh64};

use super::{Looking, OpResult, fail};
use crate::pg::op::OsdOp;

/// The algorithm, with the initial value that the client sent.
#[derive(Clone, Copy)]
enum Kind {
    XxHash32(u32),
    XxHash64(u64),
    Crc32c(u32),
}

impl Kind {
    fn parse(kind: ChecksumType, init: &[u8]) -> Option<Self> {
        let word = || init.first_chunk::<4>().map(|b| u32::from_le_bytes(*b));
        match kind {
            ChecksumType::XXHASH32 => word().map(Self::XxHash32),
            ChecksumType::XXHASH64 => init
                .first_chunk::<8>()
                .map(|b| Self::XxHash64(u64::from_le_bytes(*b))),
            ChecksumType::CRC32C => word().map(Self::Crc32c),
            _ => None,
        }
    }

    fn put(self, chunk: &[u8], w: &mut Writer) {
        match self {
            Self::XxHash32(seed) => w.u32(xxh32::xxh32(chunk, seed)),
            Self::XxHash64(seed) => w.u64(xxh64::xxh64(chunk, seed)),
            // Ceph's CRC is not inverted at either end.
            Self::Crc32c(seed) => w.u32(!crc32c::crc32c_append(!seed, chunk)),
        }
    }
}

impl Looking<'_, '_> {
    pub(super) fn checksum(&mut self, op: &mut OsdOp) -> OpResult {
        let args: ChecksumArgs = op.args();
        let (offset, mut length, chunk) = (args.offset, args.length, u64::from(args.chunk_size));
        if chunk > 0 && (length == 0 || length % chunk != 0) {
            return fail(EINVAL);
        }
        let size = self.draft.info.size;
        if offset == 0 && length == 0 {
            length = size;
        } else if offset >= size {
            return Ok(0);
        } else if offset.saturating_add(length) > size {
            length = size - offset;
            if chunk > 0 && length % chunk != 0 {
                return fail(EINVAL);
            }
        }
        let Some(kind) = Kind::parse(args.kind, &op.indata) else {
            return fail(EINVAL);
        };
        let chunks = length.checked_div(chunk).unwrap_or(1);
        self.work
            .spend(length.saturating_add(chunks.saturating_mul(super::work::ITEM)))?;
        let pieces = self.before.data(offset, length, false)?;
        let data = pieces.iter().map(|(_, b)| &b[..]).collect::<Vec<_>>().concat();
        op.set_length(data.len() as u64);
        let chunk = if chunk == 0 {
            data.len()
        } else {
            usize::try_from(chunk).unwrap_or(usize::MAX)
        };
        let mut w = Writer::new();
        let count = data.len().checked_div(chunk).unwrap_or(0);
        w.count(count);
        if count > 0 {
            data.chunks_exact(chunk).for_each(|c| kind.put(c, &mut w));
        }
        op.outdata.push(w.into_vec().into());
        self.left.io.count_read(data.len() as u64);
        Ok(0)
    }
}
