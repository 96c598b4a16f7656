//! Images that migrate to another pool, layout or set of features (Ceph's
//! `src/librbd/api/Migration.cc`). The client that prepares a migration puts the source into the
//! trash and makes the destination, which clients use from then on: they read data that it lacks
//! from the source, and copy it before they write. This module copies the rest, and removes the
//! source or restores it.
//!
//! Both headers have a record of the migration until it ends. A commit removes the source's record
//! first, so that no client aborts the migration afterwards; an abort notes in the source's record
//! when the data is back.

mod abort;
mod checks;
mod children;
mod commit;
mod content;
mod execute;
mod pair;
mod record;
mod source;
mod steps;

use std::collections::BTreeMap;

use spirula_classes::rbd::migration::Migration;

pub use abort::migration_abort;
pub use commit::migration_commit;
pub use execute::migration_execute;
pub use pair::{MigrationStatus, migration_status};
pub(crate) use record::may_be_used;

/// Computes the steps of a record for an image without snapshots of its own (`stored.rs`).
pub(crate) fn read_stored(record: &Migration) {
    let steps = steps::steps(record, &BTreeMap::new());
    let of = |at: Option<&steps::Step>| at.map(|s| (s.newest(), s.context().snaps.len()));
    let _ = (of(steps.first()), of(steps.last()));
}
