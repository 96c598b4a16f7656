//! Conversion between openraft's types and those of the monitors' messages.

use openraft::{CommittedLeaderId, Entry, LogId, Vote};
use spirula_proto::internal::quorum::{LogPosition, LogVote};

use super::{Runtime, Types};

/// Whether entries follow `previous` and each other ([`is_next`]).
pub(super) fn are_consecutive<R: Runtime>(
    previous: Option<&LogId<u64>>,
    entries: &[Entry<Types<R>>],
) -> bool {
    let ids = || entries.iter().map(|e| &e.log_id);
    let before = std::iter::once(previous).chain(ids().map(Some));
    before.zip(ids()).all(|(before, id)| is_next(before, id))
}

/// Whether an entry is the next one after `before`: at the next place, and of no earlier leader.
pub(super) fn is_next(before: Option<&LogId<u64>>, id: &LogId<u64>) -> bool {
    id.index == before.map_or(0, |b| b.index + 1) && before.is_none_or(|b| b.leader_id <= id.leader_id)
}

/// A place in the log, or none, for people.
pub(super) fn shown(id: Option<&LogId<u64>>) -> String {
    id.map_or_else(|| "none".to_owned(), LogId::to_string)
}

pub(super) fn vote(v: &Vote<u64>) -> LogVote {
    LogVote {
        term: v.leader_id.term,
        node: v.leader_id.node_id,
        committed: v.committed,
    }
}

pub(super) fn to_vote(v: &LogVote) -> Vote<u64> {
    match v.committed {
        true => Vote::new_committed(v.term, v.node),
        false => Vote::new(v.term, v.node),
    }
}

pub(super) fn position(id: &LogId<u64>) -> LogPosition {
    LogPosition {
        term: id.leader_id.term,
        node: id.leader_id.node_id,
        index: id.index,
    }
}

pub(super) fn to_log_id(p: &LogPosition) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(p.term, p.node), p.index)
}
