//! Staging objects as the ops that wait for them see them.

use bytes::Bytes;
use spirula_maps::PgId;

use super::key;
use super::txn::ObjectOp;

/// The purpose of a staging object. A PG has at most one of each, and an op takes them in this
/// order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// The object's new content: a copy of another one, or of its state at a snapshot.
    Becomes,
    /// The clone that a write leaves behind.
    Was,
}

impl Slot {
    /// All slots.
    pub(super) const ALL: [Self; 2] = [Self::Becomes, Self::Was];
}

/// A staging object that is whole. It is kept as long as this is held.
#[derive(Debug, PartialEq, Eq)]
pub struct Whole {
    /// The purpose.
    pub slot: Slot,
    /// The key.
    pub key: Bytes,
}

/// The key of a PG's staging object.
pub(super) fn stage_key(pgid: PgId, slot: Slot) -> Bytes {
    key::stage_key(pgid, slot as u8)
}

/// The changes that remove any staging objects of a PG.
pub(super) fn no_stages(pgid: PgId) -> Vec<(Bytes, Vec<ObjectOp>)> {
    let keys = Slot::ALL.map(|slot| stage_key(pgid, slot)).into_iter();
    let keys = keys.chain([key::repair_key(pgid)]);
    keys.map(|key| (key, vec![ObjectOp::Remove])).collect()
}
