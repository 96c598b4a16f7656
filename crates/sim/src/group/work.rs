//! Proposals and reads, sent to members that believe to lead.

use std::sync::Arc;

use spirula_mon::kv::Txn;
use spirula_mon::raft::{Error, Raft};

use super::{Group, Shared};
use crate::exec::{Process, Virtual, sleep};

/// Keys that proposals set.
const KEYS: u64 = 40;
/// The longest value.
const LONGEST: u64 = 400;

/// A member that believes to lead.
struct Leader {
    index: usize,
    process: Process,
    raft: Raft<Virtual>,
    term: u64,
    /// It has applied all entries of earlier terms.
    is_ready: bool,
}

impl Group {
    fn believer(&mut self) -> Option<Leader> {
        let mut leaders = Vec::new();
        for m in &self.members {
            let Some(r) = &m.running else { continue };
            let view = r.raft.view();
            if view.leads && view.failed.is_none() {
                leaders.push(Leader {
                    index: m.index,
                    process: r.process,
                    raft: r.raft.clone(),
                    term: view.term,
                    is_ready: r.leads == Some(view.term),
                });
            }
        }
        let at = usize::try_from(self.rng.below(leaders.len() as u64)).unwrap_or(0);
        (at < leaders.len()).then(|| leaders.swap_remove(at))
    }

    fn next_transaction(&mut self, term: u64) -> Arc<Txn> {
        self.last_txn += 1;
        let key = self.rng.below(KEYS);
        let length = usize::try_from(self.rng.below(LONGEST)).unwrap_or(0);
        let fill = u8::try_from(self.rng.below(256)).unwrap_or(0);
        let value = (!self.rng.one_in(8)).then(|| vec![fill; length].into());
        // Some were made from a state that only counts in this term.
        let term = if self.rng.one_in(2) { term } else { 0 };
        Arc::new(super::truth::transaction(self.last_txn, key, value, term))
    }

    /// Records the answer to a proposal.
    fn answered(&mut self, m: usize, txn: &Arc<Txn>, result: Result<u64, Error>) {
        self.hear(m);
        self.note(|| format!("{m}: answered {result:?}"));
        if let Ok(index) = result {
            let is_there = self.truth.acknowledge(index, txn);
            self.check(is_there);
        }
    }

    /// Checks a confirmed leader, which was asked when entries up to `floor` had been reported.
    fn confirmed(&mut self, m: usize, floor: u64) {
        self.hear(m);
        let Some(r) = self.members.get(m).and_then(|m| m.running.as_ref()) else {
            return;
        };
        match r.store.applied_to() {
            Ok(at) if at < floor => self.fail(format!(
                "mon {m} leads for certain, at {at}, when {floor} was reported"
            )),
            _ => self.reads += 1,
        }
    }
}

/// Proposes and reads until the end.
pub(super) async fn work(group: Shared) {
    loop {
        let pause = {
            let mut g = group.borrow_mut();
            let mean = g.setup.pause_ms;
            g.millis(1, 2 * mean)
        };
        sleep(pause).await;
        let mut guard = group.borrow_mut();
        let g = &mut *guard;
        if !g.working {
            continue;
        }
        let Some(leader) = g.believer() else { continue };
        let (m, raft, exec, shared) = (leader.index, leader.raft, g.exec.clone(), group.clone());
        if g.rng.one_in(4) {
            if leader.is_ready {
                let floor = g.truth.acknowledged;
                exec.spawn(leader.process, async move {
                    if raft.confirm().await.is_ok() {
                        shared.borrow_mut().confirmed(m, floor);
                    }
                });
            }
            continue;
        }
        let txn = g.next_transaction(leader.term);
        exec.spawn(leader.process, async move {
            let result = raft.propose(txn.clone()).await;
            shared.borrow_mut().answered(m, &txn, result);
        });
    }
}
