//! The object `rbd_trash`: images that can still be restored. Format: `TrashImageSpec` of Ceph's
//! `src/cls/rbd/cls_rbd_types.h`.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{UTime, versioned};

use super::arguments::arguments;
use super::directory::is_valid_id;
use super::keys;
use crate::method::{Nothing, Raw, input, stored};
use crate::{Error, Object, Result, omap};

const PREFIX: &str = "id_";

versioned! {
    /// The trash entry of an image.
    #[derive(Eq)]
    pub struct TrashImage("TrashImageSpec", version 2, compat 1) {
        /// The entry's origin: a user, mirroring, migration or a removal.
        pub source: u8;
        /// The image's former name.
        pub name: Bytes;
        /// When the image was put into the trash.
        pub deletion_time: UTime;
        /// The end of the deferment, before which the image should not be removed.
        pub deferment_end_time: UTime;
        /// The state of the entry: normal, being moved, removed or restored.
        pub state: u8, since 2;
    }
}

fn key(id: &[u8]) -> Vec<u8> {
    [PREFIX.as_bytes(), id].concat()
}

pub(super) fn add(object: &mut dyn Object, op: Raw) -> Result<Nothing> {
    object.create(false)?;
    let (id, image): (Bytes, TrashImage) = input(&op.0)?;
    if !is_valid_id(&id) {
        return Err(Error::EINVAL);
    }
    match keys::get::<TrashImage>(object, key(&id))? {
        Some(_) => Err(Error::EEXIST),
        None => keys::set(object, key(&id), &image).map(|()| Nothing),
    }
}

pub(super) fn remove(object: &mut dyn Object, id: Bytes) -> Result<Nothing> {
    get(object, id.clone())?;
    keys::remove(object, key(&id)).map(|()| Nothing)
}

/// Images by id.
pub(super) fn list(
    object: &mut dyn Object,
    (after, max): (Bytes, u64),
) -> Result<BTreeMap<Bytes, TrashImage>> {
    let found = keys::list(object, PREFIX, &after, max)?;
    found
        .into_iter()
        .map(|(id, image)| Ok((id, stored(&image)?)))
        .collect()
}

/// The entry of an image, as it is stored.
pub(super) fn get(object: &mut dyn Object, id: Bytes) -> Result<Raw> {
    omap::get(object, &key(&id)).map(Raw)
}

arguments! {
    /// Input of `trash_state_set`.
    pub(super) struct StateChange {
        pub(super) id: Bytes,
        pub(super) state: u8,
        pub(super) expected: u8,
    }
}

pub(super) fn state_set(object: &mut dyn Object, op: StateChange) -> Result<Nothing> {
    let mut image: TrashImage = keys::require(object, key(&op.id))?;
    if image.state == op.expected {
        image.state = op.state;
        keys::set(object, key(&op.id), &image)?;
    } else if image.state != op.state {
        return Err(Error::ESTALE);
    }
    Ok(Nothing)
}
