//! Methods of an image's data objects.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use crate::error::unless;
use crate::method::{Nothing, Raw};
use crate::{Error, Object, Result};

fn exists(object: &mut dyn Object) -> Result<bool> {
    unless(object.stat(), &[Error::ENOENT]).map(|s| s.is_some())
}

/// Writes the parent's data, unless the object exists.
pub(super) fn copyup(object: &mut dyn Object, data: Raw) -> Result<Nothing> {
    if !exists(object)? {
        object.write(0, data.0)?;
    }
    Ok(Nothing)
}

/// Writes the parent's data, unless the object exists: extents (offsets with lengths), and the data
/// of all of them.
pub(super) fn sparse_copyup(
    object: &mut dyn Object,
    (extents, data): (BTreeMap<u64, u64>, Bytes),
) -> Result<Nothing> {
    if exists(object)? {
        return Ok(Nothing);
    }
    if extents.is_empty() {
        return object.create(true).map(|()| Nothing);
    }
    let mut rest = data;
    for (offset, len) in extents {
        let len = usize::try_from(len).ok().filter(|n| *n <= rest.len());
        let extent = rest.split_to(len.ok_or(Error::EINVAL)?);
        object.write(offset, extent)?;
    }
    Ok(Nothing)
}

/// Expects that the snapshot id is newer than the object's snapshot sequence.
const NEWER: u8 = 0;
/// Expects that it is not newer.
const NOT_NEWER: u8 = 1;

/// Compares a snapshot id with the object's snapshot sequence; ERANGE where it is not as expected.
/// Copies of images rely on it, so as not to overwrite an object that was written meanwhile.
pub(super) fn assert_snapc_seq(object: &mut dyn Object, (seq, state): (u64, u8)) -> Result<Nothing> {
    let known = unless(object.snapset_seq(), &[Error::ENOENT])?;
    let is_newer = known.is_none_or(|known| seq > known);
    match state {
        NEWER if is_newer => Ok(Nothing),
        NOT_NEWER if !is_newer => Ok(Nothing),
        NEWER | NOT_NEWER => Err(Error::ERANGE),
        _ => Err(Error::EOPNOTSUPP),
    }
}

/// Frees the space of zeros: of all chunks of that size that hold only zeros.
pub(super) fn sparsify(object: &mut dyn Object, (chunk, remove_empty): (u64, bool)) -> Result<Nothing> {
    object.stat()?;
    let data = object.read(0, 0)?;
    let chunk = usize::try_from(chunk).unwrap_or(usize::MAX);
    if chunk == 0 {
        return Err(Error::EINVAL);
    }
    let extents = nonzero_extents(&data, chunk);
    if extents.is_empty() && remove_empty {
        return object.remove().map(|()| Nothing);
    }
    if extents.iter().map(|e| e.len()).sum::<usize>() == data.len() {
        return Ok(Nothing);
    }
    object.truncate(0)?;
    for extent in extents {
        object.write(extent.start as u64, data.slice(extent))?;
    }
    Ok(Nothing)
}

/// The ranges of the chunks that hold more than zeros; adjacent chunks are joined.
fn nonzero_extents(data: &[u8], chunk: usize) -> Vec<Range<usize>> {
    let mut extents: Vec<Range<usize>> = Vec::new();
    let mut start = 0;
    for piece in data.chunks(chunk) {
        let end = start + piece.len();
        if piece.iter().any(|b| *b != 0) {
            match extents.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => extents.push(start..end),
            }
        }
        start = end;
    }
    extents
}
