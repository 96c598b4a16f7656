//! Snapshots: clones of objects, which are made before the first write after a snapshot, read,
//! rolled back to, and trimmed when their snapshots are removed.
//!
//! A clone is an object of its own in the store, right before its head in the order of keys, and
//! goes wherever the head goes. All ops on an object and its clones have one order: that of the
//! head's context.

mod preserve;
pub(super) mod read;
pub(super) mod set;
pub(super) mod trim;
