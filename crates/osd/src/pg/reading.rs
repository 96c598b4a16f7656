//! Ops that wait for the store to read.

use std::sync::Arc;

use bytes::Bytes;
use spirula_proto::osd::OpFlags;

use super::exec::ObjectState;
use super::fetch::Fetched;
use super::op::ClientOp;
use super::output::Reader;

/// The advice of a client that what it reads is not worth keeping.
const NOT_KEPT: OpFlags = OpFlags::FADVISE_DONTNEED.with(OpFlags::FADVISE_NOCACHE);

/// An op that waits for the store to read.
#[derive(Debug)]
pub(super) struct Reading {
    pub op: ClientOp,
    /// The object's head, whose context counts it.
    pub key: Bytes,
    /// The answers fetched for the op before.
    pub answers: Vec<Fetched>,
    /// The clone that it reads; `None` for the head.
    pub clone: Option<CloneRead>,
    /// The object that takes the head's place, if its data is read now.
    pub base: Option<Bytes>,
}

impl Reading {
    pub(super) fn new(key: &Bytes, op: ClientOp) -> Self {
        Self {
            op,
            key: key.clone(),
            answers: Vec::new(),
            clone: None,
            base: None,
        }
    }

    /// The client that reads.
    pub(super) fn reader(&self) -> Option<Reader> {
        let client = &self.op.client;
        (!client.is_internal()).then(|| Reader {
            client: Arc::clone(client),
            held: self.op.taken.room.bytes(),
            only_reads: !self.op.may_write(),
            only_once: self.op.ops.iter().any(|o| o.flags.intersects(NOT_KEPT)),
        })
    }
}

/// A clone that an op reads.
#[derive(Debug)]
pub(super) struct CloneRead {
    /// Its key.
    pub key: Bytes,
    /// The clone's state; the default until it was looked up.
    pub state: ObjectState,
}
