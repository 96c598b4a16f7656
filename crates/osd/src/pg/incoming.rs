//! The target's side of a turn: few PGs copy to an OSD at a time (`osd_max_backfills`), the most urgent first.
//!
//! A turn on the primary is asked for first, then one on the target. Who has both copies, and waits for nobody: so there is no
//! circle of PGs that wait for each other. A turn ends with the interval, with the connection, or when the primary says so.

use super::message::{PeerBody, PeeringId};
use super::outbox::Outbox;
use super::output::Ctx;
use spirula_invariant::invariant;

/// A primary that copies to this OSD, or would like to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bid {
    primary: i32,
    id: PeeringId,
    priority: u8,
    granted: bool,
}

/// Whom the turn on this OSD is for.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    bid: Option<Bid>,
}

impl Incoming {
    /// A primary asks whether it is its turn to copy to this OSD.
    pub(super) fn wanted(&mut self, primary: i32, id: PeeringId, priority: u8) {
        self.bid = Some(Bid {
            primary,
            id,
            priority,
            granted: false,
        });
    }

    /// The primary needs its turn no more, or the connection with it is lost.
    pub(super) fn released(&mut self, primary: i32) {
        if self.bid.is_some_and(|i| i.primary == primary) {
            self.bid = None;
        }
    }

    /// How urgent it is to copy to this OSD, if anybody wants to, and whether that has its turn.
    pub(super) fn bid(&self) -> Option<(u8, bool)> {
        self.bid.map(|i| (i.priority, i.granted))
    }

    /// It is the turn of who wants to copy to this OSD.
    pub(super) fn grant(&mut self, outbox: &mut Outbox, cx: &mut Ctx<'_>) {
        if let Some(i) = &mut self.bid {
            invariant!(!i.granted, "a turn to be granted once"; primary = i.primary, epoch = i.id.epoch);
            i.granted = true;
            outbox.send(i.primary, i.id, PeerBody::Reserved, true, cx);
        }
    }

    /// Others come first. The primary asks again.
    pub(super) fn revoke(&mut self, outbox: &mut Outbox, cx: &mut Ctx<'_>) {
        if let Some(i) = self.bid.take() {
            outbox.send(i.primary, i.id, PeerBody::Revoked, true, cx);
        }
    }
}
