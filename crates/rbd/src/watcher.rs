//! The watch on an image's header, and the notifications through it.

mod hear;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use spirula_client::errno;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::asked::Asked;
use crate::requests::Requests;
use crate::{Error, Result};

/// This client's watch of an image.
#[derive(Default)]
pub(crate) struct Watcher {
    /// The client's cookie of the watch, 0 for none.
    cookie: Cell<u64>,
    /// This client is on the cluster's blocklist.
    shut_out: Cell<bool>,
    task: RefCell<Option<JoinHandle<()>>>,
    stop: Rc<Notify>,
    pub(crate) requests: Requests,
    /// The request that this client has sent to the owner of the lock.
    pub(crate) asked: Asked,
}

impl Watcher {
    /// Fails with `ESHUTDOWN` where this client is on the cluster's blocklist.
    pub(crate) fn check_shut_out(&self) -> Result<()> {
        match self.shut_out.get() {
            true => Err(Error::os("image", errno::ESHUTDOWN)),
            false => Ok(()),
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}
