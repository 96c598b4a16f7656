//! Memory straight from the system, for large buffers.
//!
//! Huge pages matter for direct I/O: a read of 4 MiB into small pages is a thousand scattered
//! pieces, which the kernel splits into several requests (a virtual disk takes 254 pieces) and the
//! device or the hypervisor handles one by one. On a virtual disk `fio` read three times as fast
//! into huge pages. So buffers that can hold a huge page get huge pages, wherever the kernel lets a
//! process ask for them.
//!
//! The rest of the process does without, as an allocator's memory grows by half with them; see
//! `PR_SET_THP_DISABLE` in prctl(2).

use std::alloc::{Layout, handle_alloc_error};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// A huge page of x86-64, and of aarch64 with pages of 4 KiB. Elsewhere the alignment does no harm
/// and the advice has no effect.
const HUGE: usize = 2 << 20;
/// From Linux 6.18: mappings that are advised to get huge pages; they do in spite of
/// `PR_SET_THP_DISABLE`.
const PR_THP_DISABLE_EXCEPT_ADVISED: libc::c_ulong = 2;

/// `cap` zeroed bytes, page-aligned; if they can hold a huge page, aligned to one and made of huge
/// pages.
pub(crate) fn map(cap: usize) -> NonNull<u8> {
    if cap < HUGE {
        return anonymous(cap);
    }
    // The kernel chooses the address: the pages outside the aligned part are unmapped again.
    let Some(whole) = cap.checked_add(HUGE) else {
        out_of_memory(cap)
    };
    let start = anonymous(whole);
    let head = start.as_ptr().align_offset(HUGE);
    // SAFETY: `head` is less than `HUGE`, so both pointers lie within or at the end of the mapping.
    let (at, end) = unsafe { (start.add(head), start.add(head + cap)) };
    // SAFETY: the parts before and after what is handed out; nobody has seen them.
    unsafe {
        unmap(start, head);
        unmap(end, HUGE - head);
    }
    advise(at, cap);
    at
}

/// Maps the first `len` bytes of a file, shared with other mappings.
///
/// # Errors
/// The system's error.
pub(crate) fn shared(file: &File, len: usize) -> io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            access,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    match NonNull::new(at.cast::<u8>()) {
        Some(at) if at.as_ptr().cast() != libc::MAP_FAILED => Ok(at),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Unmaps memory from [`map`] or [`shared`], or a part of it, in whole pages; does nothing for an
/// empty part.
///
/// # Safety
/// `len` bytes from `at` belong to the caller's mapping, and are not used again.
pub(crate) unsafe fn unmap(at: NonNull<u8>, len: usize) {
    if len > 0 {
        // SAFETY: what the caller promises.
        let done = unsafe { libc::munmap(at.as_ptr().cast(), len) };
        debug_assert_eq!(done, 0, "munmap of what was mapped");
    }
}

fn anonymous(len: usize) -> NonNull<u8> {
    let (access, kind) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in use.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
    match NonNull::new(at.cast::<u8>()) {
        Some(at) if at.as_ptr().cast() != libc::MAP_FAILED => at,
        _ => out_of_memory(len),
    }
}

fn out_of_memory(len: usize) -> ! {
    match Layout::from_size_align(len, crate::ALIGN) {
        Ok(layout) => handle_alloc_error(layout),
        // Only a capacity near usize::MAX gets here, and callers bound theirs.
        Err(_) => std::process::abort(),
    }
}

/// How this process gets huge pages for its buffers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    /// The advice suffices.
    Ask,
    /// They are off for the process, and this kernel knows no exception: they are switched on while
    /// the memory is filled.
    Switch,
}

fn policy() -> Policy {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    *POLICY.get_or_init(|| {
        if thp(libc::PR_GET_THP_DISABLE, 0, 0) != 1
            || thp(libc::PR_SET_THP_DISABLE, 1, PR_THP_DISABLE_EXCEPT_ADVISED) == 0
        {
            Policy::Ask
        } else {
            Policy::Switch
        }
    })
}

/// Asks whether huge pages are off for the process, or sets it. -1 if the kernel does not support
/// that.
fn thp(option: libc::c_int, off: libc::c_ulong, flags: libc::c_ulong) -> libc::c_int {
    let none: libc::c_ulong = 0;
    // SAFETY: these options of prctl take numbers only.
    unsafe { libc::prctl(option, off, flags, none, none) }
}

/// Asks for huge pages. Without effect where the system has none.
fn advise(at: NonNull<u8>, len: usize) {
    // SAFETY: advice about a mapping of our own; populating it writes zeros into what is zero.
    let madvise = |advice| unsafe { libc::madvise(at.as_ptr().cast(), len, advice) };
    madvise(libc::MADV_HUGEPAGE);
    if policy() == Policy::Switch {
        thp(libc::PR_SET_THP_DISABLE, 0, 0);
        madvise(libc::MADV_POPULATE_WRITE);
        thp(libc::PR_SET_THP_DISABLE, 1, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_mappings_start_at_a_huge_page_and_go_back_whole() {
        for cap in [4096, HUGE - 4096, HUGE, HUGE + 4096, 2 * HUGE + (64 << 10)] {
            let at = map(cap);
            if cap >= HUGE {
                assert_eq!(at.as_ptr().addr() % HUGE, 0);
            }
            // SAFETY: the first and the last byte of what was mapped, which then goes back.
            unsafe {
                assert_eq!((at.read(), at.add(cap - 1).read()), (0, 0));
                at.write(1);
                at.add(cap - 1).write(1);
                unmap(at, cap);
            }
        }
    }
}
