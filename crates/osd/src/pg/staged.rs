//! Staging objects as those see them that wait for one.

use bytes::Bytes;
use spirula_maps::PgId;

use super::key;
use super::txn::ObjectOp;

/// What a staging object is for. A PG has one of each at most, and an op takes them in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// What an object becomes: a copy of another one, or what it was at a snapshot.
    Becomes,
    /// The clone that a write leaves behind.
    Was,
}

impl Slot {
    /// All of them.
    pub(super) const ALL: [Self; 2] = [Self::Becomes, Self::Was];
}

/// A staging object that is whole. It is kept as long as somebody has this.
#[derive(Debug, PartialEq, Eq)]
pub struct Whole {
    /// What it is for.
    pub slot: Slot,
    /// Its key.
    pub key: Bytes,
}

/// The key of a PG's staging object.
pub(super) fn stage_key(pgid: PgId, slot: Slot) -> Bytes {
    key::stage_key(pgid, slot as u8)
}

/// Removes whatever staging objects there may be.
pub(super) fn no_stages(pgid: PgId) -> Vec<(Bytes, Vec<ObjectOp>)> {
    let keys = Slot::ALL.map(|slot| stage_key(pgid, slot)).into_iter();
    let keys = keys.chain([key::repair_key(pgid)]);
    keys.map(|key| (key, vec![ObjectOp::Remove])).collect()
}
