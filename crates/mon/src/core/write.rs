//! Proposals: one at a time, each made against the committed result of the one before.

use std::collections::{BTreeMap, VecDeque};

use spirula_cephx::AuthName;
use spirula_invariant::{dropped, impossible, invariant};
use spirula_proto::RawMessage;
use spirula_proto::internal::report::OsdReport;
use spirula_proto::mon::{LogPriority, MMonCommand, MPoolOp};

use super::manager::ManagerCommand;
use super::recent::What;
use super::{Daemon, DropReason, Effect, Monitor, Output, SessionId, Turn, View};
use crate::command::{Parsed, Reply, errno};
use crate::kv::Txn;

/// Makes the answer to a change from the new state and the fate of the change.
type Answer = Box<dyn FnOnce(&View, Fate) -> RawMessage>;

/// An answer that waits for a commit.
pub(crate) struct Waiter {
    /// The session that gets the answer.
    pub(super) session: SessionId,
    /// Makes the answer.
    pub(super) make: Answer,
}

/// The fate of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The change is committed, or there was nothing left to commit.
    Done,
    /// The change does not fit the state that it was made for: nothing of it is kept.
    Unsound,
}

impl Fate {
    /// 0, or a negative errno.
    pub(super) fn code(self) -> i32 {
        match self {
            Self::Done => 0,
            Self::Unsound => -errno::EIO,
        }
    }

    /// The reply to a command whose change has this fate and whose intended reply is `reply`.
    pub(super) fn reply(self, reply: Reply) -> Reply {
        match self {
            Self::Done => reply,
            Self::Unsound => Reply::error(errno::EIO, "the change does not fit the OSDMap, and is not made"),
        }
    }
}

/// Answers that wait for commits.
#[derive(Default)]
pub(crate) struct Writes {
    /// The answers that wait for the proposal in flight; `None` if there is none.
    in_flight: Option<Vec<Waiter>>,
    /// The answers that wait for the changes being prepared.
    pub(crate) waiters: Vec<Waiter>,
}

/// A change that a session asks for.
#[derive(Debug)]
pub(super) enum Change {
    /// A command for the monitors.
    Command(MMonCommand, Parsed),
    /// A command for the manager.
    ManagerCommand(ManagerCommand),
    PoolOp(MPoolOp),
    Report(OsdReport),
}

impl Change {
    /// Whether the change is an OSD's wish for its PGs. Such wishes come from all PGs at once and
    /// are independent of each other: successive ones make one map, as requests wait for each of
    /// them.
    fn is_wish_of_pgs(&self) -> bool {
        matches!(self, Self::Report(OsdReport::Alive(_) | OsdReport::PgTemp(_)))
    }
}

/// A change that waits for its turn.
#[derive(Debug)]
struct Waiting {
    session: SessionId,
    entity: AuthName,
    tid: u64,
    change: Change,
}

/// Changes that wait for their turn.
#[derive(Default)]
pub(super) struct WriteQueue {
    waiting: VecDeque<Waiting>,
    /// The number of changes of each entity.
    by_entity: BTreeMap<AuthName, usize>,
}

impl WriteQueue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The number of waiting changes of an entity.
    pub(super) fn of(&self, entity: &AuthName) -> usize {
        self.by_entity.get(entity).copied().unwrap_or(0)
    }

    pub(super) fn push(&mut self, session: SessionId, entity: AuthName, tid: u64, change: Change) {
        *self.by_entity.entry(entity.clone()).or_default() += 1;
        self.waiting.push_back(Waiting {
            session,
            entity,
            tid,
            change,
        });
    }

    fn front(&self) -> Option<&Change> {
        self.waiting.front().map(|w| &w.change)
    }

    fn pop(&mut self) -> Option<(SessionId, u64, Change)> {
        let w = self.waiting.pop_front()?;
        match self.by_entity.get_mut(&w.entity) {
            Some(1) => drop(self.by_entity.remove(&w.entity)),
            Some(n) => *n -= 1,
            None => impossible!("a count of the waiting changes"; of = w.entity),
        }
        let (left, entities) = (self.waiting.len(), self.by_entity.len());
        invariant!(entities <= left && (left == 0 || entities > 0), "a change for each entity that is counted";
            changes = left, entities = entities);
        Some((w.session, w.tid, w.change))
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl View {
    /// The entity whose key a session uses.
    pub(super) fn entity_of(&self, session: SessionId) -> AuthName {
        let session = self.sessions.get(&session);
        session.map(|s| s.name.clone()).unwrap_or_default()
    }
}

impl Monitor {
    /// Whether a write may be prepared now; otherwise it waits in the queue.
    pub(crate) fn may_write(&self) -> bool {
        self.is_idle() && self.queue.is_empty()
    }

    /// This daemon, for its own commands.
    pub(crate) fn daemon(&mut self) -> Daemon<'_> {
        Daemon {
            view: &mut self.view,
            pending: &self.pending,
            waiting: self.queue.len(),
            dropped: &self.dropped,
            recent: &self.recent,
        }
    }

    pub(super) fn enqueue(&mut self, session: SessionId, tid: u64, change: Change) {
        let entity = self.view.entity_of(session);
        self.queue.push(session, entity, tid, change);
    }

    /// Whether nothing is in flight or prepared.
    pub(super) fn is_idle(&self) -> bool {
        self.writes.in_flight.is_none() && self.writes.waiters.is_empty() && self.changes.is_empty()
    }

    /// Gives a turn: to read the state, and to prepare changes.
    pub(crate) fn turn<T>(&mut self, run: impl FnOnce(&mut Turn<'_>) -> T) -> T {
        invariant!(
            self.changes.log.is_empty() && self.changes.effects.is_empty(),
            "one turn at a time";
            events = self.changes.log.len(),
            effects = self.changes.effects.len(),
        );
        let result = run(&mut Turn {
            view: &self.view,
            changes: &mut self.changes,
            dropped: &mut self.dropped,
        });
        self.end_turn();
        result
    }

    /// Gives a turn that makes all its changes or, if it fails, none.
    pub(crate) fn attempt<T, E>(&mut self, run: impl FnOnce(&mut Turn<'_>) -> Result<T, E>) -> Result<T, E> {
        // A turn that changes something begins with nothing prepared; one that only reads may find
        // the changes of others.
        let began_idle = self.changes.is_empty();
        self.turn(|turn| {
            let result = run(turn);
            if result.is_err() {
                turn.changes.take_back(began_idle);
            }
            result
        })
    }

    /// Writes the turn's events to the cluster log, and carries out its effects.
    fn end_turn(&mut self) {
        for line in std::mem::take(&mut self.changes.log) {
            self.view.log_line("cluster", line);
        }
        for effect in std::mem::take(&mut self.changes.effects) {
            match effect {
                Effect::Send(session, message) => self.send(session, message),
                Effect::StopManager => self.stop_manager(),
                Effect::ClearProgress => self.view.progress.clear(),
                Effect::WatchImages(scope) => {
                    self.view.image_io.ask(&scope, self.view.steady.now());
                    self.watch_image_io();
                }
                Effect::AuditRefusal(session, text) => {
                    self.audit.text(&mut self.view, session, || text, false)
                }
                Effect::Fail(e) => self.failed = Some(e),
            }
        }
    }

    /// Starts what can be started: the prepared changes, then waiting requests until one changes
    /// something.
    pub(crate) fn pump(&mut self) {
        while self.view.quorum.leads() && self.writes.in_flight.is_none() {
            let txn = self.collect();
            if !txn.is_empty() {
                self.writes.in_flight = Some(std::mem::take(&mut self.writes.waiters));
                self.recent.note(What::Proposed(super::count(&txn)), &self.view);
                self.out.push(Output::Propose(txn));
                return; // Its commit goes on.
            }
            // Changes that cancelled out: the answers need not wait.
            for w in std::mem::take(&mut self.writes.waiters) {
                self.answer(w, Fate::Done);
            }
            let Some((session, tid, change)) = self.queue.pop() else {
                return; // Nothing waits.
            };
            let is_wish = change.is_wish_of_pgs();
            self.change(session, tid, change);
            while is_wish
                && self.queue.front().is_some_and(Change::is_wish_of_pgs)
                && let Some((session, tid, change)) = self.queue.pop()
            {
                self.change(session, tid, change);
            }
        }
    }

    fn collect(&mut self) -> Txn {
        let mut txn = std::mem::take(&mut self.changes.txn);
        if let Some(mut inc) = self.changes.osd.take() {
            self.view.finish_incremental(&mut inc);
            match self.view.state.osd.encode(inc) {
                Ok(t) => txn.extend(t),
                // Every change was validated before, so this is a defect. The map stays as it is,
                // and nobody waits in vain.
                Err(e) => {
                    self.give_up_change(&e);
                    // Changes that were prepared with it for a waiting session are dropped; without
                    // one they are maintenance, which goes on.
                    if !self.writes.waiters.is_empty() {
                        txn = Txn::default();
                    }
                    for w in std::mem::take(&mut self.writes.waiters) {
                        self.answer(w, Fate::Unsound);
                    }
                }
            }
        }
        if !txn.is_empty() || std::mem::take(&mut self.changes.flush_log) {
            txn.extend(self.view.state.clog.flush());
        }
        txn.term = self.view.term;
        txn
    }

    fn give_up_change(&mut self, why: &spirula_maps::ApplyError) {
        tracing::error!("osdmap change dropped: {why}");
        dropped!(self.dropped, DropReason::ChangeUnsound; why = why);
        let text = format!("a change of the OSDMap is given up, as it does not fit: {why}");
        self.view.log_event(LogPriority::ERROR, text);
    }

    fn answer(&mut self, w: Waiter, fate: Fate) {
        let msg = (w.make)(&self.view, fate);
        self.send(w.session, msg);
    }

    /// Sends the answers after the proposal in flight is committed: no other monitor proposes while
    /// this one leads.
    pub(super) fn answer_waiters(&mut self) {
        invariant!(self.view.quorum.leads(), "answers by the leader"; term = self.view.term);
        for w in self.writes.in_flight.take().unwrap_or_default() {
            self.answer(w, Fate::Done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_by_entity_until_it_is_their_turn() {
        let mut queue = WriteQueue::default();
        let [a, b]: [AuthName; 2] = ["client.a", "client.b"].map(|n| n.parse().unwrap());
        for (session, entity) in [(1, &a), (2, &a), (3, &b)] {
            queue.push(session, entity.clone(), 0, Change::PoolOp(MPoolOp::default()));
        }
        assert_eq!((queue.of(&a), queue.of(&b), queue.len()), (2, 1, 3));
        assert_eq!(queue.pop().map(|(session, ..)| session), Some(1));
        assert_eq!(queue.of(&a), 1);
        while queue.pop().is_some() {}
        assert!(queue.is_empty() && queue.by_entity.is_empty());
    }
}
