//! Urgent data that the head of a queue has no room for: an attribute.

use spirula_denc::{Decode, Encode, Reader};

use crate::error::unless;
use crate::method::to_bytes;
use crate::{Error, Object, Result};

pub(in crate::class) const ATTRIBUTE: &[u8] = b"cls_queue_urgent_data";

/// Reads it, if there is any; EINVAL where it can't be decoded.
pub(in crate::class) fn read_spilled<T: Decode>(object: &mut dyn Object) -> Result<Option<T>> {
    let bytes = unless(object.getxattr(ATTRIBUTE), &[Error::ENOENT, Error::ENODATA])?;
    let decode = |bytes| Reader::new(bytes).get().map_err(|_| Error::EINVAL);
    bytes.as_deref().map(decode).transpose()
}

/// Writes it.
pub(in crate::class) fn write_spilled(object: &mut dyn Object, data: &impl Encode) -> Result<()> {
    object.setxattr(ATTRIBUTE, to_bytes(data))
}
