//! The replica's side: answers the primary's questions, applies its writes.

use bytes::Bytes;
use spirula_denc::decode_all;
use spirula_invariant::dropped;
use spirula_maps::EVersion;
use spirula_proto::mon::LogPriority;

use super::bug::Bug;
use super::dups::DupBatch;
use super::info::PgInfo;
use super::log::LogEntry;
use super::message::{LogUpdate, PeerBody, PeeringId};
use super::perf::DropReason;
use super::replica_read::Share;
use super::txn::{MetaOp, Txn, is_storable, log_bytes};
use super::{Commit, Ctx, Output, Pg, Role, key};

/// A member that is not primary.
#[derive(Debug, Default)]
pub(super) struct Replica {
    /// Whether it was activated in this attempt at peering.
    pub(super) active: bool,
    /// Up to where its log is durable.
    committed: EVersion,
    /// Lets it answer reads.
    pub(super) share: Share,
}

impl Pg {
    /// Whether `from` leads the PG, as this OSD knows, in an interval that it did not see end.
    pub(super) fn is_leader(&self, from: i32, id: PeeringId) -> bool {
        from == self.interval.place.primary && id.epoch >= self.interval.since && from != self.whoami
    }

    /// Whether it follows a primary that serves, or is about to.
    pub(super) fn is_active_replica(&self) -> bool {
        matches!(&self.role, Role::Replica(r) if r.active)
    }

    /// A primary asks what is here.
    pub(super) fn queried(&mut self, from: i32, id: PeeringId, cx: &mut Ctx<'_>) {
        if !self.is_leader(from, id) || id < self.id {
            return dropped!(cx.perf.dropped, DropReason::PeerStale; pg = self.pgid, from = from);
        }
        match &mut self.role {
            Role::Replica(r) => *r = Replica::default(),
            Role::Stray => {}
            _ => return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.pgid, from = from),
        }
        self.id = id;
        self.source = None;
        self.target = None;
        self.patient = None;
        self.forget_attempt();
        self.give_up_reads(cx);
        self.query_from = Some(from);
        if self.commits.is_empty() {
            self.answer_query(cx);
        }
    }

    /// Answers once all that the answer claims is durable.
    pub(super) fn answer_query(&mut self, cx: &mut Ctx<'_>) {
        if let Some(primary) = self.query_from.take() {
            let info = self.exists.then(|| self.info.clone());
            let promised = self.promise_left(cx);
            self.send(primary, self.id, PeerBody::Notify { info, promised }, true, cx);
        } else if matches!(self.role, Role::Stray) {
            self.announce(cx);
        }
    }

    /// A primary wants the log.
    pub(super) fn log_wanted(&mut self, from: i32, id: PeeringId, cx: &mut Ctx<'_>) {
        if self.is_leader(from, id) {
            let entries = self.log.iter().cloned().collect();
            let body = PeerBody::Log {
                tail: self.log.tail(),
                head: self.info.last_update,
                entries,
                dups: self.dups.batches().cloned().collect(),
            };
            self.send(from, id, body, true, cx);
        }
    }

    /// A primary asks to take part.
    pub(super) fn activate_member(
        &mut self,
        from: i32,
        id: PeeringId,
        info: PgInfo,
        log: LogUpdate,
        cx: &mut Ctx<'_>,
    ) {
        if !self.is_leader(from, id) || !log.is_sound() {
            return dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.pgid, from = from);
        }
        let committed = info.last_update;
        let Role::Replica(r) = &mut self.role else {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.pgid, from = from);
        };
        *r = Replica {
            active: true,
            committed,
            share: Share::default(),
        };
        self.apply_activation(info, log, id, from, cx);
    }

    /// A write of the primary.
    pub(super) fn rep_op(
        &mut self,
        from: i32,
        id: PeeringId,
        prev: EVersion,
        entry: Bytes,
        (trim_to, stable): (EVersion, EVersion),
        mut txn: Txn,
        cx: &mut Ctx<'_>,
    ) {
        let from_leader = self.is_leader(from, id);
        let Role::Replica(r) = &mut self.role else {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.pgid, from = from);
        };
        if !r.active || !from_leader {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.pgid, from = from);
        }
        let e = match decode_all::<LogEntry>(&entry) {
            Ok(e) => e,
            Err(error) => return self.cannot_take(from, &error.to_string(), cx),
        };
        if e.version <= self.info.last_update {
            // Sent again. If it is not durable yet, its commit will answer.
            let committed = r.committed;
            if e.version <= committed {
                self.send(from, id, PeerBody::RepCommitted(committed), true, cx);
            }
            return;
        }
        if prev != self.info.last_update {
            // One before was lost; the primary sends both again.
            return dropped!(cx.perf.dropped, DropReason::PeerGap; pg = self.pgid, version = e.version);
        }
        if !is_storable(&txn.objects) || log_bytes(&txn.objects) > self.cfg.max_push_logged {
            return self.cannot_take(from, "no store takes what it changes", cx);
        }
        r.share.note_stable(stable);
        let v = e.version;
        self.overtake_reads(&e.object, cx);
        self.overtake_repair(&txn);
        cx.perf.sub_op_bytes += txn.data_len() as u64;
        txn.meta.push(MetaOp::Put(key::log_key(self.pgid, v), entry));
        self.note_entry(e);
        self.trim_log_to(trim_to, &mut txn);
        self.submit(txn, Commit::Write(v), cx);
        if self.cfg.has_bug(Bug::EarlyAck) {
            self.send(from, id, PeerBody::RepCommitted(v), true, cx);
        }
    }

    /// A write of the primary can't be taken. It waits for this member as for one that does not answer, and is sent again; so it is
    /// said what it waits for.
    fn cannot_take(&self, from: i32, why: &str, cx: &mut Ctx<'_>) {
        dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.pgid, from = from);
        let (pgid, me) = (self.pgid, self.whoami);
        cx.out.push(Output::ClusterLog {
            priority: LogPriority::ERROR,
            line: format!("{pgid} osd.{me} can not take a write of osd.{from}, which waits for it: {why}"),
        });
    }

    /// Appends an entry and keeps the info in step.
    pub(super) fn note_entry(&mut self, e: LogEntry) {
        self.info.last_update = e.version;
        self.info.last_user_version = self.info.last_user_version.max(e.user_version);
        self.info.usage = e.usage;
        self.log.append(e);
    }

    /// Forgets log entries as the primary does, but not how their requests were answered.
    pub(super) fn trim_log_to(&mut self, to: EVersion, txn: &mut Txn) {
        let before = self.log.tail();
        let gone = self.log.trim_to(to);
        if gone.is_empty() {
            return;
        }
        let tail = self.log.tail();
        // Ranges that adjoin are one to the store.
        let (from, to) = (
            key::after_log_key(self.pgid, before),
            key::after_log_key(self.pgid, tail),
        );
        txn.meta.push(MetaOp::DeleteRange(from, to));
        self.info.log_tail = tail;
        if let Some(batch) = DupBatch::of(gone) {
            let key = key::dups_key(self.pgid, batch.name());
            txn.meta.push(MetaOp::Put(key, batch.to_bytes()));
            self.dups.push(batch);
        }
        let max = self
            .cfg
            .dups_tracked
            .min(self.shares.dups)
            .saturating_sub(self.log.len());
        for name in self.dups.trim(max, self.cfg.max_log_bytes) {
            txn.meta.push(MetaOp::Delete(key::dups_key(self.pgid, name)));
        }
    }

    pub(super) fn write_committed(&mut self, v: EVersion, cx: &mut Ctx<'_>) {
        match &mut self.role {
            Role::Active(a) => {
                a.local = a.local.max(v);
                self.advance(cx);
            }
            Role::Replica(r) if r.active => {
                r.committed = r.committed.max(v);
                let primary = self.interval.place.primary;
                self.send(primary, self.id, PeerBody::RepCommitted(v), true, cx);
            }
            _ => {}
        }
    }
}
