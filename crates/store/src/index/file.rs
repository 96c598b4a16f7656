//! The index library's file: a virtual file on groups of the device, with a checksum on every page.
//!
//! A group given to the index is divided into leaves of at most 512 blocks. The first two blocks of
//! a leaf are alternating tables of checksums of its other blocks, the pages. A write to a page
//! never destroys anything that is still needed (the library copies on write), except for page 0,
//! the library's header, which has checksums of its own and is exempt. Before each flush the tables
//! of the changed leaves are written, each over its older copy. See FORMAT.md, "Index file".

mod examine;
mod format;

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use redb::StorageBackend;
use spirula_buf::Pool;
use spirula_invariant::{impossible, invariant};

pub(crate) use examine::{Examined, Rotten};
pub(super) use format::HEADER_LEN;
pub(crate) use format::MAX_INDEX_GROUPS;
use format::{decode_leaf, decode_map, encode_leaf, encode_map, header_of, page_crc};

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
    /// Of the first leaf: the library's header in page 0, as it was last written. `None` if an
    /// earlier version wrote it.
    header: Option<Box<[u8]>>,
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
    /// Pages that are read from here instead of the device: those written since the opening, if the
    /// store is opened read-only, and those that stand in for damaged ones.
    overlay: HashMap<u64, Vec<u8>>,
    /// Pages on their way to the device: their checksums are known before they are there.
    in_flight: Vec<Range<u64>>,
    /// Whether a write or flush has failed: nothing is written any more.
    failed: bool,
}

#[derive(Debug)]
struct Inner {
    /// The device through the page cache.
    dev: Arc<dyn BlockIo>,
    /// The device past the page cache.
    direct: Arc<dyn BlockIo>,
    group_blocks: u32,
    leaf_blocks: u32,
    read_only: bool,
    /// Groups that are kept ready.
    kept_ready: usize,
    state: Mutex<State>,
    /// Held while tables and the map are written and made durable.
    syncing: Mutex<()>,
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

/// A page of the index that can't be read, as the library passes it on.
#[derive(Debug)]
pub(crate) struct BadPage {
    /// Its number.
    pub(crate) page: u64,
    /// What is wrong with it.
    problem: String,
}

impl BadPage {
    fn error(page: u64, problem: impl fmt::Display) -> io::Error {
        let problem = problem.to_string();
        io::Error::new(io::ErrorKind::InvalidData, Self { page, problem })
    }

    /// The bad page that an error of the library is about.
    pub(crate) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for BadPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} of the index {}", self.page, self.problem)
    }
}

impl std::error::Error for BadPage {}

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
            Self::Lost => return Err(BadPage::error(page, "was never written")),
        }
        Ok(())
    }
}

/// Pages of one leaf, and what is known of them.
struct Run {
    pages: Range<u64>,
    /// Offset on the device in bytes.
    offset: u64,
    crcs: Vec<u32>,
    /// The library's header, if page 0 is among them.
    header: Option<Box<[u8]>>,
}

impl IndexFile {
    /// A new, empty file; [`IndexFile::sync`] writes its map.
    pub(crate) fn create(dev: Arc<dyn BlockIo>, sb: &Superblock) -> Self {
        let nonce = RandomState::new().build_hasher().finish();
        let devices = [Arc::clone(&dev), dev];
        Self::with_state(
            devices,
            sb,
            State {
                nonce,
                map_dirty: true,
                ..State::default()
            },
            false,
        )
    }

    /// Opens the file by the newer of the two valid maps, on the device through the page cache and
    /// past it. With `read_only`, the library's writes stay in memory.
    pub(crate) fn open(devices: [Arc<dyn BlockIo>; 2], sb: &Superblock, read_only: bool) -> Result<Self> {
        // What the page cache has wrong is asked of the device.
        let read = |dev: &Arc<dyn BlockIo>, at| {
            let mut buf = Pool::new(0).get(INDEX_MAP_LEN);
            dev.read_at(at, &mut buf).map(|()| decode_map(&buf))
        };
        let copy = |at| match read(&devices[0], at) {
            Ok(Some(state)) => Ok(Some(state)),
            _ => read(&devices[1], at),
        };
        let copies = INDEX_MAPS.map(copy);
        let unread = copies.iter().find_map(|c| c.as_ref().err().map(io::Error::kind));
        let [a, b] = copies.map(|c| c.ok().flatten());
        let version = |state: &Option<State>| state.as_ref().map_or(0, |s| s.version);
        let (newest, other) = match version(&a) >= version(&b) {
            true => (a, version(&b)),
            false => (b, version(&a)),
        };
        let mut state = newest.ok_or_else(|| match unread {
            Some(kind) => StoreError::io("read index map", kind.into()),
            None => StoreError::damaged("index map", "no valid copy"),
        })?;
        // A crash may have torn the other one.
        state.map_dirty = state.version > 1 && other == 0;
        Ok(Self::with_state(devices, sb, state, read_only))
    }

    fn with_state(
        [dev, direct]: [Arc<dyn BlockIo>; 2],
        sb: &Superblock,
        state: State,
        read_only: bool,
    ) -> Self {
        let leaf_blocks = sb.group_blocks.min(LEAF_BLOCKS);
        let inner = Inner {
            dev,
            direct,
            group_blocks: sb.group_blocks,
            leaf_blocks,
            read_only,
            kept_ready: ready_groups(sb),
            state: Mutex::new(state),
            syncing: Mutex::new(()),
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

    /// The first page of a leaf.
    fn first_page(&self, leaf: u32) -> u64 {
        u64::from(leaf) * self.pages_per_leaf()
    }

    /// The newest valid table of a leaf at this block, from this device.
    fn read_leaf(&self, dev: &dyn BlockIo, at: (u64, Mapped), leaf: u32, nonce: u64) -> io::Result<Leaf> {
        let (first, mapped) = at;
        let bad = |problem: &dyn fmt::Display| BadPage::error(self.first_page(leaf), problem);
        let mut buf = Pool::new(0).get(TABLES as usize * BLOCK);
        let read = dev.read_at(first * BLOCK64, &mut buf);
        read.map_err(|e| bad(&format_args!("has no checksum: {e}")))?;
        let pages = self.pages_per_leaf() as usize;
        let copies = buf
            .chunks(BLOCK)
            .filter_map(|b| decode_leaf(b, leaf, (mapped.birth, nonce), pages));
        let newest = copies.max_by_key(|l| l.seq);
        newest.ok_or_else(|| bad(&"has no checksum: both tables of its leaf are damaged"))
    }

    /// Makes sure that the checksums of a leaf are in memory.
    fn load_leaf(&self, state: &mut State, leaf: u32) -> io::Result<()> {
        if state.leaves.contains_key(&leaf) {
            return Ok(());
        }
        let Some(at) = self.leaf_block(state, leaf) else {
            return Err(BadPage::error(self.first_page(leaf), "has no place"));
        };
        let cached = self.read_leaf(&*self.inner.dev, at, leaf, state.nonce);
        // The device itself decides what it holds.
        let found = cached.or_else(|_| self.read_leaf(&*self.inner.direct, at, leaf, state.nonce))?;
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
            let text = format!("group {group} is given to the index twice");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
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
                    header: None,
                },
            );
            state.dirty.insert(leaf as u32);
        }
        Ok(())
    }

    fn read_pages(&self, pages: Range<u64>, out: &mut [u8], unwritten: Unwritten) -> io::Result<()> {
        if self.lock().overlay.is_empty() {
            return self.read_device(pages, out, unwritten);
        }
        for (page, part) in pages.zip(out.chunks_mut(BLOCK)) {
            let written = self.lock().overlay.get(&page).cloned();
            match written {
                Some(data) => part.copy_from_slice(&data),
                None => self.read_device(page..page + 1, part, unwritten)?,
            }
        }
        Ok(())
    }

    /// What is known of pages of one leaf; `None` if its group has no place.
    fn look_up(&self, leaf: u32, at: usize, pages: Range<u64>) -> io::Result<Option<Run>> {
        let mut state = self.lock();
        let Some((first, _)) = self.leaf_block(&state, leaf) else {
            return Ok(None);
        };
        self.load_leaf(&mut state, leaf)?;
        let l = &state.leaves[&leaf];
        let count = (pages.end - pages.start) as usize;
        Ok(Some(Run {
            offset: (first + u64::from(TABLES) + at as u64) * BLOCK64,
            crcs: l.crcs[at..at + count].to_vec(),
            header: l.header.clone().filter(|_| pages.start == 0),
            pages,
        }))
    }

    fn read_device(&self, pages: Range<u64>, out: &mut [u8], unwritten: Unwritten) -> io::Result<()> {
        let mut at_byte = 0;
        for (leaf, at, run) in self.runs(pages) {
            let count = (run.end - run.start) as usize;
            let part = &mut out[at_byte..at_byte + count * BLOCK];
            at_byte += part.len();
            let Some(run) = self.look_up(leaf, at, run.clone())? else {
                // Pages that `set_len` has added.
                for (page, data) in run.zip(part.chunks_mut(BLOCK)) {
                    unwritten.fill(page, data)?;
                }
                continue;
            };
            let is_read = self.inner.dev.read_at(run.offset, part).is_ok();
            for (i, data) in part.chunks_mut(BLOCK).enumerate() {
                self.check_page(&run, i, data, is_read, unwritten)?;
            }
        }
        Ok(())
    }

    /// Checks a page that was read through the page cache, if it could be read. What is wrong there
    /// is read from the device itself.
    fn check_page(
        &self,
        run: &Run,
        i: usize,
        data: &mut [u8],
        is_read: bool,
        unwritten: Unwritten,
    ) -> io::Result<()> {
        let (page, crc) = (run.pages.start + i as u64, run.crcs[i]);
        if crc == 0 {
            return unwritten.fill(page, data);
        }
        if is_read && page_crc(page, data) == crc {
            return Ok(());
        }
        let mut buf = Pool::new(0).get(BLOCK);
        let read = self
            .inner
            .direct
            .read_at(run.offset + i as u64 * BLOCK64, &mut buf);
        data.copy_from_slice(&buf);
        match (read, page, &run.header) {
            (Ok(()), ..) if page_crc(page, data) == crc => Ok(()),
            // A crash may have come between the page and the table with its checksum; either is
            // right then. Damage may have come to the page alone.
            (_, 0, Some(header)) => {
                data.fill(0);
                data[..header.len()].copy_from_slice(header);
                Ok(())
            }
            // Earlier versions kept no copy: the library's own checksums must do.
            (Ok(()), 0, None) => Ok(()),
            (Ok(()), ..) => Err(BadPage::error(page, "does not match its checksum")),
            (Err(e), ..) => Err(BadPage::error(page, format_args!("can't be read: {e}"))),
        }
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
            let offset = self.note_pages(leaf, at, &run, part)?;
            let written = self.inner.dev.write_at(offset, part);
            let mut state = self.lock();
            state.in_flight.retain(|r| *r != run);
            state.failed |= written.is_err();
            written?;
        }
        Ok(())
    }

    /// Notes the checksums of pages that are about to be written; returns their place.
    fn note_pages(&self, leaf: u32, at: usize, run: &Range<u64>, part: &[u8]) -> io::Result<u64> {
        let mut state = self.lock();
        if state.failed {
            return Err(io::Error::other("an earlier write of the index failed"));
        }
        if self.leaf_block(&state, leaf).is_none() {
            self.map_group(&mut state, leaf)?;
        }
        self.load_leaf(&mut state, leaf)?;
        let state = &mut *state;
        let Some(l) = state.leaves.get_mut(&leaf) else {
            impossible!("the checksums of a leaf of the index that is written"; leaf = leaf)
        };
        l.dirty = true;
        for ((page, data), crc) in run.clone().zip(part.chunks(BLOCK)).zip(&mut l.crcs[at..]) {
            *crc = page_crc(page, data);
            state.overlay.remove(&page);
        }
        if run.start == 0 {
            l.header = header_of(&part[..BLOCK]);
        }
        state.dirty.insert(leaf);
        state.written += part.len() as u64;
        state.in_flight.push(run.clone());
        let Some((first, _)) = self.leaf_block(state, leaf) else {
            impossible!("a place for a leaf of the index that is written"; leaf = leaf)
        };
        Ok((first + u64::from(TABLES) + at as u64) * BLOCK64)
    }

    /// Whether a write or flush has failed, after which nothing is written any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.lock().failed
    }

    /// The library's header as it was last written.
    pub(super) fn header(&self) -> io::Result<Vec<u8>> {
        let mut header = vec![0; BLOCK];
        self.read_pages(0..1, &mut header, Unwritten::Lost)?;
        header.truncate(HEADER_LEN);
        Ok(header)
    }

    /// Fills `out` with whole pages from `page` on.
    pub(super) fn read_from(&self, page: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_pages(page..page + (out.len() / BLOCK) as u64, out, Unwritten::Lost)
    }

    /// Lets these contents stand in for damaged pages from `page` on, until something is written
    /// there or [`IndexFile::take_back`].
    pub(super) fn lend(&self, page: u64, data: &[u8]) {
        let pages = data
            .chunks(BLOCK)
            .enumerate()
            .map(|(i, d)| (page + i as u64, d.to_vec()));
        self.lock().overlay.extend(pages);
    }

    /// Ends all of [`IndexFile::lend`].
    pub(super) fn take_back(&self) {
        self.lock().overlay.clear();
    }

    /// Makes everything durable: checksum tables of changed leaves with the pages, then the map if
    /// it has changed.
    pub(crate) fn sync(&self) -> io::Result<()> {
        // One at a time: a caller must not return before the tables that another one writes are
        // durable.
        let _syncing = self.inner.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.has_failed() {
            return Err(io::Error::other("an earlier write of the index failed"));
        }
        let synced = self.write_tables();
        self.lock().failed |= synced.is_err();
        synced
    }

    fn write_tables(&self) -> io::Result<()> {
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
