//! Replies to a client in the transmission phase, in the order in which their requests end.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// Replies are gathered up to this many bytes before they are sent.
const BATCH: usize = 256 << 10;

/// A request's share of its connection's limits.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) _request: OwnedSemaphorePermit,
    pub(super) _bytes: OwnedSemaphorePermit,
}

/// A reply; its request's share is released when it is sent.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) parts: Vec<Bytes>,
    pub(super) claim: Claim,
}

/// Pieces of memory, sent one after the other.
#[derive(Default)]
struct Segments {
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl Segments {
    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push_back(piece);
        }
    }
}

impl Buf for Segments {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map(|p| &p[..]).unwrap_or_default()
    }

    fn chunks_vectored<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slot, piece) in out.iter_mut().zip(&self.pieces) {
            *slot = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    fn advance(&mut self, mut count: usize) {
        self.len -= count;
        while let Some(first) = self.pieces.front_mut() {
            if count < first.len() {
                first.advance(count);
                return;
            }
            count -= first.len();
            self.pieces.pop_front();
        }
    }
}

/// Sends replies until their last producer is dropped, then closes the stream. If the client does
/// not take them, the queue is closed.
pub(super) async fn send<W: AsyncWrite + Unpin>(writer: W, mut queue: mpsc::UnboundedReceiver<Reply>) {
    if let Err(e) = send_all(writer, &mut queue).await {
        tracing::debug!("NBD: a client takes no replies: {e}");
    }
}

async fn send_all<W: AsyncWrite + Unpin>(
    mut writer: W,
    queue: &mut mpsc::UnboundedReceiver<Reply>,
) -> io::Result<()> {
    let mut segments = Segments::default();
    while let Some(first) = queue.recv().await {
        let mut claims = Vec::new();
        let mut next = Some(first);
        while let Some(reply) = next {
            reply.parts.into_iter().for_each(|part| segments.push(part));
            claims.push(reply.claim);
            next = (segments.len < BATCH).then(|| queue.try_recv().ok()).flatten();
        }
        writer.write_all_buf(&mut segments).await?;
        writer.flush().await?;
    }
    writer.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_one_sequence() {
        let text = b"a reply of several pieces";
        for step in 1..text.len() {
            let mut segments = Segments::default();
            for piece in text.chunks(7) {
                segments.push(Bytes::from_static(piece));
                segments.push(Bytes::new());
            }
            let mut slices = [IoSlice::new(&[]); 8];
            assert_eq!(segments.chunks_vectored(&mut slices), 4);
            let mut out = Vec::new();
            while segments.has_remaining() {
                let n = step.min(segments.chunk().len());
                out.extend_from_slice(&segments.chunk()[..n]);
                segments.advance(n);
            }
            assert_eq!(out, text);
        }
    }
}
