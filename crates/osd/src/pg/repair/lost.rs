//! Objects that no member can read, and giving them up.
//!
//! An operator's `mark_unfound_lost` goes back to an older version, or deletes. As all members have
//! the same version of every object, there is no older one: both delete.

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_maps::{IntervalSet, SnapId};

use crate::pg::txn::ObjectOp;

/// Objects that no member can read.
#[derive(Debug, Default)]
pub(in crate::pg) struct Lost {
    /// The objects' keys.
    keys: BTreeSet<Bytes>,
    /// The keys of clones that are to be deleted.
    given_up: BTreeSet<Bytes>,
}

/// Why objects are not given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkLostError {
    /// There are none.
    NoneUnfound,
    /// This many are unfound, but an OSD that is down may have them.
    NotProbed(usize),
}

impl Lost {
    /// Whether there are none.
    pub(in crate::pg) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The number of objects.
    pub(in crate::pg) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Their keys.
    pub(in crate::pg) fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.keys.iter()
    }

    /// Adds an object. Returns whether it is new.
    pub(super) fn insert(&mut self, key: Bytes) -> bool {
        self.keys.insert(key)
    }

    /// Removes an object that can be read again.
    pub(in crate::pg) fn remove(&mut self, key: &Bytes) {
        self.keys.remove(key);
        self.given_up.remove(key);
    }

    /// The objects to which a change gives new contents, as clients state it; the head has this size
    /// afterwards.
    pub(in crate::pg) fn renewed(&self, objects: &[(Bytes, Vec<ObjectOp>)], head_size: u64) -> Vec<Bytes> {
        let all_new = |op: &ObjectOp| match op {
            ObjectOp::Remove | ObjectOp::CloneOf(_) | ObjectOp::MoveOf(_) => true,
            ObjectOp::Write { offset: 0, data } => data.len() as u64 >= head_size,
            ObjectOp::Truncate { size } => *size == 0,
            _ => false,
        };
        let is_renewed =
            |(key, ops): &&(Bytes, Vec<ObjectOp>)| self.keys.contains(key) && ops.iter().any(all_new);
        objects
            .iter()
            .filter(is_renewed)
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Notes that a clone is to be deleted.
    pub(super) fn give_up(&mut self, clone: Bytes) {
        self.given_up.insert(clone);
    }

    /// The snapshots for which a clone is to be given up: all of its own, if it is to be deleted.
    pub(in crate::pg) fn given_up(&self, clone: &Bytes, snaps: &[SnapId]) -> Option<IntervalSet> {
        let mut all = IntervalSet::new();
        snaps.iter().for_each(|s| all.insert(*s));
        self.given_up.contains(clone).then_some(all)
    }
}
