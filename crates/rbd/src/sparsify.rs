//! Frees the space of zeros that were written as data (Ceph's
//! `src/librbd/operation/SparsifyRequest.cc`).

use std::rc::Rc;

use spirula_classes::rbd::object_state::{EXISTS, EXISTS_CLEAN, PENDING};
use spirula_client::errno;

use crate::error::unless;
use crate::image::{Image, Inner};
use crate::message::Task;
use crate::progress::Meter;
use crate::{Error, Progress, Result, cls};

/// The smallest piece of zeros that can be asked for, in bytes.
const SMALLEST: u64 = 4096;

impl Inner {
    /// Frees the space of all aligned pieces that hold only zeros.
    pub(crate) async fn sparsify(self: &Rc<Self>, piece: u64, progress: &Progress) -> Result<()> {
        if !(SMALLEST..=u64::from(self.fixed.layout.object_size)).contains(&piece) || !piece.is_power_of_two()
        {
            return Err(Error::os("sparsify", errno::EINVAL));
        }
        let _operation = self.begin_operation().await?;
        let objects = self.objects(self.header().size);
        let meter = Meter::new(progress, objects);
        let work = self.for_each(0..objects, |inner, object| {
            let meter = Rc::clone(&meter);
            async move {
                inner.sparsify_object(object, piece).await?;
                meter.reached(object + 1)
            }
        });
        work.await
    }

    /// Sparsifies an object. An object that hides the parent's data stays, so that zeros remain
    /// zeros.
    async fn sparsify_object(self: &Rc<Self>, object: u64, piece: u64) -> Result<()> {
        let writing = self.begin_write().await?;
        if writing.map.as_ref().is_some_and(|m| !m.may_exist(object)) {
            return Ok(());
        }
        let io = self.writer(&writing.header);
        let oid = self.fixed.object(object);
        let sparsify = async |removes_empty: bool| {
            let ops = vec![cls::rbd("sparsify", &(piece, removes_empty))?];
            unless(
                cls::change(&io, "sparsify", oid.clone(), ops).await,
                errno::ENOENT,
            )
        };
        let size = async || {
            let stat = self.data.stat(oid.clone()).await.map_err(Error::from);
            Ok::<_, Error>(unless(stat, errno::ENOENT)?.map(|(size, _)| size))
        };
        sparsify(false).await?;
        if let Some(map) = &writing.map
            && map.state(object) == EXISTS_CLEAN
            && self.state_of(object, None).await? == EXISTS
        {
            // It is not as the newest snapshot has it any more, though it reads the same.
            map.set(object, EXISTS).await?;
        }
        if self.sees_parent(&writing.header, object)? || size().await? != Some(0) {
            return Ok(());
        }
        let Some(map) = &writing.map else {
            return sparsify(true).await.map(drop);
        };
        // Somebody may write it meanwhile, so only the OSD knows whether it is empty when it is removed.
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
    /// `EINVAL` where such pieces are smaller than 4096 bytes or larger than an object, `EROFS` where the image can't be written,
    /// `ECANCELED` where the progress' listener ends it.
    pub async fn sparsify(&self, piece: u64, progress: &Progress) -> Result<()> {
        self.operate(Task::Sparsify { piece }, progress.clone()).await
    }
}
