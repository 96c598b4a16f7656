//! A server of the
//! [Network Block Device protocol](https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md).
//!
//! A [`Server`] offers [`Export`]s, each a [`BlockDevice`], to the clients of Unix and TCP sockets:
//! the Linux kernel, QEMU, libnbd. It speaks the fixed newstyle handshake with structured replies,
//! `base:allocation` and TLS, and lets several connections share an export.
//!
//! The protocol itself is without I/O: [`handshake`] is a state machine from bytes to bytes,
//! [`request`] and [`reply`] are functions. On any input they neither panic nor allocate more than
//! a client may claim. The server around them runs on tokio's current-thread runtime, inside a
//! `LocalSet` or `LocalRuntime`.
//!
//! [`WriteBehind`] makes a device answer writes before they are done, within a bound.

mod behind;
mod device;
mod error;
pub mod handshake;
mod ranges;
pub mod reply;
pub mod request;
mod server;
mod tls;
pub mod wire;

pub use behind::WriteBehind;
pub use device::{BlockDevice, BlockSizes, Extent, Geometry, Zeroing};
pub use error::{DeviceError, Error, ErrorCode, Result};
pub use server::{Export, Limits, Listener, Server, transmit};
pub use tls::{Tls, TlsPolicy};
