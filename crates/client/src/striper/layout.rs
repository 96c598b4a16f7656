//! The layout of a striped object: how its bytes spread over objects (Ceph's
//! `doc/architecture.rst`, "Data striping").

use spirula_denc::Extent;

/// Object `n` of a layout gets every `stripe_count`th stripe unit of its object set; an object set
/// is `stripe_count` objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a stripe unit.
    pub stripe_unit: u32,
    /// Objects of an object set.
    pub stripe_count: u32,
    /// Bytes of each object, a multiple of `stripe_unit`.
    pub object_size: u32,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            stripe_unit: 4 << 20,
            stripe_count: 1,
            object_size: 4 << 20,
        }
    }
}

/// A piece of a range, within one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The object's number.
    pub object: u64,
    /// The offset of the piece in the object.
    pub offset: u64,
    /// The length of the piece in bytes.
    pub len: u64,
}

impl Layout {
    /// Whether the layout is possible.
    pub fn is_valid(&self) -> bool {
        self.stripe_unit > 0
            && self.stripe_count > 0
            && self.object_size >= self.stripe_unit
            && self.object_size.is_multiple_of(self.stripe_unit)
    }

    /// Bytes of an object set.
    pub fn set_size(&self) -> u64 {
        u64::from(self.object_size) * u64::from(self.stripe_count)
    }

    /// The pieces of a range in order.
    pub fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + use<> {
        let (unit, count) = (u64::from(self.stripe_unit), u64::from(self.stripe_count));
        let per_object = u64::from(self.object_size) / unit;
        let (mut at, end) = (offset, offset.saturating_add(len));
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (block, within) = (at / unit, at % unit);
            let (stripe, column) = (block / count, block % count);
            let piece = Piece {
                object: stripe / per_object * count + column,
                offset: stripe % per_object * unit + within,
                len: (unit - within).min(end - at),
            };
            at += piece.len;
            Some(piece)
        })
    }

    /// The places of an object's range in the whole, in the order of the object.
    pub fn whole_extents(&self, object: u64, offset: u64, len: u64) -> impl Iterator<Item = Extent> + use<> {
        let (unit, count) = (u64::from(self.stripe_unit), u64::from(self.stripe_count));
        let per_object = u64::from(self.object_size) / unit;
        let (set, column) = (object / count, object % count);
        let (mut at, end) = (offset, offset.saturating_add(len));
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (row, within) = (at / unit, at % unit);
            let block = (set * per_object + row) * count + column;
            let len = (unit - within).min(end - at);
            at += len;
            Some(Extent {
                offset: block * unit + within,
                len,
            })
        })
    }

    /// The size of an object by its number when the whole has `size` bytes.
    pub fn object_len(&self, object: u64, size: u64) -> u64 {
        let (unit, count) = (u64::from(self.stripe_unit), u64::from(self.stripe_count));
        let (set, column) = (object / count, object % count);
        let in_set = size
            .saturating_sub(set.saturating_mul(self.set_size()))
            .min(self.set_size());
        let stripe = unit * count;
        let (full, rest) = (in_set / stripe, in_set % stripe);
        full * unit + rest.saturating_sub(column * unit).min(unit)
    }

    /// The number of objects of a whole of `size` bytes, counting those before the last that hold
    /// nothing.
    pub fn objects(&self, size: u64) -> u64 {
        let count = u64::from(self.stripe_count);
        let rest = size % self.set_size();
        let units = rest.div_ceil(u64::from(self.stripe_unit));
        size / self.set_size() * count + units.min(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        stripe_unit: 10,
        stripe_count: 3,
        object_size: 20,
    };

    #[test]
    fn ranges_go_round_the_objects_of_a_set() {
        let pieces: Vec<_> = LAYOUT
            .pieces(5, 60)
            .map(|p| (p.object, p.offset, p.len))
            .collect();
        let expected = [
            (0, 5, 5),
            (1, 0, 10),
            (2, 0, 10),
            (0, 10, 10),
            (1, 10, 10),
            (2, 10, 10),
            (3, 0, 5),
        ];
        assert_eq!(pieces, expected);
        assert_eq!(LAYOUT.pieces(7, 0).count(), 0);
    }

    #[test]
    fn pieces_are_found_again_in_the_whole() {
        for (offset, len) in [(0, 200), (5, 60), (33, 1), (59, 90)] {
            let mut at = offset;
            for piece in LAYOUT.pieces(offset, len) {
                let found: Vec<_> = LAYOUT
                    .whole_extents(piece.object, piece.offset, piece.len)
                    .map(|e| (e.offset, e.len))
                    .collect();
                assert_eq!(found, [(at, piece.len)]);
                at += piece.len;
            }
        }
        let all: Vec<_> = LAYOUT
            .whole_extents(4, 0, 20)
            .map(|e| (e.offset, e.len))
            .collect();
        assert_eq!(all, [(70, 10), (100, 10)]);
    }

    #[test]
    fn sizes_of_objects_add_up() {
        for size in 0..200 {
            let sizes: Vec<u64> = (0..12).map(|o| LAYOUT.object_len(o, size)).collect();
            assert_eq!(sizes.iter().sum::<u64>(), size, "{size}");
            let last = sizes.iter().rposition(|s| *s > 0).map_or(0, |i| i as u64 + 1);
            assert_eq!(LAYOUT.objects(size), last, "{size}");
        }
    }

    #[test]
    fn impossible_layouts_are_told() {
        assert!(Layout::default().is_valid());
        for (stripe_unit, stripe_count, object_size) in [(0, 1, 4), (4, 0, 4), (4, 1, 2), (4, 1, 6)] {
            let layout = Layout {
                stripe_unit,
                stripe_count,
                object_size,
            };
            assert!(!layout.is_valid());
        }
    }
}
