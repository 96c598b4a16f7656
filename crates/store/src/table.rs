//! A generation of changes that are in the log but not yet in the index (a memtable).

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use crate::ObjectKey;
use crate::alloc::Run;
use crate::index::Applied;
use crate::onode::Onode;

/// Objects as a generation leaves them; `None`: removed.
pub(crate) type Objects = BTreeMap<ObjectKey, Option<Arc<Onode>>>;

/// Changes of ordered pairs: ranges that were removed, then single puts and removals on top.
#[derive(Debug, Clone, Default)]
pub(crate) struct KvOverlay {
    puts: BTreeMap<Bytes, Option<Bytes>>,
    /// Disjoint removed ranges: first key → first key not removed.
    ranges: BTreeMap<Bytes, Bytes>,
}

impl KvOverlay {
    pub(crate) fn put(&mut self, key: Bytes, value: Option<Bytes>) {
        self.puts.insert(key, value);
    }

    pub(crate) fn remove_range(&mut self, from: Bytes, to: Bytes) {
        if from >= to {
            return;
        }
        let gone: Vec<Bytes> = self
            .puts
            .range::<Bytes, _>(&from..&to)
            .map(|(k, _)| k.clone())
            .collect();
        for key in gone {
            self.puts.remove(&key);
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
            from = from.min(f);
            to = to.max(t);
        }
        self.ranges.insert(from, to);
    }

    /// What this overlay says about a key: `None` if nothing, `Some(None)` if it is removed.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        if let Some(found) = self.puts.get(key) {
            return Some(found.clone());
        }
        let (_, to) = self.ranges.range::<[u8], _>(up_to(key)).next_back()?;
        (key < to.as_ref()).then_some(None)
    }

    /// Changes `page`, which holds the entries of `[from, to)` (to the end if `None`), as this overlay says.
    pub(crate) fn merge(&self, from: &[u8], to: Option<&[u8]>, page: &mut BTreeMap<Bytes, Bytes>) {
        page.retain(|k, _| {
            let covering = self.ranges.range::<[u8], _>(up_to(k)).next_back();
            covering.is_none_or(|(_, end)| k >= end)
        });
        for (key, value) in self
            .puts
            .range::<[u8], _>((Bound::Included(from), Bound::Unbounded))
        {
            if to.is_some_and(|to| key.as_ref() >= to) {
                break;
            }
            match value {
                Some(value) => drop(page.insert(key.clone(), value.clone())),
                None => drop(page.remove(key)),
            }
        }
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

/// Contents of a block that the log holds and the device does not yet.
#[derive(Debug, Clone)]
pub(crate) enum Dirty {
    /// The whole block.
    Full(Bytes),
    /// Bytes to lay over a block whose contents are being read.
    Patched(Patched),
    /// A block that was written in part and whose old contents turned out unreadable. Written back with a checksum that
    /// does not match, so that the loss stays visible.
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
    /// Memory that it occupies, roughly, in bytes.
    pub(crate) bytes: usize,
    /// Space that its records may need in the log at most, in bytes.
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

/// What the checkpoint thread applies to the index.
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
    pub(crate) fn entries(&self) -> usize {
        self.objects.len() + self.pairs.len()
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

    /// Blocks that will become free with this generation.
    pub(crate) fn freed_blocks(&self) -> u64 {
        self.freed
            .iter()
            .chain(&self.unshared)
            .map(|r| u64::from(r.len))
            .sum()
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
        let mut page: BTreeMap<Bytes, Bytes> = [(b("a"), b("1")), (b("c"), b("2")), (b("g"), b("3"))].into();
        o.merge(b"a", None, &mut page);
        assert_eq!(
            page.into_iter().collect::<Vec<_>>(),
            [(b("a"), b("1")), (b("e"), b("new")), (b("g"), b("3"))]
        );
    }
}
