//! Members that lack much are brought up in the background, while others serve in their place.
//!
//! Where a member lacks more than a few objects, the primary that notices asks the monitors for a temporary acting set
//! (`pg_temp`) of those that lack nothing, if these are `min_size` at least. They serve, and their primary copies to
//! the members to be, the targets, one after the other, while clients write:
//!
//! ```text
//! Reserving ── few PGs copy from an OSD at a time, and few to one (`osd_max_backfills`), the most urgent first
//! Info, Log ── what has the target? If the logs tell what it lacks, that is copied, else all objects are compared
//! Copying   ── begins with everything up to version `base` durable on all members; what is written meanwhile is not held up
//! Settling  ── until everything is durable that may have been copied
//!              if much was written since `base`: once more, these objects
//! Noting    ── the target remembers that it is complete up to `base`
//! Handover  ── the temporary acting set is given up
//! ```
//!
//! The next interval then finds a target that lacks what was written since `base`, and brings that over before it serves.
//! A target may have some of it already, torn even, where an object was written while it was copied; but what the log after
//! `base` names as changed is copied again, whatever the target has of it. Of all else it has what was there at `base`: every copy
//! of an object ends with its size at a time after that, and what the log tells is told of ranges, up to infinity. So it is with each
//! further round, too. A target must not keep what others lost: so it counts as incomplete until what was copied is durable
//! on all members. It takes part in no interval meanwhile, and what it notes says so: it is older than any member's copy.
//!
//! What each target lacks is asked at once (the *survey*), so that the PG can say what it waits for, and how urgent that is.

use spirula_invariant::dropped;
use spirula_maps::EVersion;

use super::bug::Bug;
use super::cluster::ClusterMap;
use super::copying::Copying;
use super::force::Forced;
use super::history::History;
use super::info::PgInfo;
use super::leadership::Leadership;
use super::log::PgLog;
use super::message::{LogUpdate, PeerBody, PeeringId};
use super::outbox::Outbox;
use super::output::Ctx;
use super::perf::DropReason;
use super::push::{Lacking, SyncPlan};
use super::recent::State;
use super::replicated::source::Feeding;
use super::site::Site;
use super::stats::Counters;
use super::store_queue::StoreQueue;
use super::stored_copy::StoredCopy;

/// How often what was written meanwhile is copied, before the rest must do.
const ROUNDS: u32 = 10;
/// After so many rounds it does not matter any more how large the rest is.
const LIGHT_ROUNDS: u32 = 4;
/// Microseconds after which a copy that failed is begun again.
const AGAIN: u64 = 2_000_000;
/// The same where a target has no room (`osd_recovery_retry_interval`, `osd_backfill_retry_interval`).
const ROOM_AGAIN: u64 = 30_000_000;
/// The same where an object can't be read (Ceph's `osd_recovery_retry_interval`).
const UNREADABLE_AGAIN: u64 = 30_000_000;

/// Priorities, as Ceph's: what an operator wants first; objects that logs name; PGs that lack copies, more the more they lack;
/// PGs that are only in the wrong place. A pool's `recovery_priority` moves a PG within its class.
const FORCED: u8 = 255;
const RECOVERY: i64 = 180;
const RECOVERY_MOST: i64 = 219;
const DEGRADED: i64 = 140;
const MISPLACED: i64 = 100;

/// What a primary does for the members to be.
#[derive(Debug, Default)]
pub(super) struct Backfill {
    /// Those that lack something; the first is under way.
    targets: Vec<Target>,
    /// How many do not any more.
    done: usize,
    step: Step,
    /// The rounds that the first took.
    rounds: u32,
    turn: Turn,
    /// When it may go on after a failure.
    not_before: u64,
    /// Seconds for which the target has not answered.
    silent: u32,
}

/// A member to be.
#[derive(Debug)]
struct Target {
    osd: i32,
    /// What it lacked when it was asked; `None` as long as it has not said.
    need: Option<Need>,
    /// Whether its objects are as its log says.
    exact: bool,
    /// Whether it has a copy, of which something may be removed.
    has_copy: bool,
    /// The PG's version when it had no room for all of it, but everything was removed that does not belong there.
    purged: Option<EVersion>,
}

/// What is to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// So many objects, which logs name.
    Objects(usize),
    /// Logs do not tell: all are compared.
    All,
}

/// Whether it is the PG's turn.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Turn {
    #[default]
    Waiting,
    /// Here it is; the target was asked whether it is there too.
    Asked,
    /// It is.
    Taken,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Step {
    #[default]
    Idle,
    Info,
    Log,
    Copying {
        base: EVersion,
    },
    Settling {
        base: EVersion,
        until: EVersion,
    },
    Noting,
    Handover,
}

/// What a PG says about its copying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackfillState {
    /// Nothing is to be done.
    Idle,
    /// There is something to do, but others come first.
    Waiting,
    /// It is its turn on this OSD, not yet on the target.
    Reserving,
    /// Objects are copied.
    Running,
}

impl Backfill {
    /// For these targets. `temporary`: the acting set is not the one that should be, and to be given up when they are done.
    pub(super) fn new(targets: Vec<i32>, temporary: bool) -> Self {
        let given_up = targets.is_empty() && temporary;
        Self {
            targets: targets
                .into_iter()
                .map(|osd| Target {
                    osd,
                    need: None,
                    exact: false,
                    has_copy: false,
                    purged: None,
                })
                .collect(),
            done: usize::from(given_up),
            step: if given_up { Step::Handover } else { Step::Idle },
            ..Self::default()
        }
    }

    fn is_idle(&self) -> bool {
        self.targets.is_empty() && self.done == 0
    }

    /// What the PG is doing for members to be.
    pub(super) fn state(&self) -> BackfillState {
        match self.turn {
            _ if self.is_idle() || self.step == Step::Handover => BackfillState::Idle,
            Turn::Waiting => BackfillState::Waiting,
            Turn::Asked => BackfillState::Reserving,
            Turn::Taken => BackfillState::Running,
        }
    }

    /// The same, as one of the states of a PG.
    pub(super) fn standing(&self) -> State {
        match (self.state(), self.step) {
            (_, Step::Handover) => State::Handover,
            (BackfillState::Idle, _) => State::Active,
            (BackfillState::Waiting, _) => State::CopyWaiting,
            (BackfillState::Reserving, _) => State::CopyReserving,
            (BackfillState::Running, Step::Idle | Step::Info | Step::Log) => State::Comparing,
            (BackfillState::Running, Step::Copying { .. }) => State::Copying,
            (BackfillState::Running, Step::Settling { .. }) => State::Settling,
            (BackfillState::Running, Step::Noting) => State::Noting,
        }
    }

    /// What copying waits for, if there is something to copy.
    pub(super) fn waits_for(&self) -> Option<String> {
        let target = self.first().unwrap_or(-1);
        Some(match self.standing() {
            State::Handover => "the monitors to end the temporary acting set".to_owned(),
            State::CopyWaiting => format!("its turn to copy to osd.{target}"),
            State::CopyReserving => format!("osd.{target} to take its turn to be copied to"),
            State::Comparing => format!("osd.{target} to tell what it lacks"),
            State::Copying => format!("osd.{target} to take what it lacks"),
            State::Settling => format!("all members to have durable what osd.{target} got"),
            State::Noting => format!("osd.{target} to note durably that it is complete"),
            _ => return None,
        })
    }

    /// Whether the target under way has no room for what it would get.
    pub(super) fn is_target_full(&self, map: &dyn ClusterMap) -> bool {
        self.targets.first().is_some_and(|t| t.is_full(map))
    }

    /// Whether the target had no room for something when it was last copied to.
    pub(super) fn is_target_roomless(&self) -> bool {
        self.targets.first().is_some_and(|t| t.purged.is_some())
    }

    /// Whether nothing is to be copied for now, as flags say.
    pub(super) fn is_held(&self, site: &Site) -> bool {
        let has_all = site.lacking_members() == 0;
        let (map, compares) = (&site.map, self.need() == Some(Need::All));
        map.no_recover() || compares && (map.no_backfill() || map.no_rebalance() && has_all)
    }

    /// Whether a full target would only be shown again what it has no room for.
    fn is_purged(&self, now: EVersion) -> bool {
        let target = self.targets.first();
        target.is_some_and(|t| !t.has_copy || t.purged == Some(now))
    }

    /// Whether the PG, whose version is `now`, would begin to copy. To a target that is full, what is only to remove what does not
    /// belong there.
    pub(super) fn may_copy(&self, site: &Site, now: EVersion, usec: u64) -> bool {
        let may_begin = self.turn == Turn::Waiting && self.need().is_some() && usec >= self.not_before;
        may_begin && !self.is_held(site) && !(self.is_target_full(&*site.map) && self.is_purged(now))
    }

    /// How urgent it is, as in Ceph: what logs name first, then what is degraded, then what is only in the wrong place.
    pub(super) fn priority(&self, site: &Site, forced: Forced) -> u8 {
        let lacking = site.lacking_members();
        let (base, most) = match self.need() {
            need if forced.holds(need) => return FORCED,
            Some(Need::Objects(_)) => (RECOVERY, RECOVERY_MOST),
            _ if lacking > 0 => (DEGRADED + i64::try_from(lacking).unwrap_or(0), RECOVERY - 1),
            _ => (MISPLACED, DEGRADED - 1),
        };
        (base + site.pool.recovery_priority).clamp(0, most) as u8
    }

    /// How many log entries, in PGs' usual shares, are kept: more while members to be need them.
    pub(super) fn log_stretch(&self) -> usize {
        if self.is_idle() { 1 } else { 20 }
    }

    /// The target under way.
    pub(super) fn first(&self) -> Option<i32> {
        self.targets.first().map(|t| t.osd)
    }

    /// Whether objects may be copied.
    pub(super) fn has_turn(&self) -> bool {
        self.turn == Turn::Taken
    }

    /// What the target under way lacked.
    pub(super) fn need(&self) -> Option<Need> {
        self.targets.first().and_then(|t| t.need)
    }

    /// What each member to be lacks still: of the one under way what its feed has `left`, if it has begun.
    pub(super) fn lacking(&self, objects: i64, left: Option<i64>) -> Vec<i64> {
        let of = |(i, t): (usize, &Target)| match (t.need, self.step) {
            (_, Step::Settling { .. } | Step::Noting) if i == 0 => 0,
            (_, Step::Copying { .. }) if i == 0 && left.is_some() => left.unwrap_or(0),
            (Some(Need::Objects(n)), _) => i64::try_from(n).unwrap_or(objects).min(objects),
            (Some(Need::All) | None, _) => objects,
        };
        self.targets.iter().enumerate().map(of).collect()
    }
}

impl Target {
    /// Whether it has no room for what it would get.
    fn is_full(&self, map: &dyn ClusterMap) -> bool {
        map.osd(self.osd).is_some_and(|o| match self.need {
            Some(Need::All) => o.backfillfull,
            Some(Need::Objects(_)) | None => o.full,
        })
    }
}

impl Need {
    fn of(plan: &SyncPlan) -> Self {
        match plan {
            SyncPlan::Objects(keys) => Self::Objects(keys.len()),
            SyncPlan::Backfill => Self::All,
        }
    }
}

/// Brings up the members to be of a PG that serves.
pub(super) struct Backfilling<'a> {
    pub(super) site: &'a Site,
    pub(super) copy: &'a StoredCopy,
    pub(super) store: &'a mut StoreQueue,
    pub(super) outbox: &'a mut Outbox,
    pub(super) lead: &'a Leadership,
    pub(super) backfill: &'a mut Backfill,
    /// Up to where all members are durable.
    pub(super) committed: EVersion,
    pub(super) copying: &'a mut Copying,
    pub(super) counters: &'a mut Counters,
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

    /// What is to be done, if anything.
    fn backfill(&mut self) -> Option<&mut Backfill> {
        Some(&mut *self.backfill).filter(|b| !b.is_idle())
    }

    /// It is the PG's turn to copy; the target is asked whether it is its turn there.
    pub(super) fn grant(&mut self, cx: &mut Ctx<'_>) {
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

    /// Others come first: what is under way goes on later where it was.
    pub(super) fn revoke(&mut self, cx: &mut Ctx<'_>) {
        let id = self.lead.id;
        if let Some(b) = self.backfill()
            && b.turn != Turn::Waiting
            && let Some(target) = b.first()
        {
            b.turn = Turn::Waiting;
            self.outbox.send(target, id, PeerBody::Release, false, cx);
        }
    }

    /// The target says that it is the PG's turn there.
    pub(super) fn turn_granted(&mut self, from: i32, cx: &mut Ctx<'_>) {
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

    /// The target says that others come first there.
    pub(super) fn turn_revoked(&mut self, from: i32) {
        if let Some(b) = self.backfill()
            && b.first() == Some(from)
        {
            b.turn = Turn::Waiting;
        }
    }

    /// Asks the targets that have not said it what they have.
    pub(super) fn survey_targets(&mut self, cx: &mut Ctx<'_>) {
        let id = self.lead.id;
        let Some(b) = self.backfill().filter(|b| b.turn == Turn::Waiting) else {
            return;
        };
        let unknown: Vec<i32> = b
            .targets
            .iter()
            .filter(|t| t.need.is_none())
            .map(|t| t.osd)
            .collect();
        for target in unknown {
            self.outbox.send(target, id, PeerBody::Query, false, cx);
        }
    }

    /// A target says what it has. Those that logs tell about come first.
    fn note_need(&mut self, osd: i32, need: Need) {
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

    /// Begins with the first target, whose turn it is, or gives up the temporary acting set.
    fn next_target(&mut self, cx: &mut Ctx<'_>) {
        let id = self.lead.id;
        let Some(b) = self.backfill() else { return };
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

    /// Whether an OSD's answer was for this.
    pub(super) fn backfill_info(
        &mut self,
        from: i32,
        id: PeeringId,
        info: Option<&PgInfo>,
        cx: &mut Ctx<'_>,
    ) -> bool {
        let current = id == self.lead.id;
        let has_log = info.is_some_and(|i| !i.incomplete);
        let Some(b) = self.backfill() else { return false };
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

    /// A target's log.
    pub(super) fn backfill_log(&mut self, from: i32, theirs: &PgLog, cx: &mut Ctx<'_>) {
        let Some(b) = self.backfill() else { return };
        let under_way = b.step == Step::Log && b.first() == Some(from);
        let exact = b.targets.iter().any(|t| t.osd == from && t.exact);
        let plan = self.copy.plan_for(theirs, exact, self.site);
        if under_way {
            self.copy_to(from, plan, cx);
        } else {
            self.note_need(from, Need::of(&plan));
        }
    }

    fn copy_to(&mut self, target: i32, plan: SyncPlan, cx: &mut Ctx<'_>) {
        let (me, id) = (self.site.whoami, self.lead.id);
        self.backfill.step = Step::Copying { base: self.committed };
        if self.backfill.rounds == 0
            && let Some(t) = self.backfill.targets.first_mut()
        {
            t.need = Some(Need::of(&plan));
        }
        self.feeding().start_sync(me, id, vec![(target, plan)], cx);
    }

    /// What was to be copied is.
    pub(super) fn backfill_copied(&mut self, target: i32, cx: &mut Ctx<'_>) {
        let until = self.copy.info.last_update;
        let Some(b) = self.backfill() else { return };
        if let Step::Copying { base } = b.step
            && b.first() == Some(target)
        {
            b.step = Step::Settling { base, until };
            self.backfill_on(cx);
        }
    }

    /// The target has no room for what was to be copied.
    pub(super) fn backfill_refused(&mut self, target: i32, cx: &mut Ctx<'_>) {
        let Some(b) = self.backfill().filter(|b| b.first() == Some(target)) else {
            return;
        };
        let Step::Copying { base } = b.step else { return };
        if let Some(t) = b.targets.first_mut() {
            t.purged = Some(base);
        }
        let pause = match b.targets.iter().all(|t| t.purged.is_some()) {
            true => ROOM_AGAIN,
            false => AGAIN,
        };
        self.pause_backfill(target, pause, cx);
    }

    /// Takes one that has room for the next target, if any has.
    fn prefer_room(&mut self) {
        let map = std::sync::Arc::clone(&self.site.map);
        let Some(b) = self.backfill() else { return };
        if b.turn == Turn::Waiting && b.step == Step::Idle {
            let rank = |t: &Target| (t.is_full(&*map), t.purged.is_some());
            let best = b.targets.iter().enumerate().min_by_key(|(i, t)| (rank(t), *i));
            if let Some((at, _)) = best {
                b.targets[..=at].rotate_right(1);
            }
        }
    }

    /// It could not be.
    pub(super) fn backfill_failed(&mut self, cx: &mut Ctx<'_>) {
        let pause = match self.copying.unreadable {
            Some(_) => UNREADABLE_AGAIN,
            None => AGAIN,
        };
        if let Some(target) = self.backfill().and_then(|b| b.first()) {
            self.pause_backfill(target, pause, cx);
        }
    }

    /// Gives the turn at copying to the target back for so many microseconds.
    fn pause_backfill(&mut self, target: i32, pause: u64, cx: &mut Ctx<'_>) {
        let id = self.lead.id;
        let Some(b) = self.backfill().filter(|b| b.step != Step::Handover) else {
            return;
        };
        let had_turn = b.turn != Turn::Waiting;
        (b.step, b.turn) = (Step::Idle, Turn::Waiting);
        b.not_before = cx.usec + pause;
        if had_turn {
            self.outbox.send(target, id, PeerBody::Release, false, cx);
        }
    }

    /// A connection to or from an OSD was lost.
    pub(super) fn backfill_reset(&mut self, osd: i32, cx: &mut Ctx<'_>) {
        if let Some(b) = self.backfill()
            && b.first() == Some(osd)
            && (matches!(b.step, Step::Info | Step::Log | Step::Noting) || b.turn == Turn::Asked)
        {
            self.backfill_failed(cx);
        }
    }

    /// Goes on when everything that may have been copied is durable on all members. Cheap: called after every event.
    pub(super) fn backfill_on(&mut self, cx: &mut Ctx<'_>) {
        let Step::Settling { base, until } = self.backfill.step else {
            return;
        };
        if self.committed < until {
            return;
        }
        let (rounds, few) = (self.backfill.rounds + 1, self.site.cfg.sync_objects / 2);
        let Some(b) = self.backfill() else { return };
        b.rounds = rounds;
        let Some(target) = b.first() else { return };
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
            // More is written than the log holds. What is left is compared when nobody writes.
            return self.target_done(cx);
        }
        self.copy_to(target, again, cx);
    }

    fn note_copied(&mut self, target: i32, base: EVersion, cx: &mut Ctx<'_>) {
        let id = self.lead.id;
        let since = self.copy.info.last_epoch_started.saturating_sub(1);
        let entries: Vec<_> = self
            .copy
            .log
            .iter()
            .filter(|e| e.version <= base)
            .cloned()
            .collect();
        let usage = entries.last().filter(|e| e.version == base).map(|e| e.usage);
        let info = PgInfo {
            last_update: base,
            log_tail: self.copy.log.tail().min(base),
            last_epoch_started: since,
            usage: usage.unwrap_or(self.copy.info.usage),
            usage_invalid: self.copy.info.usage_invalid || usage.is_none(),
            incomplete: false,
            ahead: false,
            history: History::since(since),
            part: self.site.backend.part(self.site.interval.place.up.of(target)),
            ..self.copy.info.clone()
        };
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

    /// A target remembers that it is complete up to the version that it was told.
    pub(super) fn backfill_noted(&mut self, from: i32, cx: &mut Ctx<'_>) {
        if let Some(b) = self.backfill()
            && b.step == Step::Noting
            && b.first() == Some(from)
        {
            self.target_done(cx);
        }
    }

    fn target_done(&mut self, cx: &mut Ctx<'_>) {
        let id = self.lead.id;
        let Some(b) = self.backfill() else { return };
        let had_turn = b.turn != Turn::Waiting;
        let target = b.targets.remove(0).osd;
        b.done += 1;
        b.turn = Turn::Waiting;
        if had_turn {
            self.outbox.send(target, id, PeerBody::Release, false, cx);
        }
        self.next_target(cx);
    }

    /// Time passes.
    pub(super) fn backfill_tick(&mut self, cx: &mut Ctx<'_>) {
        let patience = self.site.cfg.peering_retry;
        self.survey_targets(cx);
        self.prefer_room();
        self.feeding().pump_feeds(cx);
        let Some(b) = self.backfill() else { return };
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
