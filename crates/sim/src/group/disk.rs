//! The disk of a member's store: a simulated disk, with a gate that closes when the process ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;
use spirula_store::device::{BlockIo, SimDisk};

/// The state of a process's access to its disk.
#[derive(Debug, Default)]
pub(super) struct Fate {
    dead: AtomicBool,
    failed: AtomicBool,
}

impl Fate {
    /// Notes that the process has ended: operations of its remaining tasks don't reach the disk.
    pub(super) fn end(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    /// Whether an operation has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// The file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) disk: SimDisk,
    pub(super) fate: Arc<Fate>,
}

impl File {
    fn with<T>(&self, f: impl FnOnce(&SimDisk) -> io::Result<T>) -> io::Result<T> {
        if self.fate.dead.load(Ordering::Relaxed) || self.disk.is_cut() {
            return Err(io::Error::other("the process has ended"));
        }
        let done = f(&self.disk);
        if done.is_err() {
            self.fate.failed.store(true, Ordering::Relaxed);
        }
        done
    }
}

impl StorageBackend for File {
    fn len(&self) -> io::Result<u64> {
        self.with(|d| Ok(d.size()))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|d| d.read_at(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        self.with(|d| {
            d.set_len(len);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(BlockIo::sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(|d| d.write_at(offset, data))
    }
}
