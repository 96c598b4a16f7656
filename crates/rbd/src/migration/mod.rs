//! Images on their way to another pool, layout or set of features (Ceph's `src/librbd/api/Migration.cc`). Whoever prepares a
//! migration puts the source into the trash and makes the destination, which clients use from then on: what it lacks they
//! read from the source, and copy before they write. Here the rest is copied, and the source removed or taken back.
//!
//! Both headers have a record of the migration until it ends. The source loses its own first where the migration is
//! committed, so that from then on nobody takes it back; where it is given up the source's record says when the data is back.

mod abort;
mod children;
mod commit;
mod content;
mod execute;
mod pair;
mod source;
mod steps;

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_classes::rbd::migration::{DESTINATION, Migration, SOURCE, state};
use spirula_client::{IoCtx, errno};

use crate::cls::{Nothing, announce, ask, tell};
use crate::remove::users;
use crate::{Error, Result, mirror, names};

pub use abort::migration_abort;
pub use commit::migration_commit;
pub use execute::migration_execute;
pub use pair::{MigrationStatus, migration_status};

/// The record in an image's header: `EINVAL` where it is not migrating.
async fn record(io: &IoCtx, id: &str) -> Result<Migration> {
    ask(io, names::header(id), "migration_get", &Nothing).await
}

async fn set_state(io: &IoCtx, id: &str, state: u8, description: &str) -> Result<()> {
    let input = (state, description.to_owned());
    tell(io, names::header(id), "migration_set_state", &input).await
}

/// Makes an image one that is not migrating, and tells its clients.
async fn remove_record(io: &IoCtx, id: &str) -> Result<()> {
    tell(io, names::header(id), "migration_remove", &Nothing).await?;
    notify(io, id).await;
    Ok(())
}

/// Has an image's clients read its header again.
async fn notify(io: &IoCtx, id: &str) {
    announce(io, names::header(id), Bytes::new()).await;
}

/// Whether an image that is migrating may be read or written here as if it were not. Otherwise it can't be opened, as what a
/// destination lacks is not read from the source.
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

/// What goes wrong once a migration is under way must not look as if there were none.
fn under_way<T>(result: Result<T>) -> Result<T> {
    match result {
        Err(e) if e.is(errno::ENOENT) || e.is(errno::EINVAL) => {
            tracing::warn!("migration: {e}");
            Err(Error::os("migration", errno::EIO))
        }
        other => other,
    }
}

/// Fails with `EOPNOTSUPP` where the image that remains would have to be mirrored, which is not begun here.
async fn refuse_mirroring(io: &IoCtx, record: &Migration) -> Result<()> {
    match mirror::mirror_mode(io).await? {
        0 => Ok(()),
        mirror::MIRROR_MODE_IMAGE if !record.mirroring => Ok(()),
        _ => Err(Error::os("mirror", errno::EOPNOTSUPP)),
    }
}

/// Fails with `EBUSY` where other clients use the image; one of those that watch it is this one.
async fn refuse_watchers(io: &IoCtx, id: &str) -> Result<()> {
    match users(io, id).await? {
        0 | 1 => Ok(()),
        _ => Err(Error::os("migration", errno::EBUSY)),
    }
}

/// Makes the steps of a record (`stored.rs`): for an image without snapshots of its own.
pub(crate) fn read_stored(record: &Migration) {
    let steps = steps::steps(record, &BTreeMap::new());
    let of = |at: Option<&steps::Step>| at.map(|s| (s.newest(), s.context().snaps.len()));
    let _ = (of(steps.first()), of(steps.last()));
}
