//! What is under way in an image: writes, and operations that keep them out.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::Instant;

use crate::cls::{self, Nothing};
use crate::site::Site;

/// How often a write updates the header's time of modification.
const MODIFIED: Duration = Duration::from_secs(60);

/// Objects that are being copied from the parent: a task at a time copies an object.
#[derive(Default)]
pub(crate) struct CopyUps(pub(crate) RefCell<BTreeMap<u64, Rc<Mutex<()>>>>);

/// The writes and operations of an image that this client may change.
#[derive(Default)]
pub(crate) struct Traffic {
    /// Held by writes, and held alone by operations during which no write may be under way.
    gate: Arc<RwLock<()>>,
    /// One operation on the image as a whole at a time. The lock is not passed on meanwhile.
    operation: Mutex<()>,
    pub(crate) copy_ups: Rc<CopyUps>,
    /// When a write last updated the header's time of modification.
    modified: Cell<Option<Instant>>,
}

impl Traffic {
    /// Waits until no operation is under way that keeps writes out, and keeps it out meanwhile.
    pub(crate) async fn enter(&self) -> OwnedRwLockReadGuard<()> {
        Arc::clone(&self.gate).read_owned().await
    }

    /// Waits until no write is under way, and lets none begin.
    pub(crate) async fn alone(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.gate).write_owned().await
    }

    /// Waits until no other operation on the image as a whole is under way.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.operation.lock().await
    }

    /// Updates the header's time of modification now and then.
    pub(crate) fn note_modified(&self, site: &Site) {
        let now = Instant::now();
        if self.modified.get().is_some_and(|at| now - at < MODIFIED) {
            return;
        }
        self.modified.set(Some(now));
        let (io, oid) = (site.io.clone(), site.header_oid());
        tokio::task::spawn_local(async move {
            if let Err(e) = cls::tell(&io, oid, "set_modify_timestamp", &Nothing).await {
                tracing::debug!("time of a change: {e}");
            }
        });
    }
}
