//! Vectored reads and writes on a tokio socket, one system call each.

use std::io::{self, IoSlice};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::frame::{Decoder, Encoder, MOVED_AT_ONCE};

/// Slices per `writev`. Far below IOV_MAX; a batch of 4 KiB messages has three each.
const SLICES_MAX: usize = 256;

/// The bytes that a task has moved since other tasks of the thread had it.
#[derive(Debug, Default)]
pub(super) struct Moved(usize);

impl Moved {
    /// Counts bytes that were moved.
    pub(super) fn add(&mut self, bytes: usize) {
        self.0 += bytes;
    }

    /// Notes that it is the turn of others, however few the bytes.
    pub(super) fn end_turn(&mut self) {
        self.0 = MOVED_AT_ONCE;
    }

    /// Lets other tasks have the thread if this one has moved much.
    pub(super) async fn pause(&mut self) {
        if self.0 >= MOVED_AT_ONCE {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Reads once into the decoder's places. `Ok(None)` when nothing is there now, `Ok(Some(0))` at the
/// end.
///
/// A read that does not fill all places has emptied the socket: readiness is cleared with it, which
/// saves the read that would only return `EAGAIN`. (tokio does the same for plain reads.
/// End-of-file survives it.)
pub(super) fn read_into(stream: &TcpStream, dec: &mut Decoder) -> io::Result<Option<usize>> {
    let mut got = None;
    let tried = dec.read_with(|places| {
        let room: usize = places.iter().map(|p| p.len()).sum();
        let result = stream.try_io(Interest::READABLE, || {
            let n = rustix::io::readv(stream, places)?;
            got = Some(n);
            if n > 0 && n < room {
                Err(io::ErrorKind::WouldBlock.into())
            } else {
                Ok(n)
            }
        });
        got.map_or(result, Ok)
    });
    match tried {
        Ok(n) => Ok(Some(n)),
        Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Writes all pending bytes, telling `written` of each step. Fails if the peer reads nothing for
/// `stall`.
pub(super) async fn flush(
    stream: &TcpStream,
    enc: &mut Encoder,
    stall: Duration,
    moved: &mut Moved,
    written: impl Fn(u64),
) -> io::Result<()> {
    while enc.pending() > 0 {
        moved.pause().await;
        let result = {
            let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(enc.parts());
            enc.slices(&mut slices, MOVED_AT_ONCE);
            slices.truncate(SLICES_MAX);
            stream.try_write_vectored(&slices)
        };
        match result {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                enc.wrote(n);
                moved.add(n);
                written(n as u64);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                timeout(stall, stream.writable()).await??;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Ends both directions, which wakes every task that waits on the socket.
pub(super) fn hang_up(stream: &TcpStream) {
    // An error means that the peer was faster.
    let _ = shutdown(stream, Shutdown::Both);
}
