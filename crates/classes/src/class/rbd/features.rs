//! Features of an image, which decide which clients may open it; its operation features, and its
//! flags.

use spirula_denc::{Decode, Encode, Reader, Writer};
use spirula_maps::snap::NOSNAP;

use super::arguments::{Trailing, arguments};
use super::{keys, snapshot_record};
use crate::error::unless;
use crate::method::Nothing;
use crate::{Error, Object, Result};

/// The image may have a parent.
pub const LAYERING: u64 = 1 << 0;
/// The image is striped otherwise than object by object.
pub const STRIPINGV2: u64 = 1 << 1;
/// A client that writes holds the exclusive lock.
pub const EXCLUSIVE_LOCK: u64 = 1 << 2;
/// The image has a map of its existing objects.
pub const OBJECT_MAP: u64 = 1 << 3;
/// The object map also tells which objects were written since the newest snapshot.
pub const FAST_DIFF: u64 = 1 << 4;
/// Flattening the image also removes the parent from its snapshots.
pub const DEEP_FLATTEN: u64 = 1 << 5;
/// Changes are written to a journal first.
pub const JOURNALING: u64 = 1 << 6;
/// The image's data is in another pool.
pub const DATA_POOL: u64 = 1 << 7;
/// The image has operation features: only clients that know these may write.
pub const OPERATIONS: u64 = 1 << 8;
/// The image is being migrated.
pub const MIGRATING: u64 = 1 << 9;
/// The image is a mirror's copy: only mirroring writes.
pub const NON_PRIMARY: u64 = 1 << 10;
/// A client has a cache with unwritten data.
pub const DIRTY_CACHE: u64 = 1 << 11;

/// Every feature; a client that writes must know all that an image has.
pub const ALL: u64 = (1 << 12) - 1;
/// Features that a client must know to read.
const INCOMPATIBLE: u64 = LAYERING | STRIPINGV2 | DATA_POOL | DIRTY_CACHE;
/// Features that can be enabled and disabled.
const MUTABLE: u64 = EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | JOURNALING | NON_PRIMARY | DIRTY_CACHE;
/// Features that can only be disabled.
const DISABLE_ONLY: u64 = DEEP_FLATTEN;
/// Features that methods set, not users.
const INTERNAL: u64 = OPERATIONS | MIGRATING;

/// The image has snapshots with clones of format 2.
pub const CLONE_PARENT: u64 = 1 << 0;
/// The image is a clone of format 2.
pub const CLONE_CHILD: u64 = 1 << 1;
/// The image belongs to a group.
pub const GROUP: u64 = 1 << 2;
/// The image has removed snapshots that clones still need.
pub const SNAP_TRASH: u64 = 1 << 3;
/// Every operation feature.
const OPERATIONS_ALL: u64 = (1 << 4) - 1;

pub(super) const FEATURES: &str = "features";
const OP_FEATURES: &str = "op_features";
pub(super) const FLAGS: &str = "flags";

/// The image's features; `None` for an object that is no image of this format.
pub(super) fn read(object: &mut dyn Object) -> Result<Option<u64>> {
    keys::get(object, FEATURES)
}

pub(super) fn write(object: &mut dyn Object, features: u64) -> Result<()> {
    keys::set(object, FEATURES, &features)
}

/// ENOEXEC where the image lacks a feature.
pub(super) fn require(object: &mut dyn Object, feature: u64) -> Result<()> {
    match read(object)? {
        Some(have) if have & feature == feature => Ok(()),
        _ => Err(Error::ENOEXEC),
    }
}

/// Whether the image has a feature.
pub(super) fn has(object: &mut dyn Object, feature: u64) -> Result<bool> {
    unless(require(object, feature), &[Error::ENOEXEC, Error::EIO]).map(|r| r.is_some())
}

/// `old`, with the bits of `mask` taken from `new`.
fn masked(old: u64, new: u64, mask: u64) -> u64 {
    (old & !mask) | (new & mask)
}

/// Sets operation features, and the feature that tells that there are any.
pub(super) fn set_operations(object: &mut dyn Object, operations: u64, mask: u64) -> Result<()> {
    let old: u64 = read(object)?.ok_or(Error::ENOENT)?;
    let old_operations = keys::get(object, OP_FEATURES)?.unwrap_or_default();
    let operations = masked(old_operations, operations, mask);
    if operations == old_operations {
        return Ok(());
    }
    let features = if operations == 0 {
        keys::remove_any(object, OP_FEATURES)?;
        old & !OPERATIONS
    } else {
        keys::set(object, OP_FEATURES, &operations)?;
        old | OPERATIONS
    };
    match features == old {
        true => Ok(()),
        false => write(object, features),
    }
}

/// Output of `get_features`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// The image's features.
    pub all: u64,
    /// The features that a client must know to read or, by default, to write.
    pub incompatible: u64,
}

impl Encode for Features {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.all);
        w.u64(self.incompatible);
    }
}

impl Decode for Features {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        Ok(Self {
            all: r.u64()?,
            incompatible: r.u64()?,
        })
    }
}

/// Input of `set_features` and `op_features_set`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureChange {
    /// The new values of features.
    pub new: u64,
    /// The features that change.
    pub mask: u64,
}

impl Encode for FeatureChange {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.new);
        w.u64(self.mask);
    }
}

impl Decode for FeatureChange {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        Ok(Self {
            new: r.u64()?,
            mask: r.u64()?,
        })
    }
}

pub(super) fn get_features(
    object: &mut dyn Object,
    (_snap, read_only): (u64, Trailing<bool>),
) -> Result<Features> {
    let features = read(object)?.ok_or(Error::ENOENT)?;
    let incompatible = if read_only.0.unwrap_or_default() {
        INCOMPATIBLE
    } else {
        ALL
    };
    Ok(Features {
        all: features,
        incompatible: features & incompatible,
    })
}

pub(super) fn set_features(object: &mut dyn Object, change: FeatureChange) -> Result<Nothing> {
    let FeatureChange { new, mask } = change;
    let old = read(object)?.unwrap_or_default();
    if mask & INTERNAL != 0 {
        return Err(Error::EINVAL);
    }
    // Newer clients may disable features that are not known here.
    let mask = mask & ALL;
    if new & mask & !MUTABLE != 0 || !new & mask & !(MUTABLE | DISABLE_ONLY) != 0 {
        return Err(Error::EINVAL);
    }
    write(object, masked(old, new, mask)).map(|()| Nothing)
}

pub(super) fn get_all_features(_: &mut dyn Object, _: Nothing) -> Result<u64> {
    Ok(ALL)
}

pub(super) fn op_features_get(object: &mut dyn Object, _: Nothing) -> Result<u64> {
    Ok(keys::get(object, OP_FEATURES)?.unwrap_or_default())
}

pub(super) fn op_features_set(object: &mut dyn Object, change: FeatureChange) -> Result<Nothing> {
    let FeatureChange { new, mask } = change;
    if mask & !OPERATIONS_ALL != 0 {
        return Err(Error::EINVAL);
    }
    set_operations(object, new, mask).map(|()| Nothing)
}

pub(super) fn get_flags(object: &mut dyn Object, snap: u64) -> Result<u64> {
    match snap {
        NOSNAP => Ok(keys::get(object, FLAGS)?.unwrap_or_default()),
        _ => snapshot_record::read(object, snap).map(|s| s.flags),
    }
}

arguments! {
    /// Input of `set_flags`.
    pub(super) struct SetFlags {
        pub(super) flags: u64,
        pub(super) mask: u64,
        pub(super) snap: Trailing<u64>,
    }
}

pub(super) fn set_flags(object: &mut dyn Object, op: SetFlags) -> Result<Nothing> {
    let new = |old| masked(old, op.flags, op.mask);
    match op.snap.0.unwrap_or(NOSNAP) {
        NOSNAP => {
            let old = keys::get(object, FLAGS)?.unwrap_or_default();
            keys::set(object, FLAGS, &new(old))?;
        }
        id => {
            let mut snap = snapshot_record::read(object, id)?;
            snap.flags = new(snap.flags);
            snapshot_record::write(object, id, snap)?;
        }
    }
    Ok(Nothing)
}
