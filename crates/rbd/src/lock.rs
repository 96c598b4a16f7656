//! The exclusive lock of an image. The client that writes holds it, and passes it on when another
//! client asks.
//!
//! It is the lock `rbd_lock` on the header, under a cookie that names the holder's watch. A holder
//! whose watch is gone is dead. Before another client takes its lock, the dead one is put on the
//! cluster's blocklist, so that its late requests can't change the image any more (Ceph's
//! `src/librbd/ManagedLock.h`).

mod acquire;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use crate::Result;
use crate::journal::{Journal, Operation};
use crate::view::View;

/// This client's side of the lock.
#[derive(Default)]
pub(crate) struct Lock {
    /// The cookie under which this client holds the lock.
    cookie: RefCell<Option<String>>,
    /// The journal, while the lock is held.
    journal: RefCell<Option<Rc<Journal>>>,
    /// Held while the lock is taken or given up.
    changing: Mutex<()>,
    /// When this client last gave the lock up on request.
    yielded: Cell<Option<Instant>>,
    /// This client is giving the lock up.
    yielding: Cell<bool>,
    /// Wakes waiters when another client has taken the lock or given it up.
    pub(crate) news: Notify,
}

impl Lock {
    /// Whether this client holds the lock.
    pub(crate) fn is_owned(&self) -> bool {
        self.cookie.borrow().is_some()
    }

    /// The cookie under which this client holds the lock.
    pub(crate) fn cookie(&self) -> Option<String> {
        self.cookie.borrow().clone()
    }

    /// The journal, while the lock is held.
    pub(crate) fn journal(&self) -> Option<Rc<Journal>> {
        self.journal.borrow().clone()
    }

    /// Ends the use of the journal, once all that it tells of is done and nothing is under way.
    pub(crate) async fn close_journal(&self) {
        let journal = self.journal.take();
        if let Some(journal) = journal {
            journal.close().await;
        }
    }

    /// Runs an operation between its two journal entries, if the image has a journal.
    pub(crate) async fn noted<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        match self.journal() {
            Some(journal) => journal.around_operation(operation, work).await,
            None => work.await,
        }
    }

    /// Notes that the lock was taken away from this client, and with it the right to its map.
    pub(crate) fn lose(&self, view: &View) {
        *self.cookie.borrow_mut() = None;
        view.set_map(None);
        if let Some(journal) = self.journal.take() {
            journal.lose();
        }
    }
}
