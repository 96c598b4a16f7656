//! What is read of some fragments to have parts of others, or of the object.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::Extent;

use crate::change::{copy_of, len, within};
use crate::{Code, DecodePlan, Error, Layout, Pieces, Unit, UnitSet};

/// The bytes of each source that are copied at a time, to make others of them.
const PART: usize = 256 << 10;

/// Parts of fragments: of each unit disjoint ranges in their order.
pub type FragmentExtents = BTreeMap<Unit, Vec<Extent>>;
/// Contents of fragments. Where a range that was read has no piece there are zeros.
pub type FragmentPieces = BTreeMap<Unit, Pieces>;

/// How to have parts of fragments: those of units that are present are read, the others are made
/// of k units that are. The default is to have nothing.
#[derive(Debug, Clone, Default)]
pub struct Gather {
    wanted: FragmentExtents,
    /// How to make each wanted unit that is not present.
    plans: BTreeMap<Unit, DecodePlan>,
    reads: FragmentExtents,
}

impl Gather {
    /// How to have these parts of fragments of the units that are `present`.
    ///
    /// # Errors
    /// As [`Code::plan`], if any wanted unit is not present.
    pub fn new(code: &Code, present: UnitSet, wanted: FragmentExtents) -> Result<Self, Error> {
        let (mut plans, mut reads) = (BTreeMap::new(), BTreeMap::<Unit, Vec<Extent>>::new());
        for (unit, extents) in &wanted {
            if present.contains(*unit) {
                reads.entry(*unit).or_default().extend(extents);
                continue;
            }
            let plan = code.plan(present, UnitSet::from_iter([*unit]))?;
            for source in plan.sources() {
                reads.entry(*source).or_default().extend(extents);
            }
            plans.insert(*unit, plan);
        }
        reads.values_mut().for_each(merge);
        Ok(Self { wanted, plans, reads })
    }

    /// The parts of fragments that are to be read.
    pub fn reads(&self) -> &FragmentExtents {
        &self.reads
    }

    /// Whether anything is made of other units.
    pub fn decodes(&self) -> bool {
        !self.plans.is_empty()
    }

    /// The wanted parts, given what was read. Parts that are made have all their bytes, zeros
    /// included.
    pub fn made(&self, read: &FragmentPieces) -> FragmentPieces {
        let nothing = Pieces::new();
        let of = |unit: &Unit| read.get(unit).unwrap_or(&nothing);
        let part = |(unit, extents): (&Unit, &Vec<Extent>)| {
            let parts = extents.iter();
            let pieces = match self.plans.get(unit) {
                None => parts.flat_map(|e| within(of(unit), *e)).collect(),
                Some(plan) => parts.map(|e| (e.offset, decode(plan, of, *e))).collect(),
            };
            (*unit, pieces)
        };
        self.wanted.iter().map(part).collect()
    }
}

/// Makes a range of one fragment of the others, part by part: copies of all sources would take k
/// times as much as what is made.
fn decode<'a>(plan: &DecodePlan, of: impl Fn(&Unit) -> &'a Pieces, range: Extent) -> Bytes {
    let mut all = vec![0; len(range.len)];
    let mut offset = range.offset;
    for out in all.chunks_mut(PART) {
        let part = Extent {
            offset,
            len: out.len() as u64,
        };
        offset = part.end();
        let sources: Vec<Vec<u8>> = plan
            .sources()
            .iter()
            .map(|unit| copy_of(of(unit), part))
            .collect();
        let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        plan.run(&sources, &mut [out]);
    }
    all.into()
}

/// Brings ranges into their order and joins those that touch.
fn merge(extents: &mut Vec<Extent>) {
    extents.sort_unstable_by_key(|e| e.offset);
    extents.dedup_by(|next, last| {
        let touches = next.offset <= last.end();
        if touches {
            last.len = last.len.max(next.end() - last.offset);
        }
        touches
    });
}

impl Layout {
    /// The parts of data fragments that have ranges of an object.
    pub fn data_extents(self, ranges: &[Extent]) -> FragmentExtents {
        let mut all = FragmentExtents::new();
        for range in ranges {
            for data in 0..self.k() {
                let extent = self.data_extent(data, *range);
                if extent.len > 0 {
                    all.entry(Unit::Data(data)).or_default().push(extent);
                }
            }
        }
        all.values_mut().for_each(merge);
        all
    }

    /// A range of an object, put together of its data fragments. What is in none of their pieces is
    /// left out.
    pub fn object_pieces(self, fragments: &FragmentPieces, range: Extent) -> Pieces {
        let mut all = Pieces::new();
        for piece in self.pieces(range) {
            let Some(fragment) = fragments.get(&Unit::Data(piece.data)) else {
                continue;
            };
            let part = Extent {
                offset: piece.fragment_offset,
                len: piece.len,
            };
            let moved = |(at, data)| (at - piece.fragment_offset + piece.offset, data);
            all.extend(within(fragment, part).map(moved));
        }
        all
    }

    /// All units but those of these roles.
    pub fn units_without(self, roles: &BTreeSet<u8>) -> UnitSet {
        let left = (0..self.roles()).filter(|role| !roles.contains(role));
        left.filter_map(|role| self.unit_of(role)).collect()
    }
}
