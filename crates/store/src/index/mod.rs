//! The index: onodes, ordered pairs (omap, meta), free-space bitmaps and counts of shared blocks,
//! in an embedded key-value library on groups of the same device.

mod file;
mod pairs;
mod presence;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use redb::{
    Builder, Database, Durability, ReadableDatabase, ReadableTable, ReadableTableMetadata, Table,
    TableDefinition,
};

pub(crate) use file::IndexFile;
pub(crate) use file::MAX_INDEX_GROUPS;
pub(crate) use presence::Presence;

use crate::alloc::Run;
use crate::codec::{Dec, Enc};
use crate::config::Config;
use crate::device::BlockIo;
use crate::layout::Superblock;
use crate::log::LogPosition;
use crate::onode::{Listed, Onode};
use crate::table::Frozen;
use crate::{ObjectKey, Result, StoreError};

const OBJECTS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("objects");
const PAIRS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("pairs");
/// Group number → bitmap of used blocks; no entry: all free; empty: all used.
const BITMAPS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("bitmaps");
/// Block → number of extents that refer to it; no entry: one at most.
const SHARED: TableDefinition<'_, u64, u32> = TableDefinition::new("shared");
/// Removed pairs that may still exist: first key → first key behind them.
const GARBAGE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("garbage");
const STATE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("state");
const APPLIED: &str = "applied";

/// The position of the index in the log: written with every batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Applied {
    /// The last transaction that is in the index.
    pub(crate) seq: u64,
    /// The group of the first transaction that is not in the index.
    pub(crate) log: LogPosition,
    /// Number of objects.
    pub(crate) objects: u64,
    /// Sum of the objects' sizes, in bytes.
    pub(crate) stored: u64,
}

impl Applied {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for v in [
            self.seq,
            self.log.block,
            self.log.group,
            self.objects,
            self.stored,
        ] {
            Enc(&mut out).u64(v);
        }
        out
    }

    /// Whether this position may follow `before`: the index advances by whole generations.
    fn check_after(&self, before: Option<Self>) -> Result<()> {
        match before {
            Some(before) if before.seq < self.seq && before.log.group <= self.log.group => Ok(()),
            before => {
                let detail = format!("transaction {} is to follow {before:?}", self.seq);
                Err(StoreError::damaged("index", detail))
            }
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut d = Dec::new(bytes);
        let mut next = || d.u64();
        Some(Self {
            seq: next()?,
            log: LogPosition {
                block: next()?,
                group: next()?,
            },
            objects: next()?,
            stored: next()?,
        })
    }
}

/// A page of a range: entries, and whether the range may go on behind the last one.
#[derive(Debug, Clone)]
pub(crate) struct Page<T> {
    pub(crate) entries: Vec<(Bytes, T)>,
    pub(crate) more: bool,
    /// Whether the page ends before an entry that would have made it larger than allowed; it may be
    /// empty then.
    pub(crate) cut: bool,
}

/// Limits of a page of pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// The most pairs.
    pub(crate) count: usize,
    /// Bytes of keys and values after which no more pairs follow.
    pub(crate) bytes: usize,
    /// Bytes of keys and values that are never exceeded, not even by the first pair.
    pub(crate) most: usize,
    /// Whether values are wanted; without, all are empty.
    pub(crate) values: bool,
}

impl PageLimit {
    /// No limit.
    pub(crate) const NONE: Self = Self {
        count: usize::MAX,
        bytes: usize::MAX,
        most: usize::MAX,
        values: true,
    };

    /// At most `count` pairs (65,536 where that is less), and none after those that reach `bytes`.
    pub fn new(count: usize, bytes: usize) -> Self {
        Self {
            count: count.clamp(1, 65_536),
            bytes: bytes.max(1),
            ..Self::NONE
        }
    }

    /// None after the pairs that reach `bytes`.
    pub fn of_bytes(bytes: usize) -> Self {
        Self {
            bytes: bytes.max(1),
            ..Self::NONE
        }
    }

    /// These limits, and never more than `most` bytes: the page is cut before a pair that does not
    /// fit.
    pub fn within(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Whether a pair of `len` bytes must not follow pairs of `bytes`.
    pub(crate) fn cuts(&self, bytes: usize, len: usize) -> bool {
        bytes.saturating_add(len) > self.most
    }

    /// These limits, with empty values.
    pub fn keys_only(self) -> Self {
        Self {
            values: false,
            ..self
        }
    }
}

/// The work that applying a generation leaves.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Blocks that became free.
    pub(crate) freed: Vec<Run>,
    /// Whether pairs remain that are to be removed later.
    pub(crate) garbage: bool,
}

/// The opened index. All methods may block on the device.
pub(crate) struct Index {
    db: Database,
    file: IndexFile,
    presence: Presence,
}

/// Objects that one call of [`Index::learn`] reads.
const LEARN_BATCH: usize = 2048;

impl Index {
    /// Creates an empty index; `file` must have spare groups.
    pub(crate) fn create(file: IndexFile, applied: &Applied) -> Result<()> {
        let index = Self::open(file, 1 << 20, 0)?;
        let mut txn = index.db.begin_write()?;
        txn.set_durability(Durability::Immediate)?;
        txn.set_quick_repair(true);
        txn.open_table(OBJECTS)?;
        txn.open_table(PAIRS)?;
        txn.open_table(GARBAGE)?;
        txn.open_table(BITMAPS)?;
        txn.open_table(SHARED)?;
        txn.open_table(STATE)?
            .insert(APPLIED, applied.encode().as_slice())?;
        txn.commit()?;
        Ok(())
    }

    pub(crate) fn open(file: IndexFile, cache_bytes: usize, presence_bytes: usize) -> Result<Self> {
        let db = Builder::new()
            .set_cache_size(cache_bytes)
            .create_with_backend(file.clone())?;
        Ok(Self {
            db,
            file,
            presence: Presence::new(presence_bytes),
        })
    }

    /// Opens the index of a store; with `read_only`, nothing is written to the device.
    pub(crate) fn open_at(
        dev: Arc<dyn BlockIo>,
        sb: &Superblock,
        cfg: &Config,
        read_only: bool,
    ) -> Result<Self> {
        let file = IndexFile::open(dev, sb, read_only)?;
        Self::open(file, cfg.index_cache_bytes, cfg.presence_bytes)
    }

    /// `false` if there is no such object, neither here nor in changes that the index will take in.
    /// Does not block.
    pub(crate) fn may_exist(&self, key: &ObjectKey) -> bool {
        self.presence.may_exist(key)
    }

    /// Notes that an object was created, before it can be looked up.
    pub(crate) fn expect(&self, key: &ObjectKey) {
        self.presence.insert(key.as_slice());
    }

    /// Whether reading `objects` objects into the presence filter is worth it.
    pub(crate) fn can_learn(&self, objects: u64) -> bool {
        self.presence.is_useful_for(objects)
    }

    /// Reads some objects from `from` on into the presence filter. Returns where to continue,
    /// `None` when all are known.
    pub(crate) fn learn(&self, from: &[u8]) -> Result<Option<Bytes>> {
        let txn = self.db.begin_read()?;
        let table = txn.open_table(OBJECTS)?;
        let mut left = LEARN_BATCH;
        for entry in table.range::<&[u8]>(from..)? {
            let (key, _) = entry?;
            if left == 0 {
                return Ok(Some(Bytes::copy_from_slice(key.value())));
            }
            self.presence.insert(key.value());
            left -= 1;
        }
        self.presence.set_learnt();
        Ok(None)
    }

    pub(crate) fn file(&self) -> &IndexFile {
        &self.file
    }

    pub(crate) fn applied(&self) -> Result<Applied> {
        let txn = self.db.begin_read()?;
        let table = txn.open_table(STATE)?;
        let found = table.get(APPLIED)?.and_then(|v| Applied::decode(v.value()));
        found.ok_or_else(|| StoreError::damaged("index", "no state record"))
    }

    /// Looks up objects in one go.
    pub(crate) fn objects(&self, keys: &[ObjectKey]) -> Result<Vec<Option<Onode>>> {
        let txn = self.db.begin_read()?;
        let table = txn.open_table(OBJECTS)?;
        let get = |k: &ObjectKey| {
            table
                .get(k.as_slice())?
                .map(|v| Onode::decode(v.value()))
                .transpose()
        };
        keys.iter().map(get).collect()
    }

    pub(crate) fn pair(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let txn = self.db.begin_read()?;
        Ok(txn
            .open_table(PAIRS)?
            .get(key)?
            .map(|v| Bytes::copy_from_slice(v.value())))
    }

    pub(crate) fn list_objects<T: Listed>(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Page<T>> {
        let limit = PageLimit {
            count: limit,
            ..PageLimit::NONE
        };
        let page = self.page(OBJECTS, from, to, limit, T::part)?;
        let entries = page.entries.into_iter();
        let entries: Result<Vec<(Bytes, T)>> = entries.map(|(k, part)| Ok((k, T::decode(part)?))).collect();
        Ok(Page {
            entries: entries?,
            more: page.more,
            cut: page.cut,
        })
    }

    pub(crate) fn list_pairs(&self, from: &[u8], to: Option<&[u8]>, limit: PageLimit) -> Result<Page<Bytes>> {
        if limit.values {
            self.page(PAIRS, from, to, limit, |v| Ok(v))
        } else {
            self.page(PAIRS, from, to, limit, |_| Ok(&[]))
        }
    }

    /// Looks up pairs in one go; those that exist, up to the limit's bytes.
    pub(crate) fn pairs(&self, keys: &[Bytes], limit: PageLimit) -> Result<Page<Bytes>> {
        let txn = self.db.begin_read()?;
        let table = txn.open_table(PAIRS)?;
        let mut page = Page {
            entries: Vec::new(),
            more: false,
            cut: false,
        };
        let mut bytes = 0usize;
        for key in keys {
            if let Some(value) = table.get(key.as_ref())? {
                let value = if limit.values { value.value() } else { b"" };
                let len = key.len() + value.len();
                let is_full = bytes >= limit.bytes;
                page.cut = !is_full && limit.cuts(bytes, len);
                if is_full || page.cut {
                    page.more = true;
                    break;
                }
                bytes = bytes.saturating_add(len);
                page.entries.push((key.clone(), Bytes::copy_from_slice(value)));
            }
        }
        Ok(page)
    }

    /// A page of keys with the wanted part of their values, all in one piece of memory: there may
    /// be thousands.
    fn page(
        &self,
        table: TableDefinition<'_, &[u8], &[u8]>,
        from: &[u8],
        to: Option<&[u8]>,
        limit: PageLimit,
        part: impl Fn(&[u8]) -> Result<&[u8]>,
    ) -> Result<Page<Bytes>> {
        let mut page = Page {
            entries: Vec::new(),
            more: false,
            cut: false,
        };
        if to.is_some_and(|to| to <= from) {
            return Ok(page);
        }
        let txn = self.db.begin_read()?;
        let table = txn.open_table(table)?;
        let range = match to {
            Some(to) => table.range::<&[u8]>(from..to)?,
            None => table.range::<&[u8]>(from..)?,
        };
        let (mut held, mut places) = (Vec::new(), Vec::new());
        let mut bytes = 0usize;
        for entry in range {
            let (key, value) = entry?;
            let mut len = key.value().len();
            if limit.values {
                len += value.value().len();
            }
            let is_full = places.len() >= limit.count || bytes >= limit.bytes;
            page.cut = !is_full && limit.cuts(bytes, len);
            if is_full || page.cut {
                page.more = true;
                break;
            }
            bytes = bytes.saturating_add(len);
            let start = held.len();
            held.extend_from_slice(key.value());
            let middle = held.len();
            held.extend_from_slice(part(value.value())?);
            places.push((start, middle, held.len()));
        }
        let held = Bytes::from(held);
        let slices = |(start, middle, end)| (held.slice(start..middle), held.slice(middle..end));
        page.entries = places.into_iter().map(slices).collect();
        Ok(page)
    }

    /// All free-space bitmaps: an empty one means all used.
    pub(crate) fn bitmaps(&self, mut each: impl FnMut(u32, &[u8]) -> Result<()>) -> Result<()> {
        let txn = self.db.begin_read()?;
        for entry in txn.open_table(BITMAPS)?.iter()? {
            let (group, bitmap) = entry?;
            each(group.value(), bitmap.value())?;
        }
        Ok(())
    }

    /// All counts of shared blocks.
    pub(crate) fn shared(&self) -> Result<BTreeMap<u64, u32>> {
        let txn = self.db.begin_read()?;
        let table = txn.open_table(SHARED)?;
        table
            .iter()?
            .map(|e| e.map(|(k, v)| (k.value(), v.value())).map_err(Into::into))
            .collect()
    }

    /// Number of entries of the tables, for humans: objects, pairs, shared blocks.
    pub(crate) fn counts(&self) -> Result<[u64; 3]> {
        let txn = self.db.begin_read()?;
        Ok([
            txn.open_table(OBJECTS)?.len()?,
            txn.open_table(PAIRS)?.len()?,
            txn.open_table(SHARED)?.len()?,
        ])
    }

    /// Removes some of the pairs that are garbage. Returns whether there are more.
    pub(crate) fn purge(&self) -> Result<bool> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(Durability::Immediate)?;
        txn.set_quick_repair(true);
        let more = pairs::purge(&mut txn.open_table(PAIRS)?, &mut txn.open_table(GARBAGE)?)?;
        txn.commit()?;
        Ok(more)
    }

    /// Applies a generation of changes and makes them durable, all or nothing.
    pub(crate) fn apply(&self, frozen: &Frozen, group_blocks: u32) -> Result<Outcome> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(Durability::Immediate)?;
        // Without this, opening after a crash would walk the whole index.
        txn.set_quick_repair(true);
        let outcome = {
            let mut buf = Vec::new();
            let mut objects = txn.open_table(OBJECTS)?;
            for (key, onode) in frozen.objects.iter() {
                match onode {
                    Some(onode) => {
                        buf.clear();
                        onode.encode(&mut buf);
                        objects.insert(key.as_slice(), buf.as_slice())?;
                    }
                    None => drop(objects.remove(key.as_slice())?),
                }
            }
            let (mut stored, mut removed) = (txn.open_table(PAIRS)?, txn.open_table(GARBAGE)?);
            pairs::apply(&mut stored, &mut removed, &frozen.pairs)?;
            let garbage = pairs::purge(&mut stored, &mut removed)?;
            let freed = apply_shared(&mut txn.open_table(SHARED)?, frozen)?;
            apply_bitmaps(
                &mut txn.open_table(BITMAPS)?,
                &frozen.allocated,
                &freed,
                group_blocks,
            )?;
            let mut state = txn.open_table(STATE)?;
            let before = state.insert(APPLIED, frozen.applied.encode().as_slice())?;
            let before = before.and_then(|v| Applied::decode(v.value()));
            frozen.applied.check_after(before)?;
            Outcome { freed, garbage }
        };
        txn.commit()?;
        Ok(outcome)
    }
}

/// Updates the counts of shared blocks; returns the runs without references, unshared ones
/// included.
fn apply_shared(table: &mut Table<'_, u64, u32>, frozen: &Frozen) -> Result<Vec<Run>> {
    fn blocks(runs: &[Run]) -> impl Iterator<Item = u64> + '_ {
        runs.iter().flat_map(|r| r.pblk..r.pblk + u64::from(r.len))
    }
    let count =
        |table: &Table<'_, u64, u32>, b: u64| -> Result<u32> { Ok(table.get(b)?.map_or(1, |c| c.value())) };
    // First up, then down: a block can be released within the generation that shared it, but not
    // before.
    for b in blocks(&frozen.shared) {
        let n = count(table, b)?;
        table.insert(b, n.saturating_add(1))?;
    }
    let mut freed = frozen.freed.clone();
    for b in blocks(&frozen.unshared) {
        match count(table, b)? {
            0 | 1 => {
                table.remove(b)?;
                match freed.last_mut() {
                    Some(last) if last.pblk + u64::from(last.len) == b => last.len += 1,
                    _ => freed.push(Run { pblk: b, len: 1 }),
                }
            }
            2 => drop(table.remove(b)?),
            n => drop(table.insert(b, n - 1)?),
        }
    }
    Ok(freed)
}

fn apply_bitmaps(
    table: &mut Table<'_, u32, &'static [u8]>,
    allocated: &[Run],
    freed: &[Run],
    group_blocks: u32,
) -> Result<()> {
    let mut loaded: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    for (runs, used) in [(allocated, true), (freed, false)] {
        for pblk in runs.iter().flat_map(|r| r.pblk..r.pblk + u64::from(r.len)) {
            let group = (pblk / u64::from(group_blocks)) as u32;
            let bitmap = match loaded.entry(group) {
                Entry::Occupied(e) => e.into_mut(),
                Entry::Vacant(e) => e.insert(stored_bitmap(table, group, group_blocks)?),
            };
            let bit = (pblk % u64::from(group_blocks)) as usize;
            if (bitmap[bit / 8] >> (bit % 8) & 1 == 1) == used {
                let detail = format!("block {pblk} was {} already", if used { "used" } else { "free" });
                return Err(StoreError::damaged("free-space bitmap", detail));
            }
            bitmap[bit / 8] ^= 1 << (bit % 8);
        }
    }
    for (group, bitmap) in loaded {
        if bitmap.iter().all(|b| *b == 0) {
            table.remove(group)?;
        } else if bitmap.iter().all(|b| *b == 0xff) {
            table.insert(group, [].as_slice())?;
        } else {
            table.insert(group, bitmap.as_slice())?;
        }
    }
    Ok(())
}

fn stored_bitmap(table: &Table<'_, u32, &'static [u8]>, group: u32, group_blocks: u32) -> Result<Vec<u8>> {
    let len = group_blocks as usize / 8;
    let stored = table.get(group)?;
    let bitmap = match stored.as_ref().map(|v| v.value()) {
        None => vec![0; len],
        Some([]) => vec![0xff; len],
        Some(bits) => bits.to_vec(),
    };
    if bitmap.len() != len {
        return Err(StoreError::damaged(
            "free-space bitmap",
            format!("group {group} has {} bytes", bitmap.len()),
        ));
    }
    Ok(bitmap)
}
