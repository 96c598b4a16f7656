//! A write that is under way, and what it does with each data object.

use std::rc::Rc;

use bytes::Bytes;
use spirula_classes::rbd::object_state::PENDING;
use spirula_client::{
    IoCtx,
    errno::{self, Errno},
};
use spirula_denc::Extent;
use spirula_proto::osd::OpCode;
use tokio::sync::OwnedRwLockReadGuard;

use crate::Result;
use crate::change::Change;
use crate::cls::{self, assert_exists, create, ranged};
use crate::error::unless;
use crate::header::Header;
use crate::journal::{Event, Journal};
use crate::object_map::ObjectMap;
use crate::site::Site;
use crate::traffic::CopyUps;
use crate::view::View;

/// A write under way: data objects change only through it, under the header and the object map that
/// it began with.
pub(crate) struct Writing {
    /// Keeps out operations during which no write may be under way. An operation that keeps all
    /// other writes out needs none.
    pub(crate) _gate: Option<OwnedRwLockReadGuard<()>>,
    pub(crate) site: Rc<Site>,
    pub(crate) view: Rc<View>,
    pub(crate) copy_ups: Rc<CopyUps>,
    pub(crate) header: Rc<Header>,
    pub(crate) map: Option<Rc<ObjectMap>>,
    pub(crate) journal: Option<Rc<Journal>>,
}

impl Writing {
    /// Runs a write after the journal has its events, if the image has a journal. A failed write is
    /// replayed when the lock is next taken, unless the error is `may_fail`.
    pub(crate) async fn noted(
        &self,
        events: impl FnOnce(&Journal) -> Vec<Event>,
        work: impl Future<Output = Result<()>>,
        may_fail: Option<Errno>,
    ) -> Result<()> {
        match &self.journal {
            Some(journal) => journal.around_write(events(journal), work, may_fail).await,
            None => work.await,
        }
    }

    /// Whether the object may exist.
    pub(crate) fn may_exist(&self, object: u64) -> bool {
        self.map.as_ref().is_none_or(|m| m.may_exist(object))
    }

    /// Whether the object sees anything of the parent.
    pub(crate) fn sees_parent(&self, object: u64) -> Result<bool> {
        self.site.sees_parent(&self.header, object)
    }

    /// The context of writes that preserve the image's snapshots.
    pub(crate) fn writer(&self) -> IoCtx {
        self.site.writer(&self.header)
    }

    /// Makes a part of an object zeros.
    pub(crate) async fn discard_part(&self, object: u64, part: Extent) -> Result<()> {
        let (offset, len) = (part.offset, part.len);
        let whole = u64::from(self.site.fixed.layout.object_size);
        let sees_parent = self.sees_parent(object)?;
        let change = if len == whole && !sees_parent {
            Change::remove()
        } else if len == whole {
            // An empty object hides the parent's.
            let ops = vec![create(false), ranged(OpCode::TRUNCATE, 0, 0, Bytes::new())];
            Change {
                replaces_all: true,
                ..Change::write(ops)
            }
        } else if offset + len == whole {
            Change::truncate(offset)
        } else {
            Change {
                only_existing: true,
                ..Change::write(vec![ranged(OpCode::ZERO, offset, len, Bytes::new())])
            }
        };
        self.change_object(object, change).await
    }

    /// Changes an object. The parent's data is copied into it first, unless the change removes the
    /// object, or replaces all its data and no snapshot sees the parent's.
    pub(crate) async fn change_object(&self, object: u64, change: Change) -> Result<()> {
        let header = &self.header;
        let may_exist = self.may_exist(object);
        let sees_parent = self.sees_parent(object)?;
        let is_removal = change.state == PENDING;
        if !may_exist && change.only_existing && !sees_parent {
            return Ok(());
        }
        let copies = sees_parent && !is_removal && !(change.replaces_all && header.snapshots.is_empty());
        if copies && (!may_exist || !self.change_existing(object, &change).await?) {
            return self.copy_up(object, Some(change)).await;
        }
        if copies {
            return Ok(());
        }
        self.change_any(object, change).await
    }

    /// Changes an object over parent's data if the object exists. Returns false where it does not.
    pub(crate) async fn change_existing(&self, object: u64, change: &Change) -> Result<bool> {
        if let Some(map) = &self.map {
            map.set(object, change.state).await?;
        }
        let ops = std::iter::once(assert_exists()).chain(change.ops.iter().cloned());
        let io = self.writer();
        let done = cls::change(&io, "write", self.site.fixed.object(object), ops.collect()).await;
        Ok(unless(done, errno::ENOENT)?.is_some())
    }

    /// Changes an object whether it exists or not.
    pub(crate) async fn change_any(&self, object: u64, change: Change) -> Result<()> {
        if let Some(map) = &self.map {
            map.set(object, change.state).await?;
        }
        let io = self.writer();
        let is_removal = change.state == PENDING;
        let done = cls::change(&io, "write", self.site.fixed.object(object), change.ops).await;
        match done {
            Err(e) if is_removal && e.is(errno::ENOENT) => {}
            other => other?,
        }
        match &self.map {
            Some(map) if is_removal => map.removed(object).await,
            _ => Ok(()),
        }
    }
}
