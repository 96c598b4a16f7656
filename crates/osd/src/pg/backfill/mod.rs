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

pub(super) mod handler;

use spirula_maps::EVersion;

use super::cluster::ClusterMap;
use super::force::Forced;
use super::push::SyncPlan;
use super::recent::State;
use super::site::Site;

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
            need if forced.holds(matches!(need, Some(Need::Objects(_)))) => return FORCED,
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
