//! The index: onodes, ordered pairs (omap, meta), free-space bitmaps and counts of shared blocks,
//! in an embedded key-value library on groups of the same device.

mod commit;
mod cut;
mod damage;
mod file;
mod library;
mod lost;
mod page;
mod pairs;
mod presence;
mod tree;
mod unreadable;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use redb::{
    Database, Durability, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
    WriteTransaction,
};

use library::Library;
use unreadable::Unreadable;

pub use damage::{IndexDamage, IndexPage};
pub(crate) use file::{BadPage, Examined, IndexFile, MAX_INDEX_GROUPS};
pub(crate) use lost::LostRange;
pub(crate) use page::Page;
pub use page::PageLimit;
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

/// The work that applying a generation leaves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// Blocks that became free.
    pub(crate) freed: Vec<Run>,
    /// Whether pairs remain that are to be removed later.
    pub(crate) garbage: bool,
}

/// The opened index. All methods may block on the device.
pub(crate) struct Index {
    library: Library,
    file: IndexFile,
    presence: Presence,
    unreadable: Unreadable,
    /// Whether garbage is removed: it is left where it can't be read.
    purges: AtomicBool,
}

/// Objects that one call of [`Index::learn`] reads.
const LEARN_BATCH: usize = 2048;

impl Index {
    /// Creates an empty index; `file` must have spare groups.
    pub(crate) fn create(file: IndexFile, applied: &Applied) -> Result<()> {
        let index = Self::open(file, 1 << 20, 0)?;
        index.library.with(|db| {
            let txn = begin(db)?;
            txn.open_table(OBJECTS)?;
            txn.open_table(PAIRS)?;
            txn.open_table(GARBAGE)?;
            txn.open_table(BITMAPS)?;
            txn.open_table(SHARED)?;
            txn.open_table(STATE)?
                .insert(APPLIED, applied.encode().as_slice())?;
            txn.commit()?;
            Ok(())
        })
    }

    pub(crate) fn open(file: IndexFile, cache_bytes: usize, presence_bytes: usize) -> Result<Self> {
        Ok(Self {
            library: Library::open(file.clone(), cache_bytes)?,
            file,
            presence: Presence::new(presence_bytes),
            unreadable: Unreadable::default(),
            purges: AtomicBool::new(true),
        })
    }

    /// Opens the index of a store, on its device through the page cache and past it; with
    /// `read_only`, nothing is written to the device.
    pub(crate) fn open_at(
        dev: [Arc<dyn BlockIo>; 2],
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
        self.library.with(|db| {
            let table = db.begin_read()?.open_table(OBJECTS)?;
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
        })
    }

    pub(crate) fn file(&self) -> &IndexFile {
        &self.file
    }

    pub(crate) fn applied(&self) -> Result<Applied> {
        self.library.with(applied)
    }

    /// Looks up objects in one go.
    pub(crate) fn objects(&self, keys: &[ObjectKey]) -> Result<Vec<Option<Onode>>> {
        for key in keys {
            self.unreadable.check(key)?;
        }
        let found = self.library.with(|db| {
            let table = db.begin_read()?.open_table(OBJECTS)?;
            let get = |k: &ObjectKey| {
                table
                    .get(k.as_slice())?
                    .map(|v| Onode::decode(v.value()))
                    .transpose()
            };
            keys.iter().map(get).collect()
        });
        if let (Err(error @ StoreError::IndexPage { .. }), [key]) = (&found, keys) {
            self.unreadable.note(key, error);
        }
        found
    }

    pub(crate) fn pair(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.library.with(|db| {
            let table = db.begin_read()?.open_table(PAIRS)?;
            Ok(table.get(key)?.map(|v| Bytes::copy_from_slice(v.value())))
        })
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
        let page = self
            .library
            .with(|db| page::of_range(db, OBJECTS, (from, to), limit, T::part))?;
        let entries = page.entries.into_iter();
        let entries: Result<Vec<(Bytes, T)>> = entries.map(|(k, part)| Ok((k, T::decode(part)?))).collect();
        Ok(Page {
            entries: entries?,
            more: page.more,
            cut: page.cut,
        })
    }

    pub(crate) fn list_pairs(&self, from: &[u8], to: Option<&[u8]>, limit: PageLimit) -> Result<Page<Bytes>> {
        let range = (from, to);
        self.library.with(|db| match limit.values {
            true => page::of_range(db, PAIRS, range, limit, |v| Ok(v)),
            false => page::of_range(db, PAIRS, range, limit, |_| Ok(&[])),
        })
    }

    /// Looks up pairs in one go; those that exist, up to the limit's bytes.
    pub(crate) fn pairs(&self, keys: &[Bytes], limit: PageLimit) -> Result<Page<Bytes>> {
        self.library.with(|db| page::of_keys(db, PAIRS, keys, limit))
    }

    /// All free-space bitmaps: an empty one means all used.
    pub(crate) fn bitmaps(&self, mut each: impl FnMut(u32, &[u8]) -> Result<()>) -> Result<()> {
        self.library.with(|db| {
            for entry in db.begin_read()?.open_table(BITMAPS)?.iter()? {
                let (group, bitmap) = entry?;
                each(group.value(), bitmap.value())?;
            }
            Ok(())
        })
    }

    /// All counts of shared blocks.
    pub(crate) fn shared(&self) -> Result<BTreeMap<u64, u32>> {
        self.library.with(|db| {
            let table = db.begin_read()?.open_table(SHARED)?;
            table
                .iter()?
                .map(|e| e.map(|(k, v)| (k.value(), v.value())).map_err(Into::into))
                .collect()
        })
    }

    /// Number of entries of the tables, for humans: objects, pairs, shared blocks.
    pub(crate) fn counts(&self) -> Result<[u64; 3]> {
        self.library.with(|db| {
            let txn = db.begin_read()?;
            Ok([
                txn.open_table(OBJECTS)?.len()?,
                txn.open_table(PAIRS)?.len()?,
                txn.open_table(SHARED)?.len()?,
            ])
        })
    }

    /// Looks for rot in a piece of the index file from `page` on.
    pub(crate) fn examine(&self, page: u64) -> io::Result<Examined> {
        let found = self.file.examine(page);
        if found.as_ref().is_ok_and(|f| f.mended > 0) {
            self.unreadable.clear();
        }
        found
    }

    /// Removes some of the pairs that are garbage. Returns whether there are more.
    pub(crate) fn purge(&self) -> Result<bool> {
        if !self.purges.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.library.with(|db| {
            let txn = begin(db)?;
            let more = pairs::purge(&mut txn.open_table(PAIRS)?, &mut txn.open_table(GARBAGE)?)?;
            txn.commit()?;
            Ok(more)
        })
    }

    /// Applies a generation of changes and makes them durable, all or nothing.
    pub(crate) fn apply(&self, frozen: &Frozen, group_blocks: u32) -> Result<Outcome> {
        let mut outcome = None;
        let mut apply = |purges| {
            self.library.with(|db| {
                let before = applied(db)?;
                if let Some(outcome) = outcome.take_if(|_| before == frozen.applied) {
                    // It was made durable before another call met a damaged page.
                    return Ok(outcome);
                }
                let txn = begin(db)?;
                let mut made = commit::apply(&txn, frozen, group_blocks)?;
                if purges {
                    let purged = pairs::purge(&mut txn.open_table(PAIRS)?, &mut txn.open_table(GARBAGE)?);
                    made.garbage = purged.inspect_err(|_| self.purges.store(false, Ordering::Relaxed))?;
                }
                outcome = Some(made.clone());
                txn.commit()?;
                Ok(made)
            })
        };
        let purges = self.purges.load(Ordering::Relaxed);
        match apply(purges) {
            // Damaged garbage only costs space.
            Err(StoreError::IndexPage { .. }) if purges && !self.purges.load(Ordering::Relaxed) => {
                apply(false)
            }
            result => result,
        }
    }
}

/// Begins a change that is durable when it is committed.
fn begin(db: &Database) -> Result<WriteTransaction> {
    let mut txn = db.begin_write()?;
    txn.set_durability(Durability::Immediate)?;
    // Without this, opening after a crash would walk the whole index.
    txn.set_quick_repair(true);
    Ok(txn)
}

fn applied(db: &Database) -> Result<Applied> {
    let table = db.begin_read()?.open_table(STATE)?;
    let found = table.get(APPLIED)?.and_then(|v| Applied::decode(v.value()));
    found.ok_or_else(|| StoreError::damaged("index", "no state record"))
}
