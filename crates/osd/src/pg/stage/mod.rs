//! Staging objects: content that is too much for one change is built step by step, and then moved
//! in one.
//!
//! A clone of an object with a large omap, and a copy of a large object, would be changes that no
//! log can hold. So the primary builds the copy first, in an object that only the PG knows: each
//! step is a change of the PG like any other (in the log it names no object), and the next one is
//! made when that is durable everywhere, so little of it is in memory at a time. The op that needs
//! it waits meanwhile, as for anything that is fetched ([`super::fetch`]), and holds its object.
//! When the staging object is whole, the op is executed again, and its change turns the staging
//! object into the clone or the copy ([`ObjectOp::MoveOf`]).
//!
//! A large change of an object that is erasure-coded is staged as well: each member is sent only what
//! becomes of its own fragment, and the change itself says no more than that it is taken.
//!
//! A staging object is for one object. In a PG whose objects are coded, its key has the hash of that
//! object, so that a split parts them never: a member that lacks the change may make it again in the
//! PG that was split off.
//!
//! A staging object that is not used is removed: when the op that waited has failed, and by every
//! member when the PG is activated, as all ops under way have ended then.

pub(super) mod handler;

use std::collections::VecDeque;
use std::sync::Weak;

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_maps::PgId;

use super::ahead::ticket::Ahead;
use super::copy::CopyFetch;
use super::fetch::Want;
use super::key;
use super::layout::Layout;
use super::staged::{Slot, Whole, stage_key};
use super::txn::ObjectOp;

/// The source of a staging object. As each needs memory, an OSD builds only a few of a kind at a
/// time; those that wait for other OSDs don't hold up the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// An object of the PG.
    Local,
    /// An object of any PG.
    Remote,
    /// A change that is in memory.
    Change,
}

impl Lane {
    /// All lanes.
    pub(crate) const ALL: [Self; 3] = [Self::Local, Self::Remote, Self::Change];

    /// The number of PGs of a reactor that may build at a time.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::Local => 4,
            Self::Remote => 2,
            // It needs no memory but its own.
            Self::Change => usize::MAX,
        }
    }
}

/// Whether a PG builds a staging object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StageState {
    /// The PG builds none.
    Idle,
    /// The PG wants to begin.
    Waiting,
    /// The PG has begun.
    Running,
}

/// A slot's staging object.
#[derive(Debug, Default)]
enum Place {
    /// There is none.
    #[default]
    Free,
    /// It is being built.
    Building,
    /// It is whole. It has this key, and is to be removed when nobody holds it any more.
    Whole(Bytes, Weak<Whole>),
}

/// The progress of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// The job reads how much there is to copy.
    Looking,
    /// The job waits for its turn.
    Waiting,
    /// The job is under way.
    Running,
}

/// The object that is copied.
#[derive(Debug)]
enum Source {
    /// An object of this PG.
    Object {
        key: Bytes,
        /// The first pair that is not copied yet; `None` after the last.
        from: Option<Bytes>,
    },
    /// An object of any PG.
    Copy(Box<CopyFetch>),
    /// A large change of an object of this PG, which is coded: all steps are there from the start.
    Change,
}

/// A change of a staging object.
#[derive(Debug)]
struct Step {
    ops: Vec<ObjectOp>,
    /// Whether the most of the data is there already, as members got what becomes of their own
    /// fragments.
    staged: bool,
    /// The data of it that members have already, if it was to go ahead of the step.
    ahead: Option<Box<Ahead>>,
}

impl From<Vec<ObjectOp>> for Step {
    fn from(ops: Vec<ObjectOp>) -> Self {
        Self {
            ops,
            staged: false,
            ahead: None,
        }
    }
}

/// The building of a staging object that an op waits for.
#[derive(Debug)]
struct Job {
    /// The op's place among the pending ones.
    seq: u32,
    /// The object that the op is about.
    object: Bytes,
    want: Want,
    slot: Slot,
    source: Source,
    progress: Progress,
    /// Whether the staging object was begun.
    begun: bool,
    /// The end of the data that it has.
    end: u64,
    /// Steps that were not sent yet.
    steps: VecDeque<Step>,
}

impl Job {
    /// What the job waits for at the time `usec`; `None` if that is a write.
    fn waits_for(&self, usec: Micros) -> Option<String> {
        match (&self.source, self.progress) {
            (Source::Copy(fetch), Progress::Running) => fetch.waits_for(usec),
            (Source::Copy(_), _) => Some("its turn to copy an object".to_owned()),
            (Source::Object { key, .. }, Progress::Waiting) => {
                Some(format!("its turn to clone {}", key::named(key)))
            }
            (Source::Object { key, .. }, _) if self.steps.is_empty() => {
                Some(format!("its store to read {}, which is cloned", key::named(key)))
            }
            (Source::Change, Progress::Waiting) => Some("its turn to stage a large change".to_owned()),
            (Source::Object { .. } | Source::Change, _) => None,
        }
    }

    fn lane(&self) -> Lane {
        match self.source {
            Source::Object { .. } => Lane::Local,
            Source::Copy(_) => Lane::Remote,
            Source::Change => Lane::Change,
        }
    }

    /// The key of the staging object, in a PG with this layout.
    fn key(&self, pgid: PgId, layout: Layout) -> Bytes {
        stage_key(pgid, layout, self.slot, &self.object)
    }

    /// The ops that make the staging object, before its pairs and data are added.
    fn beginning(&self) -> Vec<ObjectOp> {
        let first = match &self.source {
            Source::Object { key, .. } => ObjectOp::CloneOfData(key.clone()),
            Source::Copy(_) | Source::Change => ObjectOp::Touch,
        };
        vec![ObjectOp::Remove, first]
    }
}

/// A PG's staging objects, and the ops that wait for them.
#[derive(Debug, Default)]
pub(super) struct Stages {
    jobs: Vec<Job>,
    places: [Place; Slot::COUNT],
}

impl Stages {
    /// Whether the PG builds a staging object, or wants to.
    pub(super) fn state(&self, lane: Lane) -> StageState {
        let s = self;
        let runs = |j: &Job| j.lane() == lane && j.progress == Progress::Running;
        let (runs, startable) = (s.jobs.iter().any(runs), s.startable(lane).is_some());
        if startable && (!runs || lane == Lane::Change) {
            StageState::Waiting
        } else if runs {
            StageState::Running
        } else {
            StageState::Idle
        }
    }

    /// What the first staging object that waits for more than a write waits for at the time `usec`.
    pub(super) fn waits_for(&self, usec: Micros) -> Option<String> {
        let first = self.jobs.iter().find_map(|j| j.waits_for(usec))?;
        let n = self.jobs.len();
        Some(format!("{first}, of {n} objects that requests wait for"))
    }

    /// Whether the op `seq` waits for a staging object.
    pub(super) fn is_awaited_by(&self, seq: u32) -> bool {
        self.jobs.iter().any(|j| j.seq == seq)
    }

    /// The copy that is fetched for the op `seq`, which waits for it.
    pub(super) fn running_copy(&mut self, seq: u32) -> Option<&mut CopyFetch> {
        let job = self.jobs.iter_mut().find(|j| j.seq == seq)?;
        match &mut job.source {
            Source::Copy(fetch) if job.progress == Progress::Running => Some(fetch),
            _ => None,
        }
    }

    /// The ops whose copies are fetched.
    pub(super) fn running_copies(&self) -> impl Iterator<Item = (u32, &CopyFetch)> {
        self.jobs.iter().filter_map(|j| match &j.source {
            Source::Copy(fetch) if j.progress == Progress::Running => Some((j.seq, &**fetch)),
            _ => None,
        })
    }

    /// The slot that a job may begin in now.
    fn slot_for(&self, job: &Job) -> Option<Slot> {
        let is_free = |slot: &Slot| matches!(self.places[usize::from(slot.number())], Place::Free);
        let fits = |slot: &Slot| match job.slot {
            Slot::Large(_) => matches!(slot, Slot::Large(_)),
            own => *slot == own,
        };
        let slots = Slot::all().filter(|slot| fits(slot) && is_free(slot));
        slots
            .into_iter()
            .next()
            .filter(|_| job.progress == Progress::Waiting)
    }

    /// The first job that may begin now.
    fn startable(&self, lane: Lane) -> Option<usize> {
        self.jobs
            .iter()
            .position(|j| j.lane() == lane && self.slot_for(j).is_some())
    }

    fn job(&mut self, seq: u32) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|j| j.seq == seq)
    }

    fn place(&mut self, slot: Slot) -> &mut Place {
        &mut self.places[usize::from(slot.number())]
    }

    /// Notes that a change uses staging objects: they are no longer there to be removed.
    pub(super) fn taken(&mut self, objects: &[(Bytes, Vec<ObjectOp>)]) {
        for place in &mut self.places {
            let Place::Whole(stage, held) = place else {
                continue;
            };
            let takes = |op: &ObjectOp| match op {
                ObjectOp::MoveOf(key) | ObjectOp::Take(key) => key == stage,
                _ => false,
            };
            if held.strong_count() > 0 && objects.iter().any(|(_, ops)| ops.iter().any(takes)) {
                *place = Place::Free;
            }
        }
    }
}
