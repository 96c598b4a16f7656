//! An image's snapshots.

use bytes::Bytes;
use spirula_denc::{Fsid, UTime, versioned};
use spirula_maps::snap::{MAXSNAP, NOSNAP};

use super::arguments::{Trailing, arguments};
use super::features::{self, Features, OpFeatures};
use super::parent::{self, Parent};
use super::protection::{PROTECTED, UNPROTECTED};
use super::snapshot_namespace::SnapshotNamespace;
use super::snapshot_record::{self as record, Snapshot};
use super::{header, keys, snapshot_limit};
use crate::method::Nothing;
use crate::{Error, Object, Result};

/// The key of the highest snapshot id ever.
pub(super) const SEQ: &str = "snap_seq";

/// The record of a snapshot; the head is refused.
fn read(object: &mut dyn Object, id: u64) -> Result<Snapshot> {
    match id {
        NOSNAP => Err(Error::EINVAL),
        _ => record::read(object, id),
    }
}

/// The snapshot context of writers: the highest id ever, and the existing ids, newest first.
pub(super) fn get_context(object: &mut dyn Object, _: Nothing) -> Result<(u64, Vec<u64>)> {
    let records = keys::list(object, record::PREFIX, b"", u64::MAX)?;
    let id = |key: &Bytes| {
        let text = std::str::from_utf8(key).unwrap_or_default();
        u64::from_str_radix(text, 16).unwrap_or_default()
    };
    let ids = records.iter().rev().map(|(key, _)| id(key)).collect();
    Ok((keys::require(object, SEQ)?, ids))
}

pub(super) fn get_name(object: &mut dyn Object, id: u64) -> Result<Bytes> {
    read(object, id).map(|s| s.name)
}

pub(super) fn get_timestamp(object: &mut dyn Object, id: u64) -> Result<UTime> {
    read(object, id).map(|s| s.timestamp)
}

versioned! {
    /// Output of `snapshot_get`.
    #[derive(Eq)]
    pub struct SnapshotInfo("SnapshotInfo", version 1, compat 1) {
        /// Its id.
        pub id: u64;
        /// Its kind.
        pub namespace: SnapshotNamespace;
        /// Its name.
        pub name: Bytes;
        /// The image's size at the snapshot.
        pub image_size: u64;
        /// When it was made.
        pub timestamp: UTime;
        /// The number of its clones.
        pub child_count: u32;
    }
}

pub(super) fn get(object: &mut dyn Object, id: u64) -> Result<SnapshotInfo> {
    let snap = read(object, id)?;
    Ok(SnapshotInfo {
        id: snap.id,
        namespace: snap.namespace,
        name: snap.name,
        image_size: snap.image_size,
        timestamp: snap.timestamp,
        child_count: snap.child_count,
    })
}

arguments! {
    /// Input of `snapshot_add`.
    pub(super) struct Add {
        pub(super) name: Bytes,
        pub(super) id: u64,
        pub(super) namespace: Trailing<SnapshotNamespace>,
    }
}

pub(super) fn add(object: &mut dyn Object, op: Add) -> Result<Nothing> {
    let namespace = op.namespace.0.unwrap_or_default();
    if namespace == SnapshotNamespace::Unknown || op.id > MAXSNAP {
        return Err(Error::EINVAL);
    }
    // Another client made one with a newer id meanwhile.
    if op.id < keys::require(object, SEQ)? {
        return Err(Error::ESTALE);
    }
    let image_size = keys::require(object, header::SIZE)?;
    let flags = keys::get(object, features::FLAGS)?.unwrap_or_default();
    let limit = snapshot_limit::read(object)?;
    for (i, other) in (1..).zip(record::read_all(object)?) {
        if i >= limit {
            return Err(Error::EDQUOT);
        }
        if other.id == op.id || (other.name == op.name && namespace.is_same(&other.namespace)) {
            return Err(Error::EEXIST);
        }
    }
    let parent = keys::get(object, parent::KEY)?.unwrap_or_default();
    if namespace.is_trash() {
        features::set_operations(object, OpFeatures::SNAP_TRASH, OpFeatures::SNAP_TRASH)?;
    }
    keys::set(object, SEQ, &op.id)?;
    let snap = Snapshot {
        id: op.id,
        name: op.name,
        image_size,
        parent,
        flags,
        timestamp: object.now(),
        namespace,
        ..Snapshot::default()
    };
    record::write(object, op.id, snap).map(|()| Nothing)
}

/// Renames a user's snapshot.
pub(super) fn rename(object: &mut dyn Object, (id, name): (u64, Bytes)) -> Result<Nothing> {
    let is_user = |s: &Snapshot| s.namespace == SnapshotNamespace::User;
    let snaps = record::read_all(object)?;
    if snaps.iter().any(|s| is_user(s) && s.name == name) {
        return Err(Error::EEXIST);
    }
    let mut snap = record::read(object, id)?;
    if !is_user(&snap) {
        return Err(Error::EINVAL);
    }
    snap.name = name;
    record::write(object, id, snap).map(|()| Nothing)
}

pub(super) fn remove(object: &mut dyn Object, id: u64) -> Result<Nothing> {
    let snap = record::read(object, id)?;
    if snap.protection != UNPROTECTED || snap.child_count > 0 {
        return Err(Error::EBUSY);
    }
    record::remove(object, id)?;
    let mut others = record::read_all(object)?;
    others.retain(|s| s.id != id);
    let snaps_see_parent = others.iter().any(Snapshot::has_parent);
    let parent = keys::get::<Parent>(object, parent::KEY)?.filter(Parent::exists);
    let head_sees_parent = parent.as_ref().is_some_and(|p| p.head_overlap.is_some());
    if parent.is_some() && !head_sees_parent && !snaps_see_parent {
        keys::remove_any(object, parent::KEY)?;
    }
    let mut gone = OpFeatures::empty();
    if !snaps_see_parent && !head_sees_parent {
        gone.insert(OpFeatures::CLONE_CHILD);
    }
    if !others.iter().any(|s| s.namespace.is_trash()) {
        gone.insert(OpFeatures::SNAP_TRASH);
    }
    if !gone.is_empty() {
        features::set_operations(object, OpFeatures::empty(), gone)?;
    }
    Ok(Nothing)
}

/// Puts a snapshot with clones into the trash.
pub(super) fn trash_add(object: &mut dyn Object, id: u64) -> Result<Nothing> {
    let mut snap = record::read(object, id)?;
    if snap.protection != UNPROTECTED {
        return Err(Error::EBUSY);
    }
    if snap.namespace.is_trash() {
        return Err(Error::EEXIST);
    }
    features::set_operations(object, OpFeatures::SNAP_TRASH, OpFeatures::SNAP_TRASH)?;
    snap.namespace = SnapshotNamespace::Trash {
        original_name: snap.name,
        original_kind: snap.namespace.kind(),
    };
    snap.name = random_uuid(object).into();
    record::write(object, id, snap).map(|()| Nothing)
}

/// A random UUID (version 4) as text.
fn random_uuid(object: &mut dyn Object) -> String {
    let mut bytes = [0; 16];
    object.random(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Fsid(bytes).to_string()
}

pub(super) fn get_protection_status(object: &mut dyn Object, id: u64) -> Result<u8> {
    match read(object, id)?.protection {
        status if status > PROTECTED => Err(Error::EIO),
        status => Ok(status),
    }
}

pub(super) fn set_protection_status(object: &mut dyn Object, (id, status): (u64, u8)) -> Result<Nothing> {
    object.stat()?;
    features::require(object, Features::LAYERING)?;
    if id == NOSNAP || status > PROTECTED {
        return Err(Error::EINVAL);
    }
    let mut snap = record::read(object, id)?;
    snap.protection = status;
    record::write(object, id, snap).map(|()| Nothing)
}
