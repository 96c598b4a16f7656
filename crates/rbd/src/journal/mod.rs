//! Journals of images (the feature `journaling`): what is going to be written to an image, and done to it as a whole, is noted before it
//! happens, for those that follow it in another cluster. Names and formats: Ceph's `src/journal` and `src/librbd/journal/Types.h`.
//!
//! Entries are numbered, under a tag that is new whenever a client takes the image's lock, and go to the objects of a set in turn. The
//! header knows up to which entry the image holds what it was noted to hold: whoever takes the lock does first again what follows
//! that, as its writer may have died in between, and those that follow the journal do it, too.

mod commits;
mod entry;
mod event;
mod header;
mod player;
mod replay;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use spirula_classes::journal::ObjectPosition;
use spirula_client::{BytesList, errno};
use spirula_denc::UTime;
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;

use self::commits::Commits;
use self::header::JournalHeader;
use self::player::Player;
use self::replay::Replay;
use crate::image::{Inner, Writing};
use crate::{Error, Result};

pub(crate) use event::{Event, Operation};
pub use header::JournalOptions;
pub(crate) use header::{create, is_primary, remove};

/// The greatest event. What reads journals reads at least twice as much at a time.
const MAX_EVENT: u64 = 16384;
/// How long the header may be behind with what is done.
const COMMIT_AGE: Duration = Duration::from_secs(5);

/// Where the next entry goes.
struct Recorder {
    tag: u64,
    number: u64,
    set: u64,
    /// The bytes of the set's objects.
    sizes: Vec<u64>,
    /// An entry is missing: nobody would read what follows.
    broken: bool,
}

/// Events to be noted, and who waits for that.
struct Waiting {
    events: Vec<Event>,
    noted: oneshot::Sender<Result<Noted>>,
}

/// Reads what a journal's objects may hold: who follows it, its tags, and entries one behind the other (`stored.rs`).
pub(crate) fn read_stored(data: &[u8]) {
    header::read_stored(data);
    player::read_stored(data);
}

/// A journal that this client writes, as it has the image's lock.
pub(crate) struct Journal {
    header: Rc<JournalHeader>,
    recorder: Mutex<Recorder>,
    /// What is to be noted as soon as the recorder is free, all at once.
    waiting: RefCell<Vec<Waiting>>,
    commits: RefCell<Commits>,
    /// The header is being told what is done.
    telling: Mutex<()>,
    /// The header is going to be told what is done.
    will_tell: Cell<bool>,
    /// The lock is given up, or lost: what is done is another's business.
    closed: Cell<bool>,
    operations: Cell<u64>,
}

/// An entry is missing.
fn gap() -> Error {
    Error::os("journal", errno::EIO)
}

/// Entries whose events are under way.
pub(crate) struct Noted(Vec<u64>);

impl Journal {
    /// Does again what `image` may lack, and begins to write. `image` is not noted again what is done to it.
    ///
    /// # Errors
    /// `EROFS` where another cluster writes the journal, `EBADMSG` where it can't be read, `ENOSYS` where it tells of what can't be
    /// done here.
    pub(crate) async fn open(image: Rc<Inner>) -> Result<Self> {
        let (header, position) = JournalHeader::open(&image.io, &image.fixed.id).await?;
        let mut commits = Commits::new(header.width, position.clone());
        let mut player = Player::find(&header, &position).await?;
        let mut replay = Replay::new(image);
        let mut done = Vec::new();
        while let Some((entry, event)) = player.next().await? {
            replay.apply(event).await?;
            done.push(commits.begin(entry));
        }
        replay.finish().await?;
        if commits.done(&done) {
            tracing::info!("{} entries of a journal were done again", done.len());
        }
        if let Some(position) = commits.take_changed() {
            header.commit(&position).await?;
        }
        let tag = header.create_tag(commits.last().cloned()).await?;
        let (_, set) = header.sets().await?;
        let mut sizes = Vec::new();
        for place in 0..header.width {
            sizes.push(header.size_of(header.object_of(set, place)).await?);
        }
        let recorder = Recorder {
            tag,
            number: 0,
            set,
            sizes,
            broken: false,
        };
        Ok(Self {
            header: Rc::new(header),
            recorder: Mutex::new(recorder),
            waiting: RefCell::default(),
            commits: RefCell::new(commits),
            telling: Mutex::default(),
            will_tell: Cell::default(),
            closed: Cell::default(),
            operations: Cell::default(),
        })
    }

    /// The bytes of the greatest event.
    pub(crate) fn max_event(&self) -> usize {
        let fits = self.header.object_size.saturating_sub(entry::OVERHEAD as u64);
        // No more than fits into memory.
        fits.min(MAX_EVENT) as usize
    }

    /// Notes what is going to be done. It is durable when this is done.
    ///
    /// # Errors
    /// `EIO` where an entry before could not be written: the lock must be taken anew.
    pub(crate) async fn note(&self, events: Vec<Event>) -> Result<Noted> {
        let (noted, mut hear) = oneshot::channel();
        self.waiting.borrow_mut().push(Waiting { events, noted });
        let heard = tokio::select! {
            biased;
            // Whoever came before has noted this one, too, and does not wait for the next ones.
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
        // Whoever goes away amid it leaves a gap as well.
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
            // Who does not wait any more finds it not done.
            let _ = one.noted.send(noted);
        }
    }

    async fn append(&self, recorder: &mut Recorder, all: &[Waiting]) -> Result<Vec<u64>> {
        let (width, max) = (self.header.width, self.header.object_size);
        let mut waiting = BTreeMap::new();
        let mut noted = Vec::new();
        for event in all.iter().flat_map(|one| &one.events) {
            let id = (recorder.tag, recorder.number);
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
                tag_tid: id.0,
                entry_tid: id.1,
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

    /// What was noted is done.
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

    /// Tells the header how far the image is, and removes what nobody needs any more. Where that fails more is done again later.
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

    /// Ends it: nothing is under way any more.
    pub(crate) async fn close(&self) {
        self.tell().await;
        self.lose();
    }

    /// The lock is lost.
    pub(crate) fn lose(&self) {
        self.closed.set(true);
    }
}

impl Writing {
    /// Writes, after the journal has noted that, where the image has one. What fails is done again when the lock is taken the next time,
    /// unless it `may_fail` so.
    pub(crate) async fn noted(
        &self,
        events: impl FnOnce(&Journal) -> Vec<Event>,
        work: impl Future<Output = Result<()>>,
        may_fail: Option<i32>,
    ) -> Result<()> {
        let Some(journal) = &self.journal else {
            return work.await;
        };
        let noted = journal.note(events(journal)).await?;
        let done = work.await;
        let counts = |e: &Error| may_fail.is_none_or(|errno| !e.is(errno));
        if !done.as_ref().is_err_and(counts) {
            journal.done(&noted);
        }
        done
    }
}

impl Inner {
    /// Does an operation, between two entries of the journal that tell of it, where the image has one. Those that follow the journal do
    /// it as well: it is begun where nothing speaks against it.
    pub(crate) async fn noted<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let journal = self.journal.borrow().clone();
        let Some(journal) = journal else {
            return work.await;
        };
        let number = journal.operations.get() + 1;
        journal.operations.set(number);
        let begun = journal.note(vec![Event::Begin { number, operation }]).await?;
        // What was done before is not done again after it.
        journal.tell().await;
        let done = work.await;
        let result = done.as_ref().err().map_or(0, Error::errno);
        let ended = journal.note(vec![Event::End { number, result }]).await?;
        journal.done(&begun);
        journal.done(&ended);
        journal.tell().await;
        done
    }
}
