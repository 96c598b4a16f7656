//! How much an image may have under way, and of what size.

use std::sync::Arc;

use spirula_client::errno;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::task::{JoinError, JoinSet};

use crate::{Error, Result, bounds};

/// Requests to data objects under way at the same time, of one image.
const IN_FLIGHT: usize = 128;

/// Limits of an open image where memory is short.
pub(crate) struct Limits {
    in_flight: Arc<Semaphore>,
    copies: Option<Arc<Semaphore>>,
    /// The most objects that its object map may cover.
    pub(crate) max_mapped: u64,
}

impl Limits {
    /// Limits as the opener of an image asks for them.
    pub(crate) fn new(
        in_flight: Option<usize>,
        copies: Option<Arc<Semaphore>>,
        max_mapped: Option<u64>,
    ) -> Self {
        Self {
            in_flight: Arc::new(Semaphore::new(in_flight.unwrap_or(IN_FLIGHT).max(1))),
            copies,
            max_mapped: max_mapped.unwrap_or(bounds::MAX_MAPPED),
        }
    }

    /// Waits for permits to copy an object of this size, where the number of copies is limited.
    pub(crate) async fn copy_turn(&self, object_size: u32) -> Option<OwnedSemaphorePermit> {
        let mib = object_size.div_ceil(1 << 20);
        // Nobody closes it.
        self.copies.clone()?.acquire_many_owned(mib).await.ok()
    }

    /// Waits for a permit to send a request to a data object.
    pub(crate) async fn request(&self) -> Option<SemaphorePermit<'_>> {
        // Nobody closes it.
        self.in_flight.acquire().await.ok()
    }

    /// Runs `work` for many objects, several at a time. After a failure no more are begun.
    pub(crate) async fn for_each<T, F>(
        &self,
        items: impl Iterator<Item = T>,
        work: impl Fn(T) -> F,
    ) -> Result<()>
    where
        F: Future<Output = Result<()>> + 'static,
    {
        let mut tasks = JoinSet::new();
        let mut first = Ok(());
        let ended = |done: std::result::Result<Result<()>, JoinError>| {
            done.unwrap_or(Err(Error::os("image", errno::EIO)))
        };
        for item in items {
            while let Some(done) = tasks.try_join_next() {
                first = first.and(ended(done));
            }
            if first.is_err() {
                break;
            }
            let permit = Arc::clone(&self.in_flight).acquire_owned().await;
            let task = work(item);
            tasks.spawn_local(async move {
                let done = task.await;
                drop(permit);
                done
            });
        }
        while let Some(done) = tasks.join_next().await {
            first = first.and(ended(done));
        }
        first
    }
}
