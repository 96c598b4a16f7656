//! Payload buffers: aligned for direct I/O, pooled, and counted against the daemon's memory budget.
//!
//! A payload is read from the socket into a [`PoolBuf`], frozen into [`bytes::Bytes`] and handed to
//! the disk and to the replicas without being copied. When the last reference goes, the memory
//! returns to its [`Pool`]. A large buffer for which its pool has no memory lies in a file, if
//! there is a directory for such files.

// Aligned memory has no safe interface in std: this crate is the one place that allocates it.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use file::Filed;
pub use file::let_go;
pub use parts::Divided;
use parts::Part;

pub mod crc;
mod file;
mod map;
mod parts;

/// Alignment of every buffer: the block size that O_DIRECT wants. Independent of the machine's page
/// size.
pub const ALIGN: usize = 4096;

/// Buffers up to this size are kept for reuse; larger ones go back to the allocator.
///
/// A little above 4 MiB, the usual object size, so that a whole encrypted frame around one fits
/// too.
const KEEP_MAX: usize = (4 << 20) + (64 << 10);
/// Buffers from this size on are mapped: the allocator would keep the freed memory.
const MAP_MIN: usize = 256 << 10;
/// Buffers from this size on may lie in files, if their pool has no memory. Objects mostly have 4
/// MiB: files would only slow these down.
const FILE_MIN: usize = 8 << 20;

struct Raw {
    ptr: NonNull<u8>,
    cap: usize,
    /// Its file, if it lies in one.
    file: Option<Filed>,
}

// SAFETY: `Raw` owns its allocation exclusively; nothing in it is tied to a thread.
unsafe impl Send for Raw {}
// SAFETY: shared access only ever reads the bytes.
unsafe impl Sync for Raw {}

impl Raw {
    fn new(cap: usize) -> Self {
        let ptr = if cap >= MAP_MIN {
            map::map(cap)
        } else {
            allocate(cap)
        };
        Self { ptr, cap, file: None }
    }

    fn filed(file: Filed, cap: usize) -> Self {
        Self {
            ptr: file.at(),
            cap,
            file: Some(file),
        }
    }

    fn layout(cap: usize) -> Layout {
        match Layout::from_size_align(cap, ALIGN) {
            Ok(layout) => layout,
            // Only a capacity near usize::MAX gets here, and callers bound theirs.
            Err(_) => std::process::abort(),
        }
    }
}

/// `cap` zeroed bytes from the allocator.
fn allocate(cap: usize) -> NonNull<u8> {
    let layout = Raw::layout(cap);
    // SAFETY: `layout` has a non-zero size, as `cap` is at least `ALIGN`.
    let ptr = unsafe { alloc_zeroed(layout) };
    NonNull::new(ptr).unwrap_or_else(|| handle_alloc_error(layout))
}

impl Drop for Raw {
    fn drop(&mut self) {
        if self.file.is_some() {
            // Its owner gives it back.
        } else if self.cap >= MAP_MIN {
            // SAFETY: mapped in `new` with this length, and unmapped once.
            unsafe { map::unmap(self.ptr, self.cap) };
        } else {
            // SAFETY: allocated in `new` with the same layout, and freed once.
            unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.cap)) };
        }
    }
}

/// Memory kept for reuse, by size.
#[derive(Default)]
struct Shelf {
    free: BTreeMap<usize, Vec<Raw>>,
    bytes: usize,
    /// The least number of kept bytes since the last [`Budget::trim`], which were not needed.
    idle: usize,
}

impl Shelf {
    /// Takes a buffer of at least `cap` bytes, and not of more than twice that.
    fn take(&mut self, cap: usize) -> Option<Raw> {
        let (&size, class) = self.free.range_mut(cap..=cap.saturating_mul(2)).next()?;
        let raw = class.pop();
        if class.is_empty() {
            self.free.remove(&size);
        }
        self.bytes -= raw.as_ref().map_or(0, |r| r.cap);
        self.idle = self.idle.min(self.bytes);
        raw
    }

    fn put(&mut self, raw: Raw) {
        self.bytes += raw.cap;
        self.free.entry(raw.cap).or_default().push(raw);
    }

    /// Frees memory, large pieces first, until no more than `most` bytes are left.
    fn shrink(&mut self, most: usize) {
        while self.bytes > most {
            let Some(mut class) = self.free.last_entry() else {
                return;
            };
            self.bytes -= class.get_mut().pop().map_or(0, |r| r.cap);
            if class.get().is_empty() {
                class.remove();
            }
        }
        self.idle = self.idle.min(self.bytes);
    }
}

/// The memory that pools share: bytes that any pool may borrow beyond its own, and buffers kept for
/// reuse.
struct Common {
    /// Bytes that may be in use and on the shelf, all pools together.
    total: usize,
    /// Bytes that pools may borrow.
    lendable: usize,
    /// Bytes that pools have borrowed, and those withheld.
    borrowed: AtomicUsize,
    /// Bytes of the lendable ones that are not lent for now.
    withheld: AtomicUsize,
    in_use: AtomicUsize,
    shelf: Mutex<Shelf>,
    /// Whether `waiters` holds anyone, so that returning a buffer costs no second lock otherwise.
    waiting: AtomicBool,
    waiters: Mutex<Vec<Waker>>,
    /// The directory for buffers in files.
    files: Option<PathBuf>,
}

impl Common {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that may be in use and on the shelf for now, all pools together.
    fn allowed(&self) -> usize {
        self.total - self.withheld.load(Ordering::SeqCst)
    }

    fn wake_all(&self) {
        if self.waiting.swap(false, Ordering::SeqCst) {
            let waiters = std::mem::take(&mut *self.waiters.lock().unwrap_or_else(PoisonError::into_inner));
            waiters.into_iter().for_each(Waker::wake);
        }
    }
}

struct Shared {
    common: Arc<Common>,
    /// Bytes in use, without buffers beyond the limit.
    in_use: AtomicUsize,
    /// Bytes of a buffer that is larger than the limit, or of several that were taken without
    /// asking for room.
    oversize: AtomicUsize,
    /// Bytes of this pool that it need not borrow.
    own: usize,
}

impl Shared {
    fn limit(&self) -> usize {
        self.own + self.common.lendable
    }

    fn excess(&self, in_use: usize) -> usize {
        in_use.saturating_sub(self.own)
    }

    fn take(&self, bytes: usize) {
        self.common.in_use.fetch_add(bytes, Ordering::SeqCst);
        if bytes > self.limit() {
            // The large buffer takes all lendable memory, and leaves every pool, this one too, its
            // own.
            self.oversize.fetch_add(bytes, Ordering::SeqCst);
            self.common.borrowed.fetch_add(bytes, Ordering::SeqCst);
            return;
        }
        let before = self.in_use.fetch_add(bytes, Ordering::SeqCst);
        let more = self.excess(before + bytes) - self.excess(before);
        self.common.borrowed.fetch_add(more, Ordering::SeqCst);
    }

    fn put_back(&self, bytes: usize) {
        if bytes > self.limit() {
            self.oversize.fetch_sub(bytes, Ordering::SeqCst);
            self.common.borrowed.fetch_sub(bytes, Ordering::SeqCst);
        } else {
            let before = self.in_use.fetch_sub(bytes, Ordering::SeqCst);
            let less = self.excess(before) - self.excess(before - bytes);
            self.common.borrowed.fetch_sub(less, Ordering::SeqCst);
        }
        self.common.in_use.fetch_sub(bytes, Ordering::SeqCst);
        self.common.wake_all();
    }
}

/// The bytes of a budget's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetUsage {
    /// Bytes of buffers in use, those in files included.
    pub in_use: usize,
    /// Bytes of buffers that are kept for reuse.
    pub kept: usize,
    /// Bytes that are not lent for now ([`Budget::withhold`]).
    pub withheld: usize,
}

/// Memory that several pools share. Each pool has some of its own, which the others cannot take
/// from it, and may borrow from the rest. So a pool that is alone can use nearly all memory, and
/// none can be starved.
#[derive(Clone)]
pub struct Budget(Arc<Common>);

impl Budget {
    /// A budget for pools with `own` bytes in total, and `lendable` bytes that any of them may
    /// borrow.
    pub fn new(own: usize, lendable: usize) -> Self {
        Self::with_files(own, lendable, None)
    }

    /// As [`Budget::new`]; large buffers for which their pool has no memory lie in nameless files
    /// in the directory `files`, if it is given.
    pub fn with_files(own: usize, lendable: usize, files: Option<PathBuf>) -> Self {
        Self(Arc::new(Common {
            files,
            total: own.saturating_add(lendable),
            lendable,
            borrowed: AtomicUsize::new(0),
            withheld: AtomicUsize::new(0),
            in_use: AtomicUsize::new(0),
            shelf: Mutex::default(),
            waiting: AtomicBool::new(false),
            waiters: Mutex::default(),
        }))
    }

    /// Frees half of the memory that was not used since the last call. To be called now and then.
    pub fn trim(&self) {
        let mut shelf = self.0.shelf();
        let keep = shelf.bytes - shelf.idle.div_ceil(2);
        shelf.shrink(keep);
        shelf.idle = shelf.bytes;
    }

    /// Does not lend `bytes` of the lendable memory (all of it, if that is less) until this is called
    /// again, and keeps less for reuse. What pools have borrowed they bring back in time. A pool that
    /// uses nothing finds room for one buffer of up to its limit all the same.
    pub fn withhold(&self, bytes: usize) {
        let common = &*self.0;
        let bytes = bytes.min(common.lendable);
        let before = common.withheld.swap(bytes, Ordering::SeqCst);
        if bytes > before {
            common.borrowed.fetch_add(bytes - before, Ordering::SeqCst);
            let used = common.in_use.load(Ordering::SeqCst);
            common.shelf().shrink(common.allowed().saturating_sub(used));
        } else if bytes < before {
            common.borrowed.fetch_sub(before - bytes, Ordering::SeqCst);
            common.wake_all();
        }
    }

    /// The bytes of all buffers.
    pub fn usage(&self) -> BudgetUsage {
        BudgetUsage {
            in_use: self.0.in_use.load(Ordering::SeqCst),
            kept: self.0.shelf().bytes,
            withheld: self.0.withheld.load(Ordering::SeqCst),
        }
    }

    /// A pool with `own` bytes of its own.
    pub fn pool(&self, own: usize) -> Pool {
        Pool {
            shared: Arc::new(Shared {
                common: Arc::clone(&self.0),
                in_use: AtomicUsize::new(0),
                oversize: AtomicUsize::new(0),
                own,
            }),
            party: None,
        }
    }
}

/// A source of aligned buffers with a limit on the bytes in use. Cheap to clone; clones share the
/// limit.
#[derive(Clone)]
pub struct Pool {
    shared: Arc<Shared>,
    /// Bytes that are arriving for this handle's party.
    party: Option<Arc<AtomicUsize>>,
}

/// A message of a party that arrives in buffers of a pool, until this is dropped.
pub struct Arrival {
    shared: Arc<Shared>,
    party: Option<Arc<AtomicUsize>>,
    bytes: usize,
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if let Some(party) = &self.party {
            party.fetch_sub(self.bytes, Ordering::SeqCst);
            // Another message of the party may have waited for no more than its share.
            self.shared.common.wake_all();
        }
    }
}

/// Memory from the allocator that counts like buffers of a pool, until this is dropped.
pub struct Charge {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Charge {
    /// Corrects the number of bytes.
    pub fn set(&mut self, bytes: usize) {
        self.shared.take(bytes);
        self.shared.put_back(self.bytes);
        self.bytes = bytes;
    }
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Charge({} bytes)", self.bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shared.put_back(self.bytes);
    }
}

impl Pool {
    /// Counts `bytes` of other memory as in use. Like [`Pool::get`], it ignores the limit.
    pub fn charge(&self, bytes: usize) -> Charge {
        self.shared.take(bytes);
        Charge {
            shared: Arc::clone(&self.shared),
            bytes,
        }
    }

    /// The memory that it shares with other pools.
    pub fn budget(&self) -> Budget {
        Budget(Arc::clone(&self.shared.common))
    }

    /// A pool that reports itself full once `limit` bytes are in use.
    pub fn new(limit: usize) -> Self {
        Budget::new(limit, 0).pool(limit)
    }

    /// A handle for one of the parties that share the pool, such as all connections of one client;
    /// its clones belong to the same party. The arriving bytes of a party may not exceed the bytes
    /// that are free beside them, so that other parties find room however slowly it sends: one
    /// party gets half at most, the next one half of the rest (Choudhury and Hahne's dynamic
    /// thresholds).
    #[must_use]
    pub fn party(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            party: Some(Arc::default()),
        }
    }

    /// Notes that a message with `bytes` in buffers begins to arrive.
    pub fn arrive(&self, bytes: usize) -> Arrival {
        if let Some(party) = &self.party {
            party.fetch_add(bytes, Ordering::SeqCst);
        }
        Arrival {
            shared: Arc::clone(&self.shared),
            party: self.party.clone(),
            bytes,
        }
    }

    /// Bytes that are arriving for this handle's party.
    pub fn arriving(&self) -> usize {
        self.party.as_ref().map_or(0, |p| p.load(Ordering::SeqCst))
    }

    /// Whether `len` more bytes may arrive for the party. The first message of each party always
    /// may.
    fn is_within_share(&self, len: usize) -> bool {
        let arriving = self.arriving();
        let free = self.limit().saturating_sub(self.in_use());
        arriving == 0 || arriving.saturating_add(len) <= free
    }

    /// Bytes handed out and not yet returned.
    pub fn in_use(&self) -> usize {
        // Ordered after the registration in `poll_room`, see there.
        self.shared.in_use.load(Ordering::SeqCst) + self.shared.oversize.load(Ordering::SeqCst)
    }

    /// The most bytes in use.
    pub fn limit(&self) -> usize {
        self.shared.limit()
    }

    /// Whether `len` more bytes fit: into the pool's own memory, or into lendable memory. A buffer
    /// larger than the limit fits if all others keep to the limit, one at a time, while others go
    /// on in the pool's own memory: a small budget delays large messages, but they neither keep
    /// others out nor are kept out for ever.
    pub fn has_room(&self, len: usize) -> bool {
        let s = &*self.shared;
        let used = s.in_use.load(Ordering::SeqCst);
        if len > self.limit() {
            return s.oversize.load(Ordering::SeqCst) == 0 && used <= self.limit();
        }
        let more = s.excess(used.saturating_add(len)) - s.excess(used);
        let borrowed = s.common.borrowed.load(Ordering::SeqCst);
        let fits = used == 0 || more == 0 || borrowed.saturating_add(more) <= s.common.lendable;
        fits && self.is_within_share(len)
    }

    /// Whether a task waits for room, or has waited since a buffer last returned.
    pub fn is_wanted(&self) -> bool {
        self.shared.common.waiting.load(Ordering::SeqCst)
    }

    /// Ready once `len` more bytes fit the limit, see [`Pool::has_room`]. Otherwise the task is
    /// woken when a buffer returns, and asks again. Room is not reserved: among several tasks the
    /// first one takes it.
    pub fn poll_room(&self, len: usize, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_room(len) {
            return Poll::Ready(());
        }
        {
            let common = &self.shared.common;
            let mut waiters = common.waiters.lock().unwrap_or_else(PoisonError::into_inner);
            if !waiters.iter().any(|w| w.will_wake(cx.waker())) {
                waiters.push(cx.waker().clone());
            }
            common.waiting.store(true, Ordering::SeqCst);
        }
        // A buffer may have returned between the first look and the registration.
        if self.has_room(len) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// A buffer of `len` bytes with unspecified content (zeros or an earlier user's data). Never
    /// waits for room and ignores the limit: ask [`Pool::has_room`] before reading from a socket.
    pub fn get(&self, len: usize) -> PoolBuf {
        let cap = len.max(1).next_multiple_of(ALIGN);
        let raw = self.in_file(cap).or_else(|| self.take(cap));
        let raw = raw.unwrap_or_else(|| Raw::new(cap));
        self.shared.take(raw.cap);
        PoolBuf::of(Memory::Whole(raw), len, Arc::clone(&self.shared))
    }

    /// A buffer in a file, if it is large, the pool has no memory for it, and there is a directory
    /// for files.
    fn in_file(&self, cap: usize) -> Option<Raw> {
        if cap < FILE_MIN || self.in_use().saturating_add(cap) <= self.limit() {
            return None;
        }
        let dir = self.shared.common.files.as_ref()?;
        match Filed::new(dir, cap) {
            Ok(file) => Some(Raw::filed(file, cap)),
            Err(error) => {
                tracing::debug!(%error, "a buffer of {cap} bytes lies in memory");
                None
            }
        }
    }

    /// A kept buffer; if there is none, makes room for a new one.
    fn take(&self, cap: usize) -> Option<Raw> {
        let common = &self.shared.common;
        let mut shelf = common.shelf();
        let found = shelf.take(cap);
        if found.is_none() && shelf.bytes > 0 {
            let used = common.in_use.load(Ordering::SeqCst);
            shelf.shrink(common.allowed().saturating_sub(used.saturating_add(cap)));
        }
        found
    }
}

/// The memory of a buffer.
enum Memory {
    /// Memory of its own, which returns to the pool.
    Whole(Raw),
    /// Part of another buffer.
    Part(Part),
}

impl Memory {
    fn start(&self) -> NonNull<u8> {
        match self {
            Self::Whole(raw) => raw.ptr,
            Self::Part(part) => part.at,
        }
    }
}

/// An aligned buffer, exclusively owned until it is frozen.
pub struct PoolBuf {
    /// `None` while it is dropped.
    memory: Option<Memory>,
    len: usize,
    /// Whether checksums are stored for it.
    checked: bool,
    shared: Arc<Shared>,
}

impl PoolBuf {
    fn of(memory: Memory, len: usize, shared: Arc<Shared>) -> Self {
        Self {
            memory: Some(memory),
            len,
            checked: false,
            shared,
        }
    }

    /// The address of its bytes; dangling without any.
    fn start(&self) -> NonNull<u8> {
        self.memory.as_ref().map_or(NonNull::dangling(), Memory::start)
    }

    /// Divides the buffer into parts that are filled one by one.
    pub fn divide(self) -> Divided {
        Divided::new(self)
    }

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

    /// As [`PoolBuf::freeze`], and stores the CRC-32C of each block of 4 KiB (the last one may be
    /// shorter) for [`crc`].
    pub fn freeze_checked(mut self, block_crcs: Vec<u32>) -> Bytes {
        debug_assert_eq!(block_crcs.len(), self.len.div_ceil(ALIGN));
        // Nobody asks for those of less.
        if self.len >= crc::MIN {
            self.checked = true;
            crc::note(&self, block_crcs);
        }
        self.freeze()
    }
}

impl Deref for PoolBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            // SAFETY: at least `len` initialised bytes are there and live as long as `self`.
            Some(memory) => unsafe { slice::from_raw_parts(memory.start().as_ptr(), self.len) },
            None => &[],
        }
    }
}

impl DerefMut for PoolBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &self.memory {
            // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
            Some(memory) => unsafe { slice::from_raw_parts_mut(memory.start().as_ptr(), self.len) },
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
        let Some(memory) = self.memory.take() else { return };
        if self.checked {
            crc::forget(memory.start().as_ptr().addr());
        }
        let Memory::Whole(raw) = memory else { return };
        let cap = raw.cap;
        // Before it goes to the shelf, so that a waiter finds room.
        self.shared.put_back(cap);
        let common = &self.shared.common;
        if cap <= KEEP_MAX && raw.file.is_none() {
            let mut shelf = common.shelf();
            if shelf.bytes + common.in_use.load(Ordering::SeqCst) + cap <= common.allowed() {
                shelf.put(raw);
            }
        }
    }
}

#[cfg(test)]
mod tests;
