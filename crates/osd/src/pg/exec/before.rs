//! The object as it was before a request: its state, and the answers fetched of it.

use bytes::Bytes;
use spirula_errno::*;

use super::answers::Answers;
use super::{ObjectState, Stop, fail};
use crate::pg::config::PgConfig;
use crate::pg::fetch::{Answer, Fetched, ReadRange, Want};

/// The object and the answers that a run can read.
pub(super) struct Before<'a> {
    cfg: &'a PgConfig,
    /// The object.
    pub(super) state: &'a ObjectState,
    /// The answers that were fetched.
    answers: Answers<'a>,
    /// The want for which the run ended.
    pub(super) missing: Option<Want>,
    /// Whether a class method reads.
    pub(super) in_call: bool,
    /// The bytes that class methods have read from the store, or made.
    call_bytes: u64,
}

impl<'a> Before<'a> {
    pub(super) fn new(cfg: &'a PgConfig, state: &'a ObjectState, answers: &'a [Fetched]) -> Self {
        Self {
            cfg,
            state,
            answers: Answers::new(answers),
            missing: None,
            in_call: false,
            call_bytes: 0,
        }
    }

    /// Whether `want` was fetched.
    pub(super) fn has(&mut self, want: &Want) -> bool {
        self.answers.find(want).is_some()
    }

    /// The store's answer to `want`.
    ///
    /// # Errors
    /// It was not fetched yet; it can't be read; or the request reads more than may be held for it.
    pub(super) fn fetch(&mut self, want: Want) -> Result<&'a Answer, Stop> {
        let found = self.answers.find(&want);
        if self.in_call {
            self.note_call_bytes(found.map_or_else(|| want.cost(), Fetched::len))?;
        }
        if let Some(f) = found {
            return f.answer.as_ref().map_err(|_| Stop::Failed(EIO));
        }
        if self.answers.bytes.saturating_add(want.cost()) > self.cfg.max_fetch() {
            return Err(Stop::Failed(ENOMEM));
        }
        if want.is_pairs() && self.answers.pairs > self.cfg.max_facts() / 2 {
            return Err(Stop::Failed(ENOMEM));
        }
        // In this order only, so that no two requests wait for staging objects that the other has.
        if want.slot().is_some_and(|slot| self.answers.hold(slot)) {
            return Err(Stop::Failed(ENOMEM));
        }
        self.missing = Some(want);
        Err(Stop::Unfetched)
    }

    /// Counts `bytes` more that a class method reads from the store, or makes.
    pub(super) fn note_call_bytes(&mut self, bytes: u64) -> Result<(), Stop> {
        self.call_bytes = self.call_bytes.saturating_add(bytes);
        if self.call_bytes > self.cfg.max_class_bytes as u64 {
            return fail(ENOMEM);
        }
        Ok(())
    }

    /// The bytes of omap pairs that are read at once.
    pub(super) fn omap_bytes(&self) -> usize {
        let all = self.cfg.max_omap_bytes;
        if self.in_call {
            all.min(self.cfg.max_class_page)
        } else {
            all
        }
    }

    /// The object's bytes, as pieces by offset: the whole range as far as the object reaches, or
    /// only the stored parts.
    pub(super) fn data(&mut self, offset: u64, len: u64, sparse: bool) -> Result<&'a [(u64, Bytes)], Stop> {
        let size = if self.state.exists {
            self.state.info.size
        } else {
            0
        };
        let len = len.min(size.saturating_sub(offset));
        if len == 0 {
            return Ok(&[]);
        }
        match self.fetch(Want::Data(ReadRange { offset, len, sparse }))? {
            Answer::Data(pieces) => Ok(pieces),
            _ => fail(EIO),
        }
    }
}
