//! Members that lack much are brought up in the background, while others serve in their place.
//!
//! Where a member lacks more than a few objects, the primary that notices asks the monitors for a temporary acting set
//! (`pg_temp`) of those that lack nothing, if these are `min_size` at least. They serve, and their primary copies to
//! the members to be, the targets, one after the other, while clients write:
//!
//! ```text
//! Info, Log ── what has the target? If the logs tell what it lacks, that is copied, else all objects are compared
//! Copying   ── begins with everything up to version `base` durable on all members; what is written meanwhile is not held up
//! Settling  ── until everything is durable that may have been copied
//!              if much was written since `base`: once more, these objects
//! Noting    ── the target remembers that it is complete up to `base`
//! Handover  ── the temporary acting set is given up
//! ```
//!
//! The next interval then finds a target that lacks the few objects that were written since `base`, and brings them over
//! before it serves. A target may have some of those already, torn even, if they were written while they were copied; but
//! all of them are in the log after `base`, so all are copied again. It must not keep what others lost: so
//! it counts as incomplete until what was copied is durable on all members. It takes part in no interval meanwhile,
//! and what it notes says so: it is older than any member's copy.

use spirula_maps::EVersion;

use super::history::History;
use super::info::PgInfo;
use super::log::PgLog;
use super::message::{LogUpdate, PeerBody, PeeringId, SyncPlan};
use super::peering::Stage;
use super::{Active, Ctx, Output, Pg, Role};

/// Bytes in objects above which comparing all of them is too much while requests wait.
const COMPARED_BYTES: i64 = 64 << 20;
/// How often what was written meanwhile is copied, before the rest must do.
const ROUNDS: u32 = 10;
/// Microseconds after which a copy that failed is begun again.
const AGAIN: u64 = 2_000_000;

/// What a primary does for the members to be.
#[derive(Debug, Default)]
pub(super) struct Backfill {
    /// Those that lack something; the first is under way.
    targets: Vec<i32>,
    /// How many do not any more.
    done: usize,
    step: Step,
    /// The rounds that the first took.
    rounds: u32,
    /// Whether all objects are compared, not only those that logs name.
    compares: bool,
    /// Whether it is its turn: few PGs of a reactor copy at the same time.
    granted: bool,
    /// When it may go on after a failure.
    not_before: u64,
    /// Seconds for which the target has not answered.
    silent: u32,
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
    /// Objects are copied.
    Running,
}

impl Backfill {
    /// For these targets. `temporary`: the acting set is not the one that should be, and to be given up when they are done.
    pub(super) fn new(targets: Vec<i32>, temporary: bool) -> Self {
        let given_up = targets.is_empty() && temporary;
        Self {
            targets,
            done: usize::from(given_up),
            step: if given_up { Step::Handover } else { Step::Idle },
            ..Self::default()
        }
    }

    fn is_idle(&self) -> bool {
        self.targets.is_empty() && self.done == 0
    }

    /// Members to be that are not complete yet.
    pub(super) fn lacking(&self) -> usize {
        self.targets.len()
    }
}

impl Pg {
    fn backfill(&mut self) -> Option<&mut Backfill> {
        match &mut self.role {
            Role::Active(Active { backfill, .. }) if !backfill.is_idle() => Some(backfill),
            _ => None,
        }
    }

    /// The members that can serve at once where others lack much; `None` where all are to be waited for.
    pub(super) fn temporary_members(&self, plans: &[(i32, SyncPlan)]) -> Option<Vec<i32>> {
        let Role::Peering(p) = &self.role else { return None };
        let best = p.infos.get(&p.auth)?.as_ref()?;
        let few = self.cfg.sync_objects;
        let much = |plan: &SyncPlan| match plan {
            SyncPlan::Objects(keys) => keys.len() > few,
            SyncPlan::Backfill => {
                usize::try_from(best.usage.objects).unwrap_or(0) > few || best.usage.bytes > COMPARED_BYTES
            }
        };
        let slow: Vec<i32> = plans
            .iter()
            .filter(|(_, plan)| much(plan))
            .map(|(o, _)| *o)
            .collect();
        if slow.is_empty() {
            return None;
        }
        let acting = &self.interval.place.acting;
        let mut ready: Vec<i32> = acting.iter().copied().filter(|o| !slow.contains(o)).collect();
        // Copies that belong elsewhere can serve as well as any.
        let equal = |i: &PgInfo| !i.incomplete && i.age() == best.age();
        let up = |o: &i32| self.map.osd(*o).is_some_and(|v| v.up);
        let strays = p
            .infos
            .iter()
            .filter(|(_, i)| i.as_ref().is_some_and(equal))
            .map(|(o, _)| *o);
        ready.extend(strays.filter(|o| !acting.contains(o) && up(o)));
        ready.truncate(self.pool.size as usize);
        (ready.len() >= self.pool.min_size as usize).then_some(ready)
    }

    /// Whether the temporary members are too few to serve and those that should be are not.
    pub(super) fn is_better_without_temporary(&self) -> bool {
        let place = &self.interval.place;
        place.up.len() >= self.pool.min_size as usize && place.up != place.acting
    }

    /// Asks for an acting set, none for the one that should be; and waits for it.
    pub(super) fn change_acting(&mut self, acting: Vec<i32>, cx: &mut Ctx<'_>) {
        self.want_acting(acting.clone(), cx);
        if let Some(p) = self.peering() {
            p.stage = Stage::Acting(acting);
        }
    }

    /// Asks the monitors for an acting set.
    pub(super) fn want_acting(&self, acting: Vec<i32>, cx: &mut Ctx<'_>) {
        cx.out.push(Output::PgTemp {
            pgid: self.pgid,
            acting,
        });
    }

    /// What the PG is doing for members to be.
    pub fn backfill_state(&self) -> BackfillState {
        match &self.role {
            Role::Active(a) if a.backfill.is_idle() || a.backfill.step == Step::Handover => {
                BackfillState::Idle
            }
            Role::Active(a) if a.backfill.granted => BackfillState::Running,
            Role::Active(_) => BackfillState::Waiting,
            _ => BackfillState::Idle,
        }
    }

    /// Whether all objects are compared, as logs do not tell.
    pub(super) fn is_comparing(&self) -> bool {
        matches!(&self.role, Role::Active(a) if a.backfill.compares)
    }

    /// Whether an operator's flags say that nothing is to be copied for now.
    pub fn is_copying_held(&self) -> bool {
        let has_all = self.interval.place.acting.len() >= self.pool.size as usize;
        self.map.no_backfill() || self.map.no_rebalance() && has_all
    }

    /// It is the PG's turn to copy.
    pub fn grant_backfill(&mut self, cx: &mut Ctx<'_>) {
        if let Some(b) = self.backfill()
            && cx.usec >= b.not_before
        {
            b.granted = true;
            self.next_target(cx);
        }
    }

    fn next_target(&mut self, cx: &mut Ctx<'_>) {
        let id = self.id;
        let Some(b) = self.backfill() else { return };
        (b.rounds, b.silent) = (0, 0);
        match b.targets.first() {
            Some(&target) => {
                b.step = Step::Info;
                self.send(target, id, PeerBody::Query, false, cx);
            }
            None => {
                b.step = Step::Handover;
                b.granted = false;
                self.want_acting(Vec::new(), cx);
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
        let current = id == self.id;
        let Some(b) = self.backfill() else { return false };
        if !current || b.step != Step::Info || b.targets.first() != Some(&from) {
            return false;
        }
        if info.is_some_and(|i| !i.incomplete) {
            b.step = Step::Log;
            self.send(from, id, PeerBody::GetLog, false, cx);
        } else {
            self.copy_to(from, SyncPlan::Backfill, cx);
        }
        true
    }

    /// A target's log.
    pub(super) fn backfill_log(&mut self, from: i32, theirs: &PgLog, cx: &mut Ctx<'_>) {
        let Some(b) = self.backfill() else { return };
        if b.step == Step::Log && b.targets.first() == Some(&from) {
            let plan = self.plan_for(theirs);
            self.copy_to(from, plan, cx);
        }
    }

    fn copy_to(&mut self, target: i32, plan: SyncPlan, cx: &mut Ctx<'_>) {
        let (me, id) = (self.whoami, self.id);
        let Role::Active(a) = &mut self.role else { return };
        a.backfill.step = Step::Copying { base: a.committed };
        a.backfill.compares = plan == SyncPlan::Backfill;
        self.start_sync(me, id, vec![(target, plan)], cx);
    }

    /// What was to be copied is.
    pub(super) fn backfill_copied(&mut self, target: i32, cx: &mut Ctx<'_>) {
        let until = self.info.last_update;
        let Some(b) = self.backfill() else { return };
        if let Step::Copying { base } = b.step
            && b.targets.first() == Some(&target)
        {
            b.step = Step::Settling { base, until };
            self.backfill_on(cx);
        }
    }

    /// It could not be.
    pub(super) fn backfill_failed(&mut self, cx: &Ctx<'_>) {
        if let Some(b) = self.backfill().filter(|b| b.step != Step::Handover) {
            b.step = Step::Idle;
            b.granted = false;
            b.not_before = cx.usec + AGAIN;
        }
    }

    /// A connection to or from an OSD was lost.
    pub(super) fn backfill_reset(&mut self, osd: i32, cx: &Ctx<'_>) {
        if let Some(b) = self.backfill()
            && b.targets.first() == Some(&osd)
            && matches!(b.step, Step::Info | Step::Log | Step::Noting)
        {
            self.backfill_failed(cx);
        }
    }

    /// Goes on when everything that may have been copied is durable on all members. Cheap: called after every event.
    pub(super) fn backfill_on(&mut self, cx: &mut Ctx<'_>) {
        let Role::Active(a) = &self.role else { return };
        let Step::Settling { base, until } = a.backfill.step else {
            return;
        };
        if a.committed < until {
            return;
        }
        let (rounds, few) = (a.backfill.rounds + 1, self.cfg.sync_objects / 2);
        let Some(b) = self.backfill() else { return };
        b.rounds = rounds;
        let Some(target) = b.targets.first().copied() else {
            return;
        };
        let again = match self.written_since(base) {
            None => SyncPlan::Backfill,
            Some(keys) if keys.len() <= few || rounds >= ROUNDS => return self.note_copied(target, base, cx),
            Some(keys) => SyncPlan::Objects(keys),
        };
        if rounds >= ROUNDS {
            // More is written than the log holds. What is left is compared when nobody writes.
            return self.target_done(cx);
        }
        self.copy_to(target, again, cx);
    }

    fn note_copied(&mut self, target: i32, base: EVersion, cx: &mut Ctx<'_>) {
        let id = self.id;
        let since = self.info.last_epoch_started.saturating_sub(1);
        let entries: Vec<_> = self.log.iter().filter(|e| e.version <= base).cloned().collect();
        let usage = entries.last().filter(|e| e.version == base).map(|e| e.usage);
        let info = PgInfo {
            last_update: base,
            log_tail: self.log.tail().min(base),
            last_epoch_started: since,
            usage: usage.unwrap_or(self.info.usage),
            usage_invalid: self.info.usage_invalid || usage.is_none(),
            incomplete: false,
            history: History::since(since),
            ..self.info.clone()
        };
        let log = LogUpdate {
            keep_to: EVersion::ZERO,
            replace: true,
            entries,
            dups: self.dups.batches().cloned().collect(),
        };
        if let Some(b) = self.backfill() {
            b.step = Step::Noting;
        }
        self.send(target, id, PeerBody::Copied { info, log }, false, cx);
    }

    /// A target remembers that it is complete up to the version that it was told.
    pub(super) fn backfill_noted(&mut self, from: i32, cx: &mut Ctx<'_>) {
        if let Some(b) = self.backfill()
            && b.step == Step::Noting
            && b.targets.first() == Some(&from)
        {
            self.target_done(cx);
        }
    }

    fn target_done(&mut self, cx: &mut Ctx<'_>) {
        if let Some(b) = self.backfill() {
            b.targets.remove(0);
            b.done += 1;
            self.next_target(cx);
        }
    }

    /// Time passes.
    pub(super) fn backfill_tick(&mut self, cx: &mut Ctx<'_>) {
        let patience = self.cfg.peering_retry;
        let Some(b) = self.backfill() else { return };
        match b.step {
            Step::Handover => self.want_acting(Vec::new(), cx),
            Step::Info | Step::Log | Step::Noting => {
                b.silent += 1;
                if b.silent > patience {
                    self.backfill_failed(cx);
                }
            }
            Step::Idle | Step::Copying { .. } | Step::Settling { .. } => b.silent = 0,
        }
    }

    /// The target's side: its copy is complete up to a version, as the primary says.
    pub(super) fn copied(
        &mut self,
        from: i32,
        id: PeeringId,
        info: PgInfo,
        log: LogUpdate,
        cx: &mut Ctx<'_>,
    ) {
        let sound = log.entries.is_sorted_by(|a, b| a.version < b.version)
            && log.dups.is_sorted_by(|a, b| a.name() < b.name());
        if sound && id == self.id && self.is_leader(from, id) && matches!(self.role, Role::Stray) {
            self.apply_activation(info, log, id, from, cx);
        }
    }

    /// How many log entries, in PGs' usual shares, are kept: more while members to be need them.
    pub(super) fn log_stretch(&self) -> usize {
        match &self.role {
            Role::Active(a) if !a.backfill.is_idle() => 20,
            _ => 1,
        }
    }
}
