//! An operation on an image as a whole that is under way.

use std::rc::Rc;

use spirula_client::errno;
use spirula_proto::osd::OsdOpIn;
use tokio::sync::{MutexGuard, OwnedRwLockWriteGuard};

use crate::image::Inner;
use crate::journal::Operation;
use crate::site::Site;
use crate::view::View;
use crate::writing::Writing;
use crate::{Error, Result, cls};

/// The turn of an operation on the image as a whole. This client keeps the lock until the operation
/// ends. Its methods, each in the file of its operation, do the changes that need such a turn.
pub(crate) struct Operating<'a> {
    pub(crate) image: &'a Rc<Inner>,
    pub(crate) site: &'a Rc<Site>,
    pub(crate) view: &'a Rc<View>,
    _turn: MutexGuard<'a, ()>,
}

impl Inner {
    /// Begins an operation on the image as a whole. The lock is held until it ends.
    pub(crate) async fn begin_operation(self: &Rc<Self>) -> Result<Operating<'_>> {
        let turn = self.traffic.turn().await;
        if self.site.read_only {
            return Err(Error::os("change image", errno::EROFS));
        }
        self.site.check_own_data()?;
        self.view.refresh().await?;
        self.acquire().await?;
        Ok(Operating {
            image: self,
            site: &self.site,
            view: &self.view,
            _turn: turn,
        })
    }
}

impl Operating<'_> {
    /// Waits until no write is under way, and lets none begin.
    pub(crate) async fn alone(&self) -> OwnedRwLockWriteGuard<()> {
        self.image.traffic.alone().await
    }

    /// A write that belongs to an operation which keeps all other writes out.
    pub(crate) fn write_alone(&self, _alone: &OwnedRwLockWriteGuard<()>) -> Writing {
        Writing {
            _gate: None,
            site: Rc::clone(self.site),
            view: Rc::clone(self.view),
            copy_ups: Rc::clone(&self.image.traffic.copy_ups),
            header: self.view.header(),
            map: self.view.map(),
            // The journal has the operation, not its writes.
            journal: None,
        }
    }

    /// Changes the header. Fails with `EBUSY` where the image has a lock that this client has lost.
    pub(crate) async fn change_header(&self, what: &'static str, change: OsdOpIn) -> Result<()> {
        let mut ops = Vec::new();
        if let Some(cookie) = self.image.lock.cookie() {
            ops.push(cls::assert_locked(&cookie, cls::LOCK_TAG)?);
        }
        ops.push(change);
        cls::change(&self.site.io, what, self.site.header_oid(), ops).await
    }

    /// Runs a part of the operation between its two journal entries, if the image has a journal.
    /// Mirror daemons run it as well, so the caller has checked that it can be done.
    pub(crate) async fn noted<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        self.image.lock.noted(operation, work).await
    }
}
