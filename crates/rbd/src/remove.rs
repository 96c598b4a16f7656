//! Removal of images.

use std::rc::Rc;

use spirula_classes::rbd::{Features, OpFeatures, SnapshotNamespace};
use spirula_client::{IoCtx, errno};

use crate::error::unless;
use crate::image::{Image, Inner};
use crate::operating::Operating;
use crate::site::{Options, Purpose};
use crate::{Error, Progress, Result, directory, journal, mirror, names};

/// Removes an image's header, its journal and its object map.
pub(crate) async fn remove_objects(io: &IoCtx, id: &str) -> Result<()> {
    let remove =
        async |oid: String| unless(io.remove(oid).await.map_err(Error::from), errno::ENOENT).map(drop);
    remove(names::header(id)).await?;
    journal::remove(io, id).await?;
    remove(names::object_map(id, None)).await
}

/// Removes an image with all its data.
///
/// # Errors
/// `ENOENT` where there is none, `ENOTEMPTY` where it has snapshots, `EBUSY` where other clients
/// use it, `EMLINK` where it belongs to a group, `EINVAL` where it is mirrored and the primary one
/// is elsewhere, `EPERM` where it says that its data is in another pool under another image's
/// names, `ECANCELED` where the progress' listener ends it.
pub async fn remove(io: &IoCtx, name: &str, progress: &Progress) -> Result<()> {
    let id = directory::listed_id(io, name).await?;
    remove_content(io, name, &id, progress).await?;
    remove_named(io, name, &id).await
}

/// Removes the names of an image, its header, journal and object map.
pub(crate) async fn remove_named(io: &IoCtx, name: &str, id: &str) -> Result<()> {
    remove_objects(io, id).await?;
    directory::remove(io, name, id).await
}

/// Removes an image's data and its links to other images. Does nothing if an interrupted removal
/// has got as far as the header.
pub(crate) async fn remove_content(io: &IoCtx, name: &str, id: &str, progress: &Progress) -> Result<()> {
    match Image::open_for(io, (name, id), Options::default(), Purpose::Remove).await {
        Ok(image) => {
            let emptied = image.inner.empty(progress).await;
            let closed = image.close().await;
            emptied.and(closed)
        }
        Err(e) if e.is(errno::ENOENT) && is_gone(io, id).await? => Ok(()),
        Err(e) => Err(e),
    }
}

/// Whether an image has no header, as after an interrupted removal.
pub(crate) async fn is_gone(io: &IoCtx, id: &str) -> Result<bool> {
    let header = io.stat(names::header(id)).await.map_err(Error::from);
    Ok(unless(header, errno::ENOENT)?.is_none())
}

/// How many clients have an image open. Daemons that mirror it do not count.
pub(crate) async fn users(io: &IoCtx, id: &str) -> Result<usize> {
    let watchers = io.list_watchers(names::header(id)).await?;
    if watchers.len() < 2 {
        return Ok(watchers.len());
    }
    let mirroring = io.list_watchers(names::MIRRORING).await.map_err(Error::from);
    let daemons = unless(mirroring, errno::ENOENT)?.unwrap_or_default();
    let is_daemon = |addr| daemons.iter().any(|d| d.addr == addr);
    Ok(watchers.iter().filter(|w| !is_daemon(w.addr)).count())
}

/// Whether a snapshot keeps an image from being removed.
fn is_kept(namespace: &SnapshotNamespace) -> bool {
    !namespace.is_trash() && !matches!(namespace, SnapshotNamespace::Mirror(_))
}

impl Inner {
    /// Removes the image's data and its links to other images, if no other client uses it. `EPERM`
    /// where the data may belong to another image.
    pub(crate) async fn empty(self: &Rc<Self>, progress: &Progress) -> Result<()> {
        let header = self.view.header();
        self.site.check_own_data()?;
        if self.site.purpose != Purpose::Migrate && header.has(Features::MIGRATING) {
            return Err(Error::os("remove", errno::EBUSY));
        }
        if header.op_features.contains(OpFeatures::GROUP) {
            return Err(Error::os("remove", errno::EMLINK));
        }
        if header.snapshots.values().any(|s| is_kept(&s.namespace)) {
            return Err(Error::os("remove", errno::ENOTEMPTY));
        }
        // One of them is this client.
        if users(&self.site.io, &self.site.fixed.id).await? > 1 {
            return Err(Error::os("remove", errno::EBUSY));
        }
        let mirrored = mirror::disable::removable(&self.site.io, &self.site.fixed.id, &header).await?;
        // Snapshots whose removal was interrupted go now, unless clones need them.
        for snapshot in header.snapshots.values().filter(|s| s.namespace.is_trash()) {
            self.begin_operation()
                .await?
                .remove_snapshot(&snapshot.name, &snapshot.namespace)
                .await?;
        }
        if self
            .view
            .header()
            .snapshots
            .values()
            .any(|s| s.namespace.is_trash())
        {
            return Err(Error::os("remove", errno::ENOTEMPTY));
        }
        if let Some(mirrored) = mirrored {
            self.end_mirroring(mirrored).await?;
        }
        self.begin_operation().await?.empty(progress).await
    }
}

impl Operating<'_> {
    /// Removes the image's data and the link to the parent, where no snapshots are left.
    async fn empty(&self, progress: &Progress) -> Result<()> {
        let alone = self.alone().await;
        let writing = self.write_alone(&alone);
        if !writing.header.snapshots.is_empty() {
            return Err(Error::os("remove", errno::ENOTEMPTY));
        }
        writing.trim(writing.header.size, 0, progress).await?;
        self.site.detach_from_parent(&writing.header).await
    }
}
