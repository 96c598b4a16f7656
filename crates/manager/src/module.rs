//! What a module of the manager is: the commands that it answers, and the work that it does without being asked.

use std::pin::Pin;
use std::rc::Rc;

use crate::cluster::Snapshot;
use crate::failure::Failure;
use crate::question::{Question, Reply};

/// A future of the manager's thread.
pub(crate) type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A command and all that a module needs to answer it.
#[derive(Clone)]
pub(crate) struct Asked<'a> {
    /// The question's number, by which the monitor knows whose it is.
    pub(crate) number: u64,
    /// What is asked.
    pub(crate) question: &'a Question,
    /// The cluster when it was asked.
    pub(crate) cluster: Snapshot,
}

/// A module.
pub(crate) trait Module {
    /// What its commands begin with: `rbd task `.
    fn prefix(&self) -> &'static str;

    /// Reads what the managers before have left. Commands wait for that.
    ///
    /// # Errors
    /// Only where the cluster has shut this client out; other failures are logged.
    fn load(&self) -> LocalFuture<'_, Result<(), Failure>>;

    /// Answers the command behind the prefix.
    ///
    /// # Errors
    /// What whoever asked is told.
    fn command<'a>(&'a self, command: &'a str, asked: Asked<'a>) -> LocalFuture<'a, Result<Reply, Failure>>;

    /// Does what is to be done without being asked, until the cluster has shut this client out.
    fn work(self: Rc<Self>) -> LocalFuture<'static, Failure>;
}
