//! The calls to the store that are under way.

use hashbrown::HashMap;
use spirula_invariant::invariant;

use super::store_lists::{Objects, Records};
use super::store_reads::{OmapKeys, OmapScan, Part};
use crate::core::DAEMON_SLOT;
use crate::pg::Token;

/// Numbers of calls are below this: the upper half of the daemon's own tokens is 0.
const NUMBERS: u64 = 1 << 32;

/// A call to the store whose answer is processed before the core gets it.
pub(super) enum Call {
    /// Part of a read.
    Part(Part),
    /// Omap pairs for a read.
    Omap(OmapScan),
    /// Omap values by key for a read.
    OmapKeys(OmapKeys),
    /// A listing of objects.
    List(Objects),
    /// A page of records.
    Records(Records),
}

/// The calls under way. The store answers each of them once.
#[derive(Default)]
pub(super) struct Calls {
    open: HashMap<u64, Call>,
    /// Calls so far.
    count: u64,
}

impl Calls {
    /// Notes a call to be made; returns its token.
    pub(super) fn open(&mut self, call: Call) -> spirula_store::Token {
        self.count += 1;
        let number = self.count % NUMBERS;
        debug_assert_eq!(Token(number).slot(), DAEMON_SLOT);
        let before = self.open.insert(number, call);
        invariant!(before.is_none(), "calls of the store that differ in their numbers"; call = number);
        spirula_store::Token(number)
    }

    /// Removes a call that the store has answered. `None` for one that was not made.
    pub(super) fn close(&mut self, t: u64) -> Option<Call> {
        self.open.remove(&t)
    }

    /// The number of calls made since the start.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_call_is_answered_once() {
        let mut calls = Calls::default();
        let mut open = || {
            let (token, to) = (Token::new(DAEMON_SLOT, 1), Bytes::new());
            calls.open(Call::Records(Records { token, to, max: 1 }))
        };
        let (a, b) = (open(), open());
        assert_ne!(a, b);
        assert!(calls.close(a.0).is_some() && calls.close(a.0).is_none());
        assert!(calls.close(b.0).is_some() && calls.close(7).is_none());
        assert_eq!(calls.count(), 2);
    }
}
