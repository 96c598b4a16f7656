//! Deleting a copy whose pool is gone, or whose PG is complete elsewhere. In bounded steps, in the
//! background.

use super::copying::Copying;
use super::copying::parts;
use super::fetch::ReadError;
use super::key::{self, KeyRange};
use super::message::PeeringId;
use super::object::removal;
use super::output::{Ctx, Output, Page};
use super::pace::Class;
use super::perf::DropReason;
use super::role::Role;
use super::site::Site;
use super::store_queue::{Commit, Pending, StoreQueue};
use super::stored_copy::StoredCopy;
use super::txn::Txn;
use spirula_denc::Micros;
use spirula_invariant::{dropped, invariant};
use spirula_maps::OsdId;

/// Objects removed in one step.
const STEP: usize = 64;

/// Deletes the copy here.
pub(super) struct Deleting<'a> {
    pub(super) site: &'a Site,
    pub(super) copy: &'a mut StoredCopy,
    pub(super) store: &'a mut StoreQueue,
    pub(super) role: &'a mut Role,
    pub(super) copying: &'a mut Copying,
}

impl Deleting<'_> {
    /// Handles the primary's word that the PG is complete elsewhere.
    pub(super) fn removed(&mut self, from: OsdId, id: PeeringId, cx: &mut Ctx<'_>) {
        let reason = match self.role {
            _ if !self.site.is_leader(from, id) => DropReason::PeerStale,
            Role::Stray if self.copy.exists => return self.begin_delete(cx),
            // It was told so before.
            Role::Stray | Role::Deleting => DropReason::PeerLate,
            _ => DropReason::PeerMisled,
        };
        dropped!(cx.perf.dropped, reason; pg = self.site.pgid, from = from);
    }

    /// Begins the deletion: from now on the copy is no copy, durably.
    pub(super) fn begin_delete(&mut self, cx: &mut Ctx<'_>) {
        self.copying.source = None;
        self.copying.target = None;
        if !self.copy.exists {
            *self.role = Role::Stray;
            // There is nothing to delete.
            return;
        }
        *self.role = Role::Deleting;
        // A crash, or a change of mind, must never take the rest for a copy.
        self.copy.info.incomplete = true;
        let txn = Txn {
            objects: Vec::new(),
            meta: vec![self.copy.info_record(self.site.pgid)],
        };
        self.store.submit(txn, Commit::Delete, cx);
    }

    /// Handles the passing of time: goes on if the store could not list the rest.
    pub(super) fn delete_tick(&mut self, cx: &mut Ctx<'_>) {
        let lists = |p: &Pending| matches!(p, Pending::Delete);
        let removes = |c: &Commit| matches!(c, Commit::Delete);
        let is_under_way =
            self.store.pending.values().any(lists) || self.store.commits.iter().any(|(_, _, c)| removes(c));
        if !is_under_way {
            self.delete_step(cx);
        }
    }

    /// Goes on after the removals so far are durable.
    pub(super) fn delete_step(&mut self, cx: &mut Ctx<'_>) {
        if !matches!(self.role, Role::Deleting) {
            // The copy is needed again, or has gone.
            return;
        }
        let (pace, usec) = (&self.copying.pace, cx.usec);
        if let Some(begun) = self.copying.deleting.take() {
            let (took, rate) = (usec.saturating_sub(begun), self.site.cfg.best_effort);
            pace.worked(Class::BestEffort, usec, took, rate, Micros::ZERO);
        }
        if let Some(usec) = pace.rests_until(Class::BestEffort, usec) {
            return cx.out.push(Output::Alarm { usec });
        }
        self.copying.deleting = Some(usec);
        let range = self.delete_range();
        self.store.list(range, STEP, Pending::Delete, cx);
    }

    /// The range of the copy's objects, also when the pool is gone.
    fn delete_range(&self) -> KeyRange {
        key::pg_range(self.site.pgid, self.copy.info.pg_num.max(1))
    }

    /// Removes the next objects, which the store has listed.
    pub(super) fn delete_listed(&mut self, r: Result<Page, ReadError>, cx: &mut Ctx<'_>) {
        let Ok((objects, next)) = r else {
            // The next tick asks again.
            return;
        };
        invariant!(
            matches!(self.role, Role::Deleting) && self.copy.info.incomplete,
            "objects to be deleted of a copy that counts no more";
            pg = self.site.pgid, epoch = self.site.map.epoch()
        );
        let removed = objects.into_iter().map(|(k, info)| (k, removal(&info)));
        let mut steps = parts::divide(removed.collect(), self.site.cfg.max_part_logged);
        let last = steps.pop().unwrap_or_default();
        for objects in steps {
            let meta = Vec::new();
            self.store.submit(Txn { objects, meta }, Commit::Record, cx);
        }
        let mut txn = Txn {
            objects: last,
            meta: Vec::new(),
        };
        if next.is_some() {
            return self.store.submit(txn, Commit::Delete, cx);
        }
        let layout = self.copy.info.part.layout;
        txn.objects
            .extend(self.copy.staged.removal(self.site.pgid, layout));
        self.copy.remove(self.site.pgid, &mut txn);
        *self.role = Role::Stray;
        self.store.submit(txn, Commit::Record, cx);
    }
}
