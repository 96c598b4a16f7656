//! The codec traits and the containers of the standard library, laid out as Ceph's `encoding.h`
//! does.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::{Reader, Result, Writer};

/// A value with a Ceph encoding.
pub trait Encode {
    /// Appends the encoded value.
    fn encode(&self, w: &mut Writer);
}

/// A value that can be read back.
pub trait Decode: Sized {
    /// Reads one value.
    ///
    /// # Errors
    /// Where the input is truncated or holds what the type forbids.
    fn decode(r: &mut Reader<'_>) -> Result<Self>;
}

/// The encoded bytes of one value.
pub fn encode_to_vec<T: Encode + ?Sized>(v: &T) -> Vec<u8> {
    let mut w = Writer::new();
    v.encode(&mut w);
    w.into_vec()
}

/// Decodes a value that must fill `buf`; left-over bytes are an error.
///
/// # Errors
/// As [`Decode::decode`], and [`crate::Error::LeftOver`].
pub fn decode_all<T: Decode>(buf: &[u8]) -> Result<T> {
    let mut r = Reader::new(buf);
    let v = T::decode(&mut r)?;
    r.finish()?;
    Ok(v)
}

/// Implements [`Encode`] and [`Decode`] for types of one field that are encoded as this field is.
#[macro_export]
macro_rules! transparent {
    ($($name:ty),+) => {$(
        impl $crate::Encode for $name {
            fn encode(&self, w: &mut $crate::Writer) {
                w.put(&self.0);
            }
        }

        impl $crate::Decode for $name {
            fn decode(r: &mut $crate::Reader<'_>) -> $crate::Result<Self> {
                r.get().map(Self)
            }
        }
    )+};
}

macro_rules! primitive {
    ($($t:ident),*) => {$(
        impl Encode for $t {
            fn encode(&self, w: &mut Writer) {
                w.$t(*self);
            }
        }
        impl Decode for $t {
            fn decode(r: &mut Reader<'_>) -> Result<Self> {
                r.$t()
            }
        }
    )*};
}
primitive!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, bool);

impl Encode for str {
    fn encode(&self, w: &mut Writer) {
        w.string(self);
    }
}

impl Encode for String {
    fn encode(&self, w: &mut Writer) {
        w.string(self);
    }
}

impl Decode for String {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.string()
    }
}

impl Encode for Bytes {
    fn encode(&self, w: &mut Writer) {
        w.blob(self);
    }
}

impl Decode for Bytes {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.blob().map(Bytes::copy_from_slice)
    }
}

impl<T: Encode> Encode for [T] {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        for v in self {
            v.encode(w);
        }
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, w: &mut Writer) {
        self.as_slice().encode(w);
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let n = r.count(1)?;
        // The count is bounded by the input's bytes, the memory by what decodes: grow as elements
        // arrive.
        let mut out = Vec::new();
        for _ in 0..n {
            out.push(T::decode(r)?);
        }
        Ok(out)
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, w: &mut Writer) {
        w.bool(self.is_some());
        if let Some(v) = self {
            v.encode(w);
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        if r.bool()? {
            T::decode(r).map(Some)
        } else {
            Ok(None)
        }
    }
}

impl<K: Encode, V: Encode> Encode for BTreeMap<K, V> {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        for (k, v) in self {
            k.encode(w);
            v.encode(w);
        }
    }
}

impl<K: Decode + Ord, V: Decode> Decode for BTreeMap<K, V> {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let n = r.count(1)?;
        let mut out = BTreeMap::new();
        for _ in 0..n {
            let k = K::decode(r)?;
            out.insert(k, V::decode(r)?);
        }
        Ok(out)
    }
}

impl<K: Encode> Encode for BTreeSet<K> {
    fn encode(&self, w: &mut Writer) {
        w.count(self.len());
        for k in self {
            k.encode(w);
        }
    }
}

impl<K: Decode + Ord> Decode for BTreeSet<K> {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let n = r.count(1)?;
        let mut out = BTreeSet::new();
        for _ in 0..n {
            out.insert(K::decode(r)?);
        }
        Ok(out)
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, w: &mut Writer) {
        self.0.encode(w);
        self.1.encode(w);
    }
}

impl<A: Decode, B: Decode> Decode for (A, B) {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok((A::decode(r)?, B::decode(r)?))
    }
}
