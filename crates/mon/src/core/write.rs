//! Proposals: one at a time, each made against the committed result of the one before.

use std::collections::{BTreeMap, VecDeque};

use spirula_cephx::AuthName;
use spirula_maps::Incremental;
use spirula_proto::internal::report::OsdReport;
use spirula_proto::{MsgType, RawMessage};

use super::{Monitor, Output, SessionId};
use crate::kv::Txn;

/// An answer that waits for a commit.
pub struct Waiter {
    /// Who gets it.
    pub session: SessionId,
    /// Makes it from the new state.
    pub make: Box<dyn FnOnce(&Monitor) -> RawMessage>,
}

/// What is being changed.
#[derive(Default)]
pub(crate) struct Writes {
    /// Answers that wait for the proposal in flight; `None` when there is none.
    in_flight: Option<Vec<Waiter>>,
    /// The next osdmap's changes.
    pub(crate) osd: Option<Incremental>,
    /// Changes of other services.
    pub(crate) txn: Txn,
    /// Answers that wait for these.
    pub(crate) waiters: Vec<Waiter>,
    /// Log entries alone are worth a proposal: once per tick.
    pub(crate) flush_log: bool,
}

impl Writes {
    /// Nothing is in flight or prepared.
    pub(crate) fn idle(&self) -> bool {
        self.in_flight.is_none() && self.osd.is_none() && self.txn.is_empty() && self.waiters.is_empty()
    }
}

/// Writes that wait for their turn.
#[derive(Default)]
pub(super) struct WriteQueue {
    writes: VecDeque<(SessionId, AuthName, RawMessage)>,
    /// How many are of each entity.
    by_entity: BTreeMap<AuthName, usize>,
}

impl WriteQueue {
    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// How many an entity has here.
    pub(super) fn of(&self, entity: &AuthName) -> usize {
        self.by_entity.get(entity).copied().unwrap_or(0)
    }

    pub(super) fn push(&mut self, session: SessionId, entity: AuthName, msg: RawMessage) {
        *self.by_entity.entry(entity.clone()).or_default() += 1;
        self.writes.push_back((session, entity, msg));
    }

    fn front(&self) -> Option<&RawMessage> {
        self.writes.front().map(|(_, _, msg)| msg)
    }

    fn pop(&mut self) -> Option<(SessionId, RawMessage)> {
        let (session, entity, msg) = self.writes.pop_front()?;
        if let Some(n) = self.by_entity.get_mut(&entity) {
            *n -= 1;
            if *n == 0 {
                self.by_entity.remove(&entity);
            }
        }
        Some((session, msg))
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Whether it is what an OSD wishes for its PGs. Such come from all PGs at once and say nothing of each other: those that follow
/// each other make one map, as requests wait for each of them.
fn is_wish_of_pgs(msg: &RawMessage) -> bool {
    let report = (msg.kind() == MsgType::OSD_REPORT).then(|| msg.decode());
    matches!(report, Some(Ok(OsdReport::Alive(_) | OsdReport::PgTemp(_))))
}

impl Monitor {
    /// Whether a write may be prepared now; otherwise it waits in the queue.
    pub(crate) fn may_write(&self) -> bool {
        self.writes.idle() && self.queue.is_empty()
    }

    /// Writes that wait for their turn.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Under whose key a session is.
    pub(super) fn entity_of(&self, session: SessionId) -> AuthName {
        let session = self.sessions.get(&session);
        session.map(|s| s.name.clone()).unwrap_or_default()
    }

    pub(crate) fn enqueue(&mut self, session: SessionId, msg: RawMessage) {
        let entity = self.entity_of(session);
        self.queue.push(session, entity, msg);
    }

    /// The changes of the next osdmap, to be added to.
    pub(crate) fn pending_osd(&mut self) -> &mut Incremental {
        let (map, now) = (&self.state.osd.map, self.now);
        self.writes.osd.get_or_insert_with(|| {
            let mut inc = Incremental::new(map.fsid, map.epoch + 1);
            inc.modified = now;
            inc
        })
    }

    /// Starts what can be started: the prepared changes, then waiting requests until one changes something.
    pub(crate) fn pump(&mut self) {
        while self.quorum.leads() && self.writes.in_flight.is_none() {
            let txn = self.collect();
            if !txn.is_empty() {
                self.writes.in_flight = Some(std::mem::take(&mut self.writes.waiters));
                self.out.push(Output::Propose(txn));
                return;
            }
            // Changes that cancelled out: the answers need not wait.
            for w in std::mem::take(&mut self.writes.waiters) {
                self.answer(w);
            }
            let Some((session, msg)) = self.queue.pop() else {
                return;
            };
            let is_wish = is_wish_of_pgs(&msg);
            self.handle_write(session, msg);
            while is_wish
                && self.queue.front().is_some_and(is_wish_of_pgs)
                && let Some((session, msg)) = self.queue.pop()
            {
                self.handle_write(session, msg);
            }
        }
    }

    fn collect(&mut self) -> Txn {
        let mut txn = std::mem::take(&mut self.writes.txn);
        if let Some(mut inc) = self.writes.osd.take() {
            self.finish_incremental(&mut inc);
            match self.state.osd.encode(inc) {
                Ok(t) => txn.extend(t),
                Err(e) => {
                    // Every change was validated before, so this is a defect; the map stays as it is.
                    tracing::error!("osdmap change dropped: {e}");
                    self.writes.waiters.clear();
                }
            }
        }
        if !txn.is_empty() || std::mem::take(&mut self.writes.flush_log) {
            txn.extend(self.state.clog.flush());
        }
        txn.term = self.term;
        txn
    }

    fn answer(&mut self, w: Waiter) {
        let msg = (w.make)(self);
        self.send(w.session, msg);
    }

    /// The proposal in flight is committed: nobody else proposes while this monitor leads.
    pub(super) fn answer_waiters(&mut self) {
        for w in self.writes.in_flight.take().unwrap_or_default() {
            self.answer(w);
        }
    }
}

#[cfg(test)]
mod tests {
    use spirula_proto::Payload;
    use spirula_proto::mon::MMonCommand;

    use super::*;

    #[test]
    fn writes_are_counted_by_entity_until_it_is_their_turn() {
        let mut queue = WriteQueue::default();
        let [a, b]: [AuthName; 2] = ["client.a", "client.b"].map(|n| n.parse().unwrap());
        for (session, entity) in [(1, &a), (2, &a), (3, &b)] {
            queue.push(session, entity.clone(), MMonCommand::default().to_message());
        }
        assert_eq!((queue.of(&a), queue.of(&b), queue.len()), (2, 1, 3));
        assert_eq!(queue.pop().map(|(session, _)| session), Some(1));
        assert_eq!(queue.of(&a), 1);
        while queue.pop().is_some() {}
        assert!(queue.is_empty() && queue.by_entity.is_empty());
    }
}
