//! Which data goes ahead.

use std::ops::Range;

use bytes::Bytes;
use spirula_erasure::FragmentOp;
use spirula_proto::osd::OpCode;

use super::BLOCK;
use crate::pg::coded::message::runs;
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

/// A run of writes that goes ahead to a member.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The writes' places among what the member stages.
    pub(super) place: Range<usize>,
    /// Where they begin in the fragment, in bytes.
    pub(super) offset: u64,
    /// Bytes.
    pub(super) len: u64,
}

/// The longest run of adjacent writes among what a member stages of a large change, if it is long
/// enough to be placed. Those are whole blocks. What is added to a fragment can't go ahead, as the
/// result depends on what the fragment has by then.
pub(super) fn run_ahead(staged: &[FragmentOp]) -> Option<Run> {
    let mut end = 0;
    let all = runs(staged).filter_map(|run| {
        let place = end..end + run.len();
        end = place.end;
        match run {
            [FragmentOp::Write { offset, .. }, ..] => Some(Run {
                place,
                offset: *offset,
                len: run.iter().map(|op| op.range().len).sum(),
            }),
            _ => None,
        }
    });
    let longest = all.max_by_key(|run| (run.len, std::cmp::Reverse(run.offset)));
    longest.filter(|run| run.len >= 2 * BLOCK)
}
