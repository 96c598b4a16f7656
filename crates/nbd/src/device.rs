//! The interface of exported devices.

use bytes::Bytes;

use crate::DeviceError;

/// Block sizes for requests, in bytes: powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offset and length of every request must be multiples of it; 65536 at most.
    pub minimum: u32,
    /// Offset and length of requests should be multiples of it.
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
    /// Writes are refused.
    pub read_only: bool,
    /// Block sizes for requests.
    pub blocks: BlockSizes,
}

/// A range of a device behind the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its length in bytes.
    pub len: u64,
    /// It takes no space.
    pub hole: bool,
    /// It reads as zeroes.
    pub zero: bool,
}

impl Extent {
    /// A range with data, as far as is known.
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
    /// The range must have allocated space: no later write to it fails for want of it.
    pub allocate: bool,
    /// Fail with [`DeviceError::not_fast`], before anything is changed, if this is no faster than a
    /// write of the same length.
    pub fast: bool,
}

/// A block device, shared by all connections to its export.
///
/// The server checks every range against [`BlockDevice::geometry`] first, and never passes an empty
/// one. Requests run concurrently, and each is awaited to its end, even if the client is gone. A
/// write is visible to every read that begins after the write's answer.
pub trait BlockDevice {
    /// Size and rules, which may change while the device is exported. New connections get the new
    /// size; existing ones get errors beyond the end.
    fn geometry(&self) -> Geometry;

    /// Reads exactly `len` bytes.
    ///
    /// # Errors
    /// The device's errno.
    fn read(&self, offset: u64, len: u32) -> impl Future<Output = Result<Bytes, DeviceError>>;

    /// Writes; with `fua` the data is durable when the write is answered.
    ///
    /// # Errors
    /// The device's errno.
    fn write(&self, offset: u64, data: Bytes, fua: bool) -> impl Future<Output = Result<(), DeviceError>>;

    /// Frees space, as far as the device can; the range's content is undefined then.
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

    /// Makes every change durable that was answered before this call.
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

    /// The extents from `offset` on: at least one, each of at least one byte, together at least the
    /// first and at most `len` bytes.
    ///
    /// # Errors
    /// The device's errno.
    fn extents(&self, offset: u64, len: u32) -> impl Future<Output = Result<Vec<Extent>, DeviceError>> {
        let _ = offset;
        std::future::ready(Ok(vec![Extent::data(len.into())]))
    }
}
