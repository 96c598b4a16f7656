//! Writes that are not durable everywhere, and what their clients will be told.

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
    /// The request and what will be answered; `None` where the PG does it by itself.
    pub(super) request: Option<(ClientOp, Reply)>,
    /// The object whose context counts it; `None` for a logged failure.
    pub(super) key: Option<Bytes>,
    /// The op whose staging object it is a step of, by its place among what is pending.
    pub(super) stage: Option<u32>,
    /// What the members were sent of it.
    pub(super) sent: Sent,
    /// The same request, sent again by the client, and its answer: by the time when it is durable, it may be forgotten.
    pub(super) dups: Vec<(ClientOp, Answered)>,
}

/// What the client will be told.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) result: i32,
    pub(super) user_version: u64,
    /// Versions for a failure for want of the object.
    pub(super) enoent: Option<(EVersion, u64)>,
    /// What happens to watches and notifications once it is durable.
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
