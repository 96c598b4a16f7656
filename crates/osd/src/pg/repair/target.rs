//! The target's side of a repair: the member whose object is repaired.

use bytes::Bytes;
use spirula_invariant::{dropped, impossible, invariant};
use spirula_maps::OsdId;

use super::Patient;
use super::mending::Mending;
use super::message::{FoundPart, Outcome, Place, RepairBody};
use crate::pg::copying::parts::part_changes;
use crate::pg::key;
use crate::pg::layout::Part;
use crate::pg::output::{Claim, Ctx};
use crate::pg::perf::DropReason;
use crate::pg::push::{PushEnd, PushPart};
use crate::pg::store_queue::Commit;
use crate::pg::txn::{ObjectOp, Txn, is_storable, log_bytes};

impl Mending<'_> {
    /// Handles the primary's order to take an object from another member.
    pub(super) fn repair_wanted(
        &mut self,
        from: OsdId,
        number: u32,
        key: Bytes,
        (source, parts, anew): (OsdId, Vec<(OsdId, Part)>, bool),
        cx: &mut Ctx<'_>,
    ) {
        let is_own = from == self.site.whoami && self.role.is_active();
        let is_led = self.role.is_active_replica() && self.site.is_leader(from, self.id);
        if !is_own && !is_led {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
        self.copying.patient = Some(Patient {
            number,
            key,
            source,
            parts,
            anew,
            version: None,
            next: Place::default(),
            whole: false,
        });
        self.ask_for_rest(cx);
    }

    fn ask_for_rest(&mut self, cx: &mut Ctx<'_>) {
        let Some(p) = &self.copying.patient else {
            impossible!("an object that is repaired to be known here"; pg = self.site.pgid, epoch = self.site.map.epoch());
        };
        invariant!(!p.whole, "an object to lack something that more of it is asked for"; pg = self.site.pgid, epoch = self.site.map.epoch(), object = key::named(&p.key));
        let body = RepairBody::Read {
            number: p.number,
            key: p.key.clone(),
            from: p.next.clone(),
            parts: p.parts.clone(),
            anew: p.anew,
        };
        let source = p.source;
        self.outbox.send_repair(source, self.id, body, false, cx);
    }

    fn tell_repair(&mut self, outcome: Outcome, cx: &mut Ctx<'_>) {
        let Some(p) = &self.copying.patient else {
            impossible!("a repair that is told of to be under way here"; pg = self.site.pgid, epoch = self.site.map.epoch());
        };
        let (primary, number) = (self.site.leader(), p.number);
        if outcome != Outcome::Working {
            self.copying.patient = None;
        }
        self.outbox
            .send_repair(primary, self.id, RepairBody::Told(number, outcome), true, cx);
    }

    /// Handles a part of the object.
    pub(super) fn repair_part(
        &mut self,
        from: OsdId,
        number: u32,
        found: Option<FoundPart>,
        cx: &mut Ctx<'_>,
    ) {
        let awaited = |p: &&mut Patient| p.number == number && p.source == from && !p.whole;
        let Some(p) = self.copying.patient.as_mut().filter(awaited) else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = self.site.pgid, from = from);
        };
        let Some(found) = found else {
            return self.tell_repair(Outcome::SourceUnreadable, cx);
        };
        if *p.version.get_or_insert(found.version) != found.version || p.key != found.push.key {
            return self.tell_repair(Outcome::Failed, cx);
        }
        let PushPart::Data {
            first,
            pieces,
            pairs,
            last,
            ..
        } = found.push.part
        else {
            return dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.site.pgid, from = from);
        };
        p.next = found.next;
        p.whole = last.as_ref().is_some_and(PushEnd::is_whole);
        let (whole, key) = (p.whole, p.key.clone());
        let (changes, snaps) = part_changes(first, None, pieces, pairs, last);
        let stage = key::repair_key(self.site.pgid);
        let mut txn = Txn {
            objects: vec![(stage.clone(), changes)],
            meta: Vec::new(),
        };
        if whole {
            if !self.role.is_active() {
                self.ops
                    .overtake_reads(&key::named(&key), self.site, self.store, cx);
            }
            let mut becomes = vec![ObjectOp::MoveOf(stage)];
            becomes.extend(snaps);
            txn.objects.push((key, becomes));
        }
        if !is_storable(&txn.objects) {
            dropped!(cx.perf.dropped, DropReason::PeerUnsound);
            return self.repair_refused(number, cx);
        }
        if log_bytes(&txn.objects) > self.site.cfg.max_push_logged {
            // An OSD that cuts parts by their bytes.
            return self.repair_refused(number, cx);
        }
        self.store
            .submit_claim(txn, Claim::Half, Commit::Repair(number), cx);
    }

    /// Handles the lack of room for a part here.
    pub(in crate::pg) fn repair_refused(&mut self, number: u32, cx: &mut Ctx<'_>) {
        if self.copying.patient.as_ref().is_some_and(|p| p.number == number) {
            let stage = (key::repair_key(self.site.pgid), vec![ObjectOp::Remove]);
            let txn = Txn {
                objects: vec![stage],
                meta: Vec::new(),
            };
            self.store.submit(txn, Commit::Record, cx);
            self.tell_repair(Outcome::Failed, cx);
        }
    }

    /// Goes on after a part is durable here.
    pub(in crate::pg) fn repair_committed(&mut self, number: u32, cx: &mut Ctx<'_>) {
        let Some(p) = self.copying.patient.as_ref().filter(|p| p.number == number) else {
            return dropped!(cx.perf.dropped, DropReason::StoreLate; pg = self.site.pgid);
        };
        if p.whole {
            cx.perf.repaired += 1;
            return self.tell_repair(Outcome::Done, cx);
        }
        self.tell_repair(Outcome::Working, cx);
        self.ask_for_rest(cx);
    }

    /// Handles the loss of a connection to or from another OSD.
    pub(super) fn patient_reset(&mut self, osd: OsdId, cx: &mut Ctx<'_>) {
        if self
            .copying
            .patient
            .as_ref()
            .is_some_and(|p| p.source == osd && !p.whole)
        {
            self.tell_repair(Outcome::Failed, cx);
        }
    }
}
