//! A digest of all events: two runs of a seed must have the same. With `SPIRULA_TRACE` in the
//! environment all events are printed.

use std::fmt::Debug;

use spirula_proto::RawMessage;
use xxhash_rust::xxh64::Xxh64;

use crate::net::Node;
use crate::world::Event;

/// The digest so far.
pub(crate) struct Trace {
    hash: Xxh64,
    /// Events so far.
    pub(crate) events: u64,
    /// Whether events are printed.
    shown: bool,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            hash: Xxh64::new(0),
            events: 0,
            shown: std::env::var_os("SPIRULA_TRACE").is_some(),
        }
    }
}

impl Trace {
    pub(crate) fn event(&mut self, at: u64, event: &Event) {
        self.events += 1;
        self.note(|| format!("{at} {event:?}"));
    }

    pub(crate) fn message(&mut self, from: Node, to: Node, msg: &RawMessage) {
        self.hash.update(&msg.front);
        self.note(|| (from, to, msg.kind(), msg.len()));
    }

    /// Adds the passing of time.
    pub(crate) fn tick(&mut self, at: u64) {
        self.events += 1;
        self.hash.update(&at.to_le_bytes());
    }

    /// Adds a message in its encoded form.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    /// Adds anything else that two runs must agree on.
    pub(crate) fn note<T: Debug>(&mut self, what: impl FnOnce() -> T) {
        let line = format!("{:?}", what());
        self.hash.update(line.as_bytes());
        if self.shown {
            println!("{line} {:016x}", self.hash.digest());
        }
    }

    /// The digest.
    pub(crate) fn digest(&self) -> u64 {
        self.hash.digest()
    }
}
