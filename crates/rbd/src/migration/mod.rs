//! Images that migrate to another pool, layout or set of features (Ceph's
//! `src/librbd/api/Migration.cc`). The client that prepares a migration puts the source into the
//! trash and makes the destination, which clients use from then on: they read data that it lacks
//! from the source, and copy it before they write. This module copies the rest, and removes the
//! source or restores it.
//!
//! Both headers have a record of the migration until it ends. A commit removes the source's record
//! first, so that no client aborts the migration afterwards; an abort notes in the source's record
//! when the data is back.

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

/// Removes an image's migration record, and notifies the image's clients.
async fn remove_record(io: &IoCtx, id: &str) -> Result<()> {
    tell(io, names::header(id), "migration_remove", &Nothing).await?;
    notify(io, id).await;
    Ok(())
}

/// Has an image's clients read its header again.
async fn notify(io: &IoCtx, id: &str) {
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

/// Turns errors of a migration under way so that they don't look as if there were none.
fn under_way<T>(result: Result<T>) -> Result<T> {
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
async fn refuse_mirroring(io: &IoCtx, record: &Migration) -> Result<()> {
    match mirror::mirror_mode(io).await? {
        0 => Ok(()),
        mirror::MIRROR_MODE_IMAGE if !record.mirroring => Ok(()),
        _ => Err(Error::os("mirror", errno::EOPNOTSUPP)),
    }
}

/// Fails with `EBUSY` where clients besides this one watch the image.
async fn refuse_watchers(io: &IoCtx, id: &str) -> Result<()> {
    match users(io, id).await? {
        0 | 1 => Ok(()),
        _ => Err(Error::os("migration", errno::EBUSY)),
    }
}

/// Computes the steps of a record for an image without snapshots of its own (`stored.rs`).
pub(crate) fn read_stored(record: &Migration) {
    let steps = steps::steps(record, &BTreeMap::new());
    let of = |at: Option<&steps::Step>| at.map(|s| (s.newest(), s.context().snaps.len()));
    let _ = (of(steps.first()), of(steps.last()));
}
