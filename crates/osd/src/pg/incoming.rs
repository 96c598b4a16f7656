//! The target's side of a turn: few PGs copy to an OSD at a time (`osd_max_backfills`), the most
//! urgent first.
//!
//! A primary needs its own turn before it asks the target for one. A PG that has both copies, and
//! waits for nobody: so PGs never wait for each other in a circle. A turn ends with the interval,
//! with the connection, or when the primary says so.

use super::message::{PeerBody, PeeringId};
use super::outbox::Outbox;
use super::output::Ctx;
use spirula_invariant::invariant;
use spirula_maps::OsdId;

/// A primary that copies to this OSD, or wants to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bid {
    primary: OsdId,
    id: PeeringId,
    priority: u8,
    granted: bool,
}

/// The turn on this OSD, and the primary that wants or has it.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    bid: Option<Bid>,
}

impl Incoming {
    /// Handles a primary's request for its turn to copy to this OSD.
    pub(super) fn wanted(&mut self, primary: OsdId, id: PeeringId, priority: u8) {
        self.bid = Some(Bid {
            primary,
            id,
            priority,
            granted: false,
        });
    }

    /// Handles the end of the primary's turn: it needs it no more, or the connection with it is
    /// lost.
    pub(super) fn released(&mut self, primary: OsdId) {
        if self.bid.is_some_and(|i| i.primary == primary) {
            self.bid = None;
        }
    }

    /// The urgency of the copy to this OSD, if a primary wants one, and whether that has its turn.
    pub(super) fn bid(&self) -> Option<(u8, bool)> {
        self.bid.map(|i| (i.priority, i.granted))
    }

    /// Grants the turn to the primary that wants to copy to this OSD.
    pub(super) fn grant(&mut self, outbox: &mut Outbox, cx: &mut Ctx<'_>) {
        if let Some(i) = &mut self.bid {
            invariant!(!i.granted, "a turn to be granted once"; primary = i.primary, epoch = i.id.epoch);
            i.granted = true;
            outbox.send(i.primary, i.id, PeerBody::Reserved, true, cx);
        }
    }

    /// Revokes the turn because others come first. The primary asks again.
    pub(super) fn revoke(&mut self, outbox: &mut Outbox, cx: &mut Ctx<'_>) {
        if let Some(i) = self.bid.take() {
            outbox.send(i.primary, i.id, PeerBody::Revoked, true, cx);
        }
    }
}
