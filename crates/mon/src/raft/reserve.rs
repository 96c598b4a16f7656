//! The file of a monitor's store, with room of its own, so that it can still grow on a full file
//! system.

use std::fs::File;
use std::io;
use std::ops::Bound;

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

/// Bytes that the file keeps allocated beyond its end. A small cluster's store has less than that
/// in all.
const RESERVE: u64 = 32 << 20;

/// A file whose whole length is allocated on disk, and more beyond its end for it to grow into.
#[derive(Debug)]
pub(super) struct ReservedFile {
    file: File,
    inner: FileBackend,
}

impl ReservedFile {
    /// The store in `file`. If the file system has no room for the reserve, there is none until it
    /// has.
    ///
    /// # Errors
    /// Where the file can't be locked or looked at, or has not the space for what it holds.
    pub(super) fn new(file: File) -> Result<Self, redb::DatabaseError> {
        let own = file.try_clone().map_err(redb::StorageError::Io)?;
        let store = Self {
            file: own,
            inner: FileBackend::new(file)?,
        };
        let len = store.inner.len().map_err(redb::StorageError::Io)?;
        store.hold(len).map_err(redb::StorageError::Io)?;
        Ok(store)
    }

    /// Allocates space for a file of `len` bytes, and for the reserve if there is any.
    fn hold(&self, len: u64) -> io::Result<()> {
        self.allocate(len + RESERVE).or_else(|e| {
            tracing::warn!("no space for the reserve of the monitor's store: {e}");
            self.allocate(len)
        })
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, len) {
            // Some file systems have nothing like that.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

impl StorageBackend for ReservedFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len < self.inner.len()? {
            // The reserve goes with the end.
            self.inner.set_len(len)?;
            return self.hold(len);
        }
        self.hold(len)?;
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_file_has_its_space_before_it_is_written_to() {
        let path = std::env::temp_dir().join(format!("spirula-reserve-{}", std::process::id()));
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true);
        let store = ReservedFile::new(file.open(&path).unwrap()).unwrap();
        let occupied = || path.metadata().unwrap().blocks() * 512;
        let check = |len: u64| {
            assert_eq!(store.len().unwrap(), len);
            assert!(occupied() >= len + RESERVE, "{} of {len}", occupied());
        };
        check(0);
        for len in [8 << 20, 1 << 20, 16 << 20] {
            store.set_len(len).unwrap();
            check(len);
        }
        store.write(5 << 20, b"abc").unwrap();
        let mut back = [1; 4];
        store.read(5 << 20, &mut back).unwrap();
        assert_eq!(&back, b"abc\0");
        std::fs::remove_file(&path).unwrap();
    }
}
