//! Groups of images: the group's header (`rbd_group_header.` and its id) lists images, and each
//! image names its group. The directory of groups is one like that of images. Formats: Ceph's
//! `src/cls/rbd/cls_rbd_types.h`.

use bytes::Bytes;
use spirula_maps::PoolOrNone;

use super::features::{self, OpFeatures};
use super::keys;
use crate::method::{Nothing, input, stored};
use crate::text::{is_space, leading_hex};
use crate::{Error, Object, Result, omap};
use spirula_denc::versioned;

const IMAGE_PREFIX: &str = "image_";
/// The key of an image's header that names its group.
const GROUP: &str = "rbd_group_ref";

/// Stands for no pool.
const NO_POOL: i64 = -1;

versioned! {
    /// A reference to an image.
    #[derive(Eq)]
    pub(crate) struct GroupImageSpec("GroupImageSpec", version 1, compat 1) {
        pub(crate) image_id: Bytes;
        /// As the client says: Ceph takes any number, and -1 for none.
        pub(crate) pool_id: i64;
    }

    /// An image of a group.
    #[derive(Eq)]
    pub(crate) struct GroupImageStatus("GroupImageStatus", version 1, compat 1) {
        pub(crate) spec: GroupImageSpec;
        /// Whether the image's header names the group, too.
        pub(crate) state: u8;
    }

    /// A group.
    #[derive(Eq)]
    pub struct GroupSpec("GroupSpec", version 1, compat 1) {
        /// Its pool.
        pub pool_id: PoolOrNone;
        /// Its id.
        pub group_id: Bytes;
    }
}

impl GroupImageSpec {
    /// The key of the image in the group's header; empty without a pool.
    fn key(&self) -> Vec<u8> {
        if self.pool_id == NO_POOL {
            return Vec::new();
        }
        let mut key = format!("{IMAGE_PREFIX}{:016x}_", self.pool_id).into_bytes();
        key.extend(&self.image_id);
        key
    }

    /// The image of a key, from the part behind the prefix.
    fn from_key(rest: &[u8]) -> Result<Self> {
        let at = rest.iter().position(|b| *b == b'_').ok_or(Error::EIO)?;
        let (pool, id) = (&rest[..at], &rest[at + 1..]);
        // An id is a word.
        let id = id.split(|b| is_space(*b)).next().unwrap_or_default();
        Ok(Self {
            image_id: Bytes::copy_from_slice(id),
            pool_id: leading_hex(pool).0.cast_signed(),
        })
    }
}

pub(super) fn image_set(object: &mut dyn Object, image: GroupImageStatus) -> Result<Nothing> {
    keys::set(object, image.spec.key(), &image.state).map(|()| Nothing)
}

pub(super) fn image_remove(object: &mut dyn Object, image: GroupImageSpec) -> Result<Nothing> {
    keys::remove(object, image.key()).map(|()| Nothing)
}

pub(super) fn image_list(
    object: &mut dyn Object,
    (after, max): (GroupImageSpec, u64),
) -> Result<Vec<GroupImageStatus>> {
    let key = after.key();
    let after = key.get(IMAGE_PREFIX.len()..).unwrap_or_default();
    let found = keys::list(object, IMAGE_PREFIX, after, max)?;
    let image = |(rest, state): (Bytes, Bytes)| {
        Ok(GroupImageStatus {
            state: stored(&state)?,
            spec: GroupImageSpec::from_key(&rest)?,
        })
    };
    found.into_iter().map(image).collect()
}

/// The group that an image names. An undecodable value is EINVAL, as in Ceph.
fn group_of(object: &mut dyn Object) -> Result<Option<GroupSpec>> {
    omap::find(object, GROUP.as_bytes())?
        .as_ref()
        .map(input)
        .transpose()
}

/// Makes the image name its group.
pub(super) fn join(object: &mut dyn Object, group: GroupSpec) -> Result<Nothing> {
    match group_of(object)? {
        Some(old) if old != group => Err(Error::EEXIST),
        Some(_) => Ok(Nothing),
        None => {
            features::set_operations(object, OpFeatures::GROUP, OpFeatures::GROUP)?;
            keys::set(object, GROUP, &group).map(|()| Nothing)
        }
    }
}

/// Removes the group's name from the image, if the image names this group.
pub(super) fn leave(object: &mut dyn Object, group: GroupSpec) -> Result<Nothing> {
    if group_of(object)?.ok_or(Error::ENOENT)? != group {
        return Err(Error::EBADF);
    }
    keys::remove(object, GROUP)?;
    features::set_operations(object, OpFeatures::empty(), OpFeatures::GROUP).map(|()| Nothing)
}

pub(super) fn get(object: &mut dyn Object, _: Nothing) -> Result<GroupSpec> {
    let none = GroupSpec {
        pool_id: PoolOrNone::NONE,
        group_id: Bytes::new(),
    };
    Ok(group_of(object)?.unwrap_or(none))
}
