//! The queue between the senders of messages and the connection's writing task.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use spirula_denc::UTime;
use spirula_invariant::invariant;
use spirula_proto::RawMessage;
use tokio::sync::Notify;

/// The bytes that a message counts for besides its payload.
const OVERHEAD: usize = 128;

/// The bytes that may wait for a connection, however much waits for others: a kernel's buffers hold
/// more.
const FEW: usize = 256 << 10;
/// How often a party whose requests wait is checked, if nothing else happens.
const RECHECK: Duration = Duration::from_millis(50);

/// The bytes that a message counts for.
pub(super) fn cost(msg: &RawMessage) -> usize {
    msg.len() + OVERHEAD
}

/// Frames that overtake messages.
#[derive(Debug, Clone, Copy)]
pub(super) enum Urgent {
    Keepalive(UTime),
    KeepaliveAck(UTime),
    Ack(u64),
}

/// The bytes that may wait for a connection that may still send requests, however much waits for
/// its party: a client that reads slowly stops itself, not all machines that share its key.
const LITTLE: usize = 64 << 10;

/// The most urgent frames that wait: a peer that asks faster than it reads gets fewer answers.
const URGENT_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Queue {
    pub(super) urgent: Vec<Urgent>,
    pub(super) messages: VecDeque<RawMessage>,
    /// The bytes of the largest message since the queue was last empty.
    largest: usize,
    pub(super) closed: bool,
}

#[derive(Default)]
pub(super) struct Shared {
    queue: Mutex<Queue>,
    wake: Notify,
    queued: AtomicUsize,
    /// Bytes written so far.
    written: AtomicU64,
    /// Notified when something was written.
    drained: Notify,
    aborted: AtomicBool,
    abort: Notify,
    bound: OnceLock<QueueBound>,
}

/// The bytes that wait for one party: for all connections of one client.
#[derive(Debug, Clone, Default)]
pub struct QueueAccount(Arc<AtomicUsize>);

impl QueueAccount {
    /// The bytes that wait.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether there is another handle on this account.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// The limits of what waits for a peer that does not read.
#[derive(Debug, Clone)]
pub struct QueueBound {
    /// A connection for which more bytes than this wait, besides the largest message, is ended.
    pub connection: usize,
    /// The party's sum.
    pub party: QueueAccount,
    /// The sum of all parties.
    pub all: QueueAccount,
    /// The bytes that may wait for all parties together before a party's requests wait until it has
    /// read: at most as much may wait for a party as is left of this. At twice as much, connections
    /// for which more than a little waits are ended.
    pub total: usize,
}

impl QueueBound {
    /// Whether to end a connection for which `queued` bytes wait besides the largest message, which
    /// may be of any size: because of its own bytes, or because far too much waits for all parties
    /// and its own is one of those with much.
    fn is_exceeded(&self, queued: usize) -> bool {
        let far_too_much = self.all.bytes() / 2 > self.total && self.party.bytes() > self.total / 4;
        queued > self.connection || queued > FEW && far_too_much
    }

    /// Whether the party reads the answers that it asks for.
    fn is_kept(&self) -> bool {
        self.party.bytes() <= self.total.saturating_sub(self.all.bytes())
    }
}

/// Takes what was sent, or dropped, off what waits.
fn give_back(account: &AtomicUsize, bytes: usize) {
    let before = account.fetch_sub(bytes, Ordering::Relaxed);
    invariant!(before >= bytes, "bytes that were charged"; charged = before, given_back = bytes);
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn changed(&self) {
        self.wake.notified().await;
    }

    pub(super) fn sent(&self, bytes: usize) {
        give_back(&self.queued, bytes);
        if let Some(bound) = self.bound.get() {
            give_back(&bound.party.0, bytes);
            give_back(&bound.all.0, bytes);
        }
        self.drained.notify_one();
    }

    /// Adds `bytes` that wait. Returns the bytes that waited before.
    fn queued(&self, bytes: usize) -> usize {
        let before = self.queued.fetch_add(bytes, Ordering::Relaxed);
        if let Some(bound) = self.bound.get() {
            bound.party.0.fetch_add(bytes, Ordering::Relaxed);
            bound.all.0.fetch_add(bytes, Ordering::Relaxed);
        }
        before
    }

    /// Notes bytes that were written to the socket.
    pub(super) fn written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    /// Waits until the connection is to end at once.
    pub(super) async fn aborted(&self) {
        while !self.is_aborted() {
            self.abort.notified().await;
        }
    }

    /// Refuses everything from now on and drops the waiting messages.
    pub(super) fn fail(&self) {
        let dropped = {
            let mut q = self.lock();
            q.closed = true;
            q.urgent.clear();
            std::mem::take(&mut q.messages)
        };
        self.sent(dropped.iter().map(cost).sum());
    }

    pub(super) fn urgent(&self, frame: Urgent) {
        let mut q = self.lock();
        if !q.closed && q.urgent.len() < URGENT_MAX {
            q.urgent.push(frame);
            drop(q);
            self.wake.notify_one();
        }
    }
}

/// Sends messages on a connection, in order, from any thread. Clones send on the same connection.
///
/// The queue is unbounded because a core cannot wait; a producer that sends more than it was asked
/// for watches [`Sender::queued_bytes`]. Messages to a connection that has ended are dropped, as in
/// lossy sessions.
#[derive(Clone)]
pub struct Sender {
    pub(super) shared: Arc<Shared>,
}

impl Sender {
    pub(super) fn new() -> Self {
        Self {
            shared: Arc::default(),
        }
    }

    /// A sender whose messages wait until they are taken, for use without a socket, as in
    /// simulations.
    pub fn detached() -> Self {
        Self::new()
    }

    /// Takes the waiting messages; only of a [`Sender::detached`], as the writing task takes a
    /// connection's.
    pub fn take(&self) -> Vec<RawMessage> {
        let taken: Vec<RawMessage> = self.shared.lock().messages.drain(..).collect();
        self.shared.sent(taken.iter().map(cost).sum());
        taken
    }

    /// Fails as a lost connection: waiting and later messages are dropped.
    pub fn fail(&self) {
        self.shared.fail();
    }

    /// Queues a message; returns `false` if the connection has ended and the message was dropped.
    pub fn send(&self, msg: RawMessage) -> bool {
        let cost = cost(&msg);
        let mut q = self.shared.lock();
        if q.closed {
            return false;
        }
        let before = self.shared.queued(cost);
        if before == 0 {
            q.largest = 0;
        }
        q.largest = q.largest.max(cost);
        let others = (before + cost).saturating_sub(q.largest);
        let idle = q.messages.is_empty();
        q.messages.push_back(msg);
        drop(q);
        let bound = self.shared.bound.get();
        if bound.is_some_and(|b| b.is_exceeded(others)) {
            tracing::info!("{} bytes wait for a peer that does not read", self.queued_bytes());
            self.abort();
            return false;
        }
        // Otherwise the writer was already woken for the message before.
        if idle {
            self.shared.wake.notify_one();
        }
        true
    }

    /// Asks the peer for a sign of life; see [`super::Connection::last_heard`].
    pub fn keepalive(&self) {
        self.shared.urgent(Urgent::Keepalive(UTime::now()));
    }

    /// Bytes of messages queued and not yet written to the socket.
    pub fn queued_bytes(&self) -> usize {
        self.shared.queued.load(Ordering::Relaxed)
    }

    /// Bytes written to the socket so far.
    pub fn written_bytes(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Sets the limits of what may wait; to be called once, before anything is sent.
    pub fn set_bound(&self, bound: QueueBound) {
        let (set, queued) = (self.shared.bound.set(bound), self.queued_bytes());
        invariant!(set.is_ok() && queued == 0, "a bound that is set before anything is sent"; queued = queued);
    }

    /// Waits until the peer and its party have read enough to send more requests: see
    /// [`QueueBound`]. To be awaited by one task.
    pub async fn room(&self) {
        let Some(bound) = self.shared.bound.get() else {
            return; // Its peer may have as much as it asks for.
        };
        while self.queued_bytes() > LITTLE && !bound.is_kept() && !self.is_closed() {
            // Another connection of the party may be the one that reads.
            let _ = tokio::time::timeout(RECHECK, self.shared.drained.notified()).await;
        }
    }

    /// Ends the connection at once: waiting messages are dropped.
    pub fn abort(&self) {
        self.shared.aborted.store(true, Ordering::Relaxed);
        self.shared.fail();
        self.shared.abort.notify_one();
    }

    /// Whether the connection has ended or is about to.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().closed
    }

    /// Ends the connection once the queued messages have been written.
    pub fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_one();
    }

    /// Whether both send on the same connection.
    pub fn same_connection(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sender({} bytes queued)", self.queued_bytes())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn bounded(connection: usize) -> Sender {
        let sender = Sender::detached();
        sender.set_bound(QueueBound {
            connection,
            party: QueueAccount::default(),
            all: QueueAccount::default(),
            total: connection,
        });
        sender
    }

    fn message(bytes: usize) -> RawMessage {
        let front = Bytes::from(vec![0; bytes]);
        RawMessage {
            front,
            ..RawMessage::default()
        }
    }

    #[test]
    fn one_message_of_any_size_may_wait_and_little_after_it() {
        let sender = bounded(4 << 20);
        assert!(sender.send(message(100 << 20)));
        for _ in 0..100 {
            assert!(sender.send(message(600)));
        }
        assert!(!sender.send(message(5 << 20)) && sender.is_closed());
    }

    #[test]
    #[should_panic(expected = "expected bytes that were charged, charged 728, given_back 729")]
    fn no_more_is_given_back_than_was_charged() {
        let sender = bounded(4 << 20);
        assert!(sender.send(message(600)));
        sender.shared.sent(729);
    }

    #[test]
    #[should_panic(expected = "expected a bound that is set before anything is sent")]
    fn what_waits_before_there_is_a_bound_would_be_given_back_only() {
        let sender = bounded(4 << 20);
        sender.set_bound(QueueBound {
            connection: 1,
            party: QueueAccount::default(),
            all: QueueAccount::default(),
            total: 1,
        });
    }

    #[test]
    fn what_was_large_before_does_not_count_any_more() {
        let sender = bounded(4 << 20);
        assert!(sender.send(message(100 << 20)));
        sender.take();
        let sent = std::iter::repeat_with(|| sender.send(message(1 << 20)));
        assert_eq!(sent.take(100).take_while(|sent| *sent).count(), 4);
    }
}
