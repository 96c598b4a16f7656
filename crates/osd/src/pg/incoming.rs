//! The target's side of a turn: few PGs copy to an OSD at a time (`osd_max_backfills`), the most urgent first.
//!
//! A turn on the primary is asked for first, then one on the target. Who has both copies, and waits for nobody: so there is no
//! circle of PGs that wait for each other. A turn ends with the interval, with the connection, or when the primary says so.

use super::Pg;
use super::message::{PeerBody, PeeringId};
use super::output::Ctx;
use super::role::Role;

/// A primary that copies to this OSD, or would like to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Incoming {
    primary: i32,
    id: PeeringId,
    priority: u8,
    granted: bool,
}

impl Pg {
    /// A primary asks whether it is its turn to copy to this OSD.
    pub(super) fn turn_wanted(&mut self, from: i32, id: PeeringId, priority: u8) {
        let to_be = matches!(self.role, Role::Stray) && self.site.is_to_be_here();
        if to_be && self.site.is_leader(from, id) {
            self.copying.incoming = Some(Incoming {
                primary: from,
                id,
                priority,
                granted: false,
            });
        }
    }

    /// The primary needs its turn no more, or the connection with it is lost.
    pub(super) fn turn_released(&mut self, primary: i32) {
        if self.copying.incoming.is_some_and(|i| i.primary == primary) {
            self.copying.incoming = None;
        }
    }

    /// How urgent it is to copy to this OSD, if anybody wants to, and whether that has its turn.
    pub fn incoming_bid(&self) -> Option<(u8, bool)> {
        self.copying.incoming.map(|i| (i.priority, i.granted))
    }

    /// It is the turn of who wants to copy to this OSD.
    pub fn grant_incoming(&mut self, cx: &mut Ctx<'_>) {
        if let Some(i) = &mut self.copying.incoming {
            i.granted = true;
            let (primary, id) = (i.primary, i.id);
            self.outbox.send(primary, id, PeerBody::Reserved, true, cx);
        }
    }

    /// Others come first. The primary asks again.
    pub fn revoke_incoming(&mut self, cx: &mut Ctx<'_>) {
        if let Some(i) = self.copying.incoming.take() {
            self.outbox.send(i.primary, i.id, PeerBody::Revoked, true, cx);
        }
    }
}
