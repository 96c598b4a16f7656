//! Faults, and their ends.

use spirula_mon::raft::View;
use spirula_store::device::Fault;

use super::member::start;
use super::{Group, Shared};
use crate::exec::sleep;

/// The largest number of monitors in the map.
const MOST: usize = 5;
/// The longest time of disk operations in microseconds: usually, and on slow disks.
const FAST: u64 = 1_500;
const SLOW: u64 = 200_000;

#[derive(Debug, Clone, Copy)]
enum Kind {
    Kill,
    Cut,
    Blackout,
    Partition,
    OneWay,
    Deposition,
    Loss,
    SlowDisk,
    DiskError,
    LostDisk,
    Change,
}

/// Injects faults until the storm is over.
pub(super) async fn storm(group: Shared) {
    loop {
        let pause = {
            let mut g = group.borrow_mut();
            let calm = g.setup.calm_ms;
            g.millis(calm / 4, calm * 7 / 4)
        };
        sleep(pause).await;
        if !group.borrow().storm {
            return;
        }
        let kind = group.borrow_mut().choose();
        disturb(&group, kind);
    }
}

impl Group {
    fn choose(&mut self) -> Kind {
        let f = self.setup.faults;
        let kinds = [
            (Kind::Kill, f.kills),
            (Kind::Cut, f.cuts),
            (Kind::Blackout, f.blackouts),
            (Kind::Partition, f.partitions),
            (Kind::OneWay, f.one_way),
            (Kind::Deposition, f.depositions),
            (Kind::Loss, f.losses),
            (Kind::SlowDisk, f.slow_disks),
            (Kind::DiskError, f.disk_errors),
            (Kind::LostDisk, f.lost_disks),
            (Kind::Change, f.changes),
        ];
        let sum: u64 = kinds.iter().map(|(_, n)| u64::from(*n)).sum();
        let mut at = self.rng.below(sum);
        for (kind, n) in kinds {
            if at < u64::from(n) {
                return kind;
            }
            at -= u64::from(n);
        }
        Kind::Kill
    }

    /// A running member, picked at random.
    fn victim(&mut self) -> Option<usize> {
        let running: Vec<usize> = self
            .members
            .iter()
            .filter(|m| m.process.is_some())
            .map(|m| m.index)
            .collect();
        self.rng.pick(&running).copied()
    }

    fn cut_off(&mut self, these: &[usize], in_both: bool) {
        for a in 0..self.members.len() {
            for b in 0..self.members.len() {
                if these.contains(&a) && !these.contains(&b) {
                    self.net.cut.insert((a, b));
                    if in_both {
                        self.net.cut.insert((b, a));
                    }
                }
            }
        }
    }

    fn arm(&mut self, m: usize, fault: Fault) {
        if let Some(member) = self.members.get(m) {
            member.disk.arm(fault);
        }
    }

    fn slow(&mut self, m: usize, most: u64) {
        if let Some(member) = self.members.get_mut(m) {
            member.slowness = most;
            if let Some(process) = member.process {
                self.exec.set_disk(process, most);
            }
        }
    }

    /// The leader, if the running members are exactly the monitors of the map.
    pub(super) fn whole(&self) -> Option<(usize, View)> {
        let wanted: Vec<_> = self.members.iter().filter(|m| self.is_wanted(m.index)).collect();
        let mut leaders = wanted.iter().filter_map(|m| {
            let view = m.running.as_ref()?.raft.view();
            let leads = m.running.as_ref()?.leads == Some(view.term);
            (view.leads && leads).then_some((m.index, view))
        });
        let (leader, view) = leaders.next()?;
        let all = wanted.iter().all(|m| {
            let is_member = m.node.is_some_and(|n| view.voters.contains_key(&n));
            let follows = m.running.as_ref().is_some_and(|r| {
                let own = r.raft.view();
                own.leader == view.leader
                    && own.voters == view.voters
                    && !own.changing
                    && own.failed.is_none()
            });
            is_member && follows
        });
        let none_else = view.voters.len() == wanted.len() && view.learners.is_empty() && !view.changing;
        (all && none_else && leaders.next().is_none()).then_some((leader, view))
    }

    /// Whether another member still counts this one, which is not in the map, as a member.
    fn is_needed(&self, m: usize) -> bool {
        let Some(node) = self.members.get(m).and_then(|m| m.node) else {
            return false;
        };
        let running = self.members.iter().filter_map(|m| m.running.as_ref());
        running
            .map(|r| r.raft.view())
            .any(|v| v.voters.contains_key(&node))
    }

    /// The operator adds or removes a monitor, if the group is whole.
    fn change_map(&mut self) -> Option<usize> {
        self.whole()?;
        let wanted: Vec<usize> = (0..self.members.len()).filter(|m| self.is_wanted(*m)).collect();
        let away: Vec<usize> = (0..self.members.len()).filter(|m| !self.is_wanted(*m)).collect();
        let grow = wanted.len() < 2 || wanted.len() < MOST && self.rng.one_in(2);
        if !grow {
            let m = *self.rng.pick(&wanted)?;
            self.note(|| format!("remove {m}"));
            self.remove(m);
            return None;
        }
        let m = *self.rng.pick(&away)?;
        if self.members.get(m)?.process.is_some() || self.is_needed(m) {
            return None;
        }
        self.note(|| format!("add {m}"));
        self.add(m);
        Some(m)
    }

    /// A member whose disk may be lost: the others have all its data.
    fn dispensable(&mut self) -> Option<usize> {
        let (_, view) = self.whole()?;
        if view.voters.len() < 3 {
            return None;
        }
        let wanted: Vec<usize> = (0..self.members.len()).filter(|m| self.is_wanted(*m)).collect();
        self.rng.pick(&wanted).copied()
    }

    /// Ends all faults.
    pub(super) fn calm(&mut self) {
        self.storm = false;
        self.net.cut.clear();
        self.net.loss = 0;
        for m in 0..self.members.len() {
            self.slow(m, FAST);
            self.arm(m, Fault::default());
        }
    }
}

/// Starts all members that should run.
pub(super) fn start_missing(group: &Shared) {
    let missing: Vec<usize> = {
        let g = group.borrow();
        let due = |m: &usize| g.is_wanted(*m) || g.is_needed(*m);
        (0..g.members.len()).filter(due).collect()
    };
    for m in missing {
        start(group, m);
    }
}

pub(super) fn start_later(group: &Shared, m: usize) {
    let after = group.borrow_mut().millis(20, 3_000);
    let (exec, shared) = (group.borrow().exec.clone(), group.clone());
    exec.spawn(0, async move {
        sleep(after).await;
        let g = shared.borrow();
        let due = g.is_wanted(m) || g.is_needed(m);
        drop(g);
        if due {
            start(&shared, m);
        }
    });
}

/// Undoes a fault later.
fn undo(group: &Shared, f: impl FnOnce(&mut Group) + 'static) {
    let after = group.borrow_mut().millis(200, 6_000);
    let (exec, shared) = (group.borrow().exec.clone(), group.clone());
    exec.spawn(0, async move {
        sleep(after).await;
        f(&mut shared.borrow_mut());
    });
}

fn disturb(group: &Shared, kind: Kind) {
    let victim = group.borrow_mut().victim();
    let Some(m) = victim else {
        return start_missing(group);
    };
    group.borrow_mut().note(|| format!("{kind:?} {m}"));
    match kind {
        Kind::Kill => group.borrow_mut().stop(m, false),
        Kind::Cut => cut_power(group, m),
        Kind::Blackout => {
            let all = group.borrow().members.len();
            for m in 0..all {
                if group.borrow().members[m].process.is_some() {
                    cut_power(group, m);
                }
            }
        }
        Kind::Partition | Kind::OneWay | Kind::Deposition => partition(group, kind, m),
        Kind::Loss => {
            let loss = group.borrow_mut().rng.between(5, 60);
            group.borrow_mut().net.loss = loss;
            undo(group, |g| g.net.loss = 0);
        }
        Kind::SlowDisk => {
            let most = group.borrow_mut().rng.between(FAST, SLOW);
            group.borrow_mut().slow(m, most);
            undo(group, move |g| g.slow(m, FAST));
        }
        Kind::DiskError => {
            let n = group.borrow_mut().rng.below(6);
            let fault = match group.borrow_mut().rng.below(3) {
                0 => Fault {
                    fail_write: Some(n),
                    ..Fault::default()
                },
                1 => Fault {
                    fail_flush: Some(n),
                    ..Fault::default()
                },
                _ => Fault {
                    fail_read: Some(n),
                    ..Fault::default()
                },
            };
            group.borrow_mut().arm(m, fault);
        }
        Kind::LostDisk => {
            let lost = group.borrow_mut().dispensable();
            if let Some(m) = lost {
                group.borrow_mut().lose_disk(m);
            }
        }
        Kind::Change => {
            let added = group.borrow_mut().change_map();
            if let Some(m) = added {
                start_later(group, m);
            }
        }
    }
}

/// Cuts a member's power, now or during its next write.
fn cut_power(group: &Shared, m: usize) {
    let mut g = group.borrow_mut();
    if g.rng.one_in(3) {
        return g.stop(m, true);
    }
    let after = g.rng.below(24);
    let fault = Fault {
        cut_after: Some(after),
        ..Fault::default()
    };
    g.arm(m, fault);
}

fn partition(group: &Shared, kind: Kind, m: usize) {
    let mut g = group.borrow_mut();
    let before = g.net.cut.clone();
    match kind {
        Kind::Partition => {
            let all = g.members.len();
            let mut these = vec![m];
            for other in 0..all {
                if other != m && g.rng.one_in(3) {
                    these.push(other);
                }
            }
            g.cut_off(&these, true);
        }
        Kind::Deposition => {
            let leader = g
                .members
                .iter()
                .position(|m| m.running.as_ref().is_some_and(|r| r.leads.is_some()));
            g.cut_off(&[leader.unwrap_or(m)], true);
        }
        _ => {
            if g.rng.one_in(2) {
                g.cut_off(&[m], false);
            } else {
                let others: Vec<usize> = (0..g.members.len()).filter(|o| *o != m).collect();
                g.cut_off(&others, false);
            }
        }
    }
    let new: Vec<(usize, usize)> = g.net.cut.difference(&before).copied().collect();
    drop(g);
    undo(group, move |g| g.net.cut.retain(|c| !new.contains(c)));
}
