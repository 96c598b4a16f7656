//! Replaying the log at start.

use crate::alloc::Run;
use crate::log::{self, Found};
use crate::state::State;
use crate::step::Step;
use crate::{Result, StoreError};

/// Applies a transaction that the log has and the index lacks. The blocks that it refers to were durable before it.
pub(crate) fn replay(state: &mut State, record: &Found) -> Result<()> {
    let bad = |what: &str| StoreError::damaged("log", format!("transaction {} {what}", record.seq));
    let steps = Step::decode_all(&record.steps).ok_or_else(|| bad("cannot be decoded"))?;
    for step in &steps {
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

fn new_runs(step: &Step) -> Vec<Run> {
    match step {
        Step::Inline { new, .. } => new.iter().map(|n| n.run).collect(),
        Step::Direct { runs, .. } => runs.clone(),
        _ => Vec::new(),
    }
}
