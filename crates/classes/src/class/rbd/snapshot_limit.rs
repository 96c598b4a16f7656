//! How many snapshots an image may have.

use super::{keys, old_header, snapshot_record};
use crate::error::unless;
use crate::method::Nothing;
use crate::{Error, Object, Result};

const LIMIT: &str = "snap_limit";

/// What clients set for no limit.
const NO_LIMIT: u64 = u64::MAX;

pub(super) fn read(object: &mut dyn Object) -> Result<u64> {
    Ok(keys::get(object, LIMIT)?.unwrap_or(NO_LIMIT))
}

pub(super) fn get(object: &mut dyn Object, _: Nothing) -> Result<u64> {
    read(object)
}

/// ERANGE where there are more snapshots already.
pub(super) fn set(object: &mut dyn Object, limit: u64) -> Result<Nothing> {
    if limit == NO_LIMIT {
        return keys::remove(object, LIMIT).map(|()| Nothing);
    }
    // What does not begin with a header of the old format has one of the new.
    let count = match unless(old_header::OldHeader::read(object), &[Error::EINVAL])? {
        Some(old) => old.count(),
        None => keys::list(object, snapshot_record::PREFIX, b"", u64::MAX)?.len(),
    };
    if limit < count as u64 {
        return Err(Error::ERANGE);
    }
    keys::set(object, LIMIT, &limit).map(|()| Nothing)
}
