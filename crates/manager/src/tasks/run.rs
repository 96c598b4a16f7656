//! How tasks are done: those that are due, one after the other.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use chrono::Utc;
use spirula_client::IoCtx;
use spirula_rbd::{
    Image, Options, Progress, migration_abort, migration_commit, migration_execute, remove, trash_remove,
};
use tokio::time::Instant;

use super::spec::ImageSpec;
use super::task::Action;
use super::{Tasks, opening, remove_stored};
use crate::failure::Failure;
use crate::question::errno;
use crate::service::{News, TaskNews};

/// How often is looked for tasks whose time has come.
const PERIOD: Duration = Duration::from_secs(5);
/// How often progress is told.
const TELL_PERIOD: Duration = Duration::from_secs(1);

/// Objects that are copied at the same time: the monitor is to stay small.
const COPIES: usize = 1;

/// How an attempt ended.
enum End {
    /// The task is done, or never will be, for this reason.
    Over(Option<&'static str>),
    /// It was given up by a user.
    Canceled,
}

impl Tasks {
    /// Works, until the cluster has shut this client out.
    pub(crate) async fn work(self: Rc<Self>) -> Failure {
        loop {
            let due = self.queue.borrow().due(Utc::now());
            for sequence in due {
                if let Err(e) = self.attempt(sequence).await
                    && e.is_shut_out()
                {
                    return e;
                }
            }
            // Somebody has added a task, or it is time to look.
            let _ = tokio::time::timeout(PERIOD, self.wake.notified()).await;
        }
    }

    /// Tries a task. What it fails with is noted with it.
    async fn attempt(self: &Rc<Self>, sequence: u64) -> Result<(), Failure> {
        let Some((spec, action)) = self.queue.borrow().get(sequence).map(|t| (t.spec(), t.action)) else {
            return Ok(());
        };
        tracing::info!("task {sequence}: {action:?} of {spec}");
        let outcome = match self.io((&spec.pool, &spec.namespace)).await {
            Ok(io) => self.execute(sequence, &io, &spec, action).await,
            Err(e) if e.errno() == errno::ENOENT => {
                // The pool is gone, and the task with it.
                self.post_end(sequence);
                self.queue.borrow_mut().remove(sequence);
                Ok(())
            }
            Err(e) => Err(e),
        };
        let mut queue = self.queue.borrow_mut();
        if let Some(task) = queue.get_mut(sequence) {
            task.attempted(Utc::now());
            task.retry_message = outcome.as_ref().err().map(Failure::text);
        }
        drop(queue);
        if let Err(e) = &outcome {
            tracing::warn!("task {sequence}: {}", e.text());
            self.post(sequence, 0.0, false);
        }
        outcome
    }

    async fn execute(
        self: &Rc<Self>,
        sequence: u64,
        io: &IoCtx,
        spec: &ImageSpec,
        action: Action,
    ) -> Result<(), Failure> {
        self.begin(sequence);
        let end = self.act(sequence, io, spec, action).await;
        self.running.set(None);
        let key = {
            let mut queue = self.queue.borrow_mut();
            let Some(task) = queue.get_mut(sequence) else {
                return Ok(());
            };
            task.in_progress = false;
            match end? {
                End::Over(None) | End::Canceled => {}
                End::Over(Some(why)) => task.failure = Some(why.to_owned()),
            }
            task.attempted(Utc::now());
            task.key()
        };
        self.post_end(sequence);
        remove_stored(io, key).await?;
        self.queue.borrow_mut().remove(sequence);
        Ok(())
    }

    fn begin(&self, sequence: u64) {
        self.running.set(Some(sequence));
        if let Some(task) = self.queue.borrow_mut().get_mut(sequence) {
            task.in_progress = true;
        }
    }

    async fn act(
        self: &Rc<Self>,
        sequence: u64,
        io: &IoCtx,
        spec: &ImageSpec,
        action: Action,
    ) -> Result<End, Failure> {
        let progress = self.listener(sequence);
        let (done, what) = match action {
            Action::Flatten => {
                let options = Options {
                    in_flight: Some(COPIES),
                    ..Options::default()
                };
                let image = match Image::open(io, &spec.image, options).await {
                    Ok(image) => image,
                    Err(e) if e.is(errno::ENOENT) => return Ok(End::Over(Some("Image does not exist"))),
                    Err(e) => return Err(Failure::rbd(&e, opening(&spec.image))),
                };
                let done = image.flatten(&progress).await;
                if let Err(e) = image.close().await {
                    tracing::debug!("image {spec}: {e}");
                }
                (done, format!("error flattening b'{}'", spec.image))
            }
            Action::Remove => (
                remove(io, &spec.image, &progress).await,
                "error removing image".to_owned(),
            ),
            Action::TrashRemove => (
                trash_remove(io, &spec.image, false, &progress).await,
                "error deleting image from trash".to_owned(),
            ),
            Action::MigrationExecute => (
                migration_execute(io, &spec.image, Some(COPIES), &progress).await,
                MIGRATING.to_owned(),
            ),
            Action::MigrationCommit => (
                migration_commit(io, &spec.image, &progress).await,
                MIGRATING.to_owned(),
            ),
            Action::MigrationAbort => (
                migration_abort(io, &spec.image, &progress).await,
                MIGRATING.to_owned(),
            ),
        };
        match done {
            Ok(()) => Ok(End::Over(None)),
            Err(e) if e.is(errno::ENOENT) => Ok(End::Over(Some("Image does not exist"))),
            Err(e) if e.is(errno::EINVAL) && why_invalid(action).is_some() => {
                Ok(End::Over(why_invalid(action)))
            }
            Err(e) if e.is(errno::ECANCELED) => Ok(End::Canceled),
            Err(e) => Err(Failure::rbd(&e, what)),
        }
    }

    /// Hears how far a task is, and ends it when it was canceled.
    fn listener(self: &Rc<Self>, sequence: u64) -> Progress {
        let (tasks, told) = (Rc::downgrade(self), std::cell::Cell::new(None::<Instant>));
        Progress::new(move |done, total| {
            let Some(tasks) = tasks.upgrade() else {
                return ControlFlow::Break(());
            };
            let share = done as f64 / total.max(1) as f64;
            let is_new = {
                let mut queue = tasks.queue.borrow_mut();
                let Some(task) = queue.get_mut(sequence).filter(|t| !t.canceled) else {
                    return ControlFlow::Break(());
                };
                task.progress = share;
                !task.is_posted
            };
            let now = Instant::now();
            if is_new || told.get().is_none_or(|at| now - at >= TELL_PERIOD) {
                told.set(Some(now));
                tasks.post(sequence, share, true);
            }
            ControlFlow::Continue(())
        })
    }

    /// Tells how far a task is; with `begin` also where nothing was told of it yet.
    fn post(&self, sequence: u64, share: f64, begin: bool) {
        let mut queue = self.queue.borrow_mut();
        let Some(task) = queue.get_mut(sequence) else {
            return;
        };
        if !task.is_posted && !begin {
            return;
        }
        task.is_posted = true;
        (self.tell)(News::Task(TaskNews::Progress {
            id: task.id.clone(),
            message: task.message.clone(),
            share,
            refs: task.refs.clone(),
        }));
    }

    /// Tells that a task is over.
    pub(super) fn post_end(&self, sequence: u64) {
        let is_posted = self.queue.borrow().get(sequence).is_some_and(|t| t.is_posted);
        if !is_posted {
            self.post(sequence, 0.0, true);
        }
        let queue = self.queue.borrow();
        let Some(task) = queue.get(sequence) else { return };
        let id = task.id.clone();
        (self.tell)(News::Task(match &task.failure {
            Some(why) => TaskNews::Failed { id, why: why.clone() },
            None => TaskNews::Complete { id },
        }));
    }
}

/// What Ceph's library calls all that is done to a migration.
const MIGRATING: &str = "error aborting migration";

/// Why an image is not one for which there is anything to be done.
fn why_invalid(action: Action) -> Option<&'static str> {
    match action {
        Action::Flatten => Some("Image does not have parent"),
        Action::MigrationExecute | Action::MigrationAbort => Some("Image is not migrating"),
        Action::MigrationCommit => Some("Image is not migrating or migration not executed"),
        Action::Remove | Action::TrashRemove => None,
    }
}
