//! Leases: what lets a primary answer reads without asking anybody, and why a deposed one stops in time.
//!
//! A write of a primary that others no longer follow is never acknowledged, as a member is missing. A read asks nobody, so a
//! primary that is cut off would go on to answer with what it has. So it answers reads only while it holds a lease, which
//! all other members grant: each of them promises that for some time it takes part in no later interval that serves
//! without its primary knowing of the promise. The primary counts the time from when it asked, a member from when it
//! granted, so the lease ends first. It is asked for only when somebody reads, and again before it ends.
//!
//! A new primary hears of the promises with the members' infos, and waits for their end before it activates the PG, unless
//! whoever led the intervals before has answered, and so left them, or is known to be dead. A member that was started
//! anew does not know what it promised, and counts as if it had done so just then.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::bug::Bug;
use super::message::{PeerBody, PeeringId};
use super::op::ClientOp;
use super::{Ctx, Pg, Role};

/// What remains of a lease when it is renewed, as a part of the whole.
const RENEW_AT: u64 = 2;
/// What clocks may run apart, as a part of the time.
const DRIFT: u64 = 10;
/// After this time, in microseconds, a question without an answer is asked again.
const AGAIN: u64 = 1_000_000;
/// Ticks that reads may wait before the PG shows as laggy.
const LATE: u32 = 2;

/// A primary's lease, and what waits for it.
#[derive(Debug, Default)]
pub(super) struct Lease {
    /// Until when reads may be answered; all times in microseconds of this OSD's clock.
    until: u64,
    /// When the members were asked for the next one; 0 when they were not.
    asked: u64,
    /// Who has not granted it.
    missing: BTreeSet<i32>,
    /// Objects whose reads wait.
    keys: Vec<Bytes>,
    /// Listings that wait.
    ops: Vec<ClientOp>,
    /// Looks at the clock since something began to wait.
    late: u32,
}

impl Lease {
    /// The ops that wait here and not for an object.
    pub(super) fn into_ops(self) -> Vec<ClientOp> {
        self.ops
    }

    /// The ops that wait here and not for an object.
    pub(super) fn ops(&self) -> impl Iterator<Item = &ClientOp> {
        self.ops.iter()
    }

    fn is_wanted(&self) -> bool {
        !self.keys.is_empty() || !self.ops.is_empty()
    }

    /// Whether reads have waited for seconds.
    pub(super) fn is_late(&self) -> bool {
        self.late > LATE
    }
}

impl Pg {
    /// Whether reads may be answered now.
    pub(super) fn has_lease(&self, usec: u64) -> bool {
        match &self.role {
            Role::Active(a) => a.peers.is_empty() || usec < a.lease.until || self.cfg.has_bug(Bug::NoLease),
            _ => false,
        }
    }

    /// Asks for the next lease in time, now that somebody reads.
    pub(super) fn keep_lease(&mut self, cx: &mut Ctx<'_>) {
        let Role::Active(a) = &self.role else { return };
        let left = a.lease.until.saturating_sub(cx.usec);
        let asked = cx.usec.saturating_sub(a.lease.asked) < AGAIN;
        if !a.peers.is_empty() && !asked && left < self.cfg.read_lease_us / RENEW_AT {
            self.ask_lease(cx);
        }
    }

    fn ask_lease(&mut self, cx: &mut Ctx<'_>) {
        let id = self.id;
        let Role::Active(a) = &mut self.role else { return };
        a.lease.asked = cx.usec;
        a.lease.missing = a.peers.iter().map(|(o, _)| *o).collect();
        for osd in a.lease.missing.clone() {
            self.send(osd, id, PeerBody::Lease(cx.usec), false, cx);
        }
    }

    /// The reads of an object wait for the lease.
    pub(super) fn await_lease(&mut self, key: &Bytes, cx: &mut Ctx<'_>) {
        self.keep_lease(cx);
        if let Role::Active(a) = &mut self.role
            && !a.lease.keys.contains(key)
        {
            a.lease.keys.push(key.clone());
        }
    }

    /// A listing waits for the lease.
    pub(super) fn list_later(&mut self, mut op: ClientOp, cx: &mut Ctx<'_>) {
        self.keep_lease(cx);
        op.reset();
        if let Role::Active(a) = &mut self.role {
            a.lease.ops.push(op);
        }
    }

    /// The primary asks for a lease.
    pub(super) fn lease_wanted(&mut self, from: i32, id: PeeringId, stamp: u64, cx: &mut Ctx<'_>) {
        if id == self.id && self.is_leader(from, id) && self.is_active_replica() {
            self.promised = Some(self.promised.unwrap_or(0).max(cx.usec + self.cfg.read_lease_us));
            self.send(from, id, PeerBody::LeaseGranted(stamp), true, cx);
        }
    }

    /// A member has granted the lease that was asked for at `stamp`.
    pub(super) fn lease_granted(&mut self, from: i32, id: PeeringId, stamp: u64, cx: &mut Ctx<'_>) {
        let length = self.cfg.read_lease_us;
        let Role::Active(a) = &mut self.role else { return };
        let lease = &mut a.lease;
        if id != self.id || stamp != lease.asked || !lease.missing.remove(&from) || !lease.missing.is_empty()
        {
            return;
        }
        (lease.asked, lease.late) = (0, 0);
        lease.until = stamp + length - length / DRIFT;
        if lease.until <= cx.usec {
            return;
        }
        let (keys, ops) = (std::mem::take(&mut lease.keys), std::mem::take(&mut lease.ops));
        for key in keys {
            self.pump(&key, cx);
        }
        for op in ops {
            self.handle_op(op, cx);
        }
    }

    /// The question to an OSD or its answer is lost: it counts as not asked.
    pub(super) fn lease_reset(&mut self, osd: i32) {
        if let Role::Active(a) = &mut self.role
            && a.lease.missing.contains(&osd)
        {
            a.lease.asked = 0;
            a.lease.missing.clear();
        }
    }

    /// Asks again where the question or an answer may be lost.
    pub(super) fn lease_tick(&mut self, cx: &mut Ctx<'_>) {
        if let Role::Active(a) = &mut self.role
            && a.lease.is_wanted()
        {
            a.lease.late = a.lease.late.saturating_add(1);
        }
        if let Role::Active(a) = &self.role
            && a.lease.is_wanted()
            && (a.lease.asked == 0 || cx.usec.saturating_sub(a.lease.asked) >= AGAIN)
        {
            self.ask_lease(cx);
        }
    }

    /// For how long a promise of this OSD holds, in microseconds.
    pub(super) fn promise_left(&self, cx: &Ctx<'_>) -> u64 {
        self.promised.unwrap_or(0).saturating_sub(cx.usec)
    }
}
