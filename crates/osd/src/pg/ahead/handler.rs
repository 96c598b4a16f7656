//! Sends data ahead of changes, and takes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::Micros;
use spirula_erasure::{FragmentOp, Step, Unit};
use spirula_invariant::{dropped, impossible, invariant};
use spirula_maps::OsdId;
use spirula_proto::BytesList;
use spirula_proto::internal::Edition;

use super::BLOCK;
use super::placed::AskedToPlace;
use super::placing::{Placing, Waiter};
use super::run::run_ahead;
use super::ticket::{Ahead, Content};
use crate::pg::coded::unit_of;
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

/// The bytes of a write.
fn bytes_of(op: &FragmentOp) -> Option<Bytes> {
    match op {
        FragmentOp::Write { data, .. } => Some(data.clone()),
        _ => None,
    }
}

/// Has the data of clients' writes placed ahead of their changes.
pub(in crate::pg) struct PlacingAhead<'a> {
    pub(in crate::pg) serving: Serving<'a>,
}

impl PlacingAhead<'_> {
    /// Whether all members know what to do with data ahead of changes.
    fn may_place_ahead(&self, cx: &Ctx<'_>) -> bool {
        let Role::Active(a) = &*self.serving.role else {
            return false;
        };
        let knows = |osd: OsdId| cx.versions.to(osd) == Edition::Current;
        a.peers.iter().all(|(osd, _)| knows(*osd))
    }

    /// Has the data of an op placed on all members, if they have all of each object and can do that;
    /// the op is the first in its object's queue then. It has its object to itself meanwhile, so that
    /// its order among the object's ops stays.
    pub(in crate::pg) fn place_ahead(
        &mut self,
        key: &Bytes,
        mut op: ClientOp,
        data: Bytes,
        cx: &mut Ctx<'_>,
    ) {
        let may_place = self.serving.store.layout() == Layout::Whole && self.may_place_ahead(cx);
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
        let there: Vec<_> = self.members().map(|osd| (osd, data.clone().into())).collect();
        let (waiter, here) = (Waiter::Op(number), Some(data.clone()));
        self.begin(number, waiter, Content::Same(data), (here, there), cx);
    }

    /// Has what members stage of a portion of a large change placed on them, as far as it does not
    /// depend on what they have; `seq`: the op that waits for the staging object. Returns whether any
    /// of it is on its way.
    pub(in crate::pg) fn place_portion(&mut self, seq: u32, steps: &[Step], cx: &mut Ctx<'_>) -> bool {
        let bytes: usize = steps.iter().map(Step::bytes).sum();
        let own = unit_of(self.serving.copy.info.part);
        if bytes < self.serving.site.cfg.least_ahead || !self.may_place_ahead(cx) {
            return false;
        }
        let holders = Arc::clone(&self.serving.store.gathers.members);
        let units: Vec<Unit> = holders.keys().copied().chain(own).collect();
        let staged = self.serving.site.backend.staged(steps, &units);
        let run = |unit: Unit| {
            let ops = staged.get(&unit)?;
            let run = run_ahead(ops)?;
            Some(
                ops.get(run.place)?
                    .iter()
                    .filter_map(bytes_of)
                    .collect::<BytesList>(),
            )
        };
        let members: BTreeSet<OsdId> = self.members().collect();
        let there = holders.iter().filter(|(_, osd)| members.contains(osd));
        let there = there.filter_map(|(unit, osd)| Some((*osd, run(*unit)?)));
        let there: Vec<(OsdId, BytesList)> = there.collect();
        let here = own.and_then(run).map(|data| data.to_bytes());
        if here.is_none() && there.is_empty() {
            return false;
        }
        let number = self.serving.store.number();
        let (waiter, content) = (Waiter::Stage(seq), Content::Staged(staged));
        self.begin(number, waiter, content, (here, there), cx);
        true
    }

    /// The other members.
    fn members(&self) -> impl Iterator<Item = OsdId> {
        let Role::Active(a) = &*self.serving.role else {
            impossible!("a primary that serves, to place data ahead"; pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch());
        };
        a.peers.iter().map(|(osd, _)| *osd)
    }

    /// Begins to place data: here, and on other members.
    fn begin(
        &mut self,
        number: u32,
        waiter: Waiter,
        content: Content,
        (here, there): (Option<Bytes>, Vec<(OsdId, BytesList)>),
        cx: &mut Ctx<'_>,
    ) {
        let placing = Placing {
            waiter,
            left: there.iter().map(|(osd, _)| *osd).collect(),
            here: here.is_some(),
            begun: cx.usec,
            ahead: Ahead {
                number,
                content,
                members: BTreeSet::new(),
                here: None,
            },
        };
        if let Some(data) = here {
            let token = self.serving.store.token(Pending::Ahead(number));
            cx.out.push(Output::Place { token, data });
        }
        for (osd, data) in there {
            let (id, body) = (self.serving.lead.id, PeerBody::Ahead { number, data });
            self.serving.outbox.send(osd, id, body, false, cx);
        }
        let Role::Active(a) = &mut *self.serving.role else {
            impossible!("a primary that serves, to place data ahead"; pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch());
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
        let Some(Placing { waiter, ahead, .. }) = a.aheads.0.remove(&number) else {
            impossible!("data that has gone ahead to be on its way"; pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch(), number = number);
        };
        let seq = match waiter {
            Waiter::Op(seq) => seq,
            Waiter::Stage(seq) => return self.serving.staging().portion_placed(seq, Box::new(ahead), cx),
        };
        let Some(Pending::Op(mut r)) = self.serving.store.pending.remove(&seq) else {
            impossible!("data to go ahead for an op that waits"; pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch(), number = number);
        };
        r.op.taken.ahead = Some(Box::new(ahead));
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
        data: BytesList,
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
        let data = data.to_bytes();
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
