//! openraft's view of the log part of the store.

use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{AnyError, Entry, ErrorSubject, ErrorVerb, LogId, LogState, OptionalSend, RaftLogReader};
use openraft::{StorageIOError, Vote};

use super::store::{Store, StoreError};
use super::{Runtime, StorageError, Types};

pub(super) fn fault(subject: ErrorSubject<u64>, verb: ErrorVerb, e: &StoreError) -> StorageError {
    StorageIOError::new(subject, verb, AnyError::new(e)).into()
}

/// Runs a blocking disk operation as openraft wants it reported.
pub(super) async fn blocking<R: Runtime, T: Send + 'static>(
    subject: ErrorSubject<u64>,
    f: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StorageError> {
    match R::blocking(f).await {
        Ok(r) => r.map_err(|e| fault(subject, ErrorVerb::Write, &e)),
        Err(e) => Err(StorageIOError::new(subject, ErrorVerb::Write, AnyError::new(&e)).into()),
    }
}

/// Appends entries, once what they follow is on disk.
async fn append_all<R: Runtime>(store: &Store, entries: Vec<Entry<Types<R>>>) -> Result<(), StorageError> {
    let Some(first) = entries.first().map(|e| e.log_id.index) else {
        return Ok(());
    };
    let entries = Arc::new(entries);
    loop {
        let (own, of) = (store.clone(), Arc::clone(&entries));
        if blocking::<R, _>(ErrorSubject::Logs, move || own.append(&of)).await? {
            return Ok(());
        }
        store
            .installed_before(first)
            .await
            .map_err(|e| fault(ErrorSubject::Logs, ErrorVerb::Write, &e))?;
    }
}

impl<R: Runtime> RaftLogReader<Types<R>> for Store {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry<Types<R>>>, StorageError> {
        let from = match range.start_bound() {
            Bound::Included(n) => *n,
            Bound::Excluded(n) => n.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(n) => n.saturating_add(1),
            Bound::Excluded(n) => *n,
            Bound::Unbounded => u64::MAX,
        };
        self.entries(from, to)
            .map_err(|e| fault(ErrorSubject::Logs, ErrorVerb::Read, &e))
    }
}

impl<R: Runtime> RaftLogStorage<Types<R>> for Store {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types<R>>, StorageError> {
        let read = || -> Result<_, StoreError> {
            let last_purged_log_id = self.purged()?;
            let last_log_id = self.last_entry()?.or(last_purged_log_id);
            Ok(LogState {
                last_purged_log_id,
                last_log_id,
            })
        };
        read().map_err(|e| fault(ErrorSubject::Logs, ErrorVerb::Read, &e))
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Result<(), StorageError> {
        let (store, vote) = (self.clone(), *vote);
        blocking::<R, _>(ErrorSubject::Vote, move || store.save_vote(&vote)).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<u64>>, StorageError> {
        self.vote()
            .map_err(|e| fault(ErrorSubject::Vote, ErrorVerb::Read, &e))
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types<R>>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry<Types<R>>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let done = append_all::<R>(self, entries.into_iter().collect()).await;
        callback.log_io_completed(
            done.as_ref()
                .copied()
                .map_err(|e| std::io::Error::other(e.to_string())),
        );
        done
    }

    async fn truncate(&mut self, log_id: LogId<u64>) -> Result<(), StorageError> {
        let store = self.clone();
        blocking::<R, _>(ErrorSubject::Logs, move || store.truncate(log_id.index)).await
    }

    async fn purge(&mut self, log_id: LogId<u64>) -> Result<(), StorageError> {
        let store = self.clone();
        blocking::<R, _>(ErrorSubject::Logs, move || store.purge(log_id)).await
    }
}
