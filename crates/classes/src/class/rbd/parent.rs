//! The parent of a clone: `cls_rbd_parent` of Ceph's `src/cls/rbd/cls_rbd.h`.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Writer, versioned};
use spirula_maps::PoolOrNone;
use spirula_maps::snap::NOSNAP;

use super::arguments::{Trailing, arguments};
use super::features::{self, Features, OpFeatures};
use super::snapshot_record::{self as record, Snapshot};
use super::{header, keys};
use crate::method::Nothing;
use crate::{Error, Object, Result};

/// The key of the parent.
pub(super) const KEY: &str = "parent";

/// A parent. Perhaps only snapshots see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) pool_id: PoolOrNone,
    pub(super) pool_namespace: Bytes,
    pub(super) image_id: Bytes,
    pub(super) snap_id: u64,
    /// The bytes from its start that the image sees. `None` where only snapshots see it.
    pub(super) head_overlap: Option<u64>,
}

impl Default for Parent {
    fn default() -> Self {
        Self {
            pool_id: PoolOrNone::NONE,
            pool_namespace: Bytes::new(),
            image_id: Bytes::new(),
            snap_id: NOSNAP,
            head_overlap: None,
        }
    }
}

impl Parent {
    /// Whether there is a parent.
    pub(super) fn exists(&self) -> bool {
        self.pool_id != PoolOrNone::NONE && !self.image_id.is_empty() && self.snap_id != NOSNAP
    }

    fn is_same_snapshot(&self, other: &Self) -> bool {
        let overlap = other.head_overlap;
        &Self {
            head_overlap: overlap,
            ..self.clone()
        } == other
    }
}

// By hand: version 1 has the overlap in another form.
impl Encode for Parent {
    fn encode(&self, w: &mut Writer) {
        w.section(2, 2, |w| {
            w.put(&self.pool_id);
            w.put(&self.pool_namespace);
            w.put(&self.image_id);
            w.u64(self.snap_id);
            w.put(&self.head_overlap);
        });
    }
}

impl Decode for Parent {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("cls_rbd_parent", 2, |version, r| {
            Ok(Self {
                pool_id: r.get()?,
                pool_namespace: if version >= 2 { r.get()? } else { Bytes::new() },
                image_id: r.get()?,
                snap_id: r.u64()?,
                head_overlap: if version >= 2 { r.get()? } else { Some(r.u64()?) },
            })
        })
    }
}

versioned! {
    /// A parent as clients name it.
    #[derive(Eq)]
    pub struct ParentImageSpec("ParentImageSpec", version 1, compat 1) {
        /// Its pool.
        pub pool_id: PoolOrNone;
        /// The namespace in it.
        pub pool_namespace: Bytes;
        /// The image.
        pub image_id: Bytes;
        /// The image's snapshot.
        pub snap_id: u64;
    }
}

arguments! {
    /// A parent as clients before Nautilus name it, and as they are told of it.
    pub(super) struct Legacy {
        pub(super) pool_id: PoolOrNone,
        pub(super) image_id: Bytes,
        pub(super) snap_id: u64,
        pub(super) overlap: u64,
    }

    /// Input of `parent_attach`.
    pub(super) struct Attach {
        pub(super) spec: ParentImageSpec,
        pub(super) overlap: u64,
        /// Whether an existing parent is replaced.
        pub(super) reattach: Trailing<bool>,
    }
}

impl Encode for Legacy {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.pool_id);
        w.put(&self.image_id);
        w.u64(self.snap_id);
        w.u64(self.overlap);
    }
}

/// The parent of the image or of a snapshot, for clients that do not know of namespaces.
pub(super) fn get_legacy(object: &mut dyn Object, snap: u64) -> Result<Legacy> {
    object.stat()?;
    let parent = match features::has(object, Features::LAYERING)? {
        true => seen_by(object, snap)?,
        false => Parent::default(),
    };
    Ok(Legacy {
        pool_id: parent.pool_id,
        image_id: parent.image_id,
        snap_id: parent.snap_id,
        overlap: parent.head_overlap.unwrap_or_default(),
    })
}

fn seen_by(object: &mut dyn Object, id: u64) -> Result<Parent> {
    let parent: Parent = keys::get(object, KEY)?.unwrap_or_default();
    if !parent.pool_namespace.is_empty() {
        return Err(Error::EXDEV);
    }
    if id == NOSNAP {
        return Ok(parent);
    }
    let snap = match record::read(object, id) {
        Err(Error::ENOENT) => Snapshot::default(),
        other => other?,
    };
    match snap.parent_overlap {
        _ if snap.parent.exists() => Ok(snap.parent),
        None => Ok(Parent::default()),
        Some(_) if !parent.exists() => Err(Error::EINVAL),
        overlap => Ok(Parent {
            head_overlap: overlap,
            ..parent
        }),
    }
}

pub(super) fn set_legacy(object: &mut dyn Object, op: Legacy) -> Result<Nothing> {
    let parent = Parent {
        pool_id: op.pool_id,
        image_id: op.image_id,
        snap_id: op.snap_id,
        head_overlap: Some(op.overlap),
        ..Parent::default()
    };
    write_new(object, parent, false)
}

pub(super) fn remove_legacy(object: &mut dyn Object, _: Nothing) -> Result<Nothing> {
    remove(object, true)
}

/// The parent of the image or, if it has none, of its snapshots.
pub(super) fn get(object: &mut dyn Object, _: Nothing) -> Result<ParentImageSpec> {
    object.stat()?;
    let mut parent = Parent::default();
    if features::has(object, Features::LAYERING)? {
        parent = match keys::get(object, KEY)? {
            Some(parent) => parent,
            None => {
                let snaps = record::read_all(object)?.into_iter();
                let parents = snaps.map(|s| s.parent).filter(Parent::exists);
                parents.last().unwrap_or_default()
            }
        };
    }
    Ok(ParentImageSpec {
        pool_id: parent.pool_id,
        pool_namespace: parent.pool_namespace,
        image_id: parent.image_id,
        snap_id: parent.snap_id,
    })
}

/// The bytes of the parent that the image or a snapshot sees.
pub(super) fn overlap_get(object: &mut dyn Object, id: u64) -> Result<Option<u64>> {
    if !features::has(object, Features::LAYERING)? {
        return Ok(None);
    }
    if id == NOSNAP {
        let parent: Option<Parent> = keys::get(object, KEY)?;
        return Ok(parent.and_then(|p| p.head_overlap));
    }
    let snap = record::read(object, id)?;
    let of_parent = snap.parent.head_overlap.filter(|_| snap.parent.exists());
    Ok(snap.parent_overlap.or(of_parent))
}

pub(super) fn attach(object: &mut dyn Object, op: Attach) -> Result<Nothing> {
    let parent = Parent {
        pool_id: op.spec.pool_id,
        pool_namespace: op.spec.pool_namespace,
        image_id: op.spec.image_id,
        snap_id: op.spec.snap_id,
        head_overlap: Some(op.overlap),
    };
    write_new(object, parent, op.reattach.0.unwrap_or_default())
}

pub(super) fn detach(object: &mut dyn Object, _: Nothing) -> Result<Nothing> {
    remove(object, false)
}

fn write_new(object: &mut dyn Object, mut parent: Parent, reattach: bool) -> Result<Nothing> {
    object.stat()?;
    features::require(object, Features::LAYERING)?;
    let overlap = parent.head_overlap.unwrap_or_default();
    if !parent.exists() || overlap == 0 {
        return Err(Error::EINVAL);
    }
    let old: Option<Parent> = keys::get(object, KEY)?;
    let is_other = |old: Parent| old.head_overlap.is_some() || !old.is_same_snapshot(&parent);
    if old.is_some_and(is_other) && !reattach {
        return Err(Error::EEXIST);
    }
    let size = keys::require(object, header::SIZE)?;
    parent.head_overlap = Some(overlap.min(size));
    keys::set(object, KEY, &parent).map(|()| Nothing)
}

/// Removes the parent from the image, and from its snapshots if they do not need it.
fn remove(object: &mut dyn Object, legacy: bool) -> Result<Nothing> {
    object.stat()?;
    let features = features::read(object)?.unwrap_or_default();
    if !features.contains(Features::LAYERING) {
        return Err(Error::ENOEXEC);
    }
    let mut parent: Parent = keys::require(object, KEY)?;
    if legacy && !parent.pool_namespace.is_empty() {
        return Err(Error::EXDEV);
    }
    if parent.head_overlap.is_none() {
        return Err(Error::ENOENT);
    }
    let mut children = record::read_all(object)?;
    children.retain(Snapshot::has_parent);
    if !children.is_empty() && !features.contains(Features::DEEP_FLATTEN) {
        parent.head_overlap = None;
        return keys::set(object, KEY, &parent).map(|()| Nothing);
    }
    for snap in children {
        let without = Snapshot {
            parent: Parent::default(),
            parent_overlap: None,
            ..snap
        };
        record::write(object, without.id, without)?;
    }
    keys::remove_any(object, KEY)?;
    features::set_operations(object, OpFeatures::empty(), OpFeatures::CLONE_CHILD)?;
    Ok(Nothing)
}
