//! What the steps of a change mean for the fragment of one member.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
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
    /// Cuts the fragment off, if it is longer.
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
    sums: Sums,
}

impl Member<'_> {
    fn step(&mut self, step: &Step) {
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
                Unit::Parity(parity),
            ) => self.sums.add(self.layout, self.code, parity, *offset, delta),
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
        let mut sums = Sums::default();
        for (offset, data) in pieces {
            sums.add(self.layout, self.code, parity, *offset, data);
        }
        // A coding fragment reaches as far as that of the first data unit.
        let all = self.layout.data_extent(0, range);
        let mut at = all.offset;
        for (offset, data) in sums.joined() {
            self.ops.extend(hole(fresh, at..offset));
            at = offset + data.len() as u64;
            let data = data.into();
            self.ops.push(FragmentOp::Write { offset, data });
        }
        self.ops.extend(hole(fresh, at..all.end()));
    }

    /// Notes the sums as ops.
    fn add_up(&mut self) {
        for (offset, sum) in std::mem::take(&mut self.sums).joined() {
            let delta = sum.into();
            self.ops.push(FragmentOp::Add { offset, delta });
        }
    }
}

/// A hole in a range, where there may be something.
fn hole(fresh: bool, range: Range<u64>) -> Option<FragmentOp> {
    (!fresh && !range.is_empty()).then(|| FragmentOp::Zero { range: range.into() })
}

/// Sums of data, or of differences, in a coding fragment: units of one stripe meet in it. By
/// disjoint ranges, so that nothing is made of what no data is in.
#[derive(Default)]
struct Sums {
    by_start: BTreeMap<u64, Vec<u8>>,
}

impl Sums {
    /// Adds bytes of the object, each times its unit's coefficient.
    fn add(&mut self, layout: Layout, code: &Code, parity: u8, offset: u64, bytes: &Bytes) {
        let range = Extent {
            offset,
            len: bytes.len() as u64,
        };
        for piece in layout.pieces(range) {
            let from = len(piece.offset - offset);
            let part = &bytes[from..from + len(piece.len)];
            let place = piece.fragment_offset..piece.fragment_offset + piece.len;
            code.add_delta(parity, piece.data, part, self.room(place));
        }
    }

    /// The sums of a range; what was not summed is zero.
    fn room(&mut self, range: Range<u64>) -> &mut [u8] {
        let end_of = |(at, sum): (&u64, &Vec<u8>)| *at + sum.len() as u64;
        let before = self.by_start.range(..=range.start).next_back();
        let last = before.filter(|sum| end_of(*sum) > range.start);
        let from = match last {
            Some(sum) if end_of(sum) >= range.end => *sum.0,
            _ => self.join(last.map_or(range.start, |(at, _)| *at), range.end),
        };
        let sum = self.by_start.entry(from).or_default();
        &mut sum[len(range.start - from)..len(range.end - from)]
    }

    /// Makes one range of this one and all that overlap it. Returns its start.
    fn join(&mut self, start: u64, mut end: u64) -> u64 {
        let parts: Vec<u64> = self.by_start.range(start..end).map(|(at, _)| *at).collect();
        let parts: Vec<_> = parts
            .iter()
            .filter_map(|at| self.by_start.remove_entry(at))
            .collect();
        for (at, sum) in &parts {
            end = end.max(at + sum.len() as u64);
        }
        let mut all = vec![0; len(end - start)];
        for (at, sum) in parts {
            all[len(at - start)..][..sum.len()].copy_from_slice(&sum);
        }
        self.by_start.insert(start, all);
        start
    }

    /// All sums; ranges that touch become one.
    fn joined(self) -> Vec<(u64, Vec<u8>)> {
        let mut all: Vec<(u64, Vec<u8>)> = Vec::new();
        for (at, sum) in self.by_start {
            match all
                .last_mut()
                .filter(|(start, last)| start + last.len() as u64 == at)
            {
                Some((_, last)) => last.extend_from_slice(&sum),
                None => all.push((at, sum)),
            }
        }
        all
    }
}
