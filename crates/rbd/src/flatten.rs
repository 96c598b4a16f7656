//! Clones that become images of their own.

use std::rc::Rc;

use spirula_classes::rbd::features;
use spirula_client::errno;

use crate::cls::Nothing;
use crate::error::unless;
use crate::image::{Image, Inner};
use crate::journal::Operation;
use crate::message::Task;
use crate::progress::Meter;
use crate::{Error, Progress, Result, cls};

impl Inner {
    /// Copies the parent's data into the image, and removes the link to the parent.
    pub(crate) async fn flatten(self: &Rc<Self>, progress: &Progress) -> Result<()> {
        let _operation = self.begin_operation().await?;
        let seen = self.header().overlap_at(None)?;
        if self.header().parent.is_none() || seen == 0 {
            return Err(Error::os("flatten", errno::EINVAL));
        }
        let objects = self.objects(seen);
        let meter = Meter::new(progress, objects);
        let copy = self.for_each(0..objects, |inner, object| {
            let meter = Rc::clone(&meter);
            async move {
                inner.copy_object(object).await?;
                meter.reached(object + 1)
            }
        });
        copy.await?;
        let alone = self.alone().await;
        // Before, it could be ended without effect.
        self.noted(Operation::Flatten, self.let_go_of_parent()).await?;
        self.reread().await?;
        drop(alone);
        self.announce_header().await;
        Ok(())
    }

    async fn let_go_of_parent(&self) -> Result<()> {
        let header = self.header();
        // Snapshots go on to see the parent, unless their objects got the copies, too.
        let is_deep = header.has(features::DEEP_FLATTEN);
        if is_deep || !header.snapshots.values().any(|s| s.parent_overlap.is_some()) {
            self.detach_from_parent(&header).await?;
        }
        let detach = cls::rbd("parent_detach", &Nothing)?;
        self.change_header("flatten", detach).await
    }

    async fn copy_object(self: &Rc<Self>, object: u64) -> Result<()> {
        let _turn = self.copy_turn().await;
        let writing = self.begin_write().await?;
        if !self.sees_parent(&writing.header, object)? {
            return Ok(());
        }
        if writing.map.as_ref().is_none_or(|m| m.may_exist(object)) {
            let stat = self.data.stat(self.fixed.object(object)).await;
            if unless(stat.map_err(Error::from), errno::ENOENT)?.is_some() {
                return Ok(());
            }
        }
        self.copy_up(&writing, object, None).await
    }
}

impl Image {
    /// Copies the parent's data into the image, and removes the link to the parent.
    ///
    /// # Errors
    /// `EINVAL` where it has none, `EROFS` where it can't be written, `ECANCELED` where the progress' listener ends it; a client
    /// that holds the lock and was asked to do it goes on.
    pub async fn flatten(&self, progress: &Progress) -> Result<()> {
        self.operate(Task::Flatten, progress.clone()).await
    }
}
