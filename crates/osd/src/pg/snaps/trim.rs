//! Trimming: when snapshots are removed, clones that stand for no other are removed, a few at a
//! time.
//!
//! The map names the removed snapshots until all PGs have trimmed them. A PG finds a snapshot's
//! clones in the store's records, which are written and removed with the clones: so it goes on
//! where it was after any interruption. A trim is a change like a client's write: logged,
//! replicated, in the order of its object. When a snapshot has no clones left the PG notes it as
//! purged and tells the monitors.
//!
//! A scrub may find a clone that stands for a snapshot which is purged all the same: a stray. It is
//! trimmed like the others, but by itself, as a record may be just what it lacks.

pub(in crate::pg) mod handler;

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_maps::{EVersion, IntervalSet, SnapId};

use crate::pg::key;

/// The most strays that are remembered: the next scrub finds the others.
const MOST_STRAYS: usize = 1024;

/// The state of a primary's trimming of removed snapshots.
#[derive(Debug, Default)]
pub(in crate::pg) struct Trimmer {
    /// Snapshots to trim.
    queue: IntervalSet,
    /// Clones, each with a purged snapshot that it stands for.
    strays: BTreeMap<Bytes, SnapId>,
    /// The snapshot that is being trimmed.
    current: SnapId,
    /// Whether the PG has its turn: few PGs of a reactor trim at the same time.
    granted: bool,
    /// Whether the store was asked for clones.
    listing: bool,
    /// Clones that wait for the order of their objects, by key.
    waiting: HashSet<Bytes>,
    /// The version of the newest trim.
    last: EVersion,
    /// When the next trims may begin.
    not_before: Micros,
    /// When the last trims began, until they are accounted for.
    begun: Option<Micros>,
    /// Whether something could not be read, so that no more is trimmed in this interval.
    failed: bool,
    /// Purged snapshots that are not durably noted.
    unsaved: Vec<SnapId>,
}

/// The state of a PG's trimming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimState {
    /// There is nothing to do.
    Idle,
    /// There is something to do, but others come first.
    Waiting,
    /// Clones are being removed.
    Trimming,
    /// Something could not be read.
    Failed,
}

impl Trimmer {
    /// Snapshots that are to be trimmed.
    pub(in crate::pg) fn queue(&self) -> &IntervalSet {
        &self.queue
    }

    /// Whether something could not be read, so that no more is trimmed in this interval.
    pub(in crate::pg) fn has_failed(&self) -> bool {
        self.failed
    }

    /// What trimming waits for; `is_held` says that a flag of the map holds it up.
    pub(in crate::pg) fn waits_for(&self, is_held: bool) -> Option<String> {
        let (n, snap) = (self.queue.count() + self.strays.len() as u64, self.current);
        Some(match self.state() {
            TrimState::Idle => return None,
            TrimState::Failed => {
                format!("the next interval to trim {n} removed snapshots, as something can't be read")
            }
            _ if is_held => format!("the flag nosnaptrim to go, to trim {n} removed snapshots"),
            TrimState::Waiting => format!("its turn to trim {n} removed snapshots"),
            TrimState::Trimming if self.listing => {
                format!("its store to list what to trim of snapshot {snap}, of {n} removed ones")
            }
            TrimState::Trimming => match self.waiting.iter().min() {
                Some(clone) => {
                    let (clone, all) = (key::named(clone), self.waiting.len());
                    format!("{clone} to be trimmed, of {all} clones, for {n} removed snapshots")
                }
                None => format!("its next step of trimming {n} removed snapshots"),
            },
        })
    }

    /// The state of the trimming.
    pub(in crate::pg) fn state(&self) -> TrimState {
        match () {
            () if self.queue.is_empty() && self.strays.is_empty() => TrimState::Idle,
            () if self.failed => TrimState::Failed,
            () if self.granted => TrimState::Trimming,
            () => TrimState::Waiting,
        }
    }
}
