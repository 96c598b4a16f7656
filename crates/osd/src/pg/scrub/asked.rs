//! A client's request for what a scrub has found.

use bytes::Bytes;
use spirula_maps::Epoch;

use crate::pg::key::KeyRange;
use crate::pg::op::ClientOp;

/// A request for what the last scrub has found, while records are read for it.
#[derive(Debug)]
pub(in crate::pg) struct FindingsAsked {
    pub(in crate::pg) op: ClientOp,
    /// The index among the ops of the request.
    pub(super) index: usize,
    /// The interval in which it was asked.
    pub(super) interval: Epoch,
    /// The records that are left.
    pub(super) left: KeyRange,
    /// The most findings that are wanted.
    pub(super) most: usize,
    pub(super) found: Vec<Bytes>,
}
