//! The store's own little-endian encoding: fixed integers, LEB128 varints, length-prefixed bytes.

use bytes::Bytes;

/// Appends to a vector.
pub(crate) struct Enc<'a>(pub(crate) &'a mut Vec<u8>);

impl Enc<'_> {
    pub(crate) fn u8(&mut self, v: u8) {
        self.0.push(v);
    }

    pub(crate) fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }

    pub(crate) fn varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.0.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.0.push(v as u8);
    }

    pub(crate) fn bytes(&mut self, b: &[u8]) {
        self.varint(b.len() as u64);
        self.0.extend_from_slice(b);
    }

    pub(crate) fn crcs(&mut self, crcs: &[u32]) {
        self.0.reserve(crcs.len() * 4);
        for c in crcs {
            self.u32(*c);
        }
    }
}

/// Reads from a slice; `None` from any method means that the input is too short or out of range.
pub(crate) struct Dec<'a> {
    rest: &'a [u8],
}

impl<'a> Dec<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut v = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.u8()?;
            let bits = u64::from(b & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            v |= bits << shift;
            if b & 0x80 == 0 {
                return Some(v);
            }
        }
        None
    }

    /// Reads a count of items of at least `min_len` bytes each; too large a count for the rest of
    /// the input fails.
    pub(crate) fn count(&mut self, min_len: usize) -> Option<usize> {
        let n = usize::try_from(self.varint()?).ok()?;
        (n <= self.rest.len() / min_len).then_some(n)
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.count(1)?;
        self.take(len)
    }

    /// As [`Dec::bytes`], copied into memory of its own.
    pub(crate) fn owned(&mut self) -> Option<Bytes> {
        self.bytes().map(Bytes::copy_from_slice)
    }

    pub(crate) fn crcs<C: FromIterator<u32>>(&mut self, count: usize) -> Option<C> {
        let raw = self.take(count.checked_mul(4)?)?;
        Some(
            raw.chunks_exact(4)
                .map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]))
                .collect(),
        )
    }

    pub(crate) fn is_done(&self) -> bool {
        self.rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_and_are_bounded() {
        for v in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            Enc(&mut out).varint(v);
            assert_eq!(Dec::new(&out).varint(), Some(v));
        }
        assert_eq!(Dec::new(&[0xff; 11]).varint(), None);
        assert_eq!(Dec::new(&[0xff, 0xff, 3]).bytes(), None);
    }
}
