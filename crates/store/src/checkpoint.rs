//! Checkpoints: write the blocks of a closed generation to their places, apply it to the index, free its part of the log.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::alloc::Run;
use crate::config::{BLOCK, BLOCK64};
use crate::device::IoKind;
use crate::exec::Job;
use crate::index::{Applied, MAX_INDEX_GROUPS};
use crate::log::Log;
use crate::store::{Purpose, Store};
use crate::table::{Dirty, Frozen, MemTable};
use crate::{Result, StoreError};

/// Blocks of one write at most.
const WRITE_BLOCKS: usize = 256;
/// Writes at a time: enough to keep a disk busy, few enough to leave it to others.
const WRITES_AT_ONCE: usize = 4;

/// A write to be done: offset in bytes, and blocks.
type Writeback = (u64, Vec<Bytes>);

/// How far the checkpoint of the oldest generation is.
pub(crate) enum Stage {
    /// None is under way.
    Idle,
    /// Waits until its records are in the log, its blocks are complete, and no read up to this number is under way (which
    /// would find the blocks half overwritten).
    Wait(u64),
    /// Writes its blocks to their places.
    Write {
        todo: VecDeque<Writeback>,
        outstanding: usize,
    },
    /// Makes them durable.
    Flush,
    /// The index applies it.
    Commit,
}

impl Store {
    /// Closes the generation that takes changes, so that it is written back.
    pub(crate) fn seal(&mut self) {
        let counters = self.state.counters;
        let active = self.state.active();
        if active.is_empty() {
            return;
        }
        active.counters = counters;
        let generation = active.generation + 1;
        self.state.tables.push_back(MemTable {
            generation,
            ..MemTable::default()
        });
    }

    pub(crate) fn seal_if_full(&mut self) {
        let (bytes, entries) = (self.state.cfg.memtable_bytes / 2, self.state.cfg.memtable_entries);
        let space = Log::generation_space(&self.sb);
        let active = self.state.active();
        if active.bytes >= bytes || active.entries() >= entries || active.log_bytes >= space {
            self.seal();
        }
    }

    /// Goes on with the checkpoint as far as possible.
    pub(crate) fn advance_checkpoint(&mut self) {
        if matches!(self.stage, Stage::Idle) && self.state.tables.len() > 1 {
            self.stage = Stage::Wait(self.last_read);
        }
        if let Stage::Wait(mark) = self.stage
            && self.may_write_back(mark)
        {
            self.stage = Stage::Write {
                todo: self.collect_writebacks(),
                outstanding: 0,
            };
        }
        while let Stage::Write { todo, outstanding } = &mut self.stage {
            if *outstanding >= WRITES_AT_ONCE {
                return;
            }
            let Some((offset, bufs)) = todo.pop_front() else {
                if *outstanding == 0 {
                    self.stage = Stage::Flush;
                    self.queue(IoKind::Flush, Purpose::Checkpoint);
                }
                return;
            };
            *outstanding += 1;
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

    fn may_write_back(&self, mark: u64) -> bool {
        let Some(front) = self.state.tables.front() else {
            return false;
        };
        front.unresolved == 0
            && self.log.durable_seq >= front.last_seq
            && self.reading.first().is_none_or(|oldest| *oldest > mark)
    }

    /// The blocks of the oldest generation, as few large writes.
    fn collect_writebacks(&self) -> VecDeque<Writeback> {
        let Some(front) = self.state.tables.front() else {
            return VecDeque::new();
        };
        let mut blocks: Vec<(u64, Bytes)> = front
            .dirty
            .iter()
            .filter_map(|(pblk, dirty)| match dirty {
                Dirty::Full(b) | Dirty::Lost(b) => Some((*pblk, b.clone())),
                Dirty::Patched(_) => None,
            })
            .collect();
        blocks.sort_unstable_by_key(|(pblk, _)| *pblk);
        let mut out: VecDeque<Writeback> = VecDeque::new();
        for (pblk, block) in blocks {
            match out.back_mut() {
                Some((offset, bufs))
                    if *offset + (bufs.len() * BLOCK) as u64 == pblk * BLOCK64
                        && bufs.len() < WRITE_BLOCKS =>
                {
                    bufs.push(block);
                }
                _ => out.push_back((pblk * BLOCK64, vec![block])),
            }
        }
        out
    }

    /// Takes the completion of a write or flush of the checkpoint.
    pub(crate) fn checkpoint_io_done(&mut self) {
        match &mut self.stage {
            Stage::Write { outstanding, .. } => *outstanding -= 1,
            Stage::Flush => self.commit_front(),
            Stage::Idle | Stage::Wait(_) | Stage::Commit => {}
        }
    }

    fn commit_front(&mut self) {
        let Some(front) = self.state.tables.front() else {
            return;
        };
        let (log_block, log_group) = self.log.position_after(front.last_seq);
        let applied = Applied {
            seq: front.last_seq,
            log_block,
            log_group,
            objects: front.counters.objects,
            stored: front.counters.stored,
        };
        let frozen = Box::new(Frozen {
            objects: front.objects.clone(),
            pairs: front.pairs.clone(),
            allocated: front.allocated.clone(),
            freed: front.freed.clone(),
            shared: front.shared.clone(),
            unshared: front.unshared.clone(),
            applied,
        });
        self.exec.submit(Job::Commit {
            frozen,
            group_blocks: self.sb.group_blocks,
        });
        self.stage = Stage::Commit;
    }

    /// The index has applied the oldest generation.
    pub(crate) fn commit_done(&mut self, result: Result<Vec<Run>>) {
        let freed = match result {
            Ok(freed) => freed,
            Err(e) => {
                self.fail(format_args!("checkpoint failed: {e}"));
                return;
            }
        };
        self.stage = Stage::Idle;
        self.epoch += 1;
        self.stats.checkpoints += 1;
        let Some(table) = self.state.tables.pop_front() else {
            return;
        };
        self.log.trim(table.last_seq);
        for (key, known) in table.objects.iter() {
            self.state.remember(key, known);
        }
        for (pblk, dirty) in table.dirty {
            if let Dirty::Full(block) = dirty {
                self.keep_block(pblk, &block);
            }
        }
        self.releases.push_back((self.last_read, freed));
        self.release();
        self.refill_spare();
    }

    /// Keeps a written block for later reads.
    fn keep_block(&mut self, pblk: u64, block: &Bytes) {
        if self.state.cfg.data_cache_bytes > 0 {
            // A copy: the block is part of a larger piece of memory, all of which it would keep.
            let entry = (crc32c::crc32c(block), Bytes::copy_from_slice(block));
            self.state.data.insert(pblk, entry, BLOCK + 128);
        }
    }

    /// Makes freed blocks allocatable once no read can be looking at them.
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
                return;
            };
            file.add_spare(group);
        }
    }

    /// The log or a write-back failed: nothing that follows could be trusted.
    pub(crate) fn io_failed(&mut self, what: &str, error: &std::io::Error) -> StoreError {
        self.fail(format_args!("{what} failed: {error}"))
    }
}
