//! The store's view of its contents: generations of changes over a cache over the index. No I/O
//! except blocking reads of the index for objects that were not looked up before.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use spirula_buf::Pool;
use spirula_invariant::{impossible, invariant};

use crate::alloc::{Allocator, Run};
use crate::arena::Arena;
use crate::cache::Cache;
use crate::config::{BLOCK, Config};
use crate::index::Index;
use crate::memory::Usage;
use crate::onode::{Extent, Mapped, Onode};
use crate::place::Unused;
use crate::table::{Counters, DIRTY_WEIGHT, Dirty, MemTable, Objects, Patched, object_weight};
use crate::{ObjectKey, Result};

/// An object, or the knowledge that there is none.
pub(crate) type Known = Option<Arc<Onode>>;

/// A pending read of old contents for a partial write.
#[derive(Debug, Clone)]
pub(crate) struct BaseRead {
    /// The patched block.
    pub(crate) target: u64,
    pub(crate) generation: u64,
    pub(crate) base: u64,
    pub(crate) crc: u32,
}

/// The contents of a block, as far as they are in memory.
pub(crate) enum Content {
    Zero,
    Here(Bytes),
    Patched(Patched),
    OnDisk(Mapped),
    Lost,
}

/// A block that a write changes only in part.
pub(crate) struct Edge {
    /// The number of the block among those of the write.
    pub(crate) at: usize,
    /// The bytes of the block that are written.
    pub(crate) written: Range<usize>,
    /// The contents before.
    pub(crate) old: Content,
}

/// The object that steps refer to, taken out of its generation.
pub(crate) struct Current {
    pub(crate) key: ObjectKey,
    pub(crate) onode: Known,
    /// Whether it existed when it was taken out.
    existed: bool,
    /// Its share of the generation's memory.
    counted: usize,
}

pub(crate) struct State {
    pub(crate) cfg: Config,
    pub(crate) pool: Pool,
    /// Memory for blocks until they are written back.
    pub(crate) arena: Arena,
    pub(crate) index: Arc<Index>,
    /// Oldest first; the last one takes changes.
    pub(crate) tables: VecDeque<MemTable>,
    /// Objects that the index has taken in last. Most are not used again, so they bypass the cache.
    retired: Arc<Objects>,
    pub(crate) cache: Cache<ObjectKey, Known>,
    /// The object that was found last, as long as nothing changes: a request looks its object up
    /// and then reads it.
    found: Option<(ObjectKey, Known)>,
    pub(crate) alloc: Allocator,
    pub(crate) counters: Counters,
    /// Last transaction.
    pub(crate) seq: u64,
    /// Large writes under way: first block on the device, and contents.
    pub(crate) direct: BTreeMap<u64, Vec<Bytes>>,
    /// Placed blocks whose handles were dropped.
    pub(crate) unused: Unused,
    /// Reads to start.
    pub(crate) base_reads: Vec<BaseRead>,
    pub(crate) current: Option<Current>,
    /// Objects loaded for the transaction being applied.
    bases: Vec<(ObjectKey, Known)>,
}

impl State {
    pub(crate) fn new(
        cfg: Config,
        index: Arc<Index>,
        alloc: Allocator,
        counters: Counters,
        seq: u64,
    ) -> Self {
        let cache = Cache::new(cfg.onode_cache_bytes);
        let pool = cfg
            .pool
            .clone()
            .unwrap_or_else(|| Pool::new(cfg.memtable_bytes / 4));
        let tables = VecDeque::from([MemTable {
            generation: 1,
            ..MemTable::default()
        }]);
        Self {
            arena: Arena::new(cfg.memtable_bytes),
            cfg,
            pool,
            index,
            tables,
            retired: Arc::default(),
            cache,
            found: None,
            alloc,
            counters,
            seq,
            direct: BTreeMap::new(),
            unused: Unused::default(),
            base_reads: Vec::new(),
            current: None,
            bases: Vec::new(),
        }
    }

    /// The active generation.
    pub(crate) fn active(&mut self) -> &mut MemTable {
        self.found = None;
        match self.tables.back_mut() {
            Some(table) => table,
            None => impossible!("a generation that takes changes"; transaction = self.seq),
        }
    }

    /// An object according to memory: `None` if the index must be asked.
    pub(crate) fn resident(&mut self, key: &ObjectKey) -> Option<Known> {
        if let Some((_, known)) = self.found.as_ref().filter(|(k, _)| k == key) {
            return Some(known.clone());
        }
        if !self.index.may_exist(key) {
            return Some(None);
        }
        let changed = self.tables.iter().rev().find_map(|t| t.objects.get(key));
        let known = match changed.or_else(|| self.retired.get(key)) {
            Some(known) => known.clone(),
            None => self.cache.get(key.as_slice())?,
        };
        self.found = Some((key.clone(), known.clone()));
        Some(known)
    }

    /// Keeps objects that the index has taken in, until the next ones come, unless they take too
    /// much memory. Cached ones are updated.
    pub(crate) fn retire(&mut self, objects: Arc<Objects>, keep: bool) {
        for (key, known) in objects.iter() {
            if self.cache.contains(key.as_slice()) {
                self.remember(key, known);
            }
        }
        self.retired = if keep { objects } else { Arc::default() };
    }

    /// Memory for blocks, without blocks that wait to be written back.
    pub(crate) fn arena_usage(&self) -> Usage {
        let blocks: usize = self.tables.iter().map(|t| t.dirty.len()).sum();
        Usage {
            items: self.arena.pieces(),
            bytes: self.arena.bytes().saturating_sub(blocks * BLOCK),
        }
    }

    /// Bytes of changes, besides blocks, that the index has not taken in: large values make a
    /// generation each.
    pub(crate) fn lasting(&self) -> usize {
        self.tables.iter().map(MemTable::lasting).sum()
    }

    /// Objects that the index has taken in last.
    pub(crate) fn retired_usage(&self) -> Usage {
        let objects = self.retired.iter();
        Usage {
            items: self.retired.len(),
            bytes: objects.map(|(key, known)| object_weight(key, known)).sum(),
        }
    }

    /// Loads an object that the next steps need, blocking on the index if it was not looked up.
    pub(crate) fn ensure_loaded(&mut self, key: &ObjectKey) -> Result<()> {
        if self.bases.iter().any(|(k, _)| k == key) {
            return Ok(());
        }
        let known = match self.resident(key) {
            Some(known) => known,
            None => self
                .index
                .objects(std::slice::from_ref(key))?
                .pop()
                .flatten()
                .map(Arc::new),
        };
        self.bases.push((key.clone(), known));
        Ok(())
    }

    /// An object loaded by [`State::ensure_loaded`], as changed by the steps so far.
    pub(crate) fn loaded(&mut self, key: &ObjectKey) -> Known {
        match self.active().objects.get(key) {
            Some(found) => found.clone(),
            None => self.base(key),
        }
    }

    /// A loaded object, as it was before the transaction that is being applied.
    fn base(&self, key: &ObjectKey) -> Known {
        match self.bases.iter().find(|(k, _)| k == key) {
            Some((_, known)) => known.clone(),
            // To treat it as missing would lose its data.
            None => impossible!("an object that was loaded"; object = key, transaction = self.seq + 1),
        }
    }

    /// Makes `key` the current object, to which the steps refer.
    pub(crate) fn open_object(&mut self, key: &ObjectKey) {
        if self.current.as_ref().is_some_and(|c| c.key == *key) {
            return; // It is the current one.
        }
        self.close_object();
        let taken = self.active().objects_mut().remove(key);
        let counted = taken.as_ref().map_or(0, |k| object_weight(key, k));
        let onode = match taken {
            Some(known) => known,
            None => self.base(key),
        };
        self.current = Some(Current {
            key: key.clone(),
            existed: onode.is_some(),
            onode,
            counted,
        });
    }

    /// Puts the current object back into the generation.
    pub(crate) fn close_object(&mut self) {
        if let Some(c) = self.current.take() {
            if c.onode.is_some() && !c.existed {
                self.index.expect(&c.key);
            }
            let weight = object_weight(&c.key, &c.onode);
            let table = self.active();
            table.bytes = (table.bytes + weight).saturating_sub(c.counted);
            table.objects_mut().insert(c.key, c.onode);
        }
    }

    /// Ends a transaction: its changes are those of `seq`.
    pub(crate) fn finish(&mut self, seq: u64, log_bytes: u64) {
        invariant!(seq == self.seq + 1, "the next transaction"; transaction = seq, last = self.seq);
        self.close_object();
        self.bases.clear();
        self.seq = seq;
        let table = self.active();
        table.last_seq = seq;
        table.log_bytes += log_bytes;
    }

    /// Drops the objects loaded for a refused transaction.
    pub(crate) fn abandon(&mut self) {
        invariant!(self.current.is_none(), "no change by what is refused"; transaction = self.seq + 1);
        self.bases.clear();
    }

    /// The block of the current object.
    pub(crate) fn current_block(&self, lblk: u32) -> Option<Mapped> {
        self.current.as_ref()?.onode.as_ref()?.block(lblk)
    }

    /// Size of the current object, in bytes; 0 if it does not exist.
    pub(crate) fn current_size(&self) -> u64 {
        self.current
            .as_ref()
            .and_then(|c| c.onode.as_ref())
            .map_or(0, |o| o.size)
    }

    /// The newest contents of a device block, if they are not on the device yet.
    pub(crate) fn find_dirty(&self, pblk: u64) -> Option<Dirty> {
        let logged = self.tables.iter().rev().find_map(|t| t.dirty.get(&pblk));
        logged
            .cloned()
            .or_else(|| self.find_direct(pblk).map(Dirty::Full))
    }

    /// A block of a large write that is under way.
    fn find_direct(&self, pblk: u64) -> Option<Bytes> {
        let (start, bufs) = self.direct.range(..=pblk).next_back()?;
        let mut at = usize::try_from(pblk - start).ok()?.checked_mul(BLOCK)?;
        for buf in bufs {
            if at < buf.len() {
                return Some(buf.slice(at..at + BLOCK));
            }
            at -= buf.len();
        }
        None
    }

    /// Whether the device has the newest contents of all blocks.
    pub(crate) fn nothing_dirty(&self) -> bool {
        self.direct.is_empty() && self.tables.iter().all(|t| t.dirty.is_empty())
    }

    /// Contents of a block of an object.
    pub(crate) fn content(&self, block: Option<Mapped>) -> Content {
        let Some(block) = block else { return Content::Zero };
        match self.find_dirty(block.pblk) {
            Some(Dirty::Full(bytes)) => Content::Here(bytes),
            Some(Dirty::Patched(p)) => Content::Patched(p),
            Some(Dirty::Lost(_)) => Content::Lost,
            None => Content::OnDisk(block),
        }
    }

    /// Notes that an object no longer refers to an extent.
    pub(crate) fn drop_extent(&mut self, e: &Extent) {
        let run = Run {
            pblk: e.pblk,
            len: e.len(),
        };
        let table = self.active();
        table.free(run, e.shared);
        if e.shared || table.dirty.is_empty() {
            return; // Other objects may need the contents, or none are kept.
        }
        for pblk in run.pblk..run.pblk + u64::from(run.len) {
            match table.dirty.remove(&pblk) {
                Some(old) => table.forget(pblk, &old),
                None => continue,
            }
            table.bytes = table.bytes.saturating_sub(DIRTY_WEIGHT);
        }
    }

    /// Sets the contents of a device block until it is written back. Returns whether this
    /// generation had written it before.
    pub(crate) fn set_dirty(&mut self, pblk: u64, dirty: Dirty) -> bool {
        let table = self.active();
        table.unresolved += usize::from(matches!(dirty, Dirty::Patched(_)));
        table.bytes += DIRTY_WEIGHT;
        let Some(old) = table.dirty.insert(pblk, dirty) else {
            return false;
        };
        table.forget(pblk, &old);
        table.bytes = table.bytes.saturating_sub(DIRTY_WEIGHT);
        true
    }

    /// Completes a patched block with its old contents (`None`: they are lost, so the block must
    /// stay unreadable).
    pub(crate) fn resolve(&mut self, read: &BaseRead, base: Option<&[u8]>) {
        let Some(at) = self.tables.iter().position(|t| t.generation == read.generation) else {
            return; // The block was written over or removed, so that its generation could go.
        };
        let patched = match self.tables[at].dirty.get(&read.target) {
            Some(Dirty::Patched(p)) if p.base == read.base => p.clone(),
            // Written over as a whole, or removed, in the meantime.
            _ => return,
        };
        invariant!(!self.tables[at].settled, "a block that waits for old contents"; block = read.target);
        let mut block = self.arena.cut(BLOCK);
        match base {
            Some(base) => block.copy_from_slice(base),
            None => block.fill(0),
        }
        for (offset, patch) in &patched.patches {
            block[*offset..*offset + patch.len()].copy_from_slice(patch);
        }
        let good = crc32c::crc32c(&block);
        // A checksum that does not match keeps the loss visible to every later reader.
        let crc = if base.is_some() { good } else { !good };
        let complete = match base {
            Some(_) => Dirty::Full(block.freeze()),
            None => Dirty::Lost(block.freeze()),
        };
        self.found = None;
        let table = &mut self.tables[at];
        if let Some(old) = table.dirty.insert(read.target, complete) {
            table.forget(read.target, &old);
        }
        for (i, table) in self.tables.range_mut(at..).enumerate() {
            if i > 0 && table.dirty.contains_key(&read.target) {
                // From here on the block has newer contents.
                break;
            }
            // A generation that the checkpoint thread works on has no such block any more.
            let Some(objects) = Arc::get_mut(&mut table.objects) else {
                continue;
            };
            for (key, lblk) in &patched.owners {
                if let Some(Some(onode)) = objects.get_mut(key)
                    && onode.block(*lblk).is_some_and(|b| b.pblk == read.target)
                {
                    Arc::make_mut(onode).set_crc(*lblk, crc);
                }
            }
        }
    }

    /// A pair according to memory: `None` if the index must be asked.
    pub(crate) fn pair_in_memory(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.tables.iter().rev().find_map(|t| t.pairs.get(key))
    }

    /// Looks a pair up, blocking on the index if it is not in memory.
    pub(crate) fn pair(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.pair_in_memory(key) {
            Some(found) => Ok(found),
            None => self.index.pair(key),
        }
    }
}
