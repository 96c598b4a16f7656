//! Differences of an image between two snapshots, or since it was made, exactly as Ceph 16.2
//! reports them (`src/librbd/api/DiffIterate.cc`, `src/librbd/io/ObjectRequest.cc`,
//! `src/librados/snap_set_diff.cc`, `src/librbd/object_map/DiffRequest.cc`).

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, Range};
use std::rc::Rc;

use rangemap::{RangeMap, RangeSet};
use spirula_classes::rbd::object_state::{EXISTS_CLEAN, NONEXISTENT};
use spirula_classes::rbd::{BitVector, Features, ImageFlags};
use spirula_client::{Piece, errno};
use spirula_maps::snap::NOSNAP;
use spirula_proto::osd_op_data::ListSnapsResponse;
use tokio::task::JoinHandle;

use crate::error::unless;
use crate::image::Image;
use crate::view::View;
use crate::{Error, Result, object_map};

/// Object sets that are compared at the same time (`rbd_concurrent_management_ops`).
const AHEAD: usize = 10;

/// A part of an image that differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Whether the part has data, which may be zeros; else its data was removed.
    pub has_data: bool,
}

/// Which differences are reported.
#[derive(Debug, Clone, Default)]
pub struct DiffOptions {
    /// The user's snapshot since which changes count. Without one, all data counts.
    pub from: Option<String>,
    /// An object with any difference is reported as a whole; the object maps decide where they can.
    pub whole_objects: bool,
    /// Only data of the image itself counts, and all of it where it first hides the parent's data.
    /// A copy that is a clone of the same parent needs just that.
    pub own: bool,
}

/// The difference of an object between two snapshots.
#[derive(Debug, Default, PartialEq, Eq)]
struct Delta {
    /// Bytes that were written.
    changed: RangeSet<u64>,
    /// The object's size at the end, 0 where it did not exist then.
    end_size: u64,
    /// Whether the object existed at the end.
    exists: bool,
    /// The object counts as a whole, as the OSD does not know which parts were written.
    is_unknown: bool,
}

fn insert(set: &mut RangeSet<u64>, len: u64) {
    if len > 0 {
        set.insert(0..len);
    }
}

/// Compares an object between two snapshots; `start` 0 is before all, `end` [`NOSNAP`] is now.
fn compare(history: &ListSnapsResponse, start: u64, end: u64) -> Delta {
    let mut delta = Delta::default();
    let mut start_size = None;
    let mut clones = history.clones.iter().peekable();
    while let Some(clone) = clones.next() {
        let (first, last) = match (clone.id, clone.snaps.first(), clone.snaps.last()) {
            (NOSNAP, _, _) => (history.seq + 1, NOSNAP),
            (_, Some(first), Some(last)) => (*first, *last),
            _ => {
                return Delta {
                    is_unknown: true,
                    ..Delta::default()
                };
            }
        };
        if last < start {
            continue;
        }
        start_size.get_or_insert_with(|| {
            if start < first {
                insert(&mut delta.changed, clone.size);
                return 0;
            }
            clone.size
        });
        if end < first {
            break;
        }
        if end <= last {
            (delta.exists, delta.end_size) = (true, clone.size);
            break;
        }
        let next = clones.peek().map_or(0, |next| next.size);
        let mut to_next = RangeSet::new();
        insert(&mut to_next, clone.size.max(next));
        for kept in clone.overlap.iter().filter(|o| o.len > 0) {
            to_next.remove(kept.offset..kept.end());
        }
        delta.changed.extend(to_next);
    }
    if !delta.exists {
        // Whatever it was between, it is gone.
        delta.changed.clear();
        insert(&mut delta.changed, start_size.unwrap_or_default());
    }
    delta
}

/// Differences of an object or of an image: ranges, and whether they have data.
type Said = RangeMap<u64, bool>;

/// The differences within a range of an object between two of the object's snapshots.
fn told(
    history: &ListSnapsResponse,
    snaps: Range<u64>,
    range: &Range<u64>,
    (object_size, whole): (u64, bool),
) -> Said {
    let sized = |mut delta: Delta| {
        if delta.is_unknown {
            delta = Delta {
                end_size: object_size,
                exists: true,
                ..Delta::default()
            };
            insert(&mut delta.changed, object_size);
        } else if whole && !delta.changed.is_empty() {
            insert(&mut delta.changed, object_size);
        }
        delta
    };
    let Range { start: from, end } = snaps;
    let before = match from {
        0 => 0,
        _ => sized(compare(history, 0, from)).end_size,
    };
    let delta = sized(compare(history, from, end));
    let mut said = Said::new();
    let cut = delta.end_size..before.max(delta.end_size);
    let clip = |r: &Range<u64>| r.start.max(range.start)..r.end.min(range.end);
    for part in delta.changed.iter().map(clip).filter(|r| !r.is_empty()) {
        said.insert(part, delta.exists);
    }
    let cut = clip(&cut);
    if !cut.is_empty() {
        said.insert(cut, false);
    }
    said
}

/// States of objects in an object map, two bits each.
mod mapped {
    pub(super) const HOLE: u8 = 0;
    pub(super) const DATA: u8 = 1;
    pub(super) const NEW_HOLE: u8 = 2;
    pub(super) const NEW_DATA: u8 = 3;
}

/// Folds an object's state in the next object map, or in the last one, into what the maps before it
/// told.
fn next_mapped(known: u8, state: u8, is_last: bool) -> u8 {
    match (known, state) {
        // An object that exists only in between is no difference.
        (mapped::HOLE, state) if state == NONEXISTENT || !is_last => mapped::HOLE,
        (_, NONEXISTENT) => mapped::NEW_HOLE,
        (mapped::DATA, EXISTS_CLEAN) => mapped::DATA,
        _ => mapped::NEW_DATA,
    }
}

impl View {
    /// The changed objects according to the object maps. `None` where the maps can't be used.
    async fn mapped_changes(&self, from: u64, end: u64) -> Result<Option<BitVector>> {
        let header = self.header();
        if !header.has(Features::FAST_DIFF) {
            return Ok(None);
        }
        let last = (end == NOSNAP).then_some(None);
        let snaps = header
            .snapshots
            .range((Bound::Included(from.max(1)), Bound::Included(end)))
            .map(|(id, _)| Some(*id));
        let mut known = BitVector::default();
        let mut is_first = from > 0;
        for snap in snaps.chain(last) {
            let is_last = snap.is_none_or(|id| id == end);
            let (size, flags) = match snap {
                None => (header.size, header.flags),
                Some(id) => {
                    let found = header.snapshots.get(&id).map(|s| (s.size, s.flags));
                    found.unwrap_or_default()
                }
            };
            let objects = self.site.objects(size);
            if flags.intersects(ImageFlags::FAST_DIFF_INVALID.with(ImageFlags::OBJECT_MAP_INVALID))
                || objects > self.site.limits.max_mapped
            {
                return Ok(None);
            }
            let Some(map) = self.loaded_map(snap, objects).await? else {
                return Ok(None);
            };
            let before = known.len();
            for i in 0..before {
                // A smaller image has lost the others.
                let state = if i < objects { map.get(i) } else { NONEXISTENT };
                known.replace(i, i + 1, |known| next_mapped(known, state, is_last));
            }
            known.resize(before.max(objects), mapped::HOLE);
            for i in (before..objects).filter(|i| map.get(*i) != NONEXISTENT) {
                known.replace(i, i + 1, |hole| match is_first {
                    true => mapped::DATA,
                    false => next_mapped(hole, map.get(i), is_last),
                });
            }
            is_first = false;
        }
        Ok(Some(known))
    }

    async fn loaded_map(&self, snap: Option<u64>, objects: u64) -> Result<Option<BitVector>> {
        let loaded = object_map::load(&self.site.io, &self.site.fixed.id, snap).await;
        let loaded = match loaded {
            Err(e) if e.is(errno::ENOENT) || e.is(errno::EINVAL) => return Ok(None),
            other => other?,
        };
        Ok((loaded.len() >= objects).then_some(loaded))
    }

    /// The differences in a range that lies within an object set.
    async fn differences(self: Rc<Self>, ask: Rc<Ask>, range: Range<u64>) -> Result<Said> {
        let mut objects: BTreeMap<u64, Vec<(Piece, u64)>> = BTreeMap::new();
        let mut at = range.start;
        for piece in self
            .site
            .fixed
            .layout
            .pieces(range.start, range.end - range.start)
        {
            let len = piece.len;
            objects.entry(piece.object).or_default().push((piece, at));
            at += len;
        }
        let mut said = Said::new();
        for (object, pieces) in objects {
            let of_object = match &ask.mapped {
                Some(mapped) => self.mapped_object(&ask, mapped, object, &pieces).await?,
                None => self.listed_object(&ask, object, &pieces).await?,
            };
            said.extend(of_object);
        }
        Ok(said)
    }

    async fn mapped_object(
        self: &Rc<Self>,
        ask: &Ask,
        mapped: &BitVector,
        object: u64,
        pieces: &[(Piece, u64)],
    ) -> Result<Vec<(Range<u64>, bool)>> {
        let known = match object < mapped.len() {
            true => mapped.get(object),
            false => mapped::HOLE,
        };
        let has_data = match known {
            mapped::HOLE => return self.of_parent(ask, pieces).await,
            mapped::DATA => return Ok(Vec::new()),
            known => known == mapped::NEW_DATA,
        };
        let whole = pieces.iter().map(|(piece, at)| (*at..at + piece.len, has_data));
        Ok(whole.collect())
    }

    async fn listed_object(
        self: &Rc<Self>,
        ask: &Ask,
        object: u64,
        pieces: &[(Piece, u64)],
    ) -> Result<Vec<(Range<u64>, bool)>> {
        let listed = self.site.data.list_snaps(self.site.fixed.object(object)).await;
        let Some(history) = unless(listed.map_err(Error::from), errno::ENOENT)? else {
            return self.of_parent(ask, pieces).await;
        };
        let size = u64::from(self.site.fixed.layout.object_size);
        let exists = |at: u64| compare(&history, 0, at).exists;
        let begins_to_hide = ask.own && exists(ask.end) && !(ask.from > 0 && exists(ask.from));
        let mut found = Vec::new();
        for (piece, at) in pieces {
            let range = piece.offset..piece.offset + piece.len;
            let mut said = told(&history, ask.from..ask.end, &range, (size, ask.whole_objects));
            if begins_to_hide {
                let gaps: Vec<Range<u64>> = said.gaps(&range).collect();
                gaps.into_iter().for_each(|gap| said.insert(gap, false));
            }
            let placed = |r: &Range<u64>| at + r.start - piece.offset..at + r.end - piece.offset;
            found.extend(said.iter().map(|(r, has_data)| (placed(r), *has_data)));
        }
        match found.is_empty() {
            true => self.of_parent(ask, pieces).await,
            false => Ok(found),
        }
    }

    /// The parent's data where the image has none of its own. All of it is new to a diff since the
    /// beginning.
    async fn of_parent(
        self: &Rc<Self>,
        ask: &Ask,
        pieces: &[(Piece, u64)],
    ) -> Result<Vec<(Range<u64>, bool)>> {
        let Some(parent) = self.parent().filter(|_| ask.from == 0 && !ask.own) else {
            return Ok(Vec::new());
        };
        let snap = (ask.end != NOSNAP).then_some(ask.end);
        let seen = self.header().overlap_at(snap)?.min(parent.size());
        let ask = Rc::new(Ask {
            from: 0,
            end: parent.site.snap.unwrap_or(NOSNAP),
            whole_objects: ask.whole_objects,
            own: false,
            mapped: None,
        });
        let mut found = Vec::new();
        for (piece, at) in pieces {
            let range = *at..(at + piece.len).min(seen);
            for part in sets(parent.site.fixed.layout.set_size(), range) {
                let said = Box::pin(Rc::clone(&parent).differences(Rc::clone(&ask), part)).await?;
                // Ranges that the parent has lost hide nothing here.
                found.extend(said.into_iter().filter(|(_, has_data)| *has_data));
            }
        }
        Ok(found)
    }
}

/// Cuts a range at the borders of object sets.
fn sets(set_size: u64, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let from = at;
        at = (from / set_size + 1).saturating_mul(set_size).min(range.end);
        (from < range.end).then_some(from..at)
    })
}

/// The question that is put to each object set.
struct Ask {
    /// The snapshot since which changes count, 0 for all.
    from: u64,
    /// The snapshot at which changes end, [`NOSNAP`] for now.
    end: u64,
    whole_objects: bool,
    own: bool,
    /// The changed objects according to the object maps, where these are used.
    mapped: Option<BitVector>,
}

/// The differences of an image, in order, one after the other.
pub struct Differences {
    image: Rc<View>,
    ask: Rc<Ask>,
    /// The object sets that have not been compared yet.
    sets: Box<dyn Iterator<Item = Range<u64>>>,
    asked: VecDeque<JoinHandle<Result<Said>>>,
    found: VecDeque<Difference>,
}

impl Differences {
    /// The next difference.
    ///
    /// # Errors
    /// Where the objects can't be compared.
    pub async fn next(&mut self) -> Result<Option<Difference>> {
        loop {
            if let Some(found) = self.found.pop_front() {
                return Ok(Some(found));
            }
            while self.asked.len() < AHEAD {
                let Some(range) = self.sets.next() else { break };
                let (image, ask) = (Rc::clone(&self.image), Rc::clone(&self.ask));
                let task = async move { image.differences(ask, range).await };
                self.asked.push_back(tokio::task::spawn_local(task));
            }
            let Some(asked) = self.asked.pop_front() else {
                return Ok(None);
            };
            let said = asked.await.unwrap_or(Err(Error::os("image", errno::EIO)))?;
            let found = said.into_iter().map(|(range, has_data)| Difference {
                offset: range.start,
                len: range.end - range.start,
                has_data,
            });
            self.found.extend(found);
        }
    }
}

impl Drop for Differences {
    fn drop(&mut self) {
        self.asked.iter().for_each(JoinHandle::abort);
    }
}

impl Image {
    /// The differences of the image, or of the snapshot that is read, since `options.from`.
    ///
    /// # Errors
    /// `ENOENT` where there is no such snapshot, `EINVAL` where it is newer than the one that is
    /// read.
    pub async fn differences(&self, options: &DiffOptions) -> Result<Differences> {
        self.refresh().await?;
        let image = Rc::clone(&self.inner.view);
        let header = image.header();
        let from = match &options.from {
            None => 0,
            Some(name) => {
                let snap = header.user_snapshot(name);
                snap.ok_or(Error::os("diff", errno::ENOENT))?.id
            }
        };
        let end = image.site.snap.unwrap_or(NOSNAP);
        if from > end {
            return Err(Error::os("diff", errno::EINVAL));
        }
        let len = if from == end { 0 } else { image.size() };
        let mapped = match options.whole_objects && from != end {
            true => image.mapped_changes(from, end).await?,
            false => None,
        };
        let ask = Ask {
            from,
            end,
            whole_objects: options.whole_objects,
            own: options.own,
            mapped,
        };
        Ok(Differences {
            sets: Box::new(sets(image.site.fixed.layout.set_size(), 0..len)),
            ask: Rc::new(ask),
            image,
            asked: VecDeque::new(),
            found: VecDeque::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use spirula_classes::rbd::object_state::{EXISTS, PENDING};
    use spirula_denc::Extent;
    use spirula_proto::osd_op_data::CloneInfo;

    use super::*;

    fn clone(id: u64, snaps: &[u64], size: u64, overlap: &[(u64, u64)]) -> CloneInfo {
        CloneInfo {
            id,
            snaps: snaps.to_vec(),
            overlap: overlap
                .iter()
                .map(|&(offset, len)| Extent { offset, len })
                .collect(),
            size,
        }
    }

    fn all(history: &ListSnapsResponse, from: u64, end: u64, whole: bool) -> Vec<(u64, u64, bool)> {
        let said = told(history, from..end, &(0..100), (100, whole));
        said.iter().map(|(r, data)| (r.start, r.end, *data)).collect()
    }

    /// Written before snapshot 2, overwritten in the middle before 4, cut and written behind it
    /// since.
    fn history() -> ListSnapsResponse {
        ListSnapsResponse {
            clones: vec![
                clone(2, &[2], 50, &[(0, 20), (30, 20)]),
                clone(4, &[3, 4], 50, &[(0, 40)]),
                clone(NOSNAP, &[], 40, &[]),
            ],
            seq: 4,
        }
    }

    #[test]
    fn what_changed_between_snapshots_is_told() {
        let history = history();
        assert_eq!(all(&history, 0, 2, false), [(0, 50, true)]);
        assert_eq!(all(&history, 2, 4, false), [(20, 30, true)]);
        assert_eq!(all(&history, 2, 3, false), [(20, 30, true)]);
        assert_eq!(all(&history, 3, 4, false), []);
        assert_eq!(all(&history, 4, NOSNAP, false), [(40, 50, false)]);
        assert_eq!(all(&history, 2, NOSNAP, false), [(20, 30, true), (40, 50, false)]);
        assert_eq!(all(&history, 2, 4, true), [(0, 100, true)]);
        assert_eq!(all(&history, 0, 1, false), []);
    }

    #[test]
    fn what_is_gone_is_told_where_it_was() {
        let mut history = history();
        history.clones.pop();
        history.clones[1].overlap.clear();
        assert_eq!(all(&history, 4, NOSNAP, false), [(0, 50, false)]);
        // A diff since the beginning has nothing to remove.
        assert_eq!(all(&history, 0, NOSNAP, false), []);
        history.clones[0].snaps.clear();
        assert_eq!(all(&history, 0, 4, false), [(0, 100, true)]);
    }

    #[test]
    fn maps_tell_what_becomes_of_objects() {
        use mapped::{DATA, HOLE, NEW_DATA, NEW_HOLE};
        for (before, state, after) in [
            (HOLE, NONEXISTENT, HOLE),
            (HOLE, EXISTS_CLEAN, NEW_DATA),
            (DATA, EXISTS_CLEAN, DATA),
            (DATA, EXISTS, NEW_DATA),
            (DATA, PENDING, NEW_DATA),
            (DATA, NONEXISTENT, NEW_HOLE),
            (NEW_HOLE, NONEXISTENT, NEW_HOLE),
            (NEW_HOLE, EXISTS, NEW_DATA),
            (NEW_DATA, EXISTS_CLEAN, NEW_DATA),
            (NEW_DATA, NONEXISTENT, NEW_HOLE),
        ] {
            assert_eq!(next_mapped(before, state, true), after, "{before:?} {state}");
        }
        assert_eq!(next_mapped(HOLE, EXISTS, false), HOLE);
    }

    #[test]
    fn ranges_are_cut_at_sets() {
        let cut: Vec<_> = sets(10, 5..25).collect();
        assert_eq!(cut, [5..10, 10..20, 20..25]);
        assert_eq!(sets(10, 5..5).count(), 0);
    }
}
