//! Proposals: one at a time, each made against the committed result of the one before.

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

    pub(crate) fn enqueue(&mut self, session: SessionId, msg: RawMessage) {
        self.queue.push_back((session, msg));
    }

    /// The changes of the next osdmap, to be added to.
    pub(crate) fn pending_osd(&mut self) -> &mut Incremental {
        let (map, now) = (&self.osd.map, self.now);
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
            let Some((session, msg)) = self.queue.pop_front() else {
                return;
            };
            let is_wish = is_wish_of_pgs(&msg);
            self.handle_write(session, msg);
            while is_wish
                && self.queue.front().is_some_and(|(_, m)| is_wish_of_pgs(m))
                && let Some((session, msg)) = self.queue.pop_front()
            {
                self.handle_write(session, msg);
            }
        }
    }

    fn collect(&mut self) -> Txn {
        let mut txn = std::mem::take(&mut self.writes.txn);
        if let Some(mut inc) = self.writes.osd.take() {
            self.finish_incremental(&mut inc);
            match self.osd.encode(inc) {
                Ok(t) => txn.extend(t),
                Err(e) => {
                    // Every change was validated before, so this is a defect; the map stays as it is.
                    tracing::error!("osdmap change dropped: {e}");
                    self.writes.waiters.clear();
                }
            }
        }
        if !txn.is_empty() || std::mem::take(&mut self.writes.flush_log) {
            txn.extend(self.clog.flush());
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
