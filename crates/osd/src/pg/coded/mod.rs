//! Coded PGs: each member has a fragment of each object's data, and all of its metadata and omap. Any
//! k fragments give the data.

pub(super) mod fold;
pub(super) mod gather;
mod give;
pub(super) mod message;
pub(crate) mod redo;
mod shares;
pub(super) mod want;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::Extent;
use spirula_erasure::{self as erasure, Change as DataChange, FragmentOp, Step, Unit};
use spirula_invariant::impossible;
use spirula_maps::{EVersion, OsdId, Positions};

use super::backend::{Backend, Change, Copies, Sent, newest_activation, send_to_all};
use super::config::PgConfig;
use super::fetch::{Pieces, Want};
use super::info::PgInfo;
use super::layout::{Layout, Part, Shape};
use super::output::{Ctx, Output, Reader};
use super::store_queue::{Pending, StoreQueue};
use super::txn::{ObjectOp, Txn, step_logged};
use gather::{Holders, is_data};
use spirula_proto::RawMessage;
use want::FragmentWant;

/// The most bytes that the places of a change's steps take in the log besides: what is staged is put
/// together from them.
const MOST_PLACES: usize = 512 << 10;

/// The most holes within blocks that a large change makes, as each takes room in the log. A write
/// has one at most where it begins, and one where it ends; more are zeros instead.
const MOST_HOLES: usize = 8;

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
        let info = |osd| copies.get(&osd).and_then(Option::as_ref);
        // The newest complete copies first: what they hold may be nowhere else. An incomplete one can
        // be begun anew.
        let of_kind = |osd| Some((osd, info(osd).filter(|i| i.part.layout == layout)?));
        let mut known: Vec<(OsdId, &PgInfo)> = acting.osds().filter_map(of_kind).collect();
        known.sort_by_key(|(_, i)| (i.incomplete, Reverse(i.age())));
        for (osd, i) in known {
            if free.remove(&i.part.role) {
                parts.insert(osd, i.part);
            }
        }
        // A member without a copy gets the part of its position, if that is free.
        let mut rest: Vec<OsdId> = acting.osds().filter(|o| !parts.contains_key(o)).collect();
        rest.retain(|osd| {
            let role = acting.of(*osd).and_then(|at| u8::try_from(at).ok());
            match role.filter(|role| free.remove(role)) {
                Some(role) => parts.insert(*osd, Part { layout, role }).is_some(),
                None => true,
            }
        });
        for (osd, role) in rest.into_iter().zip(free) {
            parts.insert(osd, Part { layout, role });
        }
        parts
    }

    fn is_enough(&self, acting: &Positions, min_size: u32) -> bool {
        acting.count() >= (min_size as usize).max(self.layout.k().into())
    }

    /// The newest copy has all that was acknowledged. Those that were active with it can be brought
    /// to its version, whatever that is; together they must be enough to make all other fragments.
    fn authority<'a>(
        &self,
        copies: &'a Copies,
        unfit: &BTreeSet<OsdId>,
        prefer: &[&[OsdId]],
    ) -> Option<(OsdId, &'a PgInfo)> {
        let rank = |o: OsdId| prefer.iter().position(|g| g.contains(&o)).unwrap_or(prefer.len());
        let newest = newest_activation(copies);
        let complete = || {
            copies
                .iter()
                .filter_map(|(o, i)| Some((*o, i.as_ref()?)))
                .filter(|(_, i)| self.holds(i))
        };
        let active = || complete().filter(|(_, i)| i.last_epoch_started == newest);
        let head = active().map(|(_, i)| i.last_update).max()?;
        let at_head = || active().filter(|(_, i)| i.last_update == head);
        let counts = |(o, i): &(OsdId, &PgInfo)| {
            let is_current = at_head().any(|(_, newest)| self.is_current(*o, i, newest));
            is_current || i.last_epoch_started == newest
        };
        let roles: BTreeSet<u8> = complete().filter(counts).map(|(_, i)| i.part.role).collect();
        // Where nothing was ever written, nothing is to be made of others.
        if head > EVersion::ZERO && roles.len() < self.layout.k().into() {
            return None;
        }
        at_head().min_by_key(|(o, _)| (unfit.contains(o), rank(*o), *o))
    }

    fn is_proof(&self, acting: &Positions, answered: &dyn Fn(OsdId) -> bool) -> bool {
        acting.osds().any(answered)
    }

    /// Members of an activation had all before it, durably. So those that do not remember it lack
    /// nothing: nothing was written after it.
    fn is_current(&self, osd: OsdId, copy: &PgInfo, newest: &PgInfo) -> bool {
        let is_at_head = copy.last_update == newest.last_update;
        let forgot_activation =
            copy.last_epoch_started < newest.last_epoch_started && newest.last_acting.contains(osd);
        self.holds(copy) && (is_at_head || forgot_activation)
    }

    fn replays(&self, copy: &PgInfo, newest: &PgInfo) -> bool {
        self.holds(copy)
            && copy.last_epoch_started == newest.last_epoch_started
            && copy.last_update < newest.last_update
    }

    fn is_whole(&self, copies: &Copies, newest: &PgInfo) -> bool {
        let known = copies.iter().filter_map(|(o, i)| Some((*o, i.as_ref()?)));
        let current = known.filter(|(o, i)| self.is_current(*o, i, newest));
        let roles: BTreeSet<u8> = current.map(|(_, i)| i.part.role).collect();
        roles.len() >= self.layout.k().into()
    }

    /// Any member that can read an object's metadata: its data come from all of them.
    fn givers(&self, acting: &Positions, bad: &BTreeSet<OsdId>) -> Vec<OsdId> {
        let mut all: Vec<OsdId> = acting.osds().collect();
        all.sort_by_key(|o| bad.contains(o));
        all
    }

    fn shape(&self, part: Part) -> Shape {
        match unit_of(part) {
            Some(unit) => Shape::Fragment(self.layout, unit),
            None => Shape::Whole,
        }
    }

    fn old(&self, size: u64, ops: &[ObjectOp]) -> Vec<Extent> {
        self.change(size, ops).old(self.layout)
    }

    fn code(&self, size: u64, ops: Vec<ObjectOp>, old: &Pieces) -> Vec<ObjectOp> {
        let steps = self.change(size, &ops).steps(self.layout, old);
        with_data(ops, steps.into_iter().map(ObjectOp::Step))
    }

    fn portions(&self, size: u64, ops: &[ObjectOp], old: &Pieces, cfg: &PgConfig) -> Option<Vec<Vec<Step>>> {
        let steps = self.change(size, ops).steps(self.layout, old);
        let bytes: usize = steps.iter().map(Step::bytes).sum();
        let places: usize = steps.iter().map(step_logged).sum();
        if bytes <= cfg.large_change && places <= MOST_PLACES {
            return None;
        }
        let staged = self.layout.divide(steps).staged;
        let portions = self.layout.portions(&staged, cfg.portion);
        (!portions.is_empty()).then_some(portions)
    }

    fn staged(&self, steps: &[Step], units: &[Unit]) -> BTreeMap<Unit, Vec<FragmentOp>> {
        let code = self.layout.code();
        let of = |unit: &Unit| (*unit, self.layout.staged(&code, *unit, steps));
        units.iter().map(of).collect()
    }

    fn take(&self, size: u64, ops: Vec<ObjectOp>, old: &Pieces, stage: Option<Bytes>) -> Vec<ObjectOp> {
        let change = self.change(size, &ops);
        let divided = self.layout.divide(change.steps(self.layout, old));
        // What is taken ends with whole blocks.
        let end = Step::Truncate { size: change.size() };
        let holes = divided.holes.into_iter().take(MOST_HOLES);
        let rest = holes.chain([end]).map(ObjectOp::Step);
        let inline = divided.inline.into_iter().map(ObjectOp::Step);
        with_data(ops, inline.chain(stage.map(ObjectOp::Take)).chain(rest))
    }

    fn write(&self, change: Change, others: &[(OsdId, EVersion)], cx: &mut Ctx<'_>) -> (Txn, Sent) {
        let mut ops = change.txn.objects.iter().flat_map(|(_, ops)| ops);
        let portion = ops.find_map(|op| match op {
            ObjectOp::Portion { steps, .. } => Some(steps.clone()),
            _ => None,
        });
        match portion {
            Some(steps) => self.send_portion(change, &steps, others, cx),
            None => send_to_all(change, others, cx),
        }
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
            let members = store.gathers.members.clone();
            return store.gather((key, wants), (Shape::Whole, members), reader, what, cx);
        }
        store.read(key, wants, reader, what, cx);
        Vec::new()
    }

    fn read_as(
        &self,
        of: (Shape, Holders),
        (key, wants): (Bytes, Vec<Want>),
        what: Pending,
        store: &mut StoreQueue,
        cx: &mut Ctx<'_>,
    ) -> Vec<(OsdId, FragmentWant)> {
        if wants.iter().any(is_data) {
            return store.gather((key, wants), of, None, what, cx);
        }
        store.read(key, wants, None, what, cx);
        Vec::new()
    }
}

impl Coded {
    /// Whether a copy is complete, and of this layout.
    fn holds(&self, copy: &PgInfo) -> bool {
        !copy.incomplete && copy.part.layout == Layout::Coded(self.layout)
    }

    /// Sends each member what it stages of a portion of a large change, which has these steps.
    fn send_portion(
        &self,
        mut change: Change,
        steps: &[Step],
        others: &[(OsdId, EVersion)],
        cx: &mut Ctx<'_>,
    ) -> (Txn, Sent) {
        let mut ahead = change.ahead.take();
        let own = unit_of(change.own);
        let units = || change.holders.keys().copied().chain(own).collect::<Vec<_>>();
        let staged = ahead.as_mut().and_then(|a| a.take_staged());
        let staged = staged.unwrap_or_else(|| self.staged(steps, &units()));
        let share = |unit: Option<Unit>| {
            let Some(share) = unit.and_then(|unit| staged.get(&unit)) else {
                impossible!("a member to hold a part of each object"; pg = change.pgid, part = format!("{:?}", change.own));
            };
            let mut txn = change.txn.clone();
            for op in txn.objects.iter_mut().flat_map(|(_, ops)| ops) {
                if let ObjectOp::Portion { base, .. } = op {
                    let (ops, base) = (share.clone(), base.clone());
                    *op = ObjectOp::Stage { ops, base };
                }
            }
            txn
        };
        let unit_of_member = |osd: OsdId| {
            let held = change.holders.iter().find(|(_, o)| **o == osd);
            held.map(|(unit, _)| *unit)
        };
        let mut messages = Vec::with_capacity(others.len());
        for (osd, _) in others {
            let txn = share(unit_of_member(*osd));
            let has = ahead.as_ref().filter(|a| a.is_at(*osd));
            let named = has.and_then(|a| Some(change.message(a.named(&txn)?)));
            // What is sent again has the data, whatever became of it there.
            let all = cx.versions.write(*osd, &change.message(txn));
            let msg = named.map_or_else(|| all.clone(), |named| cx.versions.write(*osd, &named));
            messages.push((*osd, all));
            let (osd, reply) = (*osd, false);
            cx.out.push(Output::Send { osd, msg, reply });
        }
        let mut own = share(own);
        if let Some(ahead) = &mut ahead {
            ahead.use_here(&mut own);
        }
        (own, Sent::new(RawMessage::default(), messages))
    }

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

/// Changes of an object with these ones of its data instead of their own. What makes the object, or
/// replaces it, comes before its data, and the info last.
fn with_data(ops: Vec<ObjectOp>, data: impl Iterator<Item = ObjectOp>) -> Vec<ObjectOp> {
    let is_data = |op: &ObjectOp| {
        matches!(
            op,
            ObjectOp::Write { .. } | ObjectOp::Zero { .. } | ObjectOp::Truncate { .. }
        )
    };
    let mut rest: Vec<ObjectOp> = ops.into_iter().filter(|op| !is_data(op)).collect();
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
    rest.splice(at..at, data);
    rest
}

/// The members that hold these parts, by the units of them.
pub(super) fn holders(parts: impl Iterator<Item = (OsdId, Part)>) -> Holders {
    let held = parts.filter_map(|(osd, part)| Some((unit_of(part)?, osd)));
    Arc::new(held.collect())
}

/// The unit that a copy with this part holds, if it holds one.
pub(in crate::pg) fn unit_of(part: Part) -> Option<Unit> {
    match part.layout {
        Layout::Coded(layout) => layout.unit_of(part.role),
        Layout::Whole => None,
    }
}
