//! The queue between whoever sends and the connection's writing task.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spirula_denc::UTime;
use spirula_proto::RawMessage;
use tokio::sync::Notify;

/// What a message counts for besides its payload.
const OVERHEAD: usize = 128;

/// What a message counts for.
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

/// At most so many urgent frames wait: a peer that asks faster than it reads gets fewer answers.
const URGENT_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Queue {
    pub(super) urgent: Vec<Urgent>,
    pub(super) messages: VecDeque<RawMessage>,
    pub(super) closed: bool,
}

#[derive(Default)]
pub(super) struct Shared {
    queue: Mutex<Queue>,
    wake: Notify,
    queued: AtomicUsize,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn changed(&self) {
        self.wake.notified().await;
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.queued.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Refuses everything from now on and drops what waits.
    pub(super) fn fail(&self) {
        let dropped = {
            let mut q = self.lock();
            q.closed = true;
            q.urgent.clear();
            std::mem::take(&mut q.messages)
        };
        self.queued
            .fetch_sub(dropped.iter().map(cost).sum(), Ordering::Relaxed);
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
/// The queue is unbounded because a core cannot wait; whoever produces more than it was asked for watches
/// [`Sender::queued_bytes`]. A connection that ended swallows what is sent, as lossy sessions do.
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

    /// A sender whose messages wait until they are taken: where there is no socket, as in simulations.
    pub fn detached() -> Self {
        Self::new()
    }

    /// Takes the messages that wait; only of a [`Sender::detached`], as a connection's are its own.
    pub fn take(&self) -> Vec<RawMessage> {
        let taken: Vec<RawMessage> = self.shared.lock().messages.drain(..).collect();
        self.shared.sent(taken.iter().map(cost).sum());
        taken
    }

    /// The connection is lost: what waits is dropped, and so is what is sent from now on.
    pub fn fail(&self) {
        self.shared.fail();
    }

    /// Queues a message; `false` where the connection has ended and the message was dropped.
    pub fn send(&self, msg: RawMessage) -> bool {
        let cost = cost(&msg);
        let mut q = self.shared.lock();
        if q.closed {
            return false;
        }
        self.shared.queued.fetch_add(cost, Ordering::Relaxed);
        let idle = q.messages.is_empty();
        q.messages.push_back(msg);
        drop(q);
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

    /// Whether the connection has ended or is about to.
    pub fn is_closed(&self) -> bool {
        self.shared.lock().closed
    }

    /// Ends the connection once what is queued has been written.
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
