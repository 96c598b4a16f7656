//! Leases: they let a primary answer reads without asking anybody, and make a deposed primary stop
//! in time.
//!
//! A write of a primary that others no longer follow is never acknowledged, as a member is missing.
//! A read needs no other member, so a primary that is cut off would go on to answer with its old
//! data. So it answers reads only while it holds a lease, which all other members grant: each of
//! them promises that for some time it takes part in no later interval that serves without its
//! primary knowing of the promise. The primary counts the time from when it asked, a member from
//! when it granted, so the lease ends first. The primary asks for it only when a client reads, and
//! again before it ends.
//!
//! A new primary hears of the promises with the members' infos, and waits for their end before it
//! activates the PG, unless the primary of each earlier interval has answered, and so left that
//! interval, or is known to be dead. A member that was restarted does not know what it promised,
//! and counts as if it had done so just then.
//!
//! A primary may share its lease with members that ask to answer reads ([`super::replica::read`]).
//! Then the members' promise to it holds for all of them, and a new primary waits for its end
//! unless each member has answered or is known to be dead.

pub(super) mod handler;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_maps::OsdId;

use super::op::ClientOp;

/// A lease is renewed when this part of it remains (one in so many).
pub(super) const RENEW_AT: u64 = 2;
/// Ticks that reads may wait before the PG shows as laggy.
const LATE: u32 = 2;

/// A primary's lease, and the reads that wait for it.
#[derive(Debug, Default)]
pub(super) struct Lease {
    /// Until when reads may be answered; all times by this OSD's clock.
    until: Micros,
    /// Until when the lease may be shared.
    shared_until: Micros,
    /// When the members were asked for the next lease; zero if they were not.
    asked: Micros,
    /// Whether the next lease may be shared.
    asked_shared: bool,
    /// The members that asked for a share and got none, with the time by their clocks.
    sharers: BTreeMap<OsdId, Micros>,
    /// Until when the primary asks for leases that it may share.
    sharing: Micros,
    /// The members that have not granted the next lease.
    missing: BTreeSet<OsdId>,
    /// Objects whose reads wait.
    keys: Vec<Bytes>,
    /// Listings that wait.
    ops: Vec<ClientOp>,
    /// Ticks since something began to wait.
    late: u32,
}

impl Lease {
    /// Whether reads may be answered now.
    pub(super) fn holds(&self, usec: Micros) -> bool {
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

    /// Drops the waiting ops of a client whose connection has ended.
    pub(super) fn drop_ops(&mut self, conn: u64) {
        self.ops.retain(|op| op.client.conn != conn);
    }

    fn is_wanted(&self) -> bool {
        !self.keys.is_empty() || !self.ops.is_empty()
    }

    /// The members that have not granted the lease.
    pub(super) fn missing(&self) -> &BTreeSet<OsdId> {
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
