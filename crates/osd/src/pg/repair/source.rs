//! The source's side of a repair: gives an object to another member.

use bytes::Bytes;
use spirula_invariant::dropped;
use spirula_maps::OsdId;

use super::Asked;
use super::mending::Mending;
use super::message::{FoundPart, Place, RepairBody};
use crate::pg::coded;
use crate::pg::copying::parts::Parts;
use crate::pg::layout::{Part, Shape};
use crate::pg::object::ObjectInfo;
use crate::pg::output::{Ctx, StoreReply};
use crate::pg::perf::DropReason;
use crate::pg::push::Push;
use crate::pg::store_queue::Pending;

impl Mending<'_> {
    /// Handles a member's question for part of an object. The primary sees to it that the object
    /// does not change meanwhile.
    pub(super) fn repair_read(
        &mut self,
        (by, number): (OsdId, u32),
        key: Bytes,
        from: Place,
        (parts, anew): (&[(OsdId, Part)], bool),
        cx: &mut Ctx<'_>,
    ) {
        if !self.role.is_active() && !self.role.is_active_replica() {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = by);
        }
        let of_asker = parts.iter().find(|(o, _)| *o == by);
        let part = of_asker.map(|(_, part)| *part).unwrap_or_default();
        if part.layout != self.store.layout() {
            return dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.site.pgid, from = by);
        }
        let shape = self.site.backend.shape(part);
        // What is wrong at the member that asks is not to be made of itself.
        let is_source = |o: OsdId| o != self.site.whoami && !(anew && o == by);
        let others = parts.iter().filter(|(o, _)| is_source(*o));
        let asked = Asked {
            by,
            number,
            key: key.clone(),
            from: from.clone(),
            of: (shape, coded::holders(others.copied())),
            chunk: self.site.cfg.push_window.chunk,
            part: Parts::from_place(key.clone(), shape, from),
        };
        self.store.look_up(key, Pending::Repair(Box::new(asked)), cx);
    }

    /// Handles the store's answer about that object.
    pub(in crate::pg) fn repair_store(&mut self, mut asked: Box<Asked>, reply: StoreReply, cx: &mut Ctx<'_>) {
        let most = self.site.cfg.max_part_logged;
        let found = match reply {
            StoreReply::Object(Ok(Some(o))) => {
                let Some(info) = info_of(&o.info) else {
                    return self.send_part(&asked, None, cx);
                };
                asked.part.set_object(o, info, None);
                let wants = asked.part.wants(asked.chunk);
                if !wants.is_empty() {
                    let (key, of) = (asked.key.clone(), asked.of.clone());
                    let (what, store) = (Pending::Repair(asked), &mut *self.store);
                    let asks = self.site.backend.read_as(of, (key, wants), what, store, cx);
                    return self.outbox.ask(self.id, asks, cx);
                }
                asked.part.part(Vec::new(), most)
            }
            StoreReply::Fetched(answers, _) => asked.part.part(answers, most),
            // As all members have the same objects, one that is not here is lost.
            _ => return self.send_part(&asked, None, cx),
        };
        if found.is_err() && asked.of.0 != Shape::Whole && asked.halve() {
            let key = asked.key.clone();
            return self.store.look_up(key, Pending::Repair(asked), cx);
        }
        let found = found.ok().and_then(|part| {
            Some(FoundPart {
                version: asked.part.version()?,
                next: asked.part.place(),
                push: Push {
                    key: asked.key.clone(),
                    part: part.part,
                },
            })
        });
        self.send_part(&asked, found, cx);
    }

    fn send_part(&mut self, asked: &Asked, found: Option<FoundPart>, cx: &mut Ctx<'_>) {
        let number = asked.number;
        self.outbox
            .send_repair(asked.by, self.id, RepairBody::Part { number, found }, true, cx);
    }
}

/// An object's decoded info, if it is sound.
fn info_of(info: &[u8]) -> Option<ObjectInfo> {
    spirula_denc::decode_all(info).ok()
}
