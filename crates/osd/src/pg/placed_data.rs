//! Data that is on a store's device, and that no object has yet.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Data that the store has placed. A transaction makes it an object's
/// ([`ObjectOp::WritePlaced`](super::txn::ObjectOp::WritePlaced)); if the last handle is dropped
/// before, the store has its room again. Only the store knows what is in it.
#[derive(Clone)]
pub struct PlacedData(Arc<dyn Any + Send + Sync>);

impl PlacedData {
    /// A handle of what the store calls it.
    pub fn new(placed: impl Any + Send + Sync) -> Self {
        Self(Arc::new(placed))
    }

    /// What the store calls it; `None` if it is not of that kind of store.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl PartialEq for PlacedData {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PlacedData {}

impl fmt::Debug for PlacedData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlacedData")
    }
}
