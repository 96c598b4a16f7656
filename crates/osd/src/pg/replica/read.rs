//! Reads that a member other than the primary answers: clients ask for that with `BALANCE_READS`
//! and `LOCALIZE_READS`.
//!
//! The member answers only reads that the primary would answer, too, at that moment:
//!
//! - The member has a share in the primary's lease ([`crate::pg::lease`]), so no later interval has
//!   accepted a write. It asks for one when a client reads, and counts the time from then, while
//!   the primary counts from later, so the share ends first.
//! - Every change of the object in the member's log is durable on all members, as far as the
//!   primary has told.
//! - The primary had the client's map, or a later one, when it gave that share: clients that are on
//!   that map's blocklist can write no more. In Ceph a write of theirs may still come after such a
//!   read.
//!
//! In all other cases the answer is `EAGAIN`, upon which clients ask the primary by themselves. No
//! read waits here.

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_invariant::dropped;
use spirula_maps::{Epoch, HObject, OsdId, snap};
use spirula_proto::osd::OpCode;

use crate::pg::key;
use crate::pg::layout::Layout;
use crate::pg::message::{LeaseShare, PeerBody, PeeringId};
use crate::pg::op::ClientOp;
use crate::pg::op_checks::Verdict;
use crate::pg::op_queue::OpQueue;
use crate::pg::output::Ctx;
use crate::pg::perf::DropReason;
use crate::pg::replica::handler::Following;
use crate::pg::role::Role;
use crate::pg::serving::Serving;
use crate::pg::site::Site;
use crate::pg::store_queue::Pending;
use crate::pg::store_queue::StoreQueue;
use spirula_errno::EAGAIN;

/// The time after which an unanswered question is asked again.
const AGAIN: Micros = Micros::from_secs(1);

/// The key of an object's head, in whose context all ops on it and its clones queue.
fn head_key(o: &HObject) -> Bytes {
    if o.snap == snap::NOSNAP {
        return key::object_key(o);
    }
    key::object_key(&HObject {
        snap: snap::NOSNAP,
        ..o.clone()
    })
}

impl Following<'_> {
    /// Whether this member may answer a read now, as the primary would.
    fn may_answer(&self, op: &ClientOp, usec: Micros) -> bool {
        let share = &self.replica.share;
        let known = self.site.interval.since..=share.epoch;
        known.contains(&op.epoch) && usec < share.until && self.is_stable(&op.object)
    }

    /// Whether all changes of an object, given its head, are durable on all members.
    fn is_stable(&self, object: &HObject) -> bool {
        let share = &self.replica.share;
        let unstable = self
            .copy
            .log
            .iter()
            .rev()
            .take_while(|e| e.version > share.stable);
        let same = |o: &HObject| {
            (o.hash, &o.oid, &o.nspace, &o.key) == (object.hash, &object.oid, &object.nspace, &object.key)
        };
        !unstable.into_iter().any(|e| same(&e.object))
    }

    /// Asks for a share in the lease: in time before the present one ends, or because that is older
    /// than a client's map.
    pub(in crate::pg) fn keep_share(&mut self, epoch: Epoch, cx: &mut Ctx<'_>) {
        let (id, length) = (self.lead.id, self.site.cfg.read_lease);
        let r = &mut *self.replica;
        let asked = !r.share.asked.is_zero() && cx.usec.saturating_sub(r.share.asked) < AGAIN;
        let ends = r.share.until.saturating_sub(cx.usec) < length / crate::pg::lease::RENEW_AT;
        if r.active && !asked && (ends || r.share.epoch < epoch) {
            r.share.asked = cx.usec;
            self.outbox
                .send(self.site.leader(), id, PeerBody::ShareLease(cx.usec), false, cx);
        }
    }

    /// Handles the primary's share, which lasts for `length` after it was asked for.
    pub(in crate::pg) fn lease_shared(
        &mut self,
        from: OsdId,
        id: PeeringId,
        share: LeaseShare,
        cx: &mut Ctx<'_>,
    ) {
        let r = &mut *self.replica;
        if !r.active || !self.site.is_leader(from, id) || r.share.asked != share.stamp {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = self.site.pgid, from = from);
        }
        r.share.asked = Micros::ZERO;
        r.share.until = r.share.until.max(share.stamp + share.length);
        r.share.note_stable(share.stable);
        r.share.epoch = r.share.epoch.max(share.epoch);
    }
}

impl OpQueue {
    /// Drops the context of an object that a write has changed; clients that read it are sent to
    /// the primary.
    pub(in crate::pg) fn overtake_reads(
        &mut self,
        object: &HObject,
        site: &Site,
        store: &mut StoreQueue,
        cx: &mut Ctx<'_>,
    ) {
        // The key is made only where somebody reads at all.
        let key = (self.contexts.len() > 0).then(|| head_key(object));
        let Some(key) = key.filter(|k| self.contexts.find(k).is_some()) else {
            // Nobody reads it.
            return;
        };
        let mut ops: Vec<ClientOp> = self.contexts.forget(&key).into();
        let reads = |p: &Pending| match p {
            Pending::Context(k) => *k == key,
            Pending::Op(r) => r.key == key,
            _ => false,
        };
        ops.extend(store.take_ops(reads));
        site.send_to_primary(ops, cx);
    }

    /// Ends this member's reads, for whatever reason; the clients of those under way are sent to
    /// the primary.
    pub(in crate::pg) fn give_up_reads(&mut self, site: &Site, store: &mut StoreQueue, cx: &mut Ctx<'_>) {
        let mut ops = self.contexts.clear();
        let reads = |p: &Pending| matches!(p, Pending::Context(_) | Pending::Op(_));
        ops.extend(store.take_ops(reads));
        site.send_to_primary(ops, cx);
    }
}

impl Serving<'_> {
    /// Whether this OSD follows a primary, and the client accepts any member's answer.
    pub(in crate::pg) fn is_replica_read(&self, op: &ClientOp) -> bool {
        matches!(self.role, Role::Replica(_)) && op.is_any_members()
    }

    /// Handles a read that any member may answer.
    pub(in crate::pg) fn replica_read(&mut self, mut op: ClientOp, cx: &mut Ctx<'_>) {
        for verdict in [self.site.check(&op), self.site.check_object_op(&op)] {
            match verdict {
                Verdict::Pass => {}
                Verdict::Drop(_) => return self.site.fail(&mut op, EAGAIN, cx),
                Verdict::Fail(e) => return self.site.fail(&mut op, e, cx),
            }
        }
        let mut may_answer = false;
        // A member with a part of each object would have to ask the others, as the primary does.
        if self.store.layout() == Layout::Whole {
            self.follow(|r| {
                r.keep_share(op.epoch, cx);
                may_answer = r.may_answer(&op, cx.usec);
            });
        }
        // Notifications are left to the primary, which knows the watchers' connections.
        let notifies = op.ops.iter().any(|o| o.code == OpCode::NOTIFY);
        if !may_answer || op.is_pg_op() || op.write_ordered() || notifies {
            return self.site.fail(&mut op, EAGAIN, cx);
        }
        let key = key::object_key(&op.object);
        self.queue_op(key, op, cx);
    }
}
