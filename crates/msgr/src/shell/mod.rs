//! Connections on real sockets: one reading future that the owner drives, one writing task, no
//! other state.
//!
//! Everything runs on tokio's current-thread runtime, inside a `LocalSet` or `LocalRuntime`. The
//! owner calls [`Connection::recv`] in a loop; replies go through the cloneable [`Sender`], which
//! never blocks. Replies queued while the owner handles a batch of messages leave in one `writev`.

mod acceptor;
mod auth;
mod bind;
mod connection;
mod files;
mod pending;
mod sender;
mod socket;
mod writer;

#[cfg(test)]
mod tests;

pub use acceptor::Acceptor;
pub use auth::{AcceptAuth, ConnectAuth, Negotiated};
pub use bind::bind;
pub use connection::{Connection, connect};
pub use files::raise_open_files;
pub use sender::{QueueAccount, QueueBound, Sender};

use std::io;

use crate::session::SessionError;

/// Why a connection could not be established, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The protocol failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The peer closed the connection, or we did.
    #[error("connection closed")]
    Closed,
    /// The handshake took too long, or had to make room for newer connections.
    #[error("handshake not finished in time")]
    HandshakeTimeout,
    /// Nothing came from the peer for the idle time-out.
    #[error("peer silent")]
    Idle,
    /// Nothing came from the peer for a while amid a message, whose room others need.
    #[error("peer silent amid a message")]
    Stalled,
}
