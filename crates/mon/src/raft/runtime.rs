//! The runtime of the log: its tasks, clock, randomness and disk operations are tokio's in a
//! daemon, and virtual ones in the simulation.

use std::fmt::Debug;
use std::future::Future;

use openraft::AsyncRuntime;

/// The runtime that executes the log.
pub trait Runtime: Debug + Clone + Copy + Default + Ord + Send + Sync + 'static {
    /// Tasks, timers and randomness.
    type Tasks: AsyncRuntime;

    /// Runs a blocking disk operation off the monitor's loop, so that a slow flush does not stop
    /// the heartbeat.
    fn blocking<T: Send + 'static>(
        f: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, Stopped>> + Send;
}

/// The operation did not finish: it panicked, or the runtime ends.
#[derive(Debug, thiserror::Error)]
#[error("a disk operation was stopped: {0}")]
pub struct Stopped(pub String);

/// tokio's tasks and threads, on which daemons run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tokio;

impl Runtime for Tokio {
    type Tasks = openraft::TokioRuntime;

    async fn blocking<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Result<T, Stopped> {
        let done = tokio::task::spawn_blocking(f).await;
        done.map_err(|e| Stopped(e.to_string()))
    }
}
