//! Size and time, sparse reads, checksums, comparisons.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Error, Reader, Result, UTime, Writer};

use crate::BytesList;
use crate::macros::packed;
use crate::osd::ChecksumType;

packed! {
    /// Output of `STAT`.
    pub struct StatResult {
        /// The object's size in bytes.
        pub size: u64,
        /// When it changed, by the writer's clock.
        pub mtime: UTime,
    }
}

/// Output of `SPARSE_READ`: the extents that hold data (offset to length), and their bytes one after the
/// other, which are not copied.
pub fn sparse_read(extents: &BTreeMap<u64, u64>, data: BytesList) -> BytesList {
    let mut w = Writer::with_capacity(8 + extents.len() * 16);
    w.put(extents);
    w.count(data.len());
    let mut out = BytesList::from(w.into_vec());
    out.extend(&data);
    out
}

/// Reads what [`sparse_read`] made.
///
/// # Errors
/// Where it is truncated.
pub fn read_sparse(output: &Bytes) -> Result<(BTreeMap<u64, u64>, Bytes)> {
    let mut r = Reader::new(output);
    let extents = r.get()?;
    Ok((extents, output.slice_ref(r.blob()?)))
}

/// The initial value in the input of `CHECKSUM`, widened to 64 bits.
///
/// # Errors
/// Where the algorithm is unknown or the input too short.
pub fn checksum_init(kind: ChecksumType, input: &[u8]) -> Result<u64> {
    let mut r = Reader::new(input);
    match kind.size() {
        Some(4) => r.u32().map(u64::from),
        Some(8) => r.u64(),
        _ => Err(Error::Invalid("checksum type")),
    }
}

/// Output of `CHECKSUM`: one value for each chunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChecksumResult {
    /// The values, widened to 64 bits.
    pub values: Vec<u64>,
}

impl ChecksumResult {
    /// The output; `None` where the algorithm is unknown.
    pub fn encode(&self, kind: ChecksumType) -> Option<Vec<u8>> {
        let size = kind.size()?;
        let mut w = Writer::with_capacity(4 + self.values.len() * size);
        w.count(self.values.len());
        for v in &self.values {
            w.bytes(&v.to_le_bytes()[..size]);
        }
        Some(w.into_vec())
    }

    /// Reads the output.
    ///
    /// # Errors
    /// Where the algorithm is unknown or the output truncated.
    pub fn decode(kind: ChecksumType, output: &[u8]) -> Result<Self> {
        let size = kind.size().ok_or(Error::Invalid("checksum type"))?;
        let mut r = Reader::new(output);
        let n = r.count(size)?;
        let mut values = Vec::with_capacity(n);
        for _ in 0..n {
            values.push(if size == 4 { u64::from(r.u32()?) } else { r.u64()? });
        }
        Ok(Self { values })
    }
}

/// The result of `CMPEXT` where the byte at `offset` of the given data is the first that differs: below every
/// errno (`MAX_ERRNO` of Ceph's `src/include/rados/librados.h` is 4095).
pub fn cmpext_mismatch(offset: usize) -> i32 {
    i32::try_from(offset).map_or(i32::MIN, |o| (-4095i32).saturating_sub(o))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_reads_carry_extents_and_their_bytes() {
        let extents = BTreeMap::from([(0, 3), (4096, 2)]);
        let data: BytesList = [Bytes::from("abc"), Bytes::from("de")].into_iter().collect();
        let out = sparse_read(&extents, data).to_bytes();
        assert_eq!(read_sparse(&out), Ok((extents, Bytes::from("abcde"))));
        assert!(read_sparse(&out.slice(..out.len() - 1)).is_err());
    }

    #[test]
    fn checksums_have_the_size_of_their_algorithm() {
        let sums = ChecksumResult {
            values: vec![1, 0xffff_ffff],
        };
        for (kind, size) in [(ChecksumType::CRC32C, 12), (ChecksumType::XXHASH64, 20)] {
            let out = sums.encode(kind).unwrap();
            assert_eq!(out.len(), size);
            assert_eq!(ChecksumResult::decode(kind, &out), Ok(sums.clone()));
        }
        assert_eq!(sums.encode(ChecksumType(9)), None);
        assert_eq!(checksum_init(ChecksumType::CRC32C, &[255; 4]), Ok(0xffff_ffff));
        assert!(checksum_init(ChecksumType::XXHASH64, &[0; 4]).is_err());
    }

    #[test]
    fn a_mismatch_lies_below_every_errno() {
        assert_eq!(cmpext_mismatch(0), -4095);
        assert_eq!(cmpext_mismatch(7), -4102);
    }
}
