//! Keeps a lease, as the primary that serves.

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_invariant::dropped;
use spirula_maps::{EVersion, OsdId};

use super::{Lease, RENEW_AT, Waiting};
use crate::pg::leadership::Leadership;
use crate::pg::message::{LeaseShare, PeerBody};
use crate::pg::op::ClientOp;
use crate::pg::outbox::Outbox;
use crate::pg::output::Ctx;
use crate::pg::perf::DropReason;
use crate::pg::promise::Promise;
use crate::pg::role::Role;
use crate::pg::serving::Serving;
use crate::pg::site::Site;

/// How far clocks may run apart, as a part of the time.
const DRIFT: u64 = 10;
/// The time after which an unanswered question is asked again.
const AGAIN: Micros = Micros::from_secs(1);
/// After a member has asked for a share, the primary asks for leases that it may share for this
/// many times their length.
const SHARED_FOR: u64 = 4;

/// The lease of a primary that serves.
pub(in crate::pg) struct Leasing<'a> {
    pub(in crate::pg) site: &'a Site,
    pub(in crate::pg) lead: &'a mut Leadership,
    pub(in crate::pg) outbox: &'a mut Outbox,
    /// The other members, and the version up to which each is durable.
    pub(in crate::pg) peers: &'a [(OsdId, EVersion)],
    /// The version up to which all members are durable.
    pub(in crate::pg) committed: EVersion,
    pub(in crate::pg) lease: &'a mut Lease,
}

impl Leasing<'_> {
    /// Asks for the next lease in time, as a client reads.
    pub(in crate::pg) fn keep_lease(&mut self, cx: &mut Ctx<'_>) {
        let left = self.lease.until.saturating_sub(cx.usec);
        let asked = cx.usec.saturating_sub(self.lease.asked) < AGAIN;
        if !self.peers.is_empty() && !asked && left < self.site.cfg.read_lease / RENEW_AT {
            self.ask_lease(cx);
        }
    }

    fn ask_lease(&mut self, cx: &mut Ctx<'_>) {
        let id = self.lead.id;
        self.lease.asked = cx.usec;
        let shared = cx.usec < self.lease.sharing;
        self.lease.asked_shared = shared;
        self.lease.missing = self.peers.iter().map(|(o, _)| *o).collect();
        for osd in self.lease.missing.clone() {
            let stamp = cx.usec;
            self.outbox
                .send(osd, id, PeerBody::Lease { stamp, shared }, false, cx);
        }
    }

    /// Makes the reads of an object wait for the lease.
    pub(in crate::pg) fn await_lease(&mut self, key: &Bytes, cx: &mut Ctx<'_>) {
        self.keep_lease(cx);
        if !self.lease.keys.contains(key) {
            self.lease.keys.push(key.clone());
        }
    }

    /// Makes a listing wait for the lease.
    pub(in crate::pg) fn list_later(&mut self, mut op: ClientOp, cx: &mut Ctx<'_>) {
        self.keep_lease(cx);
        op.reset();
        self.lease.ops.push(op);
    }

    /// Handles a member's request to answer reads.
    pub(in crate::pg) fn share_wanted(&mut self, from: OsdId, stamp: Micros, cx: &mut Ctx<'_>) {
        let length = self.site.cfg.read_lease;
        if self.peers.iter().all(|(o, _)| *o != from) {
            return dropped!(cx.perf.dropped, DropReason::PeerForeign; pg = self.site.pgid, from = from);
        }
        self.lease.sharing = cx.usec + length * SHARED_FOR;
        self.lease.sharers.insert(from, stamp);
        let left = self.lease.shared_until.saturating_sub(cx.usec);
        let asked = cx.usec.saturating_sub(self.lease.asked) < AGAIN;
        if left < length / RENEW_AT && !asked {
            self.ask_lease(cx);
        }
        self.share_lease(cx);
    }

    /// Shares the lease with the members that asked, if it may be shared.
    fn share_lease(&mut self, cx: &mut Ctx<'_>) {
        let (id, now, epoch) = (self.lead.id, cx.usec, self.site.map.epoch());
        let until = self.lease.shared_until;
        if until <= now {
            // They are told when the next lease is granted.
            return;
        }
        let (sharers, stable) = (std::mem::take(&mut self.lease.sharers), self.committed);
        // This OSD may be in later intervals that these members have not heard of.
        self.lead.promise(Promise {
            primary: Micros::ZERO,
            members: until,
        });
        for (osd, stamp) in sharers {
            let body = PeerBody::LeaseShared(LeaseShare {
                stamp,
                length: until.saturating_sub(now),
                stable,
                epoch,
            });
            self.outbox.send(osd, id, body, true, cx);
        }
    }

    /// Notes that a member has granted the lease that was asked for at `stamp`. Returns the reads
    /// that may go on.
    pub(in crate::pg) fn lease_granted(&mut self, from: OsdId, stamp: Micros, cx: &mut Ctx<'_>) -> Waiting {
        let length = self.site.cfg.read_lease;
        let lease = &mut *self.lease;
        if stamp != lease.asked || !lease.missing.remove(&from) {
            dropped!(cx.perf.dropped, DropReason::PeerLate; pg = self.site.pgid, from = from);
            return Waiting::default();
        }
        if !lease.missing.is_empty() {
            return Waiting::default();
        }
        (lease.asked, lease.late) = (Micros::ZERO, 0);
        lease.until = stamp + length.saturating_sub(length / DRIFT);
        if lease.until <= cx.usec {
            return Waiting::default();
        }
        if lease.asked_shared {
            lease.shared_until = lease.until;
            self.share_lease(cx);
        } else if !lease.sharers.is_empty() {
            self.ask_lease(cx);
        }
        let lease = &mut *self.lease;
        Waiting {
            keys: std::mem::take(&mut lease.keys),
            ops: std::mem::take(&mut lease.ops),
        }
    }

    /// Treats an OSD as not asked, as the question or its answer is lost.
    pub(in crate::pg) fn reset(&mut self, osd: OsdId) {
        if self.lease.missing.contains(&osd) {
            self.lease.asked = Micros::ZERO;
            self.lease.missing.clear();
        }
    }

    /// Asks again if the question or an answer may be lost.
    pub(in crate::pg) fn tick(&mut self, cx: &mut Ctx<'_>) {
        if self.lease.is_wanted() {
            self.lease.late = self.lease.late.saturating_add(1);
            if self.lease.asked.is_zero() || cx.usec.saturating_sub(self.lease.asked) >= AGAIN {
                self.ask_lease(cx);
            }
        }
    }
}

impl Serving<'_> {
    /// The lease of a primary that serves.
    pub(in crate::pg) fn leasing(&mut self) -> Option<Leasing<'_>> {
        let Role::Active(a) = &mut self.role else {
            return None;
        };
        Some(Leasing {
            site: self.site,
            lead: self.lead,
            outbox: self.outbox,
            peers: &a.peers,
            committed: a.committed,
            lease: &mut a.lease,
        })
    }

    /// Goes on with the lease, if this OSD serves; `None` if it does not.
    pub(in crate::pg) fn lease<T>(&mut self, f: impl FnOnce(&mut Leasing<'_>) -> T) -> Option<T> {
        self.leasing().map(|mut l| f(&mut l))
    }

    /// Handles that a member has granted the lease: waiting reads go on.
    pub(in crate::pg) fn lease_granted(&mut self, from: OsdId, stamp: Micros, cx: &mut Ctx<'_>) {
        let Some(waiting) = self.lease(|l| l.lease_granted(from, stamp, cx)) else {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        };
        for key in waiting.keys {
            self.pump(&key, cx);
        }
        for op in waiting.ops {
            self.handle_op(op, cx);
        }
    }

    /// Makes a listing wait for the lease.
    pub(in crate::pg) fn list_later(&mut self, op: ClientOp, cx: &mut Ctx<'_>) {
        let Some(mut leasing) = self.leasing() else {
            // Only a primary lists, and has no lease only while it does not serve.
            return self.site.send_to_primary([op], cx);
        };
        leasing.list_later(op, cx);
    }

    /// Makes the reads of an object wait for the lease; a member that has no share any more leaves
    /// them to the primary.
    pub(in crate::pg) fn await_lease(&mut self, key: &Bytes, cx: &mut Ctx<'_>) {
        if self.lease(|l| l.await_lease(key, cx)).is_none() {
            let ops = self.ops.contexts.forget(key);
            self.site.send_to_primary(ops, cx);
        }
    }

    /// Handles a member's request to answer reads.
    pub(in crate::pg) fn share_wanted(&mut self, from: OsdId, stamp: Micros, cx: &mut Ctx<'_>) {
        if self.lease(|l| l.share_wanted(from, stamp, cx)).is_none() {
            dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
    }
}
