//! The store's interface for its owner.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use spirula_invariant::{Recorder, invariant};

use crate::ahead::Streams;
use crate::alloc::Run;
use crate::apply::{OMAP_PREFIX, meta_end, meta_key, omap_end, omap_key};
use crate::checkpoint::Stage;
use crate::config::{BLOCK, BLOCK64, Config, StatFs};
use crate::device::{Device, Io, IoKind, Way};
use crate::event::{Event, Lookup, Read, Token};
use crate::exec::{Executor, Job};
use crate::ground::Ground;
use crate::index::PageLimit;
use crate::layout::Superblock;
use crate::log::{Log, Record, record_space};
use crate::lost::Losses;
use crate::notify::Notify;
use crate::place::{Placements, Placing, may_be_small};
use crate::read::{Asked, ReadOp, ReadPart};
use crate::recent::{self, Transition, What};
use crate::state::{BaseRead, Known, State};
use crate::txn::{Op, Transaction};
use crate::{ObjectKey, Result, StoreError};

/// Bytes of the store's prefix before the key of a store-wide pair: a letter.
const META_PREFIX: usize = 1;

/// The purpose of a device operation.
pub(crate) enum Purpose {
    /// A part of a read.
    Read(ReadPart),
    /// Old contents for a partial write, and its number among the reads.
    Base(u64, BaseRead),
    /// What is read ahead: its number among the reads, and its bytes.
    Ahead(u64, u64),
    /// A large write of a transaction.
    Direct {
        seq: u64,
        /// The first block.
        block: u64,
    },
    /// A write of the placement with this number.
    Place { number: u64, bytes: u64 },
    /// The flush after large writes and placements.
    DirectFlush,
    /// The group under way.
    Log,
    /// Write-back or flush of the checkpoint.
    Checkpoint,
}

/// Large data that the device has and that is not durable yet.
pub(crate) enum Large {
    /// All that the transaction wrote to its place.
    Transaction(u64),
    Placement(Placing),
}

/// A group on its way to the log.
pub(crate) struct Flight {
    pub(crate) tokens: Vec<Token>,
    pub(crate) last_seq: u64,
}

/// A call that waits for the index.
pub(crate) enum Waiting {
    Lookup {
        key: ObjectKey,
        token: Token,
    },
    Read {
        key: ObjectKey,
        asked: Asked,
        token: Token,
    },
    Objects {
        from: ObjectKey,
        to: Option<ObjectKey>,
        limit: usize,
        token: Token,
    },
    Pairs {
        from: Bytes,
        to: Bytes,
        limit: PageLimit,
        skip: usize,
        token: Token,
    },
    Keys {
        keys: Vec<Bytes>,
        limit: PageLimit,
        skip: usize,
        token: Token,
    },
}

/// Counters since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Transactions submitted.
    pub transactions: u64,
    /// Group commits, and bytes written for them.
    pub groups: u64,
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// Bytes written directly to their place.
    pub direct_bytes: u64,
    /// Bytes of data that was placed ahead of its transaction.
    pub placed_bytes: u64,
    /// Bytes written back from the log to their place.
    pub writeback_bytes: u64,
    /// Bytes written to the index.
    pub index_bytes: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Reads that the page cache answered.
    pub cached_reads: u64,
    /// Reads that were repeated past the page cache, as what came through it was wrong.
    pub repeated_reads: u64,
    /// Reads that needed the device.
    pub device_reads: u64,
    /// Reads of what no client has asked for yet.
    pub ahead_reads: u64,
    /// Objects that were looked up in the index.
    pub index_lookups: u64,
    /// Checksum mismatches found.
    pub corruptions: u64,
    /// Bytes whose space was given back.
    pub discarded_bytes: u64,
    /// Damaged pages of the index that checks found.
    pub index_damaged: u64,
    /// What was damaged in the index and around it, and was written anew.
    pub index_mended: u64,
}

/// A point in the sequence of submitted transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64);

/// The store. See the crate's documentation for how to use it.
pub struct Store {
    pub(crate) sb: Superblock,
    pub(crate) state: State,
    pub(crate) dev: Box<dyn Device>,
    pub(crate) log_dev: Option<Box<dyn Device>>,
    pub(crate) exec: Executor,
    pub(crate) ground: Ground,
    pub(crate) log: Log,
    pub(crate) flight: Option<Flight>,
    pub(crate) placements: Placements,
    /// Large data for which no flush has been started.
    pub(crate) unflushed: Vec<Large>,
    /// Large data that the flush under way makes durable.
    pub(crate) flushing: Vec<Large>,
    pub(crate) ios: HashMap<u64, Purpose>,
    next_tag: u64,
    pub(crate) reads: HashMap<u64, ReadOp>,
    /// Numbers of reads that have operations on the device.
    pub(crate) reading: BTreeSet<u64>,
    pub(crate) last_read: u64,
    pub(crate) streams: Streams,
    pub(crate) waiting: HashMap<u64, (u64, Waiting)>,
    pub(crate) lookups: Vec<(u64, ObjectKey)>,
    pub(crate) stage: Stage,
    /// Whether the index is taking in the oldest generation.
    pub(crate) committing: bool,
    /// Whether the index is removing garbage.
    pub(crate) purging: bool,
    /// Pieces of the index that are being looked at, and damage that is judged.
    pub(crate) checks: usize,
    /// Whether the index shall take in everything, however little.
    pub(crate) draining: bool,
    /// The number of completed checkpoints: older answers of the index are outdated.
    pub(crate) epoch: u64,
    /// The last transaction that the index has taken in; 0 before the first.
    pub(crate) taken_in: u64,
    /// Blocks to release once no read that started before (that number) is under way.
    pub(crate) releases: VecDeque<(u64, Vec<Run>)>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) failed: Option<StoreError>,
    notify: Notify,
    pub(crate) stats: Stats,
    pub(crate) spare_target: usize,
    /// What is lost, until the owner has acted on it.
    pub(crate) losses: Losses,
    pub(crate) recent: Recorder<Transition>,
}

pub(crate) struct Parts {
    pub(crate) sb: Superblock,
    pub(crate) state: State,
    pub(crate) dev: Box<dyn Device>,
    pub(crate) log_dev: Option<Box<dyn Device>>,
    pub(crate) exec: Executor,
    pub(crate) ground: Ground,
    pub(crate) log: Log,
    pub(crate) notify: Notify,
    pub(crate) spare_target: usize,
    pub(crate) losses: Losses,
}

impl Store {
    pub(crate) fn from_parts(p: Parts) -> Self {
        Self {
            recent: recent::recorder(p.sb.whoami),
            sb: p.sb,
            state: p.state,
            dev: p.dev,
            log_dev: p.log_dev,
            exec: p.exec,
            ground: p.ground,
            log: p.log,
            notify: p.notify,
            spare_target: p.spare_target,
            losses: p.losses,
            flight: None,
            placements: Placements::default(),
            unflushed: Vec::new(),
            flushing: Vec::new(),
            ios: HashMap::new(),
            next_tag: 0,
            reads: HashMap::new(),
            reading: BTreeSet::new(),
            last_read: 0,
            streams: Streams::new(),
            waiting: HashMap::new(),
            lookups: Vec::new(),
            stage: Stage::Idle,
            committing: false,
            purging: false,
            checks: 0,
            draining: false,
            epoch: 0,
            taken_in: 0,
            releases: VecDeque::new(),
            events: VecDeque::new(),
            failed: None,
            stats: Stats::default(),
        }
    }

    /// The superblock: identity and geometry.
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// Counters for performance reports.
    pub fn stats(&self) -> Stats {
        Stats {
            index_bytes: self.state.index.file().written(),
            ..self.stats
        }
    }

    /// Frees memory for small writes that was not needed since the last call. To be called once a
    /// second or so.
    pub fn give_back(&mut self) {
        self.state.arena.give_back();
    }

    /// How often the index has taken in changes since the store was opened.
    pub fn checkpoints(&self) -> u64 {
        self.stats.checkpoints
    }

    /// Signalled when [`Store::poll`] has completions to take. Each signal is an edge of its own
    /// (`EPOLLET`), also while the descriptor is readable: an owner that waits for edges need not
    /// clear it. For others it stays readable until [`Store::clear_event_fd`].
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.notify.as_fd()
    }

    /// Makes the event descriptor unreadable until the next completion. To be called before
    /// [`Store::poll`], or a completion between the two calls would go unnoticed.
    pub fn clear_event_fd(&self) {
        self.notify.clear();
    }

    /// Whether the store accepts more writes without growing. If not, the owner should not submit
    /// (a transaction that it submits all the same is still accepted) until a later [`Store::poll`]
    /// has made room.
    pub fn writable(&self) -> bool {
        self.failed.is_none()
            && self.unsettled_count() <= 3
            && self.log.queued() < 4096
            && self.state.lasting() <= self.state.cfg.memtable_bytes / 4 * 3
    }

    /// Whether no operation is under way or due.
    pub fn is_idle(&self) -> bool {
        !self.is_at_work() && self.unsettled_count() == 1 && !self.draining
    }

    /// Whether an operation is under way: a later [`Store::poll`] will find it completed, without
    /// any other call in between.
    pub fn is_busy(&self) -> bool {
        self.is_at_work() || self.purging || self.ground.busy || self.checks > 0
    }

    fn is_at_work(&self) -> bool {
        let calls = !self.ios.is_empty() || !self.waiting.is_empty() || !self.lookups.is_empty();
        let log = self.log.queued() > 0 || self.flight.is_some();
        let large = !self.placements.is_empty() || !self.unflushed.is_empty();
        let index = !matches!(self.stage, Stage::Idle) || self.committing;
        calls || log || large || index || !self.events.is_empty()
    }

    /// Applies a transaction: visible to every later call at once, durable when
    /// [`Event::Committed`] comes.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`], [`StoreError::Invalid`]: nothing was changed.
    /// [`StoreError::Fatal`], [`StoreError::Ruined`]: the store has failed.
    pub fn submit(&mut self, mut txn: Transaction, token: Token) -> Result<()> {
        self.try_submit(&mut txn, token)
    }

    /// Notes durably that the log may share ranges of blocks: builds that do not know that refuse the
    /// store from now on. Happens once, and waits for the device.
    fn share_ranges(&mut self) -> Result<()> {
        self.sb.ranges = true;
        match self.sb.write(&self.ground.io) {
            Ok(()) => Ok(()),
            Err(e) => Err(self.fail(e)),
        }
    }

    /// Lets the state admit something, given whether the index has room for it, and finds space for
    /// it if there is too little.
    ///
    /// # Errors
    /// What the state says.
    pub(crate) fn admit(&mut self, admit: impl Fn(&mut State, bool) -> Result<()>) -> Result<()> {
        self.take_back();
        if !self.has_index_room() {
            self.refill_spare();
            self.take_index_space();
        }
        let room = self.has_index_room();
        let mut admitted = admit(&mut self.state, room);
        if let Err(StoreError::NoSpace { needed, .. }) = admitted
            && room
            && self.take_space(needed)
        {
            admitted = admit(&mut self.state, room);
        }
        if matches!(admitted, Err(StoreError::NoSpace { .. })) {
            self.note(What::Refused);
            if self.leaving() > 0 {
                // Removed blocks become allocatable with the next checkpoint, which need not wait
                // for more changes.
                self.checkpoint();
            }
        }
        admitted
    }

    /// As [`Store::submit`], but takes the transaction's ops only if it succeeds: a refused one can
    /// be submitted again.
    ///
    /// # Errors
    /// As [`Store::submit`].
    pub fn try_submit(&mut self, txn: &mut Transaction, token: Token) -> Result<()> {
        self.check()?;
        let most = Log::max_record(&self.sb);
        if let Err(e) = self.admit(|state, room| state.admit(txn, most, room)) {
            return Err(self.stop_if_damaged(e));
        }
        let shares = |op: &Op| matches!(op, Op::CloneRange { .. });
        if !self.sb.ranges && txn.ops.iter().any(shares) {
            self.share_ranges()?;
        }
        let may_be_small = may_be_small(txn);
        let planned = match self.state.execute(std::mem::take(txn)) {
            Ok(planned) => planned,
            Err(e) => {
                let e = self.stop_if_damaged(e);
                // The steps so far are in memory.
                return Err(self.fail(e));
            }
        };
        let seq = self.state.seq + 1;
        let space = record_space(planned.record.len());
        self.state.finish(seq, space);
        let writes = planned.writes.len();
        if writes == 0 && may_be_small {
            self.placements.note_small();
        }
        let record = Record {
            seq,
            token,
            steps: planned.record,
            waiting: writes + usize::from(writes > 0),
        };
        self.log.push(record);
        for (offset, bufs) in planned.writes {
            let block = offset / BLOCK64;
            self.write_direct(offset, bufs, Purpose::Direct { seq, block });
        }
        self.stats.transactions += 1;
        self.start_base_reads();
        self.seal_if_full();
        Ok(())
    }

    /// Finds an object.
    ///
    /// # Errors
    /// [`StoreError::Fatal`].
    pub fn lookup(&mut self, key: &ObjectKey, token: Token) -> Result<Lookup> {
        self.check()?;
        if let Some(known) = self.state.resident(key) {
            return Ok(Lookup::Ready(known));
        }
        self.wait_for_object(
            key,
            Waiting::Lookup {
                key: key.clone(),
                token,
            },
        );
        Ok(Lookup::Pending)
    }

    /// Reads bytes of an object. A small read may take the way through the system's page cache if
    /// `way` allows that; larger ones go past it. Bytes beyond the end of the object are left out.
    /// Transactions submitted after the call do not show if the object is in memory (as after a
    /// lookup); else they may.
    ///
    /// # Errors
    /// [`StoreError::Fatal`]. Others come with the answer: [`StoreError::NoObject`],
    /// [`StoreError::Corrupt`], [`StoreError::ReadFailed`].
    pub fn read(&mut self, key: &ObjectKey, offset: u64, len: u64, way: Way, token: Token) -> Result<Read> {
        self.check()?;
        let asked = Asked { offset, len, way };
        if let Some(known) = self.state.resident(key) {
            return Ok(self.start_read(key, &known, asked, token));
        }
        self.wait_for_object(
            key,
            Waiting::Read {
                key: key.clone(),
                asked,
                token,
            },
        );
        Ok(Read::Pending)
    }

    /// Lists objects with keys in `[from, to)` (`None`: to the last one), at most `limit`; an
    /// [`Event::List`] answers. A page may be shorter than the limit, even empty:
    /// [`Listing::next`](crate::Listing::next) tells whether there is more.
    ///
    /// # Errors
    /// [`StoreError::Fatal`].
    pub fn list(
        &mut self,
        from: &ObjectKey,
        to: Option<&ObjectKey>,
        limit: usize,
        token: Token,
    ) -> Result<()> {
        self.check()?;
        self.wait_for_job(Waiting::Objects {
            from: from.clone(),
            to: to.cloned(),
            limit: limit.clamp(1, 4096),
            token,
        });
        Ok(())
    }

    /// Lists omap pairs of an object with keys in `[from, to)`; an [`Event::Pairs`] answers, with
    /// no pairs if the object is missing or has none.
    ///
    /// # Errors
    /// [`StoreError::Fatal`], or an index that cannot be read.
    pub fn omap_list(
        &mut self,
        key: &ObjectKey,
        from: &[u8],
        to: Option<&[u8]>,
        limit: PageLimit,
        token: Token,
    ) -> Result<()> {
        let omap = self.load(key)?.map_or(0, |o| o.omap);
        let end = to.map_or_else(|| omap_end(omap), |to| omap_key(omap, to));
        self.list_pairs(omap_key(omap, from), end, limit, OMAP_PREFIX, token);
        Ok(())
    }

    /// Looks up ascending omap keys of an object; an [`Event::Pairs`] answers with those that
    /// exist, in their order, up to the limit's bytes.
    ///
    /// # Errors
    /// [`StoreError::Fatal`], or an index that cannot be read.
    pub fn omap_get(
        &mut self,
        key: &ObjectKey,
        names: &[Bytes],
        limit: PageLimit,
        token: Token,
    ) -> Result<()> {
        let omap = self.load(key)?.map_or(0, |o| o.omap);
        let keys = if omap == 0 {
            Vec::new()
        } else {
            names.iter().map(|n| omap_key(omap, n)).collect()
        };
        if let Some(pairs) = self.state.pairs_in_memory(&keys, limit, OMAP_PREFIX) {
            self.events.push_back(Event::Pairs(token, Ok(pairs)));
        } else {
            let skip = OMAP_PREFIX;
            self.wait_for_job(Waiting::Keys {
                keys,
                limit,
                skip,
                token,
            });
        }
        Ok(())
    }

    /// Lists store-wide pairs with keys in `[from, to)`, at most `limit`; an [`Event::Pairs`]
    /// answers.
    ///
    /// # Errors
    /// [`StoreError::Fatal`].
    pub fn meta_list(&mut self, from: &[u8], to: Option<&[u8]>, limit: usize, token: Token) -> Result<()> {
        self.check()?;
        let end = to.map_or_else(meta_end, meta_key);
        self.list_pairs(
            meta_key(from),
            end,
            PageLimit::new(limit, usize::MAX),
            META_PREFIX,
            token,
        );
        Ok(())
    }

    /// Value of a store-wide pair. Blocks on the device if the index is not in memory.
    ///
    /// # Errors
    /// [`StoreError::Fatal`], or an index that cannot be read.
    pub fn meta_get(&mut self, key: &[u8]) -> Result<Option<Bytes>> {
        self.check()?;
        self.state.pair(&meta_key(key))
    }

    /// Finds an object at once, blocking on the device if it is not in memory.
    ///
    /// # Errors
    /// [`StoreError::Fatal`], or an index that cannot be read.
    pub fn load(&mut self, key: &ObjectKey) -> Result<Known> {
        self.check()?;
        if let Some(known) = self.state.resident(key) {
            return Ok(known);
        }
        let known = self
            .state
            .index
            .objects(std::slice::from_ref(key))?
            .pop()
            .flatten()
            .map(Arc::new);
        self.state.remember(key, &known);
        Ok(known)
    }

    /// Blocks that were freed, or placed and not used, and cannot be allocated yet.
    fn leaving(&self) -> u64 {
        let pending: u64 = self.state.tables.iter().map(|t| t.freed_blocks).sum();
        let releasing: u64 = self
            .releases
            .iter()
            .flat_map(|(_, runs)| runs)
            .map(|r| u64::from(r.len))
            .sum();
        pending + releasing + self.state.unused.blocks()
    }

    /// Whether data was removed whose space cannot be allocated yet.
    pub fn is_freeing(&self) -> bool {
        self.leaving() > 0
    }

    /// Whether the index can grow by the pending changes.
    fn has_index_room(&self) -> bool {
        let file = self.state.index.file();
        file.spare_count() >= self.spare_target / 2 && self.ground.has_index_room(file)
    }

    /// Bytes that may still be written to objects, if the index has room for it.
    fn data_room(&self) -> u64 {
        let without = self.ground.obtainable(self.without_space());
        (self.state.alloc.free() + self.leaving()) * BLOCK64 + without
    }

    /// Bytes that may still be allocated to objects: none if the index has no room for more of
    /// them. Cheap enough for every batch, unlike [`Store::statfs`].
    pub fn available(&self) -> u64 {
        let file = self.state.index.file();
        let has_room = file.spare_count() >= self.spare_target / 2 && self.ground.can_have_index_room(file);
        match has_room {
            true => self.data_room(),
            false => 0,
        }
    }

    /// Size of the device, in bytes.
    pub fn total(&self) -> u64 {
        self.sb.blocks * BLOCK64
    }

    /// Space and contents.
    pub fn statfs(&self) -> StatFs {
        let group = u64::from(self.sb.group_blocks) * BLOCK64;
        let file = self.state.index.file();
        let leaving = self.leaving();
        let allocated = self.state.alloc.used().saturating_sub(leaving) * BLOCK64;
        let index = file.mapped_count() as u64 * group;
        let fixed = u64::from(self.sb.fixed_groups()) * group;
        StatFs {
            total: fixed + index + allocated + self.data_room(),
            available: self.available(),
            reserved: file.spare_count() as u64 * group,
            allocated,
            stored: self.state.counters.stored,
            index,
            fixed,
            objects: self.state.counters.objects,
        }
    }

    /// Starts writing all changes to their places and into the index, as before a shutdown; it is
    /// done when [`Store::is_idle`]. Safety does not need it, as the log is replayed: it only
    /// shortens the next start.
    pub fn checkpoint(&mut self) {
        self.seal();
        self.draining = self.state.tables.len() > 1;
    }

    /// Starts a checkpoint of all transactions submitted so far; [`Store::is_compact`] tells when
    /// it is done.
    pub fn compact(&mut self) -> Mark {
        self.checkpoint();
        Mark(self.state.seq)
    }

    /// Whether the index has taken in all transactions up to the mark, so that their part of the
    /// log is free, and has no garbage left.
    pub fn is_compact(&self, mark: Mark) -> bool {
        let has_all = self.taken_in >= mark.0 || self.state.tables.iter().all(|t| t.is_empty());
        has_all && !self.purging
    }

    /// Does all due work and appends the events to `events`.
    pub fn poll(&mut self, events: &mut Vec<Event>) {
        self.advance();
        events.extend(self.events.drain(..));
    }

    /// Starts background work after opening: filling the presence filter, so that missing objects
    /// need not be looked up, and removing garbage.
    pub(crate) fn start_background(&mut self) {
        // Garbage of an earlier run.
        self.purge();
        if self.state.index.can_learn(self.state.counters.objects) {
            self.exec.submit(Job::Learn(Bytes::new()));
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        match &self.failed {
            Some(e) => Err(e.clone()),
            None => Ok(()),
        }
    }

    /// Poisons the store.
    pub(crate) fn fail(&mut self, cause: impl std::fmt::Display) -> StoreError {
        if let Some(e) = &self.failed {
            return e.clone();
        }
        self.stop(StoreError::Fatal(cause.to_string().into()))
    }

    fn stop(&mut self, error: StoreError) -> StoreError {
        self.note(What::Failed);
        tracing::error!("{}", self.recent.tell());
        tracing::error!(%error, "the store stops");
        self.failed = Some(error.clone());
        self.fail_readers(&error);
        self.events.push_back(Event::Fatal(error.clone()));
        error
    }

    /// Stops the store if the error is a damaged page of the index that a change has to touch, or
    /// says that the store is ruined. Returns the error as the caller gets it.
    pub(crate) fn stop_if_damaged(&mut self, error: StoreError) -> StoreError {
        let error = match error {
            StoreError::IndexPage { .. } => error.into_ruin(),
            other => other,
        };
        match (&self.failed, matches!(error, StoreError::Ruined { .. })) {
            (Some(failed), _) => failed.clone(),
            (None, true) => self.stop(error),
            (None, false) => error,
        }
    }

    /// Ends the daemon before an impossible operation.
    fn check_io(&self, kind: &IoKind) {
        // The log decides at the next start which transactions had become durable.
        invariant!(self.failed.is_none(), "no operation after a failure"; operation = format_args!("{kind:?}"));
        if let IoKind::Write { offset, bufs, .. } = kind {
            let whole = |n: u64| n.is_multiple_of(BLOCK64);
            invariant!(
                whole(*offset) && bufs.iter().all(|b| whole(b.len() as u64)),
                "a write of whole blocks";
                operation = format_args!("{kind:?}"),
            );
        }
    }

    /// Checks that contents of objects may be written there: not over the log, the index, or free
    /// blocks.
    ///
    /// # Errors
    /// The first block where they may not.
    pub(crate) fn check_place(&self, offset: u64, bufs: &[Bytes]) -> Result<()> {
        let (pblk, bytes) = (offset / BLOCK64, bufs.iter().map(Bytes::len).sum::<usize>());
        let len = (bytes / BLOCK) as u32;
        let alloc = &self.state.alloc;
        let wrong = match alloc.holds_data(Run { pblk, len }) {
            true => (pblk..pblk + u64::from(len)).find(|b| alloc.is_free(*b)),
            false => Some(pblk),
        };
        match wrong {
            Some(block) => Err(StoreError::damaged(
                "index",
                format!("block {block} is written, and is no object's"),
            )),
            None => Ok(()),
        }
    }

    /// Gives an operation to the main device.
    pub(crate) fn queue(&mut self, kind: IoKind, purpose: Purpose) {
        self.check_io(&kind);
        self.next_tag += 1;
        self.ios.insert(self.next_tag, purpose);
        self.dev.queue(Io {
            tag: self.next_tag,
            kind,
        });
    }

    /// Gives an operation to the log's device.
    pub(crate) fn queue_log(&mut self, kind: IoKind) {
        self.check_io(&kind);
        self.next_tag += 1;
        self.ios.insert(self.next_tag, Purpose::Log);
        let io = Io {
            tag: self.next_tag,
            kind,
        };
        match &mut self.log_dev {
            Some(dev) => dev.queue(io),
            None => self.dev.queue(io),
        }
    }

    /// Writes large data to blocks that were allocated for it.
    pub(crate) fn write_direct(&mut self, offset: u64, bufs: Vec<Bytes>, purpose: Purpose) {
        invariant!(
            self.check_place(offset, &bufs).is_ok(),
            "a large write to blocks that were allocated for it";
            transaction = self.state.seq,
            block = offset / BLOCK64,
        );
        self.stats.direct_bytes += bufs.iter().map(|b| b.len() as u64).sum::<u64>();
        let kind = IoKind::Write {
            offset,
            bufs,
            durable: false,
        };
        self.queue(kind, purpose);
    }

    fn list_pairs(&mut self, from: Bytes, to: Bytes, limit: PageLimit, skip: usize, token: Token) {
        self.wait_for_job(Waiting::Pairs {
            from,
            to,
            limit,
            skip,
            token,
        });
    }

    fn wait_for_object(&mut self, key: &ObjectKey, waiting: Waiting) {
        self.next_tag += 1;
        self.waiting.insert(self.next_tag, (self.epoch, waiting));
        self.lookups.push((self.next_tag, key.clone()));
        self.stats.index_lookups += 1;
    }

    pub(crate) fn wait_for_job(&mut self, waiting: Waiting) {
        self.next_tag += 1;
        let id = self.next_tag;
        let job = match &waiting {
            Waiting::Objects { from, to, limit, .. } => Job::Objects {
                id,
                from: from.clone(),
                to: to.clone(),
                limit: *limit,
            },
            Waiting::Pairs { from, to, limit, .. } => Job::Pairs {
                id,
                from: from.clone(),
                to: to.clone(),
                limit: *limit,
            },
            Waiting::Keys { keys, limit, .. } => Job::Keys {
                id,
                keys: keys.clone(),
                limit: *limit,
            },
            Waiting::Lookup { key, .. } | Waiting::Read { key, .. } => {
                self.lookups.push((id, key.clone()));
                self.waiting.insert(id, (self.epoch, waiting));
                return; // The next round looks all of them up in one job.
            }
        };
        self.waiting.insert(id, (self.epoch, waiting));
        self.exec.submit(job);
    }

    /// Sets whether small reads may go through the system's page cache.
    pub fn set_cached_reads(&mut self, on: bool) {
        self.state.cfg.cached_reads = on;
    }

    /// The settings it was opened with.
    pub fn config(&self) -> &Config {
        &self.state.cfg
    }
}
