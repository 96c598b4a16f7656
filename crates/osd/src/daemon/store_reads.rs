//! The core's reads of an object: data through the payload pool, omap pairs in pages.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use spirula_buf::Pool;
use spirula_denc::Extent;
use spirula_invariant::{impossible, invariant};
use spirula_msgr::QueueAccount;
use spirula_store::{ObjectKey, Onode, PageLimit, Pairs, Read as StoreRead, Store, StoreError, Way};

use super::read_turns::ReadTurns;
use super::store_calls::{Call, Calls};
use super::store_io::{Answers, note_damage, stored_object};
use super::store_queue::StoreQueue;
use crate::pg::account::{Room, Totals};
use crate::pg::fetch::{Answer, Fetched, OmapPage, OmapRange, ReadBytes, ReadError, Want};
use crate::pg::op::Client;
use crate::pg::{Reader, StoreReply, Token};

/// The bytes that may be read for a client in any case, as long as not too many clients want that.
const LITTLE: usize = 64 << 10;

/// Bytes of omap pairs for which room is taken at first. Only the pairs themselves tell how large
/// they are, and most omaps are far smaller than a listing may be: sixteen listings of one client
/// would wait for each other.
const FIRST_PAIRS: usize = 256 << 10;

/// A read under way that has several wants.
struct Read {
    token: Token,
    key: Bytes,
    reader: Option<Reader>,
    room: Room,
    /// The most bytes of pairs for each want in this attempt.
    most_pairs: usize,
    /// Whether a want has more pairs than that: all is read again, with room for as many as there
    /// may be.
    cut: bool,
    /// Whether the read is larger than [`LITTLE`].
    is_large: bool,
    wants: Vec<Want>,
    answers: Vec<Result<Answer, ReadError>>,
    /// The number of its store calls that are not answered.
    left: usize,
}

/// A read that waits for room in the pool, or for a transaction before it.
pub(super) struct Deferred {
    pub(super) token: Token,
    key: Bytes,
    wants: Vec<Want>,
    pub(super) reader: Option<Reader>,
    /// The bytes that the read needs.
    needs: ReadBytes,
    /// The most bytes of pairs for each want.
    most_pairs: usize,
    /// Whether room was taken for it before.
    has_room: bool,
}

impl Deferred {
    /// A read's first attempt, which takes room for [`FIRST_PAIRS`].
    pub(super) fn new(token: Token, key: Bytes, wants: Vec<Want>, reader: Option<Reader>) -> Self {
        Self::within(FIRST_PAIRS, token, key, wants, reader)
    }

    /// A read for which room was taken before.
    pub(super) fn with_room(token: Token, key: Bytes, wants: Vec<Want>) -> Self {
        Self {
            needs: ReadBytes::default(),
            most_pairs: usize::MAX,
            has_room: true,
            token,
            key,
            wants,
            reader: None,
        }
    }

    fn within(most_pairs: usize, token: Token, key: Bytes, wants: Vec<Want>, reader: Option<Reader>) -> Self {
        let room = |want: &Want| {
            let room = want.room();
            ReadBytes {
                heap: room.heap.min(most_pairs),
                ..room
            }
        };
        Self {
            needs: wants.iter().map(room).sum(),
            most_pairs,
            has_room: false,
            token,
            key,
            wants,
            reader,
        }
    }

    /// The bytes that the read needs.
    pub(super) fn bytes(&self) -> usize {
        self.needs.total()
    }

    /// The bytes of the client's earlier reads that are being read, or that the client has not read
    /// yet.
    fn has(&self) -> usize {
        let party = self.reader.as_ref().map(|r| &r.client.party);
        party.map_or(0, |p| p.reading().saturating_add(p.unread()))
    }

    /// The read's party; 0 for the OSD itself, and 1 if the read has room: it waits for no other.
    pub(super) fn party(&self) -> u64 {
        let own = u64::from(self.has_room);
        self.reader.as_ref().map_or(own, |r| party(&r.client))
    }

    /// The read's connection; 0 for the OSD itself.
    pub(super) fn conn(&self) -> u64 {
        self.reader.as_ref().map_or(0, |r| r.client.conn)
    }
}

/// A client's party, identified by its address in memory, which is valid while the party is held.
pub(super) fn party(client: &Client) -> u64 {
    Arc::as_ptr(&client.party).addr() as u64
}

/// A call for a part of a read's data.
pub(super) struct Part {
    read: u64,
    want: usize,
    offset: u64,
}

/// Omap values by key for a read.
pub(super) struct OmapKeys {
    read: u64,
    want: usize,
}

/// A page of omap pairs that is being gathered: the store's pages may be shorter.
pub(super) struct OmapScan {
    read: u64,
    want: usize,
    key: ObjectKey,
    range: OmapRange,
    page: OmapPage,
    bytes: usize,
    /// The most bytes of pairs, whatever the range allows.
    most: usize,
}

/// How a scan goes on after a page of the store.
enum Scanned {
    /// It ends: the page was the last one.
    Last,
    /// It goes on with this key.
    GoesOn(Bytes),
    /// It ends: the pairs that follow are larger than the scan may have.
    Cut,
}

impl OmapScan {
    /// Adds a page of the store.
    fn take(&mut self, pairs: Pairs) -> Scanned {
        for (key, value) in pairs.pairs {
            if self.is_full() {
                self.page.more = true;
                return Scanned::Last;
            }
            self.bytes += key.len() + value.len() + OmapRange::PAIR_OVERHEAD;
            self.page.pairs.push((key, value));
        }
        match pairs.next {
            None => Scanned::Last,
            // The pair that was too large would only have told that the range has more.
            Some(_) if pairs.cut && self.is_full() => {
                self.page.more = true;
                Scanned::Last
            }
            Some(_) if pairs.cut => Scanned::Cut,
            Some(next) => Scanned::GoesOn(next),
        }
    }

    /// Whether the scan has as many pairs as the range may have.
    fn is_full(&self) -> bool {
        self.page.pairs.len() >= self.range.max || self.bytes >= self.range.max_bytes
    }
}

/// The reads that are under way, and the reads that wait for room.
pub(super) struct Reads {
    /// The pool that data is read into. Replies keep its buffers until they are sent: at its limit
    /// further reads wait.
    pub(super) pool: Pool,
    /// Replies that clients have not read yet.
    pub(super) unread: QueueAccount,
    /// The totals of all clients.
    pub(super) totals: Arc<Totals>,
    /// Reads that wait for room.
    turns: ReadTurns,
    /// The read that begins next, once none is under way.
    alone: Option<Token>,
    /// The reads under way, by their number.
    open: HashMap<u64, Read>,
    /// The number of the last read.
    last: u64,
    /// The number of reads under way that are larger than [`LITTLE`].
    large: usize,
    /// The number of large reads answered since the store was last polled: their replies do not
    /// count as unread yet.
    large_answered: usize,
}

impl Reads {
    pub(super) fn new(pool: Pool) -> Self {
        Self {
            pool,
            unread: QueueAccount::default(),
            totals: Arc::default(),
            turns: ReadTurns::default(),
            alone: None,
            open: HashMap::new(),
            last: 0,
            large: 0,
            large_answered: 0,
        }
    }

    /// The number of reads begun since the start.
    pub(super) fn begun(&self) -> u64 {
        self.last
    }

    /// Notes that the replies to the answered reads count as unread now.
    pub(super) fn settle(&mut self) {
        let answered = std::mem::take(&mut self.large_answered);
        invariant!(answered <= self.large, "large reads to be answered once"; large = self.large);
        self.large -= answered;
    }

    /// The number of large reads under way, here or by several members.
    fn large(&self) -> usize {
        self.large + self.totals.gathers()
    }

    /// The bytes that are being read for clients, or that they have not read yet.
    fn used(&self) -> usize {
        self.totals.reading().saturating_add(self.unread.bytes())
    }

    /// The answer to a read of which the store has answered all parts.
    fn answer(&mut self, mut job: Read) -> (Token, StoreReply) {
        self.large_answered += usize::from(job.is_large);
        let one = |(want, mut answer): (Want, Result<Answer, ReadError>)| {
            if let Ok(Answer::Data(pieces)) = &mut answer {
                pieces.sort_unstable_by_key(|(at, _)| *at);
            }
            Fetched { want, answer }
        };
        let fetched: Vec<Fetched> = job.wants.into_iter().zip(job.answers).map(one).collect();
        let read: ReadBytes = fetched.iter().map(Fetched::room).sum();
        job.room.set(read.total(), read.heap);
        let is_gathered = fetched.iter().any(|f| matches!(f.want, Want::Room(_)));
        if is_gathered && job.is_large {
            // The room is all that it has so far: it goes on being a large read.
            job.room.gather(&self.totals);
        }
        (job.token, StoreReply::Fetched(fetched, job.room))
    }

    /// Whether a read may begin: it fits the pool, and does not give its client more than it leaves
    /// free.
    fn may_begin(&self, read: &Deferred) -> bool {
        let bytes = read.bytes();
        if bytes == 0 {
            return true;
        }
        let (limit, used) = (self.pool.limit(), self.used());
        let has = read.has();
        if has.saturating_add(bytes) <= LITTLE && used.saturating_add(bytes) <= limit + limit / 4 {
            // The read of a client with hardly anything in the pool may exceed the pool's limit a
            // little.
            return true;
        }
        let left = limit.saturating_sub(used);
        let is_share = has == 0 && bytes <= left || has.saturating_add(bytes) <= left;
        let may_pass = self.alone.is_none() && is_share && self.pool.has_room(bytes);
        may_pass || self.is_for_one(read) && self.large() == 0
    }

    /// Whether a read may only begin alone: it hardly ever fits the pool, or its request holds on
    /// to data read for it before. Such a read begins when clients have read most of their earlier
    /// data, so that two requests that wait for each other's room go on one after the other.
    fn is_for_one(&self, read: &Deferred) -> bool {
        let half = self.pool.limit() / 2;
        let is_large = read.bytes() > half || read.reader.as_ref().is_some_and(|r| r.held > 0);
        is_large && self.unread.bytes() <= half && self.alone.is_none_or(|token| token == read.token)
    }

    /// The bytes that the first read waiting for room needs.
    pub(super) fn deferred_bytes(&self, held: &StoreQueue) -> Option<usize> {
        let mut heads = self.turns.heads(|d| held.has(d.token.slot()));
        heads.next().map(Deferred::bytes)
    }

    /// A party that has hardly anything read itself but waits for room that others have.
    pub(super) fn starved(&self, held: &StoreQueue) -> Option<u64> {
        let heads = self.turns.heads(|d| held.has(d.token.slot()));
        let (mut parties, mut least) = (1, None);
        for head in heads {
            parties += 1;
            let has = head.has();
            if least.is_none_or(|(least, _)| has < least) {
                least = Some((has, head.party()));
            }
        }
        let (has, party) = least?;
        (has <= self.pool.limit() / (2 * parties)).then_some(party)
    }
}

/// Reads for the core.
pub(super) struct Reading<'a> {
    pub(super) store: &'a mut Store,
    pub(super) reads: &'a mut Reads,
    pub(super) calls: &'a mut Calls,
    /// Transactions that wait: the submissions of their PGs do not all show yet.
    pub(super) held: &'a StoreQueue,
    pub(super) answers: &'a mut Answers,
    /// Damaged pages of the index that were met.
    pub(super) damaged: &'a mut BTreeSet<u64>,
}

impl Reading<'_> {
    /// An object's onode, which was just looked up: it is in memory, or nearly so. What can't be read
    /// is an answer.
    fn load(&mut self, key: &ObjectKey) -> Result<Result<Option<Arc<Onode>>, ReadError>, StoreError> {
        let loaded = self.store.load(key);
        self.unreadable(loaded)
    }

    /// Tells damage, which is an answer, from the failure of the store.
    fn unreadable<T>(&mut self, result: Result<T, StoreError>) -> Result<Result<T, ReadError>, StoreError> {
        match result {
            Err(error) if error.is_damage() => {
                tracing::error!(%error, "read failed");
                note_damage(self.damaged, &error);
                Ok(Err(ReadError))
            }
            other => other.map(Ok),
        }
    }

    /// Reads now, or once there is room and the PG's transactions show. The core lets no write of
    /// the object pass a read that is under way.
    pub(super) fn read(
        &mut self,
        token: Token,
        key: Bytes,
        wants: Vec<Want>,
        reader: Option<Reader>,
        has_room: bool,
    ) -> Result<(), StoreError> {
        let read = match has_room {
            true => Deferred::with_room(token, key, wants),
            false => Deferred::new(token, key, wants, reader),
        };
        let waits = !self.reads.turns.is_empty() && self.reads.turns.has(read.party());
        if !waits && !self.held.has(token.slot()) && self.reads.may_begin(&read) {
            return self.read_now(read);
        }
        self.reads.turns.push(read);
        Ok(())
    }

    /// Begins the waiting reads that have room now.
    pub(super) fn read_deferred(&mut self) -> Result<(), StoreError> {
        let held = self.held;
        let is_held = |d: &Deferred| held.has(d.token.slot());
        while !self.reads.turns.is_empty() {
            let mut turns = std::mem::take(&mut self.reads.turns);
            let reads = &*self.reads;
            // Small reads first: a large read is followed by no other for as long as its client
            // does not read it.
            let small = reads.pool.limit() / 4;
            let next = turns
                .take(is_held, |d| d.bytes() <= small && reads.may_begin(d))
                .or_else(|| turns.take(is_held, |d| reads.may_begin(d)));
            self.reads.turns = turns;
            let Some(read) = next else { break };
            self.reads.alone = None;
            self.read_now(read)?;
        }
        // A read that begins alone waits only for those under way: nothing more begins before it.
        if self.reads.alone.is_none() {
            let mut heads = self.reads.turns.heads(is_held);
            let next = heads.find(|d| self.reads.is_for_one(d)).map(|d| d.token);
            drop(heads);
            self.reads.alone = next;
        }
        Ok(())
    }

    /// Drops the reads of a client that has gone.
    pub(super) fn client_closed(&mut self, client: &Client) {
        let (party, conn) = (party(client), client.conn);
        for read in self.reads.turns.forget(party, conn) {
            if self.reads.alone == Some(read.token) {
                self.reads.alone = None;
            }
            if read.reader.as_ref().is_some_and(|r| r.only_reads) {
                self.answers.push((read.token, StoreReply::NotRead));
            } else {
                self.reads.turns.push(read);
            }
        }
    }

    fn read_now(&mut self, read: Deferred) -> Result<(), StoreError> {
        let Deferred {
            token,
            key,
            wants,
            reader,
            needs,
            most_pairs,
            has_room: _,
        } = read;
        let is_large = needs.total() > LITTLE;
        self.reads.large += usize::from(is_large);
        let room = match &reader {
            Some(r) if needs != ReadBytes::default() => {
                let charge = (needs.heap > 0).then(|| self.reads.pool.charge(needs.heap));
                Room::take(&r.client.party, needs.total(), charge)
            }
            _ => Room::default(),
        };
        // What the PG itself reads, to copy or compare it, is not what clients will read next.
        let way = match &reader {
            Some(r) if !r.only_once => Way::Cached,
            _ => Way::Direct,
        };
        let object = key;
        let key = ObjectKey::new(&object);
        self.reads.last += 1;
        let id = self.reads.last;
        let mut answers = Vec::with_capacity(wants.len());
        let mut left = 0;
        for (want, w) in wants.iter().enumerate() {
            let mut answer = Ok(Answer::Data(Vec::new()));
            match w {
                Want::Data(r) if r.sparse => match self.load(&key)? {
                    Ok(onode) => {
                        for range in onode.map(|o| o.data_ranges(r.offset, r.len)).unwrap_or_default() {
                            left += self.read_part((id, want), &key, (range.into(), way), &mut answer)?;
                        }
                    }
                    Err(e) => answer = Err(e),
                },
                Want::Data(r) => {
                    let all = Extent {
                        offset: r.offset,
                        len: r.len,
                    };
                    left += self.read_part((id, want), &key, (all, way), &mut answer)?;
                }
                Want::Extents(e) => {
                    answer = self.load(&key)?.map(|onode| {
                        let ranges = onode.map(|o| o.data_ranges(e.offset, e.len)).unwrap_or_default();
                        Answer::Extents(ranges.into_iter().map(Extent::from).collect())
                    });
                }
                Want::Omap(range) => {
                    let scan = OmapScan {
                        read: id,
                        want,
                        key: key.clone(),
                        range: range.clone(),
                        page: OmapPage::default(),
                        bytes: 0,
                        most: most_pairs,
                    };
                    match self.scan_from(range.from.clone(), scan)? {
                        Ok(()) => left += 1,
                        Err(e) => answer = Err(e),
                    }
                }
                Want::OmapKeys(k) => {
                    let t = self.calls.open(Call::OmapKeys(OmapKeys { read: id, want }));
                    let limit = PageLimit::of_bytes(k.max_bytes);
                    let limit = match k.values {
                        true => limit.within(most_pairs),
                        // They are those of the request, which are in memory.
                        false => limit.keys_only(),
                    };
                    let asked = self.store.omap_get(&key, &k.keys, limit, t);
                    match self.unreadable(asked)? {
                        Ok(()) => left += 1,
                        Err(e) => {
                            self.calls.close(t.0);
                            answer = Err(e);
                        }
                    }
                }
                Want::Room(_) => answer = Ok(Answer::Room),
                Want::Object(other) => {
                    let onode = self.load(&ObjectKey::new(other))?;
                    answer = onode.map(|onode| Answer::Object(onode.map(|o| stored_object(&o))));
                }
                // The PG builds these itself.
                Want::Base(..) | Want::Copy(_) | Want::Staged { .. } | Want::Large(..) => {
                    answer = Err(ReadError)
                }
                Want::OmapHeader => {
                    let header = |onode: Arc<Onode>| onode.omap_header().clone();
                    let onode = self.load(&key)?;
                    answer = onode.map(|onode| Answer::OmapHeader(onode.map(header).unwrap_or_default()));
                }
            }
            answers.push(answer);
        }
        let read = Read {
            token,
            key: object,
            reader,
            room,
            most_pairs,
            cut: false,
            is_large,
            wants,
            answers,
            left,
        };
        match read.left {
            0 => self.finish(read),
            _ => drop(self.reads.open.insert(id, read)),
        }
        Ok(())
    }

    /// Reads a part of a want's data. Returns how many answers of the store are to come: none if it
    /// answered at once.
    fn read_part(
        &mut self,
        (read, want): (u64, usize),
        key: &ObjectKey,
        (Extent { offset, len }, way): (Extent, Way),
        answer: &mut Result<Answer, ReadError>,
    ) -> Result<usize, StoreError> {
        let t = self.calls.open(Call::Part(Part { read, want, offset }));
        match self.store.read(key, offset, len, way, t)? {
            StoreRead::Pending => Ok(1),
            StoreRead::Ready(data) => {
                self.calls.close(t.0);
                take_part(answer, offset, data);
                Ok(0)
            }
        }
    }

    /// Continues a listing, with one pair more than wanted, which tells whether there are more.
    fn scan_from(&mut self, from: Bytes, scan: OmapScan) -> Result<Result<(), ReadError>, StoreError> {
        let count = scan.range.max.saturating_sub(scan.page.pairs.len());
        let bytes = scan.range.max_bytes.saturating_sub(scan.bytes);
        let most = scan.most.saturating_sub(scan.bytes);
        let mut limit = PageLimit::new(count.saturating_add(1), bytes).within(most);
        if !scan.range.values {
            limit = limit.keys_only();
        }
        let (key, to) = (scan.key.clone(), scan.range.to.clone());
        let t = self.calls.open(Call::Omap(scan));
        let listed = self.store.omap_list(&key, &from, to.as_deref(), limit, t);
        let listed = self.unreadable(listed)?;
        if listed.is_err() {
            self.calls.close(t.0);
        }
        Ok(listed)
    }

    /// Handles a page of omap pairs.
    pub(super) fn omap_page(
        &mut self,
        mut scan: OmapScan,
        r: Result<Pairs, StoreError>,
    ) -> Result<(), StoreError> {
        let (read, want) = (scan.read, scan.want);
        let page = match omap_read(r).map(|pairs| scan.take(pairs)) {
            Ok(Scanned::GoesOn(next)) => match self.scan_from(next, scan)? {
                Ok(()) => return Ok(()),
                Err(e) => {
                    self.pairs_answered(read, want, Err(e));
                    return Ok(());
                }
            },
            Ok(Scanned::Last) => Ok(Some(scan.page)),
            Ok(Scanned::Cut) => Ok(None),
            Err(e) => Err(e),
        };
        self.pairs_answered(scan.read, scan.want, page);
        Ok(())
    }

    /// Handles the pairs of some keys.
    pub(super) fn omap_keys(&mut self, call: OmapKeys, r: Result<Pairs, StoreError>) {
        let page = omap_read(r).map(|found| {
            let more = found.next.is_some();
            let pairs = found.pairs;
            (!found.cut).then_some(OmapPage { pairs, more })
        });
        self.pairs_answered(call.read, call.want, page);
    }

    /// Handles the pairs of a want; `None` if there are more than the read has room for.
    fn pairs_answered(&mut self, read: u64, want: usize, page: Result<Option<OmapPage>, ReadError>) {
        if page == Ok(None)
            && let Some(job) = self.reads.open.get_mut(&read)
        {
            job.cut = true;
        }
        self.answered(read, want, |answer| {
            if let Some(page) = page.transpose() {
                *answer = page.map(Answer::Omap);
            }
        });
    }

    /// Handles a part of a read's data.
    pub(super) fn part(&mut self, Part { read, want, offset }: Part, r: Result<Bytes, StoreError>) {
        self.answered(read, want, |answer| take_part(answer, offset, r));
    }

    fn answered(&mut self, read: u64, want: usize, note: impl FnOnce(&mut Result<Answer, ReadError>)) {
        let Some(answer) = self.reads.open.get_mut(&read).and_then(|job| {
            job.left = job.left.checked_sub(1)?;
            job.answers.get_mut(want)
        }) else {
            impossible!("an answer of the store to a read that waits for one"; read = read, want = want);
        };
        note(answer);
        self.finish_if_done(read);
    }

    /// Puts a read that was cut in its client's queue again, with room for all that it may return.
    fn read_whole(&mut self, job: Read) {
        invariant!(
            job.most_pairs < usize::MAX,
            "pairs that are not cut where there is room for all";
            token = job.token.0,
        );
        self.reads.large -= usize::from(job.is_large);
        let again = Deferred::within(usize::MAX, job.token, job.key, job.wants, job.reader);
        self.reads.turns.push(again);
    }

    fn finish_if_done(&mut self, id: u64) {
        let Entry::Occupied(job) = self.reads.open.entry(id) else {
            impossible!("a read to be finished once"; read = id);
        };
        if job.get().left > 0 {
            return; // The store has more to say.
        }
        let job = job.remove();
        self.finish(job);
    }

    /// Answers a read of which the store has answered all parts.
    fn finish(&mut self, job: Read) {
        if job.cut {
            self.read_whole(job);
            return; // Its turn comes once more.
        }
        let answer = self.reads.answer(job);
        self.answers.push(answer);
    }
}

/// Adds a part of an object's data to the answer.
fn take_part(answer: &mut Result<Answer, ReadError>, offset: u64, r: Result<Bytes, StoreError>) {
    match (r, answer) {
        (Ok(data), Ok(Answer::Data(pieces))) if !data.is_empty() => pieces.push((offset, data)),
        (Ok(_), _) => {}
        (Err(error), answer) => {
            tracing::error!(%error, "read failed");
            *answer = Err(ReadError);
        }
    }
}

fn omap_read(r: Result<Pairs, StoreError>) -> Result<Pairs, ReadError> {
    r.map_err(|error| {
        tracing::error!(%error, "omap can't be read");
        ReadError
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pg::account::Party;

    const LIMIT: usize = 1 << 20;

    /// A client's read that wants room for this many bytes.
    fn ask(reads: &Reads, bytes: usize) -> Deferred {
        let arrivals = Pool::new(LIMIT).party();
        let party = Party::new(QueueAccount::default(), arrivals, Arc::clone(&reads.totals));
        let client = Client {
            party: Arc::new(party),
            ..Client::internal()
        };
        let reader = Reader {
            client: Arc::new(client),
            held: 0,
            only_reads: true,
            only_once: false,
        };
        let wants = vec![Want::Room(bytes as u64)];
        Deferred::new(Token(1), Bytes::new(), wants, Some(reader))
    }

    /// Gives a read the room that it wants.
    fn room(reads: &mut Reads, asked: Deferred) -> Room {
        assert!(reads.may_begin(&asked));
        let (bytes, reader) = (asked.bytes(), asked.reader.unwrap());
        let is_large = bytes > LITTLE;
        reads.large += usize::from(is_large);
        let job = Read {
            token: asked.token,
            key: asked.key,
            room: Room::take(&reader.client.party, bytes, None),
            reader: Some(reader),
            most_pairs: asked.most_pairs,
            cut: false,
            is_large,
            wants: asked.wants,
            answers: vec![Ok(Answer::Room)],
            left: 0,
        };
        let (_, StoreReply::Fetched(_, room)) = reads.answer(job) else {
            panic!("room is given");
        };
        reads.settle();
        room
    }

    #[test]
    fn what_begins_alone_waits_for_what_members_read() {
        let mut reads = Reads::new(Pool::new(LIMIT));
        for first in [LIMIT, LITTLE + 1] {
            let wanted = ask(&reads, first);
            let gathering = room(&mut reads, wanted);
            assert!(!reads.may_begin(&ask(&reads, LIMIT)), "{first}");
            // Neither members' fragments, for which there is room, nor little reads wait.
            let fragment = Deferred::with_room(Token(2), Bytes::new(), Vec::new());
            assert!(reads.may_begin(&fragment) && reads.may_begin(&ask(&reads, LITTLE)));
            drop(gathering);
            assert!(reads.may_begin(&ask(&reads, LIMIT)), "{first}");
        }
        let wanted = ask(&reads, LITTLE);
        let little = room(&mut reads, wanted);
        assert!(reads.may_begin(&ask(&reads, LIMIT)));
        drop(little);
    }
}
