//! Which data of a request goes ahead.

use bytes::Bytes;
use spirula_proto::osd::OpCode;

use super::BLOCK;
use crate::pg::op::{ClientOp, OsdOp};

/// The data of a request that goes to the members ahead of its change, if there is such: a write of
/// whole blocks, and of so much (`least` bytes) that others would wait for it.
pub(in crate::pg) fn data_ahead(op: &ClientOp, least: usize) -> Option<&Bytes> {
    let is_shared = op.taken.turn.as_ref().is_some_and(|turn| turn.is_shared());
    if !is_shared || op.taken.ahead.is_some() {
        return None;
    }
    let is_ahead = |o: &&OsdOp| {
        let offset = match o.code {
            OpCode::WRITE => o.extent().offset,
            OpCode::WRITEFULL => 0,
            _ => return false,
        };
        let len = o.indata.len() as u64;
        let is_whole = offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK);
        is_whole && o.indata.len() >= least && len >= 2 * BLOCK
    };
    op.ops.iter().find(is_ahead).map(|o| &o.indata)
}
