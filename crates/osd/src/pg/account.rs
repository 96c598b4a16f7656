//! What clients take of the OSD, each for itself: so that what is too much waits or is refused, and nothing of anybody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
}

impl Party {
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
}
