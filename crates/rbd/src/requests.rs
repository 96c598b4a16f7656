//! Requests of other clients to the owner of the lock: operations on the whole image are done by
//! the client that writes it.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use spirula_client::errno;

use crate::error::unless;
use crate::image::{Inner, Purpose};
use crate::journal::Operation;
use crate::message::{Announcement, RequestId, Task, response};
use crate::progress::Share;
use crate::{Error, Progress, Result, directory};

/// Requests that are remembered, so that a repeated one is not executed again.
const REMEMBERED: usize = 256;
/// How often the owner tells the client that it is working on the request.
const PROGRESS: Duration = Duration::from_secs(5);
/// How often a client that does not answer is sent the outcome.
const ATTEMPTS: usize = 3;

/// The requests of other clients.
#[derive(Default)]
pub(crate) struct Requests {
    /// The outcome of each request, `None` while it is under way.
    outcomes: RefCell<BTreeMap<RequestId, Option<i32>>>,
    order: RefCell<VecDeque<RequestId>>,
}

impl Requests {
    /// Notes a request. For a repeated one, returns the answer: that it is accepted, or its
    /// outcome.
    fn begin(&self, request: RequestId) -> Option<i32> {
        let mut outcomes = self.outcomes.borrow_mut();
        if let Some(known) = outcomes.get(&request) {
            return Some(known.unwrap_or(0));
        }
        outcomes.insert(request, None);
        let mut order = self.order.borrow_mut();
        order.push_back(request);
        if order.len() > REMEMBERED
            && let Some(oldest) = order.pop_front()
        {
            outcomes.remove(&oldest);
        }
        None
    }

    fn end(&self, request: RequestId, result: i32) {
        if let Some(outcome) = self.outcomes.borrow_mut().get_mut(&request) {
            *outcome = Some(result);
        }
    }
}

fn result_of(result: &Result<()>) -> i32 {
    match result {
        Ok(()) => 0,
        Err(e) => -e.errno(),
    }
}

impl Inner {
    /// Accepts a request, as the owner of the lock. Returns the answer to the notification; `None`
    /// where the answer follows when the request is done.
    pub(crate) fn handle_request(self: &Rc<Self>, id: u64, request: RequestId, task: Task) -> Option<i32> {
        // A client that migrates the image does nothing else: the asking client takes the lock and
        // does it itself.
        if matches!(task, Task::Migrate | Task::Unknown) || self.purpose == Purpose::Migrate {
            return Some(-errno::EOPNOTSUPP);
        }
        let inner = Rc::clone(self);
        if !request.is_valid() {
            tokio::task::spawn_local(async move {
                let result = inner.perform(&task, &Progress::untold()).await;
                inner.answer(id, response(result_of(&result))).await;
            });
            return None;
        }
        if let Some(known) = self.watcher.requests.begin(request) {
            return Some(known);
        }
        tokio::task::spawn_local(async move { inner.perform_and_tell(request, task).await });
        Some(0)
    }

    async fn perform_and_tell(self: &Rc<Self>, request: RequestId, task: Task) {
        let untold = Progress::untold();
        let work = self.perform(&task, &untold);
        tokio::pin!(work);
        let result = loop {
            tokio::select! {
                result = &mut work => break result_of(&result),
                () = tokio::time::sleep(PROGRESS) => {
                    // It is told again.
                    let _ = self.announce(Announcement::Progress { request, share: Share::NONE }).await;
                }
            }
        };
        self.watcher.requests.end(request, result);
        for _ in 0..ATTEMPTS {
            match self.announce(Announcement::Completed { request, result }).await {
                Ok(_) => return,
                Err(e) => tracing::debug!("outcome of a request: {e}"),
            }
        }
    }

    /// Carries out a task of the owner of the lock.
    pub(crate) async fn perform(self: &Rc<Self>, task: &Task, progress: &Progress) -> Result<()> {
        match task {
            Task::Flatten => self.flatten(progress).await,
            Task::Resize { size, allow_shrink } => self.resize(*size, *allow_shrink).await,
            Task::SnapCreate { name, namespace } => self.create_snapshot(name, namespace.clone()).await,
            Task::SnapRemove { name, namespace } => self.remove_snapshot(name, namespace).await,
            Task::SnapRename { id, name } => self.rename_snapshot(*id, name).await,
            Task::SnapProtect { name } => self.protect_snapshot(name).await,
            Task::SnapUnprotect { name } => self.unprotect_snapshot(name).await,
            Task::Rename { name } => {
                let old = self.name.borrow().clone();
                let taken = directory::image_id(&self.io, name).await;
                if unless(taken, errno::ENOENT)?.is_some() {
                    return Err(Error::os("rename", errno::EEXIST));
                }
                let rename = directory::rename_entry(&self.io, &self.fixed.id, &old, name);
                self.noted(Operation::Rename(name.clone()), rename).await?;
                self.name.replace(name.clone());
                self.announce_header().await;
                Ok(())
            }
            Task::UpdateFeatures { features, enabled } => self.update_features(*features, *enabled).await,
            Task::RebuildObjectMap => self.rebuild_map(None, progress).await,
            Task::Sparsify { piece } => self.sparsify(*piece, progress).await,
            Task::Migrate | Task::Unknown => Err(Error::os("image", errno::EOPNOTSUPP)),
        }
    }
}
