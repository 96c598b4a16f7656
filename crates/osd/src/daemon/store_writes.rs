//! Transactions on their way to the store: which may use the room that is left, which wait, and
//! which are not durable.

use std::collections::BTreeSet;

use bytes::Bytes;
use hashbrown::HashMap;
use spirula_denc::Micros;
use spirula_invariant::invariant;
use spirula_store::{Store, StoreError};

use super::heap::Heap;
use super::store_io::Answers;
use super::store_queue::{StoreQueue, Submission};
use super::store_txn::{large_bytes, translate};
use crate::pg::txn::Txn;
use crate::pg::{Claim, StoreReply, Token};

/// Bytes of large values in transactions that are not durable.
#[derive(Default)]
struct LargeValues {
    /// The bytes by transaction.
    of: HashMap<u64, usize>,
    /// The bytes of all transactions.
    bytes: usize,
}

impl LargeValues {
    /// Notes the bytes of a transaction, until it is durable or refused.
    fn note(&mut self, token: Token, bytes: usize) {
        *self.of.entry(token.0).or_default() += bytes;
        self.bytes += bytes;
    }

    fn forget(&mut self, token: Token) {
        if !self.of.is_empty()
            && let Some(bytes) = self.of.remove(&token.0)
        {
            invariant!(bytes <= self.bytes, "large values to be given back once"; token = token.0);
            self.bytes -= bytes;
        }
    }
}

/// Transactions that are not durable.
pub(super) struct Writes {
    /// The transactions for which the store has no memory now, or no room until it has freed some.
    /// All that come after wait too: maps are stored in their order with the rest, and PGs may be
    /// split.
    pub(super) held: StoreQueue,
    /// PGs of which a transaction was refused while more of them waits.
    refused: BTreeSet<u32>,
    /// Bytes kept free for what was already accepted when the store becomes full.
    pub(super) reserve: u64,
    large: LargeValues,
    /// The bytes of large values from which on those of other OSDs wait.
    pub(super) most_large: usize,
    /// The number of transactions that the store accepted.
    submitted: u64,
    /// The number of these that are durable.
    committed: u64,
    /// If some transactions are not durable, or are held: when one last became durable, or the
    /// first of them came.
    progress: Option<Micros>,
}

impl Default for Writes {
    fn default() -> Self {
        Self {
            held: StoreQueue::default(),
            refused: BTreeSet::new(),
            reserve: 0,
            large: LargeValues::default(),
            most_large: usize::MAX,
            submitted: 0,
            committed: 0,
            progress: None,
        }
    }
}

impl Writes {
    /// Whether another OSD's change with this many bytes of large values may come.
    pub(super) fn takes_large(&self, bytes: usize) -> bool {
        self.large.bytes == 0 || self.large.bytes.saturating_add(bytes) <= self.most_large
    }

    /// The number of transactions that the store accepted since the start.
    pub(super) fn submitted(&self) -> u64 {
        self.submitted
    }

    /// How long the store has had transactions and made none durable.
    pub(super) fn stalled(&self, now: Micros) -> Micros {
        self.progress
            .map_or(Micros::ZERO, |since| now.saturating_sub(since))
    }

    /// Whether all transactions are in the log, as far as that can be seen from outside: only for
    /// benchmarks.
    pub(super) fn is_flushed(&self) -> bool {
        self.held.is_empty() && self.submitted == self.committed
    }

    /// Notes that a transaction is durable at this time.
    pub(super) fn committed(&mut self, token: Token, now: Micros) {
        self.large.forget(token);
        self.committed += 1;
        invariant!(
            self.committed <= self.submitted,
            "a durable transaction to have been submitted";
            token = token.0, submitted = self.submitted
        );
        let waits = self.submitted > self.committed || !self.held.is_empty();
        self.progress = waits.then_some(now);
    }
}

/// Submits transactions, and refuses those for which there is no room.
pub(super) struct Writing<'a> {
    pub(super) store: &'a mut Store,
    pub(super) writes: &'a mut Writes,
    pub(super) heap: &'a mut Heap,
    pub(super) answers: &'a mut Answers,
}

impl Writing<'_> {
    /// Submits a transaction at this time.
    ///
    /// # Errors
    /// The store failed, or has no room for what must be stored: more was accepted than the reserve
    /// holds. All that comes later relies on it, so the daemon can't go on: what the log has is the
    /// truth.
    pub(super) fn submit(
        &mut self,
        token: Token,
        txn: Txn,
        claim: Claim,
        now: Micros,
    ) -> Result<(), StoreError> {
        let large = large_bytes(&txn);
        if large > 0 {
            self.heap.pass_to_index(large, self.store.checkpoints());
            self.writes.large.note(token, large);
        }
        let s = Submission {
            token,
            claim,
            bytes: txn.data_len() as u64,
            txn: translate(txn, self.store)?,
        };
        let back = match self.writes.held.is_empty() && self.store.writable() {
            true => self.try_submit(s, now)?,
            false => Some(s),
        };
        if let Some(s) = back {
            self.writes.held.push(s);
            self.writes.progress.get_or_insert(now);
        }
        Ok(())
    }

    /// Brings data to free blocks, if there is more room than is kept for what was accepted.
    ///
    /// # Errors
    /// The store failed.
    pub(super) fn place(&mut self, token: Token, data: Bytes) -> Result<(), StoreError> {
        let kept = self.writes.reserve + self.writes.reserve / 4;
        let placed = match self.store.available() >= kept + data.len() as u64 {
            true => self.store.place(data, spirula_store::Token(token.0)),
            false => Err(StoreError::Invalid(
                "no room is left but that for what was accepted",
            )),
        };
        match placed {
            Err(StoreError::NoSpace { .. } | StoreError::Invalid(_)) => {
                self.answers.push((token, StoreReply::Placed(None)));
                Ok(())
            }
            other => other,
        }
    }

    /// Submits the transactions that are held, in their order.
    pub(super) fn hand_over(&mut self, now: Micros) -> Result<(), StoreError> {
        while self.store.writable()
            && let Some(s) = self.writes.held.pop()
        {
            if let Some(s) = self.try_submit(s, now)? {
                self.writes.held.push_front(s);
                break;
            }
        }
        // Nothing waits any more that was submitted before the PG hears of the refusal.
        let held = &self.writes.held;
        self.writes.refused.retain(|slot| held.has(*slot));
        Ok(())
    }

    /// Whether a transaction would leave the room that it may not use.
    fn leaves_reserve(&self, s: &Submission) -> bool {
        let kept = match s.claim {
            Claim::All => return true,
            Claim::Half => self.writes.reserve / 2,
            // Nor so little that the OSD would still be full, if it were.
            Claim::None => self.writes.reserve + self.writes.reserve / 4,
        };
        self.store.available() >= kept + s.bytes
    }

    /// Submits or refuses, or gives the transaction back until a checkpoint has freed what was
    /// removed.
    fn try_submit(&mut self, mut s: Submission, now: Micros) -> Result<Option<Submission>, StoreError> {
        let (claim, slot) = (s.claim, s.token.slot());
        // Later transactions may build on one that was refused.
        if claim != Claim::All && self.writes.refused.contains(&slot) || !self.leaves_reserve(&s) {
            self.refuse(s.token);
            return Ok(None);
        }
        match self.store.try_submit(&mut s.txn, spirula_store::Token(s.token.0)) {
            Err(StoreError::NoSpace { .. }) if self.store.is_freeing() => Ok(Some(s)),
            Err(StoreError::NoSpace { .. }) if claim != Claim::All => {
                self.refuse(s.token);
                Ok(None)
            }
            // Others have filled the file system below. Accepted transactions wait until there is
            // space again.
            Err(StoreError::NoSpace { .. }) if self.store.is_dry() => Ok(Some(s)),
            other => {
                other?;
                self.writes.submitted += 1;
                self.writes.progress.get_or_insert(now);
                Ok(None)
            }
        }
    }

    fn refuse(&mut self, token: Token) {
        self.writes.large.forget(token);
        self.answers.push((token, StoreReply::NoRoom));
        if self.writes.held.has(token.slot()) {
            self.writes.refused.insert(token.slot());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "expected a durable transaction to have been submitted")]
    fn nothing_is_durable_that_was_not_submitted() {
        Writes::default().committed(Token::new(1, 1), Micros::new(5));
    }

    #[test]
    fn large_values_of_others_wait_for_those_that_are_not_durable() {
        let mut w = Writes {
            most_large: 100,
            submitted: 1,
            ..Writes::default()
        };
        assert!(w.takes_large(1000), "nothing is under way");
        w.large.note(Token::new(1, 1), 60);
        assert!(w.takes_large(40) && !w.takes_large(41));
        w.committed(Token::new(1, 1), Micros::new(5));
        assert!(w.takes_large(1000) && w.is_flushed());
    }
}
