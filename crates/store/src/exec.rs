//! Runs blocking work on the index and the space below: on four threads, or, in simulations, step
//! by step in the caller.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use bytes::Bytes;

use crate::check::{self, Found};
use crate::device::BlockIo;
use crate::event::Token;
use crate::ground::{self, GroundDone};
use crate::index::{Index, IndexDamage, IndexPage, Outcome, Page, PageLimit};
use crate::notify::Notify;
use crate::onode::Onode;
use crate::table::Frozen;
use crate::{ObjectKey, Result};

/// Work for a thread that may block.
pub(crate) enum Job {
    Lookup(Vec<(u64, ObjectKey)>),
    Objects {
        id: u64,
        from: ObjectKey,
        to: Option<ObjectKey>,
        limit: usize,
    },
    Pairs {
        id: u64,
        from: Bytes,
        to: Bytes,
        limit: PageLimit,
    },
    Keys {
        id: u64,
        keys: Vec<Bytes>,
        limit: PageLimit,
    },
    /// Insert the objects from this key on into the presence filter.
    Learn(Bytes),
    Commit {
        frozen: Box<Frozen>,
        group_blocks: u32,
    },
    /// Remove some garbage from the index.
    Purge,
    /// Take space below for blocks.
    Allocate(Range<u64>),
    /// Give the space of blocks back.
    Discard(Vec<Range<u64>>),
    /// Take space for a group that the index may grow into.
    Prepare,
    /// Look for rot in the index from this page on.
    Examine(Token, u64),
    /// Tell what damaged pages of the index mean.
    Judge(Token, Vec<IndexPage>),
}

/// The outcome of a job.
pub(crate) enum JobDone {
    Lookup(Vec<(u64, Result<Option<Onode>>)>),
    Objects(u64, Result<Page<Bytes>>),
    Pairs(u64, Result<Page<Bytes>>),
    Learnt(Result<Option<Bytes>>),
    Commit(Result<Outcome>),
    Purged(Result<bool>),
    Ground(GroundDone),
    Examined(Token, io::Result<Found>),
    Judged(Token, Result<IndexDamage>),
}

/// What jobs work on.
#[derive(Clone)]
pub(crate) struct Workplace {
    pub(crate) index: Arc<Index>,
    /// The main device.
    pub(crate) main: Arc<dyn BlockIo>,
    /// The log's own device, if it has one.
    pub(crate) log: Option<Arc<dyn BlockIo>>,
}

fn run(Workplace { index, main: io, log }: &Workplace, job: Job) -> JobDone {
    match job {
        Job::Lookup(wanted) => JobDone::Lookup(lookup(index, wanted)),
        Job::Objects { id, from, to, limit } => JobDone::Objects(
            id,
            index.list_objects(from.as_slice(), to.as_ref().map(ObjectKey::as_slice), limit),
        ),
        Job::Pairs { id, from, to, limit } => JobDone::Pairs(id, index.list_pairs(&from, Some(&to), limit)),
        Job::Keys { id, keys, limit } => JobDone::Pairs(id, index.pairs(&keys, limit)),
        Job::Learn(from) => JobDone::Learnt(index.learn(&from)),
        Job::Commit { frozen, group_blocks } => JobDone::Commit(index.apply(&frozen, group_blocks)),
        Job::Purge => JobDone::Purged(index.purge()),
        Job::Allocate(blocks) => JobDone::Ground(ground::allocate(io, blocks)),
        Job::Discard(blocks) => JobDone::Ground(ground::discard(io, blocks)),
        Job::Prepare => JobDone::Ground(GroundDone::Prepared(index.file().prepare())),
        Job::Examine(token, page) => JobDone::Examined(token, check::examine(index, io, log.as_ref(), page)),
        Job::Judge(token, pages) => JobDone::Judged(token, index.judge(&pages)),
    }
}

fn lookup(index: &Index, wanted: Vec<(u64, ObjectKey)>) -> Vec<(u64, Result<Option<Onode>>)> {
    let (ids, keys): (Vec<u64>, Vec<ObjectKey>) = wanted.into_iter().unzip();
    match index.objects(&keys) {
        Ok(found) => ids.into_iter().zip(found.into_iter().map(Ok)).collect(),
        // One bad entry fails the batch: find out which.
        Err(_) => {
            let one = |k: &ObjectKey| {
                index
                    .objects(std::slice::from_ref(k))
                    .map(|mut v| v.pop().flatten())
            };
            ids.into_iter().zip(keys.iter().map(one)).collect()
        }
    }
}

#[derive(Clone)]
struct Outbox {
    done: Arc<Mutex<Vec<JobDone>>>,
    notify: Notify,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Vec<JobDone>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs jobs. Changes of the index are made in order; other jobs do not wait for them.
pub(crate) enum Executor {
    Threads(Threads),
    Inline { place: Workplace, jobs: VecDeque<Job> },
}

pub(crate) struct Threads {
    outbox: Outbox,
    /// Channels to the threads for reading, for committing, for the space below, and for looking for
    /// rot; dropping them ends the threads.
    senders: Vec<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Executor {
    /// Starts the threads.
    pub(crate) fn threads(place: &Workplace, notify: &Notify) -> io::Result<Self> {
        let outbox = Outbox {
            done: Arc::default(),
            notify: notify.clone(),
        };
        let mut out = Threads {
            outbox,
            senders: Vec::new(),
            threads: Vec::new(),
        };
        for name in ["store-read", "store-commit", "store-space", "store-check"] {
            let (sender, jobs) = channel();
            let (place, outbox) = (place.clone(), out.outbox.clone());
            let work = move || serve(&place, &jobs, &outbox);
            out.threads.push(
                thread::Builder::new()
                    .name(name.into())
                    .stack_size(1 << 20)
                    .spawn(work)?,
            );
            out.senders.push(sender);
        }
        Ok(Self::Threads(out))
    }

    /// An executor without threads: [`Executor::take`] runs one job a call.
    pub(crate) fn inline(place: Workplace) -> Self {
        Self::Inline {
            place,
            jobs: VecDeque::new(),
        }
    }

    pub(crate) fn submit(&mut self, job: Job) {
        match self {
            Self::Threads(t) => {
                let to = match job {
                    Job::Commit { .. } | Job::Purge => 1,
                    Job::Allocate(_) | Job::Discard(_) | Job::Prepare => 2,
                    Job::Examine(..) | Job::Judge(..) => 3,
                    _ => 0,
                };
                // The threads live as long as their senders.
                let _ = t.senders[to].send(job);
            }
            Self::Inline { jobs, .. } => jobs.push_back(job),
        }
    }

    pub(crate) fn take(&mut self, out: &mut Vec<JobDone>) {
        match self {
            Self::Threads(t) => out.append(&mut t.outbox.lock()),
            Self::Inline { place, jobs } => out.extend(jobs.pop_front().map(|j| run(place, j))),
        }
    }
}

fn serve(place: &Workplace, jobs: &Receiver<Job>, outbox: &Outbox) {
    while let Ok(job) = jobs.recv() {
        let done = run(place, job);
        outbox.lock().push(done);
        outbox.notify.wake();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.senders.clear();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to clean up.
            let _ = thread.join();
        }
    }
}
