//! Object contexts: what is known of the objects in use, and the order of the ops on each.
//!
//! Writes of an object follow each other without waiting for the disk, as the context holds what they make of it.
//! Reads wait until all writes before them are durable everywhere, so that nothing is ever returned which could
//! still be lost; and a write waits for the reads before it. A write that reads first is alone until it was executed. All
//! in the order of arrival.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use spirula_maps::SnapId;

use super::exec::ObjectState;
use super::fetch::Fetched;
use super::object::ObjectInfo;
use super::op::ClientOp;

/// One object in use.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// The object as the newest write left it; `None` while it is looked up.
    pub state: Option<ObjectState>,
    /// Writes that are not durable everywhere.
    pub uncommitted: u32,
    /// Reads that wait for the store.
    pub reading: u32,
    /// A write that reads first is waiting for the store.
    pub exclusive: bool,
    /// Clones to be trimmed, with their infos.
    pub trims: Vec<(SnapId, ObjectInfo)>,
    /// What was fetched for the first op that waits, where that only waits for reads.
    pub answers: Vec<Fetched>,
    /// Ops that wait.
    pub queue: VecDeque<ClientOp>,
    /// When it was last used, for eviction.
    used: u64,
}

impl Context {
    fn is_idle(&self) -> bool {
        self.state.is_some()
            && self.uncommitted == 0
            && self.reading == 0
            && !self.exclusive
            && self.trims.is_empty()
            && self.queue.is_empty()
    }
}

/// All contexts of a PG.
#[derive(Debug, Default)]
pub(crate) struct Contexts {
    by_key: HashMap<Bytes, Context>,
    clock: u64,
}

impl Contexts {
    /// The context of an object, made where there is none. Says whether it is new and must be looked up.
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

    /// The context of an object in use.
    pub(crate) fn find(&mut self, key: &Bytes) -> Option<&mut Context> {
        self.by_key.get_mut(key)
    }

    /// The state of an object in use.
    pub(crate) fn state(&self, key: &Bytes) -> Option<&ObjectState> {
        self.by_key.get(key)?.state.as_ref()
    }

    /// Forgets an object that could not be looked up; returns what waited for it.
    pub(crate) fn forget(&mut self, key: &Bytes) -> VecDeque<ClientOp> {
        self.by_key.remove(key).map(|c| c.queue).unwrap_or_default()
    }

    /// Forgets everything; returns the ops that waited.
    pub(crate) fn clear(&mut self) -> Vec<ClientOp> {
        self.by_key.drain().flat_map(|(_, c)| c.queue).collect()
    }

    /// Forgets the longest unused objects until there are not more than `max`, looking at all only now and then.
    pub(crate) fn evict(&mut self, max: usize) {
        if self.by_key.len() <= max + max / 4 + 4 {
            return;
        }
        let mut idle: Vec<u64> = self
            .by_key
            .values()
            .filter(|c| c.is_idle())
            .map(|c| c.used)
            .collect();
        let surplus = (self.by_key.len() - max).min(idle.len());
        if surplus == 0 {
            return;
        }
        let (_, &mut limit, _) = idle.select_nth_unstable(surplus - 1);
        self.by_key.retain(|_, c| !c.is_idle() || c.used > limit);
    }

    /// Forgets what is not in use.
    pub(crate) fn drop_idle(&mut self) {
        self.by_key.retain(|_, c| !c.is_idle());
    }

    /// Contexts held.
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// The ops that wait for an object.
    pub(crate) fn queued(&self) -> impl Iterator<Item = &ClientOp> {
        self.by_key.values().flat_map(|c| &c.queue)
    }

    /// The number of ops that wait for an object.
    pub(crate) fn waiting(&self) -> usize {
        self.by_key.values().map(|c| c.queue.len()).sum()
    }
}
