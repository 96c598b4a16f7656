//! Conversion between openraft's types and those of the monitors' messages.

use openraft::{CommittedLeaderId, LogId, Vote};
use spirula_proto::internal::quorum::{LogPosition, LogVote};

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
