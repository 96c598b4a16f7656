//! The parts of its object that a change leaves as they were, so that a member which has the object
//! as it was before needs only the rest.
//!
//! After Ceph's `ObjectCleanRegions` (`src/osd/osd_types.h`); this is the complement, and the
//! encoding is ours.

use std::ops::Range;

use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer, flags};
use spirula_maps::IntervalSet;

use super::number::{number, put_number};
use super::txn::ObjectOp;

/// The most ranges that are told apart; if there were more, everything between the first and the
/// last counts as changed.
const MOST_RANGES: usize = 10;

flags! {
    /// What a change left dirty.
    struct DirtyParts(u8), joined ", " {
        /// All of the object.
        WHOLE = 0, "whole";
        /// The omap.
        OMAP = 1, "omap";
        /// Ranges of bytes, which follow.
        RANGES = 2, "ranges";
    }
}

impl DirtyParts {
    /// All known parts.
    const ALL: Self = Self(7);
}

/// The changed parts of an object, besides info and attributes that were set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dirty {
    /// Whether all of the object may have changed.
    whole: bool,
    /// Whether the omap changed.
    omap: bool,
    /// The changed bytes, ascending.
    ranges: Vec<Range<u64>>,
}

impl Dirty {
    /// For a change of which nothing is known: everything may have changed.
    pub fn whole() -> Self {
        Self {
            whole: true,
            ..Self::default()
        }
    }

    /// The parts of an object that these ops change.
    pub fn of(ops: &[ObjectOp]) -> Self {
        let (mut all, mut ranges) = (Self::default(), IntervalSet::new());
        for op in ops {
            match op {
                ObjectOp::Write { offset, data } => ranges.insert_range(*offset, data.len() as u64),
                ObjectOp::WritePlaced { offset, len, .. } | ObjectOp::Zero { offset, len } => {
                    ranges.insert_range(*offset, (*len).min(u64::MAX - *offset));
                }
                ObjectOp::Truncate { size } => ranges.insert_range(*size, u64::MAX - *size),
                ObjectOp::OmapSet(_)
                | ObjectOp::OmapRm(_)
                | ObjectOp::OmapRmRange { .. }
                | ObjectOp::OmapClear
                | ObjectOp::OmapHeader(_) => all.omap = true,
                // An attribute that is gone can't be told by those that are there.
                ObjectOp::RmAttr(_)
                | ObjectOp::Remove
                | ObjectOp::CloneOf(_)
                | ObjectOp::CloneOfData(_)
                | ObjectOp::MoveOf(_)
                // Made of ops that were looked at before.
                | ObjectOp::Step(_)
                | ObjectOp::Portion { .. }
                | ObjectOp::Stage { .. }
                | ObjectOp::Take(_) => return Self::whole(),
                ObjectOp::Touch
                | ObjectOp::SetInfo(_)
                | ObjectOp::SetAttr { .. }
                | ObjectOp::NoteSnaps { .. }
                | ObjectOp::ForgetSnaps { .. } => {}
            }
        }
        all.set_ranges(&ranges);
        all
    }

    fn set_ranges(&mut self, ranges: &IntervalSet) {
        self.ranges = ranges_of(ranges).collect();
        if self.ranges.len() > MOST_RANGES
            && let (Some(first), Some(last)) = (self.ranges.first(), self.ranges.last())
        {
            let all = first.start..last.end;
            self.ranges = Vec::from([all]);
        }
    }

    /// The parts that all these changes changed together, as finely as they tell.
    pub fn sum<'a>(changes: impl Iterator<Item = &'a Self>) -> Self {
        let (mut all, mut ranges) = (Self::default(), IntervalSet::new());
        for change in changes {
            all.whole |= change.whole;
            all.omap |= change.omap;
            for range in &change.ranges {
                ranges.insert_range(range.start, range.end - range.start);
            }
        }
        all.ranges = ranges_of(&ranges).collect();
        all
    }

    /// Whether all of the object may have changed.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether the omap changed.
    pub fn omap(&self) -> bool {
        self.omap
    }

    /// The changed bytes of an object of this size.
    pub fn within(&self, size: u64) -> impl Iterator<Item = Range<u64>> {
        let cut = move |r: &Range<u64>| r.start.min(size)..r.end.min(size);
        self.ranges.iter().map(cut).filter(|r| !r.is_empty())
    }

    /// Bytes of memory beyond its own size.
    pub(super) fn weight(&self) -> usize {
        self.ranges.capacity() * size_of::<Range<u64>>()
    }
}

/// The ranges of a set of bytes.
fn ranges_of(set: &IntervalSet) -> impl Iterator<Item = Range<u64>> {
    set.ranges().map(|r| r.start..r.end()).filter(|r| !r.is_empty())
}

impl Encode for Dirty {
    fn encode(&self, w: &mut Writer) {
        let mut parts = DirtyParts::empty();
        if self.whole {
            parts.insert(DirtyParts::WHOLE);
        }
        if self.omap {
            parts.insert(DirtyParts::OMAP);
        }
        if !self.ranges.is_empty() {
            parts.insert(DirtyParts::RANGES);
        }
        w.put(&parts);
        if !self.ranges.is_empty() {
            w.u8(self.ranges.len() as u8);
            for range in &self.ranges {
                put_number(w, range.start);
                put_number(w, range.end - range.start);
            }
        }
    }
}

impl Decode for Dirty {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let parts: DirtyParts = r.get()?;
        if !DirtyParts::ALL.contains(parts) {
            return Err(Error::Invalid("what a change left clean"));
        }
        let mut ranges = Vec::new();
        if parts.contains(DirtyParts::RANGES) {
            let n = usize::from(r.u8()?);
            let mut end = 0;
            for _ in 0..n.min(MOST_RANGES + 1) {
                let (from, len) = (number(r)?, number(r)?);
                let to = from
                    .checked_add(len)
                    .filter(|_| from >= end && len > 0 && n <= MOST_RANGES);
                end = to.ok_or(Error::Invalid("what a change left clean"))?;
                ranges.push(from..end);
            }
        }
        Ok(Self {
            whole: parts.contains(DirtyParts::WHOLE),
            omap: parts.contains(DirtyParts::OMAP),
            ranges,
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use spirula_denc::{decode_all, encode_to_vec};

    use super::*;

    fn write(offset: u64, len: usize) -> ObjectOp {
        ObjectOp::Write {
            offset,
            data: vec![0; len].into(),
        }
    }

    fn ranges(d: &Dirty) -> Vec<Range<u64>> {
        d.within(1000).collect()
    }

    #[test]
    fn ranges_are_joined_cut_to_the_size_and_few() {
        let d = Dirty::of(&[write(0, 10), write(10, 5), write(990, 50)]);
        assert_eq!(ranges(&d), [0..15, 990..1000]);
        let other = Dirty::of(&[ObjectOp::Zero { offset: 100, len: 1 }, write(5000, 1)]);
        let cut = Dirty::of(&[ObjectOp::Truncate { size: 500 }]);
        let d = Dirty::sum([&d, &other].into_iter());
        assert_eq!(ranges(&d), [0..15, 100..101, 990..1000]);
        let d = Dirty::sum([&d, &cut].into_iter());
        assert_eq!(ranges(&d), [0..15, 100..101, 500..1000]);
        let many: Vec<ObjectOp> = (0..11).map(|i| write(i * 20, 3)).collect();
        assert_eq!(ranges(&Dirty::of(&many[..10])).len(), 10);
        assert!(ranges(&Dirty::of(&many)).into_iter().eq(std::iter::once(0..203)));
        let each: Vec<Dirty> = many.iter().map(|w| Dirty::of(std::slice::from_ref(w))).collect();
        assert_eq!(ranges(&Dirty::sum(each.iter())).len(), 11);
        assert!(!d.is_whole() && !d.omap());
    }

    #[test]
    fn what_can_not_be_told_by_what_is_there_is_whole() {
        let name = Bytes::from_static(b"n");
        assert!(Dirty::of(&[ObjectOp::RmAttr(name.clone())]).is_whole());
        assert!(Dirty::of(&[ObjectOp::Remove, ObjectOp::Touch]).is_whole());
        assert!(Dirty::of(&[ObjectOp::MoveOf(name.clone())]).is_whole());
        assert!(Dirty::of(&[ObjectOp::OmapHeader(name.clone())]).omap());
        let value = name.clone();
        assert_eq!(Dirty::of(&[ObjectOp::SetAttr { name, value }]), Dirty::default());
    }

    #[test]
    fn it_round_trips_and_what_is_not_sound_is_refused() {
        let some = [
            Dirty::default(),
            Dirty::whole(),
            Dirty::of(&[write(3, 4), ObjectOp::Truncate { size: 70 }, ObjectOp::OmapClear]),
        ];
        for d in some {
            assert_eq!(decode_all(&encode_to_vec(&d)), Ok(d));
        }
        for bad in [&[8u8][..], &[4, 1, 5, 0], &[4, 2, 5, 5, 9, 1], &[4, 11, 1, 1]] {
            assert!(decode_all::<Dirty>(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(b in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode_all::<Dirty>(&b);
        }
    }
}
