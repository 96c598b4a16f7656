//! The mirror daemons of this cluster, and which of them copies which image.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{UTime, versioned};

use super::super::keys;
use super::images;
use super::status::{self, Daemon};
use crate::error::unless;
use crate::method::{Nothing, input};
use crate::{Error, Object, Result};

const PREFIX: &str = "instance_";
const MAP_PREFIX: &str = "image_map_";

/// The daemon that copies an image.
pub(crate) fn of_image(object: &mut dyn Object, global_id: Bytes) -> Result<Daemon> {
    let watchers = status::watchers(object)?;
    status::copied_by(object, &global_id, &watchers)
}

/// Up to `max` images with the daemons that copy them, by id.
pub(crate) fn of_images(
    object: &mut dyn Object,
    (after, max): (Bytes, u64),
) -> Result<BTreeMap<Bytes, Daemon>> {
    let mut found = BTreeMap::new();
    let watchers = status::watchers(object)?;
    let local = status::local_of_all(object)?;
    for (id, image) in images::read(object, &after, if max == 0 { 0 } else { u64::MAX })? {
        // Those without are left out.
        let daemon = match local.get(&image.global_id) {
            Some(status) => unless(status::origin(status, &watchers), &[Error::EIO, Error::ESTALE])?,
            None => None,
        };
        if let Some(daemon) = daemon {
            found.insert(id, daemon);
        }
        if found.len() as u64 >= max {
            break;
        }
    }
    Ok(found)
}

fn key(prefix: &str, id: &[u8]) -> Vec<u8> {
    [prefix.as_bytes(), id].concat()
}

/// The ids of all daemons.
pub(crate) fn list(object: &mut dyn Object, _: Nothing) -> Result<Vec<Bytes>> {
    let found = keys::list(object, PREFIX, b"", u64::MAX)?;
    Ok(found.into_iter().map(|(id, _)| id).collect())
}

pub(crate) fn add(object: &mut dyn Object, id: Bytes) -> Result<Nothing> {
    keys::set(object, key(PREFIX, &id), &Nothing).map(|()| Nothing)
}

pub(crate) fn remove(object: &mut dyn Object, id: Bytes) -> Result<Nothing> {
    keys::remove(object, key(PREFIX, &id)).map(|()| Nothing)
}

versioned! {
    /// The assignment of an image to a daemon.
    #[derive(Eq)]
    pub(crate) struct ImageMap("MirrorImageMap", version 1, compat 1) {
        pub(crate) instance_id: Bytes;
        pub(crate) mapped_time: UTime;
        /// Data for the daemons' own use.
        pub(crate) data: Bytes;
    }
}

/// By global id.
pub(crate) fn map_list(
    object: &mut dyn Object,
    (after, max): (Bytes, u64),
) -> Result<BTreeMap<Bytes, ImageMap>> {
    let found = keys::list(object, MAP_PREFIX, &after, max)?;
    // An undecodable value is EINVAL, as in Ceph.
    found
        .into_iter()
        .map(|(id, map)| Ok((id, input(&map)?)))
        .collect()
}

pub(crate) fn map_update(object: &mut dyn Object, (global_id, map): (Bytes, ImageMap)) -> Result<Nothing> {
    keys::set(object, key(MAP_PREFIX, &global_id), &map).map(|()| Nothing)
}

pub(crate) fn map_remove(object: &mut dyn Object, global_id: Bytes) -> Result<Nothing> {
    keys::remove_any(object, key(MAP_PREFIX, &global_id)).map(|()| Nothing)
}
