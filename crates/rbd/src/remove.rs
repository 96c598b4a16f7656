//! The end of images.

use std::rc::Rc;

use spirula_classes::rbd::features;
use spirula_client::{IoCtx, errno};

use crate::error::unless;
use crate::image::{Image, Inner, Options, Purpose};
use crate::{Error, Progress, Result, directory, names};

/// Removes an image's header and its object map.
pub(crate) async fn remove_objects(io: &IoCtx, id: &str) -> Result<()> {
    for oid in [names::header(id), names::object_map(id, None)] {
        unless(io.remove(oid).await.map_err(Error::from), errno::ENOENT)?;
    }
    Ok(())
}

/// Removes an image with all its data.
///
/// # Errors
/// `ENOENT` where there is none, `ENOTEMPTY` where it has snapshots, `EBUSY` where other clients use it, `EMLINK` where it
/// belongs to a group, `ECANCELED` where the progress' listener ends it.
pub async fn remove(io: &IoCtx, name: &str, progress: &Progress) -> Result<()> {
    let id = directory::image_id(io, name).await?;
    remove_content(io, name, &id, progress).await?;
    remove_named(io, name, &id).await
}

/// Removes what names an image, its header and its object map.
pub(crate) async fn remove_named(io: &IoCtx, name: &str, id: &str) -> Result<()> {
    remove_objects(io, id).await?;
    directory::remove(io, name, id).await
}

/// Removes an image's data and what ties it to others. There is nothing to be done where an interrupted removal has come to the
/// header.
pub(crate) async fn remove_content(io: &IoCtx, name: &str, id: &str, progress: &Progress) -> Result<()> {
    match Image::open_by_id(io, name, id, Options::default()).await {
        Ok(image) => {
            let emptied = image.inner.empty(progress).await;
            let closed = image.close().await;
            emptied.and(closed)
        }
        Err(e) if e.is(errno::ENOENT) && is_gone(io, id).await? => Ok(()),
        Err(e) => Err(e),
    }
}

async fn is_gone(io: &IoCtx, id: &str) -> Result<bool> {
    let header = io.stat(names::header(id)).await.map_err(Error::from);
    Ok(unless(header, errno::ENOENT)?.is_none())
}

impl Inner {
    /// Removes the image's data and what ties it to others, where nobody else uses it.
    pub(crate) async fn empty(self: &Rc<Self>, progress: &Progress) -> Result<()> {
        let header = self.header();
        if self.purpose == Purpose::Use && header.has(features::MIGRATING) {
            return Err(Error::os("remove", errno::EBUSY));
        }
        if header.op_features & features::GROUP != 0 {
            return Err(Error::os("remove", errno::EMLINK));
        }
        if !header.snapshots.is_empty() {
            return Err(Error::os("remove", errno::ENOTEMPTY));
        }
        // One of them is this client.
        if self.io.list_watchers(self.header_oid()).await?.len() > 1 {
            return Err(Error::os("remove", errno::EBUSY));
        }
        let _operation = self.begin_operation().await?;
        let alone = self.alone().await;
        let writing = self.write_alone(&alone);
        if !writing.header.snapshots.is_empty() {
            return Err(Error::os("remove", errno::ENOTEMPTY));
        }
        self.trim(&writing, writing.header.size, 0, progress).await?;
        self.detach_from_parent(&writing.header).await
    }
}
