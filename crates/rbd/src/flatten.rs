//! Clones that become images of their own.

use std::rc::Rc;

use spirula_classes::rbd::Features;
use spirula_client::errno;

use crate::cls::Nothing;
use crate::error::unless;
use crate::image::{Image, Inner};
use crate::journal::Operation;
use crate::message::Task;
use crate::operating::Operating;
use crate::progress::Meter;
use crate::{Error, Progress, Result, cls};

impl Operating<'_> {
    /// Copies the parent's data into the image, and removes the link to the parent.
    pub(crate) async fn flatten(&self, progress: &Progress) -> Result<()> {
        let seen = self.view.header().overlap_at(None)?;
        if self.view.header().parent.is_none() || seen == 0 {
            return Err(Error::os("flatten", errno::EINVAL));
        }
        let objects = self.site.objects(seen);
        let meter = Meter::new(progress, objects);
        let copy = self.site.limits.for_each(0..objects, |object| {
            let (image, meter) = (Rc::clone(self.image), Rc::clone(&meter));
            async move {
                copy_object(&image, object).await?;
                meter.reached(object + 1)
            }
        });
        copy.await?;
        let alone = self.alone().await;
        // Before, it could be ended without effect.
        self.noted(Operation::Flatten, self.let_go_of_parent()).await?;
        self.view.reread().await?;
        drop(alone);
        self.site.announce_header().await;
        Ok(())
    }

    async fn let_go_of_parent(&self) -> Result<()> {
        let header = self.view.header();
        // Snapshots go on to see the parent, unless their objects got the copies, too.
        let is_deep = header.has(Features::DEEP_FLATTEN);
        if is_deep || !header.snapshots.values().any(|s| s.parent_overlap.is_some()) {
            self.site.detach_from_parent(&header).await?;
        }
        let detach = cls::rbd("parent_detach", &Nothing)?;
        self.change_header("flatten", detach).await
    }
}

/// Copies the parent's data into an object, while the image is flattened.
async fn copy_object(image: &Rc<Inner>, object: u64) -> Result<()> {
    let site = &image.site;
    let _turn = site.limits.copy_turn(site.fixed.layout.object_size).await;
    let writing = image.begin_write().await?;
    if !writing.sees_parent(object)? {
        return Ok(());
    }
    if writing.may_exist(object) {
        let stat = site.data.stat(site.fixed.object(object)).await;
        if unless(stat.map_err(Error::from), errno::ENOENT)?.is_some() {
            return Ok(());
        }
    }
    writing.copy_up(object, None).await
}

impl Image {
    /// Copies the parent's data into the image, and removes the link to the parent.
    ///
    /// # Errors
    /// `EINVAL` where it has none, `EROFS` where it can't be written, `ECANCELED` where the
    /// progress' listener ends it; a client that holds the lock and was asked to do it goes on.
    pub async fn flatten(&self, progress: &Progress) -> Result<()> {
        self.operate(Task::Flatten, progress.clone()).await
    }
}
