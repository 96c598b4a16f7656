//! io_uring, driven by the owner's thread: no hand-over between threads on the way to the disk and
//! back.

// The kernel reads and writes memory through raw pointers: every buffer is owned by its slot until
// the kernel has reported the completion, also when the device is dropped.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use bytes::Bytes;
use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, opcode, types};
use spirula_invariant::{impossible, invariant};

use super::deferred::{self, Deferring};
use super::file::MAX_IOV;
use super::{BlockIo, CachedIo, Device, Done, FileIo, Io, IoKind, Way};
use crate::notify::Notify;

/// The most operations in the kernel; further ones wait in a queue.
const DEPTH: u32 = 128;
/// Bytes of a buffer that the kernel transfers at once: of a larger one it would hold all pages.
const PART: usize = 4 << 20;
/// Bytes after which queued operations are submitted: the kernel then pins their pages, and the
/// process can unmap those that lie in files.
const HANDED_AT_ONCE: usize = 2 * PART;
/// Kernel threads for operations that cannot be started without blocking (flushes, writes to
/// unallocated parts of a file).
const KERNEL_WORKERS: u32 = 2;

/// An operation in the kernel. Owns all memory that the kernel refers to.
struct Slot {
    io: Io,
    /// Bytes transferred so far.
    done: u64,
    /// The parts left to write: they point into the buffers of `io`.
    iov: Vec<libc::iovec>,
}

/// A device driven through io_uring.
pub struct UringDevice {
    ring: IoUring,
    file: Arc<FileIo>,
    notify: Notify,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    backlog: VecDeque<Io>,
    unsubmitted: bool,
    /// Bytes of operations that were queued since the last submission.
    unsubmitted_bytes: usize,
    failed: Vec<Done>,
}

impl UringDevice {
    /// A ring for `file` that signals `notify` on completions. To be used by the calling thread
    /// only.
    ///
    /// # Errors
    /// When the kernel has no io_uring or forbids it.
    pub fn new(file: Arc<FileIo>, notify: &Notify) -> io::Result<Self> {
        let ring = deferring()
            .or_else(|_| cooperating())
            .or_else(|_| IoUring::new(DEPTH))?;
        ring.submitter().register_eventfd(notify.as_fd().as_raw_fd())?;
        // Older kernels cannot limit their workers; then there may be a few more threads.
        let _ = ring
            .submitter()
            .register_iowq_max_workers(&mut [KERNEL_WORKERS, 1]);
        let mut slots = Vec::new();
        slots.resize_with(DEPTH as usize, || None);
        let free = (0..DEPTH as usize).rev().collect();
        Ok(Self {
            ring,
            file,
            notify: notify.clone(),
            slots,
            free,
            backlog: VecDeque::new(),
            unsubmitted: false,
            unsubmitted_bytes: 0,
            failed: Vec::new(),
        })
    }

    fn start(&mut self, io: Io) {
        let Some(at) = self.free.pop() else {
            self.backlog.push_back(io);
            return; // A completion frees a slot for it.
        };
        let iov = match &io.kind {
            IoKind::Write { bufs, .. } => iovecs(bufs),
            _ => Vec::new(),
        };
        invariant!(self.slots[at].is_none(), "a free slot"; slot = at, operation = io.tag);
        self.slots[at] = Some(Slot { io, done: 0, iov });
        self.push(at);
    }

    /// Submits the rest of slot `at` to the kernel.
    fn push(&mut self, at: usize) {
        let Some(slot) = &mut self.slots[at] else {
            impossible!("an operation to hand over"; slot = at)
        };
        let entry = entry_for(&self.file, slot).user_data(at as u64);
        self.unsubmitted_bytes += PART.min((slot.len() - slot.done) as usize);
        self.unsubmitted = true;
        loop {
            // SAFETY: the entry refers to memory owned by the slot, which lives until its
            // completion is reaped; `Drop` waits for that.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                if self.unsubmitted_bytes >= HANDED_AT_ONCE {
                    self.kick();
                }
                return; // It is handed over.
            }
            // The queue is full, so this hands over at least one entry. When it fails for good,
            // fail the operation.
            if let Err(e) = self.ring.submit() {
                if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) {
                    continue;
                }
                return self.finish(at, Err(e));
            }
        }
    }

    fn finish(&mut self, at: usize, result: io::Result<()>) {
        let Some(slot) = self.slots[at].take() else {
            impossible!("an operation to complete"; slot = at)
        };
        self.free.push(at);
        let len = slot.len();
        let buf = match slot.io.kind {
            IoKind::Read { buf, .. } => Some(buf),
            IoKind::Write { offset, .. } => {
                self.file.written(offset..offset + len);
                None
            }
            IoKind::Flush => None,
        };
        self.failed.push(Done {
            tag: slot.io.tag,
            result,
            buf,
        });
    }

    /// Takes one completion of slot `at`: `Some` if the operation is complete.
    fn complete(&mut self, at: usize, res: i32) {
        let Some(slot) = self.slots.get_mut(at).and_then(Option::as_mut) else {
            impossible!("the completion of an operation that the kernel has"; slot = at, result = res)
        };
        let total = slot.len();
        invariant!(
            res < 0 || slot.done + res as u64 <= total,
            "no more bytes than an operation has";
            operation = slot.io.tag,
            done = slot.done,
            result = res,
            total = total,
        );
        if res < 0 {
            if matches!(-res, libc::EINTR | libc::EAGAIN) {
                self.push(at);
            } else {
                self.finish(at, Err(io::Error::from_raw_os_error(-res)));
            }
        } else if slot.done + res as u64 >= total {
            self.finish(at, Ok(()));
        } else if res == 0 {
            self.finish(at, Err(io::ErrorKind::UnexpectedEof.into()));
        } else {
            slot.advance(res as usize);
            spirula_buf::let_go();
            self.push(at);
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn drain_queue(&mut self) {
        deferred::ask(self);
        let done: Vec<(u64, i32)> = self
            .ring
            .completion()
            .map(|c| (c.user_data(), c.result()))
            .collect();
        for (at, res) in done {
            self.complete(at as usize, res);
        }
        while !self.free.is_empty() {
            let Some(io) = self.backlog.pop_front() else { break };
            self.start(io);
        }
    }
}

impl Deferring for UringDevice {
    fn is_flagged(&mut self) -> bool {
        self.ring.submission().taskrun()
    }

    fn signal(&mut self, on: bool) {
        let completions = self.ring.completion();
        if on {
            completions.enable_eventfd();
        } else {
            completions.disable_eventfd();
        }
    }

    fn hand_over(&mut self) -> bool {
        let before = self.ring.completion().len();
        // As the flag is set, this asks for completions, besides submitting what is queued.
        match self.ring.submit() {
            Ok(_) => self.unsubmitted = false,
            Err(e) if e.raw_os_error() == Some(libc::EINTR) => return true,
            // The completions that are here make room in the ring: the owner is to come back.
            Err(_) => self.notify.wake(),
        }
        self.ring.completion().len() > before
    }
}

impl Slot {
    fn len(&self) -> u64 {
        match &self.io.kind {
            IoKind::Read { buf, .. } => buf.len() as u64,
            IoKind::Write { bufs, .. } => bufs.iter().map(|b| b.len() as u64).sum(),
            IoKind::Flush => 0,
        }
    }

    /// Notes that `n` more bytes were transferred.
    fn advance(&mut self, mut n: usize) {
        self.done += n as u64;
        if self.iov.is_empty() {
            return; // It is a read.
        }
        let whole = self.iov.iter().take_while(|v| take(&mut n, v.iov_len)).count();
        self.iov.drain(..whole);
        if let Some(first) = self.iov.first_mut() {
            // SAFETY: `n` is less than the length of this buffer.
            first.iov_base = unsafe { first.iov_base.cast::<u8>().add(n) }.cast();
            first.iov_len -= n;
        }
    }
}

/// Subtracts `len` from `n`, unless that is smaller; returns whether it did.
fn take(n: &mut usize, len: usize) -> bool {
    let fits = *n >= len;
    if fits {
        *n -= len;
    }
    fits
}

fn iovecs(bufs: &[Bytes]) -> Vec<libc::iovec> {
    let iovec = |b: &Bytes| libc::iovec {
        iov_base: b.as_ptr().cast_mut().cast(),
        iov_len: b.len(),
    };
    bufs.iter().filter(|b| !b.is_empty()).map(iovec).collect()
}

/// A ring that keeps completions back until this thread asks for them (`DEFER_TASKRUN`, Linux 6.1),
/// instead of interrupting what the thread does or waits for.
fn deferring() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_submit_all()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(DEPTH)
}

/// A ring that hands completions over on this thread's next system call (Linux 5.19).
fn cooperating() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_coop_taskrun()
        .setup_submit_all()
        .build(DEPTH)
}

fn entry_for(file: &FileIo, slot: &mut Slot) -> Entry {
    let fd = types::Fd(file.fd_for(Way::Direct));
    match &mut slot.io.kind {
        IoKind::Read { offset, buf, way } => {
            let fd = types::Fd(file.fd_for(*way));
            let rest = &mut buf[slot.done as usize..];
            let len = rest.len().min(PART) as u32;
            opcode::Read::new(fd, rest.as_mut_ptr(), len)
                .offset(*offset + slot.done)
                .build()
        }
        IoKind::Write { offset, durable, .. } => {
            let offset = *offset + slot.done;
            let flags = if *durable { libc::RWF_DSYNC } else { 0 };
            if let [one] = &slot.iov[..] {
                let len = one.iov_len.min(PART) as u32;
                opcode::Write::new(fd, one.iov_base.cast(), len)
                    .offset(offset)
                    .rw_flags(flags)
                    .build()
            } else {
                let count = slot.iov.len().min(MAX_IOV) as u32;
                opcode::Writev::new(fd, slot.iov.as_ptr(), count)
                    .offset(offset)
                    .rw_flags(flags)
                    .build()
            }
        }
        IoKind::Flush => opcode::Fsync::new(fd)
            .flags(types::FsyncFlags::DATASYNC)
            .build()
            .flags(Flags::empty()),
    }
}

impl Device for UringDevice {
    fn size(&self) -> u64 {
        self.file.size()
    }

    fn queue(&mut self, io: Io) {
        self.start(io);
    }

    fn kick(&mut self) {
        if std::mem::take(&mut self.unsubmitted) {
            // Operations that cannot be submitted now (EBUSY, EAGAIN) stay queued for the next
            // time.
            if self.ring.submit().is_err() {
                self.unsubmitted = true;
            }
        }
        if std::mem::take(&mut self.unsubmitted_bytes) >= HANDED_AT_ONCE {
            spirula_buf::let_go();
        }
    }

    fn reap(&mut self, out: &mut Vec<Done>) {
        self.drain_queue();
        out.append(&mut self.failed);
    }

    fn blocking(&self) -> Arc<dyn BlockIo> {
        Arc::clone(&self.file) as Arc<dyn BlockIo>
    }

    fn cached(&self) -> Arc<dyn BlockIo> {
        Arc::new(CachedIo(Arc::clone(&self.file)))
    }

    fn read_cached(&mut self, offset: u64, buf: &mut [u8]) -> bool {
        self.file.read_cached(offset, buf)
    }

    fn drop_cached(&mut self, part: Range<u64>) {
        self.file.drop_cached(part);
    }
}

impl Drop for UringDevice {
    fn drop(&mut self) {
        self.backlog.clear();
        while self.in_flight() > 0 {
            if self.ring.submit_and_wait(1).is_err() && self.ring.completion().is_empty() {
                // The kernel may still write to the buffers: rather leak them than free them.
                std::mem::take(&mut self.slots)
                    .into_iter()
                    .for_each(std::mem::forget);
                return; // Nothing more can be learnt of them.
            }
            self.drain_queue();
        }
    }
}
