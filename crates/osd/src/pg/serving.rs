//! What the ops of clients may touch, in whichever role: the order of ops on each object, their execution, replies and changes.
//! Staging, trimming and repairs are built on it, as what they do has its place in that order too.

use bytes::Bytes;
use spirula_invariant::dropped;
use spirula_maps::EVersion;

use super::copying::Copying;
use super::leadership::Leadership;
use super::lease::Leasing;
use super::op_queue::OpQueue;
use super::outbox::Outbox;
use super::output::Ctx;
use super::perf::DropReason;
use super::repair::Mending;
use super::repair::Repairing;
use super::replica::Following;
use super::role::Role;
use super::site::Site;
use super::snaps::trim::Trimming;
use super::stage::Staging;
use super::stats::Counters;
use super::store_queue::StoreQueue;
use super::stored_copy::StoredCopy;

/// Serves clients.
pub(super) struct Serving<'a> {
    pub(super) site: &'a Site,
    pub(super) copy: &'a mut StoredCopy,
    pub(super) store: &'a mut StoreQueue,
    pub(super) outbox: &'a mut Outbox,
    pub(super) lead: &'a mut Leadership,
    pub(super) role: &'a mut Role,
    pub(super) ops: &'a mut OpQueue,
    pub(super) copying: &'a mut Copying,
    pub(super) counters: &'a mut Counters,
}

impl Serving<'_> {
    fn reborrow(&mut self) -> Serving<'_> {
        Serving {
            site: self.site,
            copy: self.copy,
            store: self.store,
            outbox: self.outbox,
            lead: self.lead,
            role: self.role,
            ops: self.ops,
            copying: self.copying,
            counters: self.counters,
        }
    }

    /// Staging objects.
    pub(super) fn staging(&mut self) -> Staging<'_> {
        Staging {
            serving: self.reborrow(),
        }
    }

    /// Removed snapshots.
    pub(super) fn trimming(&mut self) -> Trimming<'_> {
        Trimming {
            serving: self.reborrow(),
        }
    }

    /// Repairs.
    pub(super) fn repairing(&mut self) -> Repairing<'_> {
        Repairing {
            serving: self.reborrow(),
        }
    }

    /// The members' side of repairs.
    pub(super) fn mending(&mut self) -> Mending<'_> {
        Mending {
            site: self.site,
            store: self.store,
            outbox: self.outbox,
            id: self.lead.id,
            role: self.role,
            ops: self.ops,
            copying: self.copying,
        }
    }

    /// The lease of a primary that serves.
    pub(super) fn leasing(&mut self) -> Option<Leasing<'_>> {
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

    /// Goes on with the lease, where this OSD serves. Says whether it does.
    pub(super) fn lease<T>(&mut self, f: impl FnOnce(&mut Leasing<'_>) -> T) -> Option<T> {
        self.leasing().map(|mut l| f(&mut l))
    }

    /// A member has granted the lease: reads that waited go on.
    pub(super) fn lease_granted(&mut self, from: i32, stamp: u64, cx: &mut Ctx<'_>) {
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

    /// The reads of an object wait for the lease; those of a member that has no share any more are the primary's.
    pub(super) fn await_lease(&mut self, key: &Bytes, cx: &mut Ctx<'_>) {
        if self.lease(|l| l.await_lease(key, cx)).is_none() {
            let ops = self.ops.contexts.forget(key);
            self.site.send_to_primary(ops, cx);
        }
    }

    /// Goes on as a replica. Says whether it is one.
    pub(super) fn follow(&mut self, f: impl FnOnce(&mut Following<'_>)) -> bool {
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

    /// A write of this version is durable here.
    pub(super) fn write_committed(&mut self, v: EVersion, cx: &mut Ctx<'_>) {
        if let Role::Active(a) = &mut self.role {
            a.local = a.local.max(v);
            return self.advance(cx);
        }
        self.follow(|r| r.write_committed(v, cx));
    }
}
