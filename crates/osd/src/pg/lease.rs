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
//!
//! A primary may share its lease with members that would like to answer reads ([`super::replica_read`]). Then what it was promised
//! holds for all of them, and a new primary waits for its end unless each member has answered or is known to be dead.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_invariant::dropped;
use spirula_maps::EVersion;

use super::leadership::Leadership;
use super::message::PeerBody;
use super::op::ClientOp;
use super::outbox::Outbox;
use super::output::Ctx;
use super::perf::DropReason;
use super::promise::Promise;
use super::site::Site;

/// What remains of a lease when it is renewed, as a part of the whole.
pub(super) const RENEW_AT: u64 = 2;
/// What clocks may run apart, as a part of the time.
const DRIFT: u64 = 10;
/// After this time, in microseconds, a question without an answer is asked again.
const AGAIN: u64 = 1_000_000;
/// Leases are asked for so that they may be shared for this many times their length after a member has asked.
const SHARED_FOR: u64 = 4;
/// Ticks that reads may wait before the PG shows as laggy.
const LATE: u32 = 2;

/// A primary's lease, and what waits for it.
#[derive(Debug, Default)]
pub(super) struct Lease {
    /// Until when reads may be answered; all times in microseconds of this OSD's clock.
    until: u64,
    /// Until when it may be shared.
    shared_until: u64,
    /// When the members were asked for the next one; 0 when they were not.
    asked: u64,
    /// Whether that may be shared.
    asked_shared: bool,
    /// Who asked for a share and got none, and when by its clock.
    sharers: BTreeMap<i32, u64>,
    /// Until when the next one is asked for so that it may be shared.
    sharing: u64,
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
    /// Whether reads may be answered now.
    pub(super) fn holds(&self, usec: u64) -> bool {
        usec < self.until
    }

    /// The ops that wait here and not for an object.
    pub(super) fn into_ops(self) -> Vec<ClientOp> {
        self.ops
    }

    /// The ops that wait here and not for an object.
    pub(super) fn ops(&self) -> impl Iterator<Item = &ClientOp> {
        self.ops.iter()
    }

    /// A client's connection ended: the ops that it sent and that wait here are dropped.
    pub(super) fn drop_ops(&mut self, conn: u64) {
        self.ops.retain(|op| op.client.conn != conn);
    }

    fn is_wanted(&self) -> bool {
        !self.keys.is_empty() || !self.ops.is_empty()
    }

    /// The members that have not granted it.
    pub(super) fn missing(&self) -> &BTreeSet<i32> {
        &self.missing
    }

    /// Whether reads have waited for seconds.
    pub(super) fn is_late(&self) -> bool {
        self.late > LATE
    }
}

/// Reads that a lease lets go on.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Objects whose reads waited.
    pub(super) keys: Vec<Bytes>,
    /// Listings that waited.
    pub(super) ops: Vec<ClientOp>,
}

/// The lease of a primary that serves.
pub(super) struct Leasing<'a> {
    pub(super) site: &'a Site,
    pub(super) lead: &'a mut Leadership,
    pub(super) outbox: &'a mut Outbox,
    /// The other members, and up to where each is durable.
    pub(super) peers: &'a [(i32, EVersion)],
    /// Up to where all are.
    pub(super) committed: EVersion,
    pub(super) lease: &'a mut Lease,
}

impl Leasing<'_> {
    /// Asks for the next lease in time, now that somebody reads.
    pub(super) fn keep_lease(&mut self, cx: &mut Ctx<'_>) {
        let left = self.lease.until.saturating_sub(cx.usec);
        let asked = cx.usec.saturating_sub(self.lease.asked) < AGAIN;
        if !self.peers.is_empty() && !asked && left < self.site.cfg.read_lease_us / RENEW_AT {
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

    /// The reads of an object wait for the lease.
    pub(super) fn await_lease(&mut self, key: &Bytes, cx: &mut Ctx<'_>) {
        self.keep_lease(cx);
        if !self.lease.keys.contains(key) {
            self.lease.keys.push(key.clone());
        }
    }

    /// A listing waits for the lease.
    pub(super) fn list_later(&mut self, mut op: ClientOp, cx: &mut Ctx<'_>) {
        self.keep_lease(cx);
        op.reset();
        self.lease.ops.push(op);
    }

    /// A member would like to answer reads.
    pub(super) fn share_wanted(&mut self, from: i32, stamp: u64, cx: &mut Ctx<'_>) {
        let length = self.site.cfg.read_lease_us;
        if self.peers.iter().all(|(o, _)| *o != from) {
            return dropped!(cx.perf.dropped, DropReason::PeerForeign; pg = self.site.pgid, from = from);
        }
        self.lease.sharing = cx.usec + SHARED_FOR * length;
        self.lease.sharers.insert(from, stamp);
        let left = self.lease.shared_until.saturating_sub(cx.usec);
        let asked = cx.usec.saturating_sub(self.lease.asked) < AGAIN;
        if left < length / RENEW_AT && !asked {
            self.ask_lease(cx);
        }
        self.share_lease(cx);
    }

    /// Gives a share of the lease to those who asked, where there is one to share.
    fn share_lease(&mut self, cx: &mut Ctx<'_>) {
        let (id, now, epoch) = (self.lead.id, cx.usec, self.site.map.epoch());
        let until = self.lease.shared_until;
        if until <= now {
            return;
        }
        let (sharers, stable) = (std::mem::take(&mut self.lease.sharers), self.committed);
        // This OSD may be in later intervals that these members have not heard of.
        self.lead.promise(Promise {
            primary: 0,
            members: until,
        });
        for (osd, stamp) in sharers {
            let length = until - now;
            let body = PeerBody::LeaseShared {
                stamp,
                length,
                stable,
                epoch,
            };
            self.outbox.send(osd, id, body, true, cx);
        }
    }

    /// A member has granted the lease that was asked for at `stamp`. Returns what may go on.
    pub(super) fn lease_granted(&mut self, from: i32, stamp: u64, cx: &mut Ctx<'_>) -> Waiting {
        let length = self.site.cfg.read_lease_us;
        let lease = &mut *self.lease;
        if stamp != lease.asked || !lease.missing.remove(&from) {
            dropped!(cx.perf.dropped, DropReason::PeerLate; pg = self.site.pgid, from = from);
            return Waiting::default();
        }
        if !lease.missing.is_empty() {
            return Waiting::default();
        }
        (lease.asked, lease.late) = (0, 0);
        lease.until = stamp + length - length / DRIFT;
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

    /// The question to an OSD or its answer is lost: it counts as not asked.
    pub(super) fn reset(&mut self, osd: i32) {
        if self.lease.missing.contains(&osd) {
            self.lease.asked = 0;
            self.lease.missing.clear();
        }
    }

    /// Asks again where the question or an answer may be lost.
    pub(super) fn tick(&mut self, cx: &mut Ctx<'_>) {
        if self.lease.is_wanted() {
            self.lease.late = self.lease.late.saturating_add(1);
            if self.lease.asked == 0 || cx.usec.saturating_sub(self.lease.asked) >= AGAIN {
                self.ask_lease(cx);
            }
        }
    }
}
