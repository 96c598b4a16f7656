//! A group of the monitors' real log: openraft over real stores on simulated disks, on a virtual
//! clock and network.
//!
//! Members are killed, lose their power between and within disk operations, are cut off from others
//! in one direction or both, lose their disks and come back empty, are added and removed, while
//! proposals come from several sides. In every run,
//!
//! - all members apply one sequence of transactions, none twice, and none is passed over;
//! - what was reported as committed is in it, at the place that was reported;
//! - each member's state is what that sequence makes of it;
//! - a confirmed leader knows everything that was reported before it was asked;
//! - no node follows or elects anybody after somebody higher;
//! - a member whose disk fails stops;
//! - members of neighbouring versions understand each other;
//! - when nothing goes wrong any more, all monitors of the map are members, follow one leader and
//!   have the same state.

mod disk;
mod member;
mod net;
mod replace;
mod run;
mod storm;
mod truth;
mod work;

use std::cell::RefCell;
use std::rc::Rc;

use spirula_maps::MonMap;
use spirula_mon::raft::{Limits, Store};
use spirula_proto::internal::Edition;

use crate::clock::SECOND;
use crate::exec::{Exec, Process};
use crate::trace::Trace;
use member::Member;
use net::Net;
use spirula_random::Rng;
use truth::Truth;

pub use run::run;

/// A group, and the faults during a run.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Members in the beginning.
    pub members: usize,
    /// Seconds during which faults are injected.
    pub seconds: u64,
    /// The mean time between two faults, in milliseconds.
    pub calm_ms: u64,
    /// The kinds of faults.
    pub faults: Faults,
    /// The mean pause of each proposer, in milliseconds.
    pub pause_ms: u64,
    /// The log's limits.
    pub limits: Limits,
    /// Changes a store before it is used: gives it a deliberate bug.
    pub prepare: fn(Store) -> Store,
    /// A deliberate bug: a monitor that lost its disk takes its old node id.
    pub forgetful: bool,
    /// The versions of the members' programs.
    pub programs: Programs,
    /// A deliberate bug: a monitor writes to every other one in its own version.
    pub presumes: bool,
}

/// The versions of the members' programs. Two neighbouring ones may be in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Programs {
    /// All members are of the newest version.
    Newest,
    /// A process that starts is of one of the two versions, by chance.
    Mixed,
    /// All members begin with the first version. One after the other is restarted with the second
    /// one, while nothing else goes wrong.
    Replaced(Edition, Edition),
}

/// The frequencies of the kinds of faults, relative to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// A process ends.
    pub kills: u32,
    /// A member loses its power, at once or within one of its next disk operations.
    pub cuts: u32,
    /// All members lose their power.
    pub blackouts: u32,
    /// Some members only reach each other.
    pub partitions: u32,
    /// A path is blocked in one direction.
    pub one_way: u32,
    /// The leader reaches no other member.
    pub depositions: u32,
    /// Requests and answers are lost.
    pub losses: u32,
    /// A disk is slow.
    pub slow_disks: u32,
    /// A disk operation fails.
    pub disk_errors: u32,
    /// A member loses its disk.
    pub lost_disks: u32,
    /// The operator adds a monitor to the map or removes one.
    pub changes: u32,
}

impl Faults {
    /// All faults.
    pub const ALL: Self = Self {
        kills: 10,
        cuts: 14,
        blackouts: 3,
        partitions: 8,
        one_way: 6,
        depositions: 8,
        losses: 4,
        slow_disks: 4,
        disk_errors: 3,
        lost_disks: 8,
        changes: 10,
    };
}

impl Setup {
    /// The group of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0067_726f_7570);
        let keep = rng.between(4, 60);
        Self {
            members: usize::try_from(1 + rng.below(5)).unwrap_or(1),
            seconds: 20,
            calm_ms: rng.between(150, 1_200),
            faults: Faults::ALL,
            pause_ms: rng.between(60, 400),
            limits: Limits {
                keep_entries: keep,
                near_entries: rng.between(1, keep),
                entry_bytes: usize::try_from(rng.between(100, 5_000)).unwrap_or(100),
                part_bytes: usize::try_from(rng.between(50, 3_000)).unwrap_or(50),
            },
            prepare: |s| s,
            forgetful: false,
            programs: if seed % 4 == 1 {
                Programs::Mixed
            } else {
                Programs::Newest
            },
            presumes: false,
        }
    }
}

/// The figures of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// A digest of all events.
    pub digest: u64,
    /// Timers that fired.
    pub events: u64,
    /// Virtual time in microseconds.
    pub usec: u64,
    /// Transactions that were reported as committed.
    pub committed: usize,
    /// Snapshots that were installed.
    pub snapshots: u64,
    /// Changes of the membership that were made.
    pub changes: u64,
    /// The number of terms.
    pub terms: u64,
    /// How often a member lost its power.
    pub cuts: u64,
    /// How often a member lost its disk.
    pub lost_disks: u64,
    /// Leaders that were confirmed for a read.
    pub reads: u64,
}

/// The group.
struct Group {
    setup: Setup,
    exec: Rc<Exec>,
    rng: Rng,
    members: Vec<Member>,
    /// The monitor map that the operator has set.
    map: MonMap,
    net: Net,
    truth: Truth,
    trace: Trace,
    last_process: Process,
    last_node: u64,
    last_txn: u64,
    founded: bool,
    /// Members whose process has ended, to be restarted.
    ended: Vec<usize>,
    /// Faults are injected.
    storm: bool,
    /// Proposals are made.
    working: bool,
    failure: Option<String>,
    changes: u64,
    cuts: u64,
    lost_disks: u64,
    reads: u64,
}

type Shared = Rc<RefCell<Group>>;

impl Group {
    /// Records a violation of the group's guarantees.
    fn fail(&mut self, what: impl Into<String>) {
        self.failure.get_or_insert(what.into());
    }

    fn check(&mut self, done: Result<(), String>) {
        if let Err(e) = done {
            self.fail(e);
        }
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        let now = self.exec.now();
        self.trace.note(|| format!("{now} {}", what()));
    }

    /// A random time in microseconds between these milliseconds.
    fn millis(&mut self, from: u64, to: u64) -> u64 {
        self.rng.between(from * SECOND / 1_000, to * SECOND / 1_000)
    }
}
