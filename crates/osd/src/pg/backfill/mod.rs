//! Members that lack much are brought up in the background, while others serve in their place.
//!
//! If a member lacks more than a few objects, the primary asks the monitors for a temporary acting
//! set (`pg_temp`) of the members that lack nothing, if these are at least `min_size`. They serve,
//! and their primary copies to the members to be, the backfill targets, one after the other, while
//! clients write:
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
//! The next interval then finds a target that lacks only the writes since `base`, and copies these
//! before it serves. The target may have some of them already, even torn, if an object was written
//! while it was copied; but the objects and ranges that the log names after `base` are copied
//! again, whatever the target has of them. Everything else is in its state of `base`: every copy of
//! an object ends with its size at a time after that, and the log's ranges reach up to infinity.
//! The same holds for each further round. A target must not keep writes that others lost: so it
//! counts as incomplete until everything copied is durable on all members. It takes part in no
//! interval meanwhile, and the info that it notes shows that: it is older than any member's copy.
//!
//! All targets are asked at once what they lack (the *survey*), so that the PG can report what it
//! waits for, and how urgent that is.

pub(super) mod handler;

use spirula_denc::Micros;
use spirula_maps::{EVersion, OsdId, OsdOrNone};

use super::cluster::ClusterMap;
use super::force::Forced;
use super::layout::Part;
use super::push::SyncPlan;
use super::recent::State;
use super::site::Site;

/// Priorities, as Ceph's: PGs that an operator forces; objects that logs name; PGs that lack
/// copies, higher the more they lack; PGs that are only in the wrong place. A pool's
/// `recovery_priority` moves a PG within its class.
const FORCED: u8 = 255;
const RECOVERY: i64 = 180;
const RECOVERY_MOST: i64 = 219;
const DEGRADED: i64 = 140;
const MISPLACED: i64 = 100;

/// The backfill of a primary for the members to be.
#[derive(Debug, Default)]
pub(super) struct Backfill {
    /// The targets that lack something; the first is under way.
    targets: Vec<Target>,
    /// The number of targets that are done.
    done: usize,
    step: Step,
    /// The rounds that the first target took.
    rounds: u32,
    turn: Turn,
    /// When the backfill may go on after a failure.
    not_before: Micros,
    /// Seconds for which the target under way has not answered.
    silent: u32,
}

/// A member to be.
#[derive(Debug)]
struct Target {
    osd: OsdId,
    /// The part of each object that it is to hold.
    part: Part,
    /// What the target lacked when it was asked; `None` until it has answered.
    need: Option<Need>,
    /// Whether the target's objects are as its log says.
    exact: bool,
    /// Whether the target has a copy, of which something may have to be removed.
    has_copy: bool,
    /// The PG's version when the target had no room for all of it, but everything that does not
    /// belong there was removed.
    purged: Option<EVersion>,
}

/// The objects to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// This many objects, which logs name.
    Objects(usize),
    /// All objects are compared, as logs do not tell.
    All,
}

/// The PG's turn to copy.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Turn {
    #[default]
    Waiting,
    /// It is the PG's turn here; the target was asked for its turn there.
    Asked,
    /// It is the PG's turn both here and there.
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

/// The state of a PG's copying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackfillState {
    /// There is nothing to do.
    Idle,
    /// There is something to do, but others come first.
    Waiting,
    /// It is the PG's turn on this OSD, but not yet on the target.
    Reserving,
    /// Objects are copied.
    Running,
}

impl Backfill {
    /// A backfill of these targets. `temporary`: the acting set differs from the one that should
    /// be, and is given up when the targets are done.
    pub(super) fn new(targets: Vec<(OsdId, Part)>, temporary: bool) -> Self {
        let given_up = targets.is_empty() && temporary;
        Self {
            targets: targets
                .into_iter()
                .map(|(osd, part)| Target {
                    osd,
                    part,
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

    /// The state of the backfill.
    pub(super) fn state(&self) -> BackfillState {
        match self.turn {
            _ if self.is_idle() || self.step == Step::Handover => BackfillState::Idle,
            Turn::Waiting => BackfillState::Waiting,
            Turn::Asked => BackfillState::Reserving,
            Turn::Taken => BackfillState::Running,
        }
    }

    /// The state of the backfill, as a state of the PG.
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
        let target = OsdOrNone(self.first());
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

    /// Whether flags say that nothing is to be copied for now.
    pub(super) fn is_held(&self, site: &Site) -> bool {
        let has_all = site.lacking_members() == 0;
        let (map, compares) = (&site.map, self.need() == Some(Need::All));
        map.no_recover() || compares && (map.no_backfill() || map.no_rebalance() && has_all)
    }

    /// Whether a copy to a full target would do nothing: everything that does not belong there is
    /// removed already.
    fn is_purged(&self, now: EVersion) -> bool {
        let target = self.targets.first();
        target.is_some_and(|t| !t.has_copy || t.purged == Some(now))
    }

    /// Whether the PG, whose version is `now`, would begin to copy. To a full target it only does
    /// so to remove what does not belong there.
    pub(super) fn may_copy(&self, site: &Site, now: EVersion, usec: Micros) -> bool {
        let may_begin = self.turn == Turn::Waiting && self.need().is_some() && usec >= self.not_before;
        may_begin && !self.is_held(site) && !(self.is_target_full(&*site.map) && self.is_purged(now))
    }

    /// The urgency of the backfill, as in Ceph: objects that logs name first, then degraded ones,
    /// then those that are only in the wrong place.
    pub(super) fn priority(&self, site: &Site, forced: Forced) -> u8 {
        let lacking = site.lacking_members();
        let (base, most) = match self.need() {
            need if forced.holds(matches!(need, Some(Need::Objects(_)))) => return FORCED,
            Some(Need::Objects(_)) => (RECOVERY, RECOVERY_MOST),
            _ if lacking > 0 => (DEGRADED + i64::try_from(lacking).unwrap_or(0), RECOVERY - 1),
            _ => (MISPLACED, DEGRADED - 1),
        };
        (base + site.pool.recovery_priority).clamp(0, most) as u8
    }

    /// The number of log entries to keep, in PGs' usual shares: more while backfill targets need
    /// them.
    pub(super) fn log_stretch(&self) -> usize {
        if self.is_idle() { 1 } else { 20 }
    }

    /// The target under way.
    pub(super) fn first(&self) -> Option<OsdId> {
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

    /// The number of objects that each target still lacks; for the one under way the number that
    /// its feed has `left`, if it has begun.
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
    /// Whether the target has no room for what it would get.
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
            // Only members that take part make changes again.
            SyncPlan::Backfill | SyncPlan::Replay(_) => Self::All,
        }
    }
}
