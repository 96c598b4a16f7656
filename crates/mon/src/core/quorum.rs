//! The monitor among the others: whether it leads, which monitors are in quorum, and the effects of
//! changes.
//!
//! The daemon tells the core when it leads ([`Monitor::lead`]), when another monitor does
//! ([`Monitor::follow`]) and when it knows of none that has a majority ([`Monitor::adrift`]). State
//! that only the leader has (statistics, when OSDs were last heard of) is not replicated: OSDs are
//! made to report everything to a new leader, by ending their sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spirula_denc::{EntityAddrVec, UTime};
use spirula_invariant::invariant;
use spirula_proto::mon::LogPriority;

use super::recent::What;
use super::{Monitor, Output, Session, Turn, View};
use crate::health::DiskUse;
use crate::kv::Txn;
use crate::service::MonMaps;

/// How long clients may wait at a monitor that is out of quorum before they are sent to look for
/// another (`mon_lease` of official monitors).
const PATIENCE: Duration = Duration::from_secs(5);

/// The role of the monitor in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It leads.
    Leader,
    /// It follows a leader.
    Peon,
    /// It knows of no leader that has a majority.
    Adrift,
}

/// The quorum as this monitor knows it.
#[derive(Debug, Clone)]
pub struct Quorum {
    /// The role of this monitor.
    pub role: Role,
    /// The leader's name, empty if there is none.
    pub leader: String,
    /// The names of the monitors in quorum, by rank.
    pub names: Vec<String>,
    /// Since when these monitors are in quorum.
    pub since: UTime,
    /// Whether this monitor is the only member of its group, so that no other could have decided
    /// anything.
    pub alone: bool,
    /// Since when there is no quorum.
    adrift_since: UTime,
}

impl Quorum {
    /// The quorum of a monitor that was just started: alone it leads.
    pub(super) fn new(name: &str, alone: bool, now: UTime) -> Self {
        let names = if alone { vec![name.to_owned()] } else { Vec::new() };
        Self {
            role: if alone { Role::Leader } else { Role::Adrift },
            leader: names.first().cloned().unwrap_or_default(),
            names,
            since: now,
            alone,
            // It has not been in quorum: nobody waits for it.
            adrift_since: UTime::ZERO,
        }
    }

    /// Whether this monitor leads.
    pub fn leads(&self) -> bool {
        self.role == Role::Leader
    }
}

/// The information that another monitor sends of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerInfo {
    /// `ceph mon metadata`.
    pub metadata: BTreeMap<String, String>,
    /// Its disk.
    pub disk: Option<DiskUse>,
}

impl View {
    /// The ranks of the monitors in quorum.
    pub(crate) fn quorum_ranks(&self) -> Vec<usize> {
        let rank = |n: &String| self.state.monmap.map.rank_of(n);
        self.quorum.names.iter().filter_map(rank).collect()
    }

    /// The names of the monitors that are not in quorum, by rank.
    pub(crate) fn out_of_quorum(&self) -> Vec<&String> {
        let out = |n: &&String| !self.quorum.names.contains(n);
        self.state.monmap.map.ranks.iter().filter(out).collect()
    }

    /// The metadata that a monitor last sent of itself.
    pub(crate) fn mon_metadata(&self, name: &str) -> BTreeMap<String, String> {
        if *name == self.me.name {
            return self.me.metadata.clone();
        }
        match self.kv.get(MON_METADATA, name) {
            Ok(Some(v)) => serde_json::from_slice(&v).unwrap_or_default(),
            _ => BTreeMap::new(),
        }
    }

    /// The changes of the monitors' metadata, to be kept for when they are down.
    pub(super) fn news_of_monitors(&mut self) -> Txn {
        if !std::mem::take(&mut self.metadata_due) {
            return Txn::default();
        }
        let known: BTreeSet<&String> = self.state.monmap.map.mons.keys().collect();
        self.peers.retain(|name, _| known.contains(name));
        let own = (&self.me.name, &self.me.metadata);
        let mut all = vec![own];
        all.extend(self.peers.iter().map(|(name, p)| (name, &p.metadata)));
        let mut txn = Txn::default();
        for (name, metadata) in all {
            let text = serde_json::to_vec(metadata).unwrap_or_default();
            let stored = self.kv.get(MON_METADATA, name);
            if !matches!(stored, Ok(Some(s)) if s == text) && !metadata.is_empty() {
                txn.put(MON_METADATA, name.clone(), text);
            }
        }
        txn
    }
}

impl Turn<'_> {
    /// Makes a map the next one.
    pub(crate) fn put_monmap(&mut self, mut map: spirula_maps::MonMap) {
        map.epoch = self.view.state.monmap.map.epoch.next();
        map.last_changed = self.view.now;
        invariant!(!map.mons.is_empty(), "a monitor in the monitor map"; epoch = map.epoch);
        MonMaps::put(&map, &mut self.changes.txn);
        for name in self.view.state.monmap.map.mons.keys() {
            if !map.mons.contains_key(name) {
                self.changes.txn.remove(MON_METADATA, name.clone());
                self.view.state.auth.forget_monitor(name, &mut self.changes.txn);
            }
        }
    }
}

impl Monitor {
    /// Begins to lead: a majority knows it, and everything that was committed before is applied.
    pub fn lead(&mut self, term: u64, now: UTime) {
        self.change_role(Role::Leader, term, now);
        invariant!(
            self.is_idle() && self.queue.is_empty(),
            "a leader that begins with the committed state";
            term = term,
            waiting = self.queue.len(),
        );
        self.view.quorum.leader = self.view.me.name.clone();
        self.view.state.stats.restart(now);
        self.view.progress.restart();
        self.view.image_io.restart();
        self.view.state.manager.services.restart();
        self.view.state.osd.start(self.view.steady.now());
        self.view.metadata_due = true;
        self.resend();
        self.pump();
    }

    /// Begins to follow another monitor that leads.
    pub fn follow(&mut self, leader: &str, term: u64, now: UTime) {
        invariant!(leader != self.view.me.name, "another monitor to follow"; leader = leader, term = term);
        self.change_role(Role::Peon, term, now);
        leader.clone_into(&mut self.view.quorum.leader);
        self.resend();
    }

    /// Notes that no monitor leads a majority that this one belongs to.
    pub fn adrift(&mut self, term: u64, now: UTime) {
        if self.view.quorum.role != Role::Adrift {
            self.view.quorum.adrift_since = now;
        }
        self.change_role(Role::Adrift, term, now);
        self.view.quorum.leader.clear();
        self.view.quorum.names.clear();
    }

    /// Handles a new connection to the leader: messages on the old one may be lost, and the leader
    /// has lost its state of our clients.
    pub fn relinked(&mut self, now: UTime) {
        self.view.see_time(now);
        if self.view.quorum.role == Role::Peon {
            self.close_sessions(|s| s.osd().is_some());
            self.resend();
        }
    }

    fn change_role(&mut self, role: Role, term: u64, now: UTime) {
        self.view.see_time(now);
        self.view.term = term;
        self.view.quorum.role = role;
        self.recent.note(What::Role(role), &self.view);
        self.drop_writes();
        self.view.sessions.retain(|_, s| !s.forwarded);
        if role != Role::Adrift {
            self.close_sessions(|s| s.osd().is_some());
        }
        self.view.restart_time_checks();
        // Only the leader is the manager.
        self.stop_manager();
    }

    /// Ends the sessions for which `of` is true.
    pub(super) fn close_sessions(&mut self, of: impl Fn(&Session) -> bool) {
        let ids = self.view.sessions.iter().filter(|(_, s)| of(s));
        self.out.extend(ids.map(|(id, _)| Output::Close(*id)));
    }

    /// Whether clients are accepted: not if nothing could be done for them.
    pub fn serves(&self) -> bool {
        self.view.quorum.role != Role::Adrift || self.view.now.since(self.view.quorum.adrift_since) < PATIENCE
    }

    /// Sets the monitors in quorum, as told by the daemon if this monitor leads, otherwise by the
    /// leader.
    pub fn see_quorum(&mut self, names: &[String], since: UTime, now: UTime) {
        self.view.see_time(now);
        let in_quorum = |n: &&String| names.contains(n);
        let names: Vec<String> = self
            .view
            .state
            .monmap
            .map
            .ranks
            .iter()
            .filter(in_quorum)
            .cloned()
            .collect();
        let changed = names != self.view.quorum.names;
        (self.view.quorum.names, self.view.quorum.since) = (names, since);
        if changed {
            let size = u16::try_from(self.view.quorum.names.len()).unwrap_or(u16::MAX);
            self.recent.note(What::Quorum(size), &self.view);
            self.view.restart_time_checks();
        }
        if changed && self.view.quorum.leads() && self.view.state.monmap.map.mons.len() > 1 {
            let (me, q) = (&self.view.me.name, &self.view.quorum.names);
            let ranks: Vec<String> = self.view.quorum_ranks().iter().map(usize::to_string).collect();
            let (q, ranks) = (q.join(","), ranks.join(","));
            let text = format!("mon.{me} is new leader, mons {q} in quorum (ranks {ranks})");
            self.view.log_event(LogPriority::INFO, text);
        }
    }

    /// Sets whether this monitor is alone in its group.
    pub fn see_alone(&mut self, alone: bool) {
        self.view.quorum.alone = alone;
    }

    /// Notes the information that another monitor sends of itself.
    pub fn see_peer(&mut self, name: &str, info: PeerInfo) {
        if self.view.peers.get(name).map(|p| &p.metadata) != Some(&info.metadata) {
            self.view.metadata_due = true;
        }
        self.view.peers.insert(name.to_owned(), info);
    }

    /// Adds a monitor that wants to be a member to the monitor map, if it is not there. As with
    /// official monitors it may bring a new address, and only needs the key.
    pub fn join(&mut self, name: &str, addrs: &EntityAddrVec, now: UTime) {
        self.view.see_time(now);
        let map = &self.view.state.monmap.map;
        let there = map.mons.get(name).is_some_and(|i| i.public_addrs == *addrs);
        let acceptable = !name.is_empty() && addrs.v2().is_some() && (there || map.mons.len() < MAX_MONITORS);
        if !self.view.quorum.leads() || there || !acceptable || !self.may_write() {
            return; // Whoever is not in the map asks again.
        }
        let mut next = map.clone();
        let taken = map.mons.values().find(|i| i.public_addrs == *addrs);
        if let Some(other) = taken.map(|i| i.name.clone()) {
            next.remove(&other);
        }
        next.add(name, addrs.clone());
        self.turn(|turn| turn.put_monmap(next));
        self.view.log_event(
            LogPriority::INFO,
            format!("mon.{name} at {addrs} joins the monitors"),
        );
        self.pump();
    }
}

/// The service that holds the monitors' metadata.
const MON_METADATA: &str = "mon_metadata";

/// The most monitors of a cluster. Each change waits for a majority, so that more only make it
/// slower.
pub(crate) const MAX_MONITORS: usize = 7;
