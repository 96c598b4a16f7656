//! Transactions: atomic changes that the owner submits.

use bytes::Bytes;

use crate::config::BLOCK64;
use crate::{ObjectKey, Placed};

/// The largest object in bytes: well within 32-bit block numbers, and far above Ceph's
/// `osd_max_object_size`.
pub const MAX_OBJECT_SIZE: u64 = 4 << 30;
/// Longest attribute name, in bytes.
pub const MAX_ATTR_NAME: usize = 4096;

/// Payload of a write: buffers written one after the other.
#[derive(Debug, Clone, Default)]
pub struct Payload {
    /// The buffers. Writes of [`Config::direct_min`](crate::Config::direct_min) bytes and more go
    /// to the device without a copy if every buffer is 4 KiB aligned in memory and (except the
    /// last) in length.
    pub parts: Vec<Bytes>,
}

impl Payload {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(Bytes::is_empty)
    }

    /// The most blocks that a write of it allocates.
    pub(crate) fn blocks(&self) -> u64 {
        self.len() as u64 / BLOCK64 + 3
    }
}

impl From<Bytes> for Payload {
    fn from(b: Bytes) -> Self {
        Self { parts: vec![b] }
    }
}

impl From<Vec<Bytes>> for Payload {
    fn from(parts: Vec<Bytes>) -> Self {
        Self { parts }
    }
}

/// One change. Every operation on an object except the removing ones creates the object if it is
/// missing.
#[derive(Debug)]
pub enum Op {
    /// Creates the object if it is missing.
    Touch(ObjectKey),
    /// Writes bytes, extending the object if needed.
    Write {
        /// The object.
        key: ObjectKey,
        /// The offset in bytes.
        offset: u64,
        /// The data.
        data: Payload,
    },
    /// Writes data that the device has already, as [`Op::Write`] of the same data does: the blocks
    /// become those of the object.
    ///
    /// Refused as [`Invalid`](crate::StoreError::Invalid): `offset` is no multiple of
    /// [`BLOCK`](crate::BLOCK), or the data was placed in another store.
    WritePlaced {
        /// The object.
        key: ObjectKey,
        /// The offset in bytes.
        offset: u64,
        /// The data.
        placed: Placed,
    },
    /// Makes a range read as zeros and frees its space, extending the object if needed.
    Zero {
        /// The object.
        key: ObjectKey,
        /// Start, in bytes.
        offset: u64,
        /// Length, in bytes.
        len: u64,
    },
    /// Sets the size; bytes beyond the old one read as zeros.
    Truncate {
        /// The object.
        key: ObjectKey,
        /// New size, in bytes.
        size: u64,
    },
    /// Removes the object with attributes and omap; no effect if it is missing.
    Remove(ObjectKey),
    /// Makes `to` an independent copy of `from` (data, info, attributes, omap), replacing it. No
    /// effect if `from` is missing. Data blocks are shared, not copied.
    Clone {
        /// The object to copy.
        from: ObjectKey,
        /// The copy.
        to: ObjectKey,
        /// Whether the copy gets the omap pairs too. All of them go through the log; the header is
        /// copied in any case.
        pairs: bool,
    },
    /// Makes the range `[at, at + len)` of `to` an independent copy of the range
    /// `[offset, offset + len)` of `from`, extending `to` if needed. Data blocks are shared, not
    /// copied; if the same transaction removes `from` next, they become those of `to` alone. What
    /// `from` does not have, as holes, behind its end or as it is missing, reads as zeros in `to`.
    ///
    /// Refused as [`Invalid`](crate::StoreError::Invalid): `from` and `to` are one object; `offset`
    /// or `at` is no multiple of [`BLOCK`](crate::BLOCK); `len` is no multiple of it, and `to` is
    /// longer than `at + len` at this point of the transaction.
    CloneRange {
        /// The object to copy from.
        from: ObjectKey,
        /// The object that gets the range.
        to: ObjectKey,
        /// Start of the range in `from`, in bytes.
        offset: u64,
        /// Length of the range, in bytes. 0: the operation only creates `to`.
        len: u64,
        /// Start of the range in `to`, in bytes.
        at: u64,
    },
    /// Renames `from` to `to`, replacing that; `from` is missing then. No effect if `from` is
    /// missing. Neither data nor pairs are copied.
    Move {
        /// The object's old key.
        from: ObjectKey,
        /// Its new key.
        to: ObjectKey,
    },
    /// Sets an attribute.
    SetAttr {
        /// The object.
        key: ObjectKey,
        /// Name of the attribute, opaque bytes.
        name: Bytes,
        /// Its value. A value of 64 KiB or more is kept without a copy, so it should not be a slice
        /// of a buffer that is counted or much larger.
        value: Bytes,
    },
    /// Removes an attribute, if present.
    RmAttr {
        /// The object.
        key: ObjectKey,
        /// Name of the attribute.
        name: Bytes,
    },
    /// Removes all attributes (not the info blob).
    RmAttrs(ObjectKey),
    /// Sets the info blob, which every lookup returns (the OSD's `object_info_t`).
    SetInfo {
        /// The object.
        key: ObjectKey,
        /// The blob.
        info: Bytes,
    },
    /// Sets pairs of the object's omap.
    OmapSet {
        /// The object.
        key: ObjectKey,
        /// Keys and values.
        pairs: Vec<(Bytes, Bytes)>,
    },
    /// Removes keys of the object's omap.
    OmapRm {
        /// The object.
        key: ObjectKey,
        /// Keys; missing ones are ignored.
        names: Vec<Bytes>,
    },
    /// Removes the omap keys in `[from, to)`.
    OmapRmRange {
        /// The object.
        key: ObjectKey,
        /// First key to remove.
        from: Bytes,
        /// First key to keep.
        to: Bytes,
    },
    /// Removes all omap keys and the omap header.
    OmapClear(ObjectKey),
    /// Sets the omap header.
    OmapHeader {
        /// The object.
        key: ObjectKey,
        /// The header.
        header: Bytes,
    },
    /// Sets a pair of the store-wide ordered key-value space (PG info, PG log entries, …).
    MetaPut {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// Removes a pair of the store-wide key-value space, if present.
    MetaDelete(Bytes),
    /// Removes the pairs in `[from, to)` of the store-wide key-value space.
    MetaDeleteRange {
        /// First key to remove.
        from: Bytes,
        /// First key to keep.
        to: Bytes,
    },
}

/// A list of operations that happen all or not at all, in order.
#[derive(Debug, Default)]
pub struct Transaction {
    /// The operations.
    pub ops: Vec<Op>,
}

impl Transaction {
    /// An empty transaction.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an operation.
    pub fn push(&mut self, op: Op) -> &mut Self {
        self.ops.push(op);
        self
    }

    /// Appends [`Op::Touch`].
    pub fn touch(&mut self, key: &ObjectKey) -> &mut Self {
        self.push(Op::Touch(key.clone()))
    }

    /// Appends [`Op::Write`].
    pub fn write(&mut self, key: &ObjectKey, offset: u64, data: impl Into<Payload>) -> &mut Self {
        self.push(Op::Write {
            key: key.clone(),
            offset,
            data: data.into(),
        })
    }

    /// Appends [`Op::WritePlaced`].
    pub fn write_placed(&mut self, key: &ObjectKey, offset: u64, placed: Placed) -> &mut Self {
        self.push(Op::WritePlaced {
            key: key.clone(),
            offset,
            placed,
        })
    }

    /// Appends [`Op::Zero`].
    pub fn zero(&mut self, key: &ObjectKey, offset: u64, len: u64) -> &mut Self {
        self.push(Op::Zero {
            key: key.clone(),
            offset,
            len,
        })
    }

    /// Appends [`Op::Truncate`].
    pub fn truncate(&mut self, key: &ObjectKey, size: u64) -> &mut Self {
        self.push(Op::Truncate {
            key: key.clone(),
            size,
        })
    }

    /// Appends [`Op::Remove`].
    pub fn remove(&mut self, key: &ObjectKey) -> &mut Self {
        self.push(Op::Remove(key.clone()))
    }

    /// Appends [`Op::SetInfo`].
    pub fn set_info(&mut self, key: &ObjectKey, info: impl Into<Bytes>) -> &mut Self {
        self.push(Op::SetInfo {
            key: key.clone(),
            info: info.into(),
        })
    }

    /// Appends [`Op::SetAttr`].
    pub fn set_attr(
        &mut self,
        key: &ObjectKey,
        name: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> &mut Self {
        self.push(Op::SetAttr {
            key: key.clone(),
            name: name.into(),
            value: value.into(),
        })
    }

    /// Appends [`Op::RmAttr`].
    pub fn rm_attr(&mut self, key: &ObjectKey, name: impl Into<Bytes>) -> &mut Self {
        self.push(Op::RmAttr {
            key: key.clone(),
            name: name.into(),
        })
    }

    /// Appends [`Op::MetaPut`].
    pub fn meta_put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> &mut Self {
        self.push(Op::MetaPut {
            key: key.into(),
            value: value.into(),
        })
    }

    /// Appends [`Op::MetaDelete`].
    pub fn meta_delete(&mut self, key: impl Into<Bytes>) -> &mut Self {
        self.push(Op::MetaDelete(key.into()))
    }
}
