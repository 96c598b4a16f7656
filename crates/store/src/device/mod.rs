//! Block I/O behind a trait: io_uring, a pool of threads, or a simulated disk.

mod deferred;
mod discard;
mod encrypted;
mod file;
mod pool;
mod sim;
mod uring;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use spirula_buf::PoolBuf;

pub(crate) use encrypted::{EncryptedDevice, EncryptedIo};
pub use file::{CachedIo, FileIo, holder};
pub use pool::PoolDevice;
pub use sim::{Fault, SimDevice, SimDisk};
pub use uring::UringDevice;

use crate::notify::Notify;

/// An asynchronous block device, owned by one thread.
///
/// Offsets and lengths are multiples of 4 KiB. Operations are only ordered by the owner's waiting:
/// a write is durable once a flush that was queued after its completion has completed, or if it was
/// `durable` itself.
pub trait Device {
    /// Size in bytes.
    fn size(&self) -> u64;
    /// Accepts an operation. It may start at once or at the next [`Device::kick`].
    fn queue(&mut self, io: Io);
    /// Starts the queued operations. Does not block.
    fn kick(&mut self);
    /// Takes the completions so far.
    fn reap(&mut self, out: &mut Vec<Done>);
    /// The same device for threads that may block.
    fn blocking(&self) -> Arc<dyn BlockIo>;
    /// As [`Device::blocking`], through the system's page cache if there is one: for the index,
    /// whose pages are worth keeping in otherwise free memory. Not to be mixed with the others on
    /// the same blocks.
    fn cached(&self) -> Arc<dyn BlockIo> {
        self.blocking()
    }
    /// Fills `buf` with what the system's page cache has of the device, if it has all of it, and
    /// says whether. Does not block. If not, the buffer may be filled in part.
    ///
    /// The bytes are those that the device holds, unless something other than this device's owner
    /// reads the blocks through the page cache while they are written.
    fn read_cached(&mut self, _offset: u64, _buf: &mut [u8]) -> bool {
        false
    }
    /// Makes the page cache let go of a part of the device.
    fn drop_cached(&mut self, _part: Range<u64>) {}
}

/// A block device for callers that may block: the index and the opening of a store.
///
/// Offsets and lengths are multiples of 4 KiB.
pub trait BlockIo: fmt::Debug + Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;
    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// The device's error; also if the device ends early.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// The device's error.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Makes all completed writes durable.
    ///
    /// # Errors
    /// The device's error; earlier writes may be lost then.
    fn sync(&self) -> io::Result<()>;
    /// Whether unwritten parts occupy no space below, as in a sparse file.
    fn is_sparse(&self) -> bool {
        false
    }
    /// Parts that occupy no space below, in bytes, ascending.
    ///
    /// # Errors
    /// What the file system says.
    fn holes(&self) -> io::Result<Vec<Range<u64>>> {
        Ok(Vec::new())
    }
    /// Takes the space of a part from below, so that writing there can't fail for lack of it.
    /// Contents stay as they are.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`], or the file system's error. None if there is nothing to
    /// take, or it is not supported.
    fn allocate(&self, _part: Range<u64>) -> io::Result<()> {
        Ok(())
    }
    /// Gives the space of a part back below. Its contents are lost: reads return zeros, or the old
    /// contents.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if that is not possible, or the device's error.
    fn discard(&self, _part: Range<u64>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The way of a read to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Past the system's page cache: what is read once leaves no trace.
    Direct,
    /// Through the system's page cache, where it stays while memory is free.
    Cached,
}

/// One operation.
#[derive(Debug)]
pub struct Io {
    /// Returned with the completion.
    pub tag: u64,
    /// The kind of operation.
    pub kind: IoKind,
}

/// The kind of an [`Io`]. Buffers belong to the device until the completion.
pub enum IoKind {
    /// Fills the buffer from an offset.
    Read {
        /// The offset in bytes.
        offset: u64,
        /// The buffer, returned with the completion.
        buf: PoolBuf,
        /// Past the page cache, or through it.
        way: Way,
    },
    /// Writes buffers one after the other.
    Write {
        /// The offset in bytes.
        offset: u64,
        /// The data: each buffer 4 KiB aligned in memory and length.
        bufs: Vec<Bytes>,
        /// Whether completion means that these bytes (only these) are durable.
        durable: bool,
    },
    /// Makes all writes durable that completed before this was queued.
    Flush,
}

impl fmt::Debug for IoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { offset, buf, way } => write!(f, "Read({offset}+{}, {way:?})", buf.len()),
            Self::Write {
                offset,
                bufs,
                durable,
            } => {
                write!(
                    f,
                    "Write({offset}+{}, durable: {durable})",
                    bufs.iter().map(Bytes::len).sum::<usize>()
                )
            }
            Self::Flush => write!(f, "Flush"),
        }
    }
}

/// A completed operation.
pub struct Done {
    /// The operation's tag.
    pub tag: u64,
    /// Whether it succeeded.
    pub result: io::Result<()>,
    /// The buffer of a read.
    pub buf: Option<PoolBuf>,
}

/// Opens an asynchronous device on `file`: io_uring, or threads if that is forbidden.
///
/// # Errors
/// When neither threads nor a ring can be had.
pub fn open_device(file: Arc<FileIo>, notify: &Notify) -> io::Result<Box<dyn Device>> {
    match UringDevice::new(Arc::clone(&file), notify) {
        Ok(ring) => Ok(Box::new(ring)),
        Err(error) => {
            tracing::info!(%error, "io_uring is not available, using threads");
            Ok(Box::new(PoolDevice::new(file, notify.clone(), 2)?))
        }
    }
}
