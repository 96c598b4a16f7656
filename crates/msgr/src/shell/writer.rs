//! The writing task of a connection.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use spirula_invariant::invariant;
use spirula_proto::RawMessage;
use tokio::net::TcpStream;

use super::Error;
use super::sender::{self, Shared, Urgent};
use super::socket::{Moved, flush, hang_up};
use crate::session::{Outbound, SessionError};

/// A batch is written once it holds this many bytes, or slices.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_PARTS: usize = 192;

/// Writes the queued messages until the connection ends, then hangs up, which ends the reading side
/// too. The connection of a peer that reads nothing for `stall` is ended.
pub(super) async fn run(
    stream: Rc<TcpStream>,
    mut out: Outbound,
    shared: Arc<Shared>,
    in_seq: Rc<Cell<u64>>,
    stall: Duration,
) {
    let mut taken = 0;
    if let Err(e) = write_all(&stream, &mut out, &shared, &in_seq, stall, &mut taken).await {
        tracing::debug!(error = %e, "writing failed");
    }
    shared.sent(taken);
    shared.fail();
    hang_up(&stream);
}

async fn write_all(
    stream: &TcpStream,
    out: &mut Outbound,
    shared: &Shared,
    in_seq: &Cell<u64>,
    stall: Duration,
    taken: &mut usize,
) -> Result<(), Error> {
    let mut urgent = Vec::new();
    let mut messages = VecDeque::new();
    let mut moved = Moved::default();
    loop {
        let closed = {
            let mut q = shared.lock();
            std::mem::swap(&mut urgent, &mut q.urgent);
            // Swapping whole queues keeps the lock short and both allocations alive.
            if messages.is_empty() {
                std::mem::swap(&mut messages, &mut q.messages);
                *taken = messages.iter().map(sender::cost).sum();
            }
            q.closed
        };
        for frame in urgent.drain(..) {
            encode_urgent(out, frame)?;
        }
        let cost = encode_batch(out, &mut messages, in_seq.get())?;
        if out.encoder().pending() > 0 {
            flush(stream, out.encoder(), stall, &mut moved, |n| shared.written(n)).await?;
            shared.sent(cost);
            invariant!(cost <= *taken, "messages that were taken from the queue"; cost = cost, taken = *taken);
            *taken -= cost;
        } else if closed {
            return Ok(());
        } else {
            shared.changed().await;
        }
    }
}

fn encode_urgent(out: &mut Outbound, frame: Urgent) -> Result<(), SessionError> {
    match frame {
        Urgent::Keepalive(now) => out.keepalive(now),
        Urgent::KeepaliveAck(stamp) => out.keepalive_ack(stamp),
        Urgent::Ack(seq) => out.ack(seq),
    }
}

/// Encodes messages until the batch is full; returns the bytes that they count for.
fn encode_batch(
    out: &mut Outbound,
    messages: &mut VecDeque<RawMessage>,
    ack_seq: u64,
) -> Result<usize, SessionError> {
    let mut cost = 0;
    while out.encoder().pending() < BATCH_BYTES && out.encoder().parts() < BATCH_PARTS {
        let Some(m) = messages.pop_front() else { break };
        cost += sender::cost(&m);
        out.message(m, ack_seq)?;
    }
    Ok(cost)
}
