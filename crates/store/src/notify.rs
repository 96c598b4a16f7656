//! Wakes the owner of a store: an eventfd that its reactor awaits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// Becomes readable when a background thread or the kernel has completed something. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Notify {
    fd: Arc<OwnedFd>,
}

impl Notify {
    /// A new eventfd, not signalled.
    ///
    /// # Errors
    /// When the process is out of file descriptors.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { fd: Arc::new(fd) })
    }

    /// Makes the descriptor readable.
    pub fn wake(&self) {
        // It fails only when the counter is full, and then it is readable anyway.
        let _ = rustix::io::write(&*self.fd, &1u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // It fails only when there was nothing to clear.
        let _ = rustix::io::read(&*self.fd, &mut count);
    }
}

impl AsFd for Notify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
