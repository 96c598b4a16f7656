//! A member whose copy is brought up to the newest one. Until the PG is activated its copy counts
//! as incomplete.

pub(in crate::pg) mod handler;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use spirula_maps::{EVersion, OsdId};

use crate::pg::message::PeeringId;
use crate::pg::push::Push;

/// The state of a target.
#[derive(Debug, Default)]
pub(in crate::pg) struct SyncTarget {
    /// The scan that is being compared.
    scan: Option<Scan>,
    /// Whether the objects here are of another part than this copy is to hold: all are replaced.
    has_another: bool,
    /// Whether there was no room for a push: only removals are accepted in this attempt.
    refuses: bool,
    /// Clones that pushes replace and that are looked up, with the pushes that wait for it, in
    /// their order.
    clones: BTreeMap<Bytes, VecDeque<Pushed>>,
}

/// A push from a holder.
#[derive(Debug)]
struct Pushed {
    source: OsdId,
    id: PeeringId,
    push: Push,
}

#[derive(Debug)]
struct Scan {
    source: OsdId,
    /// Where listing the own objects goes on, and ends.
    to: Bytes,
    /// The holder's objects, without those found equal.
    theirs: BTreeMap<Bytes, EVersion>,
}
