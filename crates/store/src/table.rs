//! A generation of changes that are in the log but not yet in the index (a memtable).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use spirula_invariant::invariant;

use crate::ObjectKey;
use crate::alloc::Run;
use crate::config::BLOCK;
use crate::index::Applied;
use crate::onode::Onode;

/// Objects after a generation; `None`: removed.
pub(crate) type Objects = BTreeMap<ObjectKey, Option<Arc<Onode>>>;

/// Changes of ordered pairs: ranges that were removed, then single puts and removals on top.
#[derive(Debug, Clone, Default)]
pub(crate) struct KvOverlay {
    puts: BTreeMap<Bytes, Option<Bytes>>,
    /// Disjoint removed ranges: first key → first key not removed.
    ranges: BTreeMap<Bytes, Bytes>,
    /// Memory that it occupies, roughly, in bytes.
    bytes: usize,
}

/// Memory of an entry, in bytes.
fn weight(key: &Bytes, value: Option<&Bytes>) -> usize {
    128 + key.len() + value.map_or(0, Bytes::len)
}

impl KvOverlay {
    pub(crate) fn put(&mut self, key: Bytes, value: Option<Bytes>) {
        let (fixed, new) = (weight(&key, None), value.as_ref().map_or(0, Bytes::len));
        self.bytes += match self.puts.insert(key, value) {
            Some(old) => {
                self.bytes -= old.as_ref().map_or(0, Bytes::len);
                new
            }
            None => fixed + new,
        };
    }

    /// Lays a newer overlay over this one.
    pub(crate) fn absorb(&mut self, newer: Self) {
        for (from, to) in newer.ranges {
            self.remove_range(from, to);
        }
        for (key, value) in newer.puts {
            self.put(key, value);
        }
    }

    /// Memory that it occupies, roughly, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn remove_range(&mut self, from: Bytes, to: Bytes) {
        if from >= to {
            return; // An empty range, as clients may ask for.
        }
        let gone: Vec<Bytes> = self
            .puts
            .range::<Bytes, _>(&from..&to)
            .map(|(k, _)| k.clone())
            .collect();
        for key in gone {
            if let Some(value) = self.puts.remove(&key) {
                self.bytes -= weight(&key, value.as_ref());
            }
        }
        let (mut from, mut to) = (from, to);
        while let Some((f, t)) = self
            .ranges
            .range::<Bytes, _>(..=&to)
            .next_back()
            .map(|(f, t)| (f.clone(), t.clone()))
        {
            if t < from {
                break;
            }
            self.ranges.remove(&f);
            self.bytes -= weight(&f, Some(&t));
            from = from.min(f);
            to = to.max(t);
        }
        self.bytes += weight(&from, Some(&to));
        self.ranges.insert(from, to);
    }

    /// The overlay's value of a key: `None` if it has none, `Some(None)` if the key is removed.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        if let Some(found) = self.puts.get(key) {
            return Some(found.clone());
        }
        let (_, to) = self.ranges.range::<[u8], _>(up_to(key)).next_back()?;
        (key < to.as_ref()).then_some(None)
    }

    /// Lays this overlay over the `stored` pairs of `[from, to)` (to the end if `None`) and the
    /// `changes` of older overlays.
    pub(crate) fn merge(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        stored: &mut Vec<(Bytes, Bytes)>,
        changes: &mut BTreeMap<Bytes, Option<Bytes>>,
    ) {
        if !self.ranges.is_empty() {
            let is_left = |k: &Bytes| {
                let covering = self.ranges.range::<[u8], _>(up_to(k)).next_back();
                covering.is_none_or(|(_, end)| k >= end)
            };
            stored.retain(|(k, _)| is_left(k));
            changes.retain(|k, _| is_left(k));
        }
        let range = (
            Bound::Included(from),
            to.map_or(Bound::Unbounded, Bound::Excluded),
        );
        changes.extend(
            self.puts
                .range::<[u8], _>(range)
                .map(|(k, v)| (k.clone(), v.clone())),
        );
    }

    pub(crate) fn puts(&self) -> impl Iterator<Item = (&Bytes, &Option<Bytes>)> {
        self.puts.iter()
    }

    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.ranges.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.puts.len() + self.ranges.len()
    }
}

fn up_to(key: &[u8]) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (Bound::Unbounded, Bound::Included(key))
}

/// Shared blocks whose counts make one change of the index: counts of neighbouring blocks lie
/// together.
const BLOCKS_PER_ENTRY: u64 = 16;

/// Memory of a block in a generation, in bytes.
pub(crate) const DIRTY_WEIGHT: usize = BLOCK + 96;

/// Memory of an object in a generation, in bytes.
pub(crate) fn object_weight(key: &ObjectKey, known: &Option<Arc<Onode>>) -> usize {
    96 + key.as_slice().len() + known.as_ref().map_or(0, |o| o.footprint())
}

/// The contents of a block that the log has and the device does not have yet.
#[derive(Debug, Clone)]
pub(crate) enum Dirty {
    /// The whole block.
    Full(Bytes),
    /// Bytes to lay over a block whose contents are being read.
    Patched(Patched),
    /// A block that was written in part and whose old contents turned out unreadable. It is written
    /// back with a checksum that does not match, so that the loss stays visible.
    Lost(Bytes),
}

/// A block that was written in part before its old contents were known.
#[derive(Debug, Clone)]
pub(crate) struct Patched {
    /// The block that holds the old contents, and their checksum.
    pub(crate) base: u64,
    pub(crate) base_crc: u32,
    /// Offset in the block and bytes, in order of writing.
    pub(crate) patches: Vec<(usize, Bytes)>,
    /// Objects (and their block numbers) whose onodes await the checksum.
    pub(crate) owners: Vec<(ObjectKey, u32)>,
}

/// A memtable.
#[derive(Debug, Default)]
pub(crate) struct MemTable {
    /// Number of the generation.
    pub(crate) generation: u64,
    /// Last transaction in it; 0 while it is empty.
    pub(crate) last_seq: u64,
    /// Whether all its blocks are at their places, so that only the index lacks it.
    pub(crate) settled: bool,
    /// Shared with the checkpoint thread while that applies it.
    pub(crate) objects: Arc<Objects>,
    pub(crate) pairs: Arc<KvOverlay>,
    pub(crate) dirty: HashMap<u64, Dirty>,
    /// Blocks in `dirty` that are [`Dirty::Patched`].
    pub(crate) unresolved: usize,
    pub(crate) allocated: Vec<Run>,
    pub(crate) freed: Vec<Run>,
    pub(crate) shared: Vec<Run>,
    pub(crate) unshared: Vec<Run>,
    /// Blocks that will become free with this generation: those of `freed` and `unshared`.
    pub(crate) freed_blocks: u64,
    /// Blocks whose references are counted: those of `shared` and `unshared`.
    pub(crate) counted_blocks: u64,
    /// Memory that objects and blocks occupy, roughly, in bytes.
    pub(crate) bytes: usize,
    /// The most log space that its records may need, in bytes, while it is active.
    pub(crate) log_bytes: u64,
    /// Counters of the store at its end.
    pub(crate) counters: Counters,
}

/// Counters that the index keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) objects: u64,
    pub(crate) stored: u64,
}

/// The changes that the checkpoint thread applies to the index.
pub(crate) struct Frozen {
    pub(crate) objects: Arc<Objects>,
    pub(crate) pairs: Arc<KvOverlay>,
    pub(crate) allocated: Vec<Run>,
    pub(crate) freed: Vec<Run>,
    pub(crate) shared: Vec<Run>,
    pub(crate) unshared: Vec<Run>,
    pub(crate) applied: Applied,
}

impl MemTable {
    /// The number of changes for the index, roughly that of touched keys far from each other.
    pub(crate) fn entries(&self) -> usize {
        let counted = (self.counted_blocks / BLOCKS_PER_ENTRY) as usize;
        self.objects.len() + self.pairs.len() + counted
    }

    /// Memory that it occupies, roughly, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let runs = [&self.allocated, &self.freed, &self.shared, &self.unshared];
        let runs: usize = runs.iter().map(|r| r.capacity()).sum();
        self.bytes + self.pairs.bytes() + runs * size_of::<Run>()
    }

    /// The memory that it keeps after it is settled, in bytes.
    pub(crate) fn lasting(&self) -> usize {
        self.memory().saturating_sub(self.dirty.len() * DIRTY_WEIGHT)
    }

    /// Drops the old contents of a block.
    pub(crate) fn forget(&mut self, block: u64, old: &Dirty) {
        if matches!(old, Dirty::Patched(_)) {
            invariant!(self.unresolved > 0, "a count of blocks that wait"; block = block, generation = self.generation);
            self.unresolved -= 1;
        }
    }

    /// Marks it as settled: its blocks are at their places and durable.
    pub(crate) fn settle(&mut self) {
        invariant!(
            self.unresolved == 0 && !self.settled,
            "a generation whose blocks were complete";
            generation = self.generation,
            unresolved = self.unresolved,
        );
        self.settled = true;
        self.bytes = self.bytes.saturating_sub(self.dirty.len() * DIRTY_WEIGHT);
        self.dirty = HashMap::new();
    }

    /// Merges the next generation into this one. Neither has blocks.
    pub(crate) fn absorb(&mut self, newer: Self) {
        invariant!(
            self.settled && newer.settled,
            "generations that are settled";
            generation = self.generation,
            newer = newer.generation,
        );
        invariant!(
            self.generation < newer.generation && self.last_seq < newer.last_seq,
            "the next generation";
            generation = self.generation,
            newer = newer.generation,
        );
        let objects = Arc::make_mut(&mut self.objects);
        for (key, known) in Arc::unwrap_or_clone(newer.objects) {
            self.bytes += object_weight(&key, &known);
            match objects.entry(key) {
                Entry::Vacant(e) => drop(e.insert(known)),
                Entry::Occupied(mut e) => {
                    let old = object_weight(e.key(), e.get());
                    self.bytes = self.bytes.saturating_sub(old);
                    e.insert(known);
                }
            }
        }
        self.pairs_mut().absorb(Arc::unwrap_or_clone(newer.pairs));
        self.allocated.extend(newer.allocated);
        self.freed.extend(newer.freed);
        self.shared.extend(newer.shared);
        self.unshared.extend(newer.unshared);
        self.freed_blocks += newer.freed_blocks;
        self.counted_blocks += newer.counted_blocks;
        self.generation = newer.generation;
        self.last_seq = newer.last_seq;
        self.counters = newer.counters;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.last_seq == 0
    }

    pub(crate) fn objects_mut(&mut self) -> &mut Objects {
        Arc::make_mut(&mut self.objects)
    }

    pub(crate) fn pairs_mut(&mut self) -> &mut KvOverlay {
        Arc::make_mut(&mut self.pairs)
    }

    /// Notes a run to which an object no longer refers; `shared`: other objects may still refer to
    /// it.
    pub(crate) fn free(&mut self, run: Run, shared: bool) {
        self.freed_blocks += u64::from(run.len);
        if shared {
            self.counted_blocks += u64::from(run.len);
            self.unshared.push(run);
        } else {
            self.freed.push(run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn b(s: &'static str) -> Bytes {
        Bytes::from_static(s.as_bytes())
    }

    #[test]
    fn ranges_join_and_puts_lie_on_top() {
        let mut o = KvOverlay::default();
        o.put(b("c"), Some(b("old")));
        o.remove_range(b("b"), b("d"));
        o.remove_range(b("f"), b("g"));
        assert_eq!(o.get(b"c"), Some(None));
        assert_eq!(o.get(b"d"), None);
        o.remove_range(b("d"), b("f"));
        assert_eq!(o.ranges().collect::<Vec<_>>(), [(&b("b"), &b("g"))]);
        o.put(b("e"), Some(b("new")));
        assert_eq!(o.get(b"e"), Some(Some(b("new"))));
        let mut stored = vec![(b("a"), b("1")), (b("c"), b("2")), (b("g"), b("3"))];
        let mut changes = [(b("b"), Some(b("older"))), (b("h"), Some(b("4")))].into();
        o.merge(b"a", None, &mut stored, &mut changes);
        assert_eq!(stored, [(b("a"), b("1")), (b("g"), b("3"))]);
        assert_eq!(changes, [(b("e"), Some(b("new"))), (b("h"), Some(b("4")))].into());
    }
}
