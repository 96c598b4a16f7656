//! Objects that were looked up and could not be read: to look them up again would have the index
//! opened anew each time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;

use crate::{ObjectKey, Result, StoreError};

/// The most objects; further ones are looked up again.
const MOST: usize = 4096;

/// Objects whose place in the index is damaged.
#[derive(Default)]
pub(super) struct Unreadable {
    any: AtomicBool,
    errors: Mutex<HashMap<ObjectKey, StoreError>>,
}

impl Unreadable {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, StoreError>> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of an earlier look-up.
    pub(super) fn check(&self, key: &ObjectKey) -> Result<()> {
        match self.any.load(Ordering::Acquire) {
            true => self.lock().get(key).map_or(Ok(()), |e| Err(e.clone())),
            false => Ok(()),
        }
    }

    /// Notes the error of a look-up. No commit can change the object then, so the error stays right.
    pub(super) fn note(&self, key: &ObjectKey, error: &StoreError) {
        let mut errors = self.lock();
        if errors.len() < MOST {
            errors.insert(key.clone(), error.clone());
            self.any.store(true, Ordering::Release);
        }
    }

    /// Forgets all: what was damaged may be written anew.
    pub(super) fn clear(&self) {
        self.lock().clear();
        self.any.store(false, Ordering::Release);
    }
}
