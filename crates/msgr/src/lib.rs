//! msgr2.1, server and client: frames and connections as state machines, with a thin async shell.
//!
//! - [`frame`]: bytes to frames and back, in crc and secure mode. Knows no socket.
//! - [`session`]: the handshake of both sides and the established session, on top of the frames.
//! - [`shell`]: sockets, tasks and timers on tokio's current-thread runtime.
//!
//! Authentication is delegated: the handshake asks, the owner answers through [`AcceptAuth`] or
//! [`ConnectAuth`]. Formats follow Ceph's public `src/msg/async/frames_v2.h` and
//! `doc/dev/msgr2.rst`.

pub mod config;
mod control;
pub mod frame;
mod modes;
pub mod recent;
pub mod session;
pub mod shell;

pub use config::{ConMode, Config, Peer};
pub use frame::Limits;
pub use modes::{ModeLists, Modes};
pub use session::{AcceptReply, AuthStart, SessionError, SessionKeys};
pub use shell::{
    AcceptAuth, Acceptor, ConnectAuth, Connection, Error, QueueAccount, QueueBound, Sender, bind, connect,
    raise_open_files,
};

/// The most bytes that either side may send before authentication succeeds: they are kept for the
/// signature.
const TRANSCRIPT_MAX: usize = 64 << 10;
