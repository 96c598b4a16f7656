//! What a store remembers of itself: how generations went to the disk, and what it refused. It knows no clock, so transactions tell
//! the order.

use std::fmt;

use spirula_invariant::{Recorder, Ring};

use crate::store::Store;

/// Bytes for a store's transitions.
pub const RECENT_BYTES: usize = 4 << 10;

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// It was opened, and the log replayed.
    Opened,
    /// The generation that took changes was closed.
    Sealed,
    /// A generation waits until it may be written to its place.
    Waiting,
    /// Its blocks are written there.
    Writing,
    /// They are made durable.
    Flushing,
    /// Its memory is free.
    Settled,
    /// The index takes it in.
    Committing,
    /// The index has it.
    TakenIn,
    /// A transaction was refused, as there is no room.
    Refused,
    /// Something failed that nothing can follow.
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

/// Something that changed, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// The number of the newest transaction.
    pub submitted: u64,
    /// That of the newest one that is durable.
    pub durable: u64,
    /// What.
    pub what: What,
}

impl fmt::Display for Transition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, submitted, durable) = (self.what.name(), self.submitted, self.durable);
        write!(f, "transaction {submitted}, durable {durable}: {name}")
    }
}

/// A memory for the transitions of the store of this OSD.
pub(crate) fn recorder(osd: u32) -> Recorder<Transition> {
    Recorder::new(
        format!("the store of osd.{osd}"),
        Ring::<Transition>::fitting(RECENT_BYTES),
    )
}

impl Store {
    /// The last transitions: of generations on their way to the disk, of refusals and of the failure.
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
        // What is refused again and again says no more each time.
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
