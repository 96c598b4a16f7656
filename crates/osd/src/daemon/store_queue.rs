//! Transactions that the store does not accept yet.

use std::collections::VecDeque;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use spirula_invariant::impossible;
use spirula_store::Transaction;

use crate::pg::{Claim, Token};

/// A transaction that is to be stored.
pub(super) struct Submission {
    pub(super) txn: Transaction,
    pub(super) token: Token,
    /// The part of the reserve that the transaction may use.
    pub(super) claim: Claim,
    /// The bytes of data in the transaction.
    pub(super) bytes: u64,
}

/// Transactions in the order in which they came.
#[derive(Default)]
pub(super) struct StoreQueue {
    waiting: VecDeque<Submission>,
    /// The number of transactions of each PG, by its slot.
    by_slot: HashMap<u32, usize>,
}

impl StoreQueue {
    /// Adds a transaction at the end.
    pub(super) fn push(&mut self, s: Submission) {
        *self.by_slot.entry(s.token.slot()).or_default() += 1;
        self.waiting.push_back(s);
    }

    /// Puts a transaction back at the beginning.
    pub(super) fn push_front(&mut self, s: Submission) {
        *self.by_slot.entry(s.token.slot()).or_default() += 1;
        self.waiting.push_front(s);
    }

    /// Takes the first transaction.
    pub(super) fn pop(&mut self) -> Option<Submission> {
        let first = self.waiting.pop_front()?;
        let slot = first.token.slot();
        let Entry::Occupied(mut n) = self.by_slot.entry(slot) else {
            impossible!("a transaction that waits to be counted for its PG"; slot = slot);
        };
        *n.get_mut() -= 1;
        if *n.get() == 0 {
            n.remove();
        }
        Some(first)
    }

    /// Whether the queue is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the queue has a transaction of the PG in this slot.
    pub(super) fn has(&self, slot: u32) -> bool {
        self.by_slot.contains_key(&slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pg_is_known_as_long_as_it_has_one() {
        let mut q = StoreQueue::default();
        for (slot, seq) in [(1, 1), (2, 1), (1, 2)] {
            q.push(Submission {
                txn: Transaction::default(),
                token: Token::new(slot, seq),
                claim: Claim::All,
                bytes: 0,
            });
        }
        let mut order = Vec::new();
        while let Some(Submission { token, .. }) = q.pop() {
            order.push((token, q.has(1), q.has(2)));
        }
        let at = |slot, seq| Token::new(slot, seq);
        assert_eq!(
            order,
            [
                (at(1, 1), true, true),
                (at(2, 1), true, false),
                (at(1, 2), false, false)
            ]
        );
        assert!(q.is_empty());
    }
}
