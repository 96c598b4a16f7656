//! An object's snapshots: which clones there are, which snapshots they stand for, and how much each
//! shares with the next one.
//!
//! After Ceph's `SnapSet` (`src/osd/osd_types.h`); the encoding is ours. It is part of the head's
//! object info. If the head is removed while clones remain, its info stays as a *whiteout* (see
//! [`ObjectInfo`]), so that a lookup of the head finds the clones.
//!
//! [`ObjectInfo`]: crate::pg::object::ObjectInfo

use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer};
use spirula_maps::{Interval, IntervalSet, SnapContext, SnapId, snap};

use crate::pg::number::{number, put_number};

/// A clone: the object as it was before the first write after some snapshots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapClone {
    /// The clone's id: the newest snapshot id that the writer knew when it was made.
    pub id: SnapId,
    /// The snapshots that the clone stands for, newest first.
    pub snaps: Vec<SnapId>,
    /// The clone's size in bytes.
    pub size: u64,
    /// The ranges in which the clone is the same as the next newer clone, or the head for the
    /// newest.
    pub overlap: IntervalSet,
}

impl SnapClone {
    /// The bytes that only this clone has, which it adds to the pool's usage.
    pub(in crate::pg) fn own_bytes(&self) -> i64 {
        self.size.saturating_sub(self.overlap.count()).cast_signed()
    }
}

/// All clones of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapSet {
    /// The newest snapshot id that a writer knew.
    pub seq: SnapId,
    /// The clones, oldest first.
    pub clones: Vec<SnapClone>,
}

/// The place of an object's state at a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// In the head, if there is one: nothing was written since.
    Head,
    /// In this clone.
    Clone(SnapId),
    /// The object did not exist then.
    Nowhere,
}

/// The effect of trimming a snapshot on a clone, and on the usage.
#[derive(Debug, PartialEq, Eq)]
pub enum Trimmed {
    /// The clone still stands for these other snapshots.
    Kept(Vec<SnapId>),
    /// The clone is to be removed; the bytes of the pool's usage change by this much.
    Removed(i64),
}

impl SnapSet {
    /// Whether the object has no clones and no known snapshots.
    pub fn is_empty(&self) -> bool {
        self.seq == 0 && self.clones.is_empty()
    }

    /// The clone with this id.
    pub fn clone_of(&self, id: SnapId) -> Option<&SnapClone> {
        self.clones.iter().find(|c| c.id == id)
    }

    /// The place of the state at snapshot `id`, in a pool of which these snapshots are removed.
    pub fn at(&self, id: SnapId, removed: &IntervalSet) -> At {
        if id > self.seq {
            return At::Head;
        }
        match self.clones.iter().find(|c| c.id >= id) {
            Some(c) if c.snaps.contains(&id) && !removed.contains(id) => At::Clone(c.id),
            _ => At::Nowhere,
        }
    }

    /// Whether a write under `context` must first keep the head, if there is one, as a clone.
    pub fn wants_clone(&self, context: &SnapContext) -> bool {
        context.snaps.first().is_some_and(|s| *s > self.seq)
    }

    /// Adds a clone of the head, of `size` bytes, which is kept before a write under `context`.
    pub fn add_clone(&mut self, context: &SnapContext, size: u64) -> &SnapClone {
        let new = context.snaps.iter().copied().take_while(|s| *s > self.seq);
        let mut overlap = IntervalSet::new();
        overlap.insert_range(0, size);
        self.clones.push(SnapClone {
            id: context.seq,
            snaps: new.collect(),
            size,
            overlap,
        });
        &self.clones[self.clones.len() - 1]
    }

    /// Notes that the head changes in these ranges, which it no longer shares with the newest
    /// clone. Returns by how many bytes the usage grows.
    pub fn head_changed(&mut self, ranges: &IntervalSet) -> i64 {
        let Some(newest) = self.clones.last_mut() else {
            return 0;
        };
        let before = newest.overlap.count();
        newest.overlap.subtract(ranges);
        (before - newest.overlap.count()).cast_signed()
    }

    /// The ranges in which the head is the same as clone `id`.
    pub fn shared_with_head(&self, id: SnapId) -> IntervalSet {
        let mut after = self.clones.iter().skip_while(|c| c.id != id).map(|c| &c.overlap);
        let first = after.next().cloned().unwrap_or_default();
        after.fold(first, |all, o| all.intersection(o))
    }

    /// Removes the snapshots for which `is_removed` is true from clone `id`, and the clone with its
    /// last one; `None` if there is no such clone.
    pub fn trim(&mut self, id: SnapId, is_removed: impl Fn(SnapId) -> bool) -> Option<Trimmed> {
        let at = self.clones.iter().position(|c| c.id == id)?;
        let clone = &mut self.clones[at];
        clone.snaps.retain(|s| !is_removed(*s));
        if !clone.snaps.is_empty() {
            return Some(Trimmed::Kept(clone.snaps.clone()));
        }
        let gone = self.clones.remove(at);
        let mut bytes = -gone.own_bytes();
        if let Some(older) = at.checked_sub(1).and_then(|i| self.clones.get_mut(i)) {
            bytes -= older.own_bytes();
            older.overlap = older.overlap.intersection(&gone.overlap);
            bytes += older.own_bytes();
        }
        Some(Trimmed::Removed(bytes))
    }

    /// The bytes that only clones have.
    pub fn clone_bytes(&self) -> i64 {
        self.clones.iter().map(SnapClone::own_bytes).sum()
    }
}

/// Writes snapshot ids, which [`decode_ids`] reads.
pub(in crate::pg) fn encode_ids(w: &mut Writer, ids: &[SnapId]) {
    put_number(w, ids.len() as u64);
    ids.iter().for_each(|s| put_number(w, *s));
}

/// Reads snapshot ids.
///
/// # Errors
/// Where they are cut, or are no ids of snapshots.
pub(in crate::pg) fn decode_ids(r: &mut Reader<'_>) -> Result<Vec<SnapId>> {
    (0..count(r)?).map(|_| id(r)).collect()
}

fn id(r: &mut Reader<'_>) -> Result<SnapId> {
    match number(r)? {
        id @ 0..=snap::MAXSNAP => Ok(id),
        _ => Err(Error::Invalid("snapshot id")),
    }
}

/// Reads a number of items, each of which takes at least a byte of the rest of the input.
fn count(r: &mut Reader<'_>) -> Result<usize> {
    let n = usize::try_from(number(r)?).ok();
    n.filter(|n| *n <= r.remaining())
        .ok_or(Error::Invalid("count in a snap set"))
}

fn encode_ranges(w: &mut Writer, set: &IntervalSet) {
    put_number(w, set.ranges().count() as u64);
    let mut end = 0;
    for Interval { start, len } in set.ranges() {
        put_number(w, start - end);
        put_number(w, len);
        end = start + len;
    }
}

fn decode_ranges(r: &mut Reader<'_>) -> Result<IntervalSet> {
    let bad = Error::Invalid("range in a snap set");
    let (mut set, mut end) = (IntervalSet::new(), 0u64);
    for _ in 0..count(r)? {
        let start = end.checked_add(number(r)?).ok_or(bad.clone())?;
        let len = number(r)?;
        end = start.checked_add(len).filter(|_| len > 0).ok_or(bad.clone())?;
        set.insert_range(start, len);
    }
    Ok(set)
}

impl Encode for SnapSet {
    fn encode(&self, w: &mut Writer) {
        put_number(w, self.seq);
        put_number(w, self.clones.len() as u64);
        for c in &self.clones {
            put_number(w, c.id);
            encode_ids(w, &c.snaps);
            put_number(w, c.size);
            encode_ranges(w, &c.overlap);
        }
    }
}

impl Decode for SnapSet {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let seq = id(r)?;
        let clone = |r: &mut Reader<'_>| {
            Ok(SnapClone {
                id: id(r)?,
                snaps: decode_ids(r)?,
                size: number(r)?,
                overlap: decode_ranges(r)?,
            })
        };
        let clones = (0..count(r)?).map(|_| clone(r)).collect::<Result<Vec<_>>>()?;
        if !clones.is_sorted_by(|a, b| a.id < b.id) {
            return Err(Error::Invalid("order of clones"));
        }
        Ok(Self { seq, clones })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spirula_denc::{decode_all, encode_to_vec};

    use super::*;

    fn context(seq: SnapId, snaps: &[SnapId]) -> SnapContext {
        SnapContext {
            seq,
            snaps: snaps.to_vec(),
        }
    }

    fn ranges(all: &[(u64, u64)]) -> IntervalSet {
        let mut set = IntervalSet::new();
        all.iter().for_each(|(start, len)| set.insert_range(*start, *len));
        set
    }

    /// 100 bytes, snapshots 2 and 3, a write, snapshot 5, a write.
    fn two_clones() -> SnapSet {
        let mut s = SnapSet {
            seq: 1,
            ..SnapSet::default()
        };
        assert!(s.wants_clone(&context(3, &[3, 2])));
        s.add_clone(&context(3, &[3, 2]), 100);
        s.seq = 3;
        assert_eq!(s.head_changed(&ranges(&[(10, 20), (95, 50)])), 25);
        assert!(!s.wants_clone(&context(4, &[3, 2])));
        s.add_clone(&context(5, &[5, 3, 2]), 145);
        s.seq = 5;
        assert_eq!(s.head_changed(&ranges(&[(0, 12)])), 12);
        s
    }

    #[test]
    fn a_snapshot_is_in_the_clone_made_after_it_or_in_the_head() {
        let s = two_clones();
        let none = IntervalSet::new();
        let at: Vec<At> = (1..=6).map(|id| s.at(id, &none)).collect();
        let (a, b) = (At::Clone(3), At::Clone(5));
        assert_eq!(at, [At::Nowhere, a, a, At::Nowhere, b, At::Head]);
        assert_eq!(s.clones[1].snaps, [5]);
        let removed = [2, 6].into_iter().collect();
        assert_eq!([2, 3, 6].map(|id| s.at(id, &removed)), [At::Nowhere, a, At::Head]);
    }

    #[test]
    fn overlaps_follow_the_head_and_merge_when_a_clone_goes() {
        let mut s = two_clones();
        assert_eq!(s.shared_with_head(3), ranges(&[(12, 0), (30, 65)]));
        assert_eq!(s.shared_with_head(5), ranges(&[(12, 133)]));
        assert_eq!(s.clone_bytes(), 25 + 12);
        assert_eq!(s.trim(3, |id| id == 2), Some(Trimmed::Kept(vec![3])));
        assert_eq!(s.trim(4, |_| true), None);
        // The bytes that only the newer clone had are gone; the older one now shares with the head
        // what both clones shared with it.
        let bytes = s.clone_bytes();
        let Some(Trimmed::Removed(change)) = s.trim(5, |id| id == 5) else {
            panic!()
        };
        assert_eq!(s.clones[0].overlap, ranges(&[(30, 65)]));
        assert_eq!(s.clone_bytes(), bytes + change);
        assert_eq!(s.trim(3, |_| true), Some(Trimmed::Removed(-35)));
        assert_eq!((s.seq, s.clones.len()), (5, 0));
    }

    #[test]
    fn snap_sets_round_trip_and_cut_ones_are_refused() {
        for s in [SnapSet::default(), two_clones()] {
            let bytes = encode_to_vec(&s);
            assert_eq!(decode_all::<SnapSet>(&bytes).as_ref(), Ok(&s));
            for cut in 0..bytes.len() {
                assert!(decode_all::<SnapSet>(&bytes[..cut]).is_err());
            }
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(b in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode_all::<SnapSet>(&b);
        }
    }
}
