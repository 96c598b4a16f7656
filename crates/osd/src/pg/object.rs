//! What is stored with an object besides its bytes: the object info, and how attributes are kept.
//!
//! The contents follow Ceph's `object_info_t` (`src/osd/osd_types.h`); the encoding is ours.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Result, UTime, Writer};
use spirula_maps::EVersion;

/// Version of the encoding of [`ObjectInfo`]. 1: the first.
const VERSION: u8 = 1;

/// An object's attributes by name.
pub type Attrs = BTreeMap<Bytes, Bytes>;

/// An object's info.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectInfo {
    /// Bytes.
    pub size: u64,
    /// When it was last changed, as the client said.
    pub mtime: UTime,
    /// When it was last changed, by the primary's clock.
    pub local_mtime: UTime,
    /// The log version of the last change.
    pub version: EVersion,
    /// The log version of the change before.
    pub prior_version: EVersion,
    /// The version that clients see and assert.
    pub user_version: u64,
    /// Counts the truncations of CephFS.
    pub truncate_seq: u32,
    /// The size that the last of them left.
    pub truncate_size: u64,
    /// Flags; none are defined yet.
    pub flags: u32,
    /// Hint: the size it will have.
    pub expected_object_size: u64,
    /// Hint: the size of its writes.
    pub expected_write_size: u64,
    /// Hint flags (`CEPH_OSD_ALLOC_HINT_FLAG_*`).
    pub alloc_hint_flags: u32,
}

impl Encode for ObjectInfo {
    fn encode(&self, w: &mut Writer) {
        w.section(VERSION, 1, |w| {
            w.u64(self.size);
            w.put(&self.mtime);
            w.put(&self.local_mtime);
            w.put(&self.version);
            w.put(&self.prior_version);
            w.u64(self.user_version);
            w.u32(self.truncate_seq);
            w.u64(self.truncate_size);
            w.u32(self.flags);
            w.u64(self.expected_object_size);
            w.u64(self.expected_write_size);
            w.u32(self.alloc_hint_flags);
        });
    }
}

impl Decode for ObjectInfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("object info", VERSION, |_, r| {
            Ok(Self {
                size: r.u64()?,
                mtime: r.get()?,
                local_mtime: r.get()?,
                version: r.get()?,
                prior_version: r.get()?,
                user_version: r.u64()?,
                truncate_seq: r.u32()?,
                truncate_size: r.u64()?,
                flags: r.u32()?,
                expected_object_size: r.u64()?,
                expected_write_size: r.u64()?,
                alloc_hint_flags: r.u32()?,
            })
        })
    }
}

impl ObjectInfo {
    /// The encoded info.
    pub fn to_bytes(&self) -> Bytes {
        let mut w = Writer::with_capacity(96);
        w.put(self);
        w.into_vec().into()
    }
}
