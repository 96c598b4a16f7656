//! Replaying the log at start.

use std::sync::Arc;

use spirula_buf::Pool;

use crate::alloc::Run;
use crate::checkpoint::collect_writebacks;
use crate::config::{BLOCK, BLOCK64};
use crate::device::BlockIo;
use crate::layout::Superblock;
use crate::log::{self, Found, Scan};
use crate::onode::block_crcs;
use crate::state::State;
use crate::step::Step;
use crate::table::DIRTY_WEIGHT;
use crate::{Result, StoreError};

/// Replays the log into the state.
pub(crate) struct Replay<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) dev: &'a Arc<dyn BlockIo>,
    /// Write blocks to their places when they get too many for the memory; else nothing is written.
    pub(crate) write_back: bool,
}

impl Replay<'_> {
    /// Applies what the log has and the index lacks, up to the end of what is intact.
    pub(crate) fn run(mut self, scan: &mut Scan, sb: &Superblock) -> Result<()> {
        let mut cut = None;
        for record in &scan.records {
            let bad = || StoreError::damaged("log", format!("transaction {} cannot be decoded", record.seq));
            let steps = Step::decode_all(&record.steps).ok_or_else(bad)?;
            // A group that may not have become durable as a whole: its large writes may be missing. Nobody was told otherwise.
            if record.direct && record.group > scan.durable_group && !direct_intact(&steps, self.dev) {
                cut = Some(record.group);
                break;
            }
        }
        if let Some(group) = cut {
            tracing::info!(
                group,
                "the log ends before a group whose data had not reached the device"
            );
            scan.cut(group, sb.log_blocks);
        }
        for record in &scan.records {
            self.one(record)?;
            if self.write_back && self.is_heavy() {
                self.spill()?;
            }
        }
        Ok(())
    }

    /// Whether the blocks occupy as much memory as those of a generation may.
    fn is_heavy(&mut self) -> bool {
        let limit = self.state.cfg.generation_bytes();
        self.state.active().dirty.len() * DIRTY_WEIGHT >= limit
    }

    fn one(&mut self, record: &Found) -> Result<()> {
        let state = &mut *self.state;
        let bad = |what: &str| StoreError::damaged("log", format!("transaction {} {what}", record.seq));
        let steps = Step::decode_all(&record.steps).ok_or_else(|| bad("cannot be decoded"))?;
        for step in &steps {
            match step {
                Step::Object(key) | Step::CloneOf { source: key, .. } => state.ensure_loaded(key)?,
                _ => {}
            }
            let marked = new_runs(step).iter().all(|run| state.alloc.mark_used(*run));
            if !marked {
                return Err(bad("allocates blocks that are used"));
            }
            state.apply(step);
        }
        state.finish(record.seq, log::record_space(record.steps.len()));
        Ok(())
    }

    /// Writes blocks to their places. Safe at any time, as the log holds all that overwrites older contents; a later flush
    /// must make them durable before the index refers to them.
    fn spill(&mut self) -> Result<()> {
        let io = |e| StoreError::io("write back", e);
        let mut block = Pool::new(0).get(BLOCK);
        for read in std::mem::take(&mut self.state.base_reads) {
            let done = self.dev.read_at(read.base * BLOCK64, &mut block);
            let good = done.is_ok() && crc32c::crc32c(&block) == read.crc;
            if !good {
                tracing::error!(
                    block = read.base,
                    "old contents for a partial write are unreadable"
                );
            }
            self.state.resolve(&read, good.then_some(&block[..]));
        }
        let table = self.state.active();
        for (offset, blocks) in collect_writebacks(table) {
            let mut run = Pool::new(0).get(blocks.len() * BLOCK);
            for (to, from) in run.chunks_mut(BLOCK).zip(&blocks) {
                to.copy_from_slice(from);
            }
            self.dev.write_at(offset, &run).map_err(io)?;
        }
        table.drop_blocks();
        Ok(())
    }
}

fn new_runs(step: &Step) -> Vec<Run> {
    match step {
        Step::Inline { new, .. } => new.iter().map(|n| n.run).collect(),
        Step::Direct { runs, .. } => runs.clone(),
        _ => Vec::new(),
    }
}

/// Whether the blocks that a record refers to are on the device as it says.
fn direct_intact(steps: &[Step], dev: &Arc<dyn BlockIo>) -> bool {
    let intact = |run: &Run, crcs: &[u32]| {
        let mut buf = Pool::new(0).get(run.len as usize * BLOCK);
        dev.read_at(run.pblk * BLOCK64, &mut buf).is_ok() && block_crcs(&buf).eq(crcs.iter().copied())
    };
    steps.iter().all(|step| {
        let Step::Direct { runs, crcs, .. } = step else {
            return true;
        };
        let mut rest = &crcs[..];
        runs.iter().all(|run| {
            let (head, tail) = rest.split_at(run.len as usize);
            rest = tail;
            run.pblk
                .checked_add(u64::from(run.len))
                .is_some_and(|end| end <= dev.size() / BLOCK64)
                && intact(run, head)
        })
    })
}
