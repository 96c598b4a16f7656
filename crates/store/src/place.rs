//! Large data that comes to the device before there is a transaction that refers to it.
//!
//! The blocks of a placement are allocated in memory only: the log and the index do not know them,
//! so they are free after a crash. A transaction that uses them puts their numbers and checksums
//! into the log and waits for nothing, as they are durable.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hashbrown::HashMap;
use spirula_invariant::impossible;

use crate::alloc::Run;
use crate::config::BLOCK64;
use crate::direct::{BlockWrite, Laid, slices};
use crate::event::{Event, Token};
use crate::store::{Large, Purpose, Store};
use crate::txn::{MAX_OBJECT_SIZE, Op, Payload, Transaction};
use crate::{Result, StoreError};

/// Durable blocks of data that belong to no object yet, as [`Store::place`] makes them. A
/// transaction makes them an object's by [`Op::WritePlaced`](crate::Op::WritePlaced). If the handle
/// is dropped unused, they become free again.
pub struct Placed {
    runs: Vec<Run>,
    /// A checksum of each block.
    crcs: Vec<u32>,
    /// Where they go if they are not used.
    unused: Unused,
}

impl Placed {
    /// The number of bytes, a multiple of [`BLOCK`](crate::BLOCK).
    pub fn bytes(&self) -> u64 {
        self.crcs.len() as u64 * BLOCK64
    }

    /// Whether it is of the store whose unused blocks those are.
    pub(crate) fn is_of(&self, unused: &Unused) -> bool {
        Arc::ptr_eq(&self.unused.0, &unused.0)
    }

    /// The blocks and their checksums, which are an object's from now on.
    pub(crate) fn take(mut self) -> (Vec<Run>, Vec<u32>) {
        (std::mem::take(&mut self.runs), std::mem::take(&mut self.crcs))
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if !self.runs.is_empty() {
            self.unused.lock().append(&mut self.runs);
        }
    }
}

impl fmt::Debug for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Placed({} bytes)", self.bytes())
    }
}

/// Blocks whose handles were dropped unused, until the store takes them back.
#[derive(Clone, Default)]
pub(crate) struct Unused(Arc<Mutex<Vec<Run>>>);

impl Unused {
    fn lock(&self) -> MutexGuard<'_, Vec<Run>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.lock().iter().map(|r| u64::from(r.len)).sum()
    }
}

/// A placement that is not durable yet.
pub(crate) struct Placing {
    token: Token,
    placed: Placed,
}

/// Bytes of a write at most: a group of the log waits on the device for one of these, or for few.
const PIECE: u64 = 128 << 10;
/// The bytes that are placed gently after a small transaction: while others come, the log waits
/// behind few writes.
const GENTLE: u64 = 2 << 20;
/// The bytes on their way to the device while data is placed gently.
const GENTLE_AT_ONCE: u64 = 2 * PIECE;

/// Placements whose writes have not completed.
#[derive(Default)]
pub(crate) struct Placements {
    /// The placements by their numbers, and how many writes each has left.
    open: HashMap<u64, (Placing, usize)>,
    /// Writes whose turn has not come, with the number of the placement.
    waiting: VecDeque<(u64, BlockWrite)>,
    /// Bytes on their way to the device.
    bytes: u64,
    /// Bytes that are still to be placed gently, as small transactions come.
    gentle: u64,
    /// The number of the last placement.
    last: u64,
}

/// The bytes of a write.
fn bytes_of(bufs: &[Bytes]) -> u64 {
    bufs.iter().map(|b| b.len() as u64).sum()
}

impl Placements {
    /// Whether all that was placed is on the device.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Adds a placement with its writes.
    fn add(&mut self, placing: Placing, writes: Vec<BlockWrite>) {
        self.last += 1;
        let before = self.waiting.len();
        for (offset, bufs) in writes {
            let (mut at, end) = (0, bytes_of(&bufs));
            while at < end {
                let len = PIECE.min(end - at);
                self.waiting
                    .push_back((self.last, (offset + at, slices(&bufs, at, len))));
                at += len;
            }
        }
        self.open
            .insert(self.last, (placing, self.waiting.len() - before));
    }

    /// Notes that there is a small transaction.
    pub(crate) fn note_small(&mut self) {
        self.gentle = GENTLE;
    }

    /// The next write to be started, if no more than `most` bytes are under way then, or
    /// [`GENTLE_AT_ONCE`] beside small transactions. One may always be.
    fn next(&mut self, most: u64) -> Option<(u64, BlockWrite)> {
        let (_, (_, bufs)) = self.waiting.front()?;
        let bytes = bytes_of(bufs);
        let most = if self.gentle > 0 {
            most.min(GENTLE_AT_ONCE)
        } else {
            most
        };
        if self.bytes > 0 && self.bytes + bytes > most {
            return None;
        }
        self.bytes += bytes;
        self.gentle = self.gentle.saturating_sub(bytes);
        self.waiting.pop_front()
    }

    /// Notes that a write of this many bytes has completed. Returns the placement if that was its
    /// last one.
    fn written(&mut self, number: u64, bytes: u64) -> Option<Placing> {
        let Some((_, left)) = self.open.get_mut(&number).filter(|(_, left)| *left > 0) else {
            impossible!("a placement that is being written"; number = number)
        };
        self.bytes -= bytes;
        *left -= 1;
        if *left > 0 {
            return None;
        }
        self.open.remove(&number).map(|(whole, _)| whole)
    }
}

/// Whether a transaction without large data of its own is a small one, and none that ends a large
/// one: it changes objects, and no blocks change hands by it.
pub(crate) fn may_be_small(txn: &Transaction) -> bool {
    let is_of_objects = |op: &Op| {
        !matches!(
            op,
            Op::MetaPut { .. } | Op::MetaDelete(_) | Op::MetaDeleteRange { .. }
        )
    };
    let hands_over = |op: &Op| matches!(op, Op::WritePlaced { .. } | Op::CloneRange { .. });
    txn.ops.iter().any(is_of_objects) && !txn.ops.iter().any(hands_over)
}

impl Store {
    /// Brings whole blocks of data, two at least, to free blocks of the device, ahead of the
    /// transaction that makes them an object's. When they are durable, [`Event::Placed`] hands them
    /// over. Whoever has no use for them any more drops the handle when it comes. Nothing refers to
    /// the blocks before they are used: after a crash they are free.
    ///
    /// The data is kept until the device has it. At most
    /// [`Config::place_at_once`](crate::Config::place_at_once) bytes are under way there, the rest
    /// waits in order. What waits is bounded by the owner alone.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`], [`StoreError::Invalid`]: nothing was changed.
    /// [`StoreError::Fatal`]: the store has failed.
    pub fn place(&mut self, data: impl Into<Payload>, token: Token) -> Result<()> {
        self.check()?;
        let data = data.into();
        let len = data.len() as u64;
        if !len.is_multiple_of(BLOCK64) || len < 2 * BLOCK64 {
            return Err(StoreError::Invalid(
                "what is placed is not two whole blocks or more",
            ));
        }
        if len > MAX_OBJECT_SIZE {
            return Err(StoreError::Invalid("beyond the largest object size"));
        }
        // As much as a write of it may need, so that it can be used, too.
        let needed = data.blocks();
        self.admit(|state, room| state.check_room(needed, room))?;
        self.stats.placed_bytes += len;
        let Laid { runs, crcs, writes } = self.state.lay_out(slices(&data.parts, 0, len));
        let unused = self.state.unused.clone();
        let placed = Placed { runs, crcs, unused };
        self.placements.add(Placing { token, placed }, writes);
        self.start_placements();
        Ok(())
    }

    /// Starts the placements whose turn it is.
    fn start_placements(&mut self) {
        let most = self.state.cfg.place_at_once as u64;
        while let Some((number, (offset, bufs))) = self.placements.next(most) {
            let bytes = bytes_of(&bufs);
            self.write_direct(offset, bufs, Purpose::Place { number, bytes });
        }
    }

    /// Handles the completion of a write of a placement.
    pub(crate) fn place_done(&mut self, number: u64, bytes: u64) {
        if let Some(placing) = self.placements.written(number, bytes) {
            self.unflushed.push(Large::Placement(placing));
        }
        if self.failed.is_none() {
            self.start_placements();
        }
    }

    /// Hands over a placement that has become durable.
    pub(crate) fn placed(&mut self, placing: Placing) {
        if self.failed.is_some() {
            return; // Its owner was told that the store failed.
        }
        let Placing { token, placed } = placing;
        self.events.push_back(Event::Placed(token, placed));
    }

    /// Makes blocks free whose handles were dropped.
    pub(crate) fn take_back(&mut self) {
        let runs = std::mem::take(&mut *self.state.unused.lock());
        if runs.is_empty() {
            return; // No handle was dropped.
        }
        for run in runs {
            self.state.alloc.release(run);
        }
        self.refill_spare();
    }
}
