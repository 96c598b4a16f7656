//! Features of an image, which decide which clients may open it; its operation features, and its
//! flags.

use spirula_denc::{Decode, Encode, Reader, Writer, flags};
use spirula_maps::snap::NOSNAP;

use super::arguments::{Trailing, arguments};
use super::{keys, snapshot_record};
use crate::error::unless;
use crate::method::Nothing;
use crate::{Error, Object, Result};

flags! {
    /// Features of an image.
    pub struct Features(u64), joined ", " {
        /// The image may have a parent.
        LAYERING = 0, "layering";
        /// The image is striped otherwise than object by object.
        STRIPINGV2 = 1, "striping";
        /// A client that writes holds the exclusive lock.
        EXCLUSIVE_LOCK = 2, "exclusive-lock";
        /// The image has a map of its existing objects.
        OBJECT_MAP = 3, "object-map";
        /// The object map also tells which objects were written since the newest snapshot.
        FAST_DIFF = 4, "fast-diff";
        /// Flattening the image also removes the parent from its snapshots.
        DEEP_FLATTEN = 5, "deep-flatten";
        /// Changes are written to a journal first.
        JOURNALING = 6, "journaling";
        /// The image's data is in another pool.
        DATA_POOL = 7, "data-pool";
        /// The image has operation features: only clients that know these may write.
        OPERATIONS = 8, "operations";
        /// The image is being migrated.
        MIGRATING = 9, "migrating";
        /// The image is a mirror's copy: only mirroring writes.
        NON_PRIMARY = 10, "non-primary";
        /// A client has a cache with unwritten data.
        DIRTY_CACHE = 11, "dirty-cache";
    }

    /// Features of operations that an image takes part in.
    pub struct OpFeatures(u64), joined ", " {
        /// The image has snapshots with clones of format 2.
        CLONE_PARENT = 0, "clone-parent";
        /// The image is a clone of format 2.
        CLONE_CHILD = 1, "clone-child";
        /// The image belongs to a group.
        GROUP = 2, "group";
        /// The image has removed snapshots that clones still need.
        SNAP_TRASH = 3, "snap-trash";
    }

    /// What can't be relied on in an image or a snapshot.
    pub struct ImageFlags(u64), joined ", " {
        /// The object map.
        OBJECT_MAP_INVALID = 0, "object map invalid";
        /// What the object map tells of writes since the newest snapshot.
        FAST_DIFF_INVALID = 1, "fast diff invalid";
    }
}

impl Features {
    /// Every feature; a client that writes must know all that an image has.
    pub const ALL: Self = Self((1 << 12) - 1);
    /// Features that a client must know to read.
    const INCOMPATIBLE: Self = Self::LAYERING
        .with(Self::STRIPINGV2)
        .with(Self::DATA_POOL)
        .with(Self::DIRTY_CACHE);
    /// Features that can be enabled and disabled.
    const MUTABLE: Self = Self::EXCLUSIVE_LOCK
        .with(Self::OBJECT_MAP)
        .with(Self::FAST_DIFF)
        .with(Self::JOURNALING)
        .with(Self::NON_PRIMARY)
        .with(Self::DIRTY_CACHE);
    /// Features that can only be disabled.
    const DISABLE_ONLY: Self = Self::DEEP_FLATTEN;
    /// Features that methods set, not users.
    const INTERNAL: Self = Self::OPERATIONS.with(Self::MIGRATING);
}

impl OpFeatures {
    /// Every operation feature.
    const ALL: Self = Self((1 << 4) - 1);
}

pub(super) const FEATURES: &str = "features";
const OP_FEATURES: &str = "op_features";
pub(super) const FLAGS: &str = "flags";

/// The image's features; `None` for an object that is no image of this format.
pub(super) fn read(object: &mut dyn Object) -> Result<Option<Features>> {
    keys::get(object, FEATURES)
}

pub(super) fn write(object: &mut dyn Object, features: Features) -> Result<()> {
    keys::set(object, FEATURES, &features)
}

/// ENOEXEC where the image lacks a feature.
pub(super) fn require(object: &mut dyn Object, feature: Features) -> Result<()> {
    match read(object)? {
        Some(have) if have.contains(feature) => Ok(()),
        _ => Err(Error::ENOEXEC),
    }
}

/// Whether the image has a feature.
pub(super) fn has(object: &mut dyn Object, feature: Features) -> Result<bool> {
    unless(require(object, feature), &[Error::ENOEXEC, Error::EIO]).map(|r| r.is_some())
}

/// Sets operation features, and the feature that tells that there are any.
pub(super) fn set_operations(object: &mut dyn Object, new: OpFeatures, mask: OpFeatures) -> Result<()> {
    let old = read(object)?.ok_or(Error::ENOENT)?;
    let old_operations: OpFeatures = keys::get(object, OP_FEATURES)?.unwrap_or_default();
    let operations = old_operations.changed(mask, new);
    if operations == old_operations {
        return Ok(());
    }
    let features = if operations.is_empty() {
        keys::remove_any(object, OP_FEATURES)?;
        old.without(Features::OPERATIONS)
    } else {
        keys::set(object, OP_FEATURES, &operations)?;
        old.with(Features::OPERATIONS)
    };
    match features == old {
        true => Ok(()),
        false => write(object, features),
    }
}

/// Output of `get_features`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeaturesFound {
    /// The image's features.
    pub all: Features,
    /// The features that a client must know to read or, by default, to write.
    pub incompatible: Features,
}

impl Encode for FeaturesFound {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.all);
        w.put(&self.incompatible);
    }
}

impl Decode for FeaturesFound {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        Ok(Self {
            all: r.get()?,
            incompatible: r.get()?,
        })
    }
}

/// Input of `set_features` and `op_features_set`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureChange<T> {
    /// The new values of features.
    pub new: T,
    /// The features that change.
    pub mask: T,
}

impl<T: Encode> Encode for FeatureChange<T> {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.new);
        w.put(&self.mask);
    }
}

impl<T: Decode> Decode for FeatureChange<T> {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        Ok(Self {
            new: r.get()?,
            mask: r.get()?,
        })
    }
}

pub(super) fn get_features(
    object: &mut dyn Object,
    (_snap, read_only): (u64, Trailing<bool>),
) -> Result<FeaturesFound> {
    let features = read(object)?.ok_or(Error::ENOENT)?;
    let incompatible = if read_only.0.unwrap_or_default() {
        Features::INCOMPATIBLE
    } else {
        Features::ALL
    };
    Ok(FeaturesFound {
        all: features,
        incompatible: features.intersection(incompatible),
    })
}

pub(super) fn set_features(object: &mut dyn Object, change: FeatureChange<Features>) -> Result<Nothing> {
    let FeatureChange { new, mask } = change;
    let old = read(object)?.unwrap_or_default();
    if mask.intersects(Features::INTERNAL) {
        return Err(Error::EINVAL);
    }
    // Newer clients may disable features that are not known here.
    let mask = mask.intersection(Features::ALL);
    let (enabled, disabled) = (mask.intersection(new), mask.without(new));
    let disableable = Features::MUTABLE.with(Features::DISABLE_ONLY);
    if !Features::MUTABLE.contains(enabled) || !disableable.contains(disabled) {
        return Err(Error::EINVAL);
    }
    write(object, old.changed(mask, new)).map(|()| Nothing)
}

pub(super) fn get_all_features(_: &mut dyn Object, _: Nothing) -> Result<Features> {
    Ok(Features::ALL)
}

pub(super) fn op_features_get(object: &mut dyn Object, _: Nothing) -> Result<OpFeatures> {
    Ok(keys::get(object, OP_FEATURES)?.unwrap_or_default())
}

pub(super) fn op_features_set(object: &mut dyn Object, change: FeatureChange<OpFeatures>) -> Result<Nothing> {
    let FeatureChange { new, mask } = change;
    if !OpFeatures::ALL.contains(mask) {
        return Err(Error::EINVAL);
    }
    set_operations(object, new, mask).map(|()| Nothing)
}

pub(super) fn get_flags(object: &mut dyn Object, snap: u64) -> Result<ImageFlags> {
    match snap {
        NOSNAP => Ok(keys::get(object, FLAGS)?.unwrap_or_default()),
        _ => snapshot_record::read(object, snap).map(|s| s.flags),
    }
}

arguments! {
    /// Input of `set_flags`.
    pub(super) struct SetFlags {
        pub(super) flags: ImageFlags,
        pub(super) mask: ImageFlags,
        pub(super) snap: Trailing<u64>,
    }
}

pub(super) fn set_flags(object: &mut dyn Object, op: SetFlags) -> Result<Nothing> {
    let new = |old: ImageFlags| old.changed(op.mask, op.flags);
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
