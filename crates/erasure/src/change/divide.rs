//! Large changes in two phases.
//!
//! Steps are the same for all members, so each member gets all bytes of a change, though it keeps
//! only some. A large change is therefore divided. First each member gets what its own fragment
//! becomes, in whole blocks, and *stages* the result: it stores it in an object beside its
//! fragment, at the same offsets. Once that is durable on all members, one small transaction, the
//! same for all, makes the change: it carries out the steps that are left, and then takes over
//! each staged block in place of the one that the fragment has at this offset.
//!
//! Blocks are staged against the fragment as it was before the change. So a block may be staged or
//! changed by steps, and not both; for coding fragments this means that all units of a stripe have
//! to go the same way there. The blocks at one offset of all fragments are a *column*. Where the
//! change is no whole block in one unit, the steps do all of the column.

use std::collections::BTreeSet;
use std::ops::Range;

use spirula_denc::Extent;

use super::blocks::{BLOCK, gaps, padded, partly_covered};
use super::{Pieces, Step};
use crate::Layout;

/// The steps of a change, divided in two.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Divided {
    /// What members stage before the change: see [`Layout::staged`]. In the order of the object.
    pub staged: Vec<Step>,
    /// What members do as they make the change, before they take over what is staged.
    pub inline: Vec<Step>,
    /// What members do afterwards: blocks that are staged may have zeros where the change has
    /// nothing. These become holes, as they would be without staging.
    pub holes: Vec<Step>,
}

impl Layout {
    /// Divides the steps of a change, as [`Change::steps`](crate::Change::steps) makes them.
    ///
    /// A change of one range leaves at most three columns to be done inline: where the range
    /// begins, where it ends, and where the object did. That is three blocks of each data unit.
    ///
    /// Blocks that are staged may reach behind the object's end, with zeros.
    pub fn divide(self, steps: Vec<Step>) -> Divided {
        let columns = Columns::partly_covered(self, &steps);
        let mut divided = Divided::default();
        for step in steps {
            match step {
                Step::Stripes { range, fresh, pieces } => divided.stripes(range, fresh, &pieces),
                Step::Write { .. } | Step::Patch { .. } | Step::Punch { .. } => {
                    divided.part_of_stripe(&columns, &step)
                }
                Step::Discard { .. } | Step::Truncate { .. } => divided.inline.push(step),
            }
        }
        divided
    }
}

impl Divided {
    fn stripes(&mut self, range: Extent, fresh: bool, pieces: &Pieces) {
        if !fresh {
            self.discard(range, true);
        }
        let whole = padded(pieces);
        let Some((at, last)) = whole.last() else { return };
        let end = range.end().max(at + last.len() as u64);
        self.holes
            .extend(gaps(pieces, &whole).map(|range| Step::Discard { range, coding: false }));
        let range = (range.offset..end).into();
        self.staged.push(Step::Stripes {
            range,
            fresh,
            pieces: whole,
        });
    }

    fn part_of_stripe(&mut self, columns: &Columns, step: &Step) {
        for (is_inline, range) in columns.cut(step.range()) {
            let part = step.part(range);
            if is_inline {
                self.inline.extend(part);
                continue;
            }
            if let Step::Punch { .. } = step {
                self.discard(range, false);
            }
            self.staged.extend(part);
        }
    }

    fn discard(&mut self, range: Extent, coding: bool) {
        match self.inline.last_mut() {
            Some(Step::Discard {
                range: last,
                coding: too,
            }) if *too == coding && last.end() == range.offset => last.len += range.len,
            _ => self.inline.push(Step::Discard { range, coding }),
        }
    }
}

/// The columns that are done inline.
struct Columns {
    layout: Layout,
    /// The places of their blocks in fragments, in blocks.
    blocks: BTreeSet<u64>,
}

impl Columns {
    /// Those of which a step changes part of a block.
    fn partly_covered(layout: Layout, steps: &[Step]) -> Self {
        let parts = steps
            .iter()
            .filter(|s| matches!(s, Step::Write { .. } | Step::Patch { .. } | Step::Punch { .. }));
        let blocks = parts.flat_map(|step| partly_covered(step.range()));
        let pieces = blocks.flat_map(|offset| layout.pieces(Extent { offset, len: 1 }));
        Self {
            layout,
            blocks: pieces.map(|piece| piece.fragment_offset / BLOCK).collect(),
        }
    }

    /// Cuts a range of an object into parts, each with whether it is done inline.
    fn cut(&self, range: Extent) -> Vec<(bool, Extent)> {
        let mut parts = Vec::new();
        for piece in self.layout.pieces(range) {
            let place = piece.fragment_offset..piece.fragment_offset + piece.len;
            let in_object = |at: u64| piece.offset + (at - place.start);
            let mut at = place.start;
            for block in self.blocks.range(place.start / BLOCK..place.end.div_ceil(BLOCK)) {
                let from = (block * BLOCK).max(at);
                let to = (block * BLOCK + BLOCK).min(place.end);
                add_part(&mut parts, false, in_object(at)..in_object(from));
                add_part(&mut parts, true, in_object(from)..in_object(to));
                at = to;
            }
            add_part(&mut parts, false, in_object(at)..in_object(place.end));
        }
        parts
    }
}

/// Adds a part; to the last one, if it is of its kind and ends where it begins.
fn add_part(parts: &mut Vec<(bool, Extent)>, is_inline: bool, range: Range<u64>) {
    if range.is_empty() {
        return;
    }
    match parts.last_mut().filter(|(kind, _)| *kind == is_inline) {
        Some((_, last)) => last.len += range.end - range.start,
        None => parts.push((is_inline, range.into())),
    }
}
