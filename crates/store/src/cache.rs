//! A cache bounded by bytes, with the second-chance (CLOCK) policy.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::hash::Hash;

use hashbrown::HashMap;
use spirula_invariant::impossible;

use crate::memory::Usage;

struct Slot<V> {
    value: V,
    bytes: usize,
    used: bool,
}

/// Keeps recently used values, up to a number of bytes.
pub(crate) struct Cache<K, V> {
    slots: HashMap<K, Slot<V>>,
    /// Candidates for eviction, oldest first; may contain removed keys.
    order: VecDeque<K>,
    bytes: usize,
    limit: usize,
}

impl<K: Clone + Eq + Hash, V: Clone> Cache<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            slots: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            limit,
        }
    }

    pub(crate) fn get<Q: ?Sized + Eq + Hash>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let slot = self.slots.get_mut(key)?;
        slot.used = true;
        Some(slot.value.clone())
    }

    pub(crate) fn contains<Q: ?Sized + Eq + Hash>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.slots.contains_key(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V, bytes: usize) {
        if bytes > self.limit {
            self.remove(&key);
            return; // All others would have to go for it.
        }
        self.bytes += bytes;
        match self.slots.get_mut(&key) {
            Some(slot) => {
                self.bytes -= slot.bytes;
                *slot = Slot {
                    value,
                    bytes,
                    used: true,
                };
            }
            None => {
                self.order.push_back(key.clone());
                self.slots.insert(
                    key,
                    Slot {
                        value,
                        bytes,
                        used: false,
                    },
                );
            }
        }
        self.evict();
    }

    pub(crate) fn remove<Q: ?Sized + Eq + Hash>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some(slot) = self.slots.remove(key) {
            self.bytes -= slot.bytes;
        }
        if self.order.len() > 2 * self.slots.len() + 64 {
            let mut seen = std::collections::HashSet::new();
            let slots = &self.slots;
            self.order
                .retain(|k| slots.contains_key::<K>(k) && seen.insert(k.clone()));
        }
    }

    fn evict(&mut self) {
        while self.bytes > self.limit {
            let Some(key) = self.order.pop_front() else {
                impossible!("candidates for what is kept"; bytes = self.bytes, slots = self.slots.len())
            };
            let Some(slot) = self.slots.get_mut(&key) else {
                continue;
            };
            if std::mem::take(&mut slot.used) {
                self.order.push_back(key);
            } else {
                self.bytes -= slot.bytes;
                self.slots.remove(&key);
            }
        }
    }

    /// The number of values and their bytes.
    pub(crate) fn usage(&self) -> Usage {
        Usage {
            items: self.slots.len(),
            bytes: self.bytes,
        }
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_stays_and_the_limit_holds() {
        let mut c = Cache::new(100);
        for i in 0..10 {
            c.insert(i, i, 10);
        }
        assert_eq!(c.get(&0), Some(0));
        c.insert(10, 10, 10);
        assert_eq!((c.get(&0), c.get(&1), c.bytes()), (Some(0), None, 100));
        c.insert(0, 7, 20);
        assert!(c.bytes() <= 100);
        assert_eq!(c.get(&0), Some(7));
        for i in 0..10 {
            c.remove(&i);
        }
        assert!(c.bytes() <= 10);
        c.insert(50, 1, 101);
        assert_eq!(c.get(&50), None);
        for _ in 0..10 {
            for i in 0..1000 {
                c.insert(i, i, 1);
                c.remove(&i);
            }
        }
        assert!(c.order.len() < 200);
    }
}
