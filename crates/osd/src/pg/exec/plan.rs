//! The wants of ops, as far as they are known before the execution, so that everything for a
//! request is fetched in one go.

use hashbrown::HashSet;
use spirula_denc::Extent;
use spirula_proto::osd::OpCode;

use super::read::{checksum_extent, read_extent, sparse_extent};
use super::{ObjectState, omap};
use crate::pg::config::PgConfig;
use crate::pg::fetch::{ReadRange, Want};
use crate::pg::op::OsdOp;

/// The most bytes fetched at once for the ops of one request; a single op may need more.
const ROUND: u64 = 16 << 20;

/// The wants that are fetched at once.
#[derive(Default)]
pub(super) struct Round {
    wants: Vec<Want>,
    seen: HashSet<Want>,
    /// The most bytes of the answers.
    cost: u64,
}

impl Round {
    /// Adds a want, and returns whether there was room for it; there always is for the first one.
    pub(super) fn add(&mut self, want: Want) -> bool {
        if self.seen.contains(&want) {
            return true;
        }
        let cost = self.cost.saturating_add(want.cost());
        if cost > ROUND && !self.wants.is_empty() {
            return false;
        }
        self.cost = cost;
        self.seen.insert(want.clone());
        self.wants.push(want);
        true
    }

    pub(super) fn into_wants(self) -> Vec<Want> {
        self.wants
    }
}

/// The wants of the ops of a request, none of which is executed yet.
pub(crate) fn up_front(cfg: &PgConfig, state: &ObjectState, ops: &mut [OsdOp]) -> Vec<Want> {
    let mut round = Round::default();
    if state.exists {
        let mut wants = ops.iter_mut().filter_map(|op| wanted(cfg, state, op));
        while wants.next().is_some_and(|want| round.add(want)) {}
    }
    round.into_wants()
}

/// The want of an op on the object as it is.
pub(super) fn wanted(cfg: &PgConfig, state: &ObjectState, op: &mut OsdOp) -> Option<Want> {
    normalise(op);
    let (size, seq) = (state.info.size, state.info.truncate_seq);
    let Extent { offset, len } = match op.code {
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

/// Clients of old wrote "no truncation" as sequence 1 and size -1.
pub(super) fn normalise(op: &mut OsdOp) {
    if op.code.uses_extent() {
        let mut e = op.extent();
        if e.truncate_seq == 1 && e.truncate_size == u64::MAX {
            e.truncate_seq = 0;
            e.truncate_size = 0;
            op.set_args(&e);
        }
    }
}
