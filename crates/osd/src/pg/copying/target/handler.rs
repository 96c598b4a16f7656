//! Brings this OSD's copy up to the holder's.

use std::collections::VecDeque;

use bytes::Bytes;
use spirula_denc::decode_all;
use spirula_invariant::{dropped, invariant};
use spirula_maps::{EVersion, OsdId, snap};

use super::{Pushed, Scan, SyncTarget};
use crate::pg::bug::{Bug, effect};
use crate::pg::copying::parts::{self, part_changes};
use crate::pg::fetch::ReadError;
use crate::pg::info::PgInfo;
use crate::pg::key::{self, KeyRange};
use crate::pg::layout::Part;
use crate::pg::log::LogEntry;
use crate::pg::message::{LogUpdate, PeerBody, PeeringId, RepOp};
use crate::pg::object::{ObjectInfo, StoredObject, forget_clone, removal};
use crate::pg::outbox::Outbox;
use crate::pg::output::{Claim, Ctx, Page};
use crate::pg::perf::DropReason;
use crate::pg::push::{Push, PushPart};
use crate::pg::role::Role;
use crate::pg::site::Site;
use crate::pg::store_queue::{Commit, Pending, StoreQueue};
use crate::pg::stored_copy::StoredCopy;
use crate::pg::txn::{MetaOp, ObjectOp, Txn, is_storable, log_bytes};

/// Own objects listed in one step of a comparison.
const PAGE: usize = 512;

/// The target's side of a copy. May change the copy here, but nothing that clients see.
pub(in crate::pg) struct Receiving<'a> {
    pub(in crate::pg) site: &'a Site,
    pub(in crate::pg) copy: &'a mut StoredCopy,
    pub(in crate::pg) store: &'a mut StoreQueue,
    pub(in crate::pg) outbox: &'a mut Outbox,
    pub(in crate::pg) role: &'a Role,
    /// The attempt at peering that this OSD follows.
    pub(in crate::pg) id: PeeringId,
    pub(in crate::pg) target: &'a mut Option<SyncTarget>,
}

impl Receiving<'_> {
    /// Whether a holder may change this copy: this OSD is a member of the attempt at peering, or is
    /// to be one.
    fn is_target(&self, id: PeeringId) -> bool {
        let to_be = matches!(self.role, Role::Stray) && self.site.is_to_be_here();
        // One that takes part has all already.
        let is_member = match self.role {
            Role::Replica(r) => !r.active,
            role => matches!(role, Role::Peering(_)),
        };
        id == self.id && (to_be || is_member)
    }

    /// Whether a holder may have changes made again here: a copy that belongs elsewhere may be needed
    /// to make others.
    fn may_redo(&self, id: PeeringId) -> bool {
        self.is_target(id) || id == self.id && matches!(self.role, Role::Stray)
    }

    /// Marks the copy as a mixture of versions, durably before anything else.
    fn mark_incomplete(&mut self, cx: &mut Ctx<'_>) {
        // In a transaction of its own: one with a push may be refused.
        let mut record = Txn::default();
        self.copy.mark_incomplete(self.site.pgid, &mut record);
        self.target.get_or_insert_default();
        self.store.record(record, cx);
    }

    /// Handles the holder's word which part of each object this copy is to hold. Objects of which it
    /// has another part are of no use.
    pub(in crate::pg) fn take(&mut self, from: OsdId, id: PeeringId, part: Part, cx: &mut Ctx<'_>) {
        if !self.is_target(id) {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
        let keeps = self.site.cfg.has_bug(Bug::KeptRole);
        let has_another = self.copy.exists && self.copy.info.part != part && !keeps;
        self.target.get_or_insert_default().has_another = has_another;
        // Until all are replaced the copy holds no one part.
        let now = if has_another {
            Part::mixed(part.layout)
        } else {
            part
        };
        if self.copy.info.part != now {
            self.copy.info.part = now;
            self.copy.info.incomplete = false;
        }
        self.mark_incomplete(cx);
    }

    /// Handles a change that this copy is to make again.
    pub(in crate::pg) fn redo(&mut self, source: OsdId, id: PeeringId, op: RepOp, cx: &mut Ctx<'_>) {
        if !self.may_redo(id) {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = source);
        }
        let RepOp {
            prev, entry, mut txn, ..
        } = op;
        let decoded = decode_all::<LogEntry>(&entry).ok();
        let is_sound = is_storable(&txn.objects) && !self.copy.info.incomplete && self.copy.exists;
        let Some(e) = decoded.filter(|_| is_sound) else {
            return dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.site.pgid, from = source);
        };
        if prev != self.copy.info.last_update || e.version <= prev {
            return dropped!(cx.perf.dropped, DropReason::PeerGap; pg = self.site.pgid, version = e.version);
        }
        let (pgid, v) = (self.site.pgid, e.version);
        if self.site.cfg.has_bug(Bug::EarlySweep) {
            effect::sweep(self.site, &self.copy.staged, self.store, cx);
        }
        let before = self.copy.note_redo(pgid, v, EVersion::ZERO, &mut txn);
        self.store.record(before, cx);
        txn.meta.push(MetaOp::Put(key::log_key(pgid, v), entry));
        self.copy.note_entry(e);
        let begun = None;
        if self.site.cfg.has_bug(Bug::TwiceAdded) {
            effect::add_early(self.store, &txn, cx);
        }
        self.store.submit(txn, Commit::Push { id, source, begun }, cx);
    }

    /// Handles a push of part of an object.
    pub(in crate::pg) fn pushed(&mut self, from: OsdId, id: PeeringId, push: Push, cx: &mut Ctx<'_>) {
        if !self.is_target(id) {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
        if !self.site.range().contains(&push.key) {
            return dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.site.pgid, from = from);
        }
        // A clone is replaced together with the records of the snapshots that it stood for here.
        let replaces = !matches!(push.part, PushPart::Data { first: false, .. });
        let is_clone = key::snap_of(&push.key).is_some_and(|s| s != snap::NOSNAP);
        let (clone, clones) = (push.key.clone(), &mut self.target.get_or_insert_default().clones);
        let pushed = Pushed {
            source: from,
            id,
            push,
        };
        match clones.get_mut(&clone) {
            Some(waiting) => waiting.push_back(pushed),
            None if replaces && is_clone => {
                clones.insert(clone.clone(), VecDeque::from([pushed]));
                self.store.look_up(clone.clone(), Pending::TargetClone(clone), cx);
            }
            None => self.take_push(pushed, &[], cx),
        }
    }

    /// Handles the state of a clone here that a push replaces.
    pub(in crate::pg) fn clone_found(
        &mut self,
        clone: &Bytes,
        found: Result<Option<StoredObject>, ReadError>,
        cx: &mut Ctx<'_>,
    ) {
        let waiting = self.target.as_mut().and_then(|t| t.clones.remove(clone));
        let Some(waiting) = waiting else {
            return dropped!(cx.perf.dropped, DropReason::StoreLate; pg = self.site.pgid);
        };
        // Records of a clone whose info can't be read stay: a trim passes over them.
        let mut replaced = found.ok().flatten().map(|o| o.info).unwrap_or_default();
        for pushed in waiting {
            if !self.is_target(pushed.id) {
                dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = pushed.source);
                continue;
            }
            self.take_push(pushed, &std::mem::take(&mut replaced), cx);
        }
    }

    /// Stores a push, unless there is no room for it. `replaced` is the encoded info of the clone
    /// that the push replaces here, empty if there is none.
    fn take_push(&mut self, pushed: Pushed, replaced: &[u8], cx: &mut Ctx<'_>) {
        let Pushed { source, id, push } = pushed;
        let is_background = matches!(self.role, Role::Stray);
        if let PushPart::Data { first, .. } = push.part {
            let is_full = is_background && cx.full.contains(&self.site.whoami);
            if is_full || self.target.as_ref().is_some_and(|t| t.refuses) {
                return self.refuse_push(id, source, (!first).then_some(push.key), cx);
            }
        }
        self.mark_incomplete(cx);
        let (key, mut txn, mut begun, mut forget) = (push.key, Txn::default(), None, None);
        let mut claim = if is_background { Claim::None } else { Claim::Half };
        let ops = match push.part {
            PushPart::Absent => {
                claim = Claim::All;
                removal(replaced)
            }
            PushPart::Data {
                first,
                pieces,
                pairs,
                last,
                patch,
            } => {
                let (mut ops, snaps) = part_changes(first, patch, pieces, pairs, last);
                ops.extend(snaps);
                forget = forget_clone(replaced);
                begun = (!first).then(|| key.clone());
                ops
            }
        };
        txn.objects.push((key.clone(), ops));
        if !is_storable(&txn.objects) {
            return dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.site.pgid, from = source);
        }
        if log_bytes(&txn.objects) > self.site.cfg.max_push_logged {
            // An OSD that cuts parts by their bytes: others may bring this copy up.
            return self.refuse_push(id, source, begun, cx);
        }
        // A crash between two pushes must not leave a mixture that counts as a copy.
        invariant!(
            self.copy.exists && self.copy.info.incomplete,
            "a copy to be marked incomplete before a push changes it";
            pg = self.site.pgid, epoch = self.site.map.epoch()
        );
        if let Some(forget) = forget {
            // In a transaction of its own, as the records may be many. Until the last part of the
            // push the clone has no info.
            let half = vec![ObjectOp::SetInfo(Bytes::new()), forget];
            let (objects, meta) = (vec![(key.clone(), half)], Vec::new());
            self.store.submit(Txn { objects, meta }, Commit::Record, cx);
            begun = Some(key);
        }
        self.store
            .submit_claim(txn, claim, Commit::Push { id, source, begun }, cx);
    }

    /// Handles the store's lack of room for a push.
    pub(in crate::pg) fn push_refused_here(
        &mut self,
        id: PeeringId,
        source: OsdId,
        begun: Option<Bytes>,
        cx: &mut Ctx<'_>,
    ) {
        if !self.is_target(id) {
            return dropped!(cx.perf.dropped, DropReason::StoreLate; pg = self.site.pgid, from = source);
        }
        self.refuse_push(id, source, begun, cx);
    }

    /// Answers that there is no room for a push, and removes the object if parts of it were stored.
    /// Those have no info, so that no record of a snapshot belongs to the object.
    fn refuse_push(&mut self, id: PeeringId, source: OsdId, begun: Option<Bytes>, cx: &mut Ctx<'_>) {
        self.target.get_or_insert_default().refuses = true;
        // Of a copy that is as its log says nothing was changed.
        if let Some(key) = begun.filter(|_| self.copy.info.incomplete) {
            let txn = Txn {
                objects: vec![(key, vec![ObjectOp::Remove])],
                meta: Vec::new(),
            };
            self.store.submit(txn, Commit::Record, cx);
        }
        self.outbox.send(source, id, PeerBody::PushRefused, true, cx);
    }

    pub(in crate::pg) fn push_committed(&mut self, id: PeeringId, source: OsdId, cx: &mut Ctx<'_>) {
        if !self.may_redo(id) {
            return dropped!(cx.perf.dropped, DropReason::StoreLate; pg = self.site.pgid, from = source);
        }
        self.outbox.send(source, id, PeerBody::PushAck, true, cx);
    }

    /// Handles the holder's list of its objects in a range of keys.
    pub(in crate::pg) fn scan(
        &mut self,
        source: OsdId,
        id: PeeringId,
        from: Bytes,
        to: Bytes,
        objects: Vec<(Bytes, EVersion)>,
        cx: &mut Ctx<'_>,
    ) {
        if !self.is_target(id) {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = source);
        }
        self.mark_incomplete(cx);
        if let Some(t) = self.target {
            t.scan = Some(Scan {
                source,
                to: to.clone(),
                theirs: objects.into_iter().collect(),
            });
        }
        self.store.list(KeyRange { from, to }, PAGE, Pending::Target, cx);
    }

    /// Compares the own objects in that range.
    pub(in crate::pg) fn target_scanned(&mut self, r: Result<Page, ReadError>, cx: &mut Ctx<'_>) {
        let has_another = self.target.as_ref().is_some_and(|t| t.has_another);
        let Some(scan) = self.target.as_mut().and_then(|t| t.scan.as_mut()) else {
            return dropped!(cx.perf.dropped, DropReason::StoreLate; pg = self.site.pgid);
        };
        let Ok((mine, next)) = r else {
            // Objects that can't be listed can't be compared: the attempt stalls, and the operator
            // finds it in the log.
            return;
        };
        let mut removed = Vec::new();
        for (key, info) in mine {
            let version = decode_all::<ObjectInfo>(&info).ok().map(|i| i.version);
            match scan.theirs.get(&key) {
                Some(v) if Some(*v) == version && !has_another => drop(scan.theirs.remove(&key)),
                Some(_) => {}
                None => removed.push((key, removal(&info))),
            }
        }
        let (source, to) = (scan.source, scan.to.clone());
        let needed = match next {
            Some(_) => Vec::new(),
            None => std::mem::take(&mut scan.theirs).into_keys().collect(),
        };
        for objects in parts::divide(removed, self.site.cfg.max_part_logged) {
            let meta = Vec::new();
            self.store.submit(Txn { objects, meta }, Commit::Record, cx);
        }
        if let Some(from) = next {
            invariant!(from < to, "a page of the store to end in the range that was listed"; pg = self.site.pgid, epoch = self.site.map.epoch());
            return self.store.list(KeyRange { from, to }, PAGE, Pending::Target, cx);
        }
        if let Some(t) = self.target {
            t.scan = None;
        }
        self.outbox
            .send(source, self.id, PeerBody::ScanAck(needed), true, cx);
    }

    /// Handles the primary's word that the copy is complete up to a version.
    pub(in crate::pg) fn copied(
        &mut self,
        from: OsdId,
        id: PeeringId,
        info: PgInfo,
        log: LogUpdate,
        cx: &mut Ctx<'_>,
    ) {
        if !log.is_sound(info.last_update) {
            return dropped!(cx.perf.dropped, DropReason::PeerUnsound; pg = self.site.pgid, from = from);
        }
        match self.role {
            Role::Stray if self.site.is_leader(from, id) => {
                let what = Commit::Activate { id, primary: from };
                *self.target = None;
                self.copy.activate(self.site, (info, log), what, self.store, cx);
            }
            _ => dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from),
        }
    }
}
