//! The objects `rbd_id.` and an image's name, which hold its id.

use bytes::Bytes;

use super::directory::is_valid_id;
use crate::method::{Nothing, Raw, input, stored, to_bytes};
use crate::{Error, Object, Result};

pub(super) fn get(object: &mut dyn Object, _: Nothing) -> Result<Bytes> {
    let size = object.stat()?.size;
    if size == 0 {
        return Err(Error::ENOENT);
    }
    stored(&object.read(0, size)?)
}

/// Writes the id, once.
pub(super) fn set(object: &mut dyn Object, op: Raw) -> Result<Nothing> {
    let size = object.stat()?.size;
    let id: Bytes = input(&op.0)?;
    if !is_valid_id(&id) {
        return Err(Error::EINVAL);
    }
    if size != 0 {
        return Err(Error::EEXIST);
    }
    object.write(0, to_bytes(&id)).map(|()| Nothing)
}
