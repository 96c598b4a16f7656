//! An object's info and snap set as Ceph keeps them, in which they are shown to clients.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use spirula_denc::{decode_all, encode_to_vec};
use spirula_maps::{HObject, ReqId};
use spirula_proto::osd_op_data::attr::{self, ObjectInfoFlags, WatchInfo};

use super::account::Found;
use crate::pg::object::{ObjectFlags, ObjectInfo};
use crate::pg::snaps::set::SnapSet;

/// The object info. `reqid`: the last request that changed the object, as far as it is known.
pub(super) fn object_info(object: &HObject, info: &ObjectInfo, reqid: ReqId) -> attr::ObjectInfo {
    let mut flags = ObjectInfoFlags::DIRTY;
    if info.whiteout {
        flags.insert(ObjectInfoFlags::WHITEOUT);
    }
    if info.flags.contains(ObjectFlags::OMAP) {
        flags.insert(ObjectInfoFlags::OMAP);
    }
    let watchers = info.watchers.iter().map(|(key, watcher)| {
        let watch = WatchInfo {
            cookie: key.0,
            timeout_seconds: watcher.timeout,
            addr: watcher.addr,
        };
        (*key, watch)
    });
    let mut official = attr::ObjectInfo {
        soid: object.clone(),
        version: info.version,
        prior_version: info.prior_version,
        last_reqid: reqid,
        user_version: info.user_version,
        size: info.size,
        mtime: info.mtime,
        local_mtime: info.local_mtime,
        flags,
        truncate_seq: info.truncate_seq.into(),
        truncate_size: info.truncate_size,
        expected_object_size: info.hint.object_size,
        expected_write_size: info.hint.write_size,
        alloc_hint_flags: info.hint.flags,
        watchers: watchers.collect(),
        ..attr::ObjectInfo::default()
    };
    if let Some(digest) = info.digests.data {
        official.set_data_digest(digest);
    }
    if let Some(digest) = info.digests.omap {
        official.set_omap_digest(digest);
    }
    official
}

/// The snap set of a head.
pub(super) fn snap_set(set: &SnapSet) -> attr::SnapSet {
    let clones = || set.clones.iter();
    attr::SnapSet {
        seq: set.seq,
        snaps: Vec::new(),
        clones: clones().map(|c| c.id).collect(),
        clone_overlap: clones().map(|c| (c.id, c.overlap.clone())).collect(),
        clone_size: clones().map(|c| (c.id, c.size)).collect(),
        clone_snaps: clones().map(|c| (c.id, c.snaps.clone())).collect(),
    }
}

/// The attributes of a copy. An info that can't be decoded is shown as it is.
pub(super) fn attributes(object: &HObject, found: &Found, reqid: ReqId) -> BTreeMap<Bytes, Bytes> {
    let users = found.attrs.iter().flatten();
    let mut all: BTreeMap<Bytes, Bytes> = users.map(|(n, v)| (attr::of_user(n), v.clone())).collect();
    match decode_all::<ObjectInfo>(&found.info) {
        Ok(info) => {
            let official = encode_to_vec(&object_info(object, &info, reqid));
            all.insert(attr::OBJECT_INFO, official.into());
            if object.is_head() {
                all.insert(attr::SNAP_SET, encode_to_vec(&snap_set(&info.snap_set)).into());
            }
        }
        Err(_) if found.info.is_empty() => {}
        Err(_) => drop(all.insert(attr::OBJECT_INFO, found.info.clone())),
    }
    all
}

/// An object info as Ceph writes it in its log (`operator<<` of `object_info_t`).
pub(super) struct Display<'a>(pub(super) &'a attr::ObjectInfo);

impl fmt::Display for Display<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.0;
        write!(f, "{}({} {}", info.soid, info.version, info.last_reqid)?;
        if !info.flags.is_empty() {
            write!(f, " {}", info.flags)?;
        }
        write!(f, " s {} uv {}", info.size, info.user_version)?;
        if info.flags.contains(ObjectInfoFlags::DATA_DIGEST) {
            write!(f, " dd {:x}", info.data_digest)?;
        }
        if info.flags.contains(ObjectInfoFlags::OMAP_DIGEST) {
            write!(f, " od {:x}", info.omap_digest)?;
        }
        write!(
            f,
            " alloc_hint [{} {} {}])",
            info.expected_object_size, info.expected_write_size, info.alloc_hint_flags.0
        )
    }
}
