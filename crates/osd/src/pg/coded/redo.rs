//! Changes that may not be durable on all members yet.
//!
//! A member's fragment of a change is of no use to another one. So each member keeps, beside its log,
//! the steps of every change that may not be durable on all: from these any other member of the
//! interval can go forward to the newest change, whichever members are left. They go when the
//! primary says that the change is durable everywhere, and when a PG is activated.

use std::collections::VecDeque;

use bytes::Bytes;
use spirula_denc::{Error, Reader, Result, Writer};
use spirula_invariant::invariant;
use spirula_maps::{EVersion, PgId};
use spirula_proto::BytesList;

use crate::pg::key::{self, KeyRange};
use crate::pg::log::LogEntry;
use crate::pg::txn::{MetaOp, ObjectOp, Txn};

/// The bytes of a large record.
const LARGE: usize = 256 << 10;

/// The changes, by their versions.
#[derive(Debug, Default)]
pub struct Redo {
    changes: VecDeque<(EVersion, Txn)>,
}

/// The record of a change's steps.
fn record_of(change: &Txn) -> Bytes {
    let (mut front, mut payload) = (Writer::new(), BytesList::new());
    change.encode_objects(&mut front, &mut payload);
    let mut all = Writer::with_capacity(front.as_slice().len() + payload.len() + size_of::<u32>());
    all.blob(front.as_slice());
    payload.iter().for_each(|b| all.bytes(b));
    all.into_vec().into()
}

/// Decodes what [`record_of`] wrote.
fn change_of(record: &Bytes) -> Result<Txn> {
    let mut r = Reader::new(record);
    let mut front = Reader::new(r.blob()?);
    let mut payload = BytesList::new();
    payload.push(record.slice(record.len() - r.remaining()..));
    let change = Txn::decode_objects(&mut front, &payload)?;
    match front.is_empty() {
        true => Ok(change),
        false => Err(Error::Invalid("steps of a change")),
    }
}

impl Redo {
    /// The changes as the store remembers them, of the entries of the copy's log; records and entries
    /// ascend. A large record is stored before its change, which may not have come to be.
    ///
    /// # Errors
    /// A record is not one.
    pub fn load(records: &[(Bytes, Bytes)], entries: &[LogEntry]) -> Result<Self> {
        let mut changes = VecDeque::with_capacity(records.len());
        for (k, v) in records {
            let version = key::version_of(k).ok_or(Error::Invalid("version of a change"))?;
            if entries.binary_search_by_key(&version, |e| e.version).is_ok() {
                changes.push_back((version, change_of(v)?));
            }
        }
        Ok(Self { changes })
    }

    /// Notes a change, in the transaction that makes it. Returns the record instead if it is to be
    /// stored before, as both together may be too much for the store's log.
    pub(in crate::pg) fn note(
        &mut self,
        pgid: PgId,
        version: EVersion,
        objects: Vec<(Bytes, Vec<ObjectOp>)>,
        txn: &mut Vec<MetaOp>,
    ) -> Option<MetaOp> {
        invariant!(
            self.changes.back().is_none_or(|(v, _)| *v < version),
            "changes to be noted in their order";
            pg = pgid, version = version
        );
        let meta = Vec::new();
        let change = Txn { objects, meta };
        let record = record_of(&change);
        self.changes.push_back((version, change));
        let is_large = record.len() > LARGE;
        let put = MetaOp::Put(key::redo_key(pgid, version), record);
        if is_large {
            return Some(put);
        }
        txn.push(put);
        None
    }

    /// Forgets the changes up to a version.
    pub(in crate::pg) fn forget(&mut self, pgid: PgId, to: EVersion, txn: &mut Vec<MetaOp>) {
        let Some((first, _)) = self.changes.front().filter(|(v, _)| *v <= to) else {
            // There are none.
            return;
        };
        let from = key::redo_key(pgid, *first);
        while self.changes.front().is_some_and(|(v, _)| *v <= to) {
            self.changes.pop_front();
        }
        txn.push(MetaOp::DeleteRange(from, key::after_redo_key(pgid, to)));
    }

    /// Forgets all.
    pub(in crate::pg) fn clear(&mut self, pgid: PgId, txn: &mut Vec<MetaOp>) {
        self.changes.clear();
        let KeyRange { from, to } = key::redo_range(pgid);
        txn.push(MetaOp::DeleteRange(from, to));
    }

    /// Splits off the changes of a child PG. The records of this PG go with `txn`.
    pub(in crate::pg) fn split_off(
        &mut self,
        pgid: PgId,
        is_theirs: impl Fn(EVersion) -> bool,
        txn: &mut Vec<MetaOp>,
    ) -> Self {
        let (theirs, ours) = std::mem::take(&mut self.changes)
            .into_iter()
            .partition(|(v, _)| is_theirs(*v));
        self.changes = ours;
        let theirs = Self { changes: theirs };
        let gone = theirs.changes.iter();
        txn.extend(gone.map(|(version, _)| MetaOp::Delete(key::redo_key(pgid, *version))));
        theirs
    }

    /// The records of all changes.
    pub(in crate::pg) fn records(&self, pgid: PgId) -> impl Iterator<Item = MetaOp> {
        let put = move |(version, change): &(EVersion, Txn)| {
            MetaOp::Put(key::redo_key(pgid, *version), record_of(change))
        };
        self.changes.iter().map(put)
    }

    /// The changes after a version.
    pub(in crate::pg) fn after(&self, version: EVersion) -> impl Iterator<Item = &(EVersion, Txn)> {
        self.changes.iter().filter(move |(v, _)| *v > version)
    }

    /// Whether there are none.
    pub(in crate::pg) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}
