//! The answers fetched for a request, found by the wants.

use std::collections::HashMap;

use crate::pg::fetch::{Fetched, Want};
use crate::pg::staged::Slot;

/// The most answers that are searched one by one; more get an index.
const FEW: usize = 8;

/// The answers that a run of a request has.
pub(super) struct Answers<'a> {
    list: &'a [Fetched],
    /// The place of the answer that is probably needed next: a run needs most in the order in which
    /// it wanted them.
    next: usize,
    /// The bytes of all answers.
    pub(super) bytes: u64,
    /// The bytes of the answers that are omap pairs.
    pub(super) pairs: u64,
    /// The place of each answer, if there are many and they were needed in another order.
    places: HashMap<&'a Want, usize>,
}

impl<'a> Answers<'a> {
    pub(super) fn new(list: &'a [Fetched]) -> Self {
        Self {
            list,
            next: 0,
            bytes: list.iter().map(Fetched::len).sum(),
            pairs: list.iter().filter(|f| f.want.is_pairs()).map(Fetched::len).sum(),
            places: HashMap::new(),
        }
    }

    /// The answer to `want`, if it was fetched.
    pub(super) fn find(&mut self, want: &Want) -> Option<&'a Fetched> {
        let at = match self.list.get(self.next) {
            Some(f) if f.want == *want => self.next,
            // An earlier op may have changed what this one reads, or left out an answer that was
            // fetched for it.
            _ => self.place(want)?,
        };
        self.next = at + 1;
        self.list.get(at)
    }

    fn place(&mut self, want: &Want) -> Option<usize> {
        if self.list.len() <= FEW {
            return self.list.iter().position(|f| f.want == *want);
        }
        if self.places.is_empty() {
            let places = self.list.iter().enumerate();
            self.places = places.map(|(i, f)| (&f.want, i)).collect();
        }
        self.places.get(want).copied()
    }

    /// Whether an answer keeps a staging object of this slot, or of one that an op takes later.
    pub(super) fn hold(&self, slot: Slot) -> bool {
        self.list.iter().any(|f| f.held_slot() >= Some(slot))
    }
}
