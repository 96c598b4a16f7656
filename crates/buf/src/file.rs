//! Buffers in files, for payloads that are larger than the available memory.
//!
//! Such a file has no name and is mapped. Its pages belong to the system's cache, which takes them
//! back where memory is short; they cost a disk nothing if the buffer is freed soon. Only pages
//! that were just touched count for the process: a thread that has gone through a part of such a
//! buffer unmaps its pages, and a background thread does so for all others every few milliseconds.
//! The next access maps them again.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::FallocateFlags;

use crate::map;

/// Buffers in files, address and length. They stay mapped while this is locked.
static MAPPED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
/// The number of buffers in files.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn mapped() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    MAPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file system must have this many times the space free: stores on it must not become full.
const FREE: u64 = 8;
/// How often the process unmaps touched pages.
const LET_GO: Duration = Duration::from_millis(2);
/// The stack of the thread that does so, in bytes.
const STACK: usize = 64 << 10;

/// A mapped file without a name.
pub(crate) struct Filed {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its mapping exclusively; nothing in it is tied to a thread.
unsafe impl Send for Filed {}
// SAFETY: shared access only tells the address.
unsafe impl Sync for Filed {}

impl Filed {
    /// `len` zeroed bytes, page-aligned, in a file in `dir`. Space for all of it is taken at once,
    /// as the system ends a process that touches a page for which there is none.
    ///
    /// # Errors
    /// Where the file system has no files without names, cannot take space ahead or has little; no
    /// thread.
    pub(crate) fn new(dir: &Path, len: usize) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_TMPFILE)
            .open(dir)?;
        let fs = rustix::fs::fstatvfs(&file)?;
        if fs.f_bavail.saturating_mul(fs.f_frsize) / FREE < len as u64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len as u64)?;
        let at = map::shared(&file, len)?;
        let filed = Self { at, len };
        let at = at.as_ptr().addr();
        mapped().insert(at, len);
        COUNT.fetch_add(1, Ordering::Relaxed);
        std::thread::Builder::new()
            .name("large buffer".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                while mapped().contains_key(&at) {
                    let_go();
                    std::thread::sleep(LET_GO);
                }
            })?;
        Ok(filed)
    }

    /// The address of the mapping.
    pub(crate) fn at(&self) -> NonNull<u8> {
        self.at
    }
}

impl Drop for Filed {
    fn drop(&mut self) {
        let mut mapped = mapped();
        mapped.remove(&self.at.as_ptr().addr());
        COUNT.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: mapped in `new` with this length, and unmapped once; others use the address only
        // while it is among `mapped`.
        unsafe { map::unmap(self.at, self.len) };
    }
}

/// Unmaps the pages of all buffers in files. To be called after going through a few MiB of a buffer
/// that may be in a file; costs next to nothing if there is none.
pub fn let_go() {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    for (at, len) in mapped().iter() {
        // SAFETY: it is mapped as long as the lock is held. Its pages stay in the file, so that
        // concurrent readers and writers, the kernel included, find them again.
        unsafe { libc::madvise(std::ptr::without_provenance_mut(*at), *len, libc::MADV_DONTNEED) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_let_go_of_is_still_there() {
        let len = 8 << 20;
        let filed = Filed::new(&std::env::temp_dir(), len).unwrap();
        // SAFETY: `len` bytes are mapped there, which nobody else uses.
        let bytes = unsafe { std::slice::from_raw_parts_mut(filed.at().as_ptr(), len) };
        assert!(bytes.iter().all(|b| *b == 0));
        for (i, b) in bytes.iter_mut().enumerate() {
            *b = (i % 251) as u8;
        }
        let resident = || {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let at = format!("{:x}-", filed.at().as_ptr().addr());
            let of = maps.lines().skip_while(|l| !l.starts_with(&at));
            let rss = of.into_iter().find(|l| l.starts_with("Rss:")).unwrap();
            rss.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
        };
        while resident() > 0 {
            std::thread::sleep(LET_GO);
        }
        assert!(bytes.iter().enumerate().all(|(i, b)| *b == (i % 251) as u8));
    }

    #[test]
    fn a_place_without_files_is_an_error() {
        assert!(Filed::new(Path::new("/proc/self"), 1 << 20).is_err());
        let full = Filed::new(&std::env::temp_dir(), 1 << 50).err().unwrap();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }
}
