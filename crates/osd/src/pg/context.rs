//! Object contexts: the state of the objects in use, and the order of the ops on each.
//!
//! Writes of an object follow each other without waiting for the disk, as the context holds the
//! state that they lead to. Reads wait until all writes before them are durable everywhere, so that
//! nothing that could still be lost is ever returned; and a write waits for the reads before it. A
//! write that reads first has the object alone until it was executed. Ops are executed in the order
//! of arrival.

use std::collections::VecDeque;

use bytes::Bytes;
use hashbrown::HashMap;
use spirula_invariant::invariant;
use spirula_maps::SnapId;

use super::exec::ObjectState;
use super::fetch::Fetched;
use super::object::ObjectInfo;
use super::op::ClientOp;

/// Uses between two searches for contexts to evict, if those in use alone exceed the limit.
const LOOK_AGAIN: u64 = 64;

/// The context of one object in use.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// The object as the newest write left it; `None` while it is looked up.
    pub state: Option<ObjectState>,
    /// The [`ObjectState::extras`] of it that are counted.
    extras: usize,
    /// The number of writes that are not durable everywhere.
    pub uncommitted: u32,
    /// The number of reads that wait for the store.
    pub reading: u32,
    /// Whether a write that reads first is waiting for the store.
    pub exclusive: bool,
    /// The number of repairs and scrubs of the object and its clones that all ops wait for.
    pub holds: u32,
    /// Clones to be trimmed, with their infos.
    pub trims: Vec<(SnapId, ObjectInfo)>,
    /// The answers fetched for the first waiting op, if that only waits for reads.
    pub answers: Vec<Fetched>,
    /// Ops that wait.
    pub queue: VecDeque<ClientOp>,
    /// When the object was last used, for eviction.
    used: u64,
}

impl Context {
    /// Takes the first op that waits. The memory of an empty queue is freed: there are thousands of
    /// contexts, and most have no waiting ops.
    pub(crate) fn next_op(&mut self) -> Option<ClientOp> {
        let op = self.queue.pop_front();
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
        op
    }

    fn is_idle(&self) -> bool {
        self.state.is_some()
            && self.uncommitted == 0
            && self.reading == 0
            && !self.exclusive
            && self.holds == 0
            && self.trims.is_empty()
            && self.queue.is_empty()
    }
}

/// All contexts of a PG.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    by_key: HashMap<Bytes, Context>,
    clock: u64,
    /// The bytes that the states hold beyond their fixed part.
    extras: usize,
    /// When to try eviction again, if the contexts in use exceeded the limit.
    look_again: u64,
    /// The bytes of the extras after the last eviction, or fewer if contexts were removed since.
    kept: usize,
}

impl Contexts {
    /// The context of an object, made if there is none. Returns whether it is new and must be
    /// looked up.
    pub(crate) fn get(&mut self, key: &Bytes) -> (&mut Context, bool) {
        self.clock += 1;
        let clock = self.clock;
        let mut new = false;
        let c = self.by_key.entry(key.clone()).or_insert_with(|| {
            new = true;
            Context::default()
        });
        c.used = clock;
        (c, new)
    }

    /// The bytes that the states hold beyond their fixed part.
    pub(crate) fn extras(&self) -> usize {
        self.extras
    }

    /// The context of an object in use.
    pub(crate) fn find(&mut self, key: &Bytes) -> Option<&mut Context> {
        self.by_key.get_mut(key)
    }

    /// The state of an object in use.
    pub(crate) fn state(&self, key: &Bytes) -> Option<&ObjectState> {
        self.by_key.get(key)?.state.as_ref()
    }

    /// Sets the state of an object in use.
    pub(crate) fn set_state(&mut self, key: &Bytes, state: ObjectState) -> Option<&mut Context> {
        let c = self.by_key.get_mut(key)?;
        let extras = state.extras();
        invariant!(self.extras >= c.extras, "what an object's state holds to have been counted"; all = self.extras, one = c.extras);
        self.extras = self.extras + extras - c.extras;
        c.extras = extras;
        c.state = Some(state);
        Some(c)
    }

    /// Removes an object that could not be looked up; returns the ops that waited for it.
    pub(crate) fn forget(&mut self, key: &Bytes) -> VecDeque<ClientOp> {
        let Some(c) = self.by_key.remove(key) else {
            return VecDeque::new();
        };
        invariant!(
            c.uncommitted == 0 && self.extras >= c.extras,
            "an object that is forgotten to have no writes under way";
            writes = c.uncommitted, all = self.extras, one = c.extras
        );
        self.extras -= c.extras;
        c.queue
    }

    /// Forgets everything; returns the ops that waited.
    pub(crate) fn clear(&mut self) -> Vec<ClientOp> {
        self.extras = 0;
        let mut all: Vec<(Bytes, Context)> = self.by_key.drain().collect();
        // In the same order in every run of a simulation.
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        all.into_iter().flat_map(|(_, c)| c.queue).collect()
    }

    /// Evicts the longest unused objects if there are more than `max`, or their attributes,
    /// watchers and snapshots take more than `max_bytes`; searches all contexts only now and then,
    /// and when they have grown.
    pub(crate) fn evict(&mut self, max: usize, max_bytes: usize) {
        let many = self.by_key.len() > max + max / 4 + 4;
        self.kept = self.kept.min(self.extras);
        let grown = self.extras > self.kept.saturating_add(max_bytes / 4);
        let heavy = self.extras > max_bytes && (grown || self.clock >= self.look_again);
        if !many && !heavy {
            // There is room for all of them.
            return;
        }
        self.look_again = self.clock + LOOK_AGAIN;
        let idle = self.by_key.values().filter(|c| c.is_idle());
        let mut idle: Vec<(u64, usize)> = idle.map(|c| (c.used, c.extras)).collect();
        idle.sort_unstable();
        let (mut left, mut bytes) = (self.by_key.len(), self.extras);
        // Somewhat below, so that the next ones find room.
        let enough = |left: usize, bytes: usize| left <= max && bytes <= max_bytes - max_bytes / 4;
        let last = idle
            .into_iter()
            .take_while(|(_, extras)| {
                let more = !enough(left, bytes);
                left -= 1;
                bytes -= extras;
                more
            })
            .last();
        if let Some((limit, _)) = last {
            self.retain(|c| !c.is_idle() || c.used > limit);
        }
        self.kept = self.extras;
    }

    /// Removes the contexts that are not in use.
    pub(crate) fn drop_idle(&mut self) {
        self.retain(|c| !c.is_idle());
    }

    fn retain(&mut self, keep: impl Fn(&Context) -> bool) {
        let (mut extras, before) = (0, self.extras);
        self.by_key.retain(|_, c| {
            let kept = keep(c);
            extras += if kept { c.extras } else { 0 };
            kept
        });
        invariant!(extras <= before, "objects that stay to hold no more than all did"; before = before, after = extras);
        self.extras = extras;
    }

    /// The number of contexts.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Drops the waiting ops of a connection.
    pub(crate) fn drop_queued(&mut self, conn: u64) {
        for c in self.by_key.values_mut() {
            // The answers were fetched for the first op of the queue.
            if c.queue.front().is_some_and(|op| op.client.conn == conn) {
                c.answers = Vec::new();
            }
            c.queue.retain(|op| op.client.conn != conn);
        }
    }

    /// The ops that wait for an object.
    pub(crate) fn queued(&self) -> impl Iterator<Item = &ClientOp> {
        self.by_key.values().flat_map(|c| &c.queue)
    }

    /// The first op that waits for an object.
    pub(crate) fn first_waiting(&self, key: &Bytes) -> Option<&ClientOp> {
        self.by_key.get(key)?.queue.front()
    }

    /// The number of ops that wait for an object.
    pub(crate) fn waiting(&self) -> usize {
        self.by_key.values().map(|c| c.queue.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(i: u32) -> Bytes {
        i.to_be_bytes().to_vec().into()
    }

    fn put(contexts: &mut Contexts, i: u32, value: usize) {
        contexts.get(&key(i));
        let attrs = [(Bytes::from_static(b"a"), Bytes::from(vec![0; value]))].into();
        let state = ObjectState {
            exists: true,
            attrs,
            ..ObjectState::default()
        };
        contexts.set_state(&key(i), state);
    }

    #[test]
    fn the_longest_unused_go_when_there_are_many_or_heavy_ones() {
        let mut contexts = Contexts::default();
        (0..100).for_each(|i| put(&mut contexts, i, 1));
        contexts.evict(100, 1 << 20);
        assert_eq!(contexts.len(), 100);
        contexts.evict(50, 1 << 20);
        assert_eq!(contexts.len(), 50);
        assert!(contexts.find(&key(49)).is_none() && contexts.find(&key(50)).is_some());
        (100..110).for_each(|i| put(&mut contexts, i, 1 << 20));
        // In use, though it is old.
        contexts.get(&key(100)).0.uncommitted = 1;
        for _ in 0..LOOK_AGAIN {
            contexts.get(&key(109));
        }
        contexts.evict(100, 4 << 20);
        assert!(contexts.find(&key(100)).is_some() && contexts.find(&key(109)).is_some());
        assert!(contexts.find(&key(107)).is_none() && contexts.extras < 4 << 20);
        contexts.drop_idle();
        assert_eq!(contexts.len(), 1);
        assert!(contexts.extras > 1 << 20);
        contexts.clear();
        assert_eq!(contexts.extras, 0);
    }

    #[test]
    fn heavy_ones_do_not_add_up_until_it_is_time_to_look() {
        let mut contexts = Contexts::default();
        for i in 0..LOOK_AGAIN as u32 / 2 {
            contexts.evict(1000, 4 << 20);
            put(&mut contexts, i, 1 << 20);
            assert!(contexts.extras < 7 << 20, "{i}: {} bytes", contexts.extras);
        }
        // Also beside one that is in use and larger than all may be together.
        put(&mut contexts, 1000, 16 << 20);
        contexts.get(&key(1000)).0.uncommitted = 1;
        for i in 0..LOOK_AGAIN as u32 / 2 {
            contexts.evict(1000, 4 << 20);
            put(&mut contexts, i, 1 << 20);
            assert!(contexts.extras < 23 << 20, "{i}: {} bytes", contexts.extras);
        }
    }

    #[test]
    #[should_panic(
        expected = "invariant broken: expected an object that is forgotten to have no writes under way, writes 1"
    )]
    fn one_with_a_write_under_way_is_not_forgotten() {
        let mut contexts = Contexts::default();
        contexts.get(&key(1)).0.uncommitted = 1;
        contexts.forget(&key(1));
    }
}
