//! What must be so that a migration may go on.

use spirula_classes::rbd::migration::Migration;
use spirula_client::{IoCtx, errno};

use crate::remove::users;
use crate::{Error, Result, mirror};

/// Turns errors of a migration under way so that they don't look as if there were none.
pub(super) fn under_way<T>(result: Result<T>) -> Result<T> {
    match result {
        Err(e) if e.is(errno::ENOENT) || e.is(errno::EINVAL) => {
            tracing::warn!("migration: {e}");
            Err(Error::os("migration", errno::EIO))
        }
        other => other,
    }
}

/// Fails with `EOPNOTSUPP` where the remaining image would have to be mirrored, which is not
/// supported here.
pub(super) async fn refuse_mirroring(io: &IoCtx, record: &Migration) -> Result<()> {
    match mirror::mirror_mode(io).await? {
        0 => Ok(()),
        mirror::MIRROR_MODE_IMAGE if !record.mirroring => Ok(()),
        _ => Err(Error::os("mirror", errno::EOPNOTSUPP)),
    }
}

/// Fails with `EBUSY` where clients besides this one watch the image.
pub(super) async fn refuse_watchers(io: &IoCtx, id: &str) -> Result<()> {
    match users(io, id).await? {
        0 | 1 => Ok(()),
        _ => Err(Error::os("migration", errno::EBUSY)),
    }
}
