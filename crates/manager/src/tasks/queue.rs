//! The tasks that are under way or wait.

use std::collections::{BTreeMap, VecDeque};

use chrono::{DateTime, Utc};

use super::task::{Refs, Task, is_meant};

/// Tasks that are remembered when they are done, so that a command that comes again does not begin anew.
const REMEMBERED: usize = 50;

/// All tasks, by their sequence.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    tasks: BTreeMap<u64, Task>,
    completed: VecDeque<Task>,
    sequence: u64,
}

impl Queue {
    /// Takes a task in.
    pub(crate) fn insert(&mut self, task: Task) {
        self.sequence = self.sequence.max(task.sequence);
        self.tasks.insert(task.sequence, task);
    }

    /// The number of the next task.
    pub(crate) fn next_sequence(&mut self) -> u64 {
        self.sequence = self.sequence.saturating_add(1);
        self.sequence
    }

    pub(crate) fn get(&self, sequence: u64) -> Option<&Task> {
        self.tasks.get(&sequence)
    }

    pub(crate) fn get_mut(&mut self, sequence: u64) -> Option<&mut Task> {
        self.tasks.get_mut(&sequence)
    }

    /// The task of this name.
    pub(crate) fn by_id(&self, id: &str) -> Option<&Task> {
        self.tasks.values().find(|t| t.id == id)
    }

    /// All tasks, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Task> {
        self.tasks.values()
    }

    /// A task that does the same, or has done it lately.
    pub(crate) fn find(&self, refs: &Refs) -> Option<&Task> {
        let waiting = self.tasks.values().find(|t| is_meant(&t.refs, refs));
        waiting.or_else(|| self.completed.iter().rev().find(|t| is_meant(&t.refs, refs)))
    }

    /// The tasks to be tried now, in order.
    pub(crate) fn due(&self, now: DateTime<Utc>) -> Vec<u64> {
        let due = self.tasks.values().filter(|t| t.is_due(now));
        due.map(|t| t.sequence).collect()
    }

    /// Forgets a task; one that was done is remembered for a while.
    pub(crate) fn remove(&mut self, sequence: u64) {
        let Some(task) = self.tasks.remove(&sequence) else {
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
    use super::*;

    fn task(sequence: u64, image: &str) -> Task {
        let spec = ImageSpec::parse(image, "p").unwrap();
        let refs = refs(Action::Remove, &spec, Some(image));
        Task::new(sequence, format!("id-{sequence}"), String::new(), refs).unwrap()
    }

    #[test]
    fn an_equal_task_is_found_while_it_waits_and_after_it_was_done() {
        let mut q = Queue::default();
        q.insert(task(7, "a"));
        assert_eq!(q.next_sequence(), 8);
        q.insert(task(8, "b"));
        let (a, b) = (task(0, "a").refs, task(0, "b").refs);
        assert_eq!(q.find(&a).map(|t| t.sequence), Some(7));
        q.remove(7);
        assert_eq!(q.find(&a).map(|t| t.sequence), Some(7), "it was done");
        assert!(q.by_id("id-7").is_none());
        q.get_mut(8).unwrap().failure = Some("canceled".into());
        q.remove(8);
        assert!(q.find(&b).is_none(), "it was given up");
        for sequence in 9..9 + REMEMBERED as u64 {
            q.insert(task(sequence, &format!("c{sequence}")));
            q.remove(sequence);
        }
        assert!(q.find(&a).is_none(), "it is forgotten");
    }

    #[test]
    fn tasks_are_due_in_order_and_not_before_their_time() {
        let mut q = Queue::default();
        (1..=3).rev().for_each(|n| q.insert(task(n, &format!("i{n}"))));
        let now = DateTime::UNIX_EPOCH;
        q.get_mut(2).unwrap().attempted(now);
        assert_eq!(q.due(now), [1, 3]);
        assert_eq!(q.due(now + chrono::TimeDelta::seconds(30)), [1, 2, 3]);
    }
}
