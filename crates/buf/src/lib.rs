//! Payload buffers: aligned for direct I/O, pooled, and counted against the daemon's memory budget.
//!
//! A payload is read from the socket into a [`PoolBuf`], frozen into [`bytes::Bytes`] and handed to the disk
//! and to the replicas without being copied. When the last reference goes, the memory returns to its [`Pool`].

// Aligned memory has no safe interface in std: this crate is the one place that allocates it.
#![allow(unsafe_code)]

pub mod crc;

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

/// Alignment of every buffer: the block size that O_DIRECT wants. Independent of the machine's page size.
pub const ALIGN: usize = 4096;

/// Buffers up to this size are kept for reuse; larger ones go back to the allocator.
///
/// A little above 4 MiB, the usual object size, so that a whole encrypted frame around one fits too.
const KEEP_MAX: usize = (4 << 20) + (64 << 10);
/// Bytes a pool keeps for reuse at most.
const KEEP_TOTAL: usize = 16 << 20;

struct Raw {
    ptr: NonNull<u8>,
    cap: usize,
}

// SAFETY: `Raw` owns its allocation exclusively; nothing in it is tied to a thread.
unsafe impl Send for Raw {}
// SAFETY: shared access only ever reads the bytes.
unsafe impl Sync for Raw {}

impl Raw {
    fn new(cap: usize) -> Self {
        let layout = Self::layout(cap);
        // SAFETY: `layout` has a non-zero size, as `cap` is at least `ALIGN`.
        let ptr = unsafe { alloc(layout) };
        let Some(ptr) = NonNull::new(ptr) else {
            handle_alloc_error(layout)
        };
        // SAFETY: freshly allocated, `cap` bytes long. Zeroed once, so that no later reuse is uninitialised memory.
        unsafe { ptr.as_ptr().write_bytes(0, cap) };
        Self { ptr, cap }
    }

    fn layout(cap: usize) -> Layout {
        match Layout::from_size_align(cap, ALIGN) {
            Ok(layout) => layout,
            // Only a capacity near usize::MAX gets here, and callers bound theirs.
            Err(_) => std::process::abort(),
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout, and freed once.
        unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.cap)) };
    }
}

#[derive(Default)]
struct Shelf {
    free: Vec<Raw>,
    bytes: usize,
}

struct Shared {
    shelf: Mutex<Shelf>,
    in_use: AtomicUsize,
    limit: usize,
    /// Whether `waiters` holds anyone, so that returning a buffer costs no second lock otherwise.
    waiting: AtomicBool,
    waiters: Mutex<Vec<Waker>>,
}

impl Shared {
    fn wake_all(&self) {
        if self.waiting.swap(false, Ordering::SeqCst) {
            let waiters = std::mem::take(&mut *self.waiters.lock().unwrap_or_else(PoisonError::into_inner));
            waiters.into_iter().for_each(Waker::wake);
        }
    }
}

/// A source of aligned buffers with a limit on the bytes in use. Cheap to clone; clones share the limit.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

impl Pool {
    /// A pool that reports itself full once `limit` bytes are in use.
    pub fn new(limit: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                shelf: Mutex::default(),
                in_use: AtomicUsize::new(0),
                limit,
                waiting: AtomicBool::new(false),
                waiters: Mutex::default(),
            }),
        }
    }

    /// Bytes handed out and not yet returned.
    pub fn in_use(&self) -> usize {
        // Ordered after the registration in `poll_room`, see there.
        self.shared.in_use.load(Ordering::SeqCst)
    }

    /// The limit this pool was made with, in bytes.
    pub fn limit(&self) -> usize {
        self.shared.limit
    }

    /// Whether `len` more bytes fit the limit. A single buffer larger than the limit fits an unused pool, so
    /// that a small budget delays large messages instead of blocking them for ever.
    pub fn has_room(&self, len: usize) -> bool {
        let used = self.in_use();
        used == 0 || used.saturating_add(len) <= self.shared.limit
    }

    /// Ready once `len` more bytes fit the limit, see [`Pool::has_room`]. Otherwise the task is woken when a
    /// buffer returns, and asks again. Room is not reserved: among several tasks the first one takes it.
    pub fn poll_room(&self, len: usize, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_room(len) {
            return Poll::Ready(());
        }
        {
            let mut waiters = self.shared.waiters.lock().unwrap_or_else(PoisonError::into_inner);
            if !waiters.iter().any(|w| w.will_wake(cx.waker())) {
                waiters.push(cx.waker().clone());
            }
            self.shared.waiting.store(true, Ordering::SeqCst);
        }
        // A buffer may have returned between the first look and the registration.
        if self.has_room(len) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// A buffer of `len` bytes whose contents are unspecified (zero or what an earlier user left). Never
    /// blocks and never fails for the limit: ask [`Pool::has_room`] before reading from a socket.
    pub fn get(&self, len: usize) -> PoolBuf {
        let cap = len.max(1).next_multiple_of(ALIGN);
        let reused = (cap <= KEEP_MAX).then(|| self.take(cap)).flatten();
        let raw = reused.unwrap_or_else(|| Raw::new(cap));
        self.shared.in_use.fetch_add(raw.cap, Ordering::Relaxed);
        PoolBuf {
            raw: Some(raw),
            len,
            checked: false,
            shared: Arc::clone(&self.shared),
        }
    }

    /// A kept buffer of at least `cap` bytes, and not of more than twice that.
    fn take(&self, cap: usize) -> Option<Raw> {
        let mut shelf = self.shared.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        let at = shelf
            .free
            .iter()
            .rposition(|r| r.cap >= cap && r.cap <= cap * 2)?;
        let raw = shelf.free.swap_remove(at);
        shelf.bytes -= raw.cap;
        Some(raw)
    }
}

/// An aligned buffer, exclusively owned until it is frozen.
pub struct PoolBuf {
    raw: Option<Raw>,
    len: usize,
    /// Checksums are noted.
    checked: bool,
    shared: Arc<Shared>,
}

impl PoolBuf {
    /// Shortens the buffer to `len` bytes; no effect if it is shorter already.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes the buffer shareable. The memory returns to the pool with the last clone or slice.
    pub fn freeze(self) -> Bytes {
        if self.len == 0 {
            Bytes::new()
        } else {
            Bytes::from_owner(self)
        }
    }

    /// As [`PoolBuf::freeze`], with the CRC-32C of each block of 4 KiB (the last one may be shorter), for [`crc`] to tell.
    pub fn freeze_checked(mut self, block_crcs: Vec<u32>) -> Bytes {
        debug_assert_eq!(block_crcs.len(), self.len.div_ceil(ALIGN));
        if self.len > 0 {
            self.checked = true;
            crc::note(&self, block_crcs);
        }
        self.freeze()
    }
}

impl Deref for PoolBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.raw {
            // SAFETY: the allocation holds `cap >= len` initialised bytes and lives as long as `self`.
            Some(raw) => unsafe { slice::from_raw_parts(raw.ptr.as_ptr(), self.len) },
            None => &[],
        }
    }
}

impl DerefMut for PoolBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &self.raw {
            // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
            Some(raw) => unsafe { slice::from_raw_parts_mut(raw.ptr.as_ptr(), self.len) },
            None => &mut [],
        }
    }
}

impl AsRef<[u8]> for PoolBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for PoolBuf {
    fn drop(&mut self) {
        let Some(raw) = self.raw.take() else { return };
        let cap = raw.cap;
        if self.checked {
            crc::forget(raw.ptr.as_ptr().addr());
        }
        if cap <= KEEP_MAX {
            let mut shelf = self.shared.shelf.lock().unwrap_or_else(PoisonError::into_inner);
            if shelf.bytes + cap <= KEEP_TOTAL.min(self.shared.limit) {
                shelf.bytes += cap;
                shelf.free.push(raw);
            }
        }
        self.shared.in_use.fetch_sub(cap, Ordering::SeqCst);
        self.shared.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_counted_and_reused() {
        let pool = Pool::new(1 << 20);
        let mut b = pool.get(5000);
        assert_eq!(b.as_ptr() as usize % ALIGN, 0);
        b[4999] = 7;
        let at = b.as_ptr();
        let frozen = b.freeze();
        assert_eq!(pool.in_use(), 8192);
        let slice = frozen.slice(4000..);
        drop(frozen);
        assert_eq!((slice[999], pool.in_use()), (7, 8192));
        drop(slice);
        assert_eq!(pool.in_use(), 0);
        assert_eq!(pool.get(6000).as_ptr(), at);
    }

    #[test]
    fn a_returned_buffer_wakes_those_who_wait_for_room() {
        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        let pool = Pool::new(8192);
        let (a, b) = (pool.get(4096), pool.get(4096));
        assert!(pool.poll_room(4096, &mut cx).is_pending());
        assert!(pool.poll_room(4096, &mut cx).is_pending());
        drop(a);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(pool.poll_room(4096, &mut cx).is_ready());
        drop(b);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn an_unused_pool_has_room_for_anything_once() {
        let pool = Pool::new(10_000);
        assert!(pool.has_room(1 << 20));
        let _held = pool.get(4096);
        assert!(pool.has_room(5000));
        assert!(!pool.has_room(1 << 20));
    }
}
