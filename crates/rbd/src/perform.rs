//! What the owner of the lock does for itself and for other clients: operations on the whole image
//! are done by the client that writes it.

use std::rc::Rc;
use std::time::Duration;

use spirula_client::errno;

use crate::image::Inner;
use crate::message::{Announcement, RequestId, Task, response};
use crate::progress::Share;
use crate::site::Purpose;
use crate::{Error, Progress, Result, snapshots, sparsify};

/// How often the owner tells the client that it is working on the request.
const PROGRESS: Duration = Duration::from_secs(5);
/// How often a client that does not answer is sent the outcome.
const ATTEMPTS: usize = 3;

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
        if matches!(task, Task::Migrate | Task::Unknown) || self.site.purpose == Purpose::Migrate {
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
                    let _ = self.site.announce(Announcement::Progress { request, share: Share::NONE }).await;
                }
            }
        };
        self.watcher.requests.end(request, result);
        for _ in 0..ATTEMPTS {
            match self
                .site
                .announce(Announcement::Completed { request, result })
                .await
            {
                Ok(_) => return,
                Err(e) => tracing::debug!("outcome of a request: {e}"),
            }
        }
    }

    /// Carries out a task of the owner of the lock.
    pub(crate) async fn perform(self: &Rc<Self>, task: &Task, progress: &Progress) -> Result<()> {
        let begin = self.begin_operation();
        match task {
            Task::Flatten => begin.await?.flatten(progress).await,
            Task::Resize { size, allow_shrink } => begin.await?.resize(*size, *allow_shrink).await,
            Task::SnapCreate { name, namespace } => {
                snapshots::check_namespace(namespace)?;
                begin.await?.create_snapshot(name, namespace).await
            }
            Task::SnapRemove { name, namespace } => begin.await?.remove_snapshot(name, namespace).await,
            Task::SnapRename { id, name } => begin.await?.rename_snapshot(*id, name).await,
            Task::SnapProtect { name } => begin.await?.protect_snapshot(name).await,
            Task::SnapUnprotect { name } => begin.await?.unprotect_snapshot(name).await,
            Task::Rename { name } => begin.await?.rename(name).await,
            Task::UpdateFeatures { features, enabled } => {
                begin.await?.update_features(*features, *enabled).await
            }
            Task::RebuildObjectMap => begin.await?.rebuild_map(None, progress).await,
            Task::Sparsify { piece } => {
                sparsify::check_piece(&self.site, *piece)?;
                begin.await?.sparsify(*piece, progress).await
            }
            Task::Migrate | Task::Unknown => Err(Error::os("image", errno::EOPNOTSUPP)),
        }
    }
}
