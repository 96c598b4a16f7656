//! The replica's side: answers the primary's questions, applies its writes.

pub(super) mod handler;
pub(super) mod read;

use spirula_maps::EVersion;

/// A member that is not primary.
#[derive(Debug, Default)]
pub(super) struct Replica {
    /// Whether it was activated in this attempt at peering.
    pub(super) active: bool,
    /// Up to where its log is durable.
    pub(super) committed: EVersion,
    /// Lets it answer reads.
    pub(super) share: Share,
}

/// A member's share in its primary's lease.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// Until when reads may be answered, in microseconds of this OSD's clock.
    pub(super) until: u64,
    /// When it was asked for; 0 when it was not.
    asked: u64,
    /// Up to where the log is durable on all members.
    stable: EVersion,
    /// The primary's map when it gave the share.
    epoch: u32,
}

impl Share {
    /// The primary says that everything up to `v` is durable on all members.
    pub(super) fn note_stable(&mut self, v: EVersion) {
        self.stable = self.stable.max(v);
    }
}
