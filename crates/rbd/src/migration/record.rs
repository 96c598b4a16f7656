//! The record of a migration in an image's header.

use bytes::Bytes;
use spirula_classes::rbd::migration::{DESTINATION, Migration, SOURCE, state};
use spirula_client::{IoCtx, errno};

use crate::cls::{Nothing, announce, ask, tell};
use crate::{Error, Result, names};

/// The record in an image's header: `EINVAL` where it is not migrating.
pub(super) async fn record(io: &IoCtx, id: &str) -> Result<Migration> {
    ask(io, names::header(id), "migration_get", &Nothing).await
}

/// Notes in an image's header how far the migration is.
pub(super) async fn set_state(io: &IoCtx, id: &str, state: u8, description: &str) -> Result<()> {
    let input = (state, description.to_owned());
    tell(io, names::header(id), "migration_set_state", &input).await
}

/// Removes an image's migration record, and notifies the image's clients.
pub(super) async fn remove_record(io: &IoCtx, id: &str) -> Result<()> {
    tell(io, names::header(id), "migration_remove", &Nothing).await?;
    notify(io, id).await;
    Ok(())
}

/// Has an image's clients read its header again.
pub(super) async fn notify(io: &IoCtx, id: &str) {
    announce(io, names::header(id), Bytes::new()).await;
}

/// Whether a migrating image may be opened here as if it did not migrate. A destination that lacks
/// data can't be, as this client does not read it from the source.
///
/// # Errors
/// `EROFS` where it may only be read.
pub(crate) async fn may_be_used(io: &IoCtx, id: &str, read_only: bool) -> Result<bool> {
    let record = record(io, id).await?;
    match (record.header_type, record.state) {
        (SOURCE, _) | (DESTINATION, state::ABORTING) if !read_only => {
            Err(Error::os("migrating", errno::EROFS))
        }
        (SOURCE, _) | (DESTINATION, state::EXECUTED) => Ok(true),
        _ => Ok(false),
    }
}
