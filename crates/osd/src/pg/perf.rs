//! The PG core's counters, over all PGs of a reactor.

use spirula_asok::perf::Times;
use spirula_invariant::{Counts, reasons};

reasons! {
    /// Why a PG drops a message of another OSD, a client's request, or an answer of the store.
    /// Reasons that begin with `Peer` are for messages of OSDs, those with `Op` for requests.
    pub enum DropReason {
        /// The message is of an earlier interval or attempt at peering.
        PeerStale => "peer_stale", "Messages of OSDs about an earlier attempt at peering";
        /// The sender has nothing to do with the PG, or not the role that the message claims.
        PeerForeign => "peer_foreign", "Messages dropped that were not for the OSD to send";
        /// No store accepts its changes, or they are not to the PG, or it can't be read.
        PeerUnsound => "peer_unsound", "Changes sent by OSDs dropped that no store takes";
        /// The message came before its map, and too many such messages wait, or it can't wait.
        PeerEarly => "peer_early", "Messages of OSDs dropped that came before their map";
        /// The question or exchange that the message belongs to has ended, or was answered already.
        PeerLate => "peer_late", "Messages of OSDs that nobody waits for any more";
        /// This OSD does not have, or no longer has, the role that the message assumes.
        PeerMisled => "peer_misled", "Messages of OSDs for a part in the PG that this one has not";
        /// An earlier write was lost: the primary sends both again.
        PeerGap => "peer_gap", "Writes of primaries that came before one that was lost";
        /// The data that the change names did not come, or was let go: the primary sends both again.
        PeerAhead => "peer_ahead", "Writes of primaries whose data was not there";
        /// The request's object is not in the PG by the map that its client names.
        OpMisdirected => "op_misdirected", "Requests dropped for objects that are not in the PG";
        /// The pool answers nothing, as its flag `eio` says. The client knows that by its map.
        OpPoolEio => "op_pool_eio", "Requests dropped as the pool has the flag eio";
        /// There is no room for the write, or for an earlier one of its client. The client sends it
        /// again when there is.
        OpNoRoom => "op_no_room", "Writes dropped until there is room for them";
        /// The store was called in an interval that has ended.
        StoreLate => "store_late", "Answers of the store that nobody waits for any more";
    }
}

impl DropReason {
    /// The reason for a message of an OSD without the role that it claims: by an older map it may
    /// have had it.
    pub(crate) fn of_stranger(is_stale: bool) -> Self {
        if is_stale {
            Self::PeerStale
        } else {
            Self::PeerForeign
        }
    }

    /// Whether it is a request that was dropped.
    pub(super) fn is_of_request(self) -> bool {
        matches!(self, Self::OpMisdirected | Self::OpPoolEio | Self::OpNoRoom)
    }
}

/// All counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct CorePerf {
    /// Transactions, from their submission until they were durable.
    pub commits: Times,
    /// Writes as a replica, from their arrival until they were durable here.
    pub sub_ops: Times,
    /// Bytes of data and attributes in these writes.
    pub sub_op_bytes: u64,
    /// Requests that waited for their turn, until it came.
    pub turns: Times,
    /// Requests that looked for their object's context.
    pub contexts: u64,
    /// Requests that found their object's context.
    pub contexts_found: u64,
    /// Objects of which this OSD had the copy repaired.
    pub repaired: u64,
    /// Messages that were dropped, by reason.
    pub dropped: Counts<DropReason>,
}
