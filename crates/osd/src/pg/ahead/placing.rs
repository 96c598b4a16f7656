//! Data that is on its way to the members' disks.

use std::collections::{BTreeMap, BTreeSet};

use spirula_denc::Micros;
use spirula_maps::OsdId;

use super::ticket::Ahead;

/// What waits for data to be on the members' disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiter {
    /// An op, by its place among the pending ones.
    Op(u32),
    /// The staging object that this op waits for.
    Stage(u32),
}

/// Data on its way to the members' disks.
#[derive(Debug)]
pub(super) struct Placing {
    pub(super) waiter: Waiter,
    pub(super) ahead: Ahead,
    /// The other members that have not answered.
    pub(super) left: BTreeSet<OsdId>,
    /// Whether this OSD's store has not answered.
    pub(super) here: bool,
    pub(super) begun: Micros,
}

/// All data on its way, by its number.
#[derive(Debug, Default)]
pub(in crate::pg) struct Aheads(pub(super) BTreeMap<u32, Placing>);

impl Aheads {
    /// Whether the op `seq` waits for its data.
    pub(in crate::pg) fn is_awaited_by(&self, seq: u32) -> bool {
        self.0.values().any(|p| p.waiter == Waiter::Op(seq))
    }

    /// What the first op waits for.
    pub(in crate::pg) fn waits_for(&self) -> Option<String> {
        let (n, first) = (self.0.len(), self.0.values().next()?);
        let mut at: Vec<String> = first.left.iter().map(|osd| format!("osd.{osd}")).collect();
        if first.here {
            at.insert(0, "its store".to_owned());
        }
        Some(format!(
            "{} to have the data of a write on disk, of {n}",
            at.join(", ")
        ))
    }

    /// Those that wait for this member.
    pub(super) fn of(&self, member: OsdId) -> Vec<u32> {
        let waits = self.0.iter().filter(|(_, p)| p.left.contains(&member));
        waits.map(|(number, _)| *number).collect()
    }
}
