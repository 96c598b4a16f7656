//! Checkpoints. A closed generation is settled first: its blocks are written to their places, and
//! their memory is freed. Settled generations are merged, and once they are large enough the index
//! takes them in, after which their part of the log is free. Merging saves work: new objects come
//! in random order, so that each costs a page of the index.

use std::collections::VecDeque;

use bytes::Bytes;
use spirula_invariant::{impossible, invariant};

use crate::config::{BLOCK, BLOCK64};
use crate::device::IoKind;
use crate::direct::BlockWrite;
use crate::exec::Job;
use crate::index::{Applied, MAX_INDEX_GROUPS, Outcome};
use crate::log::Log;
use crate::recent::What;
use crate::store::{Purpose, Store};
use crate::table::{Dirty, Frozen, MemTable};
use crate::{Result, StoreError};

/// Blocks of one write at most.
const WRITE_BLOCKS: usize = 256;
/// Writes at a time: enough to keep a disk busy, few enough to leave it to others.
const WRITES_AT_ONCE: usize = 4;

/// After this share of the store's blocks was freed or shared, the index takes the generation in,
/// so that they can be reused.
const FREED_SHARE: u64 = 64;

/// The progress of the write-back of the oldest generation that is not settled.
pub(crate) enum Stage {
    /// No write-back is under way.
    Idle,
    /// Waits until its records are in the log, its blocks are complete, and no read up to this
    /// number is under way: such a read would find half overwritten blocks.
    Wait(u64),
    /// Writes its blocks to their places.
    Write {
        todo: VecDeque<BlockWrite>,
        outstanding: usize,
    },
    /// Makes the written blocks durable.
    Flush,
}

impl Store {
    /// Closes the active generation, so that it is written back.
    pub(crate) fn seal(&mut self) {
        let counters = self.state.counters;
        let active = self.state.active();
        if active.is_empty() {
            return; // It has nothing to be written back.
        }
        active.counters = counters;
        let generation = active.generation + 1;
        self.state.tables.push_back(MemTable {
            generation,
            ..MemTable::default()
        });
        self.note(What::Sealed);
    }

    pub(crate) fn seal_if_full(&mut self) {
        let (bytes, entries) = (
            self.state.cfg.generation_bytes(),
            self.state.cfg.memtable_entries / 2,
        );
        let entries = self.ground.most_entries(entries);
        let space = Log::generation_space(&self.sb);
        let freed = self.sb.blocks / FREED_SHARE;
        let active = self.state.active();
        // By halves, as generations are gathered before the index takes them in.
        let large = active.memory() >= bytes || active.lasting() >= bytes / 2 || active.entries() >= entries;
        if large || active.log_bytes >= space || active.freed_blocks >= freed {
            self.seal();
        }
    }

    /// The index of the oldest generation that has to be written back.
    fn unsettled(&self) -> Option<usize> {
        let closed = self.state.tables.len() - 1;
        self.state.tables.iter().take(closed).position(|t| !t.settled)
    }

    /// The number of generations that are not settled, the active one included.
    pub(crate) fn unsettled_count(&self) -> usize {
        self.unsettled().map_or(1, |at| self.state.tables.len() - at)
    }

    /// Advances the checkpoint as far as possible.
    pub(crate) fn advance_checkpoint(&mut self) {
        self.write_back();
        if self.failed.is_none() && !self.committing && self.must_commit() {
            self.commit_front();
        }
    }

    fn write_back(&mut self) {
        if matches!(self.stage, Stage::Idle) && self.unsettled().is_some() {
            self.stage = Stage::Wait(self.last_read);
            self.note(What::Waiting);
        }
        if let Stage::Wait(mark) = self.stage
            && let Some(at) = self.unsettled().filter(|at| self.may_write_back(*at, mark))
        {
            self.stage = Stage::Write {
                todo: collect_writebacks(&self.state.tables[at]),
                outstanding: 0,
            };
            self.note(What::Writing);
        }
        while let Stage::Write { todo, outstanding } = &mut self.stage {
            if *outstanding >= WRITES_AT_ONCE {
                return; // A completion goes on.
            }
            let Some((offset, bufs)) = todo.pop_front() else {
                if *outstanding == 0 {
                    self.stage = Stage::Flush;
                    self.note(What::Flushing);
                    self.queue(IoKind::Flush, Purpose::Checkpoint);
                }
                return; // The flush follows the last completion.
            };
            *outstanding += 1;
            // Where it goes may come from the index, and so from the disk.
            if let Err(e) = self.check_place(offset, &bufs) {
                self.fail(format_args!("write-back refused: {e}"));
                return; // Nothing is written any more.
            }
            self.stats.writeback_bytes += (bufs.len() * BLOCK) as u64;
            self.queue(
                IoKind::Write {
                    offset,
                    bufs,
                    durable: false,
                },
                Purpose::Checkpoint,
            );
        }
    }

    fn may_write_back(&self, at: usize, mark: u64) -> bool {
        let table = &self.state.tables[at];
        // A generation that is settled while the index is busy waits for it, but not without bound.
        let waiting = &self.state.tables[at.saturating_sub(1)];
        let together = waiting.lasting() + table.lasting();
        let heavy = together > self.state.cfg.generation_bytes();
        let stuck = self.committing && at > 1 && (heavy || self.is_large(waiting));
        !stuck
            && table.unresolved == 0
            && self.log.durable_seq >= table.last_seq
            && self.reading.first().is_none_or(|oldest| *oldest > mark)
    }

    /// Handles the completion of a write or flush of the checkpoint.
    pub(crate) fn checkpoint_io_done(&mut self) {
        match &mut self.stage {
            Stage::Write { outstanding, .. } => {
                invariant!(*outstanding > 0, "a write-back under way"; taken_in = self.taken_in);
                *outstanding -= 1;
            }
            Stage::Flush => self.settle(),
            Stage::Idle | Stage::Wait(_) => {
                impossible!("a generation that is written back"; taken_in = self.taken_in)
            }
        }
    }

    /// Marks a generation as settled, whose blocks are at their places.
    fn settle(&mut self) {
        self.stage = Stage::Idle;
        self.note(What::Settled);
        let Some(at) = self.unsettled() else {
            impossible!("a generation that was written back"; taken_in = self.taken_in)
        };
        self.state.tables[at].settle();
        let first = usize::from(self.committing);
        if at > first
            && let Some(table) = self.state.tables.remove(at)
        {
            self.state.tables[at - 1].absorb(table);
        }
    }

    /// Whether a generation occupies as much memory as it may.
    fn is_large(&self, table: &MemTable) -> bool {
        table.memory() >= self.state.cfg.generation_bytes()
            || table.entries() >= self.ground.most_entries(self.state.cfg.memtable_entries)
            || table.freed_blocks >= self.sb.blocks / FREED_SHARE
    }

    /// Whether the index should take in the settled generation.
    fn must_commit(&self) -> bool {
        let settled = self.state.tables.front().filter(|t| t.settled);
        settled.is_some_and(|t| self.is_large(t) || self.log.is_half_full() || self.draining)
    }

    fn commit_front(&mut self) {
        let Some(front) = self.state.tables.front_mut().filter(|t| t.settled) else {
            impossible!("a settled generation for the index"; taken_in = self.taken_in)
        };
        invariant!(
            front.last_seq <= self.log.durable_seq && front.last_seq > self.taken_in,
            "the next durable transactions for the index";
            generation = front.generation,
            last = front.last_seq,
            durable = self.log.durable_seq,
            taken_in = self.taken_in,
        );
        let applied = Applied {
            seq: front.last_seq,
            log: self.log.position_after(front.last_seq),
            objects: front.counters.objects,
            stored: front.counters.stored,
        };
        let frozen = Box::new(Frozen {
            objects: front.objects.clone(),
            pairs: front.pairs.clone(),
            allocated: std::mem::take(&mut front.allocated),
            freed: std::mem::take(&mut front.freed),
            shared: std::mem::take(&mut front.shared),
            unshared: std::mem::take(&mut front.unshared),
            applied,
        });
        self.exec.submit(Job::Commit {
            frozen,
            group_blocks: self.sb.group_blocks,
        });
        self.committing = true;
        self.note(What::Committing);
    }

    /// Handles the end of a commit: the index has taken in the oldest generation.
    pub(crate) fn commit_done(&mut self, result: Result<Outcome>) {
        let Outcome { freed, garbage } = match result {
            Ok(outcome) => outcome,
            Err(e) => {
                let e = self.stop_if_damaged(e);
                self.fail(format_args!("checkpoint failed: {e}"));
                return; // Nothing is retried.
            }
        };
        invariant!(self.committing, "a generation that the index takes in"; taken_in = self.taken_in);
        self.committing = false;
        self.epoch += 1;
        self.stats.checkpoints += 1;
        let Some(table) = self.state.tables.pop_front().filter(|t| t.settled) else {
            impossible!("the generation that the index has taken in"; taken_in = self.taken_in)
        };
        self.draining &= self.state.tables.len() > 1;
        self.taken_in = table.last_seq;
        self.log.trim(table.last_seq);
        self.note(What::TakenIn);
        let heavy = table.memory() > self.state.cfg.generation_bytes();
        self.state.retire(table.objects, !heavy);
        self.releases.push_back((self.last_read, freed));
        self.release();
        self.refill_spare();
        if garbage && !self.purging {
            self.purge();
        }
    }

    /// Makes the index remove some garbage.
    pub(crate) fn purge(&mut self) {
        self.purging = true;
        self.exec.submit(Job::Purge);
    }

    /// Handles the end of a removal of garbage.
    pub(crate) fn purged(&mut self, result: Result<bool>) {
        self.purging = false;
        match result {
            Ok(true) => self.purge(),
            Ok(false) => {}
            // Nothing was changed: unreadable garbage only costs space. If a write failed, the next
            // commit fails too.
            Err(e) => tracing::warn!("removing garbage from the index failed: {e}"),
        }
        self.refill_spare();
    }

    /// Makes freed blocks allocatable once no read can refer to them.
    pub(crate) fn release(&mut self) {
        let oldest = self.reading.first().copied().unwrap_or(u64::MAX);
        while self.releases.front().is_some_and(|(mark, _)| *mark < oldest) {
            for run in self
                .releases
                .pop_front()
                .map(|(_, runs)| runs)
                .unwrap_or_default()
            {
                self.state.alloc.release(run);
            }
        }
    }

    /// Keeps free groups at hand for the index, so that it can always grow.
    pub(crate) fn refill_spare(&mut self) {
        let file = self.state.index.file();
        while file.spare_count() < self.spare_target && file.groups().len() < MAX_INDEX_GROUPS {
            let Some(group) = self.state.alloc.take_group() else {
                return; // What is removed will free one.
            };
            file.add_spare(group);
        }
    }

    /// Fails the store after a failed write of the log or of a checkpoint: later writes could not
    /// be trusted.
    pub(crate) fn io_failed(&mut self, what: &str, error: &std::io::Error) -> StoreError {
        self.fail(format_args!("{what} failed: {error}"))
    }
}

/// The blocks of a generation, as few large writes.
pub(crate) fn collect_writebacks(table: &MemTable) -> VecDeque<BlockWrite> {
    let mut blocks: Vec<(u64, Bytes)> = table
        .dirty
        .iter()
        .map(|(pblk, dirty)| match dirty {
            Dirty::Full(b) | Dirty::Lost(b) => (*pblk, b.clone()),
            Dirty::Patched(p) => impossible!(
                "blocks that are complete where they are written back";
                block = pblk,
                base = p.base,
                generation = table.generation,
            ),
        })
        .collect();
    blocks.sort_unstable_by_key(|(pblk, _)| *pblk);
    let mut out: VecDeque<BlockWrite> = VecDeque::new();
    for (pblk, block) in blocks {
        match out.back_mut() {
            Some((offset, bufs))
                if *offset + (bufs.len() * BLOCK) as u64 == pblk * BLOCK64 && bufs.len() < WRITE_BLOCKS =>
            {
                bufs.push(block);
            }
            _ => out.push_back((pblk * BLOCK64, vec![block])),
        }
    }
    out
}
