//! Names of images that are referred to by id, and other properties that are only shown.

use spirula_classes::rbd::TrashImage;
use spirula_client::{IoCtx, LockType, errno};
use spirula_denc::UTime;

use crate::cls::{self, Nothing, ask};
use crate::error::unless;
use crate::header::text;
use crate::image::Image;
use crate::{Error, Result, directory, names};

/// The names of the snapshot that an image is a clone of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentNames {
    /// Its pool.
    pub pool: String,
    /// The namespace in it.
    pub namespace: String,
    /// The image.
    pub image: String,
    /// The image's id.
    pub id: String,
    /// The snapshot.
    pub snapshot: String,
    /// Whether the image is in the trash.
    pub trash: bool,
    /// Bytes of the parent that the clone sees.
    pub overlap: u64,
}

/// The name of an image by its id, and whether it is in the trash.
///
/// # Errors
/// `ENOENT` where there is no such image.
pub async fn name_of(io: &IoCtx, id: &str) -> Result<(String, bool)> {
    if let Some(name) = unless(directory::image_name(io, id).await, errno::ENOENT)? {
        return Ok((name, false));
    }
    let trash: TrashImage = ask(io, names::TRASH, "trash_get", &id.to_owned()).await?;
    Ok((text(&trash.name), true))
}

/// When an image was last used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageTimes {
    /// The last read.
    pub accessed: UTime,
    /// The last write.
    pub modified: UTime,
}

impl Image {
    /// The names of the parent, where the image or the snapshot that is read has one.
    ///
    /// # Errors
    /// `ENOENT` where the parent can't be found.
    pub async fn parent_names(&self) -> Result<Option<ParentNames>> {
        let Some(parent) = self.inner.view.parent() else {
            return Ok(None);
        };
        let header = parent.header();
        let snap = parent.site.snap.and_then(|id| header.snapshots.get(&id));
        let snap = snap.ok_or(Error::os("parent", errno::ENOENT))?;
        let (image, trash) = name_of(&parent.site.io, &parent.site.fixed.id).await?;
        let map = parent.site.io.rados().latest_map().await?;
        let pool = map.pool_names.get(&parent.site.io.pool_id());
        Ok(Some(ParentNames {
            pool: pool.cloned().unwrap_or_default(),
            namespace: String::from_utf8_lossy(parent.site.io.namespace().as_bytes()).into_owned(),
            image,
            id: parent.site.fixed.id.clone(),
            snapshot: snap.name.clone(),
            trash,
            overlap: self.inner.view.header().overlap_at(self.inner.site.snap)?,
        }))
    }

    /// The kind of the lock on the image, if it is locked.
    ///
    /// # Errors
    /// `ENOENT` where the image is gone.
    pub async fn lock_kind(&self) -> Result<Option<LockType>> {
        let info = self
            .inner
            .site
            .io
            .lock_info(self.inner.site.header_oid(), cls::LOCK)
            .await?;
        Ok((!info.lockers.is_empty()).then_some(info.kind))
    }

    /// When the image was last read and written, as its clients report.
    ///
    /// # Errors
    /// `ENOENT` where the image is gone.
    pub async fn times(&self) -> Result<ImageTimes> {
        let (io, oid) = (&self.inner.site.io, self.inner.site.header_oid());
        Ok(ImageTimes {
            accessed: ask(io, &oid, "get_access_timestamp", &Nothing).await?,
            modified: ask(io, &oid, "get_modify_timestamp", &Nothing).await?,
        })
    }
}
