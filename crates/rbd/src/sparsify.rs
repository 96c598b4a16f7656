//! Frees the space of zeros that were written as data (Ceph's
//! `src/librbd/operation/SparsifyRequest.cc`).

use std::rc::Rc;

use spirula_classes::rbd::object_state::{EXISTS, EXISTS_CLEAN, PENDING};
use spirula_client::errno;

use crate::error::unless;
use crate::image::Image;
use crate::message::Task;
use crate::operating::Operating;
use crate::progress::Meter;
use crate::site::Site;
use crate::writing::Writing;
use crate::{Error, Progress, Result, cls};

/// The smallest piece of zeros that can be asked for, in bytes.
const SMALLEST: u64 = 4096;

/// Fails with `EINVAL` where zeros can't be looked for in pieces of this size.
pub(crate) fn check_piece(site: &Site, piece: u64) -> Result<()> {
    let largest = u64::from(site.fixed.layout.object_size);
    match (SMALLEST..=largest).contains(&piece) && piece.is_power_of_two() {
        true => Ok(()),
        false => Err(Error::os("sparsify", errno::EINVAL)),
    }
}

impl Operating<'_> {
    /// Frees the space of all aligned pieces that hold only zeros.
    pub(crate) async fn sparsify(&self, piece: u64, progress: &Progress) -> Result<()> {
        let objects = self.site.objects(self.view.header().size);
        let meter = Meter::new(progress, objects);
        let work = self.site.limits.for_each(0..objects, |object| {
            let (image, meter) = (Rc::clone(self.image), Rc::clone(&meter));
            async move {
                image.begin_write().await?.sparsify_object(object, piece).await?;
                meter.reached(object + 1)
            }
        });
        work.await
    }
}

impl Writing {
    /// Sparsifies an object. An object that hides the parent's data stays, so that zeros remain
    /// zeros.
    async fn sparsify_object(&self, object: u64, piece: u64) -> Result<()> {
        if !self.may_exist(object) {
            return Ok(());
        }
        let io = self.writer();
        let oid = self.site.fixed.object(object);
        let sparsify = async |removes_empty: bool| {
            let ops = vec![cls::rbd("sparsify", &(piece, removes_empty))?];
            unless(
                cls::change(&io, "sparsify", oid.clone(), ops).await,
                errno::ENOENT,
            )
        };
        let size = async || {
            let stat = self.site.data.stat(oid.clone()).await.map_err(Error::from);
            Ok::<_, Error>(unless(stat, errno::ENOENT)?.map(|(size, _)| size))
        };
        sparsify(false).await?;
        if let Some(map) = &self.map
            && map.state(object) == EXISTS_CLEAN
            && self.view.state_of(object, None).await? == EXISTS
        {
            // It is not as the newest snapshot has it any more, though it reads the same.
            map.set(object, EXISTS).await?;
        }
        if self.sees_parent(object)? || size().await? != Some(0) {
            return Ok(());
        }
        let Some(map) = &self.map else {
            return sparsify(true).await.map(drop);
        };
        // Somebody may write it meanwhile, so only the OSD knows whether it is empty when it is
        // removed.
        map.set(object, PENDING).await?;
        sparsify(true).await?;
        match size().await? {
            None => map.removed(object).await,
            Some(_) => map.set(object, EXISTS).await,
        }
    }
}

impl Image {
    /// Frees the space of zeros that were written as data: of whole pieces of `piece` bytes, a
    /// power of two.
    ///
    /// # Errors
    /// `EINVAL` where such pieces are smaller than 4096 bytes or larger than an object, `EROFS`
    /// where the image can't be written, `ECANCELED` where the progress' listener ends it.
    pub async fn sparsify(&self, piece: u64, progress: &Progress) -> Result<()> {
        self.operate(Task::Sparsify { piece }, progress.clone()).await
    }
}
