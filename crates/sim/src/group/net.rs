//! The way between members: requests and answers that come late, in another order, or not at all.

use std::collections::BTreeSet;

use spirula_mon::raft::{Call, Error};
use spirula_proto::Payload;
use spirula_proto::internal::quorum::{MonPeer, MonPeerReply, Refusal};
use tokio::sync::oneshot;

use super::{Group, Shared};
use crate::clock::SECOND;
use crate::exec::sleep;

/// The time without any data after which a connection counts as broken.
const SILENCE: u64 = 5 * SECOND;

/// The paths that are blocked, and the loss of messages.
#[derive(Default)]
pub(super) struct Net {
    /// Blocked paths, from one member to another.
    pub(super) cut: BTreeSet<(usize, usize)>,
    /// The percentage of lost messages.
    pub(super) loss: u64,
}

impl Net {
    fn passes(&self, from: usize, to: usize) -> bool {
        !self.cut.contains(&(from, to))
    }

    /// Whether two members reach each other.
    pub(super) fn joined(&self, a: usize, b: usize) -> bool {
        self.passes(a, b) && self.passes(b, a)
    }
}

impl Group {
    /// How long a message takes; `None` if it is lost.
    fn flight(&mut self, from: usize, to: usize) -> Option<u64> {
        if !self.net.passes(from, to) || self.rng.below(100) < self.net.loss {
            return None;
        }
        Some(match self.rng.below(20) {
            0 => self.millis(5, 120),
            _ => self.rng.between(100, 3_000),
        })
    }

    /// How long the sender takes to notice a lost message.
    fn patience(&mut self) -> u64 {
        match self.rng.below(2) {
            0 => self.rng.below(SECOND / 10),
            _ => self.rng.below(SILENCE),
        }
    }
}

/// Carries a request to a member, and its answer back.
pub(super) async fn carry(group: Shared, from: usize, call: Call) {
    if exchange(&group, from, call).await.is_none() {
        group.borrow_mut().note(|| format!("from {from}: lost"));
    }
}

async fn exchange(group: &Shared, from: usize, call: Call) -> Option<()> {
    // Dropped in the end, and then the sender knows that nothing comes.
    let answer = call.answer;
    let to = group
        .borrow()
        .members
        .iter()
        .position(|m| m.addr() == call.addr)?;
    let flight = group.borrow_mut().flight(from, to);
    let Some(flight) = flight else {
        let patience = group.borrow_mut().patience();
        sleep(patience).await;
        return None;
    };
    sleep(flight).await;
    // As it is on the wire.
    let message = call.ask.to_message();
    group.borrow_mut().trace.bytes(&message.front);
    let ask: MonPeer = message.decode().ok()?;
    let reply = deliver(group, to, ask)?.await.ok()?;
    let flight = group.borrow_mut().flight(to, from);
    let Some(flight) = flight else {
        let patience = group.borrow_mut().patience();
        sleep(patience).await;
        return None;
    };
    sleep(flight).await;
    let message = reply.to_message();
    group.borrow_mut().trace.bytes(&message.front);
    // The sender may have ended.
    let _ = answer.send(message.decode().ok()?);
    Some(())
}

/// Delivers a request to a member; its answer comes later, if the member lives that long.
fn deliver(group: &Shared, to: usize, ask: MonPeer) -> Option<oneshot::Receiver<MonPeerReply>> {
    let (raft, process) = {
        let g = group.borrow();
        let running = g.members.get(to)?.running.as_ref()?;
        (running.raft.clone(), running.process)
    };
    let (tx, rx) = oneshot::channel();
    let (exec, group) = (group.borrow().exec.clone(), group.clone());
    exec.spawn(process, async move {
        let me = raft.id();
        let (answer, follows) = match ask {
            MonPeer::Vote(a) if a.target == me => {
                let answer = raft.handle_vote(&a).await;
                let granted = answer.as_ref().is_ok_and(|r| r.granted);
                (answer.map(MonPeerReply::Vote), granted.then_some(a.vote))
            }
            MonPeer::Append(a) if a.target == me => {
                let answer = raft.handle_append(&a).await;
                let taken = answer.as_ref().is_ok_and(|r| r.higher.is_none());
                (answer.map(MonPeerReply::Append), taken.then_some(a.vote))
            }
            MonPeer::Snapshot(p) if p.target == me => {
                (raft.handle_snapshot(p).await.map(MonPeerReply::Snapshot), None)
            }
            _ => (Err(Error::Peer("meant for another node".to_owned())), None),
        };
        if let Some(vote) = follows {
            let mut g = group.borrow_mut();
            let kept = g.truth.promised(me, &vote);
            g.check(kept);
        }
        let reply = answer.unwrap_or_else(|e| {
            if !matches!(e, Error::Peer(_)) {
                group.borrow_mut().stopped(to, &e.to_string());
            }
            MonPeerReply::Refused(Refusal { why: e.to_string() })
        });
        // The connection may be gone.
        let _ = tx.send(reply);
    });
    Some(rx)
}
