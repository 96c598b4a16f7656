//! The part of each object that a copy holds, and its layout.
//!
//! A copy carries these with it ([`super::info::PgInfo`]): the pool says what a PG is to become,
//! not what a store has.

use std::ops::Range;

use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer};
use spirula_erasure::Unit;
use spirula_maps::{Interval, IntervalSet};

use super::dirty::Dirty;

/// How a PG's members hold its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// Each member has all of each object.
    #[default]
    Whole,
    /// Each member has a fragment of each object, by this erasure code.
    Coded(spirula_erasure::Layout),
}

impl Layout {
    /// The number of different parts.
    pub fn roles(&self) -> u8 {
        match self {
            Self::Whole => 1,
            Self::Coded(layout) => layout.roles(),
        }
    }
}

/// The part of each object that a copy holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Part {
    /// The layout.
    pub layout: Layout,
    /// The part's number in that layout; 0 if there is only one. 255 if the copy is being given
    /// another part.
    pub role: u8,
}

impl Part {
    /// The role of a copy whose objects are of several.
    const MIXED: u8 = u8::MAX;

    /// The part of a copy that is incomplete, and has objects of several roles.
    pub(super) fn mixed(layout: Layout) -> Self {
        let role = Self::MIXED;
        Self { layout, role }
    }
}

/// What a copy has of the data of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Shape {
    /// All of it.
    #[default]
    Whole,
    /// The fragment with this unit of each stripe.
    Fragment(spirula_erasure::Layout, Unit),
}

impl Shape {
    /// The bytes that the copy has of an object of `size` bytes.
    pub(super) fn size(self, size: u64) -> u64 {
        match self {
            Self::Whole => size,
            Self::Fragment(layout, unit) => layout.fragment_len(unit, size),
        }
    }

    /// Where the copy may differ after these changes of an object, which has `size` bytes now.
    ///
    /// A fragment that was made of others while the object changed is wrong wherever any unit of a
    /// stripe changed. So what counts is how far into the units a change reaches.
    pub(super) fn changed(self, changes: &Dirty, size: u64) -> Vec<Range<u64>> {
        let (layout, unit) = match self {
            Self::Whole => return changes.within(size).collect(),
            Self::Fragment(layout, unit) => (layout, unit),
        };
        // What was cut off changes the coding units of its stripe.
        let width = layout.stripe_width();
        let end = size.div_ceil(width).saturating_mul(width);
        let len = layout.fragment_len(unit, size);
        let mut all = IntervalSet::new();
        for range in changes.within(end) {
            for e in layout.parity_extents(range.into()) {
                all.insert_range(e.offset, e.len);
            }
        }
        let cut = |r: Interval| r.start.min(len)..r.end().min(len);
        all.ranges().map(cut).filter(|r| !r.is_empty()).collect()
    }
}

impl Encode for Part {
    fn encode(&self, w: &mut Writer) {
        match &self.layout {
            Layout::Whole => w.u8(0),
            Layout::Coded(layout) => {
                w.u8(1);
                w.put(layout);
            }
        }
        w.u8(self.role);
    }
}

impl Decode for Part {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let layout = match r.u8()? {
            0 => Layout::Whole,
            1 => Layout::Coded(r.get()?),
            _ => return Err(Error::Invalid("layout of a copy")),
        };
        let role = r.u8()?;
        if role >= layout.roles() && role != Self::MIXED {
            return Err(Error::Invalid("part of a copy"));
        }
        Ok(Self { layout, role })
    }
}
