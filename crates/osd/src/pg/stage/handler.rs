//! Builds staging objects for ops that wait.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use spirula_erasure as coding;
use spirula_errno::*;
use spirula_invariant::{dropped, impossible, invariant};

use super::{Job, Lane, Place, Progress, Source, Step};
use crate::pg::account::Room;
use crate::pg::ahead::ticket::Ahead;
use crate::pg::copy::CopyFetch;
use crate::pg::fetch::{Answer, Fetched, OmapRange, Pieces, ReadError, Want, key_after};
use crate::pg::output::Ctx;
use crate::pg::perf::DropReason;
use crate::pg::serving::Serving;
use crate::pg::staged::{Slot, Whole};
use crate::pg::store_queue::Pending;
use crate::pg::txn::{ObjectOp, PAIR_LOGGED, log_bytes_of};

/// Divides changes among transactions that log at most `max` bytes each, unless a single pair logs
/// more.
fn divide(ops: Vec<ObjectOp>, max: usize) -> VecDeque<Step> {
    let mut out: VecDeque<Step> = VecDeque::new();
    let mut used = usize::MAX;
    let mut add = |op: ObjectOp| {
        let bytes = log_bytes_of(std::slice::from_ref(&op));
        used = used.saturating_add(bytes);
        if let Some(last) = out.back_mut().filter(|_| used <= max) {
            last.ops.push(op);
        } else {
            out.push_back(vec![op].into());
            used = bytes;
        }
    };
    for op in ops {
        let ObjectOp::OmapSet(pairs) = op else {
            add(op);
            continue;
        };
        let (mut some, mut bytes) = (Vec::new(), PAIR_LOGGED);
        for (k, v) in pairs {
            let pair = k.len() + v.len() + PAIR_LOGGED;
            if bytes + pair > max && !some.is_empty() {
                add(ObjectOp::OmapSet(std::mem::take(&mut some)));
                bytes = PAIR_LOGGED;
            }
            bytes += pair;
            some.push((k, v));
        }
        if !some.is_empty() {
            add(ObjectOp::OmapSet(some));
        }
    }
    out
}

/// The steps that bring portions of a change to the members. `base`: the object that is changed.
fn portions_of(portions: Vec<Vec<coding::Step>>, base: &Bytes) -> impl DoubleEndedIterator<Item = Step> {
    let portion = |steps| ObjectOp::Portion {
        steps,
        base: base.clone(),
    };
    portions.into_iter().map(move |p| vec![portion(p)].into())
}

/// Builds staging objects for ops that wait.
pub(in crate::pg) struct Staging<'a> {
    pub(in crate::pg) serving: Serving<'a>,
}

impl Staging<'_> {
    /// Removes the staging objects that nobody waits for any more.
    pub(in crate::pg) fn drop_stages(&mut self, cx: &mut Ctx<'_>) {
        for slot in Slot::all() {
            let place = self.serving.ops.stages.place(slot);
            if let Place::Whole(key, held) = place
                && held.strong_count() == 0
            {
                let key = std::mem::take(key);
                *place = Place::Free;
                self.remove_stage(key, cx);
            }
        }
    }

    fn remove_stage(&mut self, key: Bytes, cx: &mut Ctx<'_>) {
        let objects = vec![(key, vec![ObjectOp::Remove])];
        self.serving.replicate_own(None, objects, None, cx);
    }

    /// Handles the want of an op about this object, for which a staging object may be needed.
    pub(in crate::pg) fn stage(&mut self, seq: u32, object: Bytes, want: Want, cx: &mut Ctx<'_>) {
        let (slot, source, progress) = match &want {
            Want::Copy(copy) => {
                let fetch = CopyFetch::new((**copy).clone());
                (Slot::Becomes, Source::Copy(Box::new(fetch)), Progress::Waiting)
            }
            Want::Staged { source, slot } => {
                let max = self.serving.site.cfg.max_clone_logged;
                self.read_pairs(seq, source.clone(), Bytes::new(), max, cx);
                let key = source.clone();
                let from = Some(Bytes::new());
                (*slot, Source::Object { key, from }, Progress::Looking)
            }
            Want::Large(..) => (Slot::Large(0), Source::Change, Progress::Waiting),
            want => impossible!(
                "a staging object for what may need one";
                pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch(), want = format!("{want:?}")
            ),
        };
        let jobs = &mut self.serving.ops.stages.jobs;
        invariant!(
            jobs.iter().all(|j| j.seq != seq),
            "an op to wait for one staging object at a time";
            pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch(), job = seq
        );
        // What is staged is not needed a second time.
        let (want, portions, base) = match want {
            Want::Large(portions, base) => (Want::Large(Vec::new(), base.clone()), portions, base),
            want => (want, Vec::new(), Bytes::new()),
        };
        jobs.push(Job {
            seq,
            object,
            want,
            slot,
            source,
            progress,
            begun: false,
            end: 0,
            steps: portions_of(portions, &base).collect(),
        });
    }

    /// Begins to build the next staging object.
    pub(crate) fn start_stage(&mut self, lane: Lane, cx: &mut Ctx<'_>) {
        let s = &mut self.serving.ops.stages;
        let next = s.startable(lane);
        let slot = next.and_then(|at| s.slot_for(s.jobs.get(at)?));
        if let Some((job, slot)) = next.and_then(|at| s.jobs.get_mut(at)).zip(slot) {
            job.progress = Progress::Running;
            job.slot = slot;
            let seq = job.seq;
            invariant!(
                matches!(s.place(slot), Place::Free),
                "a staging object to be begun where there is none";
                pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch(), job = seq
            );
            *s.place(slot) = Place::Building;
            self.stage_next(seq, cx);
        }
    }

    fn read_pairs(&mut self, seq: u32, key: Bytes, from: Bytes, bytes: usize, cx: &mut Ctx<'_>) {
        let range = OmapRange {
            from,
            to: None,
            max: bytes / PAIR_LOGGED,
            max_bytes: bytes,
            values: true,
        };
        self.serving
            .store
            .read(key, vec![Want::Omap(range)], None, Pending::Stage(seq), cx);
    }

    /// Handles pairs that were read of an object of the PG.
    pub(in crate::pg) fn stage_read(&mut self, seq: u32, mut fetched: Vec<Fetched>, cx: &mut Ctx<'_>) {
        let max = self.serving.site.cfg.max_logged;
        let pgid = self.serving.site.pgid;
        let Some(job) = self.serving.ops.stages.job(seq) else {
            return dropped!(cx.perf.dropped, DropReason::StoreLate; pg = pgid);
        };
        let Source::Object { from, .. } = &mut job.source else {
            impossible!("pairs that were read to be of an object of the PG"; pg = pgid, job = seq);
        };
        let Some(Ok(Answer::Omap(page))) = fetched.pop().map(|f| f.answer) else {
            return self.end_with(seq, Err(ReadError), cx);
        };
        if job.progress == Progress::Looking {
            if !page.more {
                return self.stage_ended(seq, Answer::Staged(Ok(None)), cx);
            }
            job.progress = Progress::Waiting;
            // All of it is read again when it is its turn, so that none is in memory before.
            return;
        }
        *from = page.pairs.last().filter(|_| page.more).map(|(k, _)| key_after(k));
        job.steps = divide(vec![ObjectOp::OmapSet(page.pairs)], max);
        self.stage_next(seq, cx);
    }

    /// Handles a part of another object, which is `complete` with it.
    pub(in crate::pg) fn stage_part(
        &mut self,
        seq: u32,
        ops: Vec<ObjectOp>,
        complete: bool,
        cx: &mut Ctx<'_>,
    ) {
        let max = self.serving.site.cfg.max_logged;
        let job = self.job(seq);
        if let Source::Copy(fetch) = &mut job.source
            && complete
            && !job.begun
            && log_bytes_of(&ops) <= max / 2
        {
            let mut copied = std::mem::take(&mut fetch.copied);
            copied.content = ops;
            return self.stage_ended(seq, Answer::Copy(Ok(Arc::new(copied))), cx);
        }
        job.steps = divide(ops, max);
        self.stage_next(seq, cx);
    }

    /// Goes on after the last step is durable: sends the next one, or gets the next part of the
    /// copied object.
    pub(in crate::pg) fn stage_next(&mut self, seq: u32, cx: &mut Ctx<'_>) {
        let page = self.serving.site.cfg.stage_page;
        let Some(job) = self.serving.ops.stages.job(seq) else {
            // It was given up while its last step was under way.
            return;
        };
        if let Some(step) = job.steps.pop_front() {
            return self.send_step(seq, step, cx);
        }
        match &mut job.source {
            Source::Object {
                key,
                from: Some(from),
            } => {
                let (key, from) = (key.clone(), from.clone());
                self.read_pairs(seq, key, from, page, cx);
            }
            Source::Copy(fetch) if !fetch.is_complete() => self.ask_for_part(seq, cx),
            _ if !job.begun => self.send_step(seq, Vec::new().into(), cx),
            _ => self.stage_whole(seq, cx),
        }
    }

    fn send_step(&mut self, seq: u32, step: Step, cx: &mut Ctx<'_>) {
        let Some(Pending::Op(r)) = self.serving.store.pending.get(&seq) else {
            impossible!("a staging object to be built for an op that waits"; pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch(), job = seq);
        };
        if r.op.client.is_shut_out(&*self.serving.site.map) {
            return self.stage_failed(seq, EBLOCKLISTED, cx);
        }
        let is_shared = r.op.taken.turn.as_ref().is_some_and(|turn| turn.is_shared());
        match self.serving.site.check_full(&r.op, true, true, cx) {
            Ok(()) => {}
            Err(Some(e)) => return self.stage_failed(seq, e, cx),
            Err(None) => return self.stage_given_up(seq, cx),
        }
        let (pgid, layout) = (self.serving.site.pgid, self.serving.store.layout());
        let job = self.job(seq);
        invariant!(
            job.progress == Progress::Running,
            "a step of a staging object to be made when it is its turn";
            pg = pgid, job = seq
        );
        let (key, end) = (job.key(pgid, layout), job.end);
        let (backend, nothing) = (&self.serving.site.backend, Pieces::new());
        if !step.staged
            && let Some(portions) = backend.portions(end, &step.ops, &nothing, &self.serving.site.cfg)
        {
            let steps = &mut self.job(seq).steps;
            steps.push_front(Step { staged: true, ..step });
            portions_of(portions, &key)
                .rev()
                .for_each(|p| steps.push_front(p));
            return self.stage_next(seq, cx);
        }
        if let [ObjectOp::Portion { steps, .. }] = &step.ops[..]
            && is_shared
            && step.ahead.is_none()
            && self.serving.placing_ahead().place_portion(seq, steps, cx)
        {
            self.job(seq).steps.push_front(step);
            return; // Goes on when the data is placed.
        }
        let Step {
            mut ops,
            staged,
            ahead,
        } = step;
        let job = self.job(seq);
        if !job.begun {
            ops.splice(..0, job.beginning());
            job.begun = true;
        }
        let written = ops.iter().map(|op| match op {
            ObjectOp::Write { offset, data } => offset + data.len() as u64,
            _ => 0,
        });
        job.end = written.fold(end, u64::max);
        let backend = &self.serving.site.backend;
        invariant!(
            backend.old(end, &ops).is_empty(),
            "data of a staging object to be added behind what it has";
            pg = pgid, job = seq, end = end
        );
        let ops = match staged {
            true => backend.take(end, ops, &nothing, None),
            false => backend.code(end, ops, &nothing),
        };
        let objects = vec![(key, ops)];
        self.serving.replicate_own(Some(seq), objects, ahead, cx);
    }

    /// Goes on with a portion whose data members have ahead of it.
    pub(in crate::pg) fn portion_placed(&mut self, seq: u32, ahead: Box<Ahead>, cx: &mut Ctx<'_>) {
        let job = self.serving.ops.stages.job(seq);
        let Some(step) = job.and_then(|j| j.steps.front_mut()) else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate; pg = self.serving.site.pgid, number = seq);
        };
        step.ahead = Some(ahead);
        self.stage_next(seq, cx);
    }

    fn stage_whole(&mut self, seq: u32, cx: &mut Ctx<'_>) {
        let (pgid, layout) = (self.serving.site.pgid, self.serving.store.layout());
        let job = self.job(seq);
        let (slot, key) = (job.slot, job.key(pgid, layout));
        let whole = Arc::new(Whole {
            slot,
            key: key.clone(),
        });
        let place = self.serving.ops.stages.place(slot);
        invariant!(
            matches!(place, Place::Building),
            "a staging object that becomes whole to be the one that was built";
            pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch(), job = seq
        );
        *place = Place::Whole(key, Arc::downgrade(&whole));
        let answer = match &mut self.job(seq).source {
            Source::Object { .. } | Source::Change => Answer::Staged(Ok(Some(whole))),
            Source::Copy(fetch) => {
                let mut copied = std::mem::take(&mut fetch.copied);
                copied.staged = Some(whole);
                Answer::Copy(Ok(Arc::new(copied)))
            }
        };
        self.stage_ended(seq, answer, cx);
    }

    /// Ends a job with an error.
    pub(in crate::pg) fn stage_failed(&mut self, seq: u32, e: Errno, cx: &mut Ctx<'_>) {
        let answer = match self.job(seq).source {
            Source::Object { .. } | Source::Change => Answer::Staged(Err(e)),
            Source::Copy(_) => Answer::Copy(Err(e)),
        };
        self.stage_ended(seq, answer, cx);
    }

    /// A job that is under way.
    fn job(&mut self, seq: u32) -> &mut Job {
        let pgid = self.serving.site.pgid;
        match self.serving.ops.stages.job(seq) {
            Some(job) => job,
            None => impossible!("a staging object that goes on to be wanted"; pg = pgid, job = seq),
        }
    }

    /// Ends a job. Returns its want, and removes a staging object that is not whole.
    fn end_job(&mut self, seq: u32, cx: &mut Ctx<'_>) -> Want {
        let jobs = &mut self.serving.ops.stages.jobs;
        let Some(at) = jobs.iter().position(|j| j.seq == seq) else {
            impossible!("a staging object that ends to be wanted"; pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch(), job = seq);
        };
        let job = jobs.remove(at);
        let place = self.serving.ops.stages.place(job.slot);
        if job.progress == Progress::Running && matches!(place, Place::Building) {
            *place = Place::Free;
            if job.begun {
                let key = job.key(self.serving.site.pgid, self.serving.store.layout());
                self.remove_stage(key, cx);
            }
        }
        job.want
    }

    /// Hands the waiting op its answer.
    fn stage_ended(&mut self, seq: u32, answer: Answer, cx: &mut Ctx<'_>) {
        self.end_with(seq, Ok(answer), cx);
    }

    fn end_with(&mut self, seq: u32, answer: Result<Answer, ReadError>, cx: &mut Ctx<'_>) {
        let want = self.end_job(seq, cx);
        if let Some(Pending::Op(reading)) = self.serving.store.pending.remove(&seq) {
            self.serving
                .op_fetched(*reading, vec![Fetched { want, answer }], Room::default(), cx);
        }
    }

    /// Gives a job up for lack of room; the client sends its op again when there is some.
    fn stage_given_up(&mut self, seq: u32, cx: &mut Ctx<'_>) {
        self.end_job(seq, cx);
        if let Some(Pending::Op(reading)) = self.serving.store.pending.remove(&seq) {
            self.serving.ops.dropped.note(&reading.op, self.serving.site, cx);
            if let Some(c) = self.serving.ops.contexts.find(&reading.key) {
                c.exclusive = false;
            }
            self.serving.pump(&reading.key, cx);
        }
    }
}

impl Serving<'_> {
    /// The handler of staging objects.
    pub(in crate::pg) fn staging(&mut self) -> Staging<'_> {
        Staging {
            serving: self.reborrow(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_log_no_more_than_a_change_may() {
        let pair = |i: u32, len: usize| (Bytes::from(i.to_be_bytes().to_vec()), Bytes::from(vec![0; len]));
        let pairs: Vec<_> = (0..100).map(|i| pair(i, 1000)).collect();
        let header = ObjectOp::OmapHeader(Bytes::from(vec![0; 9_000]));
        let data = ObjectOp::Write {
            offset: 0,
            data: vec![0; 8 << 20].into(),
        };
        let steps = divide(
            vec![data.clone(), header.clone(), ObjectOp::OmapSet(pairs.clone())],
            10_000,
        );
        assert!(steps.len() > 12);
        assert!(steps.iter().skip(1).all(|s| log_bytes_of(&s.ops) <= 10_000));
        let (mut found, mut rest) = (Vec::new(), Vec::new());
        for op in steps.into_iter().flat_map(|s| s.ops) {
            match op {
                ObjectOp::OmapSet(p) => found.extend(p),
                other => rest.push(other),
            }
        }
        assert!(found == pairs && rest == [data, header]);
        // A pair that is larger is alone.
        let steps = divide(
            vec![ObjectOp::OmapSet((0..3).map(|i| pair(i, 20_000)).collect())],
            10_000,
        );
        assert_eq!(steps.len(), 3);
        assert!(divide(Vec::new(), 10).is_empty());
    }
}
