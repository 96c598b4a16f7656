//! The replica's side: answers the primary's questions, applies its writes.

pub(super) mod handler;
pub(super) mod read;

use spirula_denc::Micros;
use spirula_maps::{EVersion, Epoch, OsdId};

use super::ahead::placed::PlacedAhead;
use super::coded::want::FragmentWant;
use super::message::PeeringId;

/// A member that is not primary.
#[derive(Debug, Default)]
pub(super) struct Replica {
    /// Whether the replica was activated in this attempt at peering.
    pub(super) active: bool,
    /// The version up to which its log is durable.
    pub(super) committed: EVersion,
    /// The share in the primary's lease, with which it answers reads.
    pub(super) share: Share,
    /// Questions of the primary for a later version than the copy has: a write before them is on
    /// its way.
    pub(super) early: Vec<(OsdId, PeeringId, FragmentWant)>,
    /// Data that is on the disk ahead of the primary's changes.
    pub(super) ahead: PlacedAhead,
}

/// A member's share in its primary's lease.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// Until when reads may be answered by this OSD's clock.
    pub(super) until: Micros,
    /// When the share was asked for; 0 if it was not.
    asked: Micros,
    /// The version up to which the log is durable on all members.
    stable: EVersion,
    /// The epoch of the primary's map when it gave the share.
    epoch: Epoch,
}

impl Share {
    /// Notes that everything up to `v` is durable on all members, as the primary says.
    pub(super) fn note_stable(&mut self, v: EVersion) {
        self.stable = self.stable.max(v);
    }
}
