//! Deleting a copy: of a pool that is gone, or one that is complete elsewhere. In bounded steps, in the background.

use bytes::Bytes;
use spirula_denc::decode_all;

use super::info::PgInfo;
use super::message::PeeringId;
use super::object::ObjectInfo;
use super::parts;
use super::txn::{MetaOp, ObjectOp, Txn};
use super::{Commit, Ctx, Output, Page, Pending, Pg, ReadError, Role, key};

/// Objects removed in one step.
const STEP: usize = 64;

impl Pg {
    /// The pool is gone.
    pub(super) fn pool_deleted(&mut self, cx: &mut Ctx<'_>) {
        if !matches!(self.role, Role::Deleting) {
            self.leave_interval(cx);
            self.recheck_held(u32::MAX, cx);
            self.begin_delete(cx);
        }
    }

    /// The primary says that the PG is complete elsewhere.
    pub(super) fn removed(&mut self, from: i32, id: PeeringId, cx: &mut Ctx<'_>) {
        let stray = matches!(self.role, Role::Stray) && from == self.interval.place.primary;
        if stray && id.epoch >= self.interval.since && self.exists {
            self.begin_delete(cx);
        }
    }

    fn begin_delete(&mut self, cx: &mut Ctx<'_>) {
        self.source = None;
        self.target = None;
        if !self.exists {
            self.role = Role::Stray;
            return;
        }
        self.role = Role::Deleting;
        // A crash, or a change of mind, must never take the rest for a copy.
        self.info.incomplete = true;
        let txn = Txn {
            objects: Vec::new(),
            meta: vec![self.info_record()],
        };
        self.submit(txn, Commit::Delete, cx);
    }

    pub(super) fn delete_step(&mut self, cx: &mut Ctx<'_>) {
        if matches!(self.role, Role::Deleting) {
            let (from, to) = self.delete_range();
            let token = self.token(Pending::Delete);
            cx.out.push(Output::List {
                token,
                from,
                to,
                max: STEP,
            });
        }
    }

    /// The objects' range, also when the pool is gone.
    fn delete_range(&self) -> (Bytes, Bytes) {
        key::pg_range(self.pgid, self.info.pg_num.max(1))
    }

    pub(super) fn delete_listed(&mut self, r: Result<Page, ReadError>, cx: &mut Ctx<'_>) {
        let Ok((objects, next)) = r else { return };
        let removed = objects.into_iter().map(|(k, info)| (k, removal(&info)));
        let mut steps = parts::divide(removed.collect(), self.cfg.max_part_logged);
        let last = steps.pop().unwrap_or_default();
        for objects in steps {
            let meta = Vec::new();
            self.submit(Txn { objects, meta }, Commit::Record, cx);
        }
        let mut txn = Txn {
            objects: last,
            meta: Vec::new(),
        };
        if next.is_some() {
            self.submit(txn, Commit::Delete, cx);
            return;
        }
        txn.objects.extend(self.no_stages());
        for (from, to) in [key::log_range(self.pgid), key::dups_range(self.pgid)] {
            txn.meta.push(MetaOp::DeleteRange(from, to));
        }
        txn.meta.push(MetaOp::Delete(key::info_key(self.pgid)));
        self.exists = false;
        // The number stays: without it the range of the PG's keys would be that of the whole pool.
        self.info = PgInfo {
            pg_num: self.info.pg_num,
            ..PgInfo::default()
        };
        self.log = Default::default();
        self.dups = Default::default();
        self.role = Role::Stray;
        self.submit(txn, Commit::Record, cx);
    }
}

/// What removes an object of a copy, with the records of a clone.
pub(super) fn removal(info: &[u8]) -> Vec<ObjectOp> {
    let mut ops = vec![ObjectOp::Remove];
    let snaps = decode_all::<ObjectInfo>(info).unwrap_or_default().snaps;
    if !snaps.is_empty() {
        ops.push(ObjectOp::NoteSnaps {
            add: Vec::new(),
            remove: snaps,
        });
    }
    ops
}
