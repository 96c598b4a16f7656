//! Translation of the PG core's transactions for the store.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use spirula_invariant::impossible;
use spirula_maps::SnapId;
use spirula_store::{ObjectKey, Op, Placed, Store, StoreError, Transaction};

use super::heap::LARGE;
use crate::pg::key::{self, KeyRange};
use crate::pg::placed_data::PlacedData;
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

/// Ends the daemon if an object that is moved is neither there nor made before by the same
/// transaction: the object that it is to replace would keep its old content.
fn check_moves(objects: &[(Bytes, Vec<ObjectOp>)], store: &mut Store) -> Result<(), StoreError> {
    for (at, (key, ops)) in objects.iter().enumerate() {
        for op in ops {
            let ObjectOp::MoveOf(source) = op else { continue };
            let is_made = objects[..at].iter().any(|(key, _)| key == source);
            if !is_made && store.load(&ObjectKey::new(source))?.is_none() {
                impossible!("an object to be there when it is moved"; source = format!("{source:?}"), to = key::named(key));
            }
        }
    }
    Ok(())
}

/// A placement as the core knows it.
pub(super) fn placement(placed: Placed) -> PlacedData {
    PlacedData::new(Mutex::new(Some(placed)))
}

/// What the store has placed, which is used once.
fn take_placed(placement: Option<PlacedData>) -> Placed {
    let placed = placement.as_ref().and_then(|p| p.get::<Mutex<Option<Placed>>>());
    let taken = placed.and_then(|p| p.lock().unwrap_or_else(PoisonError::into_inner).take());
    let Some(placed) = taken else {
        impossible!("data that the store has placed, and that nothing else uses"; placement = format!("{placement:?}"));
    };
    placed
}

/// The store's transaction.
///
/// # Errors
/// The store can't read the record of a staging object.
pub(super) fn translate(txn: Txn, store: &mut Store) -> Result<Transaction, StoreError> {
    check_moves(&txn.objects, store)?;
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
                ObjectOp::WritePlaced {
                    offset, placement, ..
                } => Op::WritePlaced {
                    key,
                    offset,
                    placed: take_placed(placement),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spirula_store::device::{BlockIo, SimDisk};
    use spirula_store::{Config, Devices, MkfsOptions, Notify, mkfs_on};

    use super::*;

    /// A store on a simulated disk, with an object.
    fn store_with(name: &str) -> Store {
        let disk = SimDisk::new(64 << 20, 3);
        let dev: Arc<dyn BlockIo> = Arc::new(disk.clone());
        let options = MkfsOptions {
            log_bytes: 2 << 20,
            ..MkfsOptions::default()
        };
        mkfs_on(&dev, None, &options).unwrap();
        let devices = Devices {
            main: Box::new(disk.device()),
            log: None,
        };
        let mut store = Store::open_on(devices, Config::default(), Notify::new().unwrap(), false).unwrap();
        let ops = vec![Op::Touch(ObjectKey::from(name))];
        store
            .submit(Transaction { ops }, spirula_store::Token(1))
            .unwrap();
        store
    }

    /// A change of objects.
    fn change(objects: &[(&'static str, ObjectOp)]) -> Txn {
        let of =
            |(key, op): &(&'static str, ObjectOp)| (Bytes::from_static(key.as_bytes()), vec![op.clone()]);
        Txn {
            objects: objects.iter().map(of).collect(),
            meta: Vec::new(),
        }
    }

    fn moved(source: &'static str) -> ObjectOp {
        ObjectOp::MoveOf(Bytes::from_static(source.as_bytes()))
    }

    #[test]
    fn what_is_there_or_made_before_is_moved() {
        let mut store = store_with("staged");
        assert!(translate(change(&[("a", moved("staged"))]), &mut store).is_ok());
        let made = [("made", ObjectOp::Touch), ("a", moved("made"))];
        assert!(translate(change(&made), &mut store).is_ok());
    }

    #[test]
    #[should_panic(expected = "an object to be there when it is moved")]
    fn what_is_not_there_is_not_moved() {
        drop(translate(
            change(&[("a", moved("gone"))]),
            &mut store_with("staged"),
        ));
    }

    #[test]
    #[should_panic(expected = "a staging object to be there when it is taken")]
    fn what_is_not_there_is_not_taken() {
        let take = ObjectOp::Take(Bytes::from_static(b"gone"));
        drop(translate(change(&[("a", take)]), &mut store_with("staged")));
    }
}
