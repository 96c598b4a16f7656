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
//! A primary may share its lease with members that would like to answer reads ([`super::replica::read`]). Then what it was promised
//! holds for all of them, and a new primary waits for its end unless each member has answered or is known to be dead.

pub(super) mod handler;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::op::ClientOp;

/// What remains of a lease when it is renewed, as a part of the whole.
pub(super) const RENEW_AT: u64 = 2;
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
