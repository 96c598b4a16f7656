//! Looks for rot in the index file: reads pages, tables and maps past all caches, a piece at a time.
//!
//! What is wrong on the device and right in memory (a table, the map) or in the page cache (a page)
//! is written anew.

use std::io;
use std::ops::Range;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use spirula_buf::{Pool, PoolBuf};

use super::format::{decode_map, page_crc};
use super::{IndexFile, Mapped, TABLES};
use crate::config::{BLOCK, BLOCK64};
use crate::layout::{INDEX_MAP_LEN, INDEX_MAPS};

/// Pages of one piece at most: 512 KiB.
const PIECE: u64 = 128;
/// How often a page is looked at again that is written meanwhile, and the pause before that.
const LOOKS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// A page that is damaged on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rotten {
    pub(crate) page: u64,
    /// The checksum that it should have; 0 if the table that had it is damaged.
    pub(crate) crc: u32,
}

/// What a piece of the walk has found.
#[derive(Debug, Default)]
pub(crate) struct Examined {
    /// The page to go on with; `None` at the end.
    pub(crate) next: Option<u64>,
    /// Pages that were read.
    pub(crate) read: u64,
    /// Pages, tables and maps that were damaged and are written anew.
    pub(crate) mended: u64,
    /// Whether it is the older place of the map that has no valid one: a crash may have torn the map
    /// that was being written there.
    pub(crate) torn: bool,
    /// Pages that are damaged.
    pub(crate) rotten: Vec<Rotten>,
}

/// Pages of one leaf as they should be.
struct Piece {
    leaf: u32,
    /// The place of the first page in the leaf.
    at: usize,
    pages: Range<u64>,
    /// Offset on the device in bytes.
    offset: u64,
}

/// What is known of a page now.
enum Known {
    /// Its checksum: 0 if it is not written.
    Crc(u32),
    /// It is being written.
    Moving,
}

impl IndexFile {
    /// The number of pages that have a place.
    pub(crate) fn pages(&self) -> u64 {
        self.lock().map.len() as u64 * self.pages_per_group()
    }

    fn pages_per_group(&self) -> u64 {
        self.pages_per_leaf() * self.leaves_per_group()
    }

    /// Examines a piece of the file from `page` on.
    ///
    /// # Errors
    /// A damaged table or map that is written anew could not be made durable.
    pub(crate) fn examine(&self, page: u64) -> io::Result<Examined> {
        let (leaf, at) = self.locate(page);
        let Some((first, mapped)) = self.leaf_block(&self.lock(), leaf) else {
            return self.pass_over(page);
        };
        let end = (page + PIECE).min(self.first_page(leaf + 1));
        let piece = Piece {
            leaf,
            at,
            offset: (first + u64::from(TABLES) + at as u64) * BLOCK64,
            pages: page..end,
        };
        let mut found = Examined {
            next: Some(end).filter(|next| *next < self.pages()),
            ..Examined::default()
        };
        match self.table_of(leaf, (first, mapped), at == 0, &mut found.mended) {
            Some(crcs) => self.examine_pages(&piece, &crcs, &mut found),
            // No page has a checksum any more.
            None => found
                .rotten
                .extend(piece.pages.map(|page| Rotten { page, crc: 0 })),
        }
        if found.next.is_none() {
            self.examine_maps(&mut found);
        }
        self.make_durable(&found)?;
        Ok(found)
    }

    fn make_durable(&self, found: &Examined) -> io::Result<()> {
        match found.mended > 0 && !self.inner.read_only {
            true => self.sync(),
            false => Ok(()),
        }
    }

    /// Goes on behind pages without a place.
    fn pass_over(&self, page: u64) -> io::Result<Examined> {
        let per = self.pages_per_group();
        let next = (page / per + 1) * per;
        let mut found = Examined {
            next: Some(next).filter(|next| *next < self.pages()),
            ..Examined::default()
        };
        if found.next.is_none() {
            self.examine_maps(&mut found);
        }
        self.make_durable(&found)?;
        Ok(found)
    }

    /// The checksums of a leaf. `looks`: its tables are read, and written anew if they are damaged
    /// and the checksums are in memory. `None` if all that had them is damaged.
    fn table_of(&self, leaf: u32, place: (u64, Mapped), looks: bool, mended: &mut u64) -> Option<Vec<u32>> {
        // No table is written meanwhile.
        let _syncing = self.inner.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let resident = self.lock().leaves.get(&leaf).map(|l| (l.crcs.clone(), l.seq));
        if let (Some((crcs, _)), false) = (&resident, looks) {
            return Some(crcs.clone());
        }
        let nonce = self.lock().nonce;
        let stored = self.read_leaf(&*self.inner.direct, place, leaf, nonce).ok();
        let Some((crcs, seq)) = resident else {
            return stored.map(|l| l.crcs);
        };
        // A group that is new has no table yet.
        if seq > 0 && stored.is_none_or(|s| s.seq != seq) && !self.inner.read_only {
            let mut state = self.lock();
            let state = &mut *state;
            if let Some(l) = state.leaves.get_mut(&leaf) {
                // The next one takes the place of the damaged one, not of the one that is left.
                l.seq += 1;
                l.dirty = true;
                state.dirty.insert(leaf);
                *mended += 1;
            }
        }
        Some(crcs)
    }

    fn examine_pages(&self, piece: &Piece, crcs: &[u32], found: &mut Examined) {
        let count = (piece.pages.end - piece.pages.start) as usize;
        let mut buf = Pool::new(0).get(count * BLOCK);
        let is_read = self.inner.direct.read_at(piece.offset, &mut buf).is_ok();
        for (i, (page, data)) in piece.pages.clone().zip(buf.chunks(BLOCK)).enumerate() {
            let crc = crcs[piece.at + i];
            if crc == 0 {
                continue;
            }
            found.read += 1;
            if !is_read || page_crc(page, data) != crc {
                self.look_again(piece, page, found);
            }
        }
    }

    /// What is known of a page of a piece.
    fn known(&self, piece: &Piece, page: u64) -> Known {
        let mut state = self.lock();
        if state.in_flight.iter().any(|r| r.contains(&page)) {
            return Known::Moving;
        }
        if self.load_leaf(&mut state, piece.leaf).is_err() {
            return Known::Crc(0);
        }
        let at = piece.at + (page - piece.pages.start) as usize;
        let leaf = &state.leaves[&piece.leaf];
        match leaf.crcs[at] {
            // An earlier version has written the library's header: it has checksums of its own.
            _ if page == 0 && leaf.header.is_none() => Known::Crc(0),
            crc => Known::Crc(crc),
        }
    }

    /// Looks at a page again that seems to be wrong: it may have been written meanwhile.
    fn look_again(&self, piece: &Piece, page: u64, found: &mut Examined) {
        let offset = piece.offset + (page - piece.pages.start) * BLOCK64;
        let mut buf = Pool::new(0).get(BLOCK);
        let mut before = None;
        for _ in 0..LOOKS {
            let Known::Crc(crc) = self.known(piece, page) else {
                thread::sleep(PAUSE);
                continue;
            };
            if crc == 0 {
                return; // Nothing needs it any more.
            }
            let read = self.inner.direct.read_at(offset, &mut buf);
            if read.is_ok() && page_crc(page, &buf) == crc {
                return; // It was written meanwhile.
            }
            if before.replace(crc) == Some(crc) {
                // The same is expected as before it was read.
                match self.write_anew(piece, page, crc) {
                    true => found.mended += 1,
                    false => found.rotten.push(Rotten { page, crc }),
                }
                return; // It is dealt with.
            }
        }
        // It is written all the time: what was there is gone.
    }

    /// Writes a damaged page again as the page cache still has it; page 0 as its leaf's table has
    /// it.
    fn write_anew(&self, piece: &Piece, page: u64, crc: u32) -> bool {
        let offset = piece.offset + (page - piece.pages.start) * BLOCK64;
        let mut good = Pool::new(0).get(BLOCK);
        if self.inner.dev.read_at(offset, &mut good).is_err() || page_crc(page, &good) != crc {
            let header = self.lock().leaves.get(&piece.leaf).and_then(|l| l.header.clone());
            let Some(header) = header.filter(|_| page == 0) else {
                return false;
            };
            good.fill(0);
            good[..header.len()].copy_from_slice(&header);
        }
        if self.inner.read_only || page_crc(page, &good) != crc {
            return false;
        }
        // Nobody begins to write it while this is locked.
        let mut state = self.lock();
        let at = piece.at + (page - piece.pages.start) as usize;
        let is_same = state.leaves.get(&piece.leaf).is_some_and(|l| l.crcs[at] == crc);
        if !is_same || state.in_flight.iter().any(|r| r.contains(&page)) {
            return true; // What is written now is right.
        }
        let written = self.inner.dev.write_at(offset, &good);
        state.failed |= written.is_err();
        written.is_ok() && self.is_right(offset, page, crc)
    }

    /// Whether the device has a page as it should be.
    fn is_right(&self, offset: u64, page: u64, crc: u32) -> bool {
        let mut buf = Pool::new(0).get(BLOCK);
        self.inner.direct.read_at(offset, &mut buf).is_ok() && page_crc(page, &buf) == crc
    }

    /// Reads both copies of the map, and notes whether one is damaged and will be written anew.
    fn examine_maps(&self, found: &mut Examined) {
        let _syncing = self.inner.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let version = self.lock().version;
        let copy = |version: u32| {
            let mut buf: PoolBuf = Pool::new(0).get(INDEX_MAP_LEN);
            let at = INDEX_MAPS[version as usize % 2];
            let read = self.inner.direct.read_at(at, &mut buf);
            read.ok()
                .and_then(|()| decode_map(&buf))
                .map_or(0, |map| map.version)
        };
        let is_lost = copy(version) != version;
        // The first version leaves the other place empty.
        let is_damaged = is_lost || version > 1 && copy(version + 1) == 0;
        if is_damaged && !self.inner.read_only {
            let mut state = self.lock();
            // The next one takes the place of the damaged one, not of the one that is left.
            state.version += u32::from(is_lost);
            state.map_dirty = true;
        }
        found.mended += u64::from(is_damaged);
        found.torn = is_damaged && !is_lost;
    }

    /// Examines one page.
    ///
    /// # Errors
    /// As [`IndexFile::examine`].
    pub(crate) fn examine_page(&self, page: u64) -> io::Result<Option<Rotten>> {
        // The piece may have others.
        let found = self.examine(page)?;
        let found = found.rotten.into_iter().find(|r| r.page == page);
        // The older copy of a table has no checksum of a page that was first written since, and that of
        // the map no place for it.
        let is_unknown = || page != 0 && self.crc(page).unwrap_or(0) == 0;
        Ok(found.or_else(|| is_unknown().then_some(Rotten { page, crc: 0 })))
    }

    /// The checksum that a page should have: 0 if none is known. `None` if the page has no table.
    fn crc(&self, page: u64) -> Option<u32> {
        let (leaf, at) = self.locate(page);
        let mut state = self.lock();
        self.load_leaf(&mut state, leaf).ok()?;
        Some(state.leaves[&leaf].crcs[at])
    }

    /// Forgets pages that are not in use any more, whatever is in them.
    pub(crate) fn erase(&self, pages: &[u64]) {
        let rotten = |page: &u64| {
            let (page, crc) = (*page, self.crc(*page)?);
            Some(Rotten { page, crc })
        };
        let pages: Vec<Rotten> = pages.iter().filter_map(rotten).collect();
        self.forget(&pages);
    }

    /// Forgets damaged pages that nothing refers to, as long as nobody has written them since.
    pub(crate) fn forget(&self, pages: &[Rotten]) {
        for rotten in pages.iter().filter(|r| r.crc != 0) {
            let (leaf, at) = self.locate(rotten.page);
            let mut state = self.lock();
            if self.load_leaf(&mut state, leaf).is_err() {
                continue;
            }
            let state = &mut *state;
            if let Some(l) = state.leaves.get_mut(&leaf)
                && l.crcs[at] == rotten.crc
            {
                l.crcs[at] = 0;
                l.dirty = true;
                state.dirty.insert(leaf);
            }
        }
    }
}
