//! The mirrored images, by their local ids and by their global ids.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::keys;
use super::status;
use crate::method::{Nothing, stored};
use crate::{Error, Object, Result};
use spirula_denc::versioned;

const PREFIX: &str = "image_";
const GLOBAL_PREFIX: &str = "global_";

/// The state of an image's mirroring. Unknown values survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImageState(pub u8);

impl ImageState {
    /// The mirroring is being disabled.
    pub const DISABLING: Self = Self(0);
    /// The image is mirrored.
    pub const ENABLED: Self = Self(1);
    /// The mirroring was disabled.
    pub const DISABLED: Self = Self(2);
}

spirula_denc::transparent!(ImageState);

versioned! {
    /// A mirrored image.
    #[derive(Eq)]
    pub struct MirrorImage("MirrorImage", version 2, compat 1) {
        /// Its id in all clusters.
        pub global_id: Bytes;
        /// The state of its mirroring.
        pub state: ImageState;
        /// The mirroring mode: by its journal, or by snapshots.
        pub mode: u8, since 2;
    }
}

fn key(id: &[u8]) -> Vec<u8> {
    [PREFIX.as_bytes(), id].concat()
}

fn global_key(global_id: &[u8]) -> Vec<u8> {
    [GLOBAL_PREFIX.as_bytes(), global_id].concat()
}

/// Images with their ids, in the order of the ids.
pub(super) fn read(object: &mut dyn Object, after: &[u8], max: u64) -> Result<Vec<(Bytes, MirrorImage)>> {
    let found = keys::list(object, PREFIX, after, max)?;
    found
        .into_iter()
        .map(|(id, image)| Ok((id, stored(&image)?)))
        .collect()
}

/// Whether an image of that global id is mirrored, and its mirroring not being disabled.
pub(super) fn is_enabled(object: &mut dyn Object, global_id: &[u8]) -> Result<bool> {
    let Some(id) = keys::get::<Bytes>(object, global_key(global_id))? else {
        return Ok(false);
    };
    let image: Option<MirrorImage> = keys::get(object, key(&id))?;
    Ok(image.is_some_and(|image| image.state == ImageState::ENABLED))
}

/// Global ids by id.
pub(crate) fn list(object: &mut dyn Object, (after, max): (Bytes, u64)) -> Result<BTreeMap<Bytes, Bytes>> {
    let images = read(object, &after, max)?.into_iter();
    Ok(images.map(|(id, image)| (id, image.global_id)).collect())
}

pub(crate) fn get_image_id(object: &mut dyn Object, global_id: Bytes) -> Result<Bytes> {
    keys::require(object, global_key(&global_id))
}

pub(crate) fn get(object: &mut dyn Object, id: Bytes) -> Result<MirrorImage> {
    keys::require(object, key(&id))
}

pub(crate) fn set(object: &mut dyn Object, (id, image): (Bytes, MirrorImage)) -> Result<Nothing> {
    match keys::get::<MirrorImage>(object, key(&id))? {
        Some(old) if old.global_id != image.global_id => return Err(Error::EINVAL),
        Some(_) => {}
        None if keys::get::<Bytes>(object, global_key(&image.global_id))?.is_some() => {
            return Err(Error::EEXIST);
        }
        // Another client disabled it meanwhile.
        None if image.state == ImageState::DISABLING => return Err(Error::ENOENT),
        None => {}
    }
    keys::set(object, key(&id), &image)?;
    keys::set(object, global_key(&image.global_id), &id).map(|()| Nothing)
}

pub(crate) fn remove(object: &mut dyn Object, id: Bytes) -> Result<Nothing> {
    let image = get(object, id.clone())?;
    if image.state != ImageState::DISABLING {
        return Err(Error::EBUSY);
    }
    keys::remove(object, key(&id))?;
    keys::remove_any(object, global_key(&image.global_id))?;
    status::remove(object, image.global_id)
}
