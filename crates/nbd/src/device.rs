//! What is exported.

use bytes::Bytes;

use crate::DeviceError;

/// Sizes in which requests should come, in bytes: powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Of which offset and length of every request must be a multiple; 65536 at most.
    pub minimum: u32,
    /// Of which they are best a multiple.
    pub preferred: u32,
}

impl Default for BlockSizes {
    fn default() -> Self {
        Self {
            minimum: 1,
            preferred: 4096,
        }
    }
}

/// A device's size and rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes.
    pub size: u64,
    /// Nothing can be written.
    pub read_only: bool,
    /// Sizes of requests.
    pub blocks: BlockSizes,
}

/// A range of a device, which follows the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub len: u64,
    /// It takes no space.
    pub hole: bool,
    /// It reads as zeroes.
    pub zero: bool,
}

impl Extent {
    /// A range of which nothing more is known.
    pub fn data(len: u64) -> Self {
        Self {
            len,
            hole: false,
            zero: false,
        }
    }

    /// A range that takes no space and reads as zeroes.
    pub fn absent(len: u64) -> Self {
        Self {
            len,
            hole: true,
            zero: true,
        }
    }
}

/// How zeroes are to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Zeroing {
    /// The range shall have its space: no later write to it fails for want of it.
    pub allocate: bool,
    /// Fail with [`DeviceError::not_fast`], before anything is changed, where this is no faster than a write of as much.
    pub fast: bool,
}

/// A block device, shared by all connections to its export.
///
/// The server checks every range against [`BlockDevice::geometry`] before it asks, and never asks for an empty one. Requests
/// run concurrently, and each is awaited to its end, also when the client is gone. What a write has done is
/// visible to every read that begins after its answer.
pub trait BlockDevice {
    /// Size and rules, which may change while the device is exported. New connections are told so; those
    /// that there are get errors beyond the end.
    fn geometry(&self) -> Geometry;

    /// Reads exactly `len` bytes.
    ///
    /// # Errors
    /// The device's errno.
    fn read(&self, offset: u64, len: u32) -> impl Future<Output = Result<Bytes, DeviceError>>;

    /// Writes; with `fua` the answer says that it is durable.
    ///
    /// # Errors
    /// The device's errno.
    fn write(&self, offset: u64, data: Bytes, fua: bool) -> impl Future<Output = Result<(), DeviceError>>;

    /// Gives space back, as far as the device can; what is there then is undefined.
    ///
    /// # Errors
    /// The device's errno.
    fn trim(&self, offset: u64, len: u32, fua: bool) -> impl Future<Output = Result<(), DeviceError>>;

    /// Writes zeroes.
    ///
    /// # Errors
    /// The device's errno.
    fn write_zeroes(
        &self,
        offset: u64,
        len: u32,
        how: Zeroing,
        fua: bool,
    ) -> impl Future<Output = Result<(), DeviceError>>;

    /// Makes durable every change that was answered before this was asked.
    ///
    /// # Errors
    /// The device's errno: some of them may be lost.
    fn flush(&self) -> impl Future<Output = Result<(), DeviceError>>;

    /// Prepares for reads of a range. A hint: doing nothing is right.
    ///
    /// # Errors
    /// The device's errno.
    fn cache(&self, offset: u64, len: u32) -> impl Future<Output = Result<(), DeviceError>> {
        let _ = (offset, len);
        std::future::ready(Ok(()))
    }

    /// The extents from `offset` on, each of at least one byte, at least one and those of `len` bytes at most.
    ///
    /// # Errors
    /// The device's errno.
    fn extents(&self, offset: u64, len: u32) -> impl Future<Output = Result<Vec<Extent>, DeviceError>> {
        let _ = offset;
        std::future::ready(Ok(vec![Extent::data(len.into())]))
    }
}
