//! The record of a snapshot in a header: `cls_rbd_snap` of Ceph's `src/cls/rbd/cls_rbd.h`.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, UTime, Writer};
use spirula_maps::PoolOrNone;
use spirula_maps::snap::NOSNAP;

use super::features::ImageFlags;
use super::keys;
use super::parent::{self, Parent};
use super::snapshot_namespace::SnapshotNamespace;
use crate::method::stored;
use crate::{Object, Result};

/// The prefix of snapshots' keys.
pub(super) const PREFIX: &str = "snapshot_";

/// The first version of the record without the parent itself; older code can't decode it.
const WITHOUT_PARENT: u8 = 8;

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) id: u64,
    pub(super) name: Bytes,
    pub(super) image_size: u64,
    pub(super) protection: u8,
    /// The parent at the time of the snapshot: in old records, until [`write`] takes the overlap
    /// from it.
    pub(super) parent: Parent,
    pub(super) flags: ImageFlags,
    pub(super) timestamp: UTime,
    pub(super) namespace: SnapshotNamespace,
    /// The number of its clones.
    pub(super) child_count: u32,
    /// The bytes of the image's parent that it sees.
    pub(super) parent_overlap: Option<u64>,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            id: NOSNAP,
            name: Bytes::new(),
            image_size: 0,
            protection: 0,
            parent: Parent::default(),
            flags: ImageFlags::default(),
            timestamp: UTime::ZERO,
            namespace: SnapshotNamespace::User,
            child_count: 0,
            parent_overlap: None,
        }
    }
}

impl Snapshot {
    /// Whether it sees anything of a parent.
    pub(super) fn has_parent(&self) -> bool {
        self.parent.pool_id != PoolOrNone::NONE || self.parent_overlap.is_some()
    }
}

// By hand: the compat version decides whether a parent is in it.
impl Encode for Snapshot {
    fn encode(&self, w: &mut Writer) {
        w.section(WITHOUT_PARENT, WITHOUT_PARENT, |w| {
            w.u64(self.id);
            w.put(&self.name);
            w.u64(self.image_size);
            w.u8(self.protection);
            w.put(&self.flags);
            w.put(&self.namespace);
            w.put(&self.timestamp);
            w.u32(self.child_count);
            w.put(&self.parent_overlap);
        });
    }
}

impl Decode for Snapshot {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        let [_, compat] = r.clone().array()?;
        let holds_parent = compat < WITHOUT_PARENT;
        r.section("cls_rbd_snap", WITHOUT_PARENT, |version, r| {
            let mut snap = Self {
                id: r.u64()?,
                name: r.get()?,
                image_size: r.u64()?,
                ..Self::default()
            };
            if holds_parent {
                let _features = r.u64()?;
            }
            if holds_parent && version >= 2 {
                snap.parent = r.get()?;
            }
            if version >= 3 {
                snap.protection = r.u8()?;
            }
            if version >= 4 {
                snap.flags = r.get()?;
            }
            if version >= 5 {
                snap.namespace = r.get()?;
            }
            if version >= 6 {
                snap.timestamp = r.get()?;
            }
            if version >= 7 {
                snap.child_count = r.u32()?;
            }
            if version >= WITHOUT_PARENT {
                snap.parent_overlap = r.get()?;
            }
            Ok(snap)
        })
    }
}

/// The key of a snapshot.
fn key(id: u64) -> String {
    format!("{PREFIX}{id:016x}")
}

/// A snapshot; ENOENT where there is none.
pub(super) fn read(object: &mut dyn Object, id: u64) -> Result<Snapshot> {
    keys::require(object, key(id))
}

/// All snapshots, oldest first.
pub(super) fn read_all(object: &mut dyn Object) -> Result<Vec<Snapshot>> {
    let records = keys::list(object, PREFIX, b"", u64::MAX)?;
    records.iter().map(|(_, v)| stored(v)).collect()
}

/// Writes the record of a snapshot. A parent in it moves to the image's own record.
pub(super) fn write(object: &mut dyn Object, id: u64, mut snap: Snapshot) -> Result<()> {
    if snap.parent.exists() {
        let known: Option<Parent> = keys::get(object, parent::KEY)?;
        let overlap = snap.parent.head_overlap.take();
        if !known.is_some_and(|p| p.exists()) {
            keys::set(object, parent::KEY, &snap.parent)?;
        }
        snap.parent_overlap = overlap;
        snap.parent = Parent::default();
    }
    keys::set(object, key(id), &snap)
}

pub(super) fn remove(object: &mut dyn Object, id: u64) -> Result<()> {
    keys::remove_any(object, key(id))
}
