//! The primary's side of a PG: from an attempt to agree to serving, and the dispatch of messages in
//! either.

use bytes::Bytes;
use spirula_invariant::{dropped, impossible, invariant};
use spirula_maps::{EVersion, Epoch, OsdId, OsdOrNone};

use super::Pg;
use super::backfill::handler::Backfilling;
use super::backfill::{Backfill, BackfillState};
use super::coded;
use super::dups::DupBatch;
use super::force::Forced;
use super::info::PgInfo;
use super::log::{LogEntry, PgLog};
use super::message::{PeerBody, PeeringId};
use super::output::Ctx;
use super::peering::handler::Agreeing;
use super::peering::{Next, Peering, Stage, Told};
use super::perf::DropReason;
use super::promise::Promise;
use super::recent::State;
use super::role::{Active, Role};

impl Pg {
    /// Goes on with an attempt to agree, if this OSD leads one. Returns whether it does.
    pub(super) fn agree(
        &mut self,
        cx: &mut Ctx<'_>,
        f: impl FnOnce(&mut Agreeing<'_>, &mut Ctx<'_>),
    ) -> bool {
        let Role::Peering(peering) = &mut self.role else {
            return false;
        };
        let mut agreeing = Agreeing {
            site: &self.site,
            copy: &mut self.copy,
            store: &mut self.store,
            outbox: &mut self.outbox,
            lead: &mut self.lead,
            peering,
            copying: &mut self.copying,
            recent: &mut self.recent,
        };
        f(&mut agreeing, cx);
        match peering.next.take() {
            Some(Next::Anew) => self.begin_peering(cx),
            Some(Next::Serve) => self.become_active(cx),
            None => {}
        }
        true
    }

    /// The handler of backfill, if this OSD serves.
    pub(super) fn backfilling(&mut self) -> Option<Backfilling<'_>> {
        let Role::Active(a) = &mut self.role else {
            return None;
        };
        Some(Backfilling {
            site: &self.site,
            copy: &self.copy,
            store: &mut self.store,
            outbox: &mut self.outbox,
            lead: &self.lead,
            committed: a.committed,
            backfill: &mut a.backfill,
            copying: &mut self.copying,
            counters: &mut self.counters,
        })
    }

    /// Begins an attempt to agree.
    pub(super) fn begin_peering(&mut self, cx: &mut Ctx<'_>) {
        invariant!(
            self.site.leads(),
            "the primary to lead the attempt to agree";
            pg = self.site.pgid, epoch = self.site.map.epoch(), primary = OsdOrNone(self.site.interval.place.primary)
        );
        self.lead.begin(self.site.map.epoch());
        self.recent.attempt(self.lead.id, cx.now);
        self.recent.enter(State::Flushing, cx.now);
        self.copying.leave_attempt();
        self.store.forget_attempt();
        self.role = Role::Peering(Box::new(Peering::new(cx.usec)));
        self.agree(cx, |a, cx| a.begin(cx));
    }

    fn become_active(&mut self, cx: &mut Ctx<'_>) {
        let Role::Peering(peering) = &mut self.role else {
            impossible!("an attempt to agree that ends to have begun"; pg = self.site.pgid, epoch = self.site.map.epoch());
        };
        invariant!(
            matches!(&peering.stage, Stage::Activating(left) if left.is_empty()),
            "a PG to serve when all members remember that they take part";
            pg = self.site.pgid, epoch = self.site.map.epoch(), stage = peering.stage.standing().name()
        );
        invariant!(
            self.copy.exists && !self.copy.info.incomplete && self.copy.info.last_epoch_started >= self.lead.id.epoch,
            "a primary to serve from a complete copy that was activated";
            pg = self.site.pgid, epoch = self.lead.id.epoch, last_epoch_started = self.copy.info.last_epoch_started
        );
        invariant!(
            self.copy.log.head() == self.copy.info.last_update,
            "the log of a PG that begins to serve to end with its last change";
            pg = self.site.pgid, epoch = self.site.map.epoch(), head = self.copy.log.head(), last_update = self.copy.info.last_update
        );
        let infos = std::mem::take(&mut peering.infos);
        let (at, me, place) = (
            self.copy.info.last_update,
            self.site.whoami,
            &self.site.interval.place,
        );
        let peers = self.site.interval.members().into_iter().filter(|&o| o != me);
        let parts = self.site.backend.parts(&place.acting, &infos);
        let others = parts.iter().filter(|(o, _)| **o != me);
        self.store.gathers.members = coded::holders(others.map(|(o, part)| (*o, *part)));
        self.store.gathers.at = at;
        let to_be = place.up.osds().filter(|o| !place.acting.contains(*o));
        // Members that stay keep their parts, whatever targets had; targets get the others.
        let known = infos.iter().map(|(o, i)| {
            let of_member = parts.get(o).map(|part| PgInfo {
                part: *part,
                incomplete: false,
                last_epoch_started: Epoch::new(u32::MAX),
                ..PgInfo::default()
            });
            (*o, of_member.or_else(|| i.clone()))
        });
        let to_come = self.site.backend.parts(&place.up, &known.collect());
        let part_of = |o| to_come.get(&o).copied().unwrap_or_default();
        let to_be = to_be.map(|o| (o, part_of(o)));
        let backfill = Backfill::new(to_be.collect(), place.up != place.acting);
        self.role = Role::Active(Active {
            peers: peers.map(|o| (o, at)).collect(),
            local: at,
            committed: at,
            in_flight: Default::default(),
            lease: Default::default(),
            backfill: Box::new(backfill),
            trimmer: Default::default(),
            repairs: Default::default(),
            scrub: Default::default(),
            aheads: Default::default(),
            sent: cx.usec,
        });
        self.serving().trimming().update_trim_queue();
        let history = &self.copy.info.scrubs;
        let has_list = |o: &OsdId| {
            let info = infos.get(o).and_then(Option::as_ref);
            info.is_some_and(|i| i.scrubs.has_list_of(history))
        };
        let unknowing = self.site.others().into_iter().filter(|o| !has_list(o)).collect();
        self.scrubbing().tell_whole_list(unknowing, cx);
        self.backfill(|b| b.survey_targets(cx));
        if self.seen().backfill_state() == BackfillState::Idle {
            self.lead.forced = Forced::default();
        }
        for (osd, info) in &infos {
            self.retire_stray(*osd, info.as_ref(), cx);
        }
        for op in std::mem::take(&mut self.ops.held) {
            self.serving().handle_op(op, cx);
        }
    }

    /// Goes on with the backfill, if this OSD serves. Returns whether it does.
    pub(super) fn backfill(&mut self, f: impl FnOnce(&mut Backfilling<'_>)) -> bool {
        self.backfilling().map(|mut b| f(&mut b)).is_some()
    }

    /// Has a copy deleted that is not needed: there are as many members as there should be.
    fn retire_stray(&mut self, osd: OsdId, info: Option<&PgInfo>, cx: &mut Ctx<'_>) {
        let place = &self.site.interval.place;
        let complete = self.site.lacking_members() == 0;
        let wanted = place.acting.contains(osd) || place.raw.contains(osd) || place.up.contains(osd);
        if info.is_some() && complete && !wanted {
            self.outbox.send(osd, self.lead.id, PeerBody::Remove, false, cx);
        }
    }

    /// Handles another OSD's info on its copy: it was asked, or its copy belongs elsewhere.
    pub(super) fn notified(
        &mut self,
        from: OsdId,
        id: PeeringId,
        told: Told,
        promised: Promise,
        cx: &mut Ctx<'_>,
    ) {
        if let Some(mut b) = self.backfilling() {
            if !b.backfill_info(from, id, told.info.as_ref(), cx) {
                self.retire_stray(from, told.info.as_ref(), cx);
            }
        } else if !self.agree(cx, |a, cx| a.notified(from, id, told, promised, cx)) {
            dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
    }

    /// Handles another OSD's log.
    pub(super) fn log_received(
        &mut self,
        from: OsdId,
        tail: EVersion,
        head: EVersion,
        entries: Vec<LogEntry>,
        dups: Vec<DupBatch>,
        cx: &mut Ctx<'_>,
    ) {
        let ascend = entries.is_sorted_by(|a, b| a.version < b.version)
            && dups.is_sorted_by(|a, b| a.name() < b.name());
        if !ascend {
            return dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.site.pgid, from = from);
        }
        let log = PgLog::from_entries(tail, head, entries);
        let backfilled = self.backfill(|b| b.backfill_log(from, &log, cx));
        if !backfilled && !self.agree(cx, |a, cx| a.log_received(from, log, dups, cx)) {
            dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
    }

    /// Handles that a member, or a backfill target, is now equal to the newest copy.
    pub(super) fn sync_done(&mut self, osd: OsdId, cx: &mut Ctx<'_>) {
        if !self.backfill(|b| b.backfill_copied(osd, cx)) && !self.agree(cx, |a, cx| a.sync_done(osd, cx)) {
            dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, of = osd);
        }
    }

    /// Handles that a member, or a backfill target, has no room for all that it lacks.
    pub(super) fn sync_refused(&mut self, osd: OsdId, cx: &mut Ctx<'_>) {
        if !self.backfill(|b| b.backfill_refused(osd, cx)) && !self.agree(cx, |a, cx| a.sync_refused(osd, cx))
        {
            dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, of = osd);
        }
    }

    /// Handles that the holder of the newest copy could not go on.
    pub(super) fn sync_failed(&mut self, unreadable: Option<Bytes>, cx: &mut Ctx<'_>) {
        if !self.backfill(|b| b.backfill_failed(cx)) && !self.agree(cx, |a, _| a.sync_failed(unreadable)) {
            dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid);
        }
    }

    /// Handles that a member remembers durably that it took part, or a backfill target that it is
    /// complete.
    pub(super) fn member_activated(&mut self, from: OsdId, cx: &mut Ctx<'_>) {
        if !self.backfill(|b| b.backfill_noted(from, cx))
            && !self.agree(cx, |a, cx| a.member_activated(from, cx))
        {
            dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
    }

    /// Handles that this OSD remembers durably that it took part.
    pub(super) fn activation_committed(&mut self, id: PeeringId, primary: OsdId, cx: &mut Ctx<'_>) {
        if id != self.lead.id {
            return dropped!(cx.perf.dropped, DropReason::StoreLate; pg = self.site.pgid);
        }
        if primary == self.site.whoami {
            self.member_activated(primary, cx);
        } else if matches!(self.role, Role::Replica(_) | Role::Stray) {
            self.outbox.send(primary, id, PeerBody::Activated, true, cx);
        } else {
            // The pool is gone, or this OSD is down by its map.
            dropped!(cx.perf.dropped, DropReason::StoreLate; pg = self.site.pgid);
        }
    }

    /// Grants the PG's turn to copy; the target is asked for its turn there.
    pub fn grant_backfill(&mut self, cx: &mut Ctx<'_>) {
        self.backfill(|b| b.grant(cx));
    }

    /// Revokes the PG's turn because others come first: the copy under way goes on later where it
    /// was.
    pub fn revoke_backfill(&mut self, cx: &mut Ctx<'_>) {
        self.backfill(|b| b.revoke(cx));
    }

    /// Forces the PG's recovery, or its backfill, before all else at an operator's command, or
    /// stops forcing it. Does nothing if there is nothing to do.
    pub fn force_copy(&mut self, backfill: bool, on: bool, cx: &mut Ctx<'_>) {
        let on = on && self.seen().backfill_state() != BackfillState::Idle;
        let before = self.seen().copy_priority();
        if backfill {
            self.lead.forced.backfill = on;
        } else {
            self.lead.forced.recovery = on;
        }
        let priority = self.seen().copy_priority();
        // A PG that waits for its turn on the target is in the target's queue.
        if priority != before
            && self.seen().backfill_state() == BackfillState::Reserving
            && let Some(target) = self.role.backfill().and_then(Backfill::first)
        {
            let id = self.lead.id;
            self.outbox
                .send(target, id, PeerBody::Reserve(priority), false, cx);
        }
    }
}
