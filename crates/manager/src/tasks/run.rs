//! Executes tasks: those that are due, one after the other in each pool.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use spirula_client::IoCtx;
use spirula_rbd::{
    Image, Options, Progress, migration_abort, migration_commit, migration_execute, remove, trash_remove,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::queue::Turn;
use super::spec::ImageSpec;
use super::task::{Action, Task};
use super::{MAX_MAPPED, Tasks, opening, remove_stored};
use crate::clients::{TASKS, Work};
use crate::failure::Failure;
use crate::question::errno;
use crate::rights::Basis;
use crate::service::{News, TaskNews};

/// How often due tasks are searched.
const PERIOD: Duration = Duration::from_secs(5);
/// How often progress is reported.
const TELL_PERIOD: Duration = Duration::from_secs(1);

/// Objects of an image that are copied at the same time: the manager's memory is small.
const COPIES: usize = 1;

/// The end of an attempt.
enum End {
    /// The task is done; with a reason, it can never be done.
    Over(Option<&'static str>),
    /// A user cancelled the task.
    Canceled,
}

impl Tasks {
    /// Works until this client is on the blocklist.
    pub(super) async fn run(self: Rc<Self>) -> Failure {
        let mut attempts = JoinSet::new();
        loop {
            for turn in self.turns() {
                let tasks = Rc::clone(&self);
                attempts.spawn_local(async move { tasks.attempt(turn).await });
            }
            tokio::select! {
                Some(ended) = attempts.join_next() => {
                    if let Ok(Err(e)) = ended && e.is_shut_out() {
                        return e;
                    }
                }
                // Somebody has added a task.
                () = self.wake.notified() => {}
                // It is time to look.
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
    }

    /// The tasks to begin now: the first due one in each pool without a task under way.
    fn turns(&self) -> Vec<Turn> {
        let (queue, mut running) = (self.queue.borrow(), self.running.borrow_mut());
        let mut begin = Vec::new();
        for turn in queue.due(Utc::now()) {
            let Some(pool) = queue.get(turn).map(|t| t.home.pool) else {
                continue;
            };
            if running.len() < TASKS && !running.contains_key(&pool) {
                running.insert(pool, turn);
                begin.push(turn);
            }
        }
        begin
    }

    /// The options for opening images.
    fn limits(&self) -> Options {
        Options {
            in_flight: Some(COPIES),
            copies: Some(Arc::clone(&self.copies)),
            max_mapped: Some(MAX_MAPPED),
            ..Options::default()
        }
    }

    /// Tries a task whose turn it is. Its failure is stored with it.
    async fn attempt(self: &Rc<Self>, turn: Turn) -> Result<(), Failure> {
        let outcome = self.try_once(turn).await;
        self.running.borrow_mut().retain(|_, t| *t != turn);
        outcome
    }

    async fn try_once(self: &Rc<Self>, turn: Turn) -> Result<(), Failure> {
        let known = |t: &Task| (t.spec(), t.action, t.home.clone());
        let Some((spec, action, home)) = self.queue.borrow().get(turn).map(known) else {
            return Ok(());
        };
        tracing::info!("task {turn}: {action:?} of {spec}");
        let outcome = match self.store(&home).await {
            Ok(io) => self.execute(turn, &io, &spec, action).await,
            Err(e) if e.errno() == errno::ENOENT => {
                // The pool is gone, and the task with it.
                self.forget(turn);
                Ok(())
            }
            Err(e) => Err(Failure::rados(&e, format!("error opening pool '{}'", spec.pool))),
        };
        let mut queue = self.queue.borrow_mut();
        let mut denied = None;
        if let Some(task) = queue.get_mut(turn) {
            task.attempted(Utc::now());
            if task.attempts == 1 && outcome.as_ref().is_err_and(Failure::is_denied) {
                denied = Some(format!(
                    "task '{}' is not done: it takes more rights than it has",
                    task.message
                ));
            }
            task.retry_message = outcome.as_ref().err().map(Failure::text);
        }
        drop(queue);
        if let Some(what) = denied {
            self.tell(News::Suspect(what));
        }
        if let Err(e) = &outcome {
            tracing::warn!("task {turn}: {}", e.text());
            self.post(turn, 0.0, false);
        }
        outcome
    }

    async fn execute(
        self: &Rc<Self>,
        turn: Turn,
        io: &IoCtx,
        spec: &ImageSpec,
        action: Action,
    ) -> Result<(), Failure> {
        self.begin(turn);
        let end = self.act(turn, spec, action).await;
        let key = {
            let mut queue = self.queue.borrow_mut();
            let Some(task) = queue.get_mut(turn) else {
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
        remove_stored(io, key).await?;
        self.forget(turn);
        Ok(())
    }

    /// Removes a finished task.
    fn forget(&self, turn: Turn) {
        self.post_end(turn);
        let mut queue = self.queue.borrow_mut();
        if let Some(task) = queue.get(turn) {
            self.tell(News::Forget(task.origin().key));
        }
        queue.remove(turn);
    }

    fn begin(&self, turn: Turn) {
        if let Some(task) = self.queue.borrow_mut().get_mut(turn) {
            task.in_progress = true;
        }
    }

    async fn act(self: &Rc<Self>, turn: Turn, spec: &ImageSpec, action: Action) -> Result<End, Failure> {
        let known = self
            .queue
            .borrow()
            .get(turn)
            .map(|t| (t.home.clone(), t.origin()));
        let Some((home, origin)) = known else {
            return Ok(End::Canceled);
        };
        let basis = Basis::Stored {
            origin,
            at: Some(home.clone()),
        };
        let client = self.clients.open(Work::Task, &home, basis).await?;
        let (io, progress) = (&client.io, self.listener(turn));
        self.perform(io, spec, action, &progress).await
    }

    async fn perform(
        &self,
        io: &IoCtx,
        spec: &ImageSpec,
        action: Action,
        progress: &Progress,
    ) -> Result<End, Failure> {
        let (done, what) = match action {
            Action::Flatten => {
                let image = match Image::open(io, &spec.image, self.limits()).await {
                    Ok(image) => image,
                    Err(e) if e.is(errno::ENOENT) => return Ok(End::Over(Some("Image does not exist"))),
                    Err(e) => return Err(Failure::rbd(&e, opening(&spec.image))),
                };
                let done = image.flatten(progress).await;
                if let Err(e) = image.close().await {
                    tracing::debug!("image {spec}: {e}");
                }
                (done, format!("error flattening b'{}'", spec.image))
            }
            Action::Remove => (
                remove(io, &spec.image, progress).await,
                "error removing image".to_owned(),
            ),
            Action::TrashRemove => (
                trash_remove(io, &spec.image, false, progress).await,
                "error deleting image from trash".to_owned(),
            ),
            Action::MigrationExecute => (
                migration_execute(io, &spec.image, &self.limits(), progress).await,
                MIGRATING.to_owned(),
            ),
            Action::MigrationCommit => (
                migration_commit(io, &spec.image, progress).await,
                MIGRATING.to_owned(),
            ),
            Action::MigrationAbort => (
                migration_abort(io, &spec.image, progress).await,
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

    /// The listener of a task's progress, which ends the task if it was cancelled.
    fn listener(self: &Rc<Self>, turn: Turn) -> Progress {
        let (tasks, told) = (Rc::downgrade(self), std::cell::Cell::new(None::<Instant>));
        Progress::new(move |done, total| {
            let Some(tasks) = tasks.upgrade() else {
                return ControlFlow::Break(());
            };
            let share = done as f64 / total.max(1) as f64;
            let is_new = {
                let mut queue = tasks.queue.borrow_mut();
                let Some(task) = queue.get_mut(turn).filter(|t| !t.canceled) else {
                    return ControlFlow::Break(());
                };
                task.progress = share;
                !task.is_posted
            };
            let now = Instant::now();
            if is_new || told.get().is_none_or(|at| now - at >= TELL_PERIOD) {
                told.set(Some(now));
                tasks.post(turn, share, true);
            }
            ControlFlow::Continue(())
        })
    }

    /// Reports a task's progress; with `begin` also the first time.
    fn post(&self, turn: Turn, share: f64, begin: bool) {
        let mut queue = self.queue.borrow_mut();
        let Some(task) = queue.get_mut(turn) else {
            return;
        };
        if !task.is_posted && !begin {
            return;
        }
        task.is_posted = true;
        self.tell(News::Task(TaskNews::Progress {
            id: task.id.clone(),
            message: task.message.clone(),
            share,
            refs: task.refs.clone(),
        }));
    }

    /// Reports the end of a task.
    pub(super) fn post_end(&self, turn: Turn) {
        let is_posted = self.queue.borrow().get(turn).is_some_and(|t| t.is_posted);
        if !is_posted {
            self.post(turn, 0.0, true);
        }
        let queue = self.queue.borrow();
        let Some(task) = queue.get(turn) else { return };
        let id = task.id.clone();
        self.tell(News::Task(match &task.failure {
            Some(why) => TaskNews::Failed { id, why: why.clone() },
            None => TaskNews::Complete { id },
        }));
    }
}

/// The failed operation in librbd's words, for all steps of a migration.
const MIGRATING: &str = "error aborting migration";

/// Why there is nothing to do for an image.
fn why_invalid(action: Action) -> Option<&'static str> {
    match action {
        Action::Flatten => Some("Image does not have parent"),
        Action::MigrationExecute | Action::MigrationAbort => Some("Image is not migrating"),
        Action::MigrationCommit => Some("Image is not migrating or migration not executed"),
        Action::Remove | Action::TrashRemove => None,
    }
}
