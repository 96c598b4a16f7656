//! The allocator of the process, and how it returns free memory to the system.

// The crate passes the allocator on, but not this function of it.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_long};

// A tenth of an OSD's time went to the C library's allocator, which also keeps more of the freed
// memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of the option `arena_max_object_size` in mimalloc 3.3 (`mi_option_t` of its
/// `mimalloc.h`): allocations of more KiB than this come from the system, and go back to it when
/// they are freed.
const ARENA_MAX_OBJECT_SIZE: c_int = 45;
/// Allocations of this size are rare: requests with large values, the index's copies of them, and
/// pieces of the store's arena.
const LARGE_KIB: c_long = 1024;

unsafe extern "C" {
    /// Sets an option ([`mimalloc.h`](https://microsoft.github.io/mimalloc/group__options.html)).
    fn mi_option_set(option: c_int, value: c_long);
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

/// Makes large allocations come from the system and go back to it when they are freed: for daemons
/// with a bound on their memory.
pub(crate) fn return_large() {
    // SAFETY: sets a number that is read at each allocation.
    unsafe { mi_option_set(ARENA_MAX_OBJECT_SIZE, LARGE_KIB) }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
    }

    /// The number is that of another option, or the library has changed what it means.
    #[test]
    fn what_is_large_goes_back_at_once() {
        // SAFETY: reads a number.
        let before = unsafe { mi_option_get(ARENA_MAX_OBJECT_SIZE) };
        assert_eq!(before, 2 << 20, "2 GiB by default");
        return_large();
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap();
            line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
        };
        let large = vec![1u8; 64 << 20];
        let with = resident();
        drop(large);
        let without = resident();
        assert!(without + (48 << 20) < with, "{without} of {with} are left");
    }
}
