//! Translation of the PG core's transactions for the store.

use bytes::Bytes;
use spirula_invariant::impossible;
use spirula_maps::SnapId;
use spirula_store::{ObjectKey, Op, Store, StoreError, Transaction};

use super::heap::LARGE;
use crate::pg::key::{self, KeyRange};
use crate::pg::txn::{MetaOp, ObjectOp, Txn};

/// The bytes of large values in a transaction that lie in no buffer of a pool.
pub(super) fn large_bytes(txn: &Txn) -> usize {
    let of = |op: &ObjectOp| match op {
        ObjectOp::SetAttr { value, .. } | ObjectOp::OmapHeader(value) => value.len(),
        ObjectOp::OmapSet(pairs) => pairs.iter().map(|(_, v)| v.len()).sum(),
        _ => 0,
    };
    let ops = txn.objects.iter().flat_map(|(_, ops)| ops);
    ops.map(of).filter(|bytes| *bytes >= LARGE).sum()
}

fn note_snaps(t: &mut Transaction, clone: &ObjectKey, add: &[SnapId], remove: &[SnapId]) {
    for snap in add {
        t.push(Op::MetaPut {
            key: key::snap_key(*snap, clone.as_slice()),
            value: Bytes::new(),
        });
    }
    for snap in remove {
        t.push(Op::MetaDelete(key::snap_key(*snap, clone.as_slice())));
    }
}

/// Takes over all blocks of a staging object, which is durable: what it does not have stays as it is.
fn take(t: &mut Transaction, stage: &ObjectKey, to: &ObjectKey, store: &mut Store) -> Result<(), StoreError> {
    let Some(staged) = store.load(stage)? else {
        impossible!("a staging object to be there when it is taken"; stage = format!("{stage:?}"));
    };
    for range in staged.data_ranges(0, u64::MAX) {
        t.push(Op::CloneRange {
            from: stage.clone(),
            to: to.clone(),
            offset: range.start,
            len: range.end - range.start,
            at: range.start,
        });
    }
    t.push(Op::Remove(stage.clone()));
    Ok(())
}

/// The store's transaction.
///
/// # Errors
/// The store can't read the record of a staging object.
pub(super) fn translate(txn: Txn, store: &mut Store) -> Result<Transaction, StoreError> {
    let mut t = Transaction::new();
    t.ops
        .reserve(txn.meta.len() + txn.objects.iter().map(|(_, ops)| ops.len()).sum::<usize>());
    for (k, ops) in txn.objects {
        let key = ObjectKey::new(&k);
        for op in ops {
            let key = key.clone();
            t.push(match op {
                ObjectOp::Touch => Op::Touch(key),
                ObjectOp::Write { offset, data } => Op::Write {
                    key,
                    offset,
                    data: data.into(),
                },
                ObjectOp::Zero { offset, len } => Op::Zero { key, offset, len },
                ObjectOp::Truncate { size } => Op::Truncate { key, size },
                ObjectOp::Remove => Op::Remove(key),
                ObjectOp::SetInfo(info) => Op::SetInfo { key, info },
                ObjectOp::SetAttr { name, value } => Op::SetAttr { key, name, value },
                ObjectOp::RmAttr(name) => Op::RmAttr { key, name },
                ObjectOp::OmapSet(pairs) => Op::OmapSet { key, pairs },
                ObjectOp::OmapRm(names) => Op::OmapRm { key, names },
                ObjectOp::OmapRmRange { from, to } => Op::OmapRmRange { key, from, to },
                ObjectOp::OmapClear => Op::OmapClear(key),
                ObjectOp::OmapHeader(header) => Op::OmapHeader { key, header },
                ObjectOp::CloneOf(source) => Op::Clone {
                    from: ObjectKey::new(&source),
                    to: key,
                    pairs: true,
                },
                ObjectOp::CloneOfData(source) => Op::Clone {
                    from: ObjectKey::new(&source),
                    to: key,
                    pairs: false,
                },
                ObjectOp::MoveOf(source) => Op::Move {
                    from: ObjectKey::new(&source),
                    to: key,
                },
                ObjectOp::Take(stage) => {
                    take(&mut t, &ObjectKey::new(&stage), &key, store)?;
                    continue;
                }
                ObjectOp::Step(_) | ObjectOp::Portion { .. } | ObjectOp::Stage { .. } => {
                    impossible!("a step to be carried out before it comes to the store"; step = format!("{op:?}"))
                }
                ObjectOp::NoteSnaps { add, remove } => {
                    note_snaps(&mut t, &key, &add, &remove);
                    continue;
                }
                ObjectOp::ForgetSnaps { to, snaps } => {
                    t.ops.extend(snaps.iter().map(|s| {
                        let KeyRange { from, to } = key::snap_records(*s, key.as_slice(), &to);
                        Op::MetaDeleteRange { from, to }
                    }));
                    continue;
                }
            });
        }
    }
    for op in txn.meta {
        t.push(match op {
            MetaOp::Put(key, value) => Op::MetaPut { key, value },
            MetaOp::Delete(key) => Op::MetaDelete(key),
            MetaOp::DeleteRange(from, to) => Op::MetaDeleteRange { from, to },
        });
    }
    Ok(t)
}
