//! Brings targets up to the copy here.

use bytes::Bytes;
use spirula_denc::decode_all;
use spirula_invariant::{dropped, impossible, invariant};
use spirula_maps::{EVersion, OsdId};

use super::{Feed, Next, SyncSource};
use crate::pg::backfill::Backfill;
use crate::pg::bug::Bug;
use crate::pg::coded;
use crate::pg::config::Window;
use crate::pg::copying::Copying;
use crate::pg::copying::parts::Part as PushedPart;
use crate::pg::counters::Counters;
use crate::pg::dirty::Dirty;
use crate::pg::fetch::{Fetched, ReadError};
use crate::pg::layout::{Layout, Part};
use crate::pg::log::LogEntry;
use crate::pg::message::{PeerBody, PeeringId, RepOp};
use crate::pg::object::ObjectInfo;
use crate::pg::object::StoredObject;
use crate::pg::outbox::Outbox;
use crate::pg::output::{Ctx, Output, StoreReply};
use crate::pg::pace::Class;
use crate::pg::perf::DropReason;
use crate::pg::push::{Lacking, Push, PushPart, SyncPlan};
use crate::pg::site::Site;
use crate::pg::store_queue::{Pending, StoreQueue};
use crate::pg::stored_copy::StoredCopy;
use crate::pg::txn::Txn;

/// Objects compared in one step of a backfill.
const SCAN: usize = 256;

/// The holder's side of copies. Reads the copy here, and sends it to targets; if the copy is one
/// that serves, the backfill says when.
pub(in crate::pg) struct Feeding<'a> {
    pub(in crate::pg) site: &'a Site,
    pub(in crate::pg) copy: &'a StoredCopy,
    pub(in crate::pg) store: &'a mut StoreQueue,
    pub(in crate::pg) outbox: &'a mut Outbox,
    /// The attempt at peering that this OSD leads or follows.
    pub(in crate::pg) id: PeeringId,
    /// The backfill of a primary that serves.
    pub(in crate::pg) backfill: Option<&'a Backfill>,
    pub(in crate::pg) copying: &'a mut Copying,
    pub(in crate::pg) counters: &'a mut Counters,
}

impl Feeding<'_> {
    /// Whether the target under way has no room for what it would get.
    fn is_target_full(&self) -> bool {
        self.backfill.is_some_and(|b| b.is_target_full(&*self.site.map))
    }

    /// Handles the primary's request to bring these members up to the copy here, which may be a
    /// stray, as it is only read.
    pub(in crate::pg) fn start_sync(
        &mut self,
        from: OsdId,
        id: PeeringId,
        targets: Vec<(OsdId, SyncPlan)>,
        parts: &[(OsdId, Part)],
        cx: &mut Ctx<'_>,
    ) {
        if self.site.interval.place.primary != Some(from) || !self.copy.exists {
            return dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
        }
        let start = self.site.range().from;
        let shape_of = |osd| {
            let part = parts.iter().find(|(o, _)| *o == osd).map(|(_, part)| *part);
            self.site.backend.shape(part.unwrap_or_default())
        };
        if self.backend_differs() && self.backfill.is_none() {
            let is_made = |o: OsdId| {
                targets
                    .iter()
                    .any(|(t, plan)| *t == o && !matches!(plan, SyncPlan::Replay(_)))
            };
            let holders = parts
                .iter()
                .rev()
                .filter(|(o, _)| *o != self.site.whoami && !is_made(*o));
            self.store.gathers.members = coded::holders(holders.copied());
            // No copy changes in this attempt but by what is sent from here.
            self.store.gathers.at = EVersion::ZERO;
        }
        let replays: Vec<(OsdId, EVersion)> = targets
            .iter()
            .filter_map(|(o, plan)| match plan {
                SyncPlan::Replay(from) => Some((*o, *from)),
                _ => None,
            })
            .collect();
        let begun: Vec<(OsdId, Part)> = parts
            .iter()
            .filter(|(o, _)| self.backend_differs() && targets.iter().any(|(t, _)| t == o))
            .copied()
            .collect();
        let feeds: Vec<Feed> = targets
            .into_iter()
            .map(|(o, plan)| Feed::new(o, shape_of(o), plan, &start))
            .collect();
        let n = feeds.len();
        // Answers to the questions of an earlier copy are not for this one.
        self.store.pending.retain(|_, p| !matches!(p, Pending::Source(_)));
        self.copying.source = Some(SyncSource {
            id,
            primary: from,
            feeds,
        });
        for (osd, part) in begun
            .into_iter()
            .filter(|(o, _)| replays.iter().all(|(r, _)| r != o))
        {
            self.outbox.send(osd, id, PeerBody::Take(part), false, cx);
        }
        for (osd, from) in replays {
            self.replay(osd, from, cx);
        }
        for i in 0..n {
            self.pump_feed(i, cx);
        }
    }

    /// Whether members hold different parts of an object.
    fn backend_differs(&self) -> bool {
        self.copy.info.part.layout != Layout::Whole
    }

    /// Sends a member the changes after a version, to be made there again.
    fn replay(&mut self, target: OsdId, from: EVersion, cx: &mut Ctx<'_>) {
        let mut prev = from;
        let entries: Vec<&LogEntry> = self.copy.log.after(from).collect();
        let changes: Vec<_> = self.copy.redo.after(from).collect();
        let same = |(e, (v, _)): (&&LogEntry, &&(EVersion, Txn))| e.version == *v;
        if entries.len() != changes.len() || !entries.iter().zip(&changes).all(same) {
            // Another attempt may find another holder.
            return self.abort_sync(None, cx);
        }
        for (entry, (version, txn)) in entries.into_iter().zip(changes) {
            let body = PeerBody::Redo(RepOp {
                prev,
                entry: entry.to_bytes(),
                trim_to: EVersion::ZERO,
                stable: EVersion::ZERO,
                txn: txn.clone(),
            });
            prev = *version;
            self.outbox.send(target, self.id, body, false, cx);
            let source = self.copying.source.as_mut();
            if let Some(f) = source.and_then(|s| s.feeds.iter_mut().find(|f| f.target == target)) {
                f.unacked.push_back(1);
            }
        }
    }

    /// Goes on with the feeds that flags have held up, if they no longer do.
    pub(in crate::pg) fn pump_feeds(&mut self, cx: &mut Ctx<'_>) {
        for i in 0..self.copying.source.as_ref().map_or(0, |s| s.feeds.len()) {
            self.pump_feed(i, cx);
        }
    }

    fn feed(&mut self, i: usize) -> Option<&mut Feed> {
        self.copying.source.as_mut()?.feeds.get_mut(i)
    }

    /// A feed that is under way.
    fn under_way(&mut self, i: usize) -> &mut Feed {
        let pgid = self.site.pgid;
        match self.feed(i) {
            Some(f) => f,
            None => impossible!("a feed that goes on to be of a copy under way"; pg = pgid, feed = i),
        }
    }

    fn feed_of(&mut self, target: OsdId, id: PeeringId) -> Option<usize> {
        let s = self.copying.source.as_ref().filter(|s| s.id == id)?;
        s.feeds.iter().position(|f| f.target == target)
    }

    /// The limits of what may be under way; `None` if nothing is to be copied for now. While the PG
    /// does not serve, requests wait for the copying.
    fn window(&self, cx: &mut Ctx<'_>) -> Option<Window> {
        let cfg = &self.site.cfg;
        let Some(backfill) = self.backfill else {
            return Some(cfg.push_window);
        };
        if self.copying.source.is_none() || !backfill.has_turn() || backfill.is_held(self.site) {
            return None;
        }
        if let Some(usec) = self.copying.pace.rests_until(Class::Recovery, cx.usec) {
            cx.out.push(Output::Alarm { usec });
            return None;
        }
        let (all, least) = (cfg.backfill_window, cfg.busy_window);
        Some(self.copying.pace.window(cx.usec, all, least, cfg.busy_requests))
    }

    /// Accounts for the time since a feed was last looked at, when some of its work is done.
    fn note_work(&mut self, i: usize, cx: &Ctx<'_>) {
        let serves = self.backfill.is_some();
        let since = self.feed(i).map(|f| std::mem::replace(&mut f.since, cx.usec));
        if let Some(since) = since.filter(|_| serves) {
            let took = cx.usec.saturating_sub(since);
            let (rate, sleep) = (self.site.cfg.recovery, self.site.cfg.recovery_sleep);
            self.copying
                .pace
                .worked(Class::Recovery, cx.usec, took, rate, sleep);
        }
    }

    fn pump_feed(&mut self, i: usize, cx: &mut Ctx<'_>) {
        let Some(window) = self.window(cx) else {
            // A turn, a flag that goes, or an alarm lets it go on.
            return;
        };
        let (now, usec) = (self.copy.info.last_update, cx.usec);
        let range = self.site.range();
        let waits = self.copying.source.as_ref().is_some_and(SyncSource::replays);
        // The last feed that is done ends the copy, and with it those before it.
        let Some(f) = self.feed(i) else { return };
        let target = f.target;
        if waits && !f.replays {
            // The last of those that make changes again goes on with all.
            return;
        }
        if !f.is_at_work() {
            f.since = usec;
        }
        match f.next(window, now) {
            Next::Nothing => {}
            Next::Lookup(key) => {
                f.waiting = true;
                self.store.look_up(key, Pending::Source(i), cx);
            }
            Next::Read(_, wants) if wants.is_empty() => self.push_part(i, Vec::new(), cx),
            Next::Read(key, wants) => {
                f.waiting = true;
                let shape = f.shape;
                let (what, store) = (Pending::Source(i), &mut *self.store);
                let of = (shape, store.gathers.members.clone());
                let asks = self.site.backend.read_as(of, (key, wants), what, store, cx);
                self.outbox.ask(self.id, asks, cx);
            }
            Next::List(from) => {
                f.waiting = true;
                self.store.list(range.rest(from), SCAN, Pending::Source(i), cx);
            }
            Next::Done => {
                let roomless = f.roomless;
                invariant!(
                    f.jobs.is_empty() && f.current.is_none() && f.cursor.is_none(),
                    "a copy that is done to have nothing left to push";
                    pg = self.site.pgid, epoch = self.site.map.epoch(), target = target
                );
                self.copying.unreadable = None;
                let all_done = |s: &mut SyncSource| s.feeds.iter().all(|f| f.done);
                let ended = self.copying.source.take_if(all_done);
                let Some(source) = ended.as_ref().or(self.copying.source.as_ref()) else {
                    impossible!("a feed to be of a copy"; pg = self.site.pgid, epoch = self.site.map.epoch(), target = target);
                };
                let (id, primary) = (source.id, source.primary);
                let end = match roomless {
                    true => PeerBody::SyncRefused(target),
                    false => PeerBody::SyncDone(target),
                };
                self.outbox.send(primary, id, end, true, cx);
                if waits {
                    self.pump_feeds(cx);
                }
            }
        }
    }

    /// Handles an answer of the store for a feed.
    pub(in crate::pg) fn source_store(&mut self, i: usize, reply: StoreReply, cx: &mut Ctx<'_>) {
        let pgid = self.site.pgid;
        let Some(f) = self.feed(i) else {
            return dropped!(cx.perf.dropped, DropReason::StoreLate; pg = pgid);
        };
        invariant!(f.waiting, "an answer of the store to be to a feed's question"; pg = pgid, target = f.target);
        f.waiting = false;
        match reply {
            StoreReply::Object(Ok(found)) => self.source_object(i, found, cx),
            StoreReply::Fetched(answers, _) => self.push_part(i, answers, cx),
            StoreReply::Objects(Ok((objects, next))) => self.send_scan(i, objects, next, cx),
            StoreReply::Object(Err(ReadError)) => self.cannot_read(i, cx),
            StoreReply::Objects(Err(ReadError)) => self.abort_sync(None, cx),
            reply @ (StoreReply::Records(_)
            | StoreReply::Placed(_)
            | StoreReply::Committed
            | StoreReply::NoRoom
            | StoreReply::NotRead) => {
                impossible!("an answer to what a copy reads"; pg = self.site.pgid, epoch = self.site.map.epoch(), answer = format!("{reply:?}"))
            }
        }
    }

    fn source_object(&mut self, i: usize, found: Option<StoredObject>, cx: &mut Ctx<'_>) {
        let current = self.feed(i).and_then(|f| f.current.as_ref());
        let Some((key, had)) = current.map(|c| (c.key.clone(), c.had)) else {
            impossible!("an object that was looked up to be under way"; pg = self.site.pgid, epoch = self.site.map.epoch());
        };
        let changed = had.and_then(|had| self.copy.changed_since(had, &key));
        let changed = match self.site.cfg.has_bug(Bug::KeptDirt) {
            true => changed.map(|_| Dirty::default()),
            false => changed,
        };
        let has_room = !self.is_target_full();
        let f = self.under_way(i);
        f.roomless |= found.is_some() && !has_room;
        match found {
            Some(_) if f.roomless => f.current = None,
            Some(o) => {
                let Ok(info) = decode_all::<ObjectInfo>(&o.info) else {
                    return self.cannot_read(i, cx);
                };
                if let Some(current) = &mut f.current {
                    current.set_object(o, info, changed);
                }
            }
            None => {
                f.current = None;
                self.push(
                    i,
                    Push {
                        key,
                        part: PushPart::Absent,
                    },
                    0,
                    cx,
                );
            }
        }
        self.pump_feed(i, cx);
    }

    /// Pushes the next part of a feed's object.
    fn push_part(&mut self, i: usize, answers: Vec<Fetched>, cx: &mut Ctx<'_>) {
        let (pgid, most) = (self.site.pgid, self.site.cfg.max_part_logged);
        let f = self.under_way(i);
        if f.roomless {
            f.current = None;
            return self.pump_feed(i, cx);
        }
        let Some(current) = &mut f.current else {
            impossible!("an object that was read to be under way"; pg = pgid, target = f.target);
        };
        let Ok(PushedPart { mut part, weight }) = current.part(answers, most) else {
            return self.cannot_read(i, cx);
        };
        let (total, ended) = (current.total(), current.has_ended());
        let (key, since) = (current.key.clone(), current.since);
        if ended {
            f.current = None;
        }
        // An object that was written between lookup and reading is no version of the object when
        // pushed, and must not look like one. The log names the write: the object is copied again,
        // and until then the target has it without an info.
        let torn = ended && self.copy.is_written_since(since, &key);
        if let PushPart::Data { pairs, last, .. } = &mut part {
            if let Some(end) = last.as_mut().filter(|_| torn) {
                end.info = Bytes::new();
            }
            let whole = ended && !torn;
            self.counters.add_recovered(whole.then_some(total), pairs.len());
        }
        self.push(i, Push { key, part }, weight, cx);
        self.pump_feed(i, cx);
    }

    fn push(&mut self, i: usize, push: Push, weight: u64, cx: &mut Ctx<'_>) {
        let f = self.under_way(i);
        f.unacked.push_back(weight);
        let target = f.target;
        self.outbox.send(target, self.id, PeerBody::Push(push), false, cx);
    }

    fn send_scan(&mut self, i: usize, objects: Vec<(Bytes, Bytes)>, next: Option<Bytes>, cx: &mut Ctx<'_>) {
        let end = self.site.range().to;
        let versions: Option<Vec<(Bytes, EVersion)>> = objects
            .into_iter()
            .map(|(k, info)| Some((k, decode_all::<ObjectInfo>(&info).ok()?.version)))
            .collect();
        let Some(versions) = versions else {
            return self.abort_sync(None, cx);
        };
        let pgid = self.site.pgid;
        let f = self.under_way(i);
        let Some(from) = f.cursor.take() else {
            impossible!("objects that were listed to be compared"; pg = pgid, target = f.target);
        };
        let ascends = next.as_ref().is_none_or(|n| *n > from);
        invariant!(ascends && f.scanning.is_none(), "a comparison to go on after the last one"; pg = pgid, target = f.target);
        f.cursor = next.clone();
        f.scanning = Some(i64::try_from(versions.len()).unwrap_or(0));
        let (target, to) = (f.target, next.unwrap_or(end));
        self.outbox.send(
            target,
            self.id,
            PeerBody::Scan {
                from,
                to,
                objects: versions,
            },
            false,
            cx,
        );
    }

    /// Handles the result of a target's comparison.
    pub(in crate::pg) fn scan_acked(
        &mut self,
        from: OsdId,
        id: PeeringId,
        needed: Vec<Bytes>,
        cx: &mut Ctx<'_>,
    ) {
        let Some(i) = self.feed_of(from, id) else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = self.site.pgid, from = from);
        };
        self.note_work(i, cx);
        let has_room = !self.is_target_full();
        if let Some(f) = self.feed(i) {
            f.compared += f.scanning.take().unwrap_or(0);
            f.roomless |= !has_room && !needed.is_empty();
            if !f.roomless {
                f.jobs
                    .extend(needed.into_iter().map(|key| Lacking { key, had: None }));
            }
        }
        self.pump_feed(i, cx);
    }

    /// Handles a target's acknowledgement of a push.
    pub(in crate::pg) fn push_acked(&mut self, from: OsdId, id: PeeringId, cx: &mut Ctx<'_>) {
        let Some(i) = self.feed_of(from, id) else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = self.site.pgid, from = from);
        };
        self.note_work(i, cx);
        if let Some(f) = self.feed(i) {
            f.unacked.pop_front();
        }
        self.pump_feed(i, cx);
    }

    /// Handles a target's lack of room for a push. Further removals make some.
    pub(in crate::pg) fn push_refused(&mut self, from: OsdId, id: PeeringId, cx: &mut Ctx<'_>) {
        let at = self.feed_of(from, id);
        if let Some(f) = at.and_then(|i| self.feed(i)) {
            f.roomless = true;
        }
        self.push_acked(from, id, cx);
    }

    /// Gives up the attempt, as the object under way can't be read: no target is complete without
    /// it. The object is named.
    fn cannot_read(&mut self, i: usize, cx: &mut Ctx<'_>) {
        let key = self
            .feed(i)
            .and_then(|f| f.current.as_ref())
            .map(|c| c.key.clone());
        self.copying.unreadable = None;
        self.copying.damaged.clone_from(&key);
        self.abort_sync(key, cx);
    }

    fn abort_sync(&mut self, unreadable: Option<Bytes>, cx: &mut Ctx<'_>) {
        if let Some(s) = self.copying.source.take() {
            self.store.pending.retain(|_, p| !matches!(p, Pending::Source(_)));
            let body = PeerBody::SyncFailed(unreadable);
            self.outbox.send(s.primary, s.id, body, true, cx);
        }
    }

    /// Handles the possible loss of messages to or from a target, or of one that belongs elsewhere
    /// and has data that are pushed: that may not know this attempt any more.
    pub(in crate::pg) fn source_peer_reset(&mut self, osd: OsdId, cx: &mut Ctx<'_>) {
        let is_member = self.site.interval.place.acting.of(osd).is_some();
        let mut holders = self.store.gathers.members.values();
        let is_holder = !is_member && holders.any(|o| *o == osd);
        if self
            .copying
            .source
            .as_ref()
            .is_some_and(|s| is_holder || s.feeds(osd))
        {
            self.abort_sync(None, cx);
        }
    }
}
