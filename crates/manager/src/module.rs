//! A module of the manager: the commands that it answers, and its work in the background.

use std::pin::Pin;
use std::rc::Rc;

use crate::cluster::Snapshot;
use crate::failure::Failure;
use crate::question::{Question, Reply};

/// A future of the manager's thread.
pub(crate) type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A command, and all that a module needs to answer it.
#[derive(Clone)]
pub(crate) struct Asked<'a> {
    /// The question's number, by which the monitor knows its asker.
    pub(crate) number: u64,
    /// The command.
    pub(crate) question: &'a Question,
    /// The cluster when the command came.
    pub(crate) cluster: Snapshot,
}

/// A module.
pub(crate) trait Module {
    /// The prefix of its commands: `rbd task `.
    fn prefix(&self) -> &'static str;

    /// Reads the records of earlier managers. Commands wait for that.
    ///
    /// # Errors
    /// Only where this client is on the blocklist; other failures are logged.
    fn load(&self) -> LocalFuture<'_, Result<(), Failure>>;

    /// Answers the command behind the prefix.
    ///
    /// # Errors
    /// The failure that the asker is told.
    fn command<'a>(&'a self, command: &'a str, asked: Asked<'a>) -> LocalFuture<'a, Result<Reply, Failure>>;

    /// Works in the background until this client is on the blocklist.
    fn work(self: Rc<Self>) -> LocalFuture<'static, Failure>;
}
