//! Advances the store: takes completions, forms group commits, starts operations.

use std::sync::Arc;

use spirula_invariant::{impossible, invariant};

use crate::device::{Done, IoKind};
use crate::event::Event;
use crate::exec::{Job, JobDone};
use crate::index::Page;
use crate::onode::Onode;
use crate::store::{Flight, Large, Purpose, Store, Waiting};
use crate::{ObjectKey, Result, StoreError};

impl Store {
    /// One round of all steps.
    pub(crate) fn advance(&mut self) {
        let mut done = Vec::new();
        self.dev.reap(&mut done);
        if let Some(log) = &mut self.log_dev {
            log.reap(&mut done);
        }
        for d in done {
            self.io_done(d);
        }
        let mut jobs = Vec::new();
        self.exec.take(&mut jobs);
        for job in jobs {
            self.job_done(job);
        }
        if self.failed.is_none() {
            self.take_back();
            self.release();
            self.start_direct_flush();
            self.start_group();
            self.advance_checkpoint();
            self.advance_ground();
            if !self.lookups.is_empty() {
                self.exec.submit(Job::Lookup(std::mem::take(&mut self.lookups)));
            }
        }
        self.dev.kick();
        if let Some(log) = &mut self.log_dev {
            log.kick();
        }
    }

    fn io_done(&mut self, done: Done) {
        let Some(purpose) = self.ios.remove(&done.tag) else {
            impossible!("the completion of an operation that is under way"; operation = done.tag)
        };
        match (purpose, done.result) {
            (Purpose::Read(part), result) => self.read_done(part, result, done.buf),
            (Purpose::Base(id, read), result) => self.base_done(id, &read, result, done.buf),
            (Purpose::Ahead(id, len), _) => self.ahead_done(id, len),
            (Purpose::Direct { seq, block }, Ok(())) => {
                let known = self.state.direct.remove(&block);
                invariant!(known.is_some(), "the contents of a large write"; transaction = seq, block = block);
                if self.log.operation_done(seq) == 1 {
                    self.unflushed.push(Large::Transaction(seq));
                }
            }
            (Purpose::Place { number, bytes }, Ok(())) => self.place_done(number, bytes),
            (Purpose::DirectFlush, Ok(())) => self.direct_flushed(),
            (Purpose::Log, Ok(())) => self.group_done(),
            (Purpose::Checkpoint, Ok(())) => self.checkpoint_io_done(),
            (Purpose::Direct { .. } | Purpose::Place { .. } | Purpose::DirectFlush, Err(e)) => {
                drop(self.io_failed("data write", &e));
            }
            (Purpose::Log, Err(e)) => drop(self.io_failed("log write", &e)),
            (Purpose::Checkpoint, Err(e)) => drop(self.io_failed("write-back", &e)),
        }
    }

    fn direct_flushed(&mut self) {
        for large in std::mem::take(&mut self.flushing) {
            match large {
                Large::Transaction(seq) => {
                    let left = self.log.operation_done(seq);
                    invariant!(left == 0, "a flush after all large writes"; transaction = seq, left = left);
                }
                Large::Placement(placing) => self.placed(placing),
            }
        }
    }

    /// Starts a flush for completed large writes, unless one is under way: the log must not refer
    /// to them before. Their checksums could not tell whether they had reached the device, as the
    /// old contents of their place may have the same ones.
    fn start_direct_flush(&mut self) {
        if self.flushing.is_empty() && !self.unflushed.is_empty() {
            self.flushing = std::mem::take(&mut self.unflushed);
            self.queue(IoKind::Flush, Purpose::DirectFlush);
        }
    }

    /// Writes the next group to the log, if no write of one is under way.
    fn start_group(&mut self) {
        if self.flight.is_some() {
            return; // What is submitted meanwhile shares the next one.
        }
        let Some(group) = self.log.next_group() else {
            return; // Nothing is ready, or the index must make room in the log.
        };
        self.stats.groups += 1;
        self.stats.log_bytes += group.bytes.len() as u64;
        self.queue_log(IoKind::Write {
            offset: group.offset,
            bufs: vec![group.bytes],
            durable: true,
        });
        self.flight = Some(Flight {
            tokens: group.tokens,
            last_seq: group.last_seq,
        });
    }

    fn group_done(&mut self) {
        if self.failed.is_some() {
            return; // Its owner was told that the store failed: the log decides at the next start.
        }
        let Some(flight) = self.flight.take() else {
            impossible!("a group on its way to the log"; durable = self.log.durable_seq)
        };
        self.log.group_durable(flight.last_seq);
        self.events
            .extend(flight.tokens.into_iter().map(Event::Committed));
    }

    fn job_done(&mut self, job: JobDone) {
        match job {
            JobDone::Commit(result) => self.commit_done(result),
            JobDone::Purged(result) => self.purged(result),
            JobDone::Ground(done) => self.ground_done(done),
            JobDone::Learnt(Ok(Some(next))) => self.exec.submit(Job::Learn(next)),
            JobDone::Learnt(Ok(None)) => tracing::debug!("all objects are known"),
            // A reader of the damaged part gets the error; without the filter every object is
            // looked up.
            JobDone::Learnt(Err(e)) => tracing::warn!("cannot learn which objects there are: {e}"),
            JobDone::Lookup(found) => {
                for (id, result) in found {
                    let result = result.map_err(|e| self.stop_if_ruined(e));
                    self.lookup_done(id, result);
                }
            }
            JobDone::Objects(id, result) => {
                let result = result.map_err(|e| self.stop_if_ruined(e));
                self.objects_done(id, result);
            }
            JobDone::Pairs(id, result) => {
                let result = result.map_err(|e| self.stop_if_ruined(e));
                self.pairs_done(id, result);
            }
            JobDone::Examined(token, found) => self.examined(token, found),
            JobDone::Judged(token, damage) => self.judged(token, damage),
        }
    }

    /// Stops the store if a look-up found that the index can't be opened any more.
    pub(crate) fn stop_if_ruined(&mut self, error: StoreError) -> StoreError {
        match error {
            StoreError::Ruined { .. } => self.stop_if_damaged(error),
            other => other,
        }
    }

    /// The call that waits for job `id`. `None`, and the job runs again, if a checkpoint came in
    /// between: then changes may be in neither the job's view nor the generations in memory.
    fn waiting(&mut self, id: u64) -> Option<Waiting> {
        let Some((epoch, waiting)) = self.waiting.remove(&id) else {
            // All were answered when the store failed.
            invariant!(self.failed.is_some(), "a call that waits for a job"; job = id);
            return None;
        };
        if epoch != self.epoch {
            self.wait_for_job(waiting);
            return None;
        }
        Some(waiting)
    }

    fn lookup_done(&mut self, id: u64, result: Result<Option<Onode>>) {
        let Some(waiting) = self.waiting(id) else {
            return; // It is answered, or looked up again.
        };
        let (Waiting::Lookup { key, .. } | Waiting::Read { key, .. }) = &waiting else {
            impossible!("a call that waits for an object"; job = id)
        };
        // Changes that were submitted meanwhile are newer.
        let known = match (self.state.resident(key), result) {
            (Some(known), _) => Ok(known),
            (None, Ok(found)) => {
                let known = found.map(Arc::new);
                self.state.remember(key, &known);
                Ok(known)
            }
            (None, Err(e)) => Err(e),
        };
        match (waiting, known) {
            (Waiting::Lookup { token, .. }, known) => self.events.push_back(Event::Lookup(token, known)),
            (Waiting::Read { key, asked, token }, Ok(known)) => {
                let read = self.start_read(&key, &known, asked, token);
                self.answer_read(token, read);
            }
            (Waiting::Read { token, .. }, Err(e)) => self.events.push_back(Event::Read(token, Err(e))),
            (Waiting::Objects { .. } | Waiting::Pairs { .. } | Waiting::Keys { .. }, _) => {
                impossible!("a call that waits for an object"; job = id)
            }
        }
    }

    fn objects_done(&mut self, id: u64, result: Result<Page<bytes::Bytes>>) {
        match self.waiting(id) {
            Some(Waiting::Objects {
                from,
                to,
                limit,
                token,
            }) => {
                let (from, to) = (from.as_slice(), to.as_ref().map(ObjectKey::as_slice));
                let listing = result.map(|page| self.state.merge_objects(from, to, page, limit));
                self.events.push_back(Event::List(token, listing));
            }
            Some(_) => impossible!("a call that waits for a listing"; job = id),
            // It is answered, or listed again.
            None => {}
        }
    }

    fn pairs_done(&mut self, id: u64, result: Result<Page<bytes::Bytes>>) {
        match self.waiting(id) {
            Some(Waiting::Pairs {
                from,
                to,
                limit,
                skip,
                token,
            }) => {
                let pairs = result.map(|page| self.state.merge_pairs(&from, &to, page, limit, skip));
                self.events.push_back(Event::Pairs(token, pairs));
            }
            Some(Waiting::Keys {
                keys,
                limit,
                skip,
                token,
            }) => {
                let pairs = result.map(|page| self.state.merge_keys(&keys, page, limit, skip));
                self.events.push_back(Event::Pairs(token, pairs));
            }
            Some(_) => impossible!("a call that waits for pairs"; job = id),
            // It is answered, or looked up again.
            None => {}
        }
    }
}
