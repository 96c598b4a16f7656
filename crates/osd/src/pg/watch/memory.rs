//! The memory of the watches and notifications of all PGs of a reactor.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::pg::account::Party;
use spirula_invariant::invariant;

/// Counts the memory, and numbers the notifications.
#[derive(Debug, Clone, Default)]
pub struct WatchMemory(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    bytes: AtomicUsize,
    notifications: AtomicU32,
}

/// Memory that is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    of: WatchMemory,
    /// The party that it is charged to, if known.
    party: Option<Arc<Party>>,
    bytes: usize,
}

impl WatchMemory {
    /// Charges `bytes` to a party, unless it would then have more than it leaves free of `limit`:
    /// one party alone gets half, and the next one finds the other half.
    pub(super) fn take(&self, bytes: usize, party: &Arc<Party>, limit: usize) -> Option<Charge> {
        let left = limit.saturating_sub(self.0.bytes.load(Ordering::Relaxed));
        (party.watch_bytes().saturating_add(bytes) <= left).then(|| self.take_always(bytes, Some(party)))
    }

    /// Charges `bytes` that are in use anyway.
    pub(super) fn take_always(&self, bytes: usize, party: Option<&Arc<Party>>) -> Charge {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(party) = party {
            party.add_watch_bytes(bytes);
        }
        Charge {
            of: self.clone(),
            party: party.cloned(),
            bytes,
        }
    }

    /// The number of the next notification.
    pub(super) fn next_number(&self) -> u32 {
        self.0.notifications.fetch_add(1, Ordering::Relaxed)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let before = self.of.0.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        invariant!(
            before >= self.bytes,
            "memory of watches that is given back to have been taken";
            taken = before, given = self.bytes
        );
        if let Some(party) = &self.party {
            party.sub_watch_bytes(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_until_it_is_dropped() {
        let (memory, a, b) = (WatchMemory::default(), Arc::default(), Arc::default());
        let first = memory.take(60, &a, 100).unwrap();
        assert!(memory.take(41, &b, 100).is_none());
        let always = memory.take_always(500, None);
        drop(first);
        assert!(memory.take(1, &a, 100).is_none());
        drop(always);
        assert!(memory.take(100, &a, 100).is_some());
    }

    #[test]
    fn one_party_leaves_half_of_it_to_others() {
        let (memory, greedy, other) = (WatchMemory::default(), Arc::default(), Arc::default());
        let taken: Vec<Charge> = std::iter::from_fn(|| memory.take(10, &greedy, 1000)).collect();
        assert_eq!(greedy.watch_bytes(), 500);
        assert!(memory.take(400, &other, 1000).is_some());
        drop(taken);
        assert_eq!(greedy.watch_bytes(), 0);
    }
}
