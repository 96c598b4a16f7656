//! A file or raw block device with direct I/O where it is possible.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use rustix::io::ReadWriteFlags;
use spirula_buf::{ALIGN, Pool};

use super::BlockIo;
use crate::config::BLOCK64;

/// Most buffers of one vectored write (the kernel's limit).
pub(super) const MAX_IOV: usize = 1024;

/// An open file or block device. All its methods may block.
#[derive(Debug)]
pub struct FileIo {
    file: File,
    /// The same, through the page cache.
    cached: File,
    size: u64,
}

impl FileIo {
    /// Opens an existing file or block device, for direct I/O if it takes that, and locks it against other stores.
    ///
    /// # Errors
    /// When it cannot be opened, it or a link to it belongs to another user, or another process has it open as a store.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, true)
    }

    /// As [`FileIo::open`], for reading only and without a lock.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open_read_only(path: &Path) -> io::Result<Self> {
        Self::open_with(path, false)
    }

    fn open_with(path: &Path, write: bool) -> io::Result<Self> {
        if write {
            spirula_files::check_link(path)?;
        }
        // A block device is claimed, as by a mount: nobody can make a file system on it meanwhile.
        let claim = if write && is_block_device(path) {
            libc::O_EXCL
        } else {
            0
        };
        let open = |flags| {
            OpenOptions::new()
                .read(true)
                .write(write)
                .custom_flags(flags)
                .open(path)
        };
        let mut file = patiently(|| match open(libc::O_DIRECT | claim) {
            // Some filesystems refuse direct I/O: the page cache and `fdatasync` then do.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => open(claim),
            other => other,
        })?;
        if write {
            spirula_files::keep(&file, path)?;
            lock(&file)?;
        }
        let size = file.seek(SeekFrom::End(0))?;
        let cached = open(0)?;
        Ok(Self {
            file,
            cached,
            size: size / BLOCK64 * BLOCK64,
        })
    }

    /// Creates a file of `size` bytes (without allocating its blocks) that nobody else may read, or checks that a block device has that many.
    ///
    /// # Errors
    /// When it cannot be created, or the device is smaller.
    pub fn create(path: &Path, size: u64) -> io::Result<Self> {
        spirula_files::check_link(path)?;
        if !is_block_device(path) {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(path)?;
            spirula_files::keep(&file, path)?;
            lock(&file)?;
            file.set_len(size / BLOCK64 * BLOCK64)?;
            file.sync_all()?;
        }
        let mut io = Self::open(path)?;
        if io.size < size / BLOCK64 * BLOCK64 {
            return Err(io::Error::other(format!(
                "{} has only {} bytes",
                path.display(),
                io.size
            )));
        }
        if size > 0 {
            io.size = size / BLOCK64 * BLOCK64;
        }
        Ok(io)
    }

    pub(super) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Writes all buffers in order.
    pub(super) fn write_vectored(&self, mut offset: u64, bufs: &[Bytes], durable: bool) -> io::Result<()> {
        let flags = if durable {
            ReadWriteFlags::DSYNC
        } else {
            ReadWriteFlags::empty()
        };
        for part in bufs.chunks(MAX_IOV) {
            let mut slices: Vec<IoSlice<'_>> = part.iter().map(|b| IoSlice::new(b)).collect();
            let mut rest = &mut slices[..];
            while !rest.is_empty() {
                let n = match rustix::io::pwritev2(&self.file, rest, offset, flags) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(n) => n,
                    Err(rustix::io::Errno::INTR) => continue,
                    Err(e) => return Err(e.into()),
                };
                offset += n as u64;
                IoSlice::advance_slices(&mut rest, n);
            }
        }
        Ok(())
    }
}

fn is_block_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.file_type().is_block_device())
}

/// Locks the file.
fn lock(file: &File) -> io::Result<()> {
    patiently(|| match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::ResourceBusy.into()),
        Err(TryLockError::Error(e)) => Err(e),
        Ok(()) => Ok(()),
    })
}

/// Tries again for a second what somebody else keeps from succeeding: a process that was killed may hold a file until the
/// kernel has ended its I/O.
fn patiently<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..100 {
        match attempt() {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => thread::sleep(Duration::from_millis(10)),
            other => return other,
        }
    }
    attempt()
}

fn aligned(data: &[u8]) -> bool {
    data.as_ptr().addr().is_multiple_of(ALIGN)
}

impl BlockIo for FileIo {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if aligned(buf) {
            return self.file.read_exact_at(buf, offset);
        }
        let mut bounce = Pool::new(0).get(buf.len());
        self.file.read_exact_at(&mut bounce, offset)?;
        buf.copy_from_slice(&bounce);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if aligned(data) {
            return self.file.write_all_at(data, offset);
        }
        let mut bounce = Pool::new(0).get(data.len());
        bounce.copy_from_slice(data);
        self.file.write_all_at(&bounce, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// A [`FileIo`] seen through the page cache.
#[derive(Debug)]
pub struct CachedIo(pub Arc<FileIo>);

impl BlockIo for CachedIo {
    fn size(&self) -> u64 {
        self.0.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.cached.read_exact_at(buf, offset)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.cached.write_all_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.cached.sync_data()
    }
}
