//! The way between members: requests and answers that come late, in another order, or not at all.

use std::collections::{BTreeMap, BTreeSet};

use spirula_mon::raft::{Call, Error};
use spirula_proto::RawMessage;
use spirula_proto::internal::quorum::{MonPeer, MonPeerReply, Refusal};
use spirula_proto::internal::{Neighbour, Protocol};
use tokio::sync::oneshot;

use super::{Group, Shared};
use crate::clock::SECOND;
use crate::exec::{Process, sleep};

/// The time without any data after which a connection counts as broken.
const SILENCE: u64 = 5 * SECOND;

/// The paths that are blocked, and the loss of messages.
#[derive(Default)]
pub(super) struct Net {
    /// Blocked paths, from one member to another.
    pub(super) cut: BTreeSet<(usize, usize)>,
    /// The percentage of lost messages.
    pub(super) loss: u64,
    /// The connections, by the member that asks and the one that answers.
    connections: BTreeMap<[usize; 2], Connection>,
    /// The version in which each end of a connection has written last.
    written_in: BTreeMap<([usize; 2], usize), u16>,
}

impl Net {
    fn passes(&self, from: usize, to: usize) -> bool {
        !self.cut.contains(&(from, to))
    }

    /// The versions in which a member has last asked another one, and was last answered.
    pub(super) fn written_between(&self, asks: usize, answers: usize) -> [Option<u16>; 2] {
        [End::Asks, End::Answers].map(|end| self.written_in.get(&([asks, answers], end as usize)).copied())
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

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// That of the member which asks.
    Asks = 0,
    /// That of the member which answers.
    Answers = 1,
}

impl End {
    fn other(self) -> Self {
        match self {
            Self::Asks => Self::Answers,
            Self::Answers => Self::Asks,
        }
    }
}

/// A connection on which one member asks another one, by its ends.
#[derive(Clone)]
pub(super) struct Connection {
    processes: [Option<Process>; 2],
    /// What each end knows of the other one.
    neighbours: [Neighbour; 2],
}

/// A message on the way.
struct Sent {
    message: RawMessage,
    processes: [Option<Process>; 2],
}

impl Group {
    /// The connection of these processes of two members.
    fn connection(&mut self, members: [usize; 2]) -> &mut Connection {
        let processes = members.map(|m| self.members.get(m).and_then(|m| m.process));
        let new = Connection {
            processes,
            neighbours: members.map(|m| Neighbour::of(self.edition(m))),
        };
        let connection = self.net.connections.entry(members);
        let connection = connection.or_insert_with(|| new.clone());
        if connection.processes != processes {
            *connection = new;
        }
        connection
    }

    /// A message as it is on the wire.
    fn write<P: Protocol>(&mut self, members: [usize; 2], end: End, msg: &P) -> Sent {
        let presumes = self.setup.presumes;
        let own = self.edition(members[end as usize]);
        let connection = self.connection(members);
        let message = match presumes {
            true => msg.to_raw(own, own),
            false => connection.neighbours[end as usize].write(msg),
        };
        let processes = connection.processes;
        self.trace.bytes(&message.front);
        let edition = message.header.compat_version;
        self.net.written_in.insert((members, end as usize), edition);
        Sent { message, processes }
    }

    /// Reads a message that arrives at an end; `None` if it is lost with its connection.
    fn read<P: Protocol>(&mut self, members: [usize; 2], end: End, sent: &Sent) -> Option<P> {
        let own = self.edition(members[end as usize]);
        let connection = self.connection(members);
        if connection.processes != sent.processes {
            // The sender or the receiver is another process by now.
            return P::from_raw(&sent.message, own).ok();
        }
        match connection.neighbours[end as usize].read(&sent.message) {
            Ok(msg) => Some(msg),
            Err(e) => {
                let [to, from] = [end, end.other()].map(|end| members[end as usize]);
                self.fail(format!("mon {to} does not understand mon {from}: {e}"));
                None
            }
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
    let members = [from, to];
    let flight = group.borrow_mut().flight(from, to);
    let Some(flight) = flight else {
        let patience = group.borrow_mut().patience();
        sleep(patience).await;
        return None;
    };
    let sent = group.borrow_mut().write(members, End::Asks, &call.ask);
    sleep(flight).await;
    let ask = group.borrow_mut().read(members, End::Answers, &sent)?;
    let reply = deliver(group, to, ask)?.await.ok()?;
    let flight = group.borrow_mut().flight(to, from);
    let Some(flight) = flight else {
        let patience = group.borrow_mut().patience();
        sleep(patience).await;
        return None;
    };
    let sent = group.borrow_mut().write(members, End::Answers, &reply);
    sleep(flight).await;
    let reply = group.borrow_mut().read(members, End::Asks, &sent)?;
    // The sender may have ended.
    let _ = answer.send(reply);
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
