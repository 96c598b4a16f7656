//! Accounts of what each client takes of the OSD: the excess of a client waits or is refused,
//! without effect on other clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use spirula_buf::{Charge, Pool};
use spirula_invariant::invariant;
use spirula_msgr::QueueAccount;

/// The most requests of a connection that may wait or be under way; beyond that its socket is not
/// read. Official clients have at most 1024, at all OSDs together (`objecter_inflight_ops`).
const MOST_REQUESTS: usize = 2048;
/// The most bytes of these requests besides their payload, which has a budget of its own: 4 KiB for
/// each.
const MOST_BYTES: usize = MOST_REQUESTS * 4096;

/// Subtracts what was charged.
fn give_back(charged: &AtomicUsize, much: usize) {
    let before = charged.fetch_sub(much, Ordering::Relaxed);
    invariant!(
        before >= much,
        "what is charged to a client to be given back once";
        charged = before, given_back = much
    );
}

/// The memory that the requests of a connection hold while they wait or are under way.
#[derive(Debug, Default)]
pub struct Held {
    party: Arc<Party>,
    requests: AtomicUsize,
    bytes: AtomicUsize,
    payload: AtomicUsize,
}

impl Held {
    /// An empty account of a connection of this party.
    pub fn of(party: Arc<Party>) -> Self {
        Self {
            party,
            ..Self::default()
        }
    }

    /// Counts a request, until the returned hold is dropped: its bytes of memory besides the
    /// payload, and the payload's bytes.
    pub fn take(self: &Arc<Self>, bytes: usize, payload: usize) -> Hold {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.payload.fetch_add(payload, Ordering::Relaxed);
        self.party.held.fetch_add(bytes, Ordering::Relaxed);
        self.party.totals.held.fetch_add(bytes, Ordering::Relaxed);
        Hold {
            of: Arc::clone(self),
            bytes,
            payload,
            copies: 0,
        }
    }

    /// Whether a request whose values will be copied with `bytes` bytes may begin: the copies of
    /// all requests together stay within their limit, or this one is larger than that and hardly
    /// any others are there.
    pub fn may_copy(&self, bytes: usize) -> bool {
        self.party.totals.may_copy(bytes)
    }

    /// The number of requests.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Bytes of memory besides payload.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of payload.
    pub fn payload(&self) -> usize {
        self.payload.load(Ordering::Relaxed)
    }

    /// Whether further requests have to wait at the connection: it holds too much, or its party
    /// does.
    pub fn is_too_much(&self) -> bool {
        self.requests() > MOST_REQUESTS || self.bytes() > MOST_BYTES || self.party.holds_too_much()
    }
}

/// A request that is counted.
#[derive(Debug)]
pub struct Hold {
    of: Arc<Held>,
    bytes: usize,
    payload: usize,
    /// The part of the bytes that are copies of values.
    copies: usize,
}

impl Hold {
    /// Counts copies of the request's values, of this many bytes, as part of its bytes besides the
    /// payload. If called several times, the largest number counts.
    pub fn set_copies(&mut self, bytes: usize) {
        let more = bytes.saturating_sub(self.copies);
        self.copies += more;
        self.bytes += more;
        let held = &*self.of;
        held.bytes.fetch_add(more, Ordering::Relaxed);
        held.party.held.fetch_add(more, Ordering::Relaxed);
        held.party.totals.held.fetch_add(more, Ordering::Relaxed);
        held.party.totals.copies.fetch_add(more, Ordering::Relaxed);
    }

    /// Forgets the copies, as the request waits for its PG and copies nothing before that serves:
    /// it keeps no other request waiting.
    pub fn forget_copies(&mut self) {
        let copies = std::mem::take(&mut self.copies);
        self.bytes -= copies;
        let held = &*self.of;
        give_back(&held.bytes, copies);
        give_back(&held.party.held, copies);
        give_back(&held.party.totals.held, copies);
        give_back(&held.party.totals.copies, copies);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let held = &*self.of;
        give_back(&held.requests, 1);
        give_back(&held.bytes, self.bytes);
        give_back(&held.payload, self.payload);
        give_back(&held.party.held, self.bytes);
        give_back(&held.party.totals.held, self.bytes);
        give_back(&held.party.totals.copies, self.copies);
    }
}

/// The totals of all parties.
#[derive(Debug)]
pub struct Totals {
    /// The most bytes that requests may hold besides payload.
    limit: usize,
    held: AtomicUsize,
    /// The part of the held bytes that are copies of values.
    copies: AtomicUsize,
    reading: AtomicUsize,
    /// The number of large reads under way of several members' fragments.
    gathers: AtomicUsize,
}

impl Totals {
    /// Empty totals; requests may hold `limit` bytes besides payload.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            held: AtomicUsize::new(0),
            copies: AtomicUsize::new(0),
            reading: AtomicUsize::new(0),
            gathers: AtomicUsize::new(0),
        }
    }

    /// Bytes that are being read, or were read for requests that are not answered yet.
    pub fn reading(&self) -> usize {
        self.reading.load(Ordering::Relaxed)
    }

    /// The number of large reads of several members' fragments that have room, and of which some
    /// fragments have not come.
    pub fn gathers(&self) -> usize {
        self.gathers.load(Ordering::Relaxed)
    }

    /// Bytes of requests besides payload.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn may_copy(&self, bytes: usize) -> bool {
        let copies = self.copies.load(Ordering::Relaxed);
        copies.saturating_add(bytes) <= self.limit || copies <= self.limit / 8
    }
}

impl Default for Totals {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

/// The account of all connections under one entity's key.
#[derive(Default)]
pub struct Party {
    watch_bytes: AtomicUsize,
    /// Bytes of requests besides payload.
    held: AtomicUsize,
    /// Bytes that are being read for it, or were read for requests that are not answered yet.
    reading: AtomicUsize,
    totals: Arc<Totals>,
    /// Replies that the party has not read.
    unread: QueueAccount,
    /// The pool that counts the party's messages on the way in.
    arrivals: Option<Pool>,
}

impl std::fmt::Debug for Party {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Party({} held, {} read)", self.held(), self.reading())
    }
}

impl Party {
    /// A party whose unread replies and arriving messages are counted in `unread` and `arrivals`,
    /// and everything else in `totals` with that of others.
    pub fn new(unread: QueueAccount, arrivals: Pool, totals: Arc<Totals>) -> Self {
        Self {
            unread,
            arrivals: Some(arrivals),
            totals,
            ..Self::default()
        }
    }

    /// Bytes of messages on the way in that need room.
    pub fn arriving(&self) -> usize {
        self.arrivals.as_ref().map_or(0, Pool::arriving)
    }

    /// Bytes of requests that wait or are under way, besides payload.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether the party's requests hold more than they leave free for those of others.
    fn holds_too_much(&self) -> bool {
        let held = self.held();
        let all = self.totals.held.load(Ordering::Relaxed);
        held > 0 && held > self.totals.limit.saturating_sub(all)
    }

    /// Bytes that are being read for it, or were read for requests that are not answered yet.
    pub fn reading(&self) -> usize {
        self.reading.load(Ordering::Relaxed)
    }

    /// Bytes of replies that the party has not read.
    pub fn unread(&self) -> usize {
        self.unread.bytes()
    }

    /// Bytes of watches and notifications.
    pub fn watch_bytes(&self) -> usize {
        self.watch_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn add_watch_bytes(&self, bytes: usize) {
        self.watch_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn sub_watch_bytes(&self, bytes: usize) {
        give_back(&self.watch_bytes, bytes);
    }
}

/// A large read of several members' fragments, which is counted until this is dropped.
#[derive(Debug)]
struct Gathering(Arc<Totals>);

impl Drop for Gathering {
    fn drop(&mut self) {
        give_back(&self.0.gathers, 1);
    }
}

/// Room for the data read for a party: taken before the read, and returned when the answer is made,
/// or nobody waits for it any more.
#[derive(Debug, Default)]
pub struct Room {
    party: Option<Arc<Party>>,
    bytes: usize,
    /// The part of the room that is not in buffers of a pool.
    heap: Vec<Charge>,
    /// What the room is for, if that is a large read of several members' fragments.
    gathering: Option<Gathering>,
}

impl Room {
    /// Takes room for `bytes`, of which `heap` is not in buffers of a pool.
    pub fn take(party: &Arc<Party>, bytes: usize, heap: Option<Charge>) -> Self {
        party.reading.fetch_add(bytes, Ordering::Relaxed);
        party.totals.reading.fetch_add(bytes, Ordering::Relaxed);
        Self {
            party: Some(Arc::clone(party)),
            bytes,
            heap: heap.into_iter().collect(),
            gathering: None,
        }
    }

    /// Counts a large read of several members' fragments in `totals`, as long as the room is there
    /// or until `gathered` is called.
    pub fn gather(&mut self, totals: &Arc<Totals>) {
        totals.gathers.fetch_add(1, Ordering::Relaxed);
        self.gathering = Some(Gathering(Arc::clone(totals)));
    }

    /// Notes that all fragments have come. What holds the room may wait for more of it from now on.
    pub(super) fn gathered(&mut self) {
        self.gathering = None;
    }

    /// The bytes of the room.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds room of the same party.
    pub(super) fn join(&mut self, mut more: Self) {
        if let Some(gathering) = more.gathering.take() {
            self.gathering = Some(gathering);
        }
        let Some(party) = more.party.take() else {
            // Room of nobody is none.
            return;
        };
        self.party.get_or_insert(party);
        self.bytes += more.bytes;
        self.heap.append(&mut more.heap);
    }

    /// Sets the room to the bytes that were read, of which `heap` are not in buffers of a pool.
    pub fn set(&mut self, bytes: usize, heap: usize) {
        if let Some(party) = &self.party {
            party.reading.fetch_add(bytes, Ordering::Relaxed);
            give_back(&party.reading, self.bytes);
            party.totals.reading.fetch_add(bytes, Ordering::Relaxed);
            give_back(&party.totals.reading, self.bytes);
            self.bytes = bytes;
        }
        if let Some(charge) = self.heap.first_mut() {
            charge.set(heap);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(party) = &self.party {
            give_back(&party.reading, self.bytes);
            give_back(&party.totals.reading, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(
        expected = "expected what is charged to a client to be given back once, charged 1, given_back 2"
    )]
    fn nothing_is_given_back_twice() {
        give_back(&AtomicUsize::new(1), 2);
    }

    #[test]
    fn requests_count_until_they_are_dropped() {
        let held = Arc::new(Held::default());
        let holds: Vec<Hold> = (0..MOST_REQUESTS).map(|_| held.take(100, 4096)).collect();
        assert!(!held.is_too_much());
        let more = held.take(1, 0);
        assert!(held.is_too_much());
        drop(more);
        assert!(!held.is_too_much());
        drop(holds);
        assert_eq!((held.requests(), held.bytes(), held.payload()), (0, 0, 0));
        let heavy = held.take(MOST_BYTES + 1, 0);
        assert!(held.is_too_much());
        drop(heavy);
    }

    fn parties<const N: usize>(totals: &Arc<Totals>) -> [Arc<Party>; N] {
        std::array::from_fn(|_| {
            let (unread, arrivals) = (QueueAccount::default(), Pool::new(1).party());
            Arc::new(Party::new(unread, arrivals, Arc::clone(totals)))
        })
    }

    #[test]
    fn connections_share_what_their_party_may_hold() {
        let totals = Arc::new(Totals::new(1000));
        let [greedy, other] = parties(&totals);
        let mut holds = Vec::new();
        let mut taken = 0;
        for conn in std::iter::repeat_with(|| Arc::new(Held::of(Arc::clone(&greedy)))).take(100) {
            while !conn.is_too_much() && taken < 10_000 {
                holds.push(conn.take(10, 0));
                taken += 10;
            }
        }
        assert_eq!((taken, greedy.held()), (510, 510));
        let conn = Arc::new(Held::of(Arc::clone(&other)));
        assert!(!conn.is_too_much());
        holds.push(conn.take(200, 0));
        assert!(!conn.is_too_much());
        holds.clear();
        assert_eq!((greedy.held(), totals.held.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn requests_with_large_values_begin_one_after_the_other() {
        let totals = Arc::new(Totals::new(1000));
        let [one, other] = parties(&totals).map(|p: Arc<Party>| Arc::new(Held::of(p)));
        let mut hold = one.take(10, 0);
        assert!(other.may_copy(5000), "nobody copies anything");
        hold.set_copies(100);
        assert!(other.may_copy(5000), "nobody copies much");
        hold.set_copies(600);
        hold.set_copies(500);
        assert_eq!((one.bytes(), totals.held()), (610, 610));
        assert!(other.may_copy(400) && !other.may_copy(500) && !one.may_copy(5000));
        hold.forget_copies();
        assert!(one.may_copy(5000));
        assert_eq!((one.bytes(), totals.held()), (10, 10));
        hold.set_copies(600);
        drop(hold);
        assert!(one.may_copy(5000));
        assert_eq!(
            (one.bytes(), totals.held(), totals.copies.load(Ordering::Relaxed)),
            (0, 0, 0)
        );
    }

    #[test]
    fn room_counts_for_the_party_and_for_all() {
        let totals = Arc::new(Totals::default());
        let parties: [Arc<Party>; 2] = parties(&totals);
        let pool = Pool::new(1000);
        let counts = || (parties[0].reading(), totals.reading(), pool.in_use());
        let mut room = Room::take(&parties[0], 300, Some(pool.charge(200)));
        let other = Room::take(&parties[1], 50, None);
        assert_eq!(counts(), (300, 350, 200));
        room.set(120, 20);
        assert_eq!(counts(), (120, 170, 20));
        let mut all = Room::default();
        all.join(room);
        all.join(Room::take(&parties[0], 7, None));
        assert_eq!((all.bytes(), counts()), (127, (127, 177, 20)));
        drop((all, other));
        assert_eq!(counts(), (0, 0, 0));
    }
}
