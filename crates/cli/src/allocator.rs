//! The allocator of the process, and how it returns free memory to the system.

// An allocator is made of unsafe functions. The crate of one passes on what the program needs, but
// not the function that returns free memory.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

use mimalloc::MiMalloc;

/// Allocations of this many bytes and more are rare: requests with large values, the index's copies
/// of them, and pieces of the store's arena.
const LARGE: usize = 1 << 20;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// mimalloc for small memory: a tenth of an OSD's time went to the C library's allocator, which also
/// keeps more of the freed memory. The C library's allocator for large memory, which comes from the
/// system and goes back to it: mimalloc 3.3 maps each at a new address, and keeps 64 KiB for every
/// 512 MiB of addresses that it has ever used.
struct Allocator;

// SAFETY: each size has one allocator, and a caller frees memory with the size that it has asked for.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        match layout.size() < LARGE {
            true => unsafe { MiMalloc.alloc(layout) },
            false => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        match layout.size() < LARGE {
            true => unsafe { MiMalloc.alloc_zeroed(layout) },
            false => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller says; the memory is from this allocator.
        match layout.size() < LARGE {
            true => unsafe { MiMalloc.dealloc(memory, layout) },
            false => unsafe { System.dealloc(memory, layout) },
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller says; the memory is from this allocator and stays there.
        match (layout.size() < LARGE, size < LARGE) {
            (true, true) => return unsafe { MiMalloc.realloc(memory, layout, size) },
            (false, false) => return unsafe { System.realloc(memory, layout, size) },
            _ => {}
        }
        // SAFETY: the caller gives a size that a layout may have with this alignment.
        let to = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: neither size is zero, as one of them is large and the caller gives no other. Both
        // memories have as many bytes as are copied, and the new memory is not the old one.
        unsafe {
            let new = self.alloc(to);
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(memory, new, layout.size().min(size));
                self.dealloc(memory, layout);
            }
            new
        }
    }
}

unsafe extern "C" {
    /// Frees the empty pages of the calling thread and, with `force`, all free memory of the
    /// process ([`mimalloc.h`](https://microsoft.github.io/mimalloc/group__extended.html)).
    fn mi_collect(force: bool);
}

/// Returns free memory to the system: the allocator only does so when it is called a second later,
/// so an idle process would keep it. Takes about a millisecond.
pub(crate) fn give_back() {
    // SAFETY: changes nothing that is allocated; any thread may call it at any time.
    unsafe { mi_collect(true) }
}

/// Makes all large memory go back to the system as soon as it is freed: for daemons with a bound on
/// their memory. Without it, glibc begins to keep memory of sizes that are freed again and again
/// ([mallopt(3)](https://man7.org/linux/man-pages/man3/mallopt.3.html)); musl never does.
pub(crate) fn return_large() {
    #[cfg(target_env = "gnu")]
    {
        const THRESHOLD: libc::c_int = LARGE as libc::c_int;
        // SAFETY: sets numbers that are read at each allocation.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, THRESHOLD);
            // Threads need none of their own, as all memory is mapped.
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process' memory that is in no file, in bytes.
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    #[test]
    fn what_is_large_goes_back_at_once_and_leaves_nothing() {
        return_large();
        for _ in 0..3 {
            let large = vec![1u8; 64 << 20];
            let with = resident();
            drop(large);
            let without = resident();
            assert!(without + (48 << 20) < with, "{without} of {with} are left");
        }
        let before = resident();
        for _ in 0..20_000 {
            drop(std::hint::black_box(Vec::<u8>::with_capacity(8 << 20)));
        }
        let after = resident();
        assert!(after < before + (8 << 20), "{before} have become {after}");
    }

    #[test]
    fn memory_that_becomes_large_or_small_keeps_its_content() {
        let content = |len: usize| (0..len).map(|i| (i / 7) as u8);
        let mut grown: Vec<u8> = Vec::with_capacity(1);
        for len in [10, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE] {
            grown.reserve_exact(len - grown.len());
            grown.extend(content(len).skip(grown.len()));
            assert!(grown.iter().copied().eq(content(len)), "{len}");
        }
        for len in [2 * LARGE, LARGE, LARGE - 1, 5] {
            grown.truncate(len);
            grown.shrink_to_fit();
            assert!(grown.iter().copied().eq(content(len)), "{len}");
        }
        let zeroed = vec![0u8; 2 * LARGE];
        assert!(zeroed.iter().all(|b| *b == 0));
    }
}
