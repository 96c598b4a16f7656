//! The object `rbd_namespace`: the namespaces of a pool.

use bytes::Bytes;

use super::keys;
use crate::method::Nothing;
use crate::{Error, Object, Result};

const PREFIX: &str = "name_";

fn key(name: &[u8]) -> Vec<u8> {
    [PREFIX.as_bytes(), name].concat()
}

pub(super) fn add(object: &mut dyn Object, name: Bytes) -> Result<Nothing> {
    if keys::has(object, key(&name))? {
        return Err(Error::EEXIST);
    }
    // The name is all there is to know.
    keys::set(object, key(&name), &Nothing).map(|()| Nothing)
}

pub(super) fn remove(object: &mut dyn Object, name: Bytes) -> Result<Nothing> {
    if !keys::has(object, key(&name))? {
        return Err(Error::ENOENT);
    }
    keys::remove(object, key(&name)).map(|()| Nothing)
}

pub(super) fn list(object: &mut dyn Object, (after, max): (Bytes, u64)) -> Result<Vec<Bytes>> {
    let found = keys::list(object, PREFIX, &after, max)?;
    Ok(found.into_iter().map(|(name, _)| name).collect())
}
