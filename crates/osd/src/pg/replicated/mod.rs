//! Replicated PGs: every member has all of each object, in the same version. So a member that lacks
//! nothing can give any other what that lacks, and any complete copy can serve alone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::Extent;
use spirula_erasure::{FragmentOp, Step, Unit};
use spirula_maps::{EVersion, OsdId, Positions};

use super::backend::{Backend, Change, Copies, Sent, newest_activation, send_to_all};
use super::coded::gather::Holders;
use super::coded::want::FragmentWant;
use super::config::PgConfig;
use super::fetch::{Pieces, Want};
use super::info::PgInfo;
use super::layout::{Part, Shape};
use super::output::{Ctx, Reader};
use super::store_queue::{Pending, StoreQueue};
use super::txn::{ObjectOp, Txn};

/// Members are copies of each other.
#[derive(Debug)]
pub(super) struct Replicated;

impl Backend for Replicated {
    fn parts(&self, acting: &Positions, _: &Copies) -> BTreeMap<OsdId, Part> {
        acting.osds().map(|o| (o, Part::default())).collect()
    }

    fn is_enough(&self, acting: &Positions, min_size: u32) -> bool {
        acting.count() >= min_size as usize
    }

    fn authority<'a>(
        &self,
        copies: &'a Copies,
        unfit: &BTreeSet<OsdId>,
        prefer: &[&[OsdId]],
    ) -> Option<(OsdId, &'a PgInfo)> {
        let rank = |o: OsdId| prefer.iter().position(|g| g.contains(&o)).unwrap_or(prefer.len());
        let complete = copies
            .iter()
            .filter_map(|(o, i)| i.as_ref().filter(|i| !i.incomplete).map(|i| (*o, i)));
        let best = complete.min_by_key(|(o, i)| (Reverse(i.age()), unfit.contains(o), rank(*o), *o));
        // A complete copy may be older than one that was complete: writes could be missing from it.
        best.filter(|(_, i)| i.last_epoch_started == newest_activation(copies))
    }

    /// One member of an interval that was active has all that was written in it.
    fn is_proof(&self, acting: &Positions, answered: &dyn Fn(OsdId) -> bool) -> bool {
        acting.osds().any(answered)
    }

    fn is_current(&self, _: OsdId, copy: &PgInfo, newest: &PgInfo) -> bool {
        !copy.incomplete && copy.age() == newest.age()
    }

    fn is_whole(&self, _: &Copies, _: &PgInfo) -> bool {
        true
    }

    fn replays(&self, _: &PgInfo, _: &PgInfo) -> bool {
        false
    }

    fn givers(&self, acting: &Positions, bad: &BTreeSet<OsdId>) -> Vec<OsdId> {
        acting.osds().filter(|o| !bad.contains(o)).collect()
    }

    fn shape(&self, _: Part) -> Shape {
        Shape::Whole
    }

    fn old(&self, _: u64, _: &[ObjectOp]) -> Vec<Extent> {
        Vec::new()
    }

    fn code(&self, _: u64, ops: Vec<ObjectOp>, _: &Pieces) -> Vec<ObjectOp> {
        ops
    }

    fn portions(&self, _: u64, _: &[ObjectOp], _: &Pieces, _: &PgConfig) -> Option<Vec<Vec<Step>>> {
        None
    }

    fn staged(&self, _: &[Step], _: &[Unit]) -> BTreeMap<Unit, Vec<FragmentOp>> {
        BTreeMap::new()
    }

    fn take(&self, _: u64, ops: Vec<ObjectOp>, _: &Pieces, _: Option<Bytes>) -> Vec<ObjectOp> {
        ops
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
        store.read(key, wants, reader, what, cx);
        Vec::new()
    }

    fn read_as(
        &self,
        _: (Shape, Holders),
        (key, wants): (Bytes, Vec<Want>),
        what: Pending,
        store: &mut StoreQueue,
        cx: &mut Ctx<'_>,
    ) -> Vec<(OsdId, FragmentWant)> {
        store.read(key, wants, None, what, cx);
        Vec::new()
    }
}
