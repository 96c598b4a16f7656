//! The omap keys that hold nearly all of an image's properties, and their values.

use bytes::Bytes;
use spirula_denc::{Decode, Encode};

use crate::error::unless;
use crate::method::{stored, to_bytes};
use crate::{Error, Object, Result, omap};

/// The value of a key, `None` without it.
pub(super) fn get<T: Decode>(object: &mut dyn Object, key: impl AsRef<[u8]>) -> Result<Option<T>> {
    omap::find(object, key.as_ref())?.as_ref().map(stored).transpose()
}

/// The value of a key; ENOENT without it.
pub(super) fn require<T: Decode>(object: &mut dyn Object, key: impl AsRef<[u8]>) -> Result<T> {
    get(object, key)?.ok_or(Error::ENOENT)
}

/// Whether a key exists, whatever its value.
pub(super) fn has(object: &mut dyn Object, key: impl AsRef<[u8]>) -> Result<bool> {
    omap::find(object, key.as_ref()).map(|v| v.is_some())
}

/// Sets a key.
pub(super) fn set(object: &mut dyn Object, key: impl AsRef<[u8]>, value: &impl Encode) -> Result<()> {
    omap::set(object, Bytes::copy_from_slice(key.as_ref()), to_bytes(value))
}

/// Removes a key; ENOENT where the object does not exist, but not where the key does not.
pub(super) fn remove(object: &mut dyn Object, key: impl AsRef<[u8]>) -> Result<()> {
    omap::remove(object, Bytes::copy_from_slice(key.as_ref()))
}

/// Removes a key if it exists.
pub(super) fn remove_any(object: &mut dyn Object, key: impl AsRef<[u8]>) -> Result<()> {
    unless(remove(object, key), &[Error::ENOENT]).map(|_| ())
}

/// Up to `max` keys that start with `prefix` and follow `prefix` and `after`, without the prefix,
/// and their values.
pub(super) fn list(
    object: &mut dyn Object,
    prefix: impl AsRef<[u8]>,
    after: &[u8],
    max: u64,
) -> Result<Vec<(Bytes, Bytes)>> {
    let prefix = prefix.as_ref();
    let after = [prefix, after].concat();
    omap::list(object, &after, prefix, max, |name, value| Ok((name, value)))
}
