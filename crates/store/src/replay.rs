//! Replays the log at start.

use crate::alloc::Run;
use crate::apply::is_pair_key;
use crate::config::BLOCK64;
use crate::log::{self, Found};
use crate::lost::Losses;
use crate::state::State;
use crate::step::{NewRun, RangeOf, Step};
use crate::txn::MAX_OBJECT_SIZE;
use crate::{ObjectKey, Result, StoreError};

/// Applies a transaction that the log has and the index lacks. The blocks that it refers to were
/// durable before it. Of what is lost it changes nothing.
///
/// # Errors
/// This store cannot have written the record in this state: the log is damaged.
pub(crate) fn replay(state: &mut State, record: &Found, losses: &mut Losses) -> Result<()> {
    let bad = |what: &str| StoreError::damaged("log", format!("transaction {} {what}", record.seq));
    if record.seq != state.seq + 1 {
        return Err(bad(&format!("follows transaction {}", state.seq)));
    }
    let steps = Step::decode_all(&record.steps).ok_or_else(|| bad("cannot be decoded"))?;
    let steps = losses.sift(state, steps)?;
    for step in &steps {
        match step {
            Step::Object(key)
            | Step::CloneOf { source: key, .. }
            | Step::MoveOf(key)
            | Step::RangeOf(RangeOf { source: key, .. }) => state.ensure_loaded(key)?,
            _ => {}
        }
        if let Err(what) = check(state, step) {
            let object = state
                .current
                .as_ref()
                .map_or(String::new(), |c| format!(" of object {}", c.key));
            return Err(bad(&format!("{what}: a step{object}")));
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

/// Blocks of the largest object.
const MAX_BLOCKS: u32 = (MAX_OBJECT_SIZE / BLOCK64) as u32;

/// Whether a step fits the state, so that applying it cannot fail; else its error.
fn check(state: &mut State, step: &Step) -> Result<(), &'static str> {
    match step {
        Step::Put { key, .. } | Step::Delete(key) | Step::DeleteRange { from: key, .. } => {
            return match is_pair_key(key) {
                true => Ok(()),
                false => Err("changes a pair of no kind"),
            };
        }
        Step::Object(_) => return Ok(()),
        _ => {}
    }
    if state.current.is_none() {
        return Err("changes no object");
    }
    let fits = |start: u64, len: u64, most: u64| start.checked_add(len).is_some_and(|end| end <= most);
    let blocks_fit = |start: u32, len: u64| fits(u64::from(start), len, u64::from(MAX_BLOCKS));
    let is_source = |state: &mut State, source: &ObjectKey| {
        let is_current = state.current.as_ref().is_some_and(|c| c.key == *source);
        !is_current && state.loaded(source).is_some()
    };
    let fits = match step {
        Step::Inline { offset, data, new } => {
            if data.is_empty() {
                return Err("writes nothing");
            }
            if !fits(*offset, data.len() as u64, MAX_OBJECT_SIZE) {
                return Err("reaches beyond the largest object");
            }
            return check_places(state, *offset, data.len() as u64, new);
        }
        Step::Direct { lblk, runs, crcs } => {
            let blocks: u64 = runs.iter().map(|r| u64::from(r.len)).sum();
            if blocks != crcs.len() as u64 || runs.iter().any(|r| r.len == 0) {
                return Err("has blocks without a checksum");
            }
            blocks_fit(*lblk, blocks)
        }
        Step::Punch { lblk, len } => blocks_fit(*lblk, u64::from(*len)),
        Step::Hole { offset, len } => fits(*offset, *len, MAX_OBJECT_SIZE),
        Step::Size(size) => *size <= MAX_OBJECT_SIZE,
        Step::CloneOf { source, .. } | Step::MoveOf(source) => {
            if !is_source(state, source) {
                return Err("has no source");
            }
            true
        }
        Step::RangeOf(range) => {
            if !is_source(state, &range.source) {
                return Err("has no source");
            }
            if range.len == 0 {
                return Err("is about no block");
            }
            blocks_fit(range.from, u64::from(range.len)) && blocks_fit(range.to, u64::from(range.len))
        }
        _ => true,
    };
    match fits {
        true => Ok(()),
        false => Err("reaches beyond the largest object"),
    }
}

/// Checks that all blocks of a write through the log have a place: a new one, or an existing one
/// that no other object shares.
fn check_places(state: &State, offset: u64, len: u64, new: &[NewRun]) -> Result<(), &'static str> {
    let behind = (offset + len).div_ceil(BLOCK64) as u32;
    let stays = |from: u32, to: u32| {
        for lblk in from..to {
            match state.current_block(lblk) {
                Some(block) if block.shared => return Err("overwrites a block of another object"),
                Some(block) if state.alloc.is_free(block.pblk) => return Err("overwrites a free block"),
                Some(_) => {}
                None => return Err("writes to a block without a place"),
            }
        }
        Ok(())
    };
    let mut at = (offset / BLOCK64) as u32;
    for n in new {
        let end = n.lblk.checked_add(n.run.len).filter(|end| *end <= behind);
        let Some(end) = end.filter(|_| n.lblk >= at && n.run.len > 0) else {
            return Err("places blocks that it does not write");
        };
        stays(at, n.lblk)?;
        at = end;
    }
    stays(at, behind)
}

fn new_runs(step: &Step) -> Vec<Run> {
    match step {
        Step::Inline { new, .. } => new.iter().map(|n| n.run).collect(),
        Step::Direct { runs, .. } => runs.clone(),
        _ => Vec::new(),
    }
}
