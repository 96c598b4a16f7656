//! Between the PG core and the store: hands over the core's calls, and brings the answers.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use spirula_buf::Pool;
use spirula_denc::Micros;
use spirula_invariant::impossible;
use spirula_store::{Event, Lookup, ObjectKey, Onode, Store, StoreError};

use super::heap::Heap;
use super::index_check::IndexNews;
use super::store_calls::{Call, Calls};
use super::store_lists::Listing;
use super::store_reads::{Reading, Reads};
use super::store_txn::placement;
use super::store_writes::{Writes, Writing};
use crate::pg::fetch::{ReadError, Want};
use crate::pg::key::KeyRange;
use crate::pg::op::Client;
use crate::pg::txn::Txn;
use crate::pg::{Claim, Reader, StoreReply, StoredObject, Token};

/// Answers for the core, in their order.
#[derive(Default)]
pub(super) struct Answers(VecDeque<(Token, StoreReply)>);

impl Answers {
    /// Adds one.
    pub(super) fn push(&mut self, answer: (Token, StoreReply)) {
        self.0.push_back(answer);
    }
}

/// The store, and the calls under way there.
pub(super) struct StoreIo {
    pub(super) store: Store,
    pub(super) writes: Writes,
    pub(super) reads: Reads,
    calls: Calls,
    /// Large values that have come and gone.
    pub(super) heap: Heap,
    answers: Answers,
    /// Damaged pages of the index that were met.
    pub(super) damaged: BTreeSet<u64>,
    /// News of the check of the index.
    pub(super) index_news: Vec<IndexNews>,
    /// Scratch for the store's events; kept for its memory.
    events: Vec<Event>,
}

/// The most damaged pages that are noted: the check of the index finds the others.
const MOST_DAMAGED: usize = 64;

impl StoreIo {
    pub(super) fn new(store: Store, pool: Pool) -> Self {
        Self {
            store,
            writes: Writes::default(),
            reads: Reads::new(pool),
            calls: Calls::default(),
            heap: Heap::default(),
            answers: Answers::default(),
            damaged: BTreeSet::new(),
            index_news: Vec::new(),
            events: Vec::new(),
        }
    }

    fn writing(&mut self) -> Writing<'_> {
        Writing {
            store: &mut self.store,
            writes: &mut self.writes,
            heap: &mut self.heap,
            answers: &mut self.answers,
        }
    }

    fn reading(&mut self) -> Reading<'_> {
        Reading {
            store: &mut self.store,
            reads: &mut self.reads,
            calls: &mut self.calls,
            held: &self.writes.held,
            answers: &mut self.answers,
            damaged: &mut self.damaged,
        }
    }

    /// The handler of listings of objects and records.
    pub(super) fn listing(&mut self) -> Listing<'_> {
        Listing {
            store: &mut self.store,
            calls: &mut self.calls,
            answers: &mut self.answers,
        }
    }

    /// The approximate number of calls to the store since the start.
    pub(super) fn calls(&self) -> u64 {
        self.writes.submitted() + self.calls.count() + self.reads.begun()
    }

    /// See [`Writing::submit`].
    pub(super) fn submit(
        &mut self,
        token: Token,
        txn: Txn,
        claim: Claim,
        now: Micros,
    ) -> Result<(), StoreError> {
        self.writing().submit(token, txn, claim, now)
    }

    /// See [`Writing::place`].
    pub(super) fn place(&mut self, token: Token, data: Bytes) -> Result<(), StoreError> {
        self.writing().place(token, data)
    }

    /// See [`Reading::read`].
    pub(super) fn read(
        &mut self,
        token: Token,
        key: Bytes,
        wants: Vec<Want>,
        reader: Option<Reader>,
        has_room: bool,
    ) -> Result<(), StoreError> {
        self.reading().read(token, key, wants, reader, has_room)
    }

    /// The pool that data is read into.
    pub(super) fn read_pool(&self) -> &Pool {
        &self.reads.pool
    }

    /// Looks an object up.
    pub(super) fn lookup(&mut self, token: Token, key: Bytes) -> Result<(), StoreError> {
        match self
            .store
            .lookup(&ObjectKey::new(&key), spirula_store::Token(token.0))?
        {
            Lookup::Ready(found) => self.answers.push((token, object_reply(Ok(found)))),
            Lookup::Pending => {}
        }
        Ok(())
    }

    /// Drops the reads of a client that has gone.
    pub(super) fn client_closed(&mut self, client: &Client) {
        self.reading().client_closed(client);
    }

    /// The bytes that the first read waiting for room needs.
    pub(super) fn deferred_bytes(&self) -> Option<usize> {
        self.reads.deferred_bytes(&self.writes.held)
    }

    /// A party that has hardly anything read itself but waits for room that others have.
    pub(super) fn starved(&self) -> Option<u64> {
        self.reads.starved(&self.writes.held)
    }

    /// Lets the store do the work that is due and returns its answers. To be called until there are
    /// none.
    pub(super) fn poll(&mut self, now: Micros) -> Result<VecDeque<(Token, StoreReply)>, StoreError> {
        self.reads.settle();
        let mut events = std::mem::take(&mut self.events);
        self.store.poll(&mut events);
        for e in events.drain(..) {
            self.event(e, now)?;
        }
        self.events = events;
        self.writing().hand_over(now)?;
        self.reading().read_deferred()?;
        Ok(std::mem::take(&mut self.answers.0))
    }

    /// Takes an answer that is there without asking the device.
    pub(super) fn take_ready(&mut self) -> Option<(Token, StoreReply)> {
        self.answers.0.pop_front()
    }

    fn event(&mut self, e: Event, now: Micros) -> Result<(), StoreError> {
        if let Event::Lookup(_, Err(error))
        | Event::Read(_, Err(error))
        | Event::List(_, Err(error))
        | Event::Pairs(_, Err(error)) = &e
        {
            note_damage(&mut self.damaged, error);
        }
        match e {
            Event::Committed(t) => {
                let token = Token(t.0);
                self.writes.committed(token, now);
                self.answers.push((token, StoreReply::Committed));
            }
            Event::Placed(t, placed) => {
                let placed = StoreReply::Placed(Some(placement(placed)));
                self.answers.push((Token(t.0), placed));
            }
            Event::Lookup(t, r) => self.answers.push((Token(t.0), object_reply(r))),
            Event::Read(t, r) => match self.calls.close(t.0) {
                Some(Call::Part(part)) => self.reading().part(part, r),
                _ => unasked(t),
            },
            Event::List(t, r) => match self.calls.close(t.0) {
                Some(Call::List(listing)) => self.listing().page(listing, r)?,
                _ => unasked(t),
            },
            Event::Pairs(t, r) => match self.calls.close(t.0) {
                Some(Call::Records(records)) => self.listing().records(records, r)?,
                Some(Call::Omap(scan)) => self.reading().omap_page(scan, r)?,
                Some(Call::OmapKeys(keys)) => self.reading().omap_keys(keys, r),
                _ => unasked(t),
            },
            Event::Checked(_, piece) => self.index_news.push(IndexNews::Checked(piece)),
            Event::Judged(_, damage) => self.index_news.push(IndexNews::Judged(damage)),
            Event::Fatal(e) => return Err(e),
        }
        Ok(())
    }

    /// All records of a range, at start-up.
    pub(super) fn load_records(&mut self, range: &KeyRange) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let (mut out, mut from) = (Vec::new(), range.from.clone());
        loop {
            self.store
                .meta_list(&from, Some(&range.to), 4096, spirula_store::Token(0))?;
            let page = self.wait_for(|event| match event {
                Event::Pairs(_, page) => Some(page),
                _ => None,
            })?;
            out.extend(page.pairs);
            match page.next {
                Some(next) => from = next,
                None => return Ok(out),
            }
        }
    }

    /// The keys of all objects of a range, at start-up.
    pub(super) fn load_objects(&mut self, range: &KeyRange) -> Result<Vec<Bytes>, StoreError> {
        let (mut out, mut from) = (Vec::new(), ObjectKey::new(&range.from));
        let to = ObjectKey::new(&range.to);
        loop {
            self.store.list(&from, Some(&to), 4096, spirula_store::Token(0))?;
            let page = self.wait_for(|event| match event {
                Event::List(_, page) => Some(page),
                _ => None,
            })?;
            out.extend(page.objects.into_iter().map(|(key, _)| key));
            match page.next {
                Some(next) => from = next,
                None => return Ok(out),
            }
        }
    }

    /// Waits for the answer to the only call that is under way.
    fn wait_for<T>(
        &mut self,
        answer: impl Fn(Event) -> Option<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut polls = 0;
        loop {
            let mut events = Vec::new();
            self.store.poll(&mut events);
            for e in events {
                if let Event::Fatal(e) = e {
                    return Err(e);
                }
                if let Some(answer) = answer(e) {
                    return answer;
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

/// Notes a damaged page of the index because of which the store could not answer.
pub(super) fn note_damage(damaged: &mut BTreeSet<u64>, error: &StoreError) {
    if let StoreError::IndexPage { page, .. } = error
        && damaged.len() < MOST_DAMAGED
    {
        damaged.insert(*page);
    }
}

/// Ends the daemon: the store answers each call once, with what was asked for.
fn unasked(t: spirula_store::Token) -> ! {
    impossible!("an answer of the store to a call that is under way"; call = t.0)
}

pub(super) fn stored_object(o: &Onode) -> StoredObject {
    StoredObject {
        info: o.info().clone(),
        attrs: o.attrs().iter().cloned().collect(),
        size: o.size(),
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
