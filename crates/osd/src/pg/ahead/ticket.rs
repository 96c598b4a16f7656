//! What members have ahead of a request's change.

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_maps::OsdId;

use super::BLOCK;
use crate::pg::placed_data::PlacedData;
use crate::pg::txn::{ObjectOp, Txn};

/// The data of a request that members have ahead of its change; nothing if none has it.
#[derive(Debug, Default)]
pub struct Ahead {
    /// The primary's number for it.
    pub(super) number: u32,
    pub(super) data: Bytes,
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
        let is_it = |data: &Bytes| data.len() == self.data.len() && data.as_ptr() == self.data.as_ptr();
        for op in txn.objects.iter_mut().flat_map(|(_, ops)| ops) {
            if let ObjectOp::Write { offset, data } = op
                && is_it(data)
                && offset.is_multiple_of(BLOCK)
            {
                *op = ObjectOp::WritePlaced {
                    offset: *offset,
                    len: data.len() as u64,
                    number: self.number,
                    placement,
                };
                return true;
            }
        }
        false
    }
}
