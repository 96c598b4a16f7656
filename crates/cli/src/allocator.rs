//! The allocator of the process, and how it gives back what is free.

// The crate passes the allocator on, but not this function of it.
#![allow(unsafe_code)]

// A tenth of an OSD's time went to the C library's allocator, which also keeps more of what was freed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

unsafe extern "C" {
    /// Gives free memory back: of the calling thread's pages those that are empty and, with `force`, what the whole process has
    /// free ([`mimalloc.h`](https://microsoft.github.io/mimalloc/group__extended.html)).
    fn mi_collect(force: bool);
}

/// Gives the system back what is free: the allocator itself does so only when it is called a second later, so a process that is idle
/// keeps it. Takes about a millisecond.
pub(crate) fn give_back() {
    // SAFETY: changes nothing that is allocated; any thread may call it at any time.
    unsafe { mi_collect(true) }
}
