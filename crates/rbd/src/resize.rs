//! Changes of an image's size.

use std::rc::Rc;

use spirula_classes::rbd::object_state::{EXISTS, NONEXISTENT, PENDING};
use spirula_client::errno;

use crate::change::Change;
use crate::error::unless;
use crate::image::Image;
use crate::journal::Operation;
use crate::message::Task;
use crate::operating::Operating;
use crate::progress::Meter;
use crate::writing::Writing;
use crate::{Error, Progress, Result, cls};

impl Operating<'_> {
    /// Changes the image's size. Data beyond a smaller size is lost.
    pub(crate) async fn resize(&self, size: u64, allow_shrink: bool) -> Result<()> {
        let old = self.view.header().size;
        if size < old && !allow_shrink {
            return Err(Error::os("resize", errno::EINVAL));
        }
        if size != old {
            let resize = self.resize_in_operation(size);
            self.noted(Operation::Resize(size), resize).await?;
            self.view.header_changed().await?;
        }
        Ok(())
    }

    /// Changes the size within another operation. Other clients are not notified.
    pub(crate) async fn resize_in_operation(&self, size: u64) -> Result<()> {
        let alone = self.alone().await;
        let writing = self.write_alone(&alone);
        let old = writing.header.size;
        let objects = self.site.objects(size);
        if size < old {
            writing.trim(old, size, &Progress::untold()).await?;
        } else if let Some(map) = &writing.map {
            map.resize(objects).await?;
        }
        self.change_header("resize", cls::rbd("set_size", &size)?).await?;
        if let Some(map) = writing.map.as_ref().filter(|_| size < old) {
            map.resize(objects).await?;
        }
        self.view.reread().await
    }
}

impl Writing {
    /// Removes the data beyond a new size.
    pub(crate) async fn trim(&self, old: u64, new: u64, progress: &Progress) -> Result<()> {
        let layout = self.site.fixed.layout;
        let (from, to) = (self.site.objects(new), self.site.objects(old));
        self.keep_for_snapshots(from, to).await?;
        if let Some(map) = self.map.as_ref().filter(|_| from < to) {
            map.update(from, to, PENDING, Some(EXISTS)).await?;
        }
        let may_exist = |object: &u64| self.may_exist(*object);
        let meter = Meter::new(progress, to.saturating_sub(from));
        let remove = self.site.limits.for_each((from..to).filter(may_exist), |object| {
            let (io, meter) = (self.writer(), Rc::clone(&meter));
            let oid = self.site.fixed.object(object);
            async move {
                let removed = io.remove(oid).await;
                unless(removed.map_err(Error::from), errno::ENOENT)?;
                meter.reached(object - from + 1)
            }
        });
        remove.await?;
        if let Some(map) = self.map.as_ref().filter(|_| from < to) {
            map.update(from, to, NONEXISTENT, Some(PENDING)).await?;
        }
        // Of the last object set all objects may be cut.
        let set = new / layout.set_size() * u64::from(layout.stripe_count);
        for object in set.min(from)..from {
            let len = layout.object_len(object, new);
            if len < layout.object_len(object, old) {
                let cut = Change::truncate(len);
                self.change_object(object, cut).await?;
            }
        }
        Ok(())
    }

    /// Copies the parent's data that snapshots see beyond the new size: objects written there later
    /// would hide it.
    async fn keep_for_snapshots(&self, from: u64, to: u64) -> Result<()> {
        if self.header.snapshots.is_empty() {
            return Ok(());
        }
        for object in from..to {
            let oid = self.site.fixed.object(object);
            if !self.sees_parent(object)? {
                continue;
            }
            let stat = self.site.data.stat(oid).await.map_err(Error::from);
            if unless(stat, errno::ENOENT)?.is_none() {
                self.copy_up(object, None).await?;
            }
        }
        Ok(())
    }
}

impl Image {
    /// Changes the image's size. Data beyond a smaller size is lost.
    ///
    /// # Errors
    /// `EINVAL` where it would be smaller and `allow_shrink` is not given, `EROFS` where it can't
    /// be written.
    pub async fn resize(&self, size: u64, allow_shrink: bool) -> Result<()> {
        self.operate(Task::Resize { size, allow_shrink }, Progress::untold())
            .await
    }
}
