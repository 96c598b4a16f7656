//! Keys of objects: opaque ordered bytes.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The bytes of a key that are compared without looking at memory elsewhere.
const HEAD: usize = size_of::<u128>();

/// The name of an object in the store: opaque bytes, ordered bytewise.
///
/// The owner chooses the encoding. The OSD uses pool, bit-reversed hash, namespace, name and
/// snapshot in that order, so that a placement group is one contiguous range and a split moves
/// nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectKey {
    /// The first bytes, big-endian, with zeros behind a shorter key. They tell most keys apart, so
    /// that a search in a tree of keys does not wait for the memory of each key that it passes.
    head: u128,
    bytes: Arc<[u8]>,
}

impl ObjectKey {
    /// The longest key the store takes, in bytes.
    pub const MAX_LEN: usize = 8 << 10;

    /// A key of these bytes. Their number is checked when the key is submitted.
    pub fn new(bytes: &[u8]) -> Self {
        let mut head = [0; HEAD];
        let len = bytes.len().min(HEAD);
        head[..len].copy_from_slice(&bytes[..len]);
        Self {
            head: u128::from_be_bytes(head),
            bytes: bytes.into(),
        }
    }

    /// The bytes of the key.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.head
            .cmp(&other.head)
            .then_with(|| self.bytes.cmp(&other.bytes))
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As the bytes do, because maps are asked with these ([`Borrow`]).
impl Hash for ObjectKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl Borrow<[u8]> for ObjectKey {
    fn borrow(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<&str> for ObjectKey {
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes())
    }
}

impl From<&[u8]> for ObjectKey {
    fn from(bytes: &[u8]) -> Self {
        Self::new(bytes)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes.escape_ascii())
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectKey({})", self.bytes.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_and_found_as_their_bytes_are() {
        let ends: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"\x01", b"a", b"a\0", b"\xff"];
        let bytes: Vec<Vec<u8>> = [0, 1, HEAD - 1, HEAD, HEAD + 1]
            .into_iter()
            .flat_map(|len| ends.map(|end| [&vec![7; len], end].concat()))
            .collect();
        for a in &bytes {
            for b in &bytes {
                let (x, y) = (ObjectKey::new(a), ObjectKey::new(b));
                assert_eq!((x.cmp(&y), x == y), (a.cmp(b), a == b), "{x} and {y}");
            }
        }
        let map: hashbrown::HashMap<_, _> = bytes.iter().map(|b| (ObjectKey::new(b), b)).collect();
        assert!(bytes.iter().all(|b| map.get(b.as_slice()) == Some(&b)));
    }
}
