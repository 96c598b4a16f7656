//! The other changes of a request, as far as its removals of ranges of omap keys must know of them.

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_proto::osd::OpCode;

use super::omap_input::pairs;
use crate::pg::op::OsdOp;
use crate::pg::txn::ObjectOp;

/// The other changes of the request, as far as ranges must know of them.
#[derive(Default)]
pub(super) struct Ranges<'a> {
    /// The keys that the ops of the request set, later ones included, in order. Class methods may
    /// set others.
    pub(super) announced: Vec<Bytes>,
    /// The announced keys that the object had.
    pub(super) stored: Option<&'a [(Bytes, Bytes)]>,
    /// The number of changes that were looked at.
    pub(super) seen: usize,
    /// The keys that these changes set and that may have been there before.
    pub(super) set: BTreeSet<Bytes>,
    /// The removals that go before all other changes.
    pub(super) first: Vec<ObjectOp>,
}

impl Ranges<'_> {
    /// Looks ahead at the ops of a request.
    pub(super) fn announce(&mut self, ops: &[OsdOp]) {
        let Some(last) = ops.iter().rposition(|o| o.code == OpCode::OMAPRMKEYRANGE) else {
            return; // Nothing is to be known.
        };
        let sets = ops.iter().take(last).filter(|o| o.code == OpCode::OMAPSETVALS);
        let keys = sets.filter_map(|o| pairs(o).ok()).flatten().map(|(k, _)| k);
        self.announced = keys.collect();
        self.announced.sort_unstable();
        self.announced.dedup();
    }

    /// Notes a change that the request has made.
    pub(super) fn note(&mut self, change: &ObjectOp) {
        match change {
            ObjectOp::OmapSet(pairs) => self.set.extend(pairs.iter().map(|(k, _)| k.clone())),
            ObjectOp::OmapRm(keys) => keys.iter().for_each(|k| {
                self.set.remove(k);
            }),
            ObjectOp::OmapClear => self.set.clear(),
            _ => {}
        }
    }

    /// Puts the ranges before the other changes, when all ops were executed.
    pub(super) fn settle(&mut self, changes: &mut Vec<ObjectOp>) {
        if !self.first.is_empty() {
            changes.splice(0..0, self.first.drain(..));
        }
    }
}
