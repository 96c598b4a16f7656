//! An image as a block device.

use bytes::Bytes;
use spirula_nbd::{BlockDevice, BlockSizes, DeviceError, Extent, Geometry, Zeroing};
use spirula_rbd::{Error, Image};

/// Zeroes that are written as data, in one request.
static ZEROES: [u8; 1 << 20] = [0; 1 << 20];

/// An image, or a snapshot of one. Writes are durable when they are done.
pub(in crate::rbd) struct ImageDevice(pub(in crate::rbd) Image);

fn failed(e: Error) -> DeviceError {
    DeviceError::new(e.errno(), e.to_string())
}

impl ImageDevice {
    /// Writes zeroes as data, so that their space is allocated.
    async fn allocate_zeroes(&self, offset: u64, len: u32) -> Result<(), Error> {
        let end = offset + u64::from(len);
        for at in (offset..end).step_by(ZEROES.len()) {
            let part = (end - at).min(ZEROES.len() as u64) as usize;
            self.0.write(at, Bytes::from_static(&ZEROES[..part])).await?;
        }
        Ok(())
    }
}

impl BlockDevice for ImageDevice {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: self.0.size(),
            read_only: self.0.is_read_only(),
            blocks: BlockSizes::default(),
        }
    }

    async fn read(&self, offset: u64, len: u32) -> Result<Bytes, DeviceError> {
        self.0.read(offset, len.into()).await.map_err(failed)
    }

    async fn write(&self, offset: u64, data: Bytes, _fua: bool) -> Result<(), DeviceError> {
        self.0.write(offset, data).await.map_err(failed)
    }

    async fn trim(&self, offset: u64, len: u32, _fua: bool) -> Result<(), DeviceError> {
        self.0.discard(offset, len.into()).await.map_err(failed)
    }

    async fn write_zeroes(&self, offset: u64, len: u32, how: Zeroing, _fua: bool) -> Result<(), DeviceError> {
        match (how.allocate, how.fast) {
            (true, true) => Err(DeviceError::not_fast()),
            (true, false) => self.allocate_zeroes(offset, len).await.map_err(failed),
            (false, _) => self.0.write_zeroes(offset, len.into()).await.map_err(failed),
        }
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush().map_err(failed)
    }

    async fn extents(&self, offset: u64, len: u32) -> Result<Vec<Extent>, DeviceError> {
        let extents = self.0.extents(offset, len.into()).await.map_err(failed)?;
        let told = |e: spirula_rbd::ExtentStatus| match e.has_data {
            true => Extent::data(e.len),
            false => Extent::absent(e.len),
        };
        Ok(extents.into_iter().map(told).collect())
    }
}
