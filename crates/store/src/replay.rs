//! Replaying the log at start.

use std::collections::HashMap;
use std::sync::Arc;

use spirula_buf::Pool;

use crate::alloc::Run;
use crate::config::{BLOCK, BLOCK64};
use crate::device::BlockIo;
use crate::layout::Superblock;
use crate::log::{self, Found, Scan};
use crate::onode::block_crcs;
use crate::state::State;
use crate::step::Step;
use crate::{ObjectKey, Result, StoreError};

/// Replays the log into the state.
pub(crate) struct Replay<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) dev: &'a Arc<dyn BlockIo>,
}

impl Replay<'_> {
    /// Applies what the log has and the index lacks, up to the end of what is intact.
    pub(crate) fn run(mut self, scan: &mut Scan, sb: &Superblock) -> Result<()> {
        // What is cut off excuses nothing before it: so look again without it.
        let mut cut = None;
        while let Some(group) = self.first_lost(scan, cut.unwrap_or(u64::MAX))? {
            cut = Some(group);
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
        }
        Ok(())
    }

    /// The first group before `end` that may not have become durable as a whole: a large write that it refers to is missing.
    /// Nobody was told otherwise.
    fn first_lost(&self, scan: &Scan, end: u64) -> Result<Option<u64>> {
        let unsure = scan.durable_group + 1..end;
        let last = || scan.records.iter().filter(|r| unsure.contains(&r.group));
        if !last().any(|r| r.direct) {
            return Ok(None);
        }
        let mut unsure = Vec::new();
        for record in last() {
            unsure.push((record.group, decoded(record)?));
        }
        let overwritten = Overwritten::find(unsure.iter().flat_map(|(_, steps)| steps));
        let mut at = 0;
        for (group, steps) in &unsure {
            for step in steps {
                if let Step::Direct { lblk, runs, crcs } = step {
                    let later = |i| overwritten.after(at, lblk + i);
                    if !direct_intact(runs, crcs, self.dev, later) {
                        return Ok(Some(*group));
                    }
                }
                at += 1;
            }
        }
        Ok(None)
    }

    fn one(&mut self, record: &Found) -> Result<()> {
        let state = &mut *self.state;
        let bad = |what: &str| StoreError::damaged("log", format!("transaction {} {what}", record.seq));
        for step in &decoded(record)? {
            match step {
                Step::Object(key) | Step::CloneOf { source: key, .. } | Step::MoveOf(key) => {
                    state.ensure_loaded(key)?
                }
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
}

fn new_runs(step: &Step) -> Vec<Run> {
    match step {
        Step::Inline { new, .. } => new.iter().map(|n| n.run).collect(),
        Step::Direct { runs, .. } => runs.clone(),
        _ => Vec::new(),
    }
}

fn decoded(record: &Found) -> Result<Vec<Step>> {
    let bad = || StoreError::damaged("log", format!("transaction {} cannot be decoded", record.seq));
    Step::decode_all(&record.steps).ok_or_else(bad)
}

/// Blocks of objects that are written in place through the log, and by which step last. Once settled they no longer hold what a
/// large write before put there; the log has what they hold.
#[derive(Default)]
struct Overwritten {
    /// The object of each step: a number that it keeps when it is moved.
    objects: Vec<usize>,
    last: HashMap<(usize, u32), usize>,
}

impl Overwritten {
    fn find<'a>(steps: impl Iterator<Item = &'a Step>) -> Self {
        let mut found = Self::default();
        let mut numbers: HashMap<&ObjectKey, usize> = HashMap::new();
        let (mut current, mut object, mut next) = (None, 0, 1);
        let mut fresh = || {
            next += 1;
            next
        };
        for (at, step) in steps.enumerate() {
            match step {
                Step::Object(key) => {
                    current = Some(key);
                    object = *numbers.entry(key).or_insert_with(&mut fresh);
                }
                Step::MoveOf(source) => {
                    object = numbers.remove(source).unwrap_or_else(&mut fresh);
                    numbers.extend(current.map(|key| (key, object)));
                }
                Step::Inline { offset, data, new } if !data.is_empty() => {
                    let first = offset / BLOCK64;
                    let last = offset.saturating_add(data.len() as u64 - 1) / BLOCK64;
                    for lblk in (first..=last).filter_map(|n| u32::try_from(n).ok()) {
                        if !new
                            .iter()
                            .any(|n| (n.lblk..n.lblk.saturating_add(n.run.len)).contains(&lblk))
                        {
                            found.last.insert((object, lblk), at);
                        }
                    }
                }
                _ => {}
            }
            found.objects.push(object);
        }
        found
    }

    /// Whether a step after this one overwrites a block of its object.
    fn after(&self, step: usize, lblk: u32) -> bool {
        let object = self.objects.get(step).copied().unwrap_or_default();
        self.last.get(&(object, lblk)).is_some_and(|last| *last > step)
    }
}

/// Whether the blocks that a large write refers to are on the device as its record says, except those for which `later` is true of
/// their number.
fn direct_intact(runs: &[Run], crcs: &[u32], dev: &Arc<dyn BlockIo>, later: impl Fn(u32) -> bool) -> bool {
    let mut crcs = (0u32..).zip(crcs);
    runs.iter().all(|run| {
        let end = run.pblk.checked_add(u64::from(run.len));
        if end.is_none_or(|end| end > dev.size() / BLOCK64) {
            return false;
        }
        let mut buf = Pool::new(0).get(run.len as usize * BLOCK);
        dev.read_at(run.pblk * BLOCK64, &mut buf).is_ok()
            && block_crcs(&buf)
                .zip(&mut crcs)
                .all(|(found, (i, crc))| found == *crc || later(i))
    })
}
