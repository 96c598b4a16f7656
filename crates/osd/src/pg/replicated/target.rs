//! A member whose copy is brought up to the newest one. Until the PG is activated its copy counts as incomplete.

pub(in crate::pg) mod handler;

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_maps::EVersion;

/// The state of a target.
#[derive(Debug, Default)]
pub(in crate::pg) struct SyncTarget {
    /// The scan that is being compared.
    scan: Option<Scan>,
    /// Whether there was no room for a push: only removals are accepted in this attempt.
    refuses: bool,
}

#[derive(Debug)]
struct Scan {
    source: i32,
    /// Where listing the own objects goes on, and ends.
    to: Bytes,
    /// The holder's objects, without those found equal.
    theirs: BTreeMap<Bytes, EVersion>,
}
