//! Commits a migration whose destination has all data: removes the source.

use spirula_classes::rbd::migration::state;
use spirula_classes::rbd::{OpFeatures, SnapshotNamespace};
use spirula_client::{IoCtx, errno};

use super::checks::{refuse_mirroring, refuse_watchers, under_way};
use super::children::unlist;
use super::pair::{Pair, Side};
use super::record::remove_record;
use crate::clones::children_of;
use crate::cls::tell;
use crate::error::unless;
use crate::image::{Image, Inner};
use crate::remove::{remove_content, remove_objects};
use crate::site::{Options, Purpose};
use crate::{Error, Progress, Result, names};

/// Commits a migration: removes the source, after which the destination is an image like any other.
///
/// # Errors
/// `ENOENT` where there is no such image, `EINVAL` where it is not migrating or the source has not
/// been copied, `EBUSY` where somebody uses the source, `EOPNOTSUPP` where the destination would
/// have to be mirrored from now on or the source is no image here, `ECANCELED` where the progress'
/// listener ends it.
pub async fn migration_commit(io: &IoCtx, name: &str, progress: &Progress) -> Result<()> {
    let pair = Pair::find(io, name).await?;
    let (source, Some(destination)) = pair.records() else {
        return Err(Error::os("migration", errno::EINVAL));
    };
    if destination.state != state::EXECUTED {
        return Err(Error::os("migration", errno::EINVAL));
    }
    let has_begun = source.is_none();
    refuse_mirroring(&pair.destination.io, destination).await?;
    under_way(commit(&pair, has_begun, progress).await)
}

async fn commit(pair: &Pair, has_begun: bool, progress: &Progress) -> Result<()> {
    let source = &pair.source;
    if !has_begun {
        check_source(source).await?;
        // From here on nobody takes the source back.
        remove_record(&source.io, &source.id).await?;
    }
    unlist(pair).await?;
    let names = (source.name.as_str(), source.id.as_str());
    match Image::open_for(&source.io, names, Options::default(), Purpose::Use).await {
        Ok(image) => {
            let removed = image.inner.remove_snapshots().await;
            let closed = image.close().await;
            removed.and(closed)?;
            remove_content(&source.io, &source.name, &source.id, progress).await?;
            remove_objects(&source.io, &source.id).await?;
        }
        Err(e) if e.is(errno::ENOENT) => remove_objects(&source.io, &source.id).await?,
        Err(e) => return Err(e),
    }
    unless(
        tell(&source.io, names::TRASH, "trash_remove", &source.id).await,
        errno::ENOENT,
    )?;
    remove_record(&pair.destination.io, &pair.destination.id).await
}

/// Checks that the source can be removed.
async fn check_source(source: &Side) -> Result<()> {
    let names = (source.name.as_str(), source.id.as_str());
    let image = Image::open_for(&source.io, names, Options::default(), Purpose::Migrate).await?;
    let checked = async {
        refuse_watchers(&source.io, &source.id).await?;
        image.inner.refuse_children().await
    };
    let checked = checked.await;
    let closed = image.close().await;
    checked.and(closed)
}

impl Inner {
    /// Fails with `EBUSY` where the image has clones or snapshots that are not users', and with
    /// `EMLINK` where it belongs to a group.
    async fn refuse_children(&self) -> Result<()> {
        let header = self.view.header();
        if header.op_features.contains(OpFeatures::GROUP) {
            return Err(Error::os("migration", errno::EMLINK));
        }
        for (id, snapshot) in &header.snapshots {
            let is_users = snapshot.namespace == SnapshotNamespace::User;
            if !is_users || !children_of(&self.site, *id).await?.is_empty() {
                return Err(Error::os("migration", errno::EBUSY));
            }
        }
        Ok(())
    }

    /// Removes all snapshots, newest first.
    pub(super) async fn remove_snapshots(self: &std::rc::Rc<Self>) -> Result<()> {
        let header = self.view.header();
        for snapshot in header.snapshots.values().rev() {
            if snapshot.protected {
                self.begin_operation()
                    .await?
                    .unprotect_snapshot(&snapshot.name)
                    .await?;
            }
            self.begin_operation()
                .await?
                .remove_snapshot(&snapshot.name, &snapshot.namespace)
                .await?;
        }
        Ok(())
    }
}
