//! Follows a primary, as a member.

use spirula_denc::{Micros, decode_all};
use spirula_erasure::Step;
use spirula_invariant::{dropped, invariant};
use spirula_maps::{EVersion, OsdId};
use spirula_proto::mon::LogPriority;

use super::Replica;
use crate::pg::bug::{Bug, effect};
use crate::pg::copying::Copying;
use crate::pg::key;
use crate::pg::leadership::Leadership;
use crate::pg::log::LogEntry;
use crate::pg::message::{PeerBody, PeeringId, RepOp};
use crate::pg::op_queue::OpQueue;
use crate::pg::outbox::Outbox;
use crate::pg::output::{Ctx, Output};
use crate::pg::perf::DropReason;
use crate::pg::promise::Promise;
use crate::pg::role::Role;
use crate::pg::serving::Serving;
use crate::pg::site::Site;
use crate::pg::store_queue::{Commit, StoreQueue};
use crate::pg::stored_copy::StoredCopy;
use crate::pg::txn::{MetaOp, Txn, is_storable, log_bytes};

/// Follows a primary.
pub(in crate::pg) struct Following<'a> {
    pub(in crate::pg) site: &'a Site,
    pub(in crate::pg) copy: &'a mut StoredCopy,
    pub(in crate::pg) store: &'a mut StoreQueue,
    pub(in crate::pg) outbox: &'a mut Outbox,
    pub(in crate::pg) lead: &'a mut Leadership,
    pub(in crate::pg) replica: &'a mut Replica,
    pub(in crate::pg) ops: &'a mut OpQueue,
    pub(in crate::pg) copying: &'a mut Copying,
}

impl Following<'_> {
    /// Handles a write of the primary.
    pub(in crate::pg) fn rep_op(&mut self, from: OsdId, id: PeeringId, op: RepOp, cx: &mut Ctx<'_>) {
        let RepOp {
            prev, entry, mut txn, ..
        } = op;
        let from_leader = self.site.is_leader(from, id);
        let r = &mut *self.replica;
        if !r.active || !from_leader {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
        let e = match decode_all::<LogEntry>(&entry) {
            Ok(e) => e,
            Err(error) => return self.cannot_take(from, &error.to_string(), cx),
        };
        if e.version <= self.copy.info.last_update {
            // Sent again.
            let committed = r.committed;
            if e.version <= committed {
                self.outbox
                    .send(from, id, PeerBody::RepCommitted(committed), true, cx);
            }
            // Else its commit will answer.
            return;
        }
        if prev != self.copy.info.last_update {
            // One before was lost; the primary sends both again.
            return dropped!(cx.perf.dropped, DropReason::PeerGap; pg = self.site.pgid, version = e.version);
        }
        if !r.ahead.give(&mut txn, id, &self.site.cfg) {
            // The primary sends all of it again.
            return dropped!(cx.perf.dropped, DropReason::PeerAhead; pg = self.site.pgid, version = e.version);
        }
        if !is_storable(&txn.objects) || log_bytes(&txn.objects) > self.site.cfg.max_push_logged {
            return self.cannot_take(from, "no store takes what it changes", cx);
        }
        invariant!(
            !self.copy.info.incomplete,
            "the copy of a member that takes part to be complete";
            pg = self.site.pgid, epoch = self.site.map.epoch(), version = e.version
        );
        r.share.note_stable(op.stable);
        let v = e.version;
        self.ops.overtake_reads(&e.object, self.site, self.store, cx);
        self.copying.overtake_repair(&txn);
        cx.perf.sub_op_bytes += txn.data_len() as u64;
        let forgets = self.site.cfg.has_bug(Bug::EarlyForget);
        let stable = if forgets { v } else { op.stable };
        let before = self.copy.note_redo(self.site.pgid, v, stable, &mut txn);
        self.store.record(before, cx);
        if self.site.cfg.has_bug(Bug::ForgottenDelta) {
            effect::leave_out(self.store, &mut txn, |s| matches!(s, Step::Patch { .. }));
        }
        if self.site.cfg.has_bug(Bug::KeptCut) {
            effect::leave_out(self.store, &mut txn, |s| matches!(s, Step::Punch { .. }));
        }
        txn.meta.push(MetaOp::Put(key::log_key(self.site.pgid, v), entry));
        self.copy.note_entry(e);
        self.copy.trim_log_to(op.trim_to, self.site, &mut txn);
        self.store.submit(txn, Commit::Write(v), cx);
        if self.site.cfg.has_bug(Bug::EarlyAck) {
            self.outbox.send(from, id, PeerBody::RepCommitted(v), true, cx);
        }
    }

    /// Handles the primary's word that everything up to a version is durable on all members.
    pub(in crate::pg) fn stable(&mut self, version: EVersion, cx: &mut Ctx<'_>) {
        let mut txn = Txn::default();
        self.copy.redo.forget(self.site.pgid, version, &mut txn.meta);
        self.store.record(txn, cx);
    }

    /// Reports in the cluster log why a write of the primary can't be accepted: the write waits for
    /// this member as for one that does not answer, and is sent again.
    fn cannot_take(&self, from: OsdId, why: &str, cx: &mut Ctx<'_>) {
        dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.site.pgid, from = from);
        let (pgid, me) = (self.site.pgid, self.site.whoami);
        cx.out.push(Output::ClusterLog {
            priority: LogPriority::ERROR,
            line: format!("{pgid} osd.{me} can not take a write of osd.{from}, which waits for it: {why}"),
        });
    }

    /// Notes that a write of this version is durable here.
    pub(in crate::pg) fn write_committed(&mut self, v: EVersion, cx: &mut Ctx<'_>) {
        let r = &mut *self.replica;
        if r.active {
            r.committed = r.committed.max(v);
            let primary = self.site.leader();
            self.outbox
                .send(primary, self.lead.id, PeerBody::RepCommitted(v), true, cx);
        }
    }

    /// Handles the primary's request for a lease.
    pub(in crate::pg) fn lease_wanted(
        &mut self,
        from: OsdId,
        id: PeeringId,
        stamp: Micros,
        shared: bool,
        cx: &mut Ctx<'_>,
    ) {
        if !self.site.is_leader(from, id) || !self.replica.active {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
        let until = cx.usec + self.site.cfg.read_lease;
        self.lead.promise(Promise {
            primary: until,
            members: if shared { until } else { Micros::ZERO },
        });
        self.outbox
            .send(from, id, PeerBody::LeaseGranted(stamp), true, cx);
    }
}

impl Serving<'_> {
    /// Calls `f` if this OSD is a replica. Returns whether it is one.
    pub(in crate::pg) fn follow(&mut self, f: impl FnOnce(&mut Following<'_>)) -> bool {
        let Role::Replica(replica) = &mut self.role else {
            return false;
        };
        f(&mut Following {
            site: self.site,
            copy: self.copy,
            store: self.store,
            outbox: self.outbox,
            lead: self.lead,
            replica,
            ops: self.ops,
            copying: self.copying,
        });
        true
    }

    /// Notes that a write of this version is durable here.
    pub(in crate::pg) fn write_committed(&mut self, v: EVersion, cx: &mut Ctx<'_>) {
        if let Role::Active(a) = &mut self.role {
            invariant!(
                v <= self.copy.info.last_update,
                "a write that is durable to be in the copy";
                pg = self.site.pgid, epoch = self.site.map.epoch(), version = v, last_update = self.copy.info.last_update
            );
            a.local = a.local.max(v);
            return self.advance(cx);
        }
        self.follow(|r| r.write_committed(v, cx));
    }

    /// Hands a message to the replica, if this OSD is one.
    pub(in crate::pg) fn as_replica(
        &mut self,
        from: OsdId,
        cx: &mut Ctx<'_>,
        f: impl FnOnce(&mut Following<'_>, &mut Ctx<'_>),
    ) {
        if !self.follow(|r| f(r, cx)) {
            dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
    }
}
