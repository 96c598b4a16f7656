//! What a member says of its copy of an object that is scrubbed.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Result, Writer};

use crate::pg::object::Attrs;

/// A member's account of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The object's store key.
    pub key: Bytes,
    /// The member's copy; `None` if its record can't be read.
    pub found: Option<Found>,
}

/// A copy of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The encoded object info.
    pub info: Bytes,
    /// The bytes of data that the store has: of the object, or of the member's fragment.
    pub size: u64,
    /// The digest of the attributes.
    pub attrs_digest: u32,
    /// The attributes, if they were asked for.
    pub attrs: Option<Attrs>,
    /// The contents, if the scrub is a deep one.
    pub content: Option<Content>,
}

/// The contents of a copy, as they were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The digest of the data; `None` if some of it can't be read.
    pub data: Option<u32>,
    /// The digest of a fragment ([`spirula_erasure::FragmentDigest`]), by which it is held against the
    /// others; `None` of a whole object, and if some of it can't be read.
    pub fragment: Option<Bytes>,
    /// The omap; `None` if some of it can't be read.
    pub omap: Option<Omap>,
}

/// The omap of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Omap {
    /// The digest of header and pairs.
    pub digest: u32,
    /// The number of keys.
    pub keys: u64,
    /// The bytes of keys and values.
    pub bytes: u64,
}

impl Content {
    /// Whether all of it could be read.
    pub(super) fn is_readable(&self) -> bool {
        self.data.is_some() && self.omap.is_some()
    }
}

impl Account {
    /// The approximate bytes that it takes in a message.
    pub(super) fn weight(&self) -> usize {
        let attrs = |f: &Found| {
            let attrs = f.attrs.iter().flatten();
            attrs
                .map(|(name, value)| 16 + name.len() + value.len())
                .sum::<usize>()
        };
        let of_found = self.found.as_ref().map_or(0, |f| f.info.len() + attrs(f));
        64 + self.key.len() + of_found
    }
}

impl Encode for Account {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.key);
        w.put(&self.found);
    }
}

impl Decode for Account {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            key: r.get()?,
            found: r.get()?,
        })
    }
}

impl Encode for Found {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.info);
        w.u64(self.size);
        w.u32(self.attrs_digest);
        w.put(&self.attrs);
        w.put(&self.content);
    }
}

impl Decode for Found {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            info: r.get()?,
            size: r.u64()?,
            attrs_digest: r.u32()?,
            attrs: r.get()?,
            content: r.get()?,
        })
    }
}

impl Encode for Content {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.data);
        w.put(&self.fragment);
        w.put(&self.omap);
    }
}

impl Decode for Content {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            data: r.get()?,
            fragment: r.get()?,
            omap: r.get()?,
        })
    }
}

impl Encode for Omap {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.digest);
        w.u64(self.keys);
        w.u64(self.bytes);
    }
}

impl Decode for Omap {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            digest: r.u32()?,
            keys: r.u64()?,
            bytes: r.u64()?,
        })
    }
}
