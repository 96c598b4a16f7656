//! Between the PG core and the store: translates transactions, reads and listings, and their answers.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use spirula_buf::Pool;
use spirula_maps::SnapId;
use spirula_msgr::QueueAccount;
use spirula_store::{Event, Lookup, ObjectKey, Onode, Op, Store, StoreError, Transaction};

use super::heap::{Heap, LARGE};
use super::read_turns::ReadTurns;
use super::store_queue::{StoreQueue, Submission};
use super::store_reads::{OmapScan, Read};
use crate::core::DAEMON_SLOT;
use crate::pg::account::Totals;
use crate::pg::fetch::ReadError;
use crate::pg::txn::{MetaOp, ObjectOp, Txn};
use crate::pg::{Claim, StoreReply, StoredObject, Token, key};

/// A call to the store whose answer the core does not get as it is.
pub(super) enum Call {
    /// Part of a read: the read's number, the want's, and the offset.
    Part { read: u64, want: usize, offset: u64 },
    /// Omap pairs for a read.
    Omap(OmapScan),
    /// Omap values by key for a read: its number and the want's.
    OmapKeys { read: u64, want: usize },
    /// A listing, with what was found so far.
    List {
        token: Token,
        to: Bytes,
        max: usize,
        found: Vec<(Bytes, Bytes)>,
    },
    /// A page of records.
    Records { token: Token, to: Bytes, max: usize },
}

/// The store and the calls under way.
pub(super) struct StoreIo {
    pub(super) store: Store,
    /// Where data is read into. Replies keep it until they are sent: at its limit further reads wait.
    pub(super) pool: Pool,
    /// Replies that clients have not read yet.
    pub(super) unread: QueueAccount,
    /// What all clients take.
    pub(super) totals: Arc<Totals>,
    /// Reads that wait for room.
    pub(super) turns: ReadTurns,
    /// The read that is next, when none is under way.
    pub(super) alone: Option<Token>,
    pub(super) calls: HashMap<u64, Call>,
    pub(super) reads: HashMap<u64, Read>,
    /// Those of them that are more than little.
    pub(super) large_reads: usize,
    /// Those that have been answered since the store was last polled: their replies do not count as unread yet.
    pub(super) large_answered: usize,
    pub(super) last: u64,
    /// Answers that were there at once.
    pub(super) ready: VecDeque<(Token, StoreReply)>,
    /// Transactions for which the store has no memory now, or no room until it has freed some. All that come after wait too: maps
    /// are stored in their order with the rest, and PGs may be split.
    pub(super) held: StoreQueue,
    /// PGs of which something was refused while more of them waits.
    refused: BTreeSet<u32>,
    /// Bytes that are kept free for what was accepted already when the store becomes full.
    pub(super) reserve: u64,
    /// Large values that have come and gone.
    pub(super) heap: Heap,
    /// Bytes of large values in transactions that are not durable, by the transaction, and together.
    large: HashMap<u64, usize>,
    large_bytes: usize,
    /// How many of them there may be before those of other OSDs wait.
    pub(super) most_large: usize,
    events: Vec<Event>,
    /// Transactions that are durable.
    committed: u64,
    /// Transactions that the store took.
    submitted: u64,
    /// While some of these are not durable, or are held: when one last became so, or the first of them came, in microseconds.
    progress: Option<u64>,
}

impl StoreIo {
    pub(super) fn new(store: Store, pool: Pool) -> Self {
        Self {
            store,
            pool,
            unread: QueueAccount::default(),
            totals: Arc::default(),
            turns: ReadTurns::default(),
            alone: None,
            calls: HashMap::new(),
            reads: HashMap::new(),
            large_reads: 0,
            large_answered: 0,
            last: 0,
            ready: VecDeque::new(),
            held: StoreQueue::default(),
            refused: BTreeSet::new(),
            reserve: 0,
            heap: Heap::default(),
            large: HashMap::new(),
            large_bytes: 0,
            most_large: usize::MAX,
            events: Vec::new(),
            committed: 0,
            submitted: 0,
            progress: None,
        }
    }

    pub(super) fn token(&mut self, call: Call) -> spirula_store::Token {
        self.last += 1;
        // The daemon's slot is the upper half zero.
        debug_assert_eq!(Token(self.last).slot(), DAEMON_SLOT);
        self.last &= 0xffff_ffff;
        self.calls.insert(self.last, call);
        spirula_store::Token(self.last)
    }

    /// Notes a transaction with so many bytes of large values, until it is durable or refused.
    fn note_large(&mut self, token: Token, bytes: usize) {
        if bytes > 0 {
            self.heap.pass_to_index(bytes, self.store.checkpoints());
            *self.large.entry(token.0).or_default() += bytes;
            self.large_bytes += bytes;
        }
    }

    fn forget_large(&mut self, token: Token) {
        if !self.large.is_empty()
            && let Some(bytes) = self.large.remove(&token.0)
        {
            self.large_bytes -= bytes;
        }
    }

    /// Whether another OSD's change with so many bytes of large values may come.
    pub(super) fn takes_large(&self, bytes: usize) -> bool {
        self.large_bytes == 0 || self.large_bytes.saturating_add(bytes) <= self.most_large
    }

    /// How often the store was called since the start, more or less.
    pub(super) fn calls(&self) -> u64 {
        self.submitted + self.last
    }

    /// For how many microseconds the store has had transactions and made none durable.
    pub(super) fn stalled(&self, now: u64) -> u64 {
        self.progress.map_or(0, |since| now.saturating_sub(since))
    }

    /// Submits a transaction at this time, in microseconds.
    ///
    /// # Errors
    /// The store failed, or has no room for what must be stored: more was accepted than the reserve holds. All that comes later relies on
    /// it, so the daemon can't go on: what the log has is the truth.
    pub(super) fn submit(
        &mut self,
        token: Token,
        txn: Txn,
        claim: Claim,
        now: u64,
    ) -> Result<(), StoreError> {
        self.note_large(token, large_bytes(&txn));
        let s = Submission {
            token,
            claim,
            bytes: txn.data_len() as u64,
            txn: translate(txn),
        };
        let back = match self.held.is_empty() && self.store.writable() {
            true => self.try_submit(s, now)?,
            false => Some(s),
        };
        if let Some(s) = back {
            self.held.push(s);
            self.progress.get_or_insert(now);
        }
        Ok(())
    }

    /// Hands over what is held, in its order.
    fn hand_over(&mut self, now: u64) -> Result<(), StoreError> {
        while self.store.writable()
            && let Some(s) = self.held.pop()
        {
            if let Some(s) = self.try_submit(s, now)? {
                self.held.push_front(s);
                break;
            }
        }
        // Nothing waits any more that was submitted before the PG hears of the refusal.
        let held = &self.held;
        self.refused.retain(|slot| held.has(*slot));
        Ok(())
    }

    /// Whether a transaction would leave the room that is not for it.
    fn leaves_reserve(&self, s: &Submission) -> bool {
        let kept = match s.claim {
            Claim::All => return true,
            Claim::Half => self.reserve / 2,
            // Nor so little that the OSD would still be full, if it were.
            Claim::None => self.reserve + self.reserve / 4,
        };
        self.store.available() >= kept + s.bytes
    }

    /// Submits or refuses, or gives the transaction back until a checkpoint has freed what was removed.
    fn try_submit(&mut self, mut s: Submission, now: u64) -> Result<Option<Submission>, StoreError> {
        let (claim, slot) = (s.claim, s.token.slot());
        // What follows may go on with what was refused.
        if claim != Claim::All && self.refused.contains(&slot) || !self.leaves_reserve(&s) {
            self.refuse(s.token);
            return Ok(None);
        }
        match self.store.try_submit(&mut s.txn, spirula_store::Token(s.token.0)) {
            Err(StoreError::NoSpace { .. }) if self.store.is_freeing() => Ok(Some(s)),
            Err(StoreError::NoSpace { .. }) if claim != Claim::All => {
                self.refuse(s.token);
                Ok(None)
            }
            // Others have filled the file system below. What was accepted waits until there is space again.
            Err(StoreError::NoSpace { .. }) if self.store.is_dry() => Ok(Some(s)),
            other => {
                other?;
                self.submitted += 1;
                self.progress.get_or_insert(now);
                Ok(None)
            }
        }
    }

    fn refuse(&mut self, token: Token) {
        self.forget_large(token);
        self.ready.push_back((token, StoreReply::NoRoom));
        if self.held.has(token.slot()) {
            self.refused.insert(token.slot());
        }
    }

    pub(super) fn lookup(&mut self, token: Token, key: Bytes) -> Result<(), StoreError> {
        match self
            .store
            .lookup(&ObjectKey::new(key), spirula_store::Token(token.0))?
        {
            Lookup::Ready(found) => self.ready.push_back((token, object_reply(Ok(found)))),
            Lookup::Pending => {}
        }
        Ok(())
    }

    /// Whether transactions of this token's PG wait: what it submitted does not all show yet.
    pub(super) fn is_held(&self, token: Token) -> bool {
        self.held.has(token.slot())
    }

    pub(super) fn list(
        &mut self,
        token: Token,
        from: Bytes,
        to: Bytes,
        max: usize,
    ) -> Result<(), StoreError> {
        if from >= to {
            self.ready
                .push_back((token, StoreReply::Objects(Ok((Vec::new(), None)))));
            return Ok(());
        }
        self.list_on(token, from, to, max, Vec::new())
    }

    /// One more than wanted, so that the place to go on is an object's key.
    fn list_on(
        &mut self,
        token: Token,
        from: Bytes,
        to: Bytes,
        max: usize,
        found: Vec<(Bytes, Bytes)>,
    ) -> Result<(), StoreError> {
        let left = max + 1 - found.len();
        let t = self.token(Call::List {
            token,
            to: to.clone(),
            max,
            found,
        });
        self.store
            .list(&ObjectKey::new(from), Some(&ObjectKey::new(to)), left, t)
    }

    /// Lets the store do what is due and returns its answers. To be called until there are none.
    pub(super) fn poll(&mut self, now: u64) -> Result<VecDeque<(Token, StoreReply)>, StoreError> {
        self.large_reads -= std::mem::take(&mut self.large_answered);
        let mut events = std::mem::take(&mut self.events);
        self.store.poll(&mut events);
        for e in events.drain(..) {
            self.event(e, now)?;
        }
        self.events = events;
        self.hand_over(now)?;
        self.read_deferred()?;
        Ok(std::mem::take(&mut self.ready))
    }

    /// Answers that are there without asking the device.
    pub(super) fn take_ready(&mut self) -> Option<(Token, StoreReply)> {
        self.ready.pop_front()
    }

    fn event(&mut self, e: Event, now: u64) -> Result<(), StoreError> {
        match e {
            Event::Committed(t) => {
                self.forget_large(Token(t.0));
                self.committed += 1;
                let waits = self.submitted > self.committed || !self.held.is_empty();
                self.progress = waits.then_some(now);
                self.ready.push_back((Token(t.0), StoreReply::Committed));
            }
            Event::Lookup(t, r) => self.ready.push_back((Token(t.0), object_reply(r))),
            Event::Read(t, r) => self.part(t.0, r),
            Event::List(t, r) => self.page(t.0, r)?,
            Event::Pairs(t, r) => match self.calls.get(&t.0) {
                Some(Call::Records { .. }) => self.records(t.0, r)?,
                _ => self.omap_page(t.0, r)?,
            },
            Event::Fatal(e) => return Err(e),
        }
        Ok(())
    }

    fn page(
        &mut self,
        t: u64,
        r: Result<spirula_store::Listing<Bytes>, StoreError>,
    ) -> Result<(), StoreError> {
        let Some(Call::List {
            token,
            to,
            max,
            mut found,
        }) = self.calls.remove(&t)
        else {
            return Ok(());
        };
        let page = match r {
            Ok(page) => page,
            Err(error) => {
                tracing::error!(%error, "listing failed");
                self.ready.push_back((token, StoreReply::Objects(Err(ReadError))));
                return Ok(());
            }
        };
        found.extend(
            page.objects
                .into_iter()
                .map(|(k, info)| (k.bytes().clone(), info)),
        );
        if found.len() <= max
            && let Some(next) = page.next
        {
            return self.list_on(token, next.bytes().clone(), to, max, found);
        }
        let next = if found.len() > max {
            found.pop().map(|(k, _)| k)
        } else {
            None
        };
        self.ready
            .push_back((token, StoreReply::Objects(Ok((found, next)))));
        Ok(())
    }

    pub(super) fn list_records(
        &mut self,
        token: Token,
        from: &[u8],
        to: Bytes,
        max: usize,
    ) -> Result<(), StoreError> {
        let t = self.token(Call::Records {
            token,
            to: to.clone(),
            max,
        });
        self.store.meta_list(from, Some(&to), max, t)
    }

    fn records(&mut self, t: u64, r: Result<spirula_store::Pairs, StoreError>) -> Result<(), StoreError> {
        let Some(Call::Records { token, to, max }) = self.calls.remove(&t) else {
            return Ok(());
        };
        let found = match r {
            // A page may be short, as long as there is more.
            Ok(page) if page.pairs.is_empty() && page.next.is_some() => {
                return self.list_records(token, &page.next.unwrap_or_default(), to, max);
            }
            Ok(page) => Ok(page.pairs.into_iter().map(|(k, _)| k).collect()),
            Err(error) => {
                tracing::error!(%error, "records can't be listed");
                Err(ReadError)
            }
        };
        self.ready.push_back((token, StoreReply::Records(found)));
        Ok(())
    }

    /// Whether all transactions are in the log, as far as that can be seen from outside: only for benchmarks.
    pub(super) fn is_flushed(&self) -> bool {
        self.held.is_empty() && self.submitted == self.committed
    }

    /// All records of a range, at start-up.
    pub(super) fn load_records(&mut self, from: &[u8], to: &[u8]) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let mut out = Vec::new();
        let mut from = Bytes::copy_from_slice(from);
        loop {
            self.store
                .meta_list(&from, Some(to), 4096, spirula_store::Token(0))?;
            let page = self.wait_for_pairs()?;
            out.extend(page.pairs);
            match page.next {
                Some(next) => from = next,
                None => return Ok(out),
            }
        }
    }

    fn wait_for_pairs(&mut self) -> Result<spirula_store::Pairs, StoreError> {
        let mut polls = 0;
        loop {
            let mut events = Vec::new();
            self.store.poll(&mut events);
            for e in events {
                match e {
                    Event::Pairs(_, r) => return r,
                    Event::Fatal(e) => return Err(e),
                    _ => {}
                }
            }
            // A store without threads of its own answers within a few polls.
            polls += 1;
            if polls > 8 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
}

pub(super) fn stored_object(o: &Onode) -> StoredObject {
    StoredObject {
        info: o.info().clone(),
        attrs: o.attrs().iter().cloned().collect(),
    }
}

fn object_reply(r: Result<Option<Arc<Onode>>, StoreError>) -> StoreReply {
    StoreReply::Object(match r {
        Ok(found) => Ok(found.map(|o| stored_object(&o))),
        Err(error) => {
            tracing::error!(%error, "lookup failed");
            Err(ReadError)
        }
    })
}

fn note_snaps(t: &mut Transaction, clone: &ObjectKey, add: &[SnapId], remove: &[SnapId]) {
    for snap in add {
        t.push(Op::MetaPut {
            key: key::snap_key(*snap, clone.bytes()),
            value: Bytes::new(),
        });
    }
    for snap in remove {
        t.push(Op::MetaDelete(key::snap_key(*snap, clone.bytes())));
    }
}

/// Bytes of values that are large and lie in no buffer of a pool.
fn large_bytes(txn: &Txn) -> usize {
    let of = |op: &ObjectOp| match op {
        ObjectOp::SetAttr { value, .. } | ObjectOp::OmapHeader(value) => value.len(),
        ObjectOp::OmapSet(pairs) => pairs.iter().map(|(_, v)| v.len()).sum(),
        _ => 0,
    };
    let ops = txn.objects.iter().flat_map(|(_, ops)| ops);
    ops.map(of).filter(|bytes| *bytes >= LARGE).sum()
}

fn translate(txn: Txn) -> Transaction {
    let mut t = Transaction::new();
    t.ops
        .reserve(txn.meta.len() + txn.objects.iter().map(|(_, ops)| ops.len()).sum::<usize>());
    for (k, ops) in txn.objects {
        let key = ObjectKey::new(k);
        for op in ops {
            let key = key.clone();
            t.push(match op {
                ObjectOp::Touch => Op::Touch(key),
                ObjectOp::Write { offset, data } => Op::Write {
                    key,
                    offset,
                    data: data.into(),
                },
                ObjectOp::Zero { offset, len } => Op::Zero { key, offset, len },
                ObjectOp::Truncate { size } => Op::Truncate { key, size },
                ObjectOp::Remove => Op::Remove(key),
                ObjectOp::SetInfo(info) => Op::SetInfo { key, info },
                ObjectOp::SetAttr { name, value } => Op::SetAttr { key, name, value },
                ObjectOp::RmAttr(name) => Op::RmAttr { key, name },
                ObjectOp::OmapSet(pairs) => Op::OmapSet { key, pairs },
                ObjectOp::OmapRm(names) => Op::OmapRm { key, names },
                ObjectOp::OmapRmRange { from, to } => Op::OmapRmRange { key, from, to },
                ObjectOp::OmapClear => Op::OmapClear(key),
                ObjectOp::OmapHeader(header) => Op::OmapHeader { key, header },
                ObjectOp::CloneOf(source) => Op::Clone {
                    from: ObjectKey::new(source),
                    to: key,
                    pairs: true,
                },
                ObjectOp::CloneOfData(source) => Op::Clone {
                    from: ObjectKey::new(source),
                    to: key,
                    pairs: false,
                },
                ObjectOp::MoveOf(source) => Op::Move {
                    from: ObjectKey::new(source),
                    to: key,
                },
                ObjectOp::NoteSnaps { add, remove } => {
                    note_snaps(&mut t, &key, &add, &remove);
                    continue;
                }
                ObjectOp::ForgetSnaps { to, snaps } => {
                    t.ops.extend(snaps.iter().map(|s| {
                        let (from, to) = key::snap_records(*s, key.bytes(), &to);
                        Op::MetaDeleteRange { from, to }
                    }));
                    continue;
                }
            });
        }
    }
    for op in txn.meta {
        t.push(match op {
            MetaOp::Put(key, value) => Op::MetaPut { key, value },
            MetaOp::Delete(key) => Op::MetaDelete(key),
            MetaOp::DeleteRange(from, to) => Op::MetaDeleteRange { from, to },
        });
    }
    t
}

/// The infos of all PGs in the store.
pub(super) fn info_range() -> (Bytes, Bytes) {
    key::all_infos()
}
