//! Snapshots of groups, in the group's header: of each the snapshots of the images that it is made
//! of. Formats: Ceph's `src/cls/rbd/cls_rbd_types.h`.
//!
//! Since Squid the header also numbers them in the order in which they were made.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_maps::PoolId;

use super::keys;
use crate::method::{Nothing, stored};
use crate::{Error, Object, Result};
use spirula_denc::versioned;

const PREFIX: &str = "snapshot_";
const ORDER_PREFIX: &str = "snap_order_";
/// The key of the highest number of a snapshot.
const MAX_ORDER: &str = "snap_max_order";

/// The snapshot is being made.
const INCOMPLETE: u8 = 0;

versioned! {
    /// A snapshot of an image.
    #[derive(Eq)]
    pub(crate) struct ImageSnapshotSpec("ImageSnapshotSpec", version 1, compat 1) {
        pub(crate) pool: PoolId;
        pub(crate) image_id: Bytes;
        pub(crate) snap_id: u64;
    }

    /// A snapshot of a group.
    #[derive(Eq)]
    pub(crate) struct GroupSnapshot("GroupSnapshot", version 1, compat 1) {
        pub(crate) id: Bytes;
        pub(crate) name: Bytes;
        pub(crate) state: u8;
        pub(crate) snaps: Vec<ImageSnapshotSpec>;
    }
}

fn key(id: &[u8]) -> Vec<u8> {
    [PREFIX.as_bytes(), id].concat()
}

fn order_key(id: &[u8]) -> Vec<u8> {
    [ORDER_PREFIX.as_bytes(), id].concat()
}

pub(super) fn set(object: &mut dyn Object, snap: GroupSnapshot) -> Result<Nothing> {
    if snap.name.is_empty() || snap.id.is_empty() {
        return Err(Error::EINVAL);
    }
    for (_, other) in keys::list(object, PREFIX, b"", u64::MAX)? {
        let other: GroupSnapshot = stored(&other)?;
        if other.name == snap.name && other.id != snap.id {
            return Err(Error::EEXIST);
        }
    }
    if snap.state == INCOMPLETE && keys::has(object, key(&snap.id))? {
        return Err(Error::EEXIST);
    }
    if !keys::has(object, order_key(&snap.id))? {
        let last: u64 = keys::get(object, MAX_ORDER)?.unwrap_or_default();
        let order = last.wrapping_add(1);
        keys::set(object, order_key(&snap.id), &order)?;
        keys::set(object, MAX_ORDER, &order)?;
    }
    keys::set(object, key(&snap.id), &snap).map(|()| Nothing)
}

pub(super) fn remove(object: &mut dyn Object, id: Bytes) -> Result<Nothing> {
    keys::remove(object, key(&id))?;
    keys::remove(object, order_key(&id)).map(|()| Nothing)
}

pub(super) fn get_by_id(object: &mut dyn Object, id: Bytes) -> Result<GroupSnapshot> {
    keys::require(object, key(&id))
}

/// Lists snapshots, up to the first undecodable one.
pub(super) fn list(
    object: &mut dyn Object,
    (after, max): (GroupSnapshot, u64),
) -> Result<Vec<GroupSnapshot>> {
    let found = keys::list(object, PREFIX, &after.id, max)?;
    Ok(found.iter().map_while(|(_, snap)| stored(snap).ok()).collect())
}

/// The numbers of snapshots by id, which tell the order of their creation.
pub(super) fn list_order(
    object: &mut dyn Object,
    (after, max): (Bytes, u64),
) -> Result<BTreeMap<Bytes, u64>> {
    let found = keys::list(object, ORDER_PREFIX, &after, max)?;
    found
        .into_iter()
        .map(|(id, order)| Ok((id, stored(&order)?)))
        .collect()
}
