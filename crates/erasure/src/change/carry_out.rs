//! What the steps of a change mean for the fragment of one member.

use std::ops::Range;

use bytes::Bytes;
use rangemap::RangeSet;
use spirula_denc::Extent;
use spirula_invariant::invariant;

use super::blocks::is_blocks;
use super::steps::Step;
use super::{Pieces, copy_of, len};
use crate::{Code, Layout, Unit, xor};

/// A change of a member's fragment. But for [`FragmentOp::Truncate`], no two of a change touch the
/// same byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FragmentOp {
    /// Writes bytes.
    Write {
        /// The place in the fragment.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// Makes a hole.
    Zero {
        /// The range of the fragment.
        range: Extent,
    },
    /// Adds bytes to those that are there; behind the end there are zeros. See [`add`].
    Add {
        /// The place in the fragment.
        offset: u64,
        /// What is added.
        delta: Bytes,
    },
    /// Cuts the fragment off, or extends it by a hole.
    Truncate {
        /// Its length.
        size: u64,
    },
}

impl FragmentOp {
    /// The range of the fragment that the op is about; for a truncation, its end.
    pub fn range(&self) -> Extent {
        match self {
            Self::Write { offset, data: bytes } | Self::Add { offset, delta: bytes } => Extent {
                offset: *offset,
                len: bytes.len() as u64,
            },
            Self::Zero { range } => *range,
            Self::Truncate { size } => (*size..*size).into(),
        }
    }
}

/// What a [`FragmentOp::Add`] at this offset writes, given the pieces that the fragment has there.
pub fn add(offset: u64, delta: &[u8], fragment: &[(u64, Bytes)]) -> Bytes {
    let len = delta.len() as u64;
    let mut new = copy_of(fragment, Extent { offset, len });
    xor(&mut new, delta);
    new.into()
}

impl Layout {
    /// What the steps of a change mean for the fragment of this unit.
    pub fn carry_out(self, code: &Code, unit: Unit, steps: &[Step]) -> Vec<FragmentOp> {
        invariant!(code.has(unit), "a unit of the layout"; unit = format!("{unit:?}"), k = self.k(), m = self.m());
        let mut member = Member {
            layout: self,
            code,
            unit,
            ops: Vec::new(),
            sums: Sums::default(),
        };
        for step in steps {
            member.step(step);
        }
        member.add_up();
        member.ops
    }

    /// What the member that has this unit stages for steps that are
    /// [staged](crate::Divided::staged): whole blocks, written or added. The result of an addition
    /// is that to the fragment as it is before the change.
    ///
    /// Holes are not among them: for these the change has steps that are done inline.
    pub fn staged(self, code: &Code, unit: Unit, steps: &[Step]) -> Vec<FragmentOp> {
        let mut ops = self.carry_out(code, unit, steps);
        ops.retain(|op| !matches!(op, FragmentOp::Zero { .. }));
        for op in &ops {
            invariant!(is_of_blocks(op), "whole blocks to be staged"; unit = format!("{unit:?}"));
        }
        ops
    }
}

/// Whether an op writes bytes or adds them, to whole blocks.
fn is_of_blocks(op: &FragmentOp) -> bool {
    match op {
        FragmentOp::Write { offset, data: bytes } | FragmentOp::Add { offset, delta: bytes } => {
            is_blocks(Extent {
                offset: *offset,
                len: bytes.len() as u64,
            })
        }
        FragmentOp::Zero { .. } | FragmentOp::Truncate { .. } => false,
    }
}

/// One member, with what it has to do so far.
struct Member<'a> {
    layout: Layout,
    code: &'a Code,
    unit: Unit,
    ops: Vec<FragmentOp>,
    /// What is to be added to a coding fragment.
    sums: Sums<'a>,
}

impl<'a> Member<'a> {
    fn step(&mut self, step: &'a Step) {
        match (step, self.unit) {
            (Step::Truncate { size }, unit) => {
                // Stripes that are gone are not added to.
                self.add_up();
                let size = self.layout.fragment_len(unit, *size);
                self.ops.push(FragmentOp::Truncate { size });
            }
            (Step::Stripes { range, fresh, pieces }, Unit::Data(data)) => {
                self.data_of_stripes(data, *range, *fresh, pieces)
            }
            (Step::Stripes { range, fresh, pieces }, Unit::Parity(parity)) => {
                self.parity_of_stripes(parity, *range, *fresh, pieces)
            }
            (Step::Discard { range, .. }, Unit::Data(data)) => self.discard(data, *range),
            // A coding fragment reaches as far as that of the first data unit.
            (Step::Discard { range, coding: true }, Unit::Parity(_)) => self.discard(0, *range),
            (Step::Discard { coding: false, .. }, Unit::Parity(_)) => {}
            (Step::Write { offset, data }, Unit::Data(index)) => {
                self.each(index, *offset, data, |offset, data| FragmentOp::Write {
                    offset,
                    data,
                })
            }
            (Step::Patch { offset, delta }, Unit::Data(index)) => {
                self.each(index, *offset, delta, |offset, delta| FragmentOp::Add {
                    offset,
                    delta,
                })
            }
            (Step::Punch { offset, delta }, Unit::Data(index)) => {
                self.each(index, *offset, delta, |offset, delta| FragmentOp::Zero {
                    range: Extent {
                        offset,
                        len: delta.len() as u64,
                    },
                })
            }
            (
                Step::Write { offset, data: delta }
                | Step::Patch { offset, delta }
                | Step::Punch { offset, delta },
                Unit::Parity(_),
            ) => self.sums.parts.push((*offset, delta)),
        }
    }

    /// Makes a hole of what the fragment of a data unit has of a range.
    fn discard(&mut self, data: u8, range: Extent) {
        let Extent { offset, len } = self.layout.data_extent(data, range);
        self.ops.extend(hole(false, offset..offset + len));
    }

    /// Makes an op of each part of a range of the object that lies in this data fragment.
    fn each(&mut self, index: u8, offset: u64, bytes: &Bytes, op: impl Fn(u64, Bytes) -> FragmentOp) {
        let range = Extent {
            offset,
            len: bytes.len() as u64,
        };
        for piece in self.layout.pieces(range).filter(|p| p.data == index) {
            let from = len(piece.offset - offset);
            self.ops.push(op(
                piece.fragment_offset,
                bytes.slice(from..from + len(piece.len)),
            ));
        }
    }

    fn data_of_stripes(&mut self, index: u8, range: Extent, fresh: bool, pieces: &Pieces) {
        let mine = self.layout.data_extent(index, range);
        let mut at = mine.offset;
        for (offset, data) in pieces {
            let range = Extent {
                offset: *offset,
                len: data.len() as u64,
            };
            for piece in self.layout.pieces(range).filter(|p| p.data == index) {
                self.ops.extend(hole(fresh, at..piece.fragment_offset));
                let from = len(piece.offset - offset);
                self.ops.push(FragmentOp::Write {
                    offset: piece.fragment_offset,
                    data: data.slice(from..from + len(piece.len)),
                });
                at = piece.fragment_offset + piece.len;
            }
        }
        self.ops.extend(hole(fresh, at..mine.end()));
    }

    /// Codes stripes anew, as far as they have data.
    fn parity_of_stripes(&mut self, parity: u8, range: Extent, fresh: bool, pieces: &Pieces) {
        let parts = pieces.iter().map(|(offset, data)| (*offset, data)).collect();
        let sums = Sums { parts }.of_parity(self.layout, self.code, parity);
        // A coding fragment reaches as far as that of the first data unit.
        let all = self.layout.data_extent(0, range);
        let mut at = all.offset;
        for (offset, data) in sums {
            self.ops.extend(hole(fresh, at..offset));
            at = offset + data.len() as u64;
            self.ops.push(FragmentOp::Write { offset, data });
        }
        self.ops.extend(hole(fresh, at..all.end()));
    }

    /// Notes the sums as ops.
    fn add_up(&mut self) {
        let Unit::Parity(parity) = self.unit else { return };
        let sums = std::mem::take(&mut self.sums).of_parity(self.layout, self.code, parity);
        let added = sums
            .into_iter()
            .map(|(offset, delta)| FragmentOp::Add { offset, delta });
        self.ops.extend(added);
    }
}

/// A hole in a range, where there may be something.
fn hole(fresh: bool, range: Range<u64>) -> Option<FragmentOp> {
    (!fresh && !range.is_empty()).then(|| FragmentOp::Zero { range: range.into() })
}

/// What is summed in one buffer at most, in bytes. Buffers of this size are used again and again by
/// allocators; memory for larger ones comes from the kernel each time, page by page.
const MOST_IN_SUM: u64 = 64 << 10;

/// Parts of the object, data or differences, of which the sum is to be made in a coding fragment:
/// units of one stripe meet there.
#[derive(Default)]
struct Sums<'a> {
    /// By their offsets in the object, in the order of the steps.
    parts: Vec<(u64, &'a Bytes)>,
}

impl Sums<'_> {
    /// The sums of all parts, each times its unit's coefficient: disjoint ranges of the fragment, in
    /// order. Nothing is made of what no part is in.
    fn of_parity(self, layout: Layout, code: &Code, parity: u8) -> Vec<(u64, Bytes)> {
        let pieces_of = |(offset, bytes): (u64, &Bytes)| {
            let len = bytes.len() as u64;
            layout.pieces(Extent { offset, len })
        };
        let pieces = self.parts.iter().flat_map(|part| pieces_of(*part));
        let places = pieces.map(|p| p.fragment_offset..p.fragment_offset + p.len);
        let mut sums: Vec<(u64, Vec<u8>)> = ranges_of_sums(places)
            .map(|range| (range.start, vec![0; len(range.end - range.start)]))
            .collect();
        for (offset, bytes) in &self.parts {
            for piece in pieces_of((*offset, bytes)) {
                let part = &bytes[len(piece.offset - offset)..][..len(piece.len)];
                add_to(&mut sums, piece.fragment_offset, part, |part, sum| {
                    code.add_delta(parity, piece.data, part, sum)
                });
            }
        }
        sums.into_iter().map(|(at, sum)| (at, sum.into())).collect()
    }
}

/// The ranges of sums in which all of these places are: those that touch become one, which is cut
/// where it is too long.
fn ranges_of_sums(places: impl Iterator<Item = Range<u64>>) -> impl Iterator<Item = Range<u64>> {
    let joined: RangeSet<u64> = places.filter(|place| !place.is_empty()).collect();
    joined.into_iter().flat_map(|range| {
        let sums = range.start / MOST_IN_SUM..range.end.div_ceil(MOST_IN_SUM);
        sums.map(move |n| {
            let cut = n * MOST_IN_SUM;
            range.start.max(cut)..range.end.min(cut + MOST_IN_SUM)
        })
    })
}

/// Adds bytes to the sums that lie where they go.
fn add_to(sums: &mut [(u64, Vec<u8>)], mut at: u64, mut bytes: &[u8], add: impl Fn(&[u8], &mut [u8])) {
    let first = sums.partition_point(|(start, sum)| start + sum.len() as u64 <= at);
    for (start, sum) in &mut sums[first..] {
        let place = &mut sum[len(at - *start)..];
        let (here, rest) = bytes.split_at(bytes.len().min(place.len()));
        add(here, &mut place[..here.len()]);
        if rest.is_empty() {
            break;
        }
        (at, bytes) = (at + here.len() as u64, rest);
    }
}
