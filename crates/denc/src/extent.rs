//! Ranges of bytes.

use std::ops::Range;

use crate::{Decode, Encode, Reader, Result, Writer};

/// A range of bytes of an object or an image. Encoded as Ceph's `interval_set` and maps of extents
/// hold it: two `u64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Extent {
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub len: u64,
}

impl Extent {
    /// One past the last byte, at most `u64::MAX`.
    pub const fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

impl From<Range<u64>> for Extent {
    fn from(range: Range<u64>) -> Self {
        Self {
            offset: range.start,
            len: range.end.saturating_sub(range.start),
        }
    }
}

impl Encode for Extent {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.offset);
        w.u64(self.len);
    }
}

impl Decode for Extent {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            offset: r.u64()?,
            len: r.u64()?,
        })
    }
}
