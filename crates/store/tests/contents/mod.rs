//! Objects for tests, by their names and what is in them.

use bytes::Bytes;
use spirula_store::ObjectKey;

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::from(name)
}

/// Bytes that differ from those of another seed.
pub(crate) fn data(seed: usize, len: usize) -> Bytes {
    (0..len)
        .map(|b| (b / 7 + seed * 31 + b % 13 + 1) as u8)
        .collect::<Vec<u8>>()
        .into()
}
