//! Transactions that the store does not take yet.

use std::collections::VecDeque;

use hashbrown::HashMap;
use spirula_store::Transaction;

use crate::pg::Token;

/// Transactions in the order in which they came.
#[derive(Default)]
pub(super) struct StoreQueue {
    waiting: VecDeque<(Transaction, Token)>,
    /// How many of each PG, by its slot.
    by_slot: HashMap<u32, usize>,
}

impl StoreQueue {
    /// Adds one at the end.
    pub(super) fn push(&mut self, txn: Transaction, token: Token) {
        *self.by_slot.entry(token.slot()).or_default() += 1;
        self.waiting.push_back((txn, token));
    }

    /// Takes the first.
    pub(super) fn pop(&mut self) -> Option<(Transaction, Token)> {
        let first = self.waiting.pop_front()?;
        let slot = first.1.slot();
        if let Some(n) = self.by_slot.get_mut(&slot) {
            *n -= 1;
            if *n == 0 {
                self.by_slot.remove(&slot);
            }
        }
        Some(first)
    }

    /// Whether any is there.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether any of this token's PG is there.
    pub(super) fn has(&self, token: Token) -> bool {
        self.by_slot.contains_key(&token.slot())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pg_is_known_as_long_as_it_has_one() {
        let mut q = StoreQueue::default();
        for (slot, seq) in [(1, 1), (2, 1), (1, 2)] {
            q.push(Transaction::default(), Token::new(slot, seq));
        }
        let mut order = Vec::new();
        while let Some((_, token)) = q.pop() {
            order.push((token, q.has(Token::new(1, 0)), q.has(Token::new(2, 0))));
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
