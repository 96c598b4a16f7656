//! The clones of snapshots. Clones of protected snapshots (format 1) are listed per pool in
//! `rbd_children`, other clones (format 2) in the header of the parent's image.

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Writer, encode_to_vec};
use spirula_maps::PoolId;

use super::arguments::arguments;
use super::features::{self, OpFeatures};
use super::{keys, snapshot_record as record};
use crate::method::Nothing;
use crate::{Error, Object, Result};

arguments! {
    /// A parent; its encoding is the key of its list of clones.
    pub(super) struct ParentKey {
        pub(super) pool_id: PoolId,
        pub(super) image_id: Bytes,
        pub(super) snap_id: u64,
    }
}

impl ParentKey {
    fn key(self) -> Vec<u8> {
        encode_to_vec(&(self.pool_id, (self.image_id, self.snap_id)))
    }
}

type Ids = BTreeSet<Bytes>;

pub(super) fn add(object: &mut dyn Object, (parent, child): (ParentKey, Bytes)) -> Result<Nothing> {
    let key = parent.key();
    let mut children: Ids = keys::get(object, &key)?.unwrap_or_default();
    if !children.insert(child) {
        return Err(Error::EEXIST);
    }
    keys::set(object, &key, &children).map(|()| Nothing)
}

pub(super) fn remove(object: &mut dyn Object, (parent, child): (ParentKey, Bytes)) -> Result<Nothing> {
    let key = parent.key();
    let mut children: Ids = keys::require(object, &key)?;
    if !children.remove(&child) {
        return Err(Error::ENOENT);
    }
    match children.is_empty() {
        true => keys::remove(object, &key)?,
        false => keys::set(object, &key, &children)?,
    }
    Ok(Nothing)
}

pub(super) fn get(object: &mut dyn Object, parent: ParentKey) -> Result<Ids> {
    keys::require(object, parent.key())
}

/// A clone with its pool and namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildImageSpec {
    /// Its pool.
    pub pool_id: PoolId,
    /// The namespace in it.
    pub pool_namespace: Bytes,
    /// The image.
    pub image_id: Bytes,
}

// By hand: it is ordered by namespace before image, and written the other way round.
impl Encode for ChildImageSpec {
    fn encode(&self, w: &mut Writer) {
        w.section(2, 1, |w| {
            w.put(&self.pool_id);
            w.put(&self.image_id);
            w.put(&self.pool_namespace);
        });
    }
}

impl Decode for ChildImageSpec {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("ChildImageSpec", 2, |version, r| {
            let (pool_id, image_id) = r.get()?;
            Ok(Self {
                pool_id,
                image_id,
                pool_namespace: if version >= 2 { r.get()? } else { Bytes::new() },
            })
        })
    }
}

type Specs = BTreeSet<ChildImageSpec>;

/// The key of a snapshot's list of clones.
fn children_key(snap: u64) -> String {
    format!("snap_children_{snap:016x}")
}

/// Lists a clone, which keeps the snapshot from being removed.
pub(super) fn attach(object: &mut dyn Object, (id, child): (u64, ChildImageSpec)) -> Result<Nothing> {
    let mut snap = record::read(object, id)?;
    if snap.namespace.is_trash() {
        return Err(Error::ENOENT);
    }
    let key = children_key(id);
    let mut children: Specs = keys::get(object, &key)?.unwrap_or_default();
    if !children.insert(child) {
        return Err(Error::EEXIST);
    }
    keys::set(object, &key, &children)?;
    snap.child_count = snap.child_count.wrapping_add(1);
    record::write(object, id, snap)?;
    features::set_operations(object, OpFeatures::CLONE_PARENT, OpFeatures::CLONE_PARENT)?;
    Ok(Nothing)
}

pub(super) fn detach(object: &mut dyn Object, (id, child): (u64, ChildImageSpec)) -> Result<Nothing> {
    let mut snap = record::read(object, id)?;
    let key = children_key(id);
    let mut children: Specs = keys::get(object, &key)?.unwrap_or_default();
    if snap.child_count as usize != children.len() {
        return Err(Error::EINVAL);
    }
    if !children.remove(&child) {
        return Err(Error::ENOENT);
    }
    match children.is_empty() {
        true => keys::remove_any(object, &key)?,
        false => keys::set(object, &key, &children)?,
    }
    snap.child_count -= 1;
    let is_last = snap.child_count == 0;
    record::write(object, id, snap)?;
    let is_cloned = |s: &record::Snapshot| s.id != id && s.child_count > 0;
    if is_last && !record::read_all(object)?.iter().any(is_cloned) {
        features::set_operations(object, OpFeatures::empty(), OpFeatures::CLONE_PARENT)?;
    }
    Ok(Nothing)
}

pub(super) fn list(object: &mut dyn Object, id: u64) -> Result<Specs> {
    record::read(object, id)?;
    keys::require(object, children_key(id))
}
