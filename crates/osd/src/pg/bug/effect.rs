//! The effects of deliberate bugs on what a copy's store is asked.

use bytes::Bytes;
use spirula_erasure::{Step, Unit};

use crate::pg::fetch::Want;
use crate::pg::output::{Ctx, Output};
use crate::pg::site::Site;
use crate::pg::staged::Staged;
use crate::pg::store_queue::{Pending, StoreQueue};
use crate::pg::txn::{ObjectOp, Txn};

/// Leaves steps of a transaction out of coding fragments.
pub(in crate::pg) fn leave_out(store: &StoreQueue, txn: &mut Txn, is_one: impl Fn(&Step) -> bool) {
    let unit = store.fragments.as_ref().map(|f| f.unit);
    if matches!(unit, Some(Unit::Parity(_))) {
        let stays = |op: &ObjectOp| !matches!(op, ObjectOp::Step(step) if is_one(step));
        txn.objects.iter_mut().for_each(|(_, ops)| ops.retain(stays));
    }
}

/// Adds the differences of a transaction to the fragments before the transaction does.
pub(in crate::pg) fn add_early(store: &mut StoreQueue, txn: &Txn, cx: &mut Ctx<'_>) {
    let adds = |op: &&ObjectOp| {
        matches!(
            op,
            ObjectOp::Step(Step::Write { .. } | Step::Patch { .. } | Step::Punch { .. })
        )
    };
    let of_object = |(key, ops): &(Bytes, Vec<ObjectOp>)| {
        let ops: Vec<ObjectOp> = ops.iter().filter(adds).cloned().collect();
        (!ops.is_empty()).then(|| (key.clone(), ops))
    };
    let objects = txn.objects.iter().filter_map(of_object).collect();
    let meta = Vec::new();
    store.record(Txn { objects, meta }, cx);
}

/// Removes all that is staged, as when a PG is activated.
pub(in crate::pg) fn sweep(site: &Site, staged: &Staged, store: &mut StoreQueue, cx: &mut Ctx<'_>) {
    let objects = staged.removal(site.pgid, store.layout());
    let meta = Vec::new();
    store.record(Txn { objects, meta }, cx);
}

/// Reads parts of an object before the writes that wait for its fragment.
pub(in crate::pg) fn read_early(
    store: &mut StoreQueue,
    key: Bytes,
    wants: Vec<Want>,
    what: Pending,
    cx: &mut Ctx<'_>,
) {
    let (token, reader) = (store.token(what), None);
    cx.out.push(Output::Read {
        token,
        key,
        wants,
        reader,
        has_room: true,
    });
}
