//! Waiting for the store's event descriptor.

// Tokio's registration of a descriptor is unsafe, as it relies on the descriptor staying the same.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor that becomes readable with the current runtime.
pub(super) fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` refers to one open file description from beginning to end, and the
    // `AsyncFd` owns it.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(io::Error::from)
}
