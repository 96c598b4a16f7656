//! Brings up the backfill targets, as the primary that serves.

use spirula_denc::Micros;
use spirula_invariant::{dropped, impossible, invariant};
use spirula_maps::{EVersion, OsdId};

use super::{Backfill, Need, Step, Target, Turn};
use crate::pg::bug::Bug;
use crate::pg::copying::Copying;
use crate::pg::copying::source::handler::Feeding;
use crate::pg::counters::Counters;
use crate::pg::history::History;
use crate::pg::info::PgInfo;
use crate::pg::leadership::Leadership;
use crate::pg::log::PgLog;
use crate::pg::message::{LogUpdate, PeerBody, PeeringId};
use crate::pg::outbox::Outbox;
use crate::pg::output::Ctx;
use crate::pg::perf::DropReason;
use crate::pg::push::{Lacking, SyncPlan};
use crate::pg::site::Site;
use crate::pg::store_queue::StoreQueue;
use crate::pg::stored_copy::StoredCopy;

/// The most rounds of copying what was written during the round before; after them the rest is left
/// to the handover.
const ROUNDS: u32 = 10;
/// The rounds after which the size of the rest does not matter any more.
const LIGHT_ROUNDS: u32 = 4;
/// The time after which a failed copy is begun again.
const AGAIN: Micros = Micros::from_secs(2);
/// The time after which a copy is begun again whose target has no room
/// (`osd_recovery_retry_interval`, `osd_backfill_retry_interval`).
const ROOM_AGAIN: Micros = Micros::from_secs(30);
/// The time after which a copy is begun again in which an object can't be read (Ceph's
/// `osd_recovery_retry_interval`).
const UNREADABLE_AGAIN: Micros = Micros::from_secs(30);

/// Brings up the backfill targets of a PG that serves.
pub(in crate::pg) struct Backfilling<'a> {
    pub(in crate::pg) site: &'a Site,
    pub(in crate::pg) copy: &'a StoredCopy,
    pub(in crate::pg) store: &'a mut StoreQueue,
    pub(in crate::pg) outbox: &'a mut Outbox,
    pub(in crate::pg) lead: &'a Leadership,
    pub(in crate::pg) backfill: &'a mut Backfill,
    /// The version up to which all members are durable.
    pub(in crate::pg) committed: EVersion,
    pub(in crate::pg) copying: &'a mut Copying,
    pub(in crate::pg) counters: &'a mut Counters,
}

impl Backfilling<'_> {
    fn feeding(&mut self) -> Feeding<'_> {
        Feeding {
            site: self.site,
            copy: self.copy,
            store: self.store,
            outbox: self.outbox,
            id: self.lead.id,
            backfill: Some(self.backfill),
            copying: self.copying,
            counters: self.counters,
        }
    }

    /// The backfill, if there is anything to do.
    fn backfill(&mut self) -> Option<&mut Backfill> {
        Some(&mut *self.backfill).filter(|b| !b.is_idle())
    }

    /// Grants the PG's turn to copy; the target is asked for its turn there.
    pub(in crate::pg) fn grant(&mut self, cx: &mut Ctx<'_>) {
        let (id, priority, usec) = (
            self.lead.id,
            self.backfill.priority(self.site, self.lead.forced),
            cx.usec,
        );
        if let Some(b) = self.backfill()
            && usec >= b.not_before
            && let Some(target) = b.first()
        {
            b.turn = Turn::Asked;
            b.silent = 0;
            self.outbox
                .send(target, id, PeerBody::Reserve(priority), false, cx);
        }
    }

    /// Revokes the PG's turn because others come first: the copy under way goes on later where it
    /// was.
    pub(in crate::pg) fn revoke(&mut self, cx: &mut Ctx<'_>) {
        let id = self.lead.id;
        if let Some(b) = self.backfill()
            && b.turn != Turn::Waiting
            && let Some(target) = b.first()
        {
            b.turn = Turn::Waiting;
            self.outbox.send(target, id, PeerBody::Release, false, cx);
        }
    }

    /// Handles the target's word that it is the PG's turn there.
    pub(in crate::pg) fn turn_granted(&mut self, from: OsdId, cx: &mut Ctx<'_>) {
        let pgid = self.site.pgid;
        let asked = |b: &&mut Backfill| b.turn == Turn::Asked && b.first() == Some(from);
        let Some(b) = self.backfill().filter(asked) else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = pgid, from = from);
        };
        b.turn = Turn::Taken;
        if b.step == Step::Idle {
            self.next_target(cx);
        } else {
            self.feeding().pump_feeds(cx);
        }
    }

    /// Handles the target's word that others come first there.
    pub(in crate::pg) fn turn_revoked(&mut self, from: OsdId, cx: &mut Ctx<'_>) {
        let pgid = self.site.pgid;
        let has_turn = |b: &&mut Backfill| b.turn != Turn::Waiting && b.first() == Some(from);
        let Some(b) = self.backfill().filter(has_turn) else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = pgid, from = from);
        };
        b.turn = Turn::Waiting;
    }

    /// Asks the targets that have not answered what they have.
    pub(in crate::pg) fn survey_targets(&mut self, cx: &mut Ctx<'_>) {
        let id = self.lead.id;
        // One that is copied to is asked in its turn.
        let may_ask = self.backfill.turn == Turn::Waiting;
        let targets = self.backfill.targets.iter();
        let unknown = targets.filter(|t| may_ask && t.need.is_none());
        let unknown: Vec<OsdId> = unknown.map(|t| t.osd).collect();
        for target in unknown {
            self.outbox.send(target, id, PeerBody::Query, false, cx);
        }
    }

    /// Notes what a target needs. Targets whose needs are known from logs come first.
    fn note_need(&mut self, osd: OsdId, need: Need) {
        if let Some(b) = self.backfill()
            && let Some(t) = b.targets.iter_mut().find(|t| t.osd == osd)
        {
            t.need = Some(need);
            let begun = usize::from(b.step != Step::Idle || b.turn != Turn::Waiting);
            b.targets[begun..].sort_by_key(|t| match t.need {
                Some(Need::Objects(_)) => 0,
                Some(Need::All) => 1,
                None => 2,
            });
        }
    }

    /// Begins with the first target, if it is the PG's turn, or gives up the temporary acting set
    /// if there is none.
    fn next_target(&mut self, cx: &mut Ctx<'_>) {
        let (id, b) = (self.lead.id, &mut *self.backfill);
        invariant!(!b.is_idle(), "a PG that goes on to its next target to have begun with one"; pg = self.site.pgid, epoch = self.site.map.epoch());
        (b.rounds, b.silent) = (0, 0);
        match b.first() {
            Some(target) if b.turn == Turn::Taken => {
                b.step = Step::Info;
                self.outbox.send(target, id, PeerBody::Query, false, cx);
            }
            Some(_) => b.step = Step::Idle,
            None => {
                b.step = Step::Handover;
                b.turn = Turn::Waiting;
                self.site.want_acting(Vec::new(), cx);
            }
        }
    }

    /// Handles an OSD's info; returns whether it was an answer to the backfill.
    pub(in crate::pg) fn backfill_info(
        &mut self,
        from: OsdId,
        id: PeeringId,
        info: Option<&PgInfo>,
        cx: &mut Ctx<'_>,
    ) -> bool {
        let current = id == self.lead.id;
        let Some(b) = self.backfill() else { return false };
        let part = b.targets.iter().find(|t| t.osd == from).map(|t| t.part);
        let has_log = info.is_some_and(|i| !i.incomplete && Some(i.part) == part);
        let surveyed = b.targets.iter().any(|t| t.osd == from && t.need.is_none());
        let under_way = b.step == Step::Info && b.first() == Some(from);
        if !current || !surveyed && !under_way {
            return false;
        }
        if under_way && has_log {
            b.step = Step::Log;
        }
        if let Some(t) = b.targets.iter_mut().find(|t| t.osd == from) {
            t.exact = info.is_some_and(|i| !i.ahead);
            t.has_copy = info.is_some();
        }
        if has_log {
            self.outbox.send(from, id, PeerBody::GetLog, false, cx);
        } else if under_way {
            self.copy_to(from, SyncPlan::Backfill, cx);
        } else {
            self.note_need(from, Need::All);
        }
        true
    }

    /// Handles a target's log.
    pub(in crate::pg) fn backfill_log(&mut self, from: OsdId, theirs: &PgLog, cx: &mut Ctx<'_>) {
        let b = &*self.backfill;
        let under_way = b.step == Step::Log && b.first() == Some(from);
        let Some(exact) = b.targets.iter().find(|t| t.osd == from).map(|t| t.exact) else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = self.site.pgid, from = from);
        };
        let plan = self.copy.plan_for(theirs, exact, self.site);
        if under_way {
            self.copy_to(from, plan, cx);
        } else {
            self.note_need(from, Need::of(&plan));
        }
    }

    fn copy_to(&mut self, target: OsdId, plan: SyncPlan, cx: &mut Ctx<'_>) {
        let (me, id) = (self.site.whoami, self.lead.id);
        invariant!(
            self.committed <= self.copy.info.last_update,
            "what is durable everywhere to be in the primary's copy";
            pg = self.site.pgid, epoch = self.site.map.epoch(), committed = self.committed, last_update = self.copy.info.last_update
        );
        self.backfill.step = Step::Copying { base: self.committed };
        if self.backfill.rounds == 0
            && let Some(t) = self.backfill.targets.first_mut()
        {
            t.need = Some(Need::of(&plan));
        }
        let parts: Vec<_> = self.backfill.targets.iter().map(|t| (t.osd, t.part)).collect();
        self.feeding()
            .start_sync(me, id, vec![(target, plan)], &parts, cx);
    }

    /// Handles the end of the copy under way.
    pub(in crate::pg) fn backfill_copied(&mut self, target: OsdId, cx: &mut Ctx<'_>) {
        let (until, b) = (self.copy.info.last_update, &mut *self.backfill);
        match b.step {
            Step::Copying { base } if b.first() == Some(target) => {
                invariant!(
                    base <= until,
                    "a copy to end with a version after the one it began with";
                    pg = self.site.pgid, epoch = self.site.map.epoch(), base = base, until = until
                );
                b.step = Step::Settling { base, until };
                self.backfill_on(cx);
            }
            _ => dropped!(cx.perf.dropped, DropReason::PeerLate; pg = self.site.pgid, of = target),
        }
    }

    /// Handles a target that has no room for what is to be copied.
    pub(in crate::pg) fn backfill_refused(&mut self, target: OsdId, cx: &mut Ctx<'_>) {
        let b = &mut *self.backfill;
        let (Step::Copying { base }, Some(t)) = (b.step, b.targets.first_mut().filter(|t| t.osd == target))
        else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = self.site.pgid, of = target);
        };
        t.purged = Some(base);
        let pause = match b.targets.iter().all(|t| t.purged.is_some()) {
            true => ROOM_AGAIN,
            false => AGAIN,
        };
        self.pause_backfill(target, pause, cx);
    }

    /// Makes a target that has room the next one, if any has.
    fn prefer_room(&mut self) {
        let (map, b) = (&self.site.map, &mut *self.backfill);
        if b.turn == Turn::Waiting && b.step == Step::Idle {
            let rank = |t: &Target| (t.is_full(&**map), t.purged.is_some());
            let best = b.targets.iter().enumerate().min_by_key(|(i, t)| (rank(t), *i));
            if let Some((at, _)) = best {
                b.targets[..=at].rotate_right(1);
            }
        }
    }

    /// Handles the failure of the copy under way.
    pub(in crate::pg) fn backfill_failed(&mut self, cx: &mut Ctx<'_>) {
        let pause = match self.copying.unreadable {
            Some(_) => UNREADABLE_AGAIN,
            None => AGAIN,
        };
        if let Some(target) = self.backfill().and_then(|b| b.first()) {
            self.pause_backfill(target, pause, cx);
        }
    }

    /// Returns the turn at copying to the target for `pause`.
    fn pause_backfill(&mut self, target: OsdId, pause: Micros, cx: &mut Ctx<'_>) {
        let (id, b) = (self.lead.id, &mut *self.backfill);
        invariant!(
            b.first() == Some(target) && b.step != Step::Handover,
            "a copy that pauses to be the one under way";
            pg = self.site.pgid, epoch = self.site.map.epoch(), target = target
        );
        let had_turn = b.turn != Turn::Waiting;
        (b.step, b.turn) = (Step::Idle, Turn::Waiting);
        b.not_before = cx.usec + pause;
        if had_turn {
            self.outbox.send(target, id, PeerBody::Release, false, cx);
        }
    }

    /// Handles the loss of a connection to or from an OSD.
    pub(in crate::pg) fn backfill_reset(&mut self, osd: OsdId, cx: &mut Ctx<'_>) {
        if let Some(b) = self.backfill()
            && b.first() == Some(osd)
            && (matches!(b.step, Step::Info | Step::Log | Step::Noting) || b.turn == Turn::Asked)
        {
            self.backfill_failed(cx);
        }
    }

    /// Goes on once everything that may have been copied is durable on all members. Cheap: called
    /// after every event.
    pub(in crate::pg) fn backfill_on(&mut self, cx: &mut Ctx<'_>) {
        if let Step::Settling { base, until } = self.backfill.step
            && self.committed >= until
        {
            self.settled(base, until, cx);
        }
    }

    /// Goes on after everything up to `until`, which may have been copied, is durable on all
    /// members. If much was written since `base`, it is copied again.
    fn settled(&mut self, base: EVersion, until: EVersion, cx: &mut Ctx<'_>) {
        let (rounds, few) = (self.backfill.rounds + 1, self.site.cfg.sync_objects / 2);
        self.backfill.rounds = rounds;
        let Some(target) = self.backfill.first() else {
            impossible!("a copy that settles to have a target"; pg = self.site.pgid, epoch = self.site.map.epoch(), until = until);
        };
        let again = match self.copy.written_since(base) {
            None => SyncPlan::Backfill,
            Some(keys) => {
                let is_light = || {
                    self.copy.bytes_changed_since(base, &keys)
                        <= self.site.shares.sync_bytes.max(0).unsigned_abs()
                };
                let light = keys.len() <= few && (rounds >= LIGHT_ROUNDS || is_light());
                if light || rounds >= ROUNDS {
                    return self.note_copied(target, base, cx);
                }
                let late = self.site.cfg.has_bug(Bug::LateBase);
                let had = Some(if late { until } else { base });
                let lacking = |key| Lacking { key, had };
                SyncPlan::Objects(keys.into_iter().map(lacking).collect())
            }
        };
        if rounds >= ROUNDS {
            // More is written than the log holds. The rest is compared when nobody writes.
            return self.target_done(cx);
        }
        self.copy_to(target, again, cx);
    }

    fn note_copied(&mut self, target: OsdId, base: EVersion, cx: &mut Ctx<'_>) {
        let id = self.lead.id;
        let since = self.copy.info.last_epoch_started.before(1);
        let entries: Vec<_> = self
            .copy
            .log
            .iter()
            .filter(|e| e.version <= base)
            .cloned()
            .collect();
        let usage = entries.last().filter(|e| e.version == base).map(|e| e.usage);
        let of_target = self.backfill.targets.iter().find(|t| t.osd == target);
        let part = of_target.map(|t| t.part).unwrap_or_default();
        let info = PgInfo {
            last_update: base,
            log_tail: self.copy.log.tail().min(base),
            last_epoch_started: since,
            usage: usage.unwrap_or(self.copy.info.usage),
            usage_invalid: self.copy.info.usage_invalid || usage.is_none(),
            incomplete: false,
            ahead: false,
            history: History::since(since),
            part,
            ..self.copy.info.clone()
        };
        invariant!(
            info.log_tail <= base && base <= self.copy.info.last_update,
            "what a target notes to be in the primary's past";
            pg = self.site.pgid, epoch = self.site.map.epoch(), base = base, last_update = self.copy.info.last_update
        );
        let log = LogUpdate {
            keep_to: EVersion::ZERO,
            replace: true,
            entries,
            dups: self.copy.dups.batches().cloned().collect(),
        };
        if let Some(b) = self.backfill() {
            b.step = Step::Noting;
        }
        self.outbox
            .send(target, id, PeerBody::Copied { info, log }, false, cx);
    }

    /// Handles a target's word that it remembers to be complete up to the version that it was told.
    pub(in crate::pg) fn backfill_noted(&mut self, from: OsdId, cx: &mut Ctx<'_>) {
        if let Some(b) = self.backfill()
            && b.step == Step::Noting
            && b.first() == Some(from)
        {
            self.target_done(cx);
        }
    }

    fn target_done(&mut self, cx: &mut Ctx<'_>) {
        let (id, b) = (self.lead.id, &mut *self.backfill);
        invariant!(!b.targets.is_empty(), "a target that is done to be there"; pg = self.site.pgid, epoch = self.site.map.epoch());
        let had_turn = b.turn != Turn::Waiting;
        let target = b.targets.remove(0).osd;
        b.done += 1;
        b.turn = Turn::Waiting;
        if had_turn {
            self.outbox.send(target, id, PeerBody::Release, false, cx);
        }
        self.next_target(cx);
    }

    /// Handles the passing of time.
    pub(in crate::pg) fn backfill_tick(&mut self, cx: &mut Ctx<'_>) {
        let patience = self.site.cfg.peering_retry;
        self.survey_targets(cx);
        self.prefer_room();
        self.feeding().pump_feeds(cx);
        let b = &mut *self.backfill;
        match b.step {
            Step::Handover => self.site.want_acting(Vec::new(), cx),
            Step::Info | Step::Log | Step::Noting => {
                b.silent += 1;
                if b.silent > patience {
                    self.backfill_failed(cx);
                }
            }
            Step::Idle | Step::Copying { .. } | Step::Settling { .. } => b.silent = 0,
        }
    }
}
