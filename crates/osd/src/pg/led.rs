//! Answers to a primary's questions to an OSD that is, was or will be a member: for its info, for
//! its log, to take part, and to be copied to.

use spirula_invariant::{dropped, invariant};
use spirula_maps::OsdId;

use super::copying::Copying;
use super::info::PgInfo;
use super::leadership::Leadership;
use super::message::{LogUpdate, PeerBody, PeeringId};
use super::op_queue::OpQueue;
use super::outbox::Outbox;
use super::output::Ctx;
use super::perf::DropReason;
use super::replica::{Replica, Share};
use super::role::Role;
use super::site::Site;
use super::store_queue::{Commit, StoreQueue};
use super::stored_copy::StoredCopy;

/// Answers a primary.
pub(super) struct Led<'a> {
    pub(super) site: &'a Site,
    pub(super) copy: &'a mut StoredCopy,
    pub(super) store: &'a mut StoreQueue,
    pub(super) outbox: &'a mut Outbox,
    pub(super) lead: &'a mut Leadership,
    pub(super) role: &'a mut Role,
    pub(super) ops: &'a mut OpQueue,
    pub(super) copying: &'a mut Copying,
}

impl Led<'_> {
    /// Handles a primary's query for this OSD's copy.
    pub(super) fn queried(&mut self, from: OsdId, id: PeeringId, cx: &mut Ctx<'_>) {
        if !self.site.is_leader(from, id) || id < self.lead.id {
            return dropped!(cx.perf.dropped, DropReason::PeerStale; pg = self.site.pgid, from = from);
        }
        match self.role {
            Role::Replica(r) => *r = Replica::default(),
            Role::Stray => {}
            _ => return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from),
        }
        self.lead.id = id;
        self.copying.source = None;
        self.copying.target = None;
        self.copying.patient = None;
        self.store.forget_attempt();
        self.ops.give_up_reads(self.site, self.store, cx);
        self.lead.query_from = Some(from);
        if self.store.commits.is_empty() {
            self.answer_query(cx);
        }
    }

    /// Answers the query once everything that the answer claims is durable.
    pub(super) fn answer_query(&mut self, cx: &mut Ctx<'_>) {
        invariant!(
            self.store.commits.is_empty(),
            "an answer to a primary to claim only what is durable";
            pg = self.site.pgid, epoch = self.site.map.epoch()
        );
        if let Some(primary) = self.lead.query_from.take() {
            let info = self.copy.account();
            let promised = self.lead.promise_left(cx.usec);
            let body = PeerBody::Notify {
                info,
                promised,
                kept_since: cx.kept_since,
            };
            self.outbox.send(primary, self.lead.id, body, true, cx);
        } else if matches!(self.role, Role::Stray) {
            self.announce(cx);
        }
    }

    /// Handles a primary's request for the log.
    pub(super) fn log_wanted(&mut self, from: OsdId, id: PeeringId, cx: &mut Ctx<'_>) {
        if !self.site.is_leader(from, id) {
            return dropped!(cx.perf.dropped, DropReason::PeerStale; pg = self.site.pgid, from = from);
        }
        let entries = self.copy.log.iter().cloned().collect();
        let body = PeerBody::Log {
            tail: self.copy.log.tail(),
            head: self.copy.info.last_update,
            entries,
            dups: self.copy.dups.batches().cloned().collect(),
        };
        self.outbox.send(from, id, body, true, cx);
    }

    /// Handles a primary's request to take part.
    pub(super) fn activate_member(
        &mut self,
        from: OsdId,
        id: PeeringId,
        info: PgInfo,
        log: LogUpdate,
        cx: &mut Ctx<'_>,
    ) {
        if !self.site.is_leader(from, id) || !log.is_sound(info.last_update) || info.incomplete {
            return dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.site.pgid, from = from);
        }
        let committed = info.last_update;
        let Role::Replica(r) = self.role else {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        };
        *r = Replica {
            active: true,
            committed,
            share: Share::default(),
            ..Replica::default()
        };
        let what = Commit::Activate { id, primary: from };
        self.copying.target = None;
        self.copy.activate(self.site, (info, log), what, self.store, cx);
    }

    /// Announces a copy that belongs elsewhere to the primary, which may need it, or has it
    /// deleted.
    pub(super) fn announce(&mut self, cx: &mut Ctx<'_>) {
        let primary = self.site.interval.place.primary;
        if let Some(primary) = primary.filter(|p| *p != self.site.whoami)
            && self.copy.exists
            && self.store.commits.is_empty()
        {
            let id = PeeringId {
                epoch: self.site.map.epoch(),
                round: 0,
            };
            let body = PeerBody::Notify {
                info: Some(self.copy.info.clone()),
                promised: self.lead.promise_left(cx.usec),
                kept_since: cx.kept_since,
            };
            self.outbox.send(primary, id, body, false, cx);
        }
    }

    /// Handles a primary's request for its turn to copy to this OSD.
    pub(super) fn turn_wanted(&mut self, from: OsdId, id: PeeringId, priority: u8, cx: &mut Ctx<'_>) {
        let to_be = matches!(self.role, Role::Stray) && self.site.is_to_be_here();
        if !to_be || !self.site.is_leader(from, id) {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
        self.copying.incoming.wanted(from, id, priority);
    }
}
