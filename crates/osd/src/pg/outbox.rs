//! A PG's messages to other OSDs, and to itself.

use std::collections::VecDeque;

use spirula_maps::{OsdId, PgId};

use super::coded::want::FragmentWant;
use super::message::{PeerBody, PeerMessage, PeeringId};
use super::output::{Ctx, Output};
use super::repair::message::RepairBody;

/// Sends a PG's messages.
#[derive(Debug)]
pub(super) struct Outbox {
    pgid: PgId,
    whoami: OsdId,
    /// Messages to this OSD itself, which may be both holder and target, or primary and holder.
    pub(super) to_self: VecDeque<PeerMessage>,
}

impl Outbox {
    /// The outbox of a PG on this OSD.
    pub(super) fn new(pgid: PgId, whoami: OsdId) -> Self {
        Self {
            pgid,
            whoami,
            to_self: VecDeque::new(),
        }
    }

    /// Sends a message of an attempt at peering. `reply`: it is an answer, and goes back on the
    /// connection that the question came from.
    pub(super) fn send(&mut self, osd: OsdId, id: PeeringId, body: PeerBody, reply: bool, cx: &mut Ctx<'_>) {
        let pgid = self.pgid;
        let msg = PeerMessage { pgid, id, body };
        if osd == self.whoami {
            return self.to_self.push_back(msg);
        }
        let msg = cx.versions.write(osd, &msg);
        cx.out.push(Output::Send { osd, msg, reply });
    }

    /// Asks members for parts of their fragments.
    pub(super) fn ask(&mut self, id: PeeringId, wants: Vec<(OsdId, FragmentWant)>, cx: &mut Ctx<'_>) {
        for (osd, want) in wants {
            self.send(osd, id, PeerBody::FragmentWant(want), false, cx);
        }
    }

    /// Sends a message about a repair.
    pub(super) fn send_repair(
        &mut self,
        osd: OsdId,
        id: PeeringId,
        body: RepairBody,
        reply: bool,
        cx: &mut Ctx<'_>,
    ) {
        self.send(osd, id, PeerBody::Repair(body), reply, cx);
    }
}
