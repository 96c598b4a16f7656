//! From an object's offsets to those of fragments, and back.

use std::iter;
use std::ops::Range;

use spirula_denc::Extent;

use super::Layout;
use crate::Unit;

/// A range of an object that lies in one unit of one stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The data unit's index.
    pub data: u8,
    /// The first byte's offset in the fragment of this data unit.
    pub fragment_offset: u64,
    /// The first byte's offset in the object.
    pub offset: u64,
    /// The number of bytes.
    pub len: u64,
}

/// The stripes that a range of an object has bytes of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stripes {
    /// All of them.
    pub touched: Range<u64>,
    /// Those that lie in the range with all their bytes. Before and after them is at most one other
    /// each.
    pub whole: Range<u64>,
}

impl Layout {
    /// The bytes that a unit's fragment has of an object of `size` bytes. None are of a unit that
    /// the layout does not have.
    pub fn fragment_len(self, unit: Unit, size: u64) -> u64 {
        let index = match unit {
            Unit::Data(index) if index < self.k => index,
            // As long as the longest unit of each stripe, which is the first.
            Unit::Parity(index) if index < self.m => 0,
            _ => return 0,
        };
        let before = u64::from(index) * self.unit();
        let in_last = (size % self.stripe_width()).saturating_sub(before);
        size / self.stripe_width() * self.unit() + in_last.min(self.unit())
    }

    /// A range of an object, cut where its units end, in its order.
    pub fn pieces(self, range: Extent) -> impl Iterator<Item = Piece> {
        let (mut offset, end) = (range.offset, range.end());
        let k = u64::from(self.k);
        iter::from_fn(move || {
            if offset >= end {
                return None;
            }
            let (number, within) = (offset / self.unit(), offset % self.unit());
            let piece = Piece {
                // Below k.
                data: (number % k) as u8,
                fragment_offset: number / k * self.unit() + within,
                offset,
                len: (self.unit() - within).min(end - offset),
            };
            offset += piece.len;
            Some(piece)
        })
    }

    /// The part of a data unit's fragment that belongs to a range of an object. It is one range, as
    /// between two stripes nothing is left out.
    pub fn data_extent(self, data: u8, range: Extent) -> Extent {
        let before = |end| self.fragment_len(Unit::Data(data), end);
        Extent::from(before(range.offset)..before(range.end()))
    }

    /// The parts of a coding unit's fragment that depend on a range of an object, in their order:
    /// at most two, with a gap between them.
    pub fn parity_extents(self, range: Extent) -> impl Iterator<Item = Extent> {
        let [first, second] = self.parity_ranges(range);
        [first, second]
            .into_iter()
            .map(Extent::from)
            .filter(|extent| extent.len > 0)
    }

    fn parity_ranges(self, range: Extent) -> [Range<u64>; 2] {
        let (unit, k) = (self.unit(), u64::from(self.k));
        let Some(last) = range.end().checked_sub(1).filter(|last| *last >= range.offset) else {
            return [0..0, 0..0];
        };
        let place = |offset| (offset / unit / k, offset / unit % k, offset % unit);
        let (first_stripe, first_unit, from) = place(range.offset);
        let (last_stripe, last_unit, to) = place(last);
        let (start, end) = (first_stripe * unit, last_stripe * unit);
        if first_stripe < last_stripe {
            // The first stripe is touched to its end and the last one from its beginning: this is
            // in one.
            let from = if first_unit == k - 1 { from } else { 0 };
            let to = if last_unit == 0 { to } else { unit - 1 };
            return [start + from..end + to + 1, 0..0];
        }
        match last_unit - first_unit {
            0 => [start + from..start + to + 1, 0..0],
            // The end of a unit and the beginning of the next one.
            1 if to + 1 < from => [start..start + to + 1, start + from..start + unit],
            _ => [start..start + unit, 0..0],
        }
    }

    /// Where a range of a data unit's fragment lies in the object: one piece for each stripe.
    /// Nothing lies beyond the last offset that an object can have.
    pub fn logical(self, data: u8, fragment: Extent) -> impl Iterator<Item = Piece> {
        let (mut at, end) = (fragment.offset, fragment.end());
        iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (stripe, within) = (at / self.unit(), at % self.unit());
            let in_stripe = u64::from(data) * self.unit() + within;
            let offset = stripe.checked_mul(self.stripe_width())?.checked_add(in_stripe)?;
            let piece = Piece {
                data,
                fragment_offset: at,
                offset,
                len: (self.unit() - within).min(end - at).min(u64::MAX - offset),
            };
            at += piece.len;
            (piece.len > 0).then_some(piece)
        })
    }

    /// The stripes that a range of an object has bytes of.
    pub fn stripes(self, range: Extent) -> Stripes {
        let (start, end) = (range.offset, range.end());
        let width = self.stripe_width();
        let first = start / width;
        let touched = first..if start < end { end.div_ceil(width) } else { first };
        let whole_from = start.div_ceil(width);
        Stripes {
            // A range in the midst of a stripe ends before the first one that could be whole.
            whole: whole_from..(end / width).max(whole_from),
            touched,
        }
    }

    /// The range of an object that a stripe is of, if objects can be so large.
    pub fn stripe(self, number: u64) -> Option<Extent> {
        let offset = number.checked_mul(self.stripe_width())?;
        Some(Extent {
            offset,
            len: self.stripe_width().min(u64::MAX - offset),
        })
    }
}
