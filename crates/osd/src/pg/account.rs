//! What clients take of the OSD, each for itself: so that what is too much waits or is refused, and nothing of anybody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use spirula_buf::Charge;
use spirula_msgr::QueueAccount;

/// Requests of a connection that may wait or be under way before its socket is not read any more. Official clients have 1024 at most, at all
/// OSDs together (`objecter_inflight_ops`).
const MOST_REQUESTS: usize = 2048;
/// Bytes of them besides their payload, which has a budget of its own: 4 KiB for each.
const MOST_BYTES: usize = MOST_REQUESTS * 4096;

/// What the requests of a connection take while they wait or are under way.
#[derive(Debug, Default)]
pub struct Held {
    requests: AtomicUsize,
    bytes: AtomicUsize,
    payload: AtomicUsize,
}

impl Held {
    /// Counts a request until what is returned is dropped: bytes of memory besides its payload, and bytes of that.
    pub fn take(self: &Arc<Self>, bytes: usize, payload: usize) -> Hold {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.payload.fetch_add(payload, Ordering::Relaxed);
        Hold {
            of: Arc::clone(self),
            bytes,
            payload,
        }
    }

    /// Requests.
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

    /// Whether more has to wait at the connection.
    pub fn is_too_much(&self) -> bool {
        self.requests() > MOST_REQUESTS || self.bytes() > MOST_BYTES
    }
}

/// A request that is counted.
#[derive(Debug)]
pub struct Hold {
    of: Arc<Held>,
    bytes: usize,
    payload: usize,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.of.requests.fetch_sub(1, Ordering::Relaxed);
        self.of.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.of.payload.fetch_sub(self.payload, Ordering::Relaxed);
    }
}

/// What all connections under one entity's key take together.
#[derive(Debug, Default)]
pub struct Party {
    watch_bytes: AtomicUsize,
    /// Bytes that are being read for it, or were and are not answered yet.
    reading: AtomicUsize,
    /// The same of all parties.
    reading_of_all: Arc<AtomicUsize>,
    /// Replies that it has not read.
    unread: QueueAccount,
}

impl Party {
    /// One whose unread replies are counted there, and whose reads with those of all others.
    pub fn new(unread: QueueAccount, reading_of_all: Arc<AtomicUsize>) -> Self {
        Self {
            unread,
            reading_of_all,
            ..Self::default()
        }
    }

    /// Bytes that are being read for it, or were and are not answered yet.
    pub fn reading(&self) -> usize {
        self.reading.load(Ordering::Relaxed)
    }

    /// Bytes of replies that it has not read.
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
        self.watch_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Room for what is read for a party: taken before it is read, and given back when the answer is made, or nobody waits for it any more.
#[derive(Debug, Default)]
pub struct Room {
    party: Option<Arc<Party>>,
    bytes: usize,
    /// What of it is not in buffers of a pool.
    heap: Vec<Charge>,
}

impl Room {
    /// Takes room for `bytes`, of which `heap` is not in buffers of a pool.
    pub fn take(party: &Arc<Party>, bytes: usize, heap: Option<Charge>) -> Self {
        party.reading.fetch_add(bytes, Ordering::Relaxed);
        party.reading_of_all.fetch_add(bytes, Ordering::Relaxed);
        Self {
            party: Some(Arc::clone(party)),
            bytes,
            heap: heap.into_iter().collect(),
        }
    }

    /// Bytes that it is for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds room of the same party.
    pub(super) fn join(&mut self, mut more: Self) {
        let Some(party) = more.party.take() else {
            return;
        };
        self.party.get_or_insert(party);
        self.bytes += more.bytes;
        self.heap.append(&mut more.heap);
    }

    /// What was read has `bytes`, of which `heap` are not in buffers of a pool.
    pub fn set(&mut self, bytes: usize, heap: usize) {
        if let Some(party) = &self.party {
            party.reading.fetch_add(bytes, Ordering::Relaxed);
            party.reading.fetch_sub(self.bytes, Ordering::Relaxed);
            party.reading_of_all.fetch_add(bytes, Ordering::Relaxed);
            party.reading_of_all.fetch_sub(self.bytes, Ordering::Relaxed);
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
            party.reading.fetch_sub(self.bytes, Ordering::Relaxed);
            party.reading_of_all.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn room_counts_for_the_party_and_for_all() {
        let all = Arc::new(AtomicUsize::new(0));
        let parties = [0, 1].map(|_| Arc::new(Party::new(QueueAccount::default(), Arc::clone(&all))));
        let pool = spirula_buf::Pool::new(1000);
        let mut room = Room::take(&parties[0], 300, Some(pool.charge(200)));
        let other = Room::take(&parties[1], 50, None);
        assert_eq!(
            (parties[0].reading(), all.load(Ordering::Relaxed), pool.in_use()),
            (300, 350, 200)
        );
        room.set(120, 20);
        assert_eq!(
            (parties[0].reading(), all.load(Ordering::Relaxed), pool.in_use()),
            (120, 170, 20)
        );
        drop(room);
        drop(other);
        assert_eq!(
            (parties[0].reading(), all.load(Ordering::Relaxed), pool.in_use()),
            (0, 0, 0)
        );
    }
}
