//! The object `rbd_directory`: the images of a pool or namespace by name and by id.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::arguments::arguments;
use super::keys;
use crate::error::unless;
use crate::method::{Nothing, Raw, input, stored, to_bytes};
use crate::{Error, Object, Result};

const ID_PREFIX: &str = "id_";
const NAME_PREFIX: &str = "name_";
/// The key of the directory's state.
const STATE: &str = "state";

/// The state in which images may be added.
const READY: u8 = 0;
/// The state in which no images may be added: the namespace is being removed.
const ADD_DISABLED: u8 = 1;

fn id_key(id: &[u8]) -> Bytes {
    [ID_PREFIX.as_bytes(), id].concat().into()
}

fn name_key(name: &[u8]) -> Bytes {
    [NAME_PREFIX.as_bytes(), name].concat().into()
}

/// Whether an id consists of letters and digits, at least one.
pub(super) fn is_valid_id(id: &[u8]) -> bool {
    !id.is_empty() && id.iter().all(u8::is_ascii_alphanumeric)
}

pub(super) fn get_id(object: &mut dyn Object, name: Bytes) -> Result<Bytes> {
    keys::require(object, name_key(&name))
}

pub(super) fn get_name(object: &mut dyn Object, id: Bytes) -> Result<Bytes> {
    keys::require(object, id_key(&id))
}

/// Lists names with ids.
pub(super) fn list(object: &mut dyn Object, (after, max): (Bytes, u64)) -> Result<BTreeMap<Bytes, Bytes>> {
    let found = keys::list(object, NAME_PREFIX, &after, max)?;
    let ids = found.into_iter().map(|(name, id)| Ok((name, stored(&id)?)));
    ids.collect()
}

pub(super) fn add_image(object: &mut dyn Object, op: Raw) -> Result<Nothing> {
    object.create(false)?;
    let (name, id) = input(&op.0)?;
    if !is_valid_entry(&name, &id) {
        return Err(Error::EINVAL);
    }
    if keys::has(object, name_key(&name))? {
        return Err(Error::EEXIST);
    }
    if keys::has(object, id_key(&id))? {
        return Err(Error::EBADF);
    }
    link(object, &name, &id)
}

fn is_valid_entry(name: &Bytes, id: &Bytes) -> bool {
    !name.is_empty() && is_valid_id(id)
}

fn link(object: &mut dyn Object, name: &Bytes, id: &Bytes) -> Result<Nothing> {
    let values = BTreeMap::from([(name_key(name), to_bytes(id)), (id_key(id), to_bytes(name))]);
    object.omap_set(&values).map(|()| Nothing)
}

pub(super) fn remove_image(object: &mut dyn Object, (name, id): (Bytes, Bytes)) -> Result<Nothing> {
    let stored_id: Bytes = keys::require(object, name_key(&name))?;
    let stored_name: Bytes = keys::require(object, id_key(&id))?;
    // It was renamed meanwhile.
    if stored_id != id || stored_name != name {
        return Err(Error::ESTALE);
    }
    keys::remove(object, name_key(&name))?;
    keys::remove(object, id_key(&id))?;
    Ok(Nothing)
}

arguments! {
    /// Input of `dir_rename_image`.
    pub(super) struct Rename {
        pub(super) from: Bytes,
        pub(super) to: Bytes,
        pub(super) id: Bytes,
    }
}

pub(super) fn rename_image(object: &mut dyn Object, op: Rename) -> Result<Nothing> {
    remove_image(object, (op.from, op.id.clone()))?;
    if !is_valid_entry(&op.to, &op.id) {
        return Err(Error::EINVAL);
    }
    if keys::has(object, name_key(&op.to))? {
        return Err(Error::EEXIST);
    }
    link(object, &op.to, &op.id)
}

/// ENOENT where the directory has another state, or none.
pub(super) fn state_assert(object: &mut dyn Object, state: u8) -> Result<Nothing> {
    match keys::require::<u8>(object, STATE)? == state {
        true => Ok(Nothing),
        false => Err(Error::ENOENT),
    }
}

pub(super) fn state_set(object: &mut dyn Object, state: u8) -> Result<Nothing> {
    let exists = unless(object.stat(), &[Error::ENOENT])?.is_some();
    match state {
        READY => {}
        ADD_DISABLED if !exists => return Err(Error::ENOENT),
        ADD_DISABLED => {
            if !keys::list(object, NAME_PREFIX, b"", 1)?.is_empty() {
                return Err(Error::EBUSY);
            }
        }
        _ => return Err(Error::EINVAL),
    }
    keys::set(object, STATE, &state).map(|()| Nothing)
}
