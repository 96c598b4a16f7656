//! The attributes in which Ceph's OSDs keep what belongs to an object besides its data: its info,
//! its snap set, the hashes of an erasure-coded shard, and users' attributes
//! (`src/osd/{osd_types.h,ECUtil.h,PGBackend.cc}`).
//!
//! A client sees them where an OSD lists inconsistent objects; see
//! [`ShardInfo`](super::ShardInfo).

mod hash_info;
mod object_info;
mod snap_set;

use bytes::Bytes;

pub use hash_info::HashInfo;
pub use object_info::{ChunkInfo, Manifest, ObjectInfo, ObjectInfoFlags, WatchInfo, WatchKey};
pub use snap_set::SnapSet;

/// The attribute that holds an encoded [`ObjectInfo`] (`OI_ATTR`).
pub const OBJECT_INFO: Bytes = Bytes::from_static(b"_");

/// The attribute of a head that holds an encoded [`SnapSet`] (`SS_ATTR`).
pub const SNAP_SET: Bytes = Bytes::from_static(b"snapset");

/// The attribute of an erasure-coded shard that holds an encoded [`HashInfo`]
/// (`ECUtil::get_hinfo_key`).
pub const HASH_INFO: Bytes = Bytes::from_static(b"hinfo_key");

/// Begins the names under which users' attributes are kept.
const USER_PREFIX: &[u8] = b"_";

/// The attribute that holds the user's attribute `name`.
pub fn of_user(name: &[u8]) -> Bytes {
    [USER_PREFIX, name].concat().into()
}

/// The user's name of an attribute; `None` for an attribute of the OSD's own.
pub fn user_name(attr: &[u8]) -> Option<&[u8]> {
    attr.strip_prefix(USER_PREFIX).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_attributes_are_told_from_the_osds() {
        assert_eq!(user_name(&of_user(b"colour")), Some(&b"colour"[..]));
        for own in [OBJECT_INFO, SNAP_SET, HASH_INFO] {
            assert_eq!(user_name(&own), None);
        }
    }
}
