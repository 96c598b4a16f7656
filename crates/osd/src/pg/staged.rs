//! Staging objects as the ops that wait for them see them.

use bytes::Bytes;
use spirula_maps::PgId;

use super::key;
use super::layout::Layout;
use super::txn::{ObjectOp, Txn};

/// The purpose of a staging object. A PG has at most one of each, and an op takes the first two in
/// this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// The object's new content: a copy of another one, or of its state at a snapshot.
    Becomes,
    /// The clone that a write leaves behind.
    Was,
    /// What a large change of an object that is erasure-coded makes of each member's fragment; with
    /// a number, as several ops may have one each.
    Large(u8),
}

impl Slot {
    /// Large changes that may be staged at a time.
    const LARGE: u8 = 16;

    /// The number of slots.
    pub(super) const COUNT: usize = 2 + Self::LARGE as usize;

    /// All slots.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let large = (0..Self::LARGE).map(Self::Large);
        [Self::Becomes, Self::Was].into_iter().chain(large)
    }

    /// The slot's number.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Becomes => 0,
            Self::Was => 1,
            Self::Large(n) => 2 + n,
        }
    }
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
    key::stage_key(pgid, slot.number())
}

/// The changes that remove any staging objects of a PG with this layout.
pub(super) fn no_stages(pgid: PgId, layout: Layout) -> Vec<(Bytes, Vec<ObjectOp>)> {
    let may_be = |slot: &Slot| layout != Layout::Whole || !matches!(slot, Slot::Large(_));
    let keys = Slot::all().filter(may_be).map(|slot| stage_key(pgid, slot));
    let keys = keys.chain([key::repair_key(pgid)]);
    keys.map(|key| (key, vec![ObjectOp::Remove])).collect()
}

/// The changes that give a PG that is split off what is staged of large changes, whose objects may be
/// its own: a member that lacks such a change makes it again in that PG.
pub(super) fn shared(pgid: PgId, child: PgId) -> Vec<(Bytes, Vec<ObjectOp>)> {
    let large = Slot::all().filter(|slot| matches!(slot, Slot::Large(_)));
    let clone = |slot| {
        (
            stage_key(child, slot),
            vec![ObjectOp::CloneOfData(stage_key(pgid, slot))],
        )
    };
    large.map(clone).collect()
}

/// Makes a change take what is staged from the PG that it belongs to since a split.
pub(super) fn taken_by(pgid: PgId, change: &mut Txn) {
    for op in change.objects.iter_mut().flat_map(|(_, ops)| ops) {
        if let ObjectOp::Take(stage) = op
            && let Some(slot) = stage.last()
        {
            *stage = key::stage_key(pgid, *slot);
        }
    }
}
