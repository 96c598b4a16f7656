//! A file or raw block device with direct I/O where it is possible.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::{Advice, FallocateFlags, SeekFrom as Seek};
use rustix::io::{Errno, ReadWriteFlags};
use spirula_buf::{ALIGN, Pool};

use super::{BlockIo, Way};
use crate::config::BLOCK64;

/// Most buffers of one vectored write (the kernel's limit).
pub(super) const MAX_IOV: usize = 1024;

/// An open file or block device. All its methods may block.
#[derive(Debug)]
pub struct FileIo {
    file: File,
    /// The same file, through the page cache.
    cached: File,
    /// The same, without the system's read-ahead: reads take just what they ask for into the page
    /// cache. `None` if the kernel cannot read without blocking here.
    kept: Option<File>,
    size: u64,
    is_device: bool,
}

impl FileIo {
    /// Opens an existing file or block device, for direct I/O if it supports that, and locks it
    /// against other stores.
    ///
    /// # Errors
    /// When it cannot be opened, it or a link to it belongs to another user, or another process has
    /// it open as a store.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, true)
    }

    /// As [`FileIo::open`], for reading only, with a lock that keeps stores from changing it
    /// meanwhile.
    ///
    /// # Errors
    /// When it cannot be opened, or a process has it open as a store.
    pub fn open_unchanging(path: &Path) -> io::Result<Self> {
        let io = Self::open_with(path, false)?;
        patiently(|| locked(io.file.try_lock_shared()))?;
        Ok(io)
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
        let file = patiently(|| match open(libc::O_DIRECT | claim) {
            // Some filesystems refuse direct I/O: the page cache and `fdatasync` then do.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => open(claim),
            other => other,
        })?;
        if write {
            spirula_files::keep(&file, path)?;
            lock(&file)?;
        }
        let size = rustix::fs::seek(&file, Seek::End(0))?;
        let cached = open(0)?;
        Ok(Self {
            file,
            kept: open_kept(open(0)?),
            cached,
            size: size / BLOCK64 * BLOCK64,
            is_device: is_block_device(path),
        })
    }

    /// Creates a file of `size` bytes (without allocating its blocks) that nobody else may read, or
    /// checks that a block device has that many.
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
        let needed = size / BLOCK64 * BLOCK64;
        if io.size < needed {
            return Err(io::Error::other(format!(
                "{} has only {} bytes, and {needed} are needed",
                path.display(),
                io.size
            )));
        }
        if size > 0 {
            io.size = needed;
        }
        Ok(io)
    }

    /// The descriptor for reads of this way.
    pub(super) fn fd_for(&self, way: Way) -> RawFd {
        self.file_for(way).as_raw_fd()
    }

    fn file_for(&self, way: Way) -> &File {
        match (way, &self.kept) {
            (Way::Cached, Some(kept)) => kept,
            _ => &self.file,
        }
    }

    /// Fills `buf` from the way's file.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8], way: Way) -> io::Result<()> {
        self.file_for(way).read_exact_at(buf, offset)
    }

    /// Fills `buf` from the page cache, if that has all of it.
    pub(super) fn read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        let Some(kept) = &self.kept else { return false };
        read_without_blocking(kept, offset, buf).is_ok_and(|n| n == buf.len())
    }

    /// Lets the page cache forget a part.
    pub(super) fn drop_cached(&self, part: Range<u64>) {
        if let (Some(kept), Some(len)) = (&self.kept, NonZeroU64::new(part.end - part.start)) {
            // An advice: there is nothing to do when it is not taken.
            let _ = rustix::fs::fadvise(kept, part.start, Some(len), Advice::DontNeed);
        }
    }

    /// Does what the kernel leaves undone after a direct write: it drops the pages of a block
    /// device only before an asynchronous write, so that another process that reads the device
    /// meanwhile may bring back old contents. Of files it drops them after the write, too.
    pub(super) fn written(&self, part: Range<u64>) {
        if self.is_device {
            self.drop_cached(part);
        }
    }

    /// Writes all buffers in order.
    pub(super) fn write_vectored(&self, offset: u64, bufs: &[Bytes], durable: bool) -> io::Result<()> {
        let flags = if durable {
            ReadWriteFlags::DSYNC
        } else {
            ReadWriteFlags::empty()
        };
        let written = write_all(offset, bufs, |at, slices| {
            rustix::io::pwritev2(&self.file, slices, at, flags)
        });
        match written {
            // Emulators and some sandboxes lack the call, and some file systems the flag.
            Err(Errno::NOSYS | Errno::OPNOTSUPP) => self.write_then_sync(offset, bufs, durable),
            other => Ok(other?),
        }
    }

    /// As [`FileIo::write_vectored`], for kernels that cannot write durably in one step.
    fn write_then_sync(&self, offset: u64, bufs: &[Bytes], durable: bool) -> io::Result<()> {
        write_all(offset, bufs, |at, slices| {
            rustix::io::pwritev(&self.file, slices, at)
        })?;
        match durable {
            true => self.file.sync_data(),
            false => Ok(()),
        }
    }
}

/// Prepares a file for reads through the page cache; `None` if the kernel cannot say without
/// blocking what the page cache has.
fn open_kept(file: File) -> Option<File> {
    let tried = read_without_blocking(&file, 0, &mut [0]);
    if matches!(tried, Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)) {
        return None;
    }
    rustix::fs::fadvise(&file, 0, None, Advice::Random).ok()?;
    Some(file)
}

fn read_without_blocking(file: &File, offset: u64, buf: &mut [u8]) -> Result<usize, Errno> {
    let mut slices = [IoSliceMut::new(buf)];
    rustix::io::preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT)
}

/// Calls `write` with an offset and buffers until all of them are written.
fn write_all(
    mut offset: u64,
    bufs: &[Bytes],
    write: impl Fn(u64, &[IoSlice<'_>]) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    for part in bufs.chunks(MAX_IOV) {
        let mut slices: Vec<IoSlice<'_>> = part.iter().map(|b| IoSlice::new(b)).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let n = match write(offset, rest) {
                // Nothing is taken, and nothing would be.
                Ok(0) => return Err(Errno::IO),
                Ok(n) => n,
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e),
            };
            offset += n as u64;
            IoSlice::advance_slices(&mut rest, n);
        }
    }
    Ok(())
}

fn is_block_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.file_type().is_block_device())
}

/// Locks the file.
fn lock(file: &File) -> io::Result<()> {
    patiently(|| locked(file.try_lock()))
}

fn locked(attempt: Result<(), TryLockError>) -> io::Result<()> {
    attempt.map_err(|e| match e {
        TryLockError::WouldBlock => io::ErrorKind::ResourceBusy.into(),
        TryLockError::Error(e) => e,
    })
}

/// The process that has `path` open as a store, from the kernel's list; `None` if there is none, or
/// it can't be seen from here.
pub fn holder(path: &Path) -> Option<u32> {
    let meta = path.metadata().ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let place = format!(
        "{:02x}:{:02x}:{}",
        rustix::fs::major(meta.dev()),
        rustix::fs::minor(meta.dev()),
        meta.ino()
    );
    locks.lines().find_map(|line| holds(line, &place))
}

/// The process in a line such as `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`, if it writes at
/// `place`. Processes that wait for the lock have an arrow behind the number.
fn holds(line: &str, place: &str) -> Option<u32> {
    let mut fields = line.split_whitespace().skip(1);
    let kind = [fields.next()?, fields.next()?, fields.next()?];
    let pid = fields.next()?.parse().ok()?;
    (kind == ["FLOCK", "ADVISORY", "WRITE"] && pid > 0 && fields.next() == Some(place)).then_some(pid)
}

/// Repeats an attempt for a second while another process makes it fail: a killed process may hold a
/// file until the kernel has ended its I/O.
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

    fn is_sparse(&self) -> bool {
        !self.is_device
    }

    fn holes(&self) -> io::Result<Vec<Range<u64>>> {
        let mut holes = Vec::new();
        let mut at = 0;
        while !self.is_device && at < self.size {
            let start = match rustix::fs::seek(&self.file, Seek::Hole(at)) {
                Ok(start) if start < self.size => start,
                // The end of the file counts as a hole. Some file systems know of no holes.
                Ok(_) | Err(Errno::INVAL | Errno::OPNOTSUPP) => break,
                Err(e) => return Err(e.into()),
            };
            at = match rustix::fs::seek(&self.file, Seek::Data(start)) {
                Ok(end) => end.min(self.size),
                Err(Errno::NXIO) => self.size,
                Err(e) => return Err(e.into()),
            };
            holes.push(start..at);
        }
        Ok(holes)
    }

    fn allocate(&self, part: Range<u64>) -> io::Result<()> {
        if self.is_device {
            return Ok(());
        }
        loop {
            let flags = FallocateFlags::KEEP_SIZE;
            match rustix::fs::fallocate(&self.file, flags, part.start, part.end - part.start) {
                Err(Errno::INTR) => {}
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn discard(&self, part: Range<u64>) -> io::Result<()> {
        if self.is_device {
            return super::discard::discard(&self.file, &part);
        }
        let flags = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
        Ok(rustix::fs::fallocate(
            &self.file,
            flags,
            part.start,
            part.end - part.start,
        )?)
    }
}

/// A [`FileIo`] accessed through the page cache.
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

    fn is_sparse(&self) -> bool {
        self.0.is_sparse()
    }

    fn holes(&self) -> io::Result<Vec<Range<u64>>> {
        self.0.holes()
    }

    fn allocate(&self, part: Range<u64>) -> io::Result<()> {
        self.0.allocate(part)
    }

    fn discard(&self, part: Range<u64>) -> io::Result<()> {
        self.0.discard(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_locks() {
        let place = "fe:00:1234";
        let pid = |line| holds(line, place);
        assert_eq!(pid("1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF"), Some(4711));
        for other in [
            "1: -> FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF",
            "1: FLOCK  ADVISORY  READ 4711 fe:00:1234 0 EOF",
            "1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 4711 fe:00:12345 0 EOF",
            "1: FLOCK  ADVISORY  WRITE 0 fe:00:1234 0 EOF",
            "",
        ] {
            assert_eq!(pid(other), None, "{other}");
        }
    }

    #[test]
    fn a_store_that_is_open_is_not_looked_at() {
        let path = std::env::temp_dir().join(format!("spirula-holder-{}", std::process::id()));
        let open = FileIo::create(&path, 1 << 20).unwrap();
        let refused = FileIo::open_unchanging(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(holder(&path), Some(std::process::id()));
        drop(open);
        let looking = FileIo::open_unchanging(&path).unwrap();
        assert_eq!(holder(&path), None);
        assert!(FileIo::open_unchanging(&path).is_ok(), "several may look");
        assert!(FileIo::open(&path).is_err(), "nobody changes it meanwhile");
        drop(looking);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn both_ways_to_write_durably_write_the_same() {
        let path = std::env::temp_dir().join(format!("spirula-writes-{}", std::process::id()));
        let file = FileIo::create(&path, 1 << 20).unwrap();
        let bufs: Vec<Bytes> = (1..=3)
            .map(|n: u8| {
                let mut buf = Pool::new(0).get(usize::from(n) * ALIGN);
                buf.fill(n);
                buf.freeze()
            })
            .collect();
        let whole = bufs.concat();
        file.write_vectored(0, &bufs, true).unwrap();
        file.write_then_sync(1 << 16, &bufs, true).unwrap();
        for offset in [0, 1 << 16] {
            let mut back = vec![0; whole.len()];
            file.read_at(offset, &mut back).unwrap();
            assert!(back == whole, "{offset}");
        }
        std::fs::remove_file(&path).unwrap();
    }
}
