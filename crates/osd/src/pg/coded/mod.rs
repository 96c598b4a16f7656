//! Coded PGs: each member has a fragment of each object's data, and all of its metadata and omap. Any
//! k fragments give the data.

pub(super) mod fold;
pub(super) mod gather;
pub(super) mod message;
pub(super) mod want;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::Extent;
use spirula_erasure::{self as erasure, Change as DataChange, Unit};
use spirula_maps::{EVersion, OsdId, Positions};

use super::backend::{Backend, Change, Copies, Sent, newest_activation, send_to_all};
use super::config::PgConfig;
use super::fetch::{Pieces, Want};
use super::info::PgInfo;
use super::layout::{Layout, Part};
use super::log::PgLog;
use super::message::LogUpdate;
use super::output::{Ctx, Reader};
use super::push::{PushPart, SyncPlan};
use super::store_queue::{Pending, StoreQueue};
use super::txn::{ObjectOp, Txn};
use gather::is_data;
use want::FragmentWant;

/// Members have fragments by this layout.
#[derive(Debug)]
pub(super) struct Coded {
    pub(super) layout: erasure::Layout,
}

impl Backend for Coded {
    fn parts(&self, acting: &Positions, copies: &Copies) -> BTreeMap<OsdId, Part> {
        let layout = Layout::Coded(self.layout);
        let mut free: BTreeSet<u8> = (0..self.layout.roles()).collect();
        let mut parts = BTreeMap::new();
        for osd in acting.osds() {
            let kept = copies
                .get(&osd)
                .and_then(Option::as_ref)
                .filter(|i| !i.incomplete);
            if let Some(part) = kept
                .map(|i| i.part)
                .filter(|p| p.layout == layout && free.remove(&p.role))
            {
                parts.insert(osd, part);
            }
        }
        let mut fresh: Vec<(usize, OsdId)> = acting.osds().filter_map(|o| Some((acting.of(o)?, o))).collect();
        fresh.retain(|(_, o)| !parts.contains_key(o));
        // A member without a copy gets the part of its position, if that is free.
        fresh.retain(|(position, osd)| {
            let role = u8::try_from(*position).ok().filter(|role| free.remove(role));
            role.is_none_or(|role| parts.insert(*osd, Part { layout, role }).is_some())
        });
        for ((_, osd), role) in fresh.into_iter().zip(free) {
            parts.insert(osd, Part { layout, role });
        }
        parts
    }

    fn is_enough(&self, acting: &Positions, min_size: u32) -> bool {
        acting.count() >= (min_size as usize).max(self.layout.k().into())
    }

    fn authority<'a>(
        &self,
        copies: &'a Copies,
        _: &BTreeSet<OsdId>,
        _: &[&[OsdId]],
    ) -> Option<(OsdId, &'a PgInfo)> {
        // Until copies are recovered: all that there are must be equal.
        let all: Vec<(OsdId, &PgInfo)> = copies
            .iter()
            .filter_map(|(o, i)| Some((*o, i.as_ref()?)))
            .collect();
        let newest = newest_activation(copies);
        let equal = |i: &PgInfo| !i.incomplete && i.last_epoch_started == newest;
        let (first, info) = all.first()?;
        let same = all
            .iter()
            .all(|(_, i)| equal(i) && i.last_update == info.last_update);
        (same && all.len() >= self.layout.k().into()).then_some((*first, *info))
    }

    fn is_proof(&self, acting: &Positions, answered: &dyn Fn(OsdId) -> bool) -> bool {
        acting.osds().any(answered)
    }

    fn lacking(&self, _: &PgLog, _: &PgLog, _: bool, _: &PgConfig) -> Option<(SyncPlan, LogUpdate)> {
        None
    }

    fn givers(&self, _: &Positions, _: &BTreeSet<OsdId>) -> Vec<OsdId> {
        Vec::new()
    }

    fn portion(&self, pushed: PushPart, _: Part) -> PushPart {
        pushed
    }

    fn old(&self, size: u64, ops: &[ObjectOp]) -> Vec<Extent> {
        self.change(size, ops).old(self.layout)
    }

    fn code(&self, size: u64, ops: Vec<ObjectOp>, old: &Pieces) -> Vec<ObjectOp> {
        let change = self.change(size, &ops);
        let steps = change.steps(self.layout, old);
        let is_data = |op: &ObjectOp| {
            matches!(
                op,
                ObjectOp::Write { .. } | ObjectOp::Zero { .. } | ObjectOp::Truncate { .. }
            )
        };
        let mut rest: Vec<ObjectOp> = ops.into_iter().filter(|op| !is_data(op)).collect();
        // What makes the object, or replaces it, comes before its data, and the info last.
        let replaced = rest.iter().rposition(|op| {
            matches!(
                op,
                ObjectOp::Touch
                    | ObjectOp::Remove
                    | ObjectOp::CloneOf(_)
                    | ObjectOp::CloneOfData(_)
                    | ObjectOp::MoveOf(_)
            )
        });
        let at = replaced.map_or(0, |at| at + 1);
        rest.splice(at..at, steps.into_iter().map(ObjectOp::Step));
        rest
    }

    fn write(&self, change: Change, others: &[(OsdId, EVersion)], cx: &mut Ctx<'_>) -> (Txn, Sent) {
        send_to_all(change, others, cx)
    }

    fn read(
        &self,
        key: Bytes,
        wants: Vec<Want>,
        reader: Option<Reader>,
        what: Pending,
        store: &mut StoreQueue,
        cx: &mut Ctx<'_>,
    ) -> Vec<(OsdId, FragmentWant)> {
        if wants.iter().any(is_data) {
            return store.gather((key, wants), what, cx);
        }
        store.read(key, wants, reader, what, cx);
        Vec::new()
    }
}

impl Coded {
    /// What changes make of an object's data. `size`: of the object, or of the one that takes its
    /// place.
    fn change(&self, size: u64, ops: &[ObjectOp]) -> DataChange {
        let mut change = DataChange::new(size);
        for op in ops {
            match op {
                ObjectOp::Write { offset, data } => change.write(*offset, data.clone()),
                ObjectOp::Zero { offset, len } => change.zero(*offset, *len),
                ObjectOp::Truncate { size } => change.truncate(*size),
                ObjectOp::Remove => change = DataChange::new(0),
                ObjectOp::CloneOf(_) | ObjectOp::MoveOf(_) => change = DataChange::new(size),
                _ => {}
            }
        }
        change
    }
}

/// The unit that a copy with this part holds, if it holds one.
pub(super) fn unit_of(part: Part) -> Option<Unit> {
    match part.layout {
        Layout::Coded(layout) => layout.unit_of(part.role),
        Layout::Whole => None,
    }
}
