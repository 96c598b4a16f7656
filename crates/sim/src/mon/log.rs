//! The log in place of Raft's: the committed entries, the leader, and what the monitors believe
//! about the leader.

use std::collections::BTreeSet;
use std::sync::Arc;

use spirula_mon::raft::Applied;

use super::{AGAIN, MonEvent, Told, Way, name};
use crate::clock::SECOND;
use crate::net::Node;
use crate::world::{Event, World};

impl World {
    pub(super) fn try_commit(&mut self, id: u64) {
        let Some((m, term, _)) = self.mons.proposals.get(&id) else {
            return;
        };
        let (m, term) = (*m, *term);
        if self.mons.leader == Some(m) && term == self.mons.term && self.has_majority(m) {
            self.commit(id);
            self.apply_log(m);
            for follower in 0..self.mons.count() {
                if follower != m {
                    let after = self.latency() + self.rng.below(3_000);
                    self.after(after, Event::Mon(MonEvent::Apply(follower)));
                }
            }
        } else if term == self.mons.term {
            // Nobody else leads: it may still come to that.
            self.after(AGAIN, Event::Mon(MonEvent::Commit(id)));
        } else {
            self.mons.proposals.remove(&id);
        }
    }

    fn commit(&mut self, id: u64) {
        if let Some((_, term, txn)) = self.mons.proposals.remove(&id)
            && (txn.term == 0 || txn.term == term)
        {
            self.mons.log.push(Arc::new(txn));
        }
    }

    /// Makes a monitor apply the committed entries.
    pub(super) fn apply_log(&mut self, m: usize) {
        let now = self.clock.now();
        while let Some(n) = self.mons.nodes.get_mut(m).filter(|n| n.core.is_some()) {
            let Some(txn) = self.mons.log.get(n.applied).cloned() else {
                return;
            };
            n.applied += 1;
            n.kv.0.borrow_mut().apply(&txn);
            let index = n.applied as u64;
            self.with_mon(m, |c| c.committed(&Applied::Txn { index, txn }, now));
        }
    }

    /// Updates what the monitors believe about each other.
    pub(super) fn look(&mut self) {
        if self.mons.count() == 1 {
            return;
        }
        let now = self.clock.usec();
        let standing = self.mons.leader.filter(|l| self.has_majority(*l));
        if standing.is_some() {
            self.mons.vacant_since = None;
        } else {
            let since = *self.mons.vacant_since.get_or_insert(now);
            if self.mons.patience == 0 {
                self.mons.patience = self.rng.between(SECOND / 3, 2 * SECOND);
            }
            let able: Vec<usize> = (0..self.mons.count()).filter(|m| self.has_majority(*m)).collect();
            if now - since >= self.mons.patience
                && let Some(next) = self.rng.pick(&able).copied()
            {
                self.elect(next);
            }
        }
        for m in 0..self.mons.count() {
            self.look_at(m, now);
        }
        self.tell_quorum();
    }

    /// Commits what a leader has proposed before it reached a majority again: it leads on only when
    /// everything in its log is committed and applied (`Raft::barrier`).
    fn pass_barrier(&mut self, m: usize) {
        let term = self.mons.term;
        let proposals = self.mons.proposals.iter();
        let own = proposals.filter(|(_, (by, of, _))| *by == m && *of == term);
        for id in own.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.commit(id);
        }
        self.apply_log(m);
    }

    /// Makes a monitor the leader, chosen by a majority.
    pub(super) fn elect(&mut self, m: usize) {
        // Proposals under way may have reached it, or not.
        for id in self.mons.proposals.keys().copied().collect::<Vec<_>>() {
            let of_last_term = self
                .mons
                .proposals
                .get(&id)
                .is_some_and(|p| p.1 == self.mons.term);
            if of_last_term && self.rng.one_in(2) {
                self.commit(id);
            } else {
                // A leader's proposals are lost from the first missing one on.
                break;
            }
        }
        self.mons.proposals.clear();
        self.mons.term += 1;
        (self.mons.leader, self.mons.vacant_since, self.mons.patience) = (Some(m), None, 0);
        self.apply_log(m);
    }

    /// Tells a monitor its new role, a while after it has changed.
    fn look_at(&mut self, m: usize, now: u64) {
        if !self.mons.runs(m) {
            return;
        }
        let term = self.mons.term;
        let is = match self.mons.leader {
            Some(l) if l == m && self.has_majority(m) => Told::Leader(term),
            Some(l) if l != m && self.has_majority(l) && self.net.joined(Node::Mon(l), Node::Mon(m)) => {
                Told::Peon(l, term)
            }
            _ => Told::Adrift,
        };
        let Some(n) = self.mons.nodes.get_mut(m) else {
            return;
        };
        if is == n.told {
            n.wrong_since = None;
            return;
        }
        let since = *n.wrong_since.get_or_insert(now);
        // A monitor that hears nothing any more notices that late; one that hears of a new leader
        // at once.
        let after = if is == Told::Adrift { SECOND } else { 0 };
        if now - since < after {
            return;
        }
        n.wrong_since = None;
        n.told = is;
        n.ways.retain(|_, w| !matches!(w, Way::Through(..)));
        n.forwarded.clear();
        let now = self.clock.now();
        match is {
            Told::Leader(term) => {
                self.pass_barrier(m);
                self.with_mon(m, |c| c.lead(term, now))
            }
            Told::Peon(leader, term) => {
                self.apply_log(m);
                self.with_mon(m, |c| c.follow(&name(leader), term, now))
            }
            Told::Adrift => self.with_mon(m, |c| c.adrift(term, now)),
        };
    }

    fn tell_quorum(&mut self) {
        let Some(leader) = self.mons.leader.filter(|l| self.has_majority(*l)) else {
            return;
        };
        let now = self.clock.now();
        let members = self.reached(leader);
        let names: Vec<String> = members.iter().map(|m| name(*m)).collect();
        let known: BTreeSet<&String> = names.iter().collect();
        for m in members {
            let believes = matches!(self.told(m), Told::Leader(t) | Told::Peon(_, t) if t == self.mons.term);
            let core = self.mons.nodes.get(m).and_then(|n| n.core.as_ref());
            let differs = core.is_some_and(|c| c.quorum_names().iter().collect::<BTreeSet<_>>() != known);
            if believes && differs {
                self.with_mon(m, |c| c.see_quorum(&names, now, now));
            }
        }
    }
}
