//! The largest allowed number of an image's snapshots.

use super::{keys, old_header, snapshot_record};
use crate::error::unless;
use crate::method::Nothing;
use crate::{Error, Object, Result};

const LIMIT: &str = "snap_limit";

/// The limit that stands for none.
const NO_LIMIT: u64 = u64::MAX;

pub(super) fn read(object: &mut dyn Object) -> Result<u64> {
    Ok(keys::get(object, LIMIT)?.unwrap_or(NO_LIMIT))
}

pub(super) fn get(object: &mut dyn Object, _: Nothing) -> Result<u64> {
    read(object)
}

/// Sets the limit; ERANGE where there are more snapshots already.
pub(super) fn set(object: &mut dyn Object, limit: u64) -> Result<Nothing> {
    if limit == NO_LIMIT {
        return keys::remove(object, LIMIT).map(|()| Nothing);
    }
    // An object without a header of the old format has one of the new format.
    let count = match unless(old_header::OldHeader::read(object), &[Error::EINVAL])? {
        Some(old) => old.count(),
        None => keys::list(object, snapshot_record::PREFIX, b"", u64::MAX)?.len(),
    };
    if limit < count as u64 {
        return Err(Error::ERANGE);
    }
    keys::set(object, LIMIT, &limit).map(|()| Nothing)
}
