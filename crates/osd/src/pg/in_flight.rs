//! Writes that are not durable everywhere, and the replies to their clients.

use bytes::Bytes;
use spirula_maps::EVersion;

use super::backend::Sent;
use super::op::ClientOp;
use super::replies::Answered;
use super::watch::WatchEffects;

/// A write that is not durable everywhere.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) version: EVersion,
    /// The request and its reply; `None` for the PG's own writes.
    pub(super) request: Option<(ClientOp, Reply)>,
    /// The object whose context counts the write; `None` for a logged failure.
    pub(super) key: Option<Bytes>,
    /// The op, by its place among the pending ones, for whose staging object the write is a step.
    pub(super) stage: Option<u32>,
    /// The messages to the members.
    pub(super) sent: Sent,
    /// Repetitions of the request by the client, with the answer: by the time when the write is
    /// durable, it may be forgotten.
    pub(super) dups: Vec<(ClientOp, Answered)>,
}

/// The reply to the client.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) result: i32,
    pub(super) user_version: u64,
    /// The versions for a failure for want of the object.
    pub(super) enoent: Option<(EVersion, u64)>,
    /// The effects on watches and notifications once the write is durable.
    pub(super) effects: Option<Box<WatchEffects>>,
}

impl Reply {
    pub(super) fn failure(result: i32, user_version: u64) -> Self {
        Self {
            result,
            user_version,
            enoent: None,
            effects: None,
        }
    }
}

impl InFlight {
    /// The client's request.
    pub(super) fn op(&self) -> Option<&ClientOp> {
        self.request.as_ref().map(|(op, _)| op)
    }

    /// The client's requests, to be handled anew in the next interval.
    pub(super) fn into_ops(self) -> impl Iterator<Item = ClientOp> {
        let dups = self.dups.into_iter().map(|(op, _)| op);
        self.request.into_iter().map(|(op, _)| op).chain(dups)
    }
}
