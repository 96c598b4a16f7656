//! Other names for images.

use bytes::Bytes;
use spirula_classes::rbd::Features;
use spirula_client::{IoCtx, errno};

use crate::cls::announce;
use crate::directory::{image_id, rename_entry};
use crate::error::unless;
use crate::header::Header;
use crate::image::Image;
use crate::journal::Operation;
use crate::message::Task;
use crate::operating::Operating;
use crate::site::Options;
use crate::{Error, Progress, Result, names};

/// Gives an image another name.
///
/// # Errors
/// `ENOENT` where there is none of this name, `EEXIST` where there is one of the other; and as
/// [`Image::open`] where the image's journal has to tell of it.
pub async fn rename(io: &IoCtx, from: &str, to: &str) -> Result<()> {
    let id = image_id(io, from).await?;
    if Header::read(io, &id).await?.has(Features::JOURNALING) {
        let image = Image::open_by_id(io, from, &id, Options::default()).await?;
        let name = to.to_owned();
        let renamed = image.operate(Task::Rename { name }, Progress::untold()).await;
        let closed = image.close().await;
        return renamed.and(closed);
    }
    rename_entry(io, &id, from, to).await?;
    announce(io, names::header(&id), Bytes::new()).await;
    Ok(())
}

impl Operating<'_> {
    /// Gives the image another name.
    pub(crate) async fn rename(&self, name: &str) -> Result<()> {
        let old = self.image.name.borrow().clone();
        let taken = image_id(&self.site.io, name).await;
        if unless(taken, errno::ENOENT)?.is_some() {
            return Err(Error::os("rename", errno::EEXIST));
        }
        let rename = rename_entry(&self.site.io, &self.site.fixed.id, &old, name);
        self.noted(Operation::Rename(name.to_owned()), rename).await?;
        self.image.name.replace(name.to_owned());
        self.site.announce_header().await;
        Ok(())
    }
}
