//! Staging objects as the ops that wait for them see them, and as a copy has them.

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_invariant::invariant;
use spirula_maps::PgId;

use super::key;
use super::layout::Layout;
use super::txn::ObjectOp;

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

/// The key of a PG's staging object for the object with this key.
pub(super) fn stage_key(pgid: PgId, layout: Layout, slot: Slot, object: &[u8]) -> Bytes {
    match layout {
        Layout::Whole => key::stage_key(pgid, slot.number()),
        Layout::Coded(_) => key::coded_stage_key(object, slot.number()),
    }
}

/// The staging objects of a copy whose objects are erasure-coded, in the order of its changes.
#[derive(Debug, Default)]
pub struct Staged(BTreeSet<Bytes>);

impl Staged {
    /// Those that the store has.
    pub fn load(keys: impl IntoIterator<Item = Bytes>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// Notes a change: it makes staging objects, removes them, or takes them.
    pub(super) fn note(&mut self, pgid: PgId, objects: &[(Bytes, Vec<ObjectOp>)]) {
        for (key, ops) in objects {
            for op in ops {
                if let ObjectOp::MoveOf(stage) | ObjectOp::Take(stage) = op {
                    invariant!(
                        self.0.remove(stage),
                        "a staging object to be there when a change takes it";
                        pg = pgid, object = key::named(key), staging = format!("{stage:?}")
                    );
                }
            }
            if key::is_stage_key(key) {
                match ops.last() {
                    Some(ObjectOp::Remove) => self.0.remove(key),
                    _ => self.0.insert(key.clone()),
                };
            }
        }
    }

    /// Splits off those for the objects of a child PG.
    pub(super) fn split_off(&mut self, child: PgId, pg_num: u32) -> Self {
        let range = key::coded_stage_range(child, pg_num);
        let all = std::mem::take(&mut self.0).into_iter();
        let (theirs, ours) = all.partition(|key| range.contains(key));
        self.0 = ours;
        Self(theirs)
    }

    /// The changes that remove all staging objects of a PG with this layout. Those for whole objects
    /// are not noted, as there are only two names for them.
    pub(super) fn removal(&self, pgid: PgId, layout: Layout) -> Vec<(Bytes, Vec<ObjectOp>)> {
        let unnoted: &[Slot] = match layout {
            Layout::Whole => &[Slot::Becomes, Slot::Was],
            Layout::Coded(_) => &[],
        };
        let unnoted = unnoted.iter().map(|slot| key::stage_key(pgid, slot.number()));
        let noted = self.0.iter().cloned();
        let keys = noted.chain(unnoted).chain([key::repair_key(pgid)]);
        keys.map(|key| (key, vec![ObjectOp::Remove])).collect()
    }
}
