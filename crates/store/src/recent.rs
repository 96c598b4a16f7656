//! The recorded transitions of a store: generations on their way to the disk, and refusals. The
//! store knows no clock, so transaction numbers tell the order.

use std::fmt;

use spirula_invariant::{Recorder, Ring};

use crate::store::Store;

/// Bytes for a store's transitions.
pub const RECENT_BYTES: usize = 4 << 10;

/// The kind of a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The store was opened, and the log replayed.
    Opened,
    /// The active generation was closed.
    Sealed,
    /// A generation waits until it may be written to its place.
    Waiting,
    /// The generation's blocks are being written to their places.
    Writing,
    /// The written blocks are being made durable.
    Flushing,
    /// The generation's memory is freed.
    Settled,
    /// The index is taking the generation in.
    Committing,
    /// The index has taken the generation in.
    TakenIn,
    /// A transaction or a placement was refused for lack of room.
    Refused,
    /// The store failed for good.
    Failed,
}

impl What {
    /// The name that is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Sealed => "generation closed",
            Self::Waiting => "write-back waits",
            Self::Writing => "write-back writes",
            Self::Flushing => "write-back flushes",
            Self::Settled => "generation settled",
            Self::Committing => "index takes in a generation",
            Self::TakenIn => "index has taken it in",
            Self::Refused => "no room for a transaction",
            Self::Failed => "failed",
        }
    }
}

/// A transition, and when it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// The number of the newest transaction.
    pub submitted: u64,
    /// The number of the newest durable transaction.
    pub durable: u64,
    /// The kind of transition.
    pub what: What,
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, submitted, durable) = (self.what.name(), self.submitted, self.durable);
        write!(f, "transaction {submitted}, durable {durable}: {name}")
    }
}

/// A recorder for the store of this OSD.
pub(crate) fn recorder(osd: u32) -> Recorder<Transition> {
    Recorder::new(
        format!("the store of osd.{osd}"),
        Ring::<Transition>::fitting(RECENT_BYTES),
    )
}

impl Store {
    /// The last transitions: of generations on their way to the disk, of refusals and of the
    /// failure.
    pub fn recent(&self) -> &Recorder<Transition> {
        &self.recent
    }

    /// Notes a transition.
    pub(crate) fn note(&self, what: What) {
        let new = Transition {
            submitted: self.state.seq,
            durable: self.log.durable_seq,
            what,
        };
        // Repeated refusals are recorded once.
        self.recent.add_or(new, |newest| {
            let again = what == What::Refused && newest.what == what;
            if again {
                *newest = new;
            }
            again
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_s_memory_of_itself_is_bounded() {
        let recorder = recorder(3);
        for submitted in 0..1000 {
            recorder.add(Transition {
                submitted,
                durable: submitted,
                what: What::Sealed,
            });
        }
        assert!(recorder.bytes() <= RECENT_BYTES);
        let all = recorder.entries();
        assert_eq!(
            all.last().map(Transition::to_string).as_deref(),
            Some("transaction 999, durable 999: generation closed")
        );
        assert!(all.len() >= 64);
    }
}
