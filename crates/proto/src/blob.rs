//! Bytes whose meaning belongs to another layer.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Result, Writer};

/// An encoded value carried as it is. Its debug form shows only the length: it may be large, or
/// secret.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blob(pub Bytes);

impl Blob {
    /// The encoded bytes of `v`.
    pub fn of<T: Encode + ?Sized>(v: &T) -> Self {
        spirula_denc::encode_to_vec(v).into()
    }
}

impl std::ops::Deref for Blob {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Bytes> for Blob {
    fn from(b: Bytes) -> Self {
        Self(b)
    }
}

impl From<Vec<u8>> for Blob {
    fn from(v: Vec<u8>) -> Self {
        Self(v.into())
    }
}

impl std::fmt::Debug for Blob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blob({} bytes)", self.0.len())
    }
}

// With a `u32` length before it, like `Bytes`.
spirula_denc::transparent!(Blob);

/// All bytes up to the end of the segment, without a length: fields that are passed on undecoded.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Rest(pub Bytes);

impl std::fmt::Debug for Rest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rest({} bytes)", self.0.len())
    }
}

impl Encode for Rest {
    fn encode(&self, w: &mut Writer) {
        w.bytes(&self.0);
    }
}

impl Decode for Rest {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self(Bytes::copy_from_slice(r.rest())))
    }
}

/// An encoded structure with its versioned-section header (version, compat, length), passed on
/// undecoded.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Section(pub Bytes);

impl Section {
    /// The encoded form of `v`, which must encode as one section.
    pub fn of<T: Encode>(v: &T) -> Self {
        Self(spirula_denc::encode_to_vec(v).into())
    }
}

impl std::fmt::Debug for Section {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Section({} bytes)", self.0.len())
    }
}

impl Encode for Section {
    fn encode(&self, w: &mut Writer) {
        w.bytes(&self.0);
    }
}

impl Decode for Section {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let mut ahead = r.clone();
        ahead.skip(2)?;
        let len = ahead.blob()?.len();
        r.bytes(6 + len).map(|b| Self(Bytes::copy_from_slice(b)))
    }
}
