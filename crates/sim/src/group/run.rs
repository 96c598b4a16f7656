//! A run from its beginning to the checks at its end.

use std::cell::RefCell;
use std::rc::Rc;

use spirula_denc::UTime;
use spirula_maps::MonMap;

use super::member::{Member, start};
use super::replace::replace;
use super::storm::{start_later, start_missing, storm};
use super::work::work;
use super::{Group, Net, Outcome, Programs, Setup, Shared, Truth};
use crate::clock::SECOND;
use crate::exec::Exec;
use crate::setup::Failure;
use crate::trace::Trace;
use crate::world::FSID;
use spirula_random::Rng;

/// The number of monitors in all of a run.
const ALL: usize = 7;
/// How long a group may take to come up, and to recover.
const START_TIME: u64 = 60 * SECOND;
const HEAL_TIME: u64 = 300 * SECOND;
/// How long the last proposals may take.
const REST_TIME: u64 = 5 * SECOND;
/// How often the group's health is checked.
const STEP: u64 = SECOND / 2;
/// The number of tasks that propose.
const PROPOSERS: usize = 3;
/// More steps than this within a second of virtual time mean an endless loop.
const MOST_STEPS: u64 = 200_000;

/// Runs the group of a seed.
///
/// # Errors
/// A broken guarantee: see the module.
pub fn run(seed: u64, setup: &Setup) -> Result<Outcome, Failure> {
    let mut rng = Rng::new(seed);
    let (exec, _entered) = Exec::enter(rng.fork());
    let members = (0..ALL).map(|m| Member::new(m, rng.number())).collect();
    let group = Rc::new(RefCell::new(Group {
        setup: setup.clone(),
        exec: exec.clone(),
        rng,
        members,
        map: MonMap::initial(FSID, UTime::ZERO),
        net: Net::default(),
        truth: Truth::default(),
        trace: Trace::default(),
        last_process: 0,
        last_node: 0,
        last_txn: 0,
        founded: false,
        ended: Vec::new(),
        storm: true,
        working: true,
        failure: None,
        changes: 0,
        cuts: 0,
        lost_disks: 0,
        reads: 0,
    }));
    let result = live(&group, &exec);
    let at = exec.now();
    let outcome = result.map_err(|what| Failure { what, at });
    // The tasks hold the group, and the group the executor.
    for m in 0..ALL {
        group.borrow_mut().stop(m, false);
    }
    outcome
}

fn live(group: &Shared, exec: &Rc<Exec>) -> Result<Outcome, String> {
    let count = group.borrow().setup.members;
    for m in 0..count {
        group.borrow_mut().add(m);
        let programs = group.borrow().setup.programs;
        if let Programs::Replaced(edition, _) = programs {
            group.borrow_mut().speak(m, edition);
        }
        start(group, m);
    }
    advance(group, exec, START_TIME, |g| g.whole().is_some())?;
    if group.borrow().whole().is_none() {
        return Err(format!("the group does not form:\n{}", group.borrow().report()));
    }
    for _ in 0..PROPOSERS {
        exec.spawn(0, work(group.clone()));
    }
    let (programs, seconds) = (group.borrow().setup.programs, group.borrow().setup.seconds);
    if let Programs::Replaced(_, edition) = programs {
        replace(group, exec, edition)?;
    } else {
        exec.spawn(0, storm(group.clone()));
        advance(group, exec, seconds * SECOND, |_| false)?;
    }
    group.borrow_mut().calm();
    heal(group, exec)?;
    group.borrow_mut().working = false;
    // Lets the proposals under way end.
    advance(group, exec, REST_TIME, |_| false)?;
    let end = exec.now() + HEAL_TIME;
    while !group.borrow().are_equal() {
        advance(group, exec, STEP, |_| false)?;
        if exec.now() > end {
            return Err(format!(
                "the members stay different:\n{}",
                group.borrow().report()
            ));
        }
    }
    let mut g = group.borrow_mut();
    let terms = g.whole().map_or(0, |(_, v)| v.term);
    for m in 0..ALL {
        if let Some(store) = g.members[m].running.as_ref().map(|r| r.store.clone()) {
            g.truth.state(&format!("mon {m} in the end"), &store)?;
        }
        g.stop(m, false);
    }
    g.truth.judge()?;
    if let Some(what) = g.failure.take() {
        return Err(what);
    }
    Ok(Outcome {
        digest: g.trace.digest(),
        events: g.trace.events,
        usec: exec.now(),
        committed: g.truth.transactions(),
        snapshots: g.truth.snapshots,
        changes: g.changes,
        terms,
        cuts: g.cuts,
        lost_disks: g.lost_disks,
        reads: g.reads,
    })
}

/// Waits until the group is healthy.
pub(super) fn heal(group: &Shared, exec: &Rc<Exec>) -> Result<(), String> {
    let end = exec.now() + HEAL_TIME;
    while group.borrow().whole().is_none() {
        start_missing(group);
        advance(group, exec, STEP, |_| false)?;
        if exec.now() > end {
            return Err(format!("does not heal:\n{}", group.borrow().report()));
        }
    }
    Ok(())
}

/// Lets this many microseconds pass, or fewer if `done` returns true.
pub(super) fn advance(
    group: &Shared,
    exec: &Rc<Exec>,
    usec: u64,
    done: impl Fn(&Group) -> bool,
) -> Result<(), String> {
    let end = exec.now() + usec;
    let (mut second, mut steps) = (0, 0);
    loop {
        exec.settle();
        let mut g = group.borrow_mut();
        g.watch();
        if let Some(what) = g.failure.take() {
            return Err(what);
        }
        let ended = std::mem::take(&mut g.ended);
        drop(g);
        for m in ended {
            start_later(group, m);
        }
        // Lets tasks that waited for the ended processes go on.
        exec.settle();
        if !exec.fire(end) {
            return Ok(());
        }
        let now = exec.now();
        group.borrow_mut().trace.tick(now);
        steps = if now / SECOND == second { steps + 1 } else { 0 };
        second = now / SECOND;
        if steps > MOST_STEPS {
            return Err("turns in a circle".to_owned());
        }
        if done(&group.borrow()) {
            return Ok(());
        }
    }
}

impl Group {
    /// Whether all members have applied the whole log.
    fn are_equal(&self) -> bool {
        let Some((leader, view)) = self.whole() else {
            return false;
        };
        let last = |m: usize| {
            let metrics = self.members.get(m)?.running.as_ref()?.raft.watch();
            let metrics = metrics.borrow();
            Some((metrics.last_log_index, metrics.last_applied.map(|id| id.index)))
        };
        let Some((Some(end), _)) = last(leader) else {
            return false;
        };
        let members = self
            .members
            .iter()
            .filter(|m| m.node.is_some_and(|n| view.voters.contains_key(&n)));
        members
            .map(|m| last(m.index))
            .all(|l| l == Some((Some(end), Some(end))))
    }

    /// The state of the group, for people.
    pub(super) fn report(&self) -> String {
        let mut out = format!("map {:?}\n", self.map.ranks);
        for m in &self.members {
            let state = m.running.as_ref().map(|r| (r.raft.view(), r.leads));
            if m.process.is_some() || self.is_wanted(m.index) {
                out += &format!(
                    "{} node {:?} process {:?}: {state:?}\n",
                    m.index, m.node, m.process
                );
            }
        }
        out
    }
}
