//! Metadata of an image, which users and clients set, options among it: keys with values.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::keys;
use crate::method::Nothing;
use crate::{Object, Result, omap};

const PREFIX: &str = "metadata_";

/// The number of pairs for old clients, which ask for 0.
const DEFAULT_LIST: u64 = 64;

type Values = BTreeMap<Bytes, Bytes>;

fn key(name: &[u8]) -> Bytes {
    [PREFIX.as_bytes(), name].concat().into()
}

pub(super) fn list(object: &mut dyn Object, (after, max): (Bytes, u64)) -> Result<Values> {
    let max = if max == 0 { DEFAULT_LIST } else { max };
    let found = keys::list(object, PREFIX, &after, max)?;
    Ok(found.into_iter().collect())
}

pub(super) fn set(object: &mut dyn Object, values: Values) -> Result<Nothing> {
    let values = values.into_iter().map(|(name, value)| (key(&name), value));
    object.omap_set(&values.collect()).map(|()| Nothing)
}

pub(super) fn remove(object: &mut dyn Object, name: Bytes) -> Result<Nothing> {
    keys::remove(object, key(&name)).map(|()| Nothing)
}

pub(super) fn get(object: &mut dyn Object, name: Bytes) -> Result<Bytes> {
    omap::get(object, &key(&name))
}
