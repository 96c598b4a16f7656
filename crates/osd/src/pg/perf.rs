//! Counts that the PG core makes of what it sees, over all PGs of a reactor.

use spirula_invariant::{Counts, reasons};

reasons! {
    /// Why a PG drops a message of another OSD, or an answer of the store. Those that begin with `Peer` are what others send that
    /// they should not.
    pub enum DropReason {
        /// It is of an earlier interval or attempt at peering.
        PeerStale => "peer_stale", "Messages of OSDs about an earlier attempt at peering";
        /// Its OSD has nothing to do with the PG, or not what the message says.
        PeerForeign => "peer_foreign", "Messages dropped that were not for the OSD to send";
        /// No store takes what it changes, or that is not the PG's, or it can't be read.
        PeerUnsound => "peer_unsound", "Changes sent by OSDs dropped that no store takes";
        /// It came before its map, and there were too many of them, or it can't.
        PeerEarly => "peer_early", "Messages of OSDs dropped that came before their map";
        /// What it answers, or goes on with, has ended, or was answered already.
        PeerLate => "peer_late", "Messages of OSDs that nobody waits for any more";
        /// The OSD is not, or no longer, what the message takes it for.
        PeerMisled => "peer_misled", "Messages of OSDs for a part in the PG that this one has not";
        /// A write before it was lost: the primary sends both again.
        PeerGap => "peer_gap", "Writes of primaries that came before one that was lost";
        /// It was asked in an interval that has ended.
        StoreLate => "store_late", "Answers of the store that nobody waits for any more";
    }
}

impl DropReason {
    /// For a message of an OSD that is not what it says: by an older map it may have been.
    pub(crate) fn of_stranger(is_stale: bool) -> Self {
        if is_stale {
            Self::PeerStale
        } else {
            Self::PeerForeign
        }
    }
}

/// Times: how many, and their sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Their sum in microseconds.
    pub usec: u64,
}

impl Times {
    /// Adds one time, in microseconds.
    pub fn add(&mut self, usec: u64) {
        self.count += 1;
        self.usec += usec;
    }

    /// The average since `before`, in nanoseconds; 0 where nothing happened.
    pub fn average_ns_since(&self, before: &Self) -> u64 {
        let count = self.count.saturating_sub(before.count);
        let usec = self.usec.saturating_sub(before.usec);
        usec.saturating_mul(1000).checked_div(count).unwrap_or(0)
    }
}

/// All counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct CorePerf {
    /// Transactions, from their submission until they were durable.
    pub commits: Times,
    /// Writes as a replica, from their arrival until they were durable here.
    pub sub_ops: Times,
    /// Bytes of data and attributes in them.
    pub sub_op_bytes: u64,
    /// Requests that found their object's context, and all that looked for one.
    pub contexts: (u64, u64),
    /// Objects of which this OSD had the copy repaired.
    pub repaired: u64,
    /// Messages that were dropped, by reason.
    pub dropped: Counts<DropReason>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_over_what_came_since() {
        let mut t = Times::default();
        t.add(1000);
        let before = t;
        assert_eq!(t.average_ns_since(&before), 0);
        t.add(3000);
        t.add(4000);
        assert_eq!(t.average_ns_since(&before), 3_500_000);
    }
}
