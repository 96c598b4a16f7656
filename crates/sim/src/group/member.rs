//! The members: processes over disks.

use std::sync::Arc;

use spirula_denc::{EntityAddr, EntityAddrVec};
use spirula_mon::raft::{Call, Change, Raft, Store, View, next_change, node_of};
use spirula_proto::internal::Edition;
use spirula_proto::internal::quorum::MonHello;
use spirula_store::device::SimDisk;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::disk::{Fate, File};
use super::net::carry;
use super::truth::Stretch;
use super::{Group, Programs, Shared};
use crate::clock::SECOND;
use crate::exec::{Process, Virtual, sleep};
use crate::world::FSID;

/// How often a member looks at the others, as the daemon does.
const LOOK: u64 = SECOND / 5;
/// How long a removed member waits to hear that it is no member any more.
const FAREWELL: u64 = 30 * SECOND;
/// How long a member may go on after a disk operation has failed.
const LAST_WORDS: u64 = 2 * SECOND;

/// A monitor, whether it runs or not.
pub(super) struct Member {
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) disk: SimDisk,
    /// Its number in the group, once it has a store.
    pub(super) node: Option<u64>,
    /// Its process, if it was started.
    pub(super) process: Option<Process>,
    /// The edition of the messages between monitors that its process speaks.
    pub(super) edition: Edition,
    pub(super) running: Option<Running>,
    /// How long a disk operation takes at most.
    pub(super) slowness: u64,
}

/// A process that has read its store.
pub(super) struct Running {
    pub(super) process: Process,
    pub(super) raft: Raft<Virtual>,
    pub(super) store: Store,
    fate: Arc<Fate>,
    failed_at: Option<u64>,
    applied: UnboundedReceiver<spirula_mon::raft::Applied>,
    stretch: Stretch,
    /// The term in which it leads, once it has applied all entries of earlier terms.
    pub(super) leads: Option<u64>,
    confirming: Option<u64>,
    keeping: bool,
    /// When it heard that the operator removed it from the map.
    removed: Option<u64>,
    seen: View,
}

impl Member {
    pub(super) fn new(index: usize, seed: u64) -> Self {
        let letter = u8::try_from(index).map_or('z', |i| char::from(b'a' + i));
        Self {
            index,
            name: letter.to_string(),
            disk: SimDisk::new(0, seed),
            node: None,
            process: None,
            edition: Edition::default(),
            running: None,
            slowness: 500,
        }
    }

    pub(super) fn addrs(&self) -> EntityAddrVec {
        let host = u8::try_from(self.index + 1).unwrap_or(u8::MAX);
        EntityAddr::v2(([10, 0, 0, host], 3300).into(), 0).into()
    }

    pub(super) fn hello(&self) -> MonHello {
        MonHello {
            fsid: FSID,
            name: self.name.clone(),
            node: self.node.unwrap_or(0),
            addrs: self.addrs(),
        }
    }

    pub(super) fn addr(&self) -> String {
        node_of(&self.hello()).addr
    }

    /// Whether a node id is that of its present store.
    pub(super) fn is_node(&self, node: u64) -> bool {
        self.node == Some(node)
    }
}

/// Starts a member's process, unless it runs.
pub(super) fn start(group: &Shared, m: usize) {
    let begun = group.borrow_mut().begin(m);
    let Some((process, store, fate)) = begun else {
        return;
    };
    let (calls, queue) = unbounded_channel();
    let (exec, limits) = (group.borrow().exec.clone(), group.borrow().setup.limits);
    let shared = group.clone();
    exec.spawn(process, async move {
        let started = Raft::<Virtual>::start_on(store.clone(), calls, limits).await;
        let (raft, applied) = match started {
            Ok(started) => started,
            Err(e) => return shared.borrow_mut().stopped(m, &e.to_string()),
        };
        let last = raft.watch().borrow().last_applied.map_or(0, |id| id.index);
        let running = Running {
            process,
            raft: raft.clone(),
            store,
            fate,
            failed_at: None,
            applied,
            stretch: Stretch::after(last),
            leads: None,
            confirming: None,
            keeping: false,
            removed: None,
            seen: View::default(),
        };
        shared.borrow_mut().entered(m, running, last);
        shared
            .borrow()
            .exec
            .spawn(process, carry_all(shared.clone(), m, queue));
        let done = found(&shared, m, &raft).await;
        if let Err(e) = done {
            return shared.borrow_mut().stopped(m, &e.to_string());
        }
        loop {
            sleep(LOOK).await;
            look(&shared, m);
        }
    });
}

/// Prepares a new group: the first member founds it, and leads if it is alone.
async fn found(group: &Shared, m: usize, raft: &Raft<Virtual>) -> Result<(), spirula_mon::raft::Error> {
    if !group.borrow().founded && m == 0 {
        let me = node_of(&group.borrow().members[m].hello());
        raft.found(me).await?;
        group.borrow_mut().founded = true;
    }
    raft.lead_alone().await
}

/// Carries requests to other members.
async fn carry_all(group: Shared, from: usize, mut queue: UnboundedReceiver<Call>) {
    while let Some(call) = queue.recv().await {
        let exec = group.borrow().exec.clone();
        // A message on the way is delivered even if its sender ends.
        exec.spawn(0, carry(group.clone(), from, call));
    }
}

/// A member acts on its view of the group.
fn look(group: &Shared, m: usize) {
    let mut guard = group.borrow_mut();
    let g = &mut *guard;
    let Some(r) = g.members.get(m).and_then(|m| m.running.as_ref()) else {
        return;
    };
    let (view, process, raft) = (r.raft.view(), r.process, r.raft.clone());
    if let Some(why) = &view.failed {
        return g.stopped(m, why);
    }
    let majority = g.has_majority(m, &view);
    raft.allow_elections(majority);
    let removed = (!g.is_wanted(m)).then(|| g.exec.now());
    g.set_removed(m, removed);
    if removed.is_some() && g.is_dismissed(m) {
        return g.stop(m, false);
    }
    if !(view.leads && majority) {
        return;
    }
    let Some(r) = g.members.get_mut(m).and_then(|m| m.running.as_mut()) else {
        return;
    };
    let exec = g.exec.clone();
    if r.leads != Some(view.term) {
        if r.confirming != Some(view.term) {
            r.confirming = Some(view.term);
            exec.spawn(process, barrier(group.clone(), m, raft, view.term));
        }
        return;
    }
    if r.keeping {
        return;
    }
    if let Some(change) = g.due_change(m, &view) {
        g.note(|| format!("{m}: {change:?}"));
        if let Some(r) = g.members.get_mut(m).and_then(|m| m.running.as_mut()) {
            r.keeping = true;
        }
        exec.spawn(process, make(group.clone(), m, raft, change));
    }
}

async fn barrier(group: Shared, m: usize, raft: Raft<Virtual>, term: u64) {
    let done = raft.barrier().await.is_ok();
    let mut g = group.borrow_mut();
    if let Some(r) = g.members.get_mut(m).and_then(|m| m.running.as_mut()) {
        r.confirming = None;
        if done {
            r.leads = Some(term);
        }
    }
}

async fn make(group: Shared, m: usize, raft: Raft<Virtual>, change: Change) {
    let made = change.make(&raft).await;
    let mut g = group.borrow_mut();
    g.note(|| format!("{m}: made {made:?}"));
    g.changes += u64::from(made.is_ok());
    if let Some(r) = g.members.get_mut(m).and_then(|m| m.running.as_mut()) {
        r.keeping = false;
    }
}

impl Group {
    /// The edition that a member speaks.
    pub(super) fn edition(&self, m: usize) -> Edition {
        self.members.get(m).map_or_else(Edition::default, |m| m.edition)
    }

    /// Begins a new process over a member's disk.
    fn begin(&mut self, m: usize) -> Option<(Process, Store, Arc<Fate>)> {
        let by_chance = (self.setup.programs == Programs::Mixed).then(|| match self.rng.one_in(2) {
            true => Edition::Previous,
            false => Edition::Current,
        });
        let member = self.members.get_mut(m).filter(|m| m.process.is_none())?;
        self.last_process += 1;
        let process = self.last_process;
        member.process = Some(process);
        if let Some(edition) = by_chance {
            member.edition = edition;
        }
        self.exec.set_disk(process, member.slowness);
        let fate = Arc::<Fate>::default();
        let file = File {
            disk: member.disk.clone(),
            fate: fate.clone(),
        };
        let planted = |store: Store| {
            if store.node()? == 0 {
                let kept = member.node.is_some() && self.setup.forgetful;
                self.last_node += u64::from(!kept);
                let node = member.node.filter(|_| kept).unwrap_or(self.last_node);
                store.plant(node, b"")?;
            }
            Ok::<_, spirula_mon::raft::StoreError>((store.node()?, store))
        };
        match Store::open_on(file).map(self.setup.prepare).and_then(planted) {
            Ok((node, store)) => {
                member.node = Some(node);
                self.note(|| format!("{m} starts as node {node}"));
                Some((process, store, fate))
            }
            Err(e) => {
                if !fate.has_failed() {
                    self.fail(format!("mon {m} does not start: {e}"));
                }
                self.stopped(m, &e.to_string());
                None
            }
        }
    }

    /// Takes note of a process that has read its store, which holds the state as of `last`.
    fn entered(&mut self, m: usize, running: Running, last: u64) {
        // The process before may have ended before it reported its last entries.
        for index in last.saturating_sub(self.setup.limits.keep_entries)..=last {
            if !self.truth.knows(index)
                && let Ok(Some((term, txn))) = running.store.logged(index)
                && (txn.term == 0 || txn.term == term)
            {
                let new = self.truth.put(index, &txn);
                self.check(new);
            }
        }
        let store = running.store.clone();
        if let Some(member) = self.members.get_mut(m) {
            member.running = Some(running);
        }
        self.see_state(m, &store);
    }

    fn see_state(&mut self, m: usize, store: &Store) {
        // Without its disk it has none, and that is noticed elsewhere.
        let _ = self
            .truth
            .state(&format!("mon {m} at {}", self.exec.now()), store);
    }

    /// Ends a member's process, with `cut` by cutting its power; its disk stays.
    pub(super) fn stop(&mut self, m: usize, cut: bool) {
        self.hear(m);
        let seed = self.rng.number();
        let Some(member) = self.members.get_mut(m) else {
            return;
        };
        if let Some(r) = member.running.take() {
            r.fate.end();
            self.truth.end(&format!("mon {m}"), r.stretch);
        }
        if let Some(process) = member.process.take() {
            self.exec.kill(process);
        }
        if cut || member.disk.is_cut() {
            member.disk = member.disk.power_cycle(seed);
            self.cuts += 1;
        }
        self.ended.push(m);
        self.note(|| format!("{m} ends, {cut}"));
    }

    /// Takes note of a member that stopped by itself, which only a failed disk justifies.
    pub(super) fn stopped(&mut self, m: usize, why: &str) {
        self.note(|| format!("{m} stops: {why}"));
        let r = self.members.get(m).and_then(|m| m.running.as_ref());
        let is_disk = r.is_none_or(|r| r.fate.has_failed());
        if !is_disk {
            self.fail(format!("mon {m} stops by itself: {why}"));
        }
        self.stop(m, false);
    }

    /// Replaces a member's disk by an empty one.
    pub(super) fn lose_disk(&mut self, m: usize) {
        self.stop(m, false);
        let seed = self.rng.number();
        if let Some(member) = self.members.get_mut(m) {
            member.disk = SimDisk::new(0, seed);
            if !self.setup.forgetful {
                member.node = None;
            }
            self.lost_disks += 1;
        }
    }

    /// Adds a monitor to the map, with an empty disk.
    pub(super) fn add(&mut self, m: usize) {
        let seed = self.rng.number();
        if let Some(member) = self.members.get_mut(m) {
            member.disk = SimDisk::new(0, seed);
            member.node = None;
            self.map.add(&member.name, member.addrs());
        }
    }

    /// Removes a monitor from the map.
    pub(super) fn remove(&mut self, m: usize) {
        if let Some(member) = self.members.get(m) {
            self.map.remove(&member.name);
        }
    }

    /// Whether the map has this monitor.
    pub(super) fn is_wanted(&self, m: usize) -> bool {
        self.members
            .get(m)
            .is_some_and(|m| self.map.mons.contains_key(&m.name))
    }

    /// Tells a process whether the map names it.
    fn set_removed(&mut self, m: usize, at: Option<u64>) {
        if let Some(r) = self.members.get_mut(m).and_then(|m| m.running.as_mut()) {
            r.removed = at.map(|at| r.removed.unwrap_or(at));
        }
    }

    /// Whether a removed monitor may end.
    fn is_dismissed(&self, m: usize) -> bool {
        let Some(r) = self.members.get(m).and_then(|m| m.running.as_ref()) else {
            return false;
        };
        let long_ago = r.removed.is_some_and(|at| self.exec.now() - at > FAREWELL);
        let own = r.store.applied_to().unwrap_or(0);
        // Those that know as much, or more.
        let knows = |o: &&Member| {
            let reached = o.index == m || self.net.joined(m, o.index);
            let store = o.running.as_ref().map(|r| &r.store);
            reached && store.is_some_and(|s| s.applied_to().is_ok_and(|at| at >= own))
        };
        let told = |o: &Member| {
            let settled = o.running.as_ref().and_then(|r| r.raft.settled_voters().ok());
            settled.is_some_and(|s| !s.is_empty() && !s.contains(&r.raft.id()))
        };
        long_ago || self.members.iter().filter(knows).any(told)
    }

    /// Whether a member reaches a majority, itself among it.
    fn has_majority(&self, m: usize, view: &View) -> bool {
        let alive = |node: &u64| {
            let runs = |o: &&Member| o.is_node(*node) && o.running.is_some();
            let there = self.members.iter().find(runs);
            there.is_some_and(|o| o.index == m || self.net.joined(m, o.index))
        };
        view.voters.keys().filter(|n| alive(n)).count() * 2 > view.voters.len()
    }

    /// The change of the membership that a leader has to make.
    fn due_change(&self, m: usize, view: &View) -> Option<Change> {
        let me = self.members.get(m)?.hello();
        let reached = |o: &&Member| o.running.is_some() && (o.index == m || self.net.joined(m, o.index));
        let wanted = self.members.iter().filter(|o| self.is_wanted(o.index));
        let joins: Vec<MonHello> = wanted.filter(reached).map(Member::hello).collect();
        next_change(&me, &self.map, view, &joins)
    }

    /// Takes a member's reports of applied entries.
    pub(super) fn hear(&mut self, m: usize) {
        let Some(member) = self.members.get_mut(m) else {
            return;
        };
        let Some(r) = member.running.as_mut() else { return };
        let (mut took, mut result) = (false, Ok(()));
        while let Ok(news) = r.applied.try_recv() {
            took |= matches!(news, spirula_mon::raft::Applied::Snapshot { .. });
            self.trace.note(|| match &news {
                spirula_mon::raft::Applied::Txn { index, .. } => (m, *index, false),
                spirula_mon::raft::Applied::Snapshot { index } => (m, *index, true),
            });
            result = result.and(self.truth.applied(&format!("mon {m}"), &mut r.stretch, &news));
        }
        let store = took.then(|| r.store.clone());
        self.check(result);
        if let Some(store) = store {
            self.see_state(m, &store);
        }
    }

    /// Runs after each step: takes reports, makes changes, and notices failed disks.
    pub(super) fn watch(&mut self) {
        for m in 0..self.members.len() {
            self.hear(m);
            let now = self.exec.now();
            let Some(member) = self.members.get_mut(m) else {
                continue;
            };
            if member.disk.is_cut() {
                self.stop(m, true);
                continue;
            }
            let Some(r) = member.running.as_mut() else {
                continue;
            };
            if r.fate.has_failed() {
                let since = *r.failed_at.get_or_insert(now);
                if now - since > LAST_WORDS {
                    self.fail(format!("mon {m} goes on after its disk has failed"));
                }
                continue;
            }
            let view = r.raft.view();
            if view != r.seen {
                r.seen = view.clone();
                self.note(|| format!("{m}: {view:?}"));
            }
        }
    }
}
