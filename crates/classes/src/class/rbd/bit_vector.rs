//! Two-bit elements with checksums: `BitVector<2>` of Ceph's `src/common/bit_vector.hpp`.
//!
//! A header with the number of elements, four elements in every byte with the first in the highest
//! bits, and a footer with the checksums (CRC-32C) of the header and of every 4096 bytes of
//! elements. The footer may be empty.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer};

/// Bytes of the encoded header.
pub(super) const HEADER_LEN: u64 = 18;
/// Bytes that share a checksum.
pub(super) const BLOCK: usize = 4096;
/// Elements in a byte.
pub(super) const PER_BYTE: u64 = 4;

/// A vector of two-bit elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitVector {
    len: u64,
    data: Vec<u8>,
    /// Whether the encoding has checksums.
    pub(super) checksummed: bool,
}

impl Default for BitVector {
    fn default() -> Self {
        Self {
            len: 0,
            data: Vec::new(),
            checksummed: true,
        }
    }
}

/// A checksum as Ceph stores it, with nothing inverted at either end.
pub(super) fn checksum(block: &[u8]) -> u32 {
    !crc32c::crc32c_append(!0, block)
}

/// Bytes of `len` elements.
pub(super) fn bytes_for(len: u64) -> u64 {
    len.div_ceil(PER_BYTE)
}

/// The number of elements in an encoded header, and the header's checksum.
pub(super) fn decode_header(r: &mut Reader<'_>) -> Result<(u64, u32)> {
    let header = r.blob()?;
    let len = Reader::new(header).section("BitVector", 1, |_, r| r.u64())?;
    Ok((len, checksum(header)))
}

/// The `i`-th element of a byte.
fn element(byte: u8, i: u64) -> u8 {
    byte >> (6 - 2 * (i % PER_BYTE)) & 3
}

/// A byte of four elements with this value.
fn four(value: u8) -> u8 {
    (value & 3) * 0b01_01_01_01
}

/// Replaces the elements from `from` to before `to`. Returns whether any has changed.
pub(super) fn replace(data: &mut [u8], from: u64, to: u64, by: impl Fn(u8) -> u8) -> bool {
    if from >= to {
        return false;
    }
    let new_byte = |byte: u8| {
        let elements = (0..PER_BYTE).map(|i| by(element(byte, i)) & 3);
        elements.fold(0, |byte, e| byte << 2 | e)
    };
    let table: [u8; 256] = std::array::from_fn(|b| new_byte(u8::try_from(b).unwrap_or_default()));
    let (first, last) = (from / PER_BYTE, (to - 1) / PER_BYTE);
    let start = usize::try_from(first).unwrap_or(usize::MAX);
    let count = usize::try_from(last - first + 1).unwrap_or(usize::MAX);
    let mut changed = false;
    for (at, byte) in (first..).zip(data.iter_mut().skip(start).take(count)) {
        let mut mask = 0xff;
        if at == first {
            mask = 0xff >> (2 * (from % PER_BYTE));
        }
        if at == last && !to.is_multiple_of(PER_BYTE) {
            mask &= 0xff << (8 - 2 * (to % PER_BYTE));
        }
        let new = table[usize::from(*byte)] & mask | *byte & !mask;
        changed |= new != *byte;
        *byte = new;
    }
    changed
}

impl BitVector {
    /// The number of elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// An element; 0 beyond the end.
    pub fn get(&self, i: u64) -> u8 {
        let at = usize::try_from(i / PER_BYTE).ok().filter(|_| i < self.len);
        at.and_then(|at| self.data.get(at)).map_or(0, |b| element(*b, i))
    }

    /// Replaces elements. Returns whether any has changed.
    pub fn replace(&mut self, from: u64, to: u64, by: impl Fn(u8) -> u8) -> bool {
        replace(&mut self.data, from, to.min(self.len), by)
    }

    /// Whether all elements from `from` on are `value`.
    pub(super) fn is_all(&self, from: u64, value: u8) -> bool {
        let whole = from.next_multiple_of(PER_BYTE).min(self.len)..self.len / PER_BYTE * PER_BYTE;
        let bytes = |i: u64| usize::try_from(i / PER_BYTE).unwrap_or(usize::MAX);
        let middle = self.data.get(bytes(whole.start)..bytes(whole.end));
        let mut ends = (from..whole.start).chain(whole.end.max(from)..self.len);
        ends.all(|i| self.get(i) == value) && middle.is_none_or(|b| b.iter().all(|b| *b == four(value)))
    }

    /// The byte at an offset, with `fill` for elements beyond the end.
    fn byte_or(&self, at: u64, fill: u8) -> u8 {
        let left = self.len.saturating_sub(at.saturating_mul(PER_BYTE));
        let byte = usize::try_from(at).ok().and_then(|at| self.data.get(at));
        match byte {
            Some(byte) if left >= PER_BYTE => *byte,
            Some(byte) => {
                let beyond = 0xff_u8.checked_shr(2 * left as u32).unwrap_or(0);
                byte & !beyond | four(fill) & beyond
            }
            None => four(fill),
        }
    }

    /// Replaces each byte of four elements by `by` of it and the same byte of `other`, whose
    /// elements beyond its end are `fill`. Returns whether any has changed.
    pub(super) fn combine(&mut self, other: &Self, fill: u8, by: impl Fn(u8, u8) -> u8) -> bool {
        let (whole, rest) = (self.len / PER_BYTE, self.len % PER_BYTE);
        let mut changed = false;
        for (at, byte) in (0..).zip(self.data.iter_mut()) {
            let mut new = by(*byte, other.byte_or(at, fill));
            if at >= whole {
                let beyond = 0xff_u8 >> (2 * rest);
                new = new & !beyond | *byte & beyond;
            }
            changed |= new != *byte;
            *byte = new;
        }
        changed
    }

    /// The encoding.
    pub(super) fn to_bytes(&self) -> Bytes {
        // In one piece: it may be large.
        let sums = self.data.len() / BLOCK * 4;
        let mut w = Writer::with_capacity(self.data.len() + sums + 64);
        self.encode(&mut w);
        w.into_vec().into()
    }

    /// Shortens or extends it; new elements are `fill`.
    pub fn resize(&mut self, len: u64, fill: u8) {
        let old = std::mem::replace(&mut self.len, len);
        let bytes = usize::try_from(bytes_for(len)).unwrap_or(usize::MAX);
        self.data.resize(bytes, 0);
        self.replace(old, len, |_| fill);
    }
}

impl Encode for BitVector {
    fn encode(&self, w: &mut Writer) {
        let mut header = Writer::new();
        header.section(1, 1, |w| w.u64(self.len));
        w.blob(header.as_slice());
        w.bytes(&self.data);
        let mut footer = Writer::with_capacity(self.data.len() / BLOCK * 4 + 16);
        if self.checksummed {
            footer.u32(checksum(header.as_slice()));
            let blocks = self.data.chunks(BLOCK);
            footer.count(blocks.len());
            blocks.for_each(|block| footer.u32(checksum(block)));
        }
        w.blob(footer.as_slice());
    }
}

impl Decode for BitVector {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (len, header_crc) = decode_header(r)?;
        let bytes = usize::try_from(bytes_for(len)).map_err(|_| Error::Invalid("number of elements"))?;
        let data = r.bytes(bytes)?;
        let footer = r.blob()?;
        if !footer.is_empty() {
            let mut r = Reader::new(footer);
            let (crc, _count) = (r.u32()?, r.u32()?);
            let mut is_sound = crc == header_crc;
            for block in data.chunks(BLOCK) {
                is_sound &= r.u32()? == checksum(block);
            }
            if !is_sound {
                return Err(Error::Invalid("checksum"));
            }
        }
        Ok(Self {
            len,
            data: data.to_vec(),
            checksummed: !footer.is_empty(),
        })
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::{decode_all, encode_to_vec};

    use super::*;

    #[test]
    fn elements_are_replaced_within_bounds() {
        let mut v = BitVector::default();
        v.resize(21, 3);
        for (from, to) in [(0, 1), (1, 3), (2, 9), (4, 8), (5, 21), (20, 21), (7, 7), (0, 99)] {
            let mut got = v.clone();
            assert_eq!(got.replace(from, to, |e| e ^ 2), from < to);
            for i in 0..21 {
                let want = if (from..to).contains(&i) { 1 } else { 3 };
                assert_eq!(got.get(i), want, "{from}..{to} at {i}");
            }
            assert_eq!(got.get(21), 0);
        }
    }

    fn of(elements: &[u8]) -> BitVector {
        let mut v = BitVector::default();
        v.resize(elements.len() as u64, 0);
        for (i, e) in (0..).zip(elements) {
            v.replace(i, i + 1, |_| *e);
        }
        v
    }

    #[test]
    fn whole_bytes_are_looked_at_and_combined_as_elements_are() {
        // Any two elements next to each other, and against each other.
        let all: Vec<u8> = (0..64_u8)
            .map(|i| i & 3)
            .chain((0..64).map(|i| i >> 2 & 3))
            .collect();
        for (len, other) in [
            (0, 0),
            (1, 4),
            (4, 3),
            (5, 128),
            (63, 7),
            (128, 6),
            (127, 128),
            (128, 0),
        ] {
            let (ours, theirs) = (&all[..len], &all[128 - other..]);
            let mut v = of(ours);
            let changed = v.combine(&of(theirs), 1, |a, b| a & !b);
            let want: Vec<u8> = (0..len)
                .map(|i| ours[i] & !theirs.get(i).copied().unwrap_or(1))
                .collect();
            assert_eq!((changed, &v), (want != ours, &of(&want)), "{len} with {other}");
            assert_eq!(&v.to_bytes()[..], encode_to_vec(&v));
        }
        for len in 0..20 {
            for odd in 0..len {
                let mut elements = vec![2; len];
                elements[odd] = 1;
                for from in 0..len + 2 {
                    let is_all = of(&elements).is_all(from as u64, 2);
                    assert_eq!(is_all, odd < from, "{len}, {odd}, {from}");
                }
            }
        }
        assert!(of(&[]).is_all(5, 1) && of(&[3; 9]).is_all(0, 3));
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let mut v = BitVector::default();
        v.resize(40_000, 1);
        let bytes = encode_to_vec(&v);
        assert_eq!(bytes.len(), 18 + 10_000 + 4 + 4 + 4 + 3 * 4);
        assert_eq!(decode_all::<BitVector>(&bytes).unwrap(), v);
        for at in [10, 18, 18 + 4096, 18 + 9_999, bytes.len() - 1, 18 + 10_000 + 4] {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert!(decode_all::<BitVector>(&bad).is_err(), "{at}");
        }
        v.checksummed = false;
        let bytes = encode_to_vec(&v);
        assert_eq!(bytes.len(), 18 + 10_000 + 4);
        assert_eq!(decode_all::<BitVector>(&bytes).unwrap(), v);
    }
}
