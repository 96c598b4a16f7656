//! Ranges that an object takes over from another one, block by block.

use std::collections::BTreeMap;

use super::Plan;
use crate::config::BLOCK64;
use crate::state::State;
use crate::step::{RangeOf, Step};
use crate::txn::{MAX_OBJECT_SIZE, Op};
use crate::{ObjectKey, Result, StoreError};

/// A range of bytes, and its place in another object.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shifted {
    offset: u64,
    len: u64,
    at: u64,
}

impl Shifted {
    pub(super) fn new(offset: u64, len: u64, at: u64) -> Self {
        Self { offset, len, at }
    }

    /// Checks what does not depend on the state; `other`: whether it is of another object.
    pub(super) fn check(self, other: bool) -> Result<()> {
        if !other {
            return Err(StoreError::Invalid("a range is copied within one object"));
        }
        if !self.offset.is_multiple_of(BLOCK64) || !self.at.is_multiple_of(BLOCK64) {
            return Err(StoreError::Invalid("a copied range does not start with a block"));
        }
        match self.offset.checked_add(self.len) {
            Some(end) if end <= MAX_OBJECT_SIZE => Ok(()),
            _ => Err(StoreError::Invalid("beyond the largest object size")),
        }
    }

    /// Its end at its new place.
    fn end(self) -> u64 {
        self.at + self.len
    }

    fn blocks(self) -> u32 {
        self.len.div_ceil(BLOCK64) as u32
    }

    /// First block at its new place.
    fn lblk(self) -> u32 {
        (self.at / BLOCK64) as u32
    }

    /// Where the end of a source of `size` bytes comes to lie, if that is within the range.
    fn source_end(self, size: u64) -> Option<u64> {
        let inside = self.offset <= size && size < self.offset + self.len;
        inside.then(|| size - self.offset + self.at)
    }
}

/// Whether the next operation that concerns an object removes it.
pub(super) fn removes_next(later: &[Op], key: &ObjectKey) -> bool {
    let concerns = |op: &&Op| op.key() == Some(key) || op.source() == Some(key);
    matches!(later.iter().find(concerns), Some(Op::Remove(_)))
}

impl Plan {
    /// Makes a range of `to` one of `from`, which has no use for its blocks any more unless they
    /// are `kept`.
    pub(super) fn clone_range(
        &mut self,
        state: &mut State,
        from: ObjectKey,
        to: ObjectKey,
        range: Shifted,
        kept: bool,
    ) {
        state.close_object();
        let source = state.loaded(&from).map(|o| o.size);
        self.step(state, Step::Object(to));
        if range.len == 0 {
            self.step(state, Step::Touch);
            return; // It only creates the object.
        }
        self.clear_slack(state, range.at);
        if state.current_size() < range.end() {
            self.step(state, Step::Size(range.end()));
        }
        let (lblk, len) = (range.lblk(), range.blocks());
        let Some(size) = source else {
            self.step(state, Step::Punch { lblk, len });
            return; // All of it reads as zeros.
        };
        self.step(
            state,
            Step::RangeOf(RangeOf {
                source: from,
                from: (range.offset / BLOCK64) as u32,
                to: lblk,
                len,
                kept,
            }),
        );
        // The source's last block may have what was cut off behind its end.
        if let Some(end) = range.source_end(size)
            && state.current_block((end / BLOCK64) as u32).is_some()
        {
            self.clear(state, end, end.next_multiple_of(BLOCK64).min(range.end()));
        }
    }
}

impl State {
    /// Checks that copied ranges end with a block or are the end of their object: the rest of a
    /// block that is shared is not the object's own. The objects are loaded.
    pub(super) fn check_range_ends(&mut self, ops: &[Op]) -> Result<()> {
        let in_block = |op: &Op| matches!(op, Op::CloneRange { len, .. } if !len.is_multiple_of(BLOCK64));
        let Some(last) = ops.iter().rposition(in_block) else {
            return Ok(());
        };
        let mut sizes = Sizes::default();
        for op in &ops[..=last] {
            if let Op::CloneRange { to, .. } = op
                && in_block(op)
                && sizes.of(self, to) > op.end()
            {
                return Err(StoreError::Invalid(
                    "a copied range ends within a block, before the end of its object",
                ));
            }
            sizes.note(self, op);
        }
        Ok(())
    }
}

/// Sizes of objects in the midst of a transaction, in bytes; `None`: the object is missing.
#[derive(Default)]
struct Sizes<'a>(BTreeMap<&'a ObjectKey, Option<u64>>);

impl<'a> Sizes<'a> {
    fn of(&mut self, state: &mut State, key: &'a ObjectKey) -> Option<u64> {
        *self
            .0
            .entry(key)
            .or_insert_with(|| state.loaded(key).map(|o| o.size))
    }

    /// Notes what an operation does to them.
    fn note(&mut self, state: &mut State, op: &'a Op) {
        let Some(key) = op.key() else {
            return; // It concerns no object.
        };
        let old = self.of(state, key);
        let new = match op {
            Op::Remove(_) => None,
            Op::OmapRm { .. } | Op::OmapRmRange { .. } => old,
            Op::Truncate { size, .. } => Some(*size),
            Op::Clone { from, .. } => self.of(state, from).or(old),
            Op::Move { from, .. } => {
                let moved = self.of(state, from);
                self.0.insert(from, None);
                moved.or(old)
            }
            Op::Write { data, .. } if !data.is_empty() => old.max(op.end()),
            Op::WritePlaced { .. } | Op::Zero { len: 1.., .. } | Op::CloneRange { len: 1.., .. } => {
                old.max(op.end())
            }
            _ => old.or(Some(0)),
        };
        self.0.insert(key, new);
    }
}
