//! An allocator that counts the memory of each thread. The replay test and the fuzz programs
//! install it.
#![allow(
    unsafe_code,
    reason = "the allocator interface is unsafe; every call is passed on as it came"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Constants without destructors: reading them allocates nothing, at any time in a thread's
    // life.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counted. To be installed with `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

fn count(change: isize) {
    LIVE.with(|live| {
        live.set(live.get() + change);
        PEAK.with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call goes to the system's allocator with its own arguments, and counting neither
// allocates nor unwinds. So the requirements of `GlobalAlloc` hold because they hold for `System`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: `ptr` came from `System` with this layout, by the caller's contract and the
        // methods here.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Both may exist while the contents move.
        count(new_size.cast_signed());
        count(-layout.size().cast_signed());
        // SAFETY: as in `dealloc`, and `new_size` is the caller's.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

/// The most bytes that `f` had allocated at one time, on this thread; 0 where [`Counting`] is not
/// installed.
pub(crate) fn peak_of(f: impl FnOnce()) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    f();
    usize::try_from(PEAK.get() - before).unwrap_or(0)
}
