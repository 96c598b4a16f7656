//! What members have ahead of a change.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_erasure::{FragmentOp, Unit};
use spirula_maps::OsdId;

use super::BLOCK;
use super::run::run_ahead;
use crate::pg::placed_data::PlacedData;
use crate::pg::txn::{ObjectOp, Txn};

/// What goes to the members.
#[derive(Debug)]
pub(super) enum Content {
    /// The data of a request, the same to all of them.
    Same(Bytes),
    /// Of a portion of a large change of an object that is coded, what the member with each unit
    /// stages: to each member goes the longest run of writes.
    Staged(BTreeMap<Unit, Vec<FragmentOp>>),
}

impl Default for Content {
    fn default() -> Self {
        Self::Same(Bytes::new())
    }
}

/// The data that members have ahead of its change; nothing if none has it.
#[derive(Debug, Default)]
pub struct Ahead {
    /// The primary's number for it.
    pub(super) number: u32,
    pub(super) content: Content,
    /// The other members that have it.
    pub(super) members: BTreeSet<OsdId>,
    /// What this OSD's store has of it.
    pub(super) here: Option<PlacedData>,
}

impl Ahead {
    /// Whether another member has the data.
    pub(in crate::pg) fn is_at(&self, member: OsdId) -> bool {
        self.members.contains(&member)
    }

    /// What the member with each unit stages, if it is known already.
    pub(in crate::pg) fn take_staged(&mut self) -> Option<BTreeMap<Unit, Vec<FragmentOp>>> {
        match &mut self.content {
            Content::Same(_) => None,
            Content::Staged(all) => Some(std::mem::take(all)),
        }
    }

    /// A change whose data is named by its number, as a member gets it that has it. `None` if the
    /// change does not write the data as a whole, to whole blocks.
    pub(in crate::pg) fn named(&self, txn: &Txn) -> Option<Txn> {
        let mut txn = txn.clone();
        self.replace(&mut txn, None).then_some(txn)
    }

    /// Has this OSD's store use what it has of the data, if it has it.
    pub(in crate::pg) fn use_here(&mut self, txn: &mut Txn) {
        if let Some(placement) = self.here.take() {
            self.replace(txn, Some(placement));
        }
    }

    fn replace(&self, txn: &mut Txn, placement: Option<PlacedData>) -> bool {
        let mut objects = txn.objects.iter_mut().map(|(_, ops)| ops);
        match &self.content {
            Content::Same(data) => objects.any(|ops| self.replace_write(ops, data, &placement)),
            Content::Staged(_) => objects.any(|ops| self.replace_run(ops, &placement)),
        }
    }

    /// Replaces the write of this data.
    fn replace_write(&self, ops: &mut [ObjectOp], ahead: &Bytes, placement: &Option<PlacedData>) -> bool {
        let is_it = |data: &Bytes| data.len() == ahead.len() && data.as_ptr() == ahead.as_ptr();
        for op in ops {
            if let ObjectOp::Write { offset, data } = op
                && is_it(data)
                && offset.is_multiple_of(BLOCK)
            {
                *op = self.placed(*offset, data.len() as u64, placement);
                return true;
            }
        }
        false
    }

    /// Replaces the run of writes that went ahead, of those that a member stages.
    fn replace_run(&self, ops: &mut Vec<ObjectOp>, placement: &Option<PlacedData>) -> bool {
        for (at, op) in ops.iter_mut().enumerate() {
            let ObjectOp::Stage { ops: staged, .. } = op else {
                continue;
            };
            let Some(run) = run_ahead(staged) else {
                return false;
            };
            let placed = self.placed(run.offset, run.len, placement);
            staged.drain(run.place);
            ops.insert(at, placed);
            return true;
        }
        false
    }

    fn placed(&self, offset: u64, len: u64, placement: &Option<PlacedData>) -> ObjectOp {
        ObjectOp::WritePlaced {
            offset,
            len,
            number: self.number,
            placement: placement.clone(),
        }
    }
}
