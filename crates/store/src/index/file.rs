//! The index library's file: a virtual file on groups of the device, with a checksum on every page.
//!
//! A group given to the index is divided into leaves of at most 512 blocks. The first two blocks of
//! a leaf are alternating tables of checksums of its other blocks, the pages. A write to a page
//! never destroys anything that is still needed (the library copies on write), except for page 0,
//! the library's header, which has checksums of its own and is exempt. Before each flush the tables
//! of the changed leaves are written, each over its older copy. See FORMAT.md, "Index file".

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use redb::StorageBackend;
use spirula_buf::{Pool, PoolBuf};
use spirula_invariant::{impossible, invariant};

use crate::codec::{Dec, Enc};
use crate::config::{BLOCK, BLOCK64};
use crate::device::BlockIo;
use crate::ground::ready_bytes;
use crate::layout::{INDEX_MAP_LEN, INDEX_MAPS, Superblock};
use crate::open::SPARE_MIN;
use crate::{Result, StoreError};

/// Blocks of a leaf at most.
const LEAF_BLOCKS: u32 = 512;
/// Blocks of checksums at the start of a leaf.
const TABLES: u32 = 2;
/// Leaf tables kept in memory: 2 KiB each at most.
const RESIDENT_LEAVES: usize = 4096;

const MAP_MAGIC: u32 = 0x4d49_5053;
const LEAF_MAGIC: u32 = 0x4c49_5053;
const MAP_HEADER: usize = 40;
const LEAF_HEADER: usize = 32;

/// Most groups the index can have.
pub(crate) const MAX_INDEX_GROUPS: usize = (INDEX_MAP_LEN - MAP_HEADER - 4) / 8;

/// A group of the virtual file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mapped {
    group: u32,
    /// Version of the map that gave the group to the index: tells its leaf tables from those of an
    /// earlier use.
    birth: u32,
}

#[derive(Debug)]
struct Leaf {
    crcs: Vec<u32>,
    seq: u64,
    dirty: bool,
}

#[derive(Debug, Default)]
struct State {
    len: u64,
    map: Vec<Option<Mapped>>,
    version: u32,
    /// Random, given by `mkfs`: tells leaf tables from those of an earlier store on the same
    /// device.
    nonce: u64,
    map_dirty: bool,
    leaves: HashMap<u32, Leaf>,
    dirty: BTreeSet<u32>,
    /// Free groups to grow into. The map lists them too, as the library may have to grow before the
    /// store knows which groups are free.
    spare: Vec<u32>,
    /// Spare groups that have their space below, and are used first.
    ready: Vec<u32>,
    /// Groups that are no longer mapped, once the map is durable.
    dropped: Vec<u32>,
    written: u64,
    /// Pages written since the opening, if the store is opened read-only.
    overlay: HashMap<u64, Vec<u8>>,
}

#[derive(Debug)]
struct Inner {
    dev: Arc<dyn BlockIo>,
    group_blocks: u32,
    leaf_blocks: u32,
    read_only: bool,
    /// Groups that are kept ready.
    kept_ready: usize,
    state: Mutex<State>,
}

fn ready_groups(sb: &Superblock) -> usize {
    let group = u64::from(sb.group_blocks) * BLOCK64;
    ((ready_bytes(sb) / group) as usize).max(SPARE_MIN as usize)
}

/// A handle on the index file; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct IndexFile {
    inner: Arc<Inner>,
}

fn corrupt(detail: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, detail)
}

impl IndexFile {
    /// A new, empty file; [`IndexFile::sync`] writes its map.
    pub(crate) fn create(dev: Arc<dyn BlockIo>, sb: &Superblock) -> Self {
        let nonce = RandomState::new().build_hasher().finish();
        Self::with_state(
            dev,
            sb,
            State {
                nonce,
                map_dirty: true,
                ..State::default()
            },
            false,
        )
    }

    /// Opens the file by the newer of the two valid maps. With `read_only`, the library's writes
    /// stay in memory.
    pub(crate) fn open(dev: Arc<dyn BlockIo>, sb: &Superblock, read_only: bool) -> Result<Self> {
        let mut best: Option<State> = None;
        for at in INDEX_MAPS {
            let mut buf = Pool::new(0).get(INDEX_MAP_LEN);
            dev.read_at(at, &mut buf)
                .map_err(|e| StoreError::io("read index map", e))?;
            if let Some(state) = decode_map(&buf)
                && best.as_ref().is_none_or(|b| b.version < state.version)
            {
                best = Some(state);
            }
        }
        let state = best.ok_or_else(|| StoreError::damaged("index map", "no valid copy"))?;
        Ok(Self::with_state(dev, sb, state, read_only))
    }

    fn with_state(dev: Arc<dyn BlockIo>, sb: &Superblock, state: State, read_only: bool) -> Self {
        let leaf_blocks = sb.group_blocks.min(LEAF_BLOCKS);
        let inner = Inner {
            dev,
            group_blocks: sb.group_blocks,
            leaf_blocks,
            read_only,
            kept_ready: ready_groups(sb),
            state: Mutex::new(state),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The number of groups that should have their space before the index needs them.
    pub(crate) fn kept_ready(&self) -> usize {
        self.inner.kept_ready
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The groups of the file, and spare ones.
    pub(crate) fn groups(&self) -> Vec<u32> {
        let state = self.lock();
        state
            .map
            .iter()
            .flatten()
            .map(|m| m.group)
            .chain(state.spare.iter().copied())
            .chain(state.ready.iter().copied())
            .collect()
    }

    /// Groups that hold the file.
    pub(crate) fn mapped_count(&self) -> usize {
        self.lock().map.iter().flatten().count()
    }

    /// Groups ready to grow into.
    pub(crate) fn spare_count(&self) -> usize {
        let state = self.lock();
        state.spare.len() + state.ready.len()
    }

    /// The number of spare groups that have their space below.
    pub(crate) fn ready_count(&self) -> usize {
        self.lock().ready.len()
    }

    /// Takes the space below for one more group to grow into.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        let Some(group) = self.lock().spare.last().copied() else {
            return Ok(());
        };
        self.allocate(group)?;
        let mut state = self.lock();
        // It may have been put to use meanwhile.
        if state.spare.pop_if(|last| *last == group).is_some() {
            state.ready.push(group);
        }
        Ok(())
    }

    /// Takes the space below for all groups of the file: groups written by earlier versions may
    /// lack some.
    pub(crate) fn take_space(&self) -> io::Result<()> {
        let groups: Vec<u32> = self.lock().map.iter().flatten().map(|m| m.group).collect();
        groups.into_iter().try_for_each(|g| self.allocate(g))
    }

    /// The range of a group on the device, in bytes.
    fn place(&self, group: u32) -> Range<u64> {
        let len = u64::from(self.inner.group_blocks) * BLOCK64;
        let start = u64::from(group) * len;
        start..start + len
    }

    fn allocate(&self, group: u32) -> io::Result<()> {
        self.inner.dev.allocate(self.place(group))
    }

    /// Adds a free group to grow into.
    pub(crate) fn add_spare(&self, group: u32) {
        let mut state = self.lock();
        state.spare.push(group);
        state.map_dirty = true;
    }

    /// Bytes written to the device so far, checksums included.
    pub(crate) fn written(&self) -> u64 {
        self.lock().written
    }

    fn pages_per_leaf(&self) -> u64 {
        u64::from(self.inner.leaf_blocks - TABLES)
    }

    fn leaves_per_group(&self) -> u64 {
        u64::from(self.inner.group_blocks / self.inner.leaf_blocks)
    }

    /// Leaf and place in the leaf of a page.
    fn locate(&self, page: u64) -> (u32, usize) {
        let per = self.pages_per_leaf();
        ((page / per) as u32, (page % per) as usize)
    }

    /// First block of a leaf on the device; `None` if its group is not mapped.
    fn leaf_block(&self, state: &State, leaf: u32) -> Option<(u64, Mapped)> {
        let per = self.leaves_per_group();
        let mapped = (*state.map.get((u64::from(leaf) / per) as usize)?)?;
        let first = u64::from(mapped.group) * u64::from(self.inner.group_blocks);
        Some((
            first + u64::from(leaf) % per * u64::from(self.inner.leaf_blocks),
            mapped,
        ))
    }

    /// Splits pages into runs that lie in one leaf: (leaf, place in the leaf, pages).
    fn runs(&self, pages: Range<u64>) -> Vec<(u32, usize, Range<u64>)> {
        let mut out = Vec::new();
        let mut page = pages.start;
        while page < pages.end {
            let (leaf, at) = self.locate(page);
            let end = pages.end.min(page + self.pages_per_leaf() - at as u64);
            out.push((leaf, at, page..end));
            page = end;
        }
        out
    }

    /// Makes sure that the checksums of a leaf are in memory.
    fn load_leaf(&self, state: &mut State, leaf: u32) -> io::Result<()> {
        if state.leaves.contains_key(&leaf) {
            return Ok(());
        }
        let Some((first, mapped)) = self.leaf_block(state, leaf) else {
            return Err(corrupt(format!("leaf {leaf} of the index is not mapped")));
        };
        let mut buf = Pool::new(0).get(TABLES as usize * BLOCK);
        self.inner.dev.read_at(first * BLOCK64, &mut buf)?;
        let pages = self.pages_per_leaf() as usize;
        let copies = buf
            .chunks(BLOCK)
            .filter_map(|b| decode_leaf(b, leaf, (mapped.birth, state.nonce), pages));
        let newest = copies.max_by_key(|l| l.seq);
        let found =
            newest.ok_or_else(|| corrupt(format!("no valid checksum table for leaf {leaf} of the index")))?;
        if state.leaves.len() >= RESIDENT_LEAVES {
            state.leaves.retain(|_, l| l.dirty);
        }
        state.leaves.insert(leaf, found);
        Ok(())
    }

    /// Gives the group of `leaf` a place on the device, with fresh checksum tables.
    fn map_group(&self, state: &mut State, leaf: u32) -> io::Result<()> {
        let per = self.leaves_per_group();
        let at = (u64::from(leaf) / per) as usize;
        if at >= MAX_INDEX_GROUPS {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let next = state.ready.pop().or_else(|| state.spare.pop());
        let group = next.ok_or(io::ErrorKind::StorageFull)?;
        if state.map.len() <= at {
            state.map.resize(at + 1, None);
        }
        invariant!(state.map[at].is_none(), "a group of the index without a place"; group = group, at = at);
        if state.map.iter().flatten().any(|m| m.group == group) {
            return Err(corrupt(format!("group {group} is given to the index twice")));
        }
        state.map[at] = Some(Mapped {
            group,
            birth: state.version + 1,
        });
        state.map_dirty = true;
        for leaf in at as u64 * per..(at as u64 + 1) * per {
            let crcs = vec![0; self.pages_per_leaf() as usize];
            state.leaves.insert(
                leaf as u32,
                Leaf {
                    crcs,
                    seq: 0,
                    dirty: true,
                },
            );
            state.dirty.insert(leaf as u32);
        }
        Ok(())
    }

    fn read_pages(&self, pages: Range<u64>, out: &mut [u8], unwritten: Unwritten) -> io::Result<()> {
        if self.inner.read_only {
            for (page, part) in pages.zip(out.chunks_mut(BLOCK)) {
                let written = self.lock().overlay.get(&page).cloned();
                match written {
                    Some(data) => part.copy_from_slice(&data),
                    None => self.read_device(page..page + 1, part, unwritten)?,
                }
            }
            return Ok(());
        }
        self.read_device(pages, out, unwritten)
    }

    fn read_device(&self, pages: Range<u64>, out: &mut [u8], unwritten: Unwritten) -> io::Result<()> {
        let mut at_byte = 0;
        for (leaf, at, run) in self.runs(pages) {
            let count = (run.end - run.start) as usize;
            let part = &mut out[at_byte..at_byte + count * BLOCK];
            at_byte += part.len();
            let (offset, crcs) = {
                let mut state = self.lock();
                if self.leaf_block(&state, leaf).is_none() {
                    // Pages that `set_len` has added.
                    for (page, data) in run.zip(part.chunks_mut(BLOCK)) {
                        unwritten.fill(page, data)?;
                    }
                    continue;
                }
                self.load_leaf(&mut state, leaf)?;
                let Some((first, _)) = self.leaf_block(&state, leaf) else {
                    impossible!("a place for a leaf of the index that is mapped"; leaf = leaf)
                };
                let crcs = state.leaves[&leaf].crcs[at..at + count].to_vec();
                ((first + u64::from(TABLES) + at as u64) * BLOCK64, crcs)
            };
            self.inner.dev.read_at(offset, part)?;
            for ((page, data), crc) in run.zip(part.chunks_mut(BLOCK)).zip(crcs) {
                check_page(page, data, crc, unwritten)?;
            }
        }
        Ok(())
    }

    fn write_pages(&self, pages: Range<u64>, data: &[u8]) -> io::Result<()> {
        if self.inner.read_only {
            let copies = pages
                .zip(data.chunks(BLOCK))
                .map(|(page, part)| (page, part.to_vec()));
            self.lock().overlay.extend(copies);
            return Ok(());
        }
        let mut at_byte = 0;
        for (leaf, at, run) in self.runs(pages) {
            let count = (run.end - run.start) as usize;
            let part = &data[at_byte..at_byte + count * BLOCK];
            at_byte += part.len();
            let offset = {
                let mut state = self.lock();
                if self.leaf_block(&state, leaf).is_none() {
                    self.map_group(&mut state, leaf)?;
                }
                self.load_leaf(&mut state, leaf)?;
                let state = &mut *state;
                let Some(l) = state.leaves.get_mut(&leaf) else {
                    impossible!("the checksums of a leaf of the index that is written"; leaf = leaf)
                };
                l.dirty = true;
                for ((page, data), crc) in run.zip(part.chunks(BLOCK)).zip(&mut l.crcs[at..]) {
                    *crc = page_crc(page, data);
                }
                state.dirty.insert(leaf);
                state.written += part.len() as u64;
                let Some((first, _)) = self.leaf_block(state, leaf) else {
                    impossible!("a place for a leaf of the index that is written"; leaf = leaf)
                };
                (first + u64::from(TABLES) + at as u64) * BLOCK64
            };
            self.inner.dev.write_at(offset, part)?;
        }
        Ok(())
    }

    /// Makes everything durable: checksum tables of changed leaves with the pages, then the map if
    /// it has changed.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let mut tables = Vec::new();
        let map = {
            let mut state = self.lock();
            let state = &mut *state;
            for leaf in std::mem::take(&mut state.dirty) {
                let Some((first, mapped)) = self.leaf_block(state, leaf) else {
                    impossible!("a place for a leaf of the index that has changed"; leaf = leaf)
                };
                let Some(l) = state.leaves.get_mut(&leaf).filter(|l| l.dirty) else {
                    impossible!("the checksums of a leaf of the index that has changed"; leaf = leaf)
                };
                l.seq += 1;
                l.dirty = false;
                tables.push((
                    (first + l.seq % u64::from(TABLES)) * BLOCK64,
                    encode_leaf(l, leaf, (mapped.birth, state.nonce)),
                ));
            }
            state.written += (tables.len() * BLOCK) as u64;
            state.map_dirty.then(|| {
                state.map_dirty = false;
                state.version += 1;
                (state.version, encode_map(state))
            })
        };
        for (offset, table) in tables {
            self.inner.dev.write_at(offset, &table)?;
        }
        self.inner.dev.sync()?;
        if let Some((version, map)) = map {
            self.inner.dev.write_at(INDEX_MAPS[version as usize % 2], &map)?;
            self.inner.dev.sync()?;
            let dropped = std::mem::take(&mut self.lock().dropped);
            for group in dropped {
                if self.lock().ready.len() < self.inner.kept_ready {
                    self.lock().ready.push(group);
                    continue;
                }
                // Where that is not possible it keeps its space.
                let _ = self.inner.dev.discard(self.place(group));
                self.lock().spare.push(group);
            }
        }
        Ok(())
    }

    /// Drops whole groups beyond the end.
    fn shrink(&self, state: &mut State, len: u64) {
        let per_group = self.pages_per_leaf() * self.leaves_per_group() * BLOCK64;
        let keep = len.div_ceil(per_group) as usize;
        if keep < state.map.len() {
            let dropped: Vec<u32> = state.map.drain(keep..).flatten().map(|m| m.group).collect();
            state.dropped.extend(dropped);
            let leaves = (keep as u64 * self.leaves_per_group()) as u32;
            state.leaves.retain(|l, _| *l < leaves);
            state.dirty.retain(|l| *l < leaves);
        }
    }
}

/// Checksum of a page, which depends on its number so that a misplaced page is noticed. Never 0,
/// which means "not written".
fn page_crc(page: u64, data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&page.to_le_bytes()), data).max(1)
}

fn check_page(page: u64, data: &mut [u8], crc: u32, unwritten: Unwritten) -> io::Result<()> {
    if crc == 0 {
        return unwritten.fill(page, data);
    }
    if page != 0 && page_crc(page, data) != crc {
        return Err(corrupt(format!("checksum mismatch in page {page} of the index")));
    }
    Ok(())
}

/// The meaning of a page without a checksum for its reader.
#[derive(Debug, Clone, Copy)]
enum Unwritten {
    /// The page is about to be written in part.
    Zeros,
    /// The library only reads pages that it has written: the table with this page's checksum did
    /// not reach its place.
    Lost,
}

impl Unwritten {
    fn fill(self, page: u64, data: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Zeros => data.fill(0),
            Self::Lost => return Err(corrupt(format!("page {page} of the index was never written"))),
        }
        Ok(())
    }
}

fn aligned_copy(bytes: &[u8], len: usize) -> PoolBuf {
    let mut buf = Pool::new(0).get(len);
    buf.fill(0);
    buf[..bytes.len()].copy_from_slice(bytes);
    buf
}

fn seal(mut bytes: Vec<u8>, len: usize) -> PoolBuf {
    bytes.resize(len - 4, 0);
    let crc = crc32c::crc32c(&bytes);
    Enc(&mut bytes).u32(crc);
    aligned_copy(&bytes, len)
}

fn unseal(block: &[u8]) -> Option<Dec<'_>> {
    let (body, crc) = block.split_at_checked(block.len().checked_sub(4)?)?;
    (crc32c::crc32c(body).to_le_bytes() == *crc).then(|| Dec::new(body))
}

fn encode_map(state: &State) -> PoolBuf {
    let mut out = Vec::with_capacity(INDEX_MAP_LEN);
    let mut e = Enc(&mut out);
    e.u32(MAP_MAGIC);
    e.u32(state.version);
    e.u64(state.len);
    e.u32(state.map.len() as u32);
    let spare = || state.spare.iter().chain(&state.ready).chain(&state.dropped);
    e.u32(spare().count() as u32);
    e.u64(state.nonce);
    e.0.resize(MAP_HEADER, 0);
    for m in &state.map {
        let m = m.unwrap_or(Mapped {
            group: u32::MAX,
            birth: 0,
        });
        e.u32(m.group);
        e.u32(m.birth);
    }
    for group in spare() {
        e.u32(*group);
        e.u32(0);
    }
    seal(out, INDEX_MAP_LEN)
}

fn decode_map(block: &[u8]) -> Option<State> {
    let mut d = unseal(block)?;
    if d.u32()? != MAP_MAGIC {
        return None;
    }
    let mut state = State {
        version: d.u32()?,
        len: d.u64()?,
        ..State::default()
    };
    let count = d.u32()? as usize;
    let spare = d.u32()? as usize;
    state.nonce = d.u64()?;
    d.take(MAP_HEADER - 32)?;
    if count.checked_add(spare)? > MAX_INDEX_GROUPS {
        return None;
    }
    for _ in 0..count {
        let m = Mapped {
            group: d.u32()?,
            birth: d.u32()?,
        };
        state.map.push((m.group != u32::MAX).then_some(m));
    }
    for _ in 0..spare {
        state.spare.push(d.u32()?);
        d.u32()?;
    }
    Some(state)
}

fn encode_leaf(leaf: &Leaf, number: u32, (birth, nonce): (u32, u64)) -> PoolBuf {
    let mut out = Vec::with_capacity(BLOCK);
    let mut e = Enc(&mut out);
    e.u32(LEAF_MAGIC);
    e.u32(number);
    e.u32(birth);
    e.u32(leaf.crcs.len() as u32);
    e.u64(leaf.seq);
    e.u64(nonce);
    e.0.resize(LEAF_HEADER, 0);
    e.crcs(&leaf.crcs);
    seal(out, BLOCK)
}

fn decode_leaf(block: &[u8], number: u32, (birth, nonce): (u32, u64), pages: usize) -> Option<Leaf> {
    let mut d = unseal(block)?;
    let header = [d.u32()?, d.u32()?, d.u32()?, d.u32()?];
    if header != [LEAF_MAGIC, number, birth, pages as u32] {
        return None;
    }
    let seq = d.u64()?;
    if d.u64()? != nonce {
        return None;
    }
    Some(Leaf {
        crcs: d.crcs(pages)?,
        seq,
        dirty: false,
    })
}

impl StorageBackend for IndexFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset + out.len() as u64;
        if end > self.lock().len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let pages = offset / BLOCK64..end.div_ceil(BLOCK64);
        let whole = (pages.end - pages.start) as usize * BLOCK;
        if whole == out.len() {
            return self.read_pages(pages, out, Unwritten::Lost);
        }
        let skip = (offset % BLOCK64) as usize;
        let mut buf = Pool::new(0).get(whole);
        self.read_pages(pages, &mut buf, Unwritten::Lost)?;
        out.copy_from_slice(&buf[skip..skip + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.lock();
        let old = state.len;
        state.len = len;
        state.map_dirty = true;
        if len >= old || self.inner.read_only {
            return Ok(());
        }
        self.shrink(&mut state, len);
        // The rest of the last group must read as zeros if the file grows again.
        let state = &mut *state;
        for page in len.div_ceil(BLOCK64)..old.div_ceil(BLOCK64) {
            let (leaf, at) = self.locate(page);
            if self.leaf_block(state, leaf).is_none() {
                continue;
            }
            self.load_leaf(state, leaf)?;
            if let Some(l) = state.leaves.get_mut(&leaf) {
                l.crcs[at] = 0;
                l.dirty = true;
                state.dirty.insert(leaf);
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.inner.read_only { Ok(()) } else { self.sync() }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset + data.len() as u64;
        let pages = offset / BLOCK64..end.div_ceil(BLOCK64);
        let whole = (pages.end - pages.start) as usize * BLOCK;
        if whole == data.len() {
            return self.write_pages(pages, data);
        }
        let skip = (offset % BLOCK64) as usize;
        let mut buf = Pool::new(0).get(whole);
        self.read_pages(pages.clone(), &mut buf, Unwritten::Zeros)?;
        buf[skip..skip + data.len()].copy_from_slice(data);
        self.write_pages(pages, &buf)
    }
}
