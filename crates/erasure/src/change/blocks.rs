//! Blocks of the store in ranges of an object.
//!
//! Units are whole blocks, so a block of an object is one of a fragment.

use std::ops::Range;

use bytes::Bytes;
use rangemap::RangeSet;
use spirula_denc::Extent;

use super::{Pieces, copy_of, len};
use crate::Layout;

/// The bytes of a block.
pub(super) const BLOCK: u64 = Layout::MIN_UNIT as u64;

/// Whether a range begins and ends where blocks do.
pub(super) fn is_blocks(range: Extent) -> bool {
    range.offset.is_multiple_of(BLOCK) && range.end().is_multiple_of(BLOCK)
}

/// Where the blocks begin that a range covers in part: at most one at each end. A range within a
/// block names it twice.
pub(super) fn partly_covered(range: Extent) -> impl Iterator<Item = u64> {
    let ends = [range.offset, range.end()].into_iter();
    ends.filter(|end| !end.is_multiple_of(BLOCK))
        .map(|end| end - end % BLOCK)
}

/// Pieces with zeros around them, so that they are whole blocks. The blocks that pieces cover in
/// part are copied; all others stay where they are in memory.
pub(super) fn padded(pieces: &Pieces) -> Pieces {
    let mut copied: Vec<Range<u64>> = Vec::new();
    let mut all = Pieces::new();
    for (offset, data) in pieces {
        let range = Extent {
            offset: *offset,
            len: data.len() as u64,
        };
        for block in partly_covered(range) {
            let end = block.saturating_add(BLOCK);
            match copied.last_mut().filter(|last| last.end >= block) {
                Some(last) => last.end = end,
                None => copied.push(block..end),
            }
        }
        let from = offset.div_ceil(BLOCK).saturating_mul(BLOCK);
        let to = range.end() - range.end() % BLOCK;
        if from < to {
            all.push((from, data.slice(len(from - offset)..len(to - offset))));
        }
    }
    let copies = copied
        .into_iter()
        .map(|range| (range.start, copy_of(pieces, range.into()).into()));
    all.extend(copies);
    all.sort_by_key(|(offset, _)| *offset);
    all
}

/// What [`padded`] pieces have and the pieces themselves have not.
pub(super) fn gaps(pieces: &Pieces, padded: &Pieces) -> impl Iterator<Item = Extent> {
    let range = |(offset, data): &(u64, Bytes)| *offset..offset.saturating_add(data.len() as u64);
    let mut gaps: RangeSet<u64> = padded.iter().map(range).collect();
    let pieces = pieces.iter().map(range).filter(|r| !r.is_empty());
    pieces.for_each(|r| gaps.remove(r));
    gaps.into_iter().map(Extent::from)
}
