//! Journals of images (the feature `journaling`). Every write and every operation on the whole
//! image is appended to the journal before it is applied; mirror daemons of other clusters replay
//! it there. Names and formats: Ceph's `src/journal` and `src/librbd/journal/Types.h`.
//!
//! Entries are numbered under a tag, and go to the objects of an object set in turn. A client that
//! takes the image's lock makes a new tag. The header has the commit position: all entries up to it
//! are applied to the image. The new owner of the lock first replays the entries behind it, as the
//! writer before may have died in between.

mod commits;
mod entry;
mod event;
mod header;
mod open;
mod player;
mod replay;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use entry::EntryId;
use spirula_classes::journal::ObjectPosition;
use spirula_client::{
    BytesList,
    errno::{self, Errno},
};
use spirula_denc::UTime;
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;

use self::commits::Commits;
use self::header::JournalHeader;
use crate::{Error, Result};

pub(crate) use event::{Event, Operation};
pub use header::JournalOptions;
pub(crate) use header::{create, is_primary, remove};

/// The size of the largest event in bytes. Readers of journals read at least twice as much at a
/// time.
const MAX_EVENT: u64 = 16384;
/// How long the commit position in the header may lag behind.
const COMMIT_AGE: Duration = Duration::from_secs(5);

/// The place of the next entry.
struct Recorder {
    tag: u64,
    number: u64,
    set: u64,
    /// The sizes in bytes of the set's objects.
    sizes: Vec<u64>,
    /// An entry could not be appended: readers would stop at the gap.
    broken: bool,
}

/// Events to be appended, and the task that waits for that.
struct Waiting {
    events: Vec<Event>,
    noted: oneshot::Sender<Result<Noted>>,
}

/// Decodes the content of a journal's objects: clients, tags, and entries one behind the other
/// (`stored.rs`).
pub(crate) fn read_stored(data: &[u8]) {
    header::read_stored(data);
    player::read_stored(data);
}

/// The journal of an image whose lock this client holds.
pub(crate) struct Journal {
    header: Rc<JournalHeader>,
    recorder: Mutex<Recorder>,
    /// Events that are appended together as soon as the recorder is free.
    waiting: RefCell<Vec<Waiting>>,
    commits: RefCell<Commits>,
    /// Held while the commit position is stored.
    telling: Mutex<()>,
    /// A task is going to store the commit position.
    will_tell: Cell<bool>,
    /// The lock is given up or lost, so the next owner stores the commit position.
    closed: Cell<bool>,
    operations: Cell<u64>,
}

/// The error of appending behind a gap.
fn gap() -> Error {
    Error::os("journal", errno::EIO)
}

/// Appended entries whose events are being applied.
pub(crate) struct Noted(Vec<u64>);

impl Journal {
    /// The size of the largest event in bytes.
    pub(crate) fn max_event(&self) -> usize {
        let fits = self.header.object_size.saturating_sub(entry::OVERHEAD as u64);
        // No more than fits into memory.
        fits.min(MAX_EVENT) as usize
    }

    /// Appends events before they are applied. They are durable when the future is done.
    ///
    /// # Errors
    /// `EIO` where an entry before could not be written: the lock must be taken anew.
    pub(crate) async fn note(&self, events: Vec<Event>) -> Result<Noted> {
        let (noted, mut hear) = oneshot::channel();
        self.waiting.borrow_mut().push(Waiting { events, noted });
        let heard = tokio::select! {
            biased;
            // The task before may append these events too, and does not wait for the next ones.
            heard = &mut hear => heard,
            mut recorder = self.recorder.lock() => {
                let all = self.waiting.take();
                self.note_all(&mut recorder, all).await;
                hear.await
            }
        };
        heard.unwrap_or(Err(gap()))
    }

    async fn note_all(&self, recorder: &mut Recorder, all: Vec<Waiting>) {
        // A future that is dropped during the append leaves a gap as well.
        let appended = match std::mem::replace(&mut recorder.broken, true) {
            true => Err(gap()),
            false => self.append(recorder, &all).await,
        };
        let errno = appended.as_ref().err().map(Error::errno);
        recorder.broken = errno.is_some();
        let mut entries = appended.unwrap_or_default().into_iter();
        for one in all {
            let noted = match errno {
                None => Ok(Noted(entries.by_ref().take(one.events.len()).collect())),
                Some(errno) => Err(Error::os("journal", errno)),
            };
            // A caller that has gone leaves its events unapplied.
            let _ = one.noted.send(noted);
        }
    }

    async fn append(&self, recorder: &mut Recorder, all: &[Waiting]) -> Result<Vec<u64>> {
        let (width, max) = (self.header.width, self.header.object_size);
        let mut waiting = BTreeMap::new();
        let mut noted = Vec::new();
        for event in all.iter().flat_map(|one| &one.events) {
            let id = EntryId {
                tag: recorder.tag,
                number: recorder.number,
            };
            let entry = entry::encode(id, &event.encode(UTime::now()));
            let place = recorder.number % width;
            // There is one for each place.
            let at = place as usize;
            if recorder.sizes[at] > 0 && recorder.sizes[at] + entry.len() as u64 > max {
                self.send(&mut waiting).await?;
                self.header.set_active_set(recorder.set + 1).await?;
                recorder.set += 1;
                recorder.sizes.fill(0);
            }
            let object = self.header.object_of(recorder.set, place);
            recorder.sizes[at] += entry.len() as u64;
            waiting
                .entry(object)
                .or_insert_with(BytesList::new)
                .push(entry.into());
            noted.push(self.commits.borrow_mut().begin(ObjectPosition {
                object_number: object,
                tag_tid: id.tag,
                entry_tid: id.number,
            }));
            recorder.number += 1;
        }
        self.send(&mut waiting).await?;
        Ok(noted)
    }

    async fn send(&self, waiting: &mut BTreeMap<u64, BytesList>) -> Result<()> {
        let mut tasks = JoinSet::new();
        for (object, entries) in std::mem::take(waiting) {
            let header = Rc::clone(&self.header);
            tasks.spawn_local(async move { header.append(object, &entries).await });
        }
        let mut all = Ok(());
        while let Some(sent) = tasks.join_next().await {
            all = all.and(sent.unwrap_or(Err(gap())));
        }
        all
    }

    /// Marks appended events as applied.
    fn done(self: &Rc<Self>, noted: &Noted) {
        if !self.commits.borrow_mut().done(&noted.0) || self.will_tell.replace(true) {
            return;
        }
        let journal = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            tokio::time::sleep(COMMIT_AGE).await;
            if let Some(journal) = journal.upgrade() {
                journal.will_tell.set(false);
                journal.tell().await;
            }
        });
    }

    /// Stores the commit position and removes object sets that no client needs. A failure only
    /// means that more is replayed later.
    async fn tell(&self) {
        let _turn = self.telling.lock().await;
        let position = self.commits.borrow_mut().take_changed();
        let Some(position) = position.filter(|_| !self.closed.get()) else {
            return;
        };
        if let Err(e) = self.header.commit(&position).await {
            tracing::warn!("position of a journal: {e}");
            self.commits.borrow_mut().set_changed();
            return;
        }
        let set = position
            .positions
            .first()
            .map(|p| p.object_number / self.header.width);
        if let Err(e) = self.header.trim(set.unwrap_or_default()).await {
            tracing::warn!("what a journal does not need any more: {e}");
        }
    }

    /// Closes the journal, once no event is being applied.
    pub(crate) async fn close(&self) {
        self.tell().await;
        self.lose();
    }

    /// Notes that the lock is lost.
    pub(crate) fn lose(&self) {
        self.closed.set(true);
    }

    /// Runs a write after the journal has its events. A failed write is replayed when the lock is
    /// next taken, unless the error is `may_fail`.
    pub(crate) async fn around_write(
        self: &Rc<Self>,
        events: Vec<Event>,
        work: impl Future<Output = Result<()>>,
        may_fail: Option<Errno>,
    ) -> Result<()> {
        let noted = self.note(events).await?;
        let done = work.await;
        let counts = |e: &Error| may_fail.is_none_or(|errno| !e.is(errno));
        if !done.as_ref().is_err_and(counts) {
            self.done(&noted);
        }
        done
    }

    /// Runs an operation between its two entries. Mirror daemons run it as well, so the caller has
    /// checked that it can be done.
    pub(crate) async fn around_operation<T>(
        self: &Rc<Self>,
        operation: Operation,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let number = self.operations.get() + 1;
        self.operations.set(number);
        let begun = self.note(vec![Event::Begin { number, operation }]).await?;
        // The operation must not be followed by a replay of writes from before it.
        self.tell().await;
        let done = work.await;
        let result = done.as_ref().err().map_or(0, |e| -e.errno());
        let ended = self.note(vec![Event::End { number, result }]).await?;
        self.done(&begun);
        self.done(&ended);
        self.tell().await;
        done
    }
}
