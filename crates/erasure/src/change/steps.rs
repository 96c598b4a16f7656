//! From what becomes of an object's data to steps for all its members.

use std::ops::Range;

use bytes::Bytes;
use spirula_denc::Extent;

use super::net::{Change, New};
use super::{Pieces, copy_of, len, within};
use crate::{Layout, Piece, Unit, xor};

/// A step of a change, the same for all members. The steps of a change are carried out in their
/// order; but for [`Step::Truncate`] no two of them touch the same byte of the object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// All contents of some stripes.
    Stripes {
        /// From the start of the first stripe to the end of what the last one has, before or after.
        range: Extent,
        /// Whether there was nothing in this range before.
        fresh: bool,
        /// The contents; what lies between is a hole.
        pieces: Pieces,
    },
    /// Bytes in part of a stripe, where there was nothing but zeros.
    Write {
        /// The place in the object.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// Bytes in part of a stripe, over others.
    Patch {
        /// The place in the object.
        offset: u64,
        /// Old xor new.
        delta: Bytes,
    },
    /// A hole in part of a stripe.
    Punch {
        /// The place in the object.
        offset: u64,
        /// The old bytes.
        delta: Bytes,
    },
    /// What data fragments have of a range becomes a hole. Coding fragments stay as they are: what
    /// becomes of them is said elsewhere.
    Discard {
        /// The range of the object.
        range: Extent,
        /// Whether coding fragments get a hole too. Then the range is one of [`Step::Stripes`].
        coding: bool,
    },
    /// Makes all fragments as long as those of an object of this size, with a hole where one was
    /// shorter. What an object of this size has is not changed by that.
    Truncate {
        /// The size of the object, or the end of a stripe.
        size: u64,
    },
}

impl Step {
    /// The range of the object that the step is about; for a truncation, its end.
    pub fn range(&self) -> Extent {
        match self {
            Self::Stripes { range, .. } | Self::Discard { range, .. } => *range,
            Self::Write { offset, data: bytes }
            | Self::Patch { offset, delta: bytes }
            | Self::Punch { offset, delta: bytes } => Extent {
                offset: *offset,
                len: bytes.len() as u64,
            },
            Self::Truncate { size } => (*size..*size).into(),
        }
    }

    /// The bytes that the step carries.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Stripes { pieces, .. } => pieces.iter().map(|(_, data)| data.len()).sum(),
            Self::Write { data: bytes, .. }
            | Self::Patch { delta: bytes, .. }
            | Self::Punch { delta: bytes, .. } => bytes.len(),
            Self::Discard { .. } | Self::Truncate { .. } => 0,
        }
    }

    /// What the step does in a range, if anything. Its bytes are not copied.
    pub(super) fn part(&self, range: Extent) -> Option<Self> {
        let all = self.range();
        let (from, to) = (all.offset.max(range.offset), all.end().min(range.end()));
        if from >= to {
            return None;
        }
        let (offset, range) = (from, (from..to).into());
        let slice = |bytes: &Bytes| bytes.slice(len(from - all.offset)..len(to - all.offset));
        match self {
            Self::Stripes { fresh, pieces, .. } => Some(Self::Stripes {
                range,
                fresh: *fresh,
                pieces: within(pieces, range).collect(),
            }),
            Self::Write { data, .. } => Some(Self::Write {
                offset,
                data: slice(data),
            }),
            Self::Patch { delta, .. } => Some(Self::Patch {
                offset,
                delta: slice(delta),
            }),
            Self::Punch { delta, .. } => Some(Self::Punch {
                offset,
                delta: slice(delta),
            }),
            Self::Discard { coding, .. } => Some(Self::Discard {
                range,
                coding: *coding,
            }),
            Self::Truncate { .. } => None,
        }
    }
}

/// A part of a stripe that is changed: with bytes, or to a hole.
struct Part {
    range: Range<u64>,
    data: Option<Bytes>,
}

impl Part {
    /// A part that is cut off, if there is any.
    fn cut(range: Range<u64>) -> Option<Self> {
        (!range.is_empty()).then_some(Self { range, data: None })
    }
}

impl Change {
    /// The bytes of the base that must be known to make steps, in their order.
    pub fn old(&self, layout: Layout) -> Vec<Extent> {
        let mut old: Vec<Extent> = Vec::new();
        for stripe in self.stripes(layout) {
            if self.is_whole(&stripe) {
                continue;
            }
            let end = self.old_end(layout).min(stripe.end);
            for part in self.parts(layout, &stripe) {
                let (from, to) = (part.range.start, part.range.end.min(end));
                if from >= to {
                    continue;
                }
                match old.last_mut().filter(|last| last.end() == from) {
                    Some(last) => last.len += to - from,
                    None => old.push((from..to).into()),
                }
            }
        }
        old
    }

    /// The steps of the change, given at least the bytes that [`Change::old`] names.
    pub fn steps(&self, layout: Layout, old: &[(u64, Bytes)]) -> Vec<Step> {
        let (mut steps, old_end) = (Vec::new(), self.old_end(layout));
        if old_end < self.base_end {
            steps.push(Step::Truncate { size: old_end });
        }
        for stripe in self.stripes(layout) {
            if self.is_whole(&stripe) {
                self.whole_stripe(layout, stripe, &mut steps);
                continue;
            }
            for Part { range, data } in self.parts(layout, &stripe) {
                let middle = old_end.clamp(range.start, range.end);
                let (before, after) = (range.start..middle, middle..range.end);
                if !before.is_empty() {
                    let mut delta = copy_of(old, before.clone().into());
                    let offset = before.start;
                    let new = data.as_ref().map(|d| &d[..len(middle - range.start)]);
                    new.inspect(|new| xor(&mut delta, new));
                    let delta = delta.into();
                    steps.push(match new {
                        Some(_) => Step::Patch { offset, delta },
                        None => Step::Punch { offset, delta },
                    });
                }
                if let Some(data) = data.filter(|_| !after.is_empty()) {
                    steps.push(Step::Write {
                        offset: after.start,
                        data: data.slice(len(middle - range.start)..),
                    });
                }
            }
        }
        let is_cut = self.kept < self.base_end && self.size() < old_end;
        if is_cut || !self.reaches_end(layout) {
            steps.push(Step::Truncate { size: self.size() });
        }
        steps
    }

    /// Whether no fragment ends too early for the size of the object, if all of the base are as long
    /// as its: the last byte of each data fragment is the base's or a new one. Coding fragments then
    /// reach as far as that of the first data unit.
    fn reaches_end(&self, layout: Layout) -> bool {
        let old_end = self.old_end(layout);
        let mut last_bytes = (0..layout.k()).filter_map(|data| {
            let last = layout
                .fragment_len(Unit::Data(data), self.size())
                .checked_sub(1)?;
            layout.logical(data, (last..last + 1).into()).next()
        });
        last_bytes.all(|Piece { offset, .. }| {
            let byte = offset..offset + 1;
            offset < old_end || self.new_in(&byte).any(|(_, _, data)| data.is_some())
        })
    }

    /// The end of the base once the stripes are gone of which nothing is kept.
    fn old_end(&self, layout: Layout) -> u64 {
        let width = layout.stripe_width();
        let kept = self.kept.div_ceil(width).saturating_mul(width);
        self.base_end.min(kept)
    }

    /// The stripes of which something changes.
    fn stripes(&self, layout: Layout) -> impl Iterator<Item = Range<u64>> {
        let cut = (self.kept < self.old_end(layout)).then(|| self.kept..self.old_end(layout));
        let new = self.new.iter().map(|(at, new)| *at..new.end);
        let mut touched: Vec<Range<u64>> = new.chain(cut).map(|r| layout.stripes(r.into()).touched).collect();
        touched.sort_by_key(|stripes| stripes.start);
        let mut next = 0;
        let stripes = touched.into_iter().flat_map(move |stripes| {
            let fresh = stripes.start.max(next)..stripes.end;
            next = next.max(stripes.end);
            fresh
        });
        stripes.filter_map(move |number| layout.stripe(number).map(|s| s.offset..s.end()))
    }

    /// Whether all that a stripe had and that is kept is replaced.
    fn is_whole(&self, stripe: &Range<u64>) -> bool {
        let (mut at, end) = (stripe.start, self.kept.min(stripe.end));
        for (from, to, _) in self.new_in(stripe) {
            if at >= end || from > at {
                break;
            }
            at = to;
        }
        at >= end
    }

    /// The new contents in a range.
    fn new_in(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, u64, Option<Bytes>)> {
        let first = self.new.range(..range.start).next_back().map(|(at, _)| *at);
        let (from, start, end) = (first.unwrap_or(range.start), range.start, range.end);
        let all = self.new.range(from..end);
        all.filter(move |(_, new)| new.end > start)
            .map(move |(at, New { end: to, data })| {
                let (from, to) = ((*at).max(start), (*to).min(end));
                let data = data.as_ref().map(|d| d.slice(len(from - at)..len(to - at)));
                (from, to, data)
            })
    }

    /// The parts of a stripe that change: new contents, and what is cut off of the base.
    fn parts(&self, layout: Layout, stripe: &Range<u64>) -> Vec<Part> {
        let end = self.old_end(layout).min(stripe.end);
        let mut cut = self.kept.max(stripe.start);
        let mut parts = Vec::new();
        for (from, to, data) in self.new_in(stripe) {
            parts.extend(Part::cut(cut..from.min(end)));
            cut = cut.max(to);
            parts.push(Part {
                range: from..to,
                data,
            });
        }
        parts.extend(Part::cut(cut..end));
        parts
    }

    /// Adds a stripe of which everything is new; to the step before, if that ends where it begins.
    fn whole_stripe(&self, layout: Layout, stripe: Range<u64>, steps: &mut Vec<Step>) {
        let all: Pieces = self
            .new_in(&stripe)
            .filter_map(|(at, _, data)| Some((at, data?)))
            .collect();
        let new_end = all
            .last()
            .map_or(stripe.start, |(at, data)| at + data.len() as u64);
        let old_end = self.old_end(layout).clamp(stripe.start, stripe.end);
        let is_fresh = old_end == stripe.start;
        let end = new_end.max(old_end);
        if let Some(Step::Stripes { range, fresh, pieces }) = steps.last_mut()
            && range.end() == stripe.start
            && *fresh == is_fresh
        {
            range.len = end - range.offset;
            pieces.extend(all);
            return;
        }
        steps.push(Step::Stripes {
            range: (stripe.start..end).into(),
            fresh: is_fresh,
            pieces: all,
        });
    }
}
