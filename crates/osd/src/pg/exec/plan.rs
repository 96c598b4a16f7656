//! What ops will want, as far as it can be told before they are executed: so that a request is fetched for in one go.

use spirula_proto::osd::OpCode;

use super::read::{checksum_extent, read_extent, sparse_extent};
use super::{ObjectState, normalise, omap};
use crate::pg::config::PgConfig;
use crate::pg::fetch::{Fetched, ReadRange, Want};
use crate::pg::op::OsdOp;

/// Bytes fetched at once for the ops of one request; a single op may need more.
const ROUND: u64 = 64 << 20;

/// What the ops of a request will want, none of them executed yet.
pub(crate) fn up_front(cfg: &PgConfig, state: &ObjectState, ops: &mut [OsdOp]) -> Vec<Want> {
    more(None, (cfg, state), ops, &[])
}

/// What is to be fetched now: `first`, which an op lacks, and what the ops after it will want.
pub(super) fn more(
    first: Option<Want>,
    (cfg, state): (&PgConfig, &ObjectState),
    rest: &mut [OsdOp],
    answers: &[Fetched],
) -> Vec<Want> {
    let mut cost = first.as_ref().map_or(0, Want::cost);
    let mut wants = Vec::from_iter(first);
    if !state.exists {
        return wants;
    }
    for op in rest {
        let Some(want) = wanted(cfg, state, op) else {
            continue;
        };
        if answers.iter().any(|f| f.want == want) {
            continue;
        }
        cost = cost.saturating_add(want.cost());
        if cost > ROUND && !wants.is_empty() {
            break;
        }
        wants.push(want);
    }
    wants
}

/// What an op wants of the object as it is.
fn wanted(cfg: &PgConfig, state: &ObjectState, op: &mut OsdOp) -> Option<Want> {
    normalise(op);
    let (size, seq) = (state.info.size, state.info.truncate_seq);
    let (offset, len) = match op.code {
        OpCode::READ | OpCode::SYNC_READ => read_extent(size, seq, &op.extent()),
        OpCode::SPARSE_READ => sparse_extent(size, seq, &op.extent()),
        OpCode::CMPEXT => sparse_extent(size, seq, &op.extent()),
        OpCode::CHECKSUM => checksum_extent(size, op),
        _ if state.info.has_omap() => return omap::wanted(cfg, op),
        _ => return None,
    };
    (len > 0).then_some(Want::Data(ReadRange {
        offset,
        len,
        sparse: op.code == OpCode::SPARSE_READ,
    }))
}
