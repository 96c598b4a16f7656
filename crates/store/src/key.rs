//! Keys of objects: opaque ordered bytes.

use std::borrow::Borrow;
use std::fmt;

use bytes::Bytes;

/// The name of an object in the store: opaque bytes, ordered bytewise.
///
/// The owner chooses the encoding. The OSD uses pool, bit-reversed hash, namespace, name and
/// snapshot in that order, so that a placement group is one contiguous range and a split moves
/// nothing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey(Bytes);

impl ObjectKey {
    /// The longest key the store takes, in bytes.
    pub const MAX_LEN: usize = 8 << 10;

    /// A key of these bytes. Their number is checked when the key is submitted.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// A key with a private copy of `bytes`.
    pub fn copy_from(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }

    /// The bytes of the key.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// The bytes of the key as a cheap reference.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl Borrow<[u8]> for ObjectKey {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for ObjectKey {
    fn from(text: &str) -> Self {
        Self::copy_from(text.as_bytes())
    }
}

impl From<&[u8]> for ObjectKey {
    fn from(bytes: &[u8]) -> Self {
        Self::copy_from(bytes)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectKey({})", self.0.escape_ascii())
    }
}
