//! The copy of the PG in this OSD's store, as it is known here: its info, its log, and the requests
//! remembered besides.
//!
//! The log is kept here: entries are appended, trimmed, and compared with what others lack. Its
//! changes of the store are added to a transaction of the caller.

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_invariant::invariant;
use spirula_maps::{EVersion, PgId, snap};

use super::bug::Bug;
use super::coded::fold::Fragments;
use super::coded::redo::Redo;
use super::compare::compare;
use super::dirty::Dirty;
use super::dups::{DupBatch, Dups};
use super::info::PgInfo;
use super::key::{self, KeyRange};
use super::layout::Layout;
use super::log::{self, LogEntry, LogOp, PgLog};
use super::message::LogUpdate;
use super::op::ClientOp;
use super::output::Ctx;
use super::push::SyncPlan;
use super::site::Site;
use super::staged::Staged;
use super::store_queue::{Commit, StoreQueue};
use super::txn::{self, MetaOp, ObjectOp, Txn};

/// The ranges of a copy's records besides its info.
const RECORDS: [fn(PgId) -> KeyRange; 4] = [
    key::log_range,
    key::dups_range,
    key::redo_range,
    key::findings_range,
];

/// This OSD's copy of the PG.
#[derive(Debug, Default)]
pub(super) struct StoredCopy {
    /// Whether there is a copy here: its info is stored.
    pub(super) exists: bool,
    /// The copy's info.
    pub(super) info: PgInfo,
    /// The copy's newest changes.
    pub(super) log: PgLog,
    /// Requests that are no longer in the log.
    pub(super) dups: Dups,
    /// Changes that may not be durable on all members, where members' objects differ.
    pub(super) redo: Redo,
    /// The staging objects, where members' objects differ.
    pub(super) staged: Staged,
}

impl StoredCopy {
    /// A copy as the store remembers it. `entries` ascend.
    pub(super) fn load(mut info: PgInfo, entries: Vec<LogEntry>) -> Self {
        if let Some(last) = entries.last().filter(|e| e.version > info.last_update) {
            // The info is written when the PG is activated; since then the log tells.
            info.last_update = last.version;
            info.usage = last.usage;
        }
        // Trimmed entries are removed without the info being written.
        if let Some(first) = entries.first().filter(|e| e.version > info.log_tail) {
            info.log_tail = info
                .log_tail
                .max(EVersion::new(first.version.epoch, first.version.version - 1));
        }
        let newest = entries.iter().map(|e| e.user_version).max().unwrap_or(0);
        info.last_user_version = info.last_user_version.max(newest);
        let log = PgLog::from_entries(info.log_tail, info.last_update, entries);
        invariant!(
            log.head() == info.last_update && log.tail() <= log.head(),
            "the log to end where the info that is stored with it says";
            tail = log.tail(), head = log.head(), last_update = info.last_update
        );
        Self {
            exists: true,
            log,
            info,
            dups: Dups::default(),
            redo: Redo::default(),
            staged: Staged::default(),
        }
    }

    /// The record of the info as it is now.
    pub(super) fn info_record(&self, pgid: PgId) -> MetaOp {
        MetaOp::Put(
            key::info_key(pgid),
            spirula_denc::encode_to_vec(&self.info).into(),
        )
    }

    /// The info that other OSDs are told, if there is a copy.
    pub(super) fn account(&self) -> Option<PgInfo> {
        self.exists.then(|| self.info.clone())
    }

    /// Marks the copy as a mixture of versions from now on, durably with this transaction.
    pub(super) fn mark_incomplete(&mut self, pgid: PgId, txn: &mut Txn) {
        if !self.info.incomplete || !self.exists {
            self.info.incomplete = true;
            self.exists = true;
            txn.meta.push(self.info_record(pgid));
        }
    }

    /// Appends an entry and keeps the info in step.
    pub(super) fn note_entry(&mut self, e: LogEntry) {
        invariant!(
            e.version > self.info.last_update,
            "a change to be newer than the copy";
            version = e.version, last_update = self.info.last_update, object = e.object
        );
        self.info.last_update = e.version;
        self.info.last_user_version = self.info.last_user_version.max(e.user_version);
        self.info.usage = e.usage;
        self.log.append(e);
        invariant!(
            self.log.head() == self.info.last_update,
            "the log to end with the copy's last change";
            head = self.log.head(), last_update = self.info.last_update
        );
    }

    /// Notes the steps of a change, if other members may need them, and what it stages or takes.
    /// Forgets the steps up to `stable`, which are durable everywhere.
    ///
    /// Returns what is to be stored before the change.
    pub(super) fn note_redo(
        &mut self,
        pgid: PgId,
        version: EVersion,
        stable: EVersion,
        txn: &mut Txn,
    ) -> Txn {
        if self.info.part.layout == Layout::Whole {
            // Any other member can give its objects.
            return Txn::default();
        }
        self.staged.note(pgid, &txn.objects);
        let mut meta = std::mem::take(&mut txn.meta);
        // What is staged is only taken once it is durable everywhere: nobody needs it again.
        let is_staged = |(key, _): &(Bytes, Vec<ObjectOp>)| key::is_stage_key(key);
        let redone = txn.objects.iter().filter(|o| !is_staged(o)).cloned();
        let before = self.redo.note(pgid, version, redone.collect(), &mut meta);
        self.redo.forget(pgid, stable, &mut meta);
        txn.meta = meta;
        Txn {
            objects: Vec::new(),
            meta: before.into_iter().collect(),
        }
    }

    /// Trims log entries as the primary does, but keeps the answers of their requests.
    pub(super) fn trim_log_to(&mut self, to: EVersion, site: &Site, txn: &mut Txn) {
        let (pgid, before) = (site.pgid, self.log.tail());
        let gone = self.log.trim_to(to);
        if gone.is_empty() {
            // The log begins after that already.
            return;
        }
        let tail = self.log.tail();
        invariant!(
            before < tail && tail <= self.info.last_update,
            "what leaves the log to be its oldest entries";
            pg = pgid, before = before, tail = tail, last_update = self.info.last_update
        );
        // Ranges that adjoin are one to the store.
        let (from, to) = (key::after_log_key(pgid, before), key::after_log_key(pgid, tail));
        txn.meta.push(MetaOp::DeleteRange(from, to));
        self.info.log_tail = tail;
        if let Some(batch) = DupBatch::of(gone) {
            let key = key::dups_key(pgid, batch.name());
            txn.meta.push(MetaOp::Put(key, batch.to_bytes()));
            self.dups.push(batch);
        }
        let (cfg, shares) = (&site.cfg, &site.shares);
        let max = cfg.dups_tracked.min(shares.dups).saturating_sub(self.log.len());
        for name in self.dups.trim(max, cfg.max_log_bytes) {
            txn.meta.push(MetaOp::Delete(key::dups_key(pgid, name)));
        }
    }

    /// Adopts info and log, as a member that was told so; the objects are as they say already.
    fn take_over(&mut self, pgid: PgId, info: PgInfo, update: LogUpdate, txn: &mut Txn) {
        if update.replace {
            for KeyRange { from, to } in [key::log_range(pgid), key::dups_range(pgid)] {
                txn.meta.push(MetaOp::DeleteRange(from, to));
            }
            for batch in &update.dups {
                let key = key::dups_key(pgid, batch.name());
                txn.meta.push(MetaOp::Put(key, batch.to_bytes()));
            }
            self.dups = Dups::from_batches(update.dups);
            self.log = PgLog::empty_at(info.log_tail);
        } else {
            for v in self.log.rewind_to(update.keep_to) {
                txn.meta.push(MetaOp::Delete(key::log_key(pgid, v)));
            }
        }
        for e in update.entries {
            txn.meta
                .push(MetaOp::Put(key::log_key(pgid, e.version), e.to_bytes()));
            self.log.append(e);
        }
        // All members have all changes by now.
        if info.part.layout != Layout::Whole {
            self.redo.clear(pgid, &mut txn.meta);
        }
        self.log.set_head(info.last_update);
        let (had_copy, has_list) = (self.exists, self.info.scrubs.has_list_of(&info.scrubs));
        self.info = PgInfo {
            log_tail: self.log.tail(),
            ..info
        };
        if had_copy && !has_list {
            let KeyRange { from, to } = key::findings_range(pgid);
            txn.meta.push(MetaOp::DeleteRange(from, to));
        }
        if !has_list && self.info.scrubs.has_findings() {
            // The primary tells them, if it has them itself.
            self.info.scrubs.forget_list();
        }
        self.exists = true;
        txn.meta.push(self.info_record(pgid));
    }

    /// Adopts info and log durably, and with them removes any staging objects.
    pub(super) fn activate(
        &mut self,
        site: &Site,
        (info, update): (PgInfo, LogUpdate),
        what: Commit,
        store: &mut StoreQueue,
        cx: &mut Ctx<'_>,
    ) {
        let mut txn = Txn {
            objects: self.staged.removal(site.pgid, info.part.layout),
            meta: Vec::new(),
        };
        self.staged = Staged::default();
        self.take_over(site.pgid, info, update, &mut txn);
        invariant!(
            self.log.head() == self.info.last_update && self.log.tail() <= self.log.head(),
            "the log of a copy that is activated to end with its last change";
            pg = site.pgid, epoch = site.map.epoch(), tail = self.log.tail(), head = self.log.head(), last_update = self.info.last_update
        );
        store.fragments = Fragments::of(self.info.part);
        store.submit(txn, what, cx);
    }

    /// Stores the info as it is now.
    pub(super) fn save_info(&self, pgid: PgId, store: &mut StoreQueue, cx: &mut Ctx<'_>) {
        // The stored info makes it a copy.
        invariant!(self.exists, "the info of a copy to be stored where there is one"; pg = pgid);
        let txn = Txn {
            objects: Vec::new(),
            meta: vec![self.info_record(pgid)],
        };
        store.record(txn, cx);
    }

    /// Removes the copy: its records go with this transaction.
    pub(super) fn remove(&mut self, pgid: PgId, txn: &mut Txn) {
        invariant!(self.info.incomplete, "a copy that is removed to have been marked incomplete first"; pg = pgid);
        for KeyRange { from, to } in RECORDS.map(|range| range(pgid)) {
            txn.meta.push(MetaOp::DeleteRange(from, to));
        }
        txn.meta.push(MetaOp::Delete(key::info_key(pgid)));
        // The number stays: without it the range of the PG's keys would be that of the whole pool.
        *self = Self {
            info: PgInfo {
                pg_num: self.info.pg_num,
                ..PgInfo::default()
            },
            ..Self::default()
        };
    }

    /// Splits a child off with its part of the log, and all remembered requests, as nothing tells
    /// which of them belong to which PG. The records of this copy that are the child's now go with
    /// `meta`.
    pub(super) fn split_off(&mut self, pgid: PgId, child: PgId, pg_num: u32, meta: &mut Vec<MetaOp>) -> Self {
        invariant!(
            pg_num >= self.info.pg_num,
            "a split to make more PGs of one";
            pg = pgid, before = self.info.pg_num, pg_num = pg_num
        );
        self.info.usage_invalid = true;
        self.info.pg_num = pg_num;
        self.info.scrubs.forget_list();
        if self.exists {
            let KeyRange { from, to } = key::findings_range(pgid);
            meta.push(MetaOp::DeleteRange(from, to));
        }
        let log = self.log.split_off(|o| child.contains_hash(pg_num, o.hash));
        let redo = self.redo.split_off(pgid, |v| log.contains(v), meta);
        let gone = log.iter().filter(|_| self.exists);
        meta.extend(gone.map(|e| MetaOp::Delete(key::log_key(pgid, e.version))));
        Self {
            exists: self.exists,
            info: self.info.clone(),
            log,
            dups: self.dups.clone(),
            redo,
            staged: self.staged.split_off(child, pg_num),
        }
    }

    /// The transactions that store all records of a copy that was split off but its info, of about
    /// `max` bytes each. They count with the info: what an earlier attempt at the split has left,
    /// which a crash ended, goes first.
    pub(super) fn records(&self, pgid: PgId, max: usize) -> Vec<Txn> {
        if !self.exists {
            return Vec::new();
        }
        let gone = RECORDS.map(|range| range(pgid));
        let gone = gone.map(|KeyRange { from, to }| MetaOp::DeleteRange(from, to));
        let entries = self.log.iter();
        let entries = entries.map(|e| MetaOp::Put(key::log_key(pgid, e.version), e.to_bytes()));
        let batches = self.dups.batches();
        let batches = batches.map(|b| MetaOp::Put(key::dups_key(pgid, b.name()), b.to_bytes()));
        let all = gone.into_iter().chain(entries).chain(batches);
        txn::divide_records(all.chain(self.redo.records(pgid)), max)
    }

    /// Whether a request was executed before, or failed.
    pub(super) fn is_dup(&self, op: &ClientOp, site: &Site) -> bool {
        let known = self.log.find(&op.reqid).is_some() || self.dups.find(&op.reqid).is_some();
        known && !site.cfg.has_bug(Bug::TwiceDone)
    }

    /// The objects that a copy with this log lacks of this one. `exact`: that copy's objects are as
    /// its log says.
    pub(super) fn plan_for(&self, theirs: &PgLog, exact: bool, site: &Site) -> SyncPlan {
        let lacking = compare(&self.log, theirs, exact, &site.cfg);
        lacking.map_or(SyncPlan::Backfill, |(plan, _)| plan)
    }

    /// The objects that were written after `base`; `None` if the log does not reach so far back.
    pub(super) fn written_since(&self, base: EVersion) -> Option<Vec<Bytes>> {
        let mut keys = BTreeSet::new();
        log::objects(self.log.after(base), &mut keys);
        (self.log.tail() <= base).then(|| keys.into_iter().collect())
    }

    /// The parts of an object that changed after `base`, if it existed then and the log tells; for
    /// a clone it does not.
    pub(super) fn changed_since(&self, base: EVersion, key: &Bytes) -> Option<Dirty> {
        let object = key::parse_object_key(key).filter(|o| o.snap == snap::NOSNAP)?;
        let is_change = |e: &&LogEntry| e.op != LogOp::Error && e.object == object;
        let mut changes = self.log.after(base).filter(is_change).peekable();
        let was_there = changes.peek()?.prior_version != EVersion::ZERO;
        let changes: Vec<&LogEntry> = changes.collect();
        let is_whole = |e: &&LogEntry| e.op == LogOp::Delete || e.dirty.is_whole();
        if !was_there || self.log.tail() > base || changes.iter().any(is_whole) {
            return None;
        }
        Some(Dirty::sum(changes.iter().map(|e| &e.dirty)))
    }

    /// The approximate number of bytes of these objects that changed after `base`.
    pub(super) fn bytes_changed_since(&self, base: EVersion, keys: &[Bytes]) -> u64 {
        let usage = self.info.usage;
        let mean = usage.bytes.max(0).unsigned_abs() / usage.objects.max(1).unsigned_abs();
        let bytes = |key| {
            let changed = self.changed_since(base, key)?;
            Some(
                changed
                    .within(u64::MAX)
                    .map(|r| r.end - r.start)
                    .fold(0, u64::saturating_add)
                    .min(mean),
            )
        };
        keys.iter()
            .map(|k| bytes(k).unwrap_or(mean))
            .fold(0, u64::saturating_add)
    }

    /// Whether an object was written after `base`.
    pub(super) fn is_written_since(&self, base: EVersion, key: &Bytes) -> bool {
        let mut keys = BTreeSet::new();
        log::objects(self.log.after(base), &mut keys);
        self.log.tail() > base || keys.contains(key)
    }
}
