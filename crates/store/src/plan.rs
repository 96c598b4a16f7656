//! Turns a transaction into redo steps: checks it, allocates its blocks, and applies each step.

mod range;

use bytes::Bytes;
use spirula_invariant::invariant;

use self::range::Shifted;
use crate::alloc::{Kind, Run};
use crate::apply::{meta_end, meta_key, omap_end, omap_key};
use crate::config::{BLOCK, BLOCK64};
use crate::direct::{BlockWrite, Laid, gather, slices};
use crate::state::State;
use crate::step::{NewRun, Step};
use crate::txn::{MAX_ATTR_NAME, MAX_OBJECT_SIZE, Op, Payload, Transaction};
use crate::{ObjectKey, Result, StoreError};

/// An applied transaction: its log record, and the writes that must be done before that.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    /// Encoded steps.
    pub(crate) record: Vec<u8>,
    pub(crate) writes: Vec<BlockWrite>,
}

impl Op {
    fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Touch(key) | Self::Remove(key) | Self::RmAttrs(key) | Self::OmapClear(key) => Some(key),
            Self::Write { key, .. }
            | Self::WritePlaced { key, .. }
            | Self::Zero { key, .. }
            | Self::Truncate { key, .. }
            | Self::SetAttr { key, .. }
            | Self::RmAttr { key, .. }
            | Self::SetInfo { key, .. }
            | Self::OmapSet { key, .. }
            | Self::OmapRm { key, .. }
            | Self::OmapRmRange { key, .. }
            | Self::OmapHeader { key, .. } => Some(key),
            Self::Clone { to, .. } | Self::CloneRange { to, .. } | Self::Move { to, .. } => Some(to),
            Self::MetaPut { .. } | Self::MetaDelete(_) | Self::MetaDeleteRange { .. } => None,
        }
    }

    /// The object from which it takes contents.
    fn source(&self) -> Option<&ObjectKey> {
        match self {
            Self::Clone { from, .. } | Self::CloneRange { from, .. } | Self::Move { from, .. } => Some(from),
            _ => None,
        }
    }

    /// Where the bytes that it changes end; `None`: beyond all numbers.
    fn end(&self) -> Option<u64> {
        match self {
            Self::Write { offset, data, .. } => offset.checked_add(data.len() as u64),
            Self::WritePlaced { offset, placed, .. } => offset.checked_add(placed.bytes()),
            Self::Zero { offset, len, .. } => offset.checked_add(*len),
            Self::CloneRange { at, len, .. } => at.checked_add(*len),
            Self::Truncate { size, .. } => Some(*size),
            _ => Some(0),
        }
    }

    /// Checks limits that do not depend on the state.
    fn check(&self) -> Result<()> {
        if self
            .key()
            .is_some_and(|k| k.as_slice().len() > ObjectKey::MAX_LEN)
        {
            return Err(StoreError::Invalid("the object's key is too long"));
        }
        match self {
            Self::SetAttr { name, .. } if name.len() > MAX_ATTR_NAME => {
                return Err(StoreError::Invalid("the attribute's name is too long"));
            }
            Self::WritePlaced { offset, .. } if !offset.is_multiple_of(BLOCK64) => {
                return Err(StoreError::Invalid("placed data does not start with a block"));
            }
            Self::CloneRange {
                from,
                to,
                offset,
                len,
                at,
            } => Shifted::new(*offset, *len, *at).check(from != to)?,
            _ => {}
        }
        match self.end() {
            Some(end) if end <= MAX_OBJECT_SIZE => Ok(()),
            _ => Err(StoreError::Invalid("beyond the largest object size")),
        }
    }

    /// The most bytes that it adds to the log, besides blocks written directly.
    fn log_bytes(&self, direct_min: usize) -> usize {
        let payload = match self {
            Self::Write { data, .. } => {
                let len = data.len();
                if len >= direct_min {
                    3 * BLOCK + len / BLOCK * 20
                } else {
                    BLOCK + len + len / BLOCK * 20
                }
            }
            Self::WritePlaced { placed, .. } => BLOCK + placed.bytes() as usize / BLOCK * 20,
            Self::Zero { .. } | Self::Truncate { .. } => 3 * BLOCK,
            Self::CloneRange { from, .. } => 3 * BLOCK + from.as_slice().len(),
            Self::SetAttr { name, value, .. } => name.len() + value.len(),
            Self::SetInfo { info: b, .. } | Self::OmapHeader { header: b, .. } => b.len(),
            Self::OmapSet { pairs, .. } => pairs.iter().map(|(k, v)| k.len() + v.len() + 32).sum(),
            Self::OmapRm { names, .. } => names.iter().map(|n| n.len() + 32).sum(),
            Self::OmapRmRange { from, to, .. } | Self::MetaDeleteRange { from, to } => from.len() + to.len(),
            Self::MetaPut { key, value } => key.len() + value.len(),
            Self::Clone { from, .. } | Self::Move { from, .. } => from.as_slice().len(),
            _ => 0,
        };
        payload + self.key().map_or(0, |k| k.as_slice().len()) + 64
    }

    /// The bytes that it usually adds to the log: without those that only partial and direct writes
    /// need.
    fn expected_bytes(&self, direct_min: usize) -> usize {
        match self {
            Self::Write { key, data, .. } if data.len() < direct_min => {
                data.len() + key.as_slice().len() + 64
            }
            Self::Write { .. }
            | Self::WritePlaced { .. }
            | Self::Zero { .. }
            | Self::Truncate { .. }
            | Self::CloneRange { .. } => 256,
            other => other.log_bytes(direct_min),
        }
    }

    /// The most blocks that it allocates.
    fn blocks(&self) -> u64 {
        match self {
            Self::Write { data, .. } if !data.is_empty() => data.blocks(),
            Self::Zero { .. } => 3,
            Self::CloneRange { .. } => 2,
            Self::Truncate { .. } | Self::WritePlaced { .. } => 1,
            _ => 0,
        }
    }

    /// Whether it can only free space, after `earlier` ops of its transaction.
    fn is_shrinking(&self, state: &mut State, earlier: &[Self]) -> bool {
        let size = |state: &mut State, key| state.loaded(key).map_or(0, |o| o.size);
        match self {
            Self::Write { .. }
            | Self::WritePlaced { .. }
            | Self::Touch(_)
            | Self::Zero { .. }
            | Self::OmapSet { .. }
            | Self::OmapHeader { .. }
            | Self::Clone { .. }
            | Self::CloneRange { .. } => false,
            Self::Truncate { key, size: to } => {
                // To grow again, it needs a block for the rest of its last one.
                let is_cut = |op: &Self| match op {
                    Self::Truncate { key: k, size } => k == key && size < to,
                    Self::Move { to, .. } => to == key,
                    _ => false,
                };
                size(state, key) >= *to && (*to == 0 || !earlier.iter().any(is_cut))
            }
            _ => true,
        }
    }
}

impl State {
    /// Checks a transaction and loads the objects that it needs. After this, applying it cannot
    /// fail.
    ///
    /// # Errors
    /// Limits, space, or an index that cannot be read; nothing was changed.
    pub(crate) fn admit(&mut self, txn: &Transaction, max_record: usize, room: bool) -> Result<()> {
        let admitted = self.try_admit(txn, max_record, room);
        if admitted.is_err() {
            self.abandon();
        }
        admitted
    }

    fn try_admit(&mut self, txn: &Transaction, max_record: usize, room: bool) -> Result<()> {
        let mut bytes = 0;
        let direct_min = self.direct_min(txn);
        for op in &txn.ops {
            op.check()?;
            if matches!(op, Op::WritePlaced { placed, .. } if !placed.is_of(&self.unused)) {
                return Err(StoreError::Invalid("placed data of another store"));
            }
            bytes += op.log_bytes(direct_min);
            for key in op.source().into_iter().chain(op.key()) {
                self.ensure_loaded(key)?;
            }
        }
        self.check_range_ends(&txn.ops)?;
        if bytes > max_record {
            return Err(StoreError::Invalid("the transaction is too large for the log"));
        }
        let mut needed = 0;
        for (i, op) in txn.ops.iter().enumerate() {
            if !op.is_shrinking(self, &txn.ops[..i]) {
                needed += op.blocks().max(1);
            }
        }
        self.check_room(needed, room)
    }

    /// Checks that so many blocks are free; none is if the index has no `room` for them.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`].
    pub(crate) fn check_room(&self, needed: u64, room: bool) -> Result<()> {
        let available = if room { self.alloc.free() } else { 0 };
        match needed <= available {
            true => Ok(()),
            false => Err(StoreError::NoSpace {
                needed: needed * BLOCK64,
                available: available * BLOCK64,
            }),
        }
    }

    /// The smallest write that goes to its place directly: any block-sized one in a transaction
    /// that writes a lot.
    fn direct_min(&self, txn: &Transaction) -> usize {
        let small = |op: &Op| match op {
            Op::Write { data, .. } if data.len() < self.cfg.direct_min => data.len(),
            _ => 0,
        };
        let total: usize = txn.ops.iter().map(small).sum();
        if total > self.cfg.group_bytes {
            2 * BLOCK
        } else {
            self.cfg.direct_min
        }
    }

    /// Applies an admitted transaction.
    ///
    /// # Errors
    /// The index could not be read for the omap of a clone: the state is half changed, so the store
    /// must fail.
    pub(crate) fn execute(&mut self, txn: Transaction) -> Result<Planned> {
        let direct_min = self.direct_min(&txn);
        let expected = txn.ops.iter().map(|op| op.expected_bytes(direct_min)).sum();
        let mut plan = Plan {
            direct_min,
            omaps: 0,
            out: Planned {
                record: Vec::with_capacity(expected),
                writes: Vec::new(),
            },
        };
        let mut ops = txn.ops.into_iter();
        while let Some(op) = ops.next() {
            plan.op(self, op, ops.as_slice())?;
        }
        Ok(plan.out)
    }
}

struct Plan {
    direct_min: usize,
    /// The number of omap numbers given out so far.
    omaps: u64,
    out: Planned,
}

impl Plan {
    fn step(&mut self, state: &mut State, step: Step) {
        state.apply(&step);
        step.encode(&mut self.out.record);
    }

    fn object(&mut self, state: &mut State, key: ObjectKey) {
        if state.current.as_ref().is_none_or(|c| c.key != key) {
            self.step(state, Step::Object(key));
        }
    }

    /// Carries out an operation, which `later` ones of its transaction follow.
    fn op(&mut self, state: &mut State, op: Op, later: &[Op]) -> Result<()> {
        let simple = match op {
            Op::Write { key, offset, data } => {
                self.object(state, key);
                self.write(state, offset, data);
                return Ok(());
            }
            Op::WritePlaced { key, offset, placed } => {
                self.object(state, key);
                self.clear_slack(state, offset);
                let (runs, crcs) = placed.take();
                self.map_direct(state, offset, runs, crcs);
                return Ok(());
            }
            Op::Zero { key, offset, len } => {
                self.object(state, key);
                self.zero(state, offset, len);
                return Ok(());
            }
            Op::Truncate { key, size } => {
                self.object(state, key);
                self.truncate(state, size);
                return Ok(());
            }
            Op::Clone { from, to, pairs } => return self.clone_object(state, from, to, pairs),
            Op::CloneRange {
                from,
                to,
                offset,
                len,
                at,
            } => {
                let kept = !range::removes_next(later, &from);
                self.clone_range(state, from, to, Shifted::new(offset, len, at), kept);
                return Ok(());
            }
            Op::Move { from, to } => {
                state.close_object();
                if from != to && state.loaded(&from).is_some() {
                    self.step(state, Step::Object(to));
                    self.step(state, Step::MoveOf(from));
                }
                return Ok(());
            }
            Op::OmapSet { key, pairs } => {
                self.object(state, key);
                let omap = self.omap(state);
                for (name, value) in pairs {
                    // A slice of a message, as it comes from clients.
                    let value = Bytes::copy_from_slice(&value);
                    self.step(
                        state,
                        Step::Put {
                            key: omap_key(omap, &name),
                            value,
                        },
                    );
                }
                return Ok(());
            }
            Op::OmapRm { key, names } => {
                if let Some(omap) = self.old_omap(state, key) {
                    for name in names {
                        self.step(state, Step::Delete(omap_key(omap, &name)));
                    }
                }
                return Ok(());
            }
            Op::OmapRmRange { key, from, to } => {
                if let Some(omap) = self.old_omap(state, key) {
                    self.step(
                        state,
                        Step::DeleteRange {
                            from: omap_key(omap, &from),
                            to: omap_key(omap, &to),
                        },
                    );
                }
                return Ok(());
            }
            Op::OmapClear(key) => {
                if let Some(omap) = self.old_omap(state, key) {
                    self.step(
                        state,
                        Step::DeleteRange {
                            from: omap_key(omap, &[]),
                            to: omap_end(omap),
                        },
                    );
                    // The number is not used again: its pairs may go when there is time.
                    self.step(state, Step::Omap(0));
                }
                Step::OmapHeader(Bytes::new())
            }
            Op::Touch(key) => self.on(state, key, Step::Touch),
            Op::Remove(key) => self.on(state, key, Step::Remove),
            Op::SetAttr { key, name, value } => {
                let (name, value) = (own(name), own(value));
                self.on(state, key, Step::SetAttr { name, value })
            }
            Op::RmAttr { key, name } => self.on(state, key, Step::RmAttr(name)),
            Op::RmAttrs(key) => self.on(state, key, Step::RmAttrs),
            Op::SetInfo { key, info } => self.on(state, key, Step::Info(info)),
            Op::OmapHeader { key, header } => {
                let header = Bytes::copy_from_slice(&header);
                self.on(state, key, Step::OmapHeader(header))
            }
            Op::MetaPut { key, value } => Step::Put {
                key: meta_key(&key),
                value,
            },
            Op::MetaDelete(key) => Step::Delete(meta_key(&key)),
            Op::MetaDeleteRange { from, to } => Step::DeleteRange {
                from: meta_key(&from),
                to: meta_key(&to).min(meta_end()),
            },
        };
        self.step(state, simple);
        Ok(())
    }

    fn on(&mut self, state: &mut State, key: ObjectKey, step: Step) -> Step {
        self.object(state, key);
        step
    }

    /// The current object's omap number; it gets one now if it has none.
    fn omap(&mut self, state: &mut State) -> u64 {
        let known = state
            .current
            .as_ref()
            .and_then(|c| c.onode.as_ref())
            .map_or(0, |o| o.omap);
        if known != 0 {
            return known;
        }
        let fresh = self.fresh_omap(state);
        self.step(state, Step::Omap(fresh));
        fresh
    }

    /// A number that no omap had before, made of the transaction's number.
    fn fresh_omap(&mut self, state: &State) -> u64 {
        self.omaps += 1;
        (state.seq + 1) << 20 | self.omaps
    }

    fn old_omap(&mut self, state: &mut State, key: ObjectKey) -> Option<u64> {
        self.object(state, key);
        let omap = state.current.as_ref()?.onode.as_ref()?.omap;
        (omap != 0).then_some(omap)
    }

    fn write(&mut self, state: &mut State, offset: u64, data: Payload) {
        let len = data.len() as u64;
        if len == 0 {
            self.step(state, Step::Touch);
            return; // It creates the object, as Ceph's does.
        }
        self.clear_slack(state, offset);
        let head = (offset.next_multiple_of(BLOCK64) - offset).min(len);
        let middle = (len - head) / BLOCK64 * BLOCK64;
        if (data.len() < self.direct_min) || middle < 2 * BLOCK64 {
            return self.inline(state, offset, gather(&data.parts, 0, len));
        }
        self.inline(state, offset, gather(&data.parts, 0, head));
        self.direct(state, offset + head, slices(&data.parts, head, middle));
        self.inline(
            state,
            offset + head + middle,
            gather(&data.parts, head + middle, len - head - middle),
        );
    }

    fn inline(&mut self, state: &mut State, offset: u64, data: Bytes) {
        if data.is_empty() {
            return; // All of the write is whole blocks.
        }
        let end = offset + data.len() as u64;
        let (first, last) = ((offset / BLOCK64) as u32, ((end - 1) / BLOCK64) as u32);
        let mut new: Vec<NewRun> = Vec::new();
        let mut lblk = first;
        while lblk <= last {
            let start = lblk;
            while lblk <= last && needs_block(state, lblk, offset, end) {
                lblk += 1;
            }
            if lblk == start {
                lblk += 1;
                continue;
            }
            let mut at = start;
            for run in state.allocate(lblk - start, Kind::Small) {
                new.push(NewRun { lblk: at, run });
                at += run.len;
            }
        }
        self.step(state, Step::Inline { offset, data, new });
    }

    fn direct(&mut self, state: &mut State, offset: u64, bufs: Vec<Bytes>) {
        let Laid { runs, crcs, writes } = state.lay_out(bufs);
        for (offset, bufs) in writes {
            // Visible to reads before the device has them.
            state.direct.insert(offset / BLOCK64, bufs.clone());
            self.out.writes.push((offset, bufs));
        }
        self.map_direct(state, offset, runs, crcs);
    }

    /// Makes blocks that have their contents past the log those of the object.
    fn map_direct(&mut self, state: &mut State, offset: u64, runs: Vec<Run>, crcs: Vec<u32>) {
        invariant!(offset.is_multiple_of(BLOCK64), "an offset of whole blocks"; offset = offset);
        let end = offset + crcs.len() as u64 * BLOCK64;
        self.step(
            state,
            Step::Direct {
                lblk: (offset / BLOCK64) as u32,
                runs,
                crcs,
            },
        );
        if state.current_size() < end {
            self.step(state, Step::Size(end));
        }
    }

    /// Zeroes the bytes between the end of the object and `upto` in its last block: they may be
    /// left of truncated data.
    fn clear_slack(&mut self, state: &mut State, upto: u64) {
        let size = state.current_size();
        let end = upto.min(size.next_multiple_of(BLOCK64));
        if end > size && state.current_block((size / BLOCK64) as u32).is_some() {
            self.clear(state, size, end);
        }
    }

    /// Zeroes a part of a block, which then counts as unwritten.
    fn clear(&mut self, state: &mut State, from: u64, to: u64) {
        static ZEROS: [u8; BLOCK] = [0; BLOCK];
        let len = to.saturating_sub(from);
        if len > 0 {
            self.inline(state, from, Bytes::from_static(&ZEROS[..len as usize]));
            self.step(state, Step::Hole { offset: from, len });
        }
    }

    fn zero(&mut self, state: &mut State, offset: u64, len: u64) {
        self.step(state, Step::Touch);
        let end = offset + len;
        if len == 0 {
            return; // It only creates the object.
        }
        self.clear_slack(state, end);
        let size = state.current_size();
        // Beyond the old end there is nothing to clear.
        let stop = end.min(size.next_multiple_of(BLOCK64));
        let (first, last) = (offset.next_multiple_of(BLOCK64), stop / BLOCK64 * BLOCK64);
        if first < last {
            let (lblk, len) = ((first / BLOCK64) as u32, ((last - first) / BLOCK64) as u32);
            self.step(state, Step::Punch { lblk, len });
        }
        for (from, to) in [(offset, first.min(stop)), (last.max(first), stop)] {
            if from < to && state.current_block((from / BLOCK64) as u32).is_some() {
                self.clear(state, from, to);
            }
        }
        if state.current_size() < end || size < end {
            self.step(state, Step::Size(end.max(size)));
        }
    }

    fn truncate(&mut self, state: &mut State, size: u64) {
        let old = state.current_size();
        self.clear_slack(state, size);
        if size < old {
            let first = size.div_ceil(BLOCK64) as u32;
            let end = old.div_ceil(BLOCK64) as u32;
            if first < end {
                self.step(
                    state,
                    Step::Punch {
                        lblk: first,
                        len: end - first,
                    },
                );
            }
        }
        self.step(state, Step::Size(size));
    }

    fn clone_object(&mut self, state: &mut State, from: ObjectKey, to: ObjectKey, pairs: bool) -> Result<()> {
        if from == to {
            return Ok(());
        }
        state.close_object();
        let Some(source) = state.loaded(&from) else {
            return Ok(());
        };
        let pairs = pairs && source.omap != 0;
        let omap = if pairs { self.fresh_omap(state) } else { 0 };
        self.step(state, Step::Object(to));
        self.step(state, Step::CloneOf { source: from, omap });
        if pairs {
            let prefix = omap_key(source.omap, &[]).len();
            for (key, value) in state.all_pairs(&omap_key(source.omap, &[]), &omap_end(source.omap))? {
                self.step(
                    state,
                    Step::Put {
                        key: omap_key(omap, &key[prefix..]),
                        value,
                    },
                );
            }
        }
        Ok(())
    }
}

/// Values from this many bytes on are kept without a copy.
const LARGE_VALUE: usize = 64 << 10;

/// Copies a value that may be a slice of something larger, such as a message, as it is kept for
/// long. A large value is kept as it is.
fn own(bytes: Bytes) -> Bytes {
    match bytes.len() < LARGE_VALUE {
        true => Bytes::copy_from_slice(&bytes),
        false => bytes,
    }
}

/// Whether a block that is written through the log must get a new place. A block that is written
/// completely stays in its place, as the log has all of it. A block that is written in part may
/// only stay if the same generation has written it before; otherwise a torn write-back would
/// destroy old contents that the log does not have.
fn needs_block(state: &mut State, lblk: u32, offset: u64, end: u64) -> bool {
    let Some(block) = state.current_block(lblk) else {
        return true;
    };
    let start = u64::from(lblk) * BLOCK64;
    let whole = offset <= start && start + BLOCK64 <= end;
    block.shared || !(whole || state.active().dirty.contains_key(&block.pblk))
}
