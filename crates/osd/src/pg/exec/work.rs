//! The cost of a request. It is executed in one go, and nothing else meanwhile: so there is a
//! limit, however the request is put together.

use spirula_errno::*;
use spirula_proto::osd::OpCode;

use super::{Stop, fail};
use crate::pg::config::PgConfig;
use crate::pg::op::OsdOp;

/// The cost of an op besides the bytes that it copies, in bytes: the time of a lookup or two.
const OP: u64 = 512;
/// The cost of an item of a list besides its bytes.
pub(super) const ITEM: u64 = 32;
/// The cost of an item that is only looked at.
pub(super) const SHORT_ITEM: u64 = 4;

/// The cost of a request so far, and the bytes that it would return and write.
pub(super) struct Work<'a> {
    cfg: &'a PgConfig,
    /// The processor time, as bytes that are copied or compared in it. Runs that were given up
    /// count.
    pub(super) spent: u64,
    /// Bytes of output.
    returned: u64,
    /// The part of the output that is not data of the object.
    facts: u64,
    /// Bytes of data written; of repeated patterns all repetitions.
    written: u64,
}

impl<'a> Work<'a> {
    pub(super) fn new(cfg: &'a PgConfig, spent: u64) -> Self {
        Self {
            cfg,
            spent,
            returned: 0,
            facts: 0,
            written: 0,
        }
    }

    /// Adds `bytes` to the cost.
    ///
    /// # Errors
    /// E2BIG where that is more than a request may.
    pub(super) fn spend(&mut self, bytes: u64) -> Result<(), Stop> {
        self.spent = self.spent.saturating_add(bytes);
        if self.spent > self.cfg.max_work {
            return fail(E2BIG);
        }
        Ok(())
    }

    /// Counts an op that begins.
    ///
    /// # Errors
    /// As [`Work::spend`].
    pub(super) fn begin_op(&mut self) -> Result<(), Stop> {
        self.spend(OP)
    }

    /// Counts the output of an op. Data that was read is passed on as it is; everything else was
    /// copied.
    ///
    /// # Errors
    /// ENOMEM where the request returns more than it may; as [`Work::spend`].
    pub(super) fn end_op(&mut self, op: &OsdOp) -> Result<(), Stop> {
        let bytes = op.outdata.len() as u64;
        if bytes == 0 {
            return Ok(());
        }
        self.returned = self.returned.saturating_add(bytes);
        let is_data = matches!(op.code, OpCode::READ | OpCode::SYNC_READ | OpCode::SPARSE_READ);
        if !is_data {
            self.facts = self.facts.saturating_add(bytes);
        }
        if self.returned > self.cfg.max_fetch() || self.facts > self.cfg.max_facts() {
            return fail(ENOMEM);
        }
        if is_data {
            self.spend(ITEM * op.outdata.iter().count() as u64)
        } else {
            self.spend(bytes)
        }
    }

    /// Counts data to be written.
    ///
    /// # Errors
    /// EMSGSIZE where the request writes more than it may.
    pub(super) fn note_written(&mut self, bytes: u64) -> Result<(), Stop> {
        self.written = self.written.saturating_add(bytes);
        if self.written > self.cfg.max_write_size as u64 {
            return fail(EMSGSIZE);
        }
        Ok(())
    }
}
