//! The space below the store: a sparse file takes it from its file system and gives it back.
//!
//! Allocatable blocks have their space already ("ready"), and so have groups into which the index
//! grows next. So neither a write of an accepted transaction nor a checkpoint fails for lack of
//! space, even if other programs fill the file system. Freed blocks are reused first; space that
//! stays free is given back after a while: holes are punched, devices told to discard. Like
//! overwritten blocks, freed ones get there only after the index no longer refers to them and no
//! read is under way, and are held until it is done.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use spirula_invariant::invariant;

use crate::config::BLOCK64;
use crate::device::BlockIo;
use crate::exec::Job;
use crate::index::IndexFile;
use crate::layout::Superblock;
use crate::store::Store;

/// Bytes of space that are taken ahead, on stores that are not tiny.
const READY: u64 = 16 << 20;
/// The largest share of a tiny store that is taken ahead.
const READY_SHARE: u64 = 64;
/// Bytes given back in one go: these blocks can't be allocated meanwhile.
const GIVEN_AT_ONCE: u64 = 16 << 20;
/// Ticks without a freed block in a group after which its space is given back.
const AGE: u32 = 10;
/// Ticks between two checks for blocks that only a checkpoint can free.
const CHECKPOINT_TICKS: u32 = 5;
/// Bytes of the index that one change may rewrite, roughly: a page of each level.
const CHANGE_BYTES: u64 = 16 << 10;

/// The state of the space below.
pub(crate) struct Ground {
    pub(crate) io: Arc<dyn BlockIo>,
    /// Whether the store only occupies space for written blocks.
    sparse: bool,
    /// Whether space can be given back.
    can_discard: bool,
    /// Bytes that can still be allocated below, as the owner reported.
    below: u64,
    /// Whether the last attempt to take space failed.
    dry: bool,
    /// Bytes to keep ready for data, and for the index.
    ready: u64,
    ready_min: u64,
    /// Bytes that may be given back in this tick.
    budget: u64,
    ticks: u32,
    /// Whether a background job is under way.
    pub(crate) busy: bool,
}

/// The outcome of a background job.
pub(crate) enum GroundDone {
    Allocated(Range<u64>, io::Result<()>),
    Discarded(Vec<Range<u64>>, io::Result<()>),
    /// A group that the index grows into got its space.
    Prepared(io::Result<()>),
}

/// The least number of bytes to keep ready.
pub(crate) fn ready_bytes(sb: &Superblock) -> u64 {
    (sb.blocks * BLOCK64 / READY_SHARE).min(READY)
}

fn bytes(blocks: &Range<u64>) -> Range<u64> {
    blocks.start * BLOCK64..blocks.end * BLOCK64
}

/// Takes space for blocks.
pub(crate) fn allocate(io: &Arc<dyn BlockIo>, blocks: Range<u64>) -> GroundDone {
    let done = io.allocate(bytes(&blocks));
    GroundDone::Allocated(blocks, done)
}

/// Gives the space of blocks back.
pub(crate) fn discard(io: &Arc<dyn BlockIo>, blocks: Vec<Range<u64>>) -> GroundDone {
    let done = blocks.iter().try_for_each(|b| io.discard(bytes(b)));
    GroundDone::Discarded(blocks, done)
}

impl Ground {
    pub(crate) fn new(io: Arc<dyn BlockIo>, sb: &Superblock) -> Self {
        let ready_min = ready_bytes(sb);
        Self {
            sparse: io.is_sparse(),
            io,
            can_discard: true,
            below: u64::MAX,
            dry: false,
            ready: ready_min,
            ready_min,
            budget: 0,
            ticks: 0,
            busy: false,
        }
    }

    /// Whether the index has enough space for the growth by pending changes.
    pub(crate) fn has_index_room(&self, file: &IndexFile) -> bool {
        !self.sparse || file.ready_count() >= file.kept_ready() / 2
    }

    /// Whether the index has enough space for the growth by pending changes, or can get it at once:
    /// the background job may not have got to it yet.
    pub(crate) fn can_have_index_room(&self, file: &IndexFile) -> bool {
        self.has_index_room(file) || (!self.dry && self.below >= self.ready_min)
    }

    /// The part of `bytes` without space for which space can be allocated.
    pub(crate) fn obtainable(&self, bytes: u64) -> u64 {
        match (self.sparse, self.dry) {
            (false, _) => bytes,
            (true, true) => 0,
            (true, false) => bytes.min(self.below),
        }
    }

    /// The most changes that the index may take in at once: if it can't grow, as many as fit into
    /// its present space.
    pub(crate) fn most_entries(&self, usual: usize) -> usize {
        match self.sparse && self.dry {
            true => usual.min((self.ready_min / 2 / CHANGE_BYTES) as usize).max(16),
            false => usual,
        }
    }
}

impl Store {
    /// Sets how many bytes the file system below can still give this store, and how many to keep
    /// ready for operations that cannot be refused. Irrelevant on a block device.
    pub fn set_below(&mut self, below: u64, ready: u64) {
        let g = &mut self.ground;
        g.below = below;
        g.ready = ready.max(g.ready_min);
        if g.dry && below >= 2 * g.ready {
            tracing::info!(below, "the file system has space again");
            g.dry = false;
        }
    }

    /// Whether the file system below refused to give more.
    pub fn is_dry(&self) -> bool {
        self.ground.dry
    }

    /// Bytes of the store that occupy no space below and could be written to.
    pub fn without_space(&self) -> u64 {
        self.state.alloc.without_space() * BLOCK64
    }

    /// To be called about once a second: up to `budget` bytes of space that was free for a while
    /// may be given back, and removed data frees its blocks before long even if nothing else
    /// happens.
    pub fn tick(&mut self, budget: u64) {
        self.state.alloc.tick();
        self.ground.budget = budget;
        self.ground.ticks = self.ground.ticks.wrapping_add(1);
        let frees: u64 = self.state.tables.iter().map(|t| t.freed_blocks).sum();
        if self.ground.ticks.is_multiple_of(CHECKPOINT_TICKS) && frees > 0 && !self.draining {
            self.checkpoint();
        }
    }

    /// Starts due background jobs, one at a time.
    pub(crate) fn advance_ground(&mut self) {
        if self.ground.busy {
            return; // One job at a time.
        }
        let job = self.ready_job().or_else(|| self.discard_job());
        if let Some(job) = job {
            self.ground.busy = true;
            self.exec.submit(job);
        }
    }

    fn ready_job(&mut self) -> Option<Job> {
        if self.ground.dry {
            return None;
        }
        let file = self.state.index.file();
        let lacks = file.ready_count() < file.kept_ready();
        if self.ground.sparse && lacks && file.spare_count() > file.ready_count() {
            return Some(Job::Prepare);
        }
        let ready = self.ground.ready / BLOCK64;
        if self.state.alloc.free() >= ready {
            return None;
        }
        // Not all that is left: a caller that needs a little at once must find it.
        let most = (ready * 2).min(self.ground.below / BLOCK64 / 2);
        if most == 0 {
            return None;
        }
        self.state.alloc.hold_hollow(most).map(Job::Allocate)
    }

    fn discard_job(&mut self) -> Option<Job> {
        let g = &mut self.ground;
        let kept = g.ready + 3 * g.ready_min;
        let surplus = (self.state.alloc.free() * BLOCK64).saturating_sub(kept);
        let most = g.budget.min(GIVEN_AT_ONCE).min(surplus) / BLOCK64;
        if !g.can_discard || most == 0 {
            return None;
        }
        let blocks = self.state.alloc.hold_free(most, AGE, !g.sparse);
        let count: u64 = blocks.iter().map(|b| b.end - b.start).sum();
        if count == 0 {
            g.budget = 0;
            return None;
        }
        g.budget -= count * BLOCK64;
        Some(Job::Discard(blocks))
    }

    pub(crate) fn ground_done(&mut self, done: GroundDone) {
        invariant!(self.ground.busy, "a job on the space below"; tick = self.ground.ticks);
        self.ground.busy = false;
        match done {
            GroundDone::Allocated(blocks, Ok(())) => self.state.alloc.fill(blocks),
            GroundDone::Allocated(blocks, Err(e)) => {
                self.state.alloc.hollow_out(blocks);
                self.ran_dry(&e);
            }
            GroundDone::Discarded(blocks, Ok(())) => {
                self.stats.discarded_bytes += blocks.iter().map(|b| b.end - b.start).sum::<u64>() * BLOCK64;
                blocks.into_iter().for_each(|b| self.state.alloc.hollow_out(b));
            }
            GroundDone::Discarded(blocks, Err(error)) => {
                tracing::info!(%error, "free space can't be given back");
                self.ground.can_discard = false;
                blocks.into_iter().for_each(|b| self.state.alloc.fill(b));
            }
            GroundDone::Prepared(Ok(())) => {}
            GroundDone::Prepared(Err(e)) => self.ran_dry(&e),
        }
    }

    fn ran_dry(&mut self, error: &io::Error) {
        if !self.ground.dry {
            tracing::warn!(%error, "the file system gives the store no more space");
        }
        self.ground.dry = true;
    }

    /// Takes space at once for the growth of the index, if the background job has not done so yet.
    pub(crate) fn take_index_space(&mut self) {
        let file = self.state.index.file();
        while !self.ground.dry && !self.ground.has_index_room(file) && file.spare_count() > file.ready_count()
        {
            if let Err(e) = file.prepare() {
                return self.ran_dry(&e);
            }
        }
    }

    /// Takes space for `needed` bytes at once, if possible: for callers that need it before the
    /// background job.
    pub(crate) fn take_space(&mut self, needed: u64) -> bool {
        let wanted = needed.div_ceil(BLOCK64);
        while self.state.alloc.free() < wanted {
            if self.ground.dry {
                return false;
            }
            let missing = wanted - self.state.alloc.free();
            let ahead = missing.max(self.ground.ready_min / BLOCK64);
            // Where not as much is left as one would take ahead, less may do.
            match self.take(ahead).or_else(|_| self.take(missing)) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(e) => {
                    self.ran_dry(&e);
                    return false;
                }
            }
        }
        true
    }

    /// Takes space for some of the next `blocks` blocks. `false` if all have it.
    fn take(&mut self, blocks: u64) -> io::Result<bool> {
        let Some(blocks) = self.state.alloc.hold_hollow(blocks) else {
            return Ok(false);
        };
        match self.ground.io.allocate(bytes(&blocks)) {
            Ok(()) => self.state.alloc.fill(blocks),
            Err(e) => {
                self.state.alloc.hollow_out(blocks);
                return Err(e);
            }
        }
        Ok(true)
    }
}
