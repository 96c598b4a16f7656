//! Staging objects: what is too much for one change is built step by step, and then taken in one.
//!
//! A clone of an object with a large omap, and a copy of a large object, would be changes that no log can hold. So the primary
//! builds the copy first, in an object that only the PG knows: each step is a change of the PG like any other (in the log it
//! names no object), and the next one is made when that is durable everywhere, so little of it is in memory at a time. The op that
//! needs it waits meanwhile, as for anything that is fetched ([`super::fetch`]), and holds its object. When the staging object is
//! whole, the op is executed again, and its change makes it the clone or the copy ([`ObjectOp::MoveOf`]).
//!
//! What is not taken is removed: when the op that waited has failed, and by every member when the PG is activated, as whatever
//! was under way has ended then.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use spirula_maps::PgId;

use super::account::Room;
use super::copy::CopyFetch;
use super::errno::*;
use super::fetch::{Answer, Fetched, OmapRange, ReadError, Want, key_after};
use super::key;
use super::output::Ctx;
use super::serving::Serving;
use super::staged::{Slot, Whole};
use super::store_queue::Pending;
use super::txn::{ObjectOp, PAIR_LOGGED, log_bytes_of};

/// Where a staging object comes from. As each needs memory, an OSD builds only a few of a kind at a time; those that wait for other
/// OSDs don't hold up the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// An object of the PG.
    Local,
    /// An object of any PG.
    Remote,
}

impl Lane {
    /// All of them.
    pub(crate) const ALL: [Self; 2] = [Self::Local, Self::Remote];

    /// How many PGs of a reactor build at a time.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::Local => 4,
            Self::Remote => 2,
        }
    }
}

/// Whether a PG builds a staging object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StageState {
    /// No.
    Idle,
    /// It would like to begin.
    Waiting,
    /// It has begun.
    Running,
}

/// A slot's staging object.
#[derive(Debug, Default)]
enum Place {
    /// There is none.
    #[default]
    Free,
    /// It is being built.
    Building,
    /// It is whole, and is to be removed when nobody has it any more.
    Whole(Weak<Whole>),
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It reads how much there is to copy.
    Looking,
    /// It waits for its turn.
    Waiting,
    /// It is under way.
    Running,
}

/// What is copied.
#[derive(Debug)]
enum Source {
    /// An object of this PG.
    Object {
        key: Bytes,
        /// The first pair that is not copied yet; `None` after the last.
        from: Option<Bytes>,
    },
    /// An object of any PG.
    Copy(Box<CopyFetch>),
}

/// A staging object that an op waits for.
#[derive(Debug)]
struct Job {
    /// The op's place among what is pending.
    seq: u32,
    want: Want,
    slot: Slot,
    source: Source,
    progress: Progress,
    /// Whether the staging object was begun.
    begun: bool,
    /// Steps that were not sent yet.
    steps: VecDeque<Vec<ObjectOp>>,
}

impl Job {
    fn lane(&self) -> Lane {
        match self.source {
            Source::Object { .. } => Lane::Local,
            Source::Copy(_) => Lane::Remote,
        }
    }

    /// What makes the staging object, before its pairs and data are added.
    fn beginning(&self) -> Vec<ObjectOp> {
        let first = match &self.source {
            Source::Object { key, .. } => ObjectOp::CloneOfData(key.clone()),
            Source::Copy(_) => ObjectOp::Touch,
        };
        vec![ObjectOp::Remove, first]
    }
}

/// A PG's staging objects, and the ops that wait for them.
#[derive(Debug, Default)]
pub(super) struct Stages {
    jobs: Vec<Job>,
    places: [Place; 2],
}

impl Stages {
    /// Whether the PG builds a staging object, or would like to.
    pub(super) fn state(&self, lane: Lane) -> StageState {
        let s = self;
        let runs = |j: &Job| j.lane() == lane && j.progress == Progress::Running;
        if s.jobs.iter().any(runs) {
            StageState::Running
        } else if s.startable(lane).is_some() {
            StageState::Waiting
        } else {
            StageState::Idle
        }
    }

    /// What is fetched for a copy, by the op that waits for it.
    pub(super) fn running_copy(&mut self, seq: u32) -> Option<&mut CopyFetch> {
        let job = self.jobs.iter_mut().find(|j| j.seq == seq)?;
        match &mut job.source {
            Source::Copy(fetch) if job.progress == Progress::Running => Some(fetch),
            _ => None,
        }
    }

    /// The ops whose copies are fetched.
    pub(super) fn running_copies(&self) -> impl Iterator<Item = (u32, &CopyFetch)> {
        self.jobs.iter().filter_map(|j| match &j.source {
            Source::Copy(fetch) if j.progress == Progress::Running => Some((j.seq, &**fetch)),
            _ => None,
        })
    }

    fn can_start(&self, job: &Job) -> bool {
        job.progress == Progress::Waiting && matches!(self.places[job.slot as usize], Place::Free)
    }

    /// The first job that may begin now.
    fn startable(&self, lane: Lane) -> Option<usize> {
        self.jobs
            .iter()
            .position(|j| j.lane() == lane && self.can_start(j))
    }

    fn job(&mut self, seq: u32) -> Option<&mut Job> {
        self.jobs.iter_mut().find(|j| j.seq == seq)
    }

    fn place(&mut self, slot: Slot) -> &mut Place {
        &mut self.places[slot as usize]
    }

    /// A change takes staging objects: they are no longer there to be removed.
    pub(super) fn taken(&mut self, objects: &[(Bytes, Vec<ObjectOp>)]) {
        for place in &mut self.places {
            let Place::Whole(whole) = place else { continue };
            let Some(whole) = whole.upgrade() else { continue };
            let takes = |op: &ObjectOp| matches!(op, ObjectOp::MoveOf(key) if *key == whole.key);
            if objects.iter().any(|(_, ops)| ops.iter().any(takes)) {
                *place = Place::Free;
            }
        }
    }
}

/// Divides changes among transactions that log at most `max` bytes each, where a single pair does not log more.
fn divide(ops: Vec<ObjectOp>, max: usize) -> VecDeque<Vec<ObjectOp>> {
    let mut out: VecDeque<Vec<ObjectOp>> = VecDeque::new();
    let mut used = usize::MAX;
    let mut add = |op: ObjectOp| {
        let bytes = log_bytes_of(std::slice::from_ref(&op));
        used = used.saturating_add(bytes);
        if let Some(last) = out.back_mut().filter(|_| used <= max) {
            last.push(op);
        } else {
            out.push_back(vec![op]);
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

/// The key of a PG's staging object.
fn stage_key(pgid: PgId, slot: Slot) -> Bytes {
    key::stage_key(pgid, slot as u8)
}

/// Removes whatever staging objects there may be.
pub(super) fn no_stages(pgid: PgId) -> Vec<(Bytes, Vec<ObjectOp>)> {
    let keys = Slot::ALL.map(|slot| stage_key(pgid, slot)).into_iter();
    let keys = keys.chain([key::repair_key(pgid)]);
    keys.map(|key| (key, vec![ObjectOp::Remove])).collect()
}

/// Builds staging objects for ops that wait.
pub(super) struct Staging<'a> {
    pub(super) serving: Serving<'a>,
}

impl Staging<'_> {
    /// Removes the staging objects that nobody waits for any more.
    pub(super) fn drop_stages(&mut self, cx: &mut Ctx<'_>) {
        for slot in Slot::ALL {
            let place = self.serving.ops.stages.place(slot);
            if matches!(place, Place::Whole(whole) if whole.strong_count() == 0) {
                *place = Place::Free;
                self.remove_stage(slot, cx);
            }
        }
    }

    fn remove_stage(&mut self, slot: Slot, cx: &mut Ctx<'_>) {
        let objects = vec![(stage_key(self.serving.site.pgid, slot), vec![ObjectOp::Remove])];
        self.serving.replicate_own(None, objects, cx);
    }

    /// An op wants what may need a staging object.
    pub(super) fn stage(&mut self, seq: u32, want: Want, cx: &mut Ctx<'_>) {
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
            _ => return,
        };
        self.serving.ops.stages.jobs.push(Job {
            seq,
            want,
            slot,
            source,
            progress,
            begun: false,
            steps: VecDeque::new(),
        });
    }

    /// Begins to build the next staging object.
    pub(crate) fn start_stage(&mut self, lane: Lane, cx: &mut Ctx<'_>) {
        let s = &mut self.serving.ops.stages;
        let Some(job) = s.startable(lane).and_then(|at| s.jobs.get_mut(at)) else {
            return;
        };
        job.progress = Progress::Running;
        let (seq, slot) = (job.seq, job.slot);
        *s.place(slot) = Place::Building;
        self.stage_next(seq, cx);
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

    /// Pairs of an object of the PG.
    pub(super) fn stage_read(&mut self, seq: u32, mut fetched: Vec<Fetched>, cx: &mut Ctx<'_>) {
        let max = self.serving.site.cfg.max_logged;
        let Some(job) = self.serving.ops.stages.job(seq) else {
            return;
        };
        let Source::Object { from, .. } = &mut job.source else {
            return;
        };
        let Some(Ok(Answer::Omap(page))) = fetched.pop().map(|f| f.answer) else {
            return self.end_with(seq, Err(ReadError), cx);
        };
        if job.progress == Progress::Looking {
            if page.more {
                // All of it is read again when it is its turn, so that none is in memory before.
                job.progress = Progress::Waiting;
            } else {
                self.stage_ended(seq, Answer::Staged(Ok(None)), cx);
            }
            return;
        }
        *from = page.pairs.last().filter(|_| page.more).map(|(k, _)| key_after(k));
        job.steps = divide(vec![ObjectOp::OmapSet(page.pairs)], max);
        self.stage_next(seq, cx);
    }

    /// Part of another object, which is `complete` with it.
    pub(super) fn stage_part(&mut self, seq: u32, ops: Vec<ObjectOp>, complete: bool, cx: &mut Ctx<'_>) {
        let max = self.serving.site.cfg.max_logged;
        let Some(job) = self.serving.ops.stages.job(seq) else {
            return;
        };
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

    /// The last step is durable: sends the next one, or gets the next part of what is copied.
    pub(super) fn stage_next(&mut self, seq: u32, cx: &mut Ctx<'_>) {
        let page = self.serving.site.cfg.stage_page;
        let Some(job) = self.serving.ops.stages.job(seq) else {
            return;
        };
        if let Some(ops) = job.steps.pop_front() {
            return self.send_step(seq, ops, cx);
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
            _ if !job.begun => self.send_step(seq, Vec::new(), cx),
            _ => self.stage_whole(seq, cx),
        }
    }

    fn send_step(&mut self, seq: u32, mut ops: Vec<ObjectOp>, cx: &mut Ctx<'_>) {
        let Some(Pending::Op(r)) = self.serving.store.pending.get(&seq) else {
            return;
        };
        if r.op.client.is_shut_out(&*self.serving.site.map) {
            return self.stage_failed(seq, -EBLOCKLISTED, cx);
        }
        match self.serving.site.check_full(&r.op, true, true, cx) {
            Ok(()) => {}
            Err(Some(e)) => return self.stage_failed(seq, e, cx),
            Err(None) => return self.stage_given_up(seq, cx),
        }
        let Some(job) = self.serving.ops.stages.job(seq) else {
            return;
        };
        if !job.begun {
            ops.splice(..0, job.beginning());
            job.begun = true;
        }
        let slot = job.slot;
        let objects = vec![(stage_key(self.serving.site.pgid, slot), ops)];
        self.serving.replicate_own(Some(seq), objects, cx);
    }

    fn stage_whole(&mut self, seq: u32, cx: &mut Ctx<'_>) {
        let Some(slot) = self.serving.ops.stages.job(seq).map(|j| j.slot) else {
            return;
        };
        let whole = Arc::new(Whole {
            slot,
            key: stage_key(self.serving.site.pgid, slot),
        });
        *self.serving.ops.stages.place(slot) = Place::Whole(Arc::downgrade(&whole));
        let Some(job) = self.serving.ops.stages.job(seq) else {
            return;
        };
        let answer = match &mut job.source {
            Source::Object { .. } => Answer::Staged(Ok(Some(whole))),
            Source::Copy(fetch) => {
                let mut copied = std::mem::take(&mut fetch.copied);
                copied.staged = Some(whole);
                Answer::Copy(Ok(Arc::new(copied)))
            }
        };
        self.stage_ended(seq, answer, cx);
    }

    /// Ends a job with an error, which is negative.
    pub(super) fn stage_failed(&mut self, seq: u32, e: i32, cx: &mut Ctx<'_>) {
        let Some(job) = self.serving.ops.stages.job(seq) else {
            return;
        };
        let answer = match job.source {
            Source::Object { .. } => Answer::Staged(Err(e)),
            Source::Copy(_) => Answer::Copy(Err(e)),
        };
        self.stage_ended(seq, answer, cx);
    }

    /// Ends a job. Returns what it was for, and removes what it has built of a staging object that is not whole.
    fn end_job(&mut self, seq: u32, cx: &mut Ctx<'_>) -> Option<Want> {
        let at = self.serving.ops.stages.jobs.iter().position(|j| j.seq == seq)?;
        let job = self.serving.ops.stages.jobs.remove(at);
        let place = self.serving.ops.stages.place(job.slot);
        if job.progress == Progress::Running && matches!(place, Place::Building) {
            *place = Place::Free;
            if job.begun {
                self.remove_stage(job.slot, cx);
            }
        }
        Some(job.want)
    }

    /// The op that waited has its answer.
    fn stage_ended(&mut self, seq: u32, answer: Answer, cx: &mut Ctx<'_>) {
        self.end_with(seq, Ok(answer), cx);
    }

    fn end_with(&mut self, seq: u32, answer: Result<Answer, ReadError>, cx: &mut Ctx<'_>) {
        let Some(want) = self.end_job(seq, cx) else { return };
        if let Some(Pending::Op(reading)) = self.serving.store.pending.remove(&seq) {
            self.serving
                .op_fetched(*reading, vec![Fetched { want, answer }], Room::default(), cx);
        }
    }

    /// There is no room, and the client sends its op again when there is.
    fn stage_given_up(&mut self, seq: u32, cx: &mut Ctx<'_>) {
        self.end_job(seq, cx);
        if let Some(Pending::Op(reading)) = self.serving.store.pending.remove(&seq) {
            self.serving.ops.drop_write(&reading.op, self.serving.site);
            if let Some(c) = self.serving.ops.contexts.find(&reading.key) {
                c.exclusive = false;
            }
            self.serving.pump(&reading.key, cx);
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
        assert!(steps.iter().skip(1).all(|s| log_bytes_of(s) <= 10_000));
        let (mut found, mut rest) = (Vec::new(), Vec::new());
        for op in steps.into_iter().flatten() {
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
