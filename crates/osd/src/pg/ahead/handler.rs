//! Sends data ahead of changes, and takes it.

use std::collections::BTreeSet;

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_invariant::{dropped, impossible, invariant};
use spirula_maps::OsdId;
use spirula_proto::internal::Edition;

use super::BLOCK;
use super::placed::AskedToPlace;
use super::placing::Placing;
use super::ticket::Ahead;
use crate::pg::layout::Layout;
use crate::pg::message::{PeerBody, PeeringId};
use crate::pg::op::ClientOp;
use crate::pg::output::{Ctx, Output};
use crate::pg::perf::DropReason;
use crate::pg::placed_data::PlacedData;
use crate::pg::reading::Reading;
use crate::pg::replica::handler::Following;
use crate::pg::role::Role;
use crate::pg::serving::Serving;
use crate::pg::store_queue::Pending;

/// Has the data of clients' writes placed ahead of their changes.
pub(in crate::pg) struct PlacingAhead<'a> {
    pub(in crate::pg) serving: Serving<'a>,
}

impl PlacingAhead<'_> {
    /// Whether data may go to the members ahead of changes: they have all of each object, and know
    /// what to do with it.
    fn may_place_ahead(&self, cx: &Ctx<'_>) -> bool {
        let Role::Active(a) = &*self.serving.role else {
            return false;
        };
        let knows = |osd: OsdId| cx.versions.to(osd) == Edition::Current;
        self.serving.store.layout() == Layout::Whole && a.peers.iter().all(|(osd, _)| knows(*osd))
    }

    /// Has the data of an op placed on all members, if they can do that; the op is the first in its
    /// object's queue then. It has its object to itself meanwhile, so that its order among the
    /// object's ops stays.
    pub(in crate::pg) fn place_ahead(
        &mut self,
        key: &Bytes,
        mut op: ClientOp,
        data: Bytes,
        cx: &mut Ctx<'_>,
    ) {
        let may_place = self.may_place_ahead(cx);
        if let Some(c) = self.serving.ops.contexts.find(key) {
            if !may_place {
                op.taken.ahead = Some(Box::default());
                return c.queue.push_front(op);
            }
            c.exclusive = true;
        }
        let number = self
            .serving
            .store
            .token(Pending::Op(Box::new(Reading::new(key, op))))
            .seq();
        let token = self.serving.store.token(Pending::Ahead(number));
        cx.out.push(Output::Place {
            token,
            data: data.clone(),
        });
        let Role::Active(a) = &mut *self.serving.role else {
            impossible!("a primary that serves, to place data ahead"; pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch());
        };
        for (osd, _) in &a.peers {
            let data = data.clone();
            self.serving.outbox.send(
                *osd,
                self.serving.lead.id,
                PeerBody::Ahead { number, data },
                false,
                cx,
            );
        }
        let placing = Placing {
            left: a.peers.iter().map(|(osd, _)| *osd).collect(),
            here: true,
            begun: cx.usec,
            ahead: Ahead {
                number,
                data,
                members: BTreeSet::new(),
                here: None,
            },
        };
        let other = a.aheads.0.insert(number, placing);
        invariant!(other.is_none(), "data that goes ahead to have a number of its own"; pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch(), number = number);
    }

    /// Handles that this OSD's store has placed data, or has no room for it.
    pub(in crate::pg) fn placed_here(
        &mut self,
        number: u32,
        placement: Option<PlacedData>,
        cx: &mut Ctx<'_>,
    ) {
        self.on_placing(number, cx, |p| {
            p.here = false;
            p.ahead.here = placement;
        });
    }

    /// Handles that another member has placed data, or has not.
    pub(in crate::pg) fn placed_there(&mut self, from: OsdId, number: u32, done: bool, cx: &mut Ctx<'_>) {
        self.on_placing(number, cx, |p| {
            if p.left.remove(&from) && done {
                p.ahead.members.insert(from);
            }
        });
    }

    /// Handles the loss of a connection with a member: the data, or its answer, may be lost. The
    /// member is sent the data with the change.
    pub(in crate::pg) fn ahead_reset(&mut self, osd: OsdId, cx: &mut Ctx<'_>) {
        let Role::Active(a) = &*self.serving.role else {
            return; // Only a primary that serves sends data ahead.
        };
        for number in a.aheads.of(osd) {
            self.placed_there(osd, number, false, cx);
        }
    }

    /// Gives up waiting for members that have not answered for long.
    pub(in crate::pg) fn ahead_tick(&mut self, patience: Micros, cx: &mut Ctx<'_>) {
        let Role::Active(a) = &*self.serving.role else {
            return; // Only a primary that serves sends data ahead.
        };
        let late = a
            .aheads
            .0
            .iter()
            .filter(|(_, p)| cx.usec.saturating_sub(p.begun) > patience);
        let late: Vec<u32> = late.map(|(number, _)| *number).collect();
        for number in late {
            self.on_placing(number, cx, |p| p.left.clear());
        }
    }

    fn on_placing(&mut self, number: u32, cx: &mut Ctx<'_>, f: impl FnOnce(&mut Placing)) {
        let Role::Active(a) = &mut *self.serving.role else {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.serving.site.pgid, number = number);
        };
        let Some(placing) = a.aheads.0.get_mut(&number) else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = self.serving.site.pgid, number = number);
        };
        f(placing);
        if placing.here || !placing.left.is_empty() {
            return; // The last answer ends here again.
        }
        let placed = a.aheads.0.remove(&number);
        let waiting = self.serving.store.pending.remove(&number);
        let (Some(placing), Some(Pending::Op(mut r))) = (placed, waiting) else {
            impossible!("data to go ahead for an op that waits"; pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch(), number = number);
        };
        r.op.taken.ahead = Some(Box::new(placing.ahead));
        let Some(c) = self.serving.ops.contexts.find(&r.key) else {
            impossible!("an object whose op waits for its data to be in use"; pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch(), number = number);
        };
        c.exclusive = false;
        c.queue.push_front(r.op);
        self.serving.pump(&r.key, cx);
    }
}

impl Serving<'_> {
    /// The handler of data that goes ahead of changes.
    pub(in crate::pg) fn placing_ahead(&mut self) -> PlacingAhead<'_> {
        PlacingAhead {
            serving: self.reborrow(),
        }
    }
}

impl Following<'_> {
    /// Places data for a change to come.
    pub(in crate::pg) fn ahead(
        &mut self,
        from: OsdId,
        id: PeeringId,
        number: u32,
        data: Bytes,
        cx: &mut Ctx<'_>,
    ) {
        let len = data.len() as u64;
        let is_sound =
            len.is_multiple_of(BLOCK) && len >= 2 * BLOCK && data.len() <= self.site.cfg.max_write_size;
        if !self.replica.active || !self.site.is_leader(from, id) {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
        if !is_sound {
            return dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.site.pgid, from = from);
        }
        let asked = AskedToPlace {
            by: from,
            id,
            number,
            len,
        };
        let token = self.store.token(Pending::AheadOf(asked));
        cx.out.push(Output::Place { token, data });
    }

    /// Handles that this OSD's store has placed data for the primary, or has no room for it.
    pub(in crate::pg) fn placed_ahead(
        &mut self,
        asked: AskedToPlace,
        placement: Option<PlacedData>,
        cx: &mut Ctx<'_>,
    ) {
        let AskedToPlace { by, id, number, .. } = asked;
        let done = placement.is_some();
        if let Some(placement) = placement {
            self.replica.ahead.note(asked, placement, cx.usec);
        }
        self.outbox
            .send(by, id, PeerBody::Placed { number, done }, true, cx);
    }
}
