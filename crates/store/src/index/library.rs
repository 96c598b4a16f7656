//! The opened library. It refuses all further work after an error of its file, so that a damaged
//! page would end it: then it is opened anew.

use std::sync::{PoisonError, RwLock};

use redb::{Builder, Database};

use super::IndexFile;
use crate::{Result, StoreError};

/// How often work is tried again that failed because another call met a damaged page.
const TRIES: u32 = 20;

pub(super) struct Library {
    opened: RwLock<Opened>,
    file: IndexFile,
    cache_bytes: usize,
}

struct Opened {
    /// `None` once it could not be opened anew.
    db: Option<Database>,
    /// How often it was opened.
    times: u64,
}

impl Library {
    pub(super) fn open(file: IndexFile, cache_bytes: usize) -> Result<Self> {
        let db = open(&file, cache_bytes)?;
        Ok(Self {
            opened: RwLock::new(Opened {
                db: Some(db),
                times: 1,
            }),
            file,
            cache_bytes,
        })
    }

    /// Calls `work`, and opens the library anew if it met an error of the file. Work that failed
    /// because of an error that others met is done again.
    ///
    /// # Errors
    /// Those of the work; [`StoreError::Ruined`] if the library can't be opened any more.
    pub(super) fn with<T>(&self, mut work: impl FnMut(&Database) -> Result<T>) -> Result<T> {
        let mut tries = 0;
        loop {
            let (result, times) = {
                let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
                let Some(db) = &opened.db else {
                    return Err(StoreError::ruined("it can't be opened", Vec::new()));
                };
                (work(db), opened.times)
            };
            let error = match result {
                Err(error) if error.is_latched() => error,
                other => return other,
            };
            self.open_anew(times, &error)?;
            tries += 1;
            if !error.is_collateral() || tries == TRIES {
                return Err(error);
            }
        }
    }

    /// How often the library was opened: what it had read before may be outdated after that.
    pub(super) fn times(&self) -> u64 {
        self.opened.read().unwrap_or_else(PoisonError::into_inner).times
    }

    /// Opens the library anew, unless that was done since it had been opened `times` times.
    fn open_anew(&self, times: u64, cause: &StoreError) -> Result<()> {
        let mut opened = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        if opened.times != times {
            return Ok(()); // Another call has done it.
        }
        if self.file.has_failed() {
            // What was written may be lost: the log decides at the next start.
            return Err(cause.clone());
        }
        tracing::warn!(%cause, "the index is opened anew");
        opened.db = None;
        let db = open(&self.file, self.cache_bytes).map_err(|e| e.into_ruin())?;
        opened.db = Some(db);
        opened.times += 1;
        Ok(())
    }
}

fn open(file: &IndexFile, cache_bytes: usize) -> Result<Database> {
    let mut builder = Builder::new();
    Ok(builder
        .set_cache_size(cache_bytes)
        .create_with_backend(file.clone())?)
}
