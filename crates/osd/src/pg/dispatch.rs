//! Dispatches answers of the store and messages of other OSDs to the PG's parts.

use super::Pg;
use super::message::{PeerBody, PeerMessage};
use super::output::{Ctx, StoreReply, Token};
use super::peering::Told;
use super::perf::DropReason;
use super::role::Role;
use super::scrub::accounting::Accounting;
use super::scrub::findings::Findings;
use super::scrub::handler::Scrubbing;
use super::scrub::message::ScrubBody;
use super::scrub::telling::handler::Hearing;
use super::store_queue::{Commit, Pending};
use spirula_invariant::{dropped, impossible, invariant};
use spirula_maps::OsdId;

impl Pg {
    /// Handles an answer of the store to one of the PG's requests.
    pub fn handle_store(&mut self, token: Token, reply: StoreReply, cx: &mut Ctx<'_>) {
        let before = cx.perf.dropped.total();
        self.answered(token, reply, cx);
        self.recent.note_dropped(before, None, cx);
    }

    fn answered(&mut self, token: Token, reply: StoreReply, cx: &mut Ctx<'_>) {
        if let StoreReply::Committed = reply {
            let first = self
                .store
                .commits
                .pop_front()
                .filter(|(seq, ..)| *seq == token.seq());
            let Some((_, submitted, what)) = first else {
                impossible!(
                    "transactions to be durable in the order of submission";
                    pg = self.site.pgid, epoch = self.site.map.epoch()
                );
            };
            let took = cx.usec.saturating_sub(submitted);
            cx.perf.commits.add(took);
            if matches!((&what, &self.role), (Commit::Write(_), Role::Replica(_))) {
                cx.perf.sub_ops.add(took);
            }
            return self.committed(what, cx);
        }
        if self.store.folds.reading == Some(token.seq()) {
            let StoreReply::Fetched(answers, _) = reply else {
                impossible!(
                    "a fragment that is read to be answered with its parts";
                    pg = self.site.pgid, epoch = self.site.map.epoch(), answer = format!("{reply:?}")
                );
            };
            if let Some(key) = self.store.fold(answers, cx) {
                self.serving().shares().note_unreadable(&key, cx);
            }
            return; // The calls that waited go on.
        }
        if let StoreReply::NoRoom = reply {
            let at = self
                .store
                .commits
                .iter()
                .position(|(seq, ..)| *seq == token.seq());
            let Some((_, _, what)) = at.and_then(|at| self.store.commits.remove(at)) else {
                impossible!(
                    "a transaction that was refused to be one that was submitted";
                    pg = self.site.pgid, epoch = self.site.map.epoch()
                );
            };
            return self.not_stored(what, cx);
        }
        let Some(what) = self.store.pending.remove(&token.seq()) else {
            // Calls of an earlier interval are no longer pending.
            return dropped!(cx.perf.dropped, DropReason::StoreLate; pg = self.site.pgid);
        };
        match (what, reply) {
            (Pending::Context(key), StoreReply::Object(r)) => self.serving().context_loaded(&key, r, cx),
            (Pending::Op(op), StoreReply::Fetched(r, room)) => self.serving().op_fetched(*op, r, room, cx),
            (Pending::Op(op), StoreReply::NotRead) => self.serving().op_not_read(&op, cx),
            (Pending::Op(op), StoreReply::Object(r)) => self.serving().clone_loaded(*op, r, cx),
            (Pending::Trim, StoreReply::Records(r)) => self.serving().trimming().clones_listed(r, cx),
            (Pending::TrimClone(key), StoreReply::Object(r)) => {
                self.serving().trimming().trim_found(key, r, cx)
            }
            (Pending::Stage(seq), StoreReply::Fetched(r, _)) => {
                self.serving().staging().stage_read(seq, r, cx)
            }
            (Pending::Gather(number, round), StoreReply::Fetched(r, room)) => {
                if let Some((token, all)) = self.serving().shares().here((number, round), (r, room), cx) {
                    self.answered(token, all, cx);
                }
            }
            (Pending::Gather(number, _), StoreReply::NotRead) => {
                self.store.gathers.forget(number);
                self.answered(Token::new(token.slot(), number), StoreReply::NotRead, cx);
            }
            (Pending::Fragment(asked), StoreReply::Fetched(r, _)) => {
                let key = asked.key.clone();
                if !self.led().fragment_read(*asked, r, cx) {
                    self.serving().shares().note_unreadable(&key, cx);
                }
            }
            (Pending::List(l), StoreReply::Objects(r)) => self.serving().listed(*l, r, cx),
            (Pending::List(l), StoreReply::Fetched(r, _)) => self.serving().list_fetched(*l, r, cx),
            (Pending::Repair(asked), reply) => self.serving().mending().repair_store(asked, reply, cx),
            (Pending::Account, reply) => Accounting::of(self).account_store(reply, cx),
            (Pending::Findings(asked), StoreReply::Records(r)) => {
                Findings::of(self.serving()).answered(*asked, r, cx)
            }
            (Pending::Ahead(number), StoreReply::Placed(placed)) => {
                self.serving().placing_ahead().placed_here(number, placed, cx)
            }
            (Pending::AheadOf(asked), StoreReply::Placed(placed)) => {
                self.serving()
                    .as_replica(asked.by, cx, |r, cx| r.placed_ahead(asked, placed, cx))
            }
            (Pending::FindingsToTell, StoreReply::Records(r)) => {
                Scrubbing::of(self.serving()).tell_read(r, cx)
            }
            (Pending::Scrub, reply) => Scrubbing::of(self.serving()).scrub_listed(reply, cx),
            (Pending::Source(feed), reply) => self.feeding().source_store(feed, reply, cx),
            (Pending::Target, StoreReply::Objects(r)) => self.receiving().target_scanned(r, cx),
            (Pending::TargetClone(key), StoreReply::Object(r)) => self.receiving().clone_found(&key, r, cx),
            (Pending::Delete, StoreReply::Objects(r)) => self.deleting().delete_listed(r, cx),
            // The question is forgotten with the interval, and the PG serves only when all are
            // counted.
            (Pending::Count, StoreReply::Objects(r)) => invariant!(
                self.agree(cx, |a, cx| a.counted(r, cx)),
                "objects to be counted for an attempt to agree";
                pg = self.site.pgid, epoch = self.site.map.epoch()
            ),
            (what, reply) => impossible!(
                "an answer to the question";
                pg = self.site.pgid, epoch = self.site.map.epoch(), question = format!("{what:?}"), answer = format!("{reply:?}")
            ),
        }
    }

    fn committed(&mut self, what: Commit, cx: &mut Ctx<'_>) {
        match what {
            Commit::Write(v) => self.serving().write_committed(v, cx),
            Commit::Push { id, source, .. } => self.receiving().push_committed(id, source, cx),
            Commit::Activate { id, primary } => self.activation_committed(id, primary, cx),
            Commit::Delete => self.deleting().delete_step(cx),
            Commit::Repair(number) => self.serving().mending().repair_committed(number, cx),
            Commit::Record => {}
        }
        if self.store.commits.is_empty() {
            // Answers claim only what is durable.
            if !self.agree(cx, |a, cx| a.quiesced(cx)) && matches!(self.role, Role::Replica(_) | Role::Stray)
            {
                self.led().answer_query(cx);
            }
        }
    }

    /// Handles the store's lack of room for a transaction.
    fn not_stored(&mut self, what: Commit, cx: &mut Ctx<'_>) {
        match what {
            Commit::Push { id, source, begun } => self.receiving().push_refused_here(id, source, begun, cx),
            Commit::Repair(number) => self.serving().mending().repair_refused(number, cx),
            what => impossible!(
                "what claims all room to be stored in any case";
                pg = self.site.pgid, epoch = self.site.map.epoch(), transaction = format!("{what:?}")
            ),
        }
        if self.store.commits.is_empty() {
            // Answers claim only what is durable.
            if !self.agree(cx, |a, cx| a.quiesced(cx)) && matches!(self.role, Role::Replica(_) | Role::Stray)
            {
                self.led().answer_query(cx);
            }
        }
    }

    /// Handles a message from another OSD about this PG. Its epoch is not newer than the PG's map.
    pub fn handle_peer(&mut self, from: OsdId, msg: PeerMessage, cx: &mut Ctx<'_>) {
        let before = cx.perf.dropped.total();
        self.deliver(from, msg, cx);
        self.recent.note_dropped(before, Some(from), cx);
    }

    fn deliver(&mut self, from: OsdId, msg: PeerMessage, cx: &mut Ctx<'_>) {
        let id = msg.id;
        invariant!(
            id.epoch <= self.site.map.epoch(),
            "a message to wait for its map";
            pg = self.site.pgid, from = from, epoch = id.epoch, map = self.site.map.epoch()
        );
        if self.seen().is_foreign(from, id, &msg.body, cx)
            || self.seen().is_stale_message(from, id, &msg.body, cx)
        {
            // Counted there, by its reason.
            return;
        }
        match msg.body {
            PeerBody::RepOp(op) => {
                self.serving()
                    .as_replica(from, cx, |r, cx| r.rep_op(from, id, op, cx));
                self.led().answer_early(cx);
            }
            PeerBody::Ahead { number, data } => self
                .serving()
                .as_replica(from, cx, |r, cx| r.ahead(from, id, number, data, cx)),
            PeerBody::Placed { number, done } => self
                .serving()
                .placing_ahead()
                .placed_there(from, number, done, cx),
            PeerBody::RepCommitted(v) => self.serving().rep_committed(from, v, cx),
            PeerBody::Query => self.led().queried(from, id, cx),
            PeerBody::Notify {
                info,
                promised,
                kept_since,
            } => self.notified(from, id, Told { info, kept_since }, promised, cx),
            PeerBody::Lease { stamp, shared } => self
                .serving()
                .as_replica(from, cx, |r, cx| r.lease_wanted(from, id, stamp, shared, cx)),
            PeerBody::LeaseGranted(stamp) => self.serving().lease_granted(from, stamp, cx),
            PeerBody::ShareLease(stamp) => self.serving().share_wanted(from, stamp, cx),
            PeerBody::LeaseShared(share) => self
                .serving()
                .as_replica(from, cx, |r, cx| r.lease_shared(from, id, share, cx)),
            PeerBody::GetLog => self.led().log_wanted(from, id, cx),
            PeerBody::Log {
                tail,
                head,
                entries,
                dups,
            } => self.log_received(from, tail, head, entries, dups, cx),
            PeerBody::StartSync { targets, parts } => {
                self.feeding().start_sync(from, id, targets, &parts, cx)
            }
            PeerBody::Take(part) => self.receiving().take(from, id, part, cx),
            PeerBody::Redo(op) => self.receiving().redo(from, id, op, cx),
            PeerBody::Stable(version) => self.serving().as_replica(from, cx, |r, cx| r.stable(version, cx)),
            PeerBody::SyncDone(osd) => self.sync_done(osd, cx),
            PeerBody::SyncFailed(unreadable) => self.sync_failed(unreadable, cx),
            PeerBody::SyncRefused(osd) => self.sync_refused(osd, cx),
            PeerBody::Push(push) => self.receiving().pushed(from, id, push, cx),
            PeerBody::PushAck => self.feeding().push_acked(from, id, cx),
            PeerBody::PushRefused => self.feeding().push_refused(from, id, cx),
            PeerBody::Scan {
                from: start,
                to,
                objects,
            } => self.receiving().scan(from, id, start, to, objects, cx),
            PeerBody::ScanAck(needed) => self.feeding().scan_acked(from, id, needed, cx),
            PeerBody::Activate { info, log } => self.led().activate_member(from, id, info, log, cx),
            PeerBody::Reserve(priority) => self.led().turn_wanted(from, id, priority, cx),
            PeerBody::Release => self.copying.incoming.released(from),
            body @ (PeerBody::Reserved | PeerBody::Revoked) => {
                let serves = self.backfill(|b| match body {
                    PeerBody::Reserved => b.turn_granted(from, cx),
                    _ => b.turn_revoked(from, cx),
                });
                if !serves {
                    dropped!(cx.perf.dropped, DropReason::PeerMisled; pg = self.site.pgid, from = from);
                }
            }
            PeerBody::Copied { info, log } => self.receiving().copied(from, id, info, log, cx),
            PeerBody::Activated => self.member_activated(from, cx),
            PeerBody::Remove => self.deleting().removed(from, id, cx),
            PeerBody::CopyRead(r) => self.serving().copy_read(from, id.epoch, r, cx),
            PeerBody::CopyPart(p) => self.serving().staging().copy_part(from, p, cx),
            PeerBody::FragmentWant(want) => self.led().fragment_wanted(from, id, want, cx),
            PeerBody::Fragment { number, found } => {
                let answered = self.serving().shares().of_member(from, number, found, cx);
                if let Some((token, all)) = answered {
                    self.answered(token, all, cx);
                }
            }
            PeerBody::Scrub(s) => match s {
                ScrubBody::Reserve => Accounting::of(self).reserve(from, cx),
                ScrubBody::Release => Accounting::of(self).release(),
                ScrubBody::Told { number, news } => Hearing::of(self).told(from, number, news, cx),
                ScrubBody::Wanted(wanted) => Accounting::of(self).wanted(from, wanted, cx),
                s => Scrubbing::of(self.serving()).message(from, s, cx),
            },
            PeerBody::Repair(r) => self.serving().repairing().repair_message(from, r, cx),
        }
    }
}
