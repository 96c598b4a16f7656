//! The place where the operations of an [`IoCtx`](crate::IoCtx) run: on this thread, or on the
//! thread of a [`RadosHandle`](crate::RadosHandle). Each operation is written once, on top of the
//! one method here.

use crate::{Rados, Result};

/// A way to a client.
pub trait Connection: Clone {
    /// Runs `work` on the client's thread, and returns its result. `bytes` is the memory of the
    /// request and its answer, as far as that is known before. Dropping the future drops the one
    /// that `work` has made: a request that is not sent yet is not sent any more.
    ///
    /// # Errors
    /// That of `work`; [`spirula_monc::Error::ShutDown`] where the client has ended.
    fn run<T, F, W>(&self, bytes: usize, work: F) -> impl Future<Output = Result<T>>
    where
        T: Send + 'static,
        F: FnOnce(Rados) -> W + Send + 'static,
        W: Future<Output = Result<T>> + 'static;
}

impl Connection for Rados {
    fn run<T, F, W>(&self, _bytes: usize, work: F) -> impl Future<Output = Result<T>>
    where
        T: Send + 'static,
        F: FnOnce(Rados) -> W + Send + 'static,
        W: Future<Output = Result<T>> + 'static,
    {
        work(self.clone())
    }
}
