//! Repairing an object that a member can't read.
//!
//! All members have the same version of every object, so if one finds that its disk has lost some
//! of it, any other can give it. The primary directs that: it keeps all ops on the object waiting
//! until the earlier writes are durable everywhere and the earlier reads have ended. Then the
//! member takes the object from another one, part by part (`target`, `source`), in a staging object
//! that becomes the object in one transaction. So a half written copy is never read, and any
//! interruption (the interval's end, a crash) leaves the object as it was. A repair is no change of
//! the PG: nothing is logged. One object of a PG is repaired at a time.
//!
//! If no member can read the object, the ops that need it fail with EIO, and the object is named as
//! unfound until it is written anew, removed, or can be read again.
//!
//! A repair begins with what the store notices: wrong checksums of data, and anything else that it
//! can't read of an object.

mod give_up;
pub(super) mod handler;
mod lost;
mod member;
pub(super) mod mending;
pub mod message;
mod source;
mod target;

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_maps::OsdId;

use super::key;
pub(super) use lost::Lost;
pub use lost::MarkLostError;
pub(super) use member::{Asked, Patient};

/// A primary's repairs.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// The queued repairs; the first is under way.
    jobs: VecDeque<Job>,
    /// The number of the last attempt.
    number: u32,
    /// Repairs that ended lately: the time, the member and the object's key.
    ended: VecDeque<(Micros, OsdId, Bytes)>,
    /// Objects that no member can read.
    pub(super) lost: Lost,
}

/// An object to be repaired.
#[derive(Debug)]
struct Job {
    key: Bytes,
    /// The members that can't read it.
    bad: BTreeSet<OsdId>,
    /// The members that could not give it to the member that is its turn.
    unable: BTreeSet<OsdId>,
    step: Step,
    tries: u32,
    /// Whether the repair may change the record of an object that can be read: a scrub has found it
    /// wrong.
    renews: bool,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// The repair waits for its turn, for ops on the object, or until this time.
    Waiting(Micros),
    /// A member takes the object from another one; with the time of its last report.
    Asked {
        target: OsdId,
        source: OsdId,
        heard: Micros,
    },
}

impl Repairs {
    fn job(&mut self, key: &Bytes) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|j| j.key == *key)
    }

    /// The number of copies of objects that are to be repaired, or can't be.
    pub(super) fn bad_copies(&self, members: usize) -> usize {
        self.jobs.iter().map(|j| j.bad.len()).sum::<usize>() + self.lost.len() * members
    }

    /// Whether all of a member's copies are good, except for objects that nobody has.
    pub(super) fn is_whole(&self, member: OsdId) -> bool {
        !self.jobs.iter().any(|j| j.bad.contains(&member))
    }

    /// What repairs wait for.
    pub(super) fn waits_for(&self) -> Option<String> {
        let first = self.jobs.front()?;
        Some(format!(
            "{} to be repaired, of {} objects that members can't read",
            key::named(&first.key),
            self.jobs.len()
        ))
    }

    /// Whether an object is repaired, or is to be.
    pub(super) fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }
}
