//! Large data that comes to the members' disks ahead of the change that it is for.
//!
//! All changes of a PG are durable in their order, and so is all that a store is given. So a small
//! write would wait for the data of large ones before it, on each member. While several clients
//! write, the primary sends large data to the members first, where it goes to free blocks. The
//! request gets its version, and its place in everybody's order, when the data is durable on all of
//! them: the change then says only that these blocks are the object's.
//!
//! Nothing depends on it: a member that does not have the data ahead is sent it with the change. So
//! is each member to which the change is sent again.

pub(super) mod handler;
mod placed;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_maps::OsdId;
use spirula_proto::osd::OpCode;

pub(super) use placed::{AskedToPlace, PlacedAhead};

use super::op::{ClientOp, OsdOp};
use super::placed_data::PlacedData;
use super::txn::{ObjectOp, Txn};

/// The store places whole blocks.
const BLOCK: u64 = 4096;

/// The data of a request that members have ahead of its change; nothing if none has it.
#[derive(Debug, Default)]
pub struct Ahead {
    /// The primary's number for it.
    number: u32,
    data: Bytes,
    /// The other members that have it.
    members: BTreeSet<OsdId>,
    /// What this OSD's store has of it.
    here: Option<PlacedData>,
}

impl Ahead {
    /// Whether another member has the data.
    pub(super) fn is_at(&self, member: OsdId) -> bool {
        self.members.contains(&member)
    }

    /// A change whose data is named by its number, as a member gets it that has it. `None` if the
    /// change does not write the data as a whole, to whole blocks.
    pub(super) fn named(&self, txn: &Txn) -> Option<Txn> {
        let mut txn = txn.clone();
        self.replace(&mut txn, None).then_some(txn)
    }

    /// Has this OSD's store use what it has of the data, if it has it.
    pub(super) fn use_here(&mut self, txn: &mut Txn) {
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

/// The data of a request that goes to the members ahead of its change, if there is such: a write of
/// whole blocks, and of so much (`least` bytes) that others would wait for it.
pub(super) fn data_ahead(op: &ClientOp, least: usize) -> Option<&Bytes> {
    let is_shared = op.taken.turn.as_ref().is_some_and(|turn| turn.is_shared());
    if !is_shared || op.taken.ahead.is_some() {
        return None;
    }
    let is_ahead = |o: &&OsdOp| {
        let offset = match o.code {
            OpCode::WRITE => o.extent().offset,
            OpCode::WRITEFULL => 0,
            _ => return false,
        };
        let len = o.indata.len() as u64;
        let is_whole = offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK);
        is_whole && o.indata.len() >= least && len >= 2 * BLOCK
    };
    op.ops.iter().find(is_ahead).map(|o| &o.indata)
}

/// Data on its way to the members' disks, for an op that waits for it.
#[derive(Debug)]
struct Placing {
    ahead: Ahead,
    /// The other members that have not answered.
    left: BTreeSet<OsdId>,
    /// Whether this OSD's store has not answered.
    here: bool,
    begun: Micros,
}

/// All data on its way, by the place of the op among the pending ones, which is its number.
#[derive(Debug, Default)]
pub(super) struct Aheads(BTreeMap<u32, Placing>);

impl Aheads {
    /// Whether the op `seq` waits for its data.
    pub(super) fn is_awaited_by(&self, seq: u32) -> bool {
        self.0.contains_key(&seq)
    }

    /// What the first op waits for.
    pub(super) fn waits_for(&self) -> Option<String> {
        let (n, first) = (self.0.len(), self.0.values().next()?);
        let mut at: Vec<String> = first.left.iter().map(|osd| format!("osd.{osd}")).collect();
        if first.here {
            at.insert(0, "its store".to_owned());
        }
        Some(format!(
            "{} to have the data of a write on disk, of {n}",
            at.join(", ")
        ))
    }

    /// Those that wait for this member.
    fn of(&self, member: OsdId) -> Vec<u32> {
        let waits = self.0.iter().filter(|(_, p)| p.left.contains(&member));
        waits.map(|(number, _)| *number).collect()
    }
}
