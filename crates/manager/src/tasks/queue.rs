//! Tasks under way and waiting.

use std::collections::{BTreeMap, VecDeque};

use chrono::{DateTime, Utc};

use super::task::{Refs, Task, is_meant};
use crate::rights::Place;

/// Finished tasks that are remembered, so that a repeated command does not begin anew.
const REMEMBERED: usize = 50;

/// A task's turn. Tasks are tried by their sequence numbers, which count the tasks of one pool and
/// namespace; equal numbers of different places go by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    sequence: u64,
    arrival: u64,
}

impl std::fmt::Display for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.arrival)
    }
}

/// All tasks.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    tasks: BTreeMap<Turn, Task>,
    completed: VecDeque<Task>,
    arrivals: u64,
}

impl Queue {
    /// Adds a task.
    pub(crate) fn insert(&mut self, task: Task) -> Turn {
        self.arrivals += 1;
        let turn = Turn {
            sequence: task.sequence,
            arrival: self.arrivals,
        };
        self.tasks.insert(turn, task);
        turn
    }

    /// The number of the next task in a pool and namespace; `None` where the last one there has the
    /// largest number. Tasks of other places do not count: their tenants could use the numbers up.
    pub(crate) fn next_sequence(&self, place: &Place) -> Option<u64> {
        let there = self.tasks.values().chain(&self.completed);
        let last = there.filter(|t| t.home == *place).map(|t| t.sequence).max();
        last.unwrap_or_default().checked_add(1)
    }

    pub(crate) fn get(&self, turn: Turn) -> Option<&Task> {
        self.tasks.get(&turn)
    }

    pub(crate) fn get_mut(&mut self, turn: Turn) -> Option<&mut Task> {
        self.tasks.get_mut(&turn)
    }

    /// The task of this name for which `seen` returns true: tenants may choose equal names.
    pub(crate) fn by_id(&self, id: &str, seen: impl Fn(&Task) -> bool) -> Option<(Turn, &Task)> {
        let mut named = self.tasks.iter().filter(|(_, t)| t.id == id);
        named.find(|(_, t)| seen(t)).map(|(turn, task)| (*turn, task))
    }

    /// All tasks, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }

    /// A task that does the same work, or has done it lately.
    pub(crate) fn find(&self, refs: &Refs) -> Option<&Task> {
        let waiting = self.tasks.values().find(|t| is_meant(&t.refs, refs));
        waiting.or_else(|| self.completed.iter().rev().find(|t| is_meant(&t.refs, refs)))
    }

    /// The tasks to be tried now, in order.
    pub(crate) fn due(&self, now: DateTime<Utc>) -> Vec<Turn> {
        let due = self.tasks.iter().filter(|(_, t)| t.is_due(now));
        due.map(|(turn, _)| *turn).collect()
    }

    /// Removes a task; a finished one is remembered for a while.
    pub(crate) fn remove(&mut self, turn: Turn) {
        let Some(task) = self.tasks.remove(&turn) else {
            return;
        };
        if task.failure.is_some() {
            return;
        }
        if self.completed.len() == REMEMBERED {
            self.completed.pop_front();
        }
        self.completed.push_back(task);
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::ImageSpec;
    use super::super::task::{Action, refs};
    use spirula_maps::PoolId;

    use super::*;

    fn task(sequence: u64, image: &str) -> Task {
        let spec = ImageSpec::parse(image, "p").unwrap();
        let refs = refs(Action::Remove, &spec, Some(image));
        Task::new(
            sequence,
            format!("id-{sequence}"),
            String::new(),
            refs,
            place(PoolId::new(1)),
        )
        .unwrap()
    }

    fn place(pool: PoolId) -> Place {
        Place {
            pool,
            namespace: String::new(),
        }
    }

    #[test]
    fn an_equal_task_is_found_while_it_waits_and_after_it_was_done() {
        let mut q = Queue::default();
        let first = q.insert(task(7, "a"));
        assert_eq!(q.next_sequence(&place(PoolId::new(1))), Some(8));
        let second = q.insert(task(8, "b"));
        let (a, b) = (task(0, "a").refs, task(0, "b").refs);
        assert_eq!(q.find(&a).map(|t| t.sequence), Some(7));
        q.remove(first);
        assert_eq!(q.find(&a).map(|t| t.sequence), Some(7), "it was done");
        assert!(q.by_id("id-7", |_| true).is_none());
        q.get_mut(second).unwrap().failure = Some("canceled".into());
        q.remove(second);
        assert!(q.find(&b).is_none(), "it was given up");
        for sequence in 9..9 + REMEMBERED as u64 {
            let turn = q.insert(task(sequence, &format!("c{sequence}")));
            q.remove(turn);
        }
        assert!(q.find(&a).is_none(), "it is forgotten");
    }

    #[test]
    fn tasks_are_due_in_order_and_not_before_their_time() {
        let mut q = Queue::default();
        let turns: Vec<Turn> = (1..=3)
            .rev()
            .map(|n| q.insert(task(n, &format!("i{n}"))))
            .collect();
        let [third, second, first] = turns[..] else {
            panic!()
        };
        let now = DateTime::UNIX_EPOCH;
        q.get_mut(second).unwrap().attempted(now);
        assert_eq!(q.due(now), [first, third]);
        let later = now + chrono::TimeDelta::seconds(30);
        assert_eq!(q.due(later), [first, second, third]);
    }

    /// A tenant may store any number and any name.
    #[test]
    fn tasks_of_other_pools_take_neither_numbers_nor_names() {
        let mut q = Queue::default();
        let mine = q.insert(task(1, "mine"));
        let mut planted = task(u64::MAX, "planted");
        (planted.id, planted.home) = ("id-1".into(), place(PoolId::new(2)));
        q.insert(planted.clone());
        planted.sequence = 1;
        q.insert(planted);
        assert_eq!(q.next_sequence(&place(PoolId::new(1))), Some(2));
        assert_eq!(q.next_sequence(&place(PoolId::new(2))), None);
        assert_eq!(q.iter().count(), 3);
        let found = q.by_id("id-1", |t| t.home.pool == PoolId::new(1));
        assert_eq!(found.map(|(turn, _)| turn), Some(mine));
    }
}
