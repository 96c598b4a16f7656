//! Writes that are answered before they are finished.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::ranges::Ranges;
use crate::{BlockDevice, DeviceError, Extent, Geometry, Zeroing};

/// A device whose writes are answered before they are finished, up to a number of bytes; a client
/// that waits for each answer then has many writes under way.
///
/// A write is begun at once. Overlapping requests (reads too) wait until it is finished, and a
/// flush waits for all answered writes. A write with FUA, or of more bytes than fit, is answered
/// when it is finished.
///
/// A write that fails after its answer is lost, and with it the promise of later writes and
/// flushes: they all fail from then on, with that error.
pub struct WriteBehind<D> {
    device: Rc<D>,
    ranges: Ranges,
    capacity: usize,
    free: Arc<Semaphore>,
    lost: Rc<RefCell<Option<DeviceError>>>,
}

fn range(offset: u64, len: u64) -> Range<u64> {
    offset..offset.saturating_add(len)
}

impl<D: BlockDevice + 'static> WriteBehind<D> {
    /// Answers writes of up to `capacity` bytes together before they are finished; with zero, none.
    pub fn new(device: Rc<D>, capacity: usize) -> Self {
        let capacity = capacity.min(Semaphore::MAX_PERMITS);
        Self {
            device,
            ranges: Ranges::default(),
            capacity,
            free: Arc::new(Semaphore::new(capacity)),
            lost: Rc::default(),
        }
    }

    /// The device behind, after a flush.
    pub fn into_inner(self) -> Rc<D> {
        self.device
    }

    fn check_lost(&self) -> Result<(), DeviceError> {
        match &*self.lost.borrow() {
            Some(error) => Err(error.lost()),
            None => Ok(()),
        }
    }

    /// The room of a write of `len` bytes that is answered early; `None` if it must not be.
    fn room(&self, len: usize) -> Option<u32> {
        u32::try_from(len).ok().filter(|_| len <= self.capacity)
    }
}

impl<D: BlockDevice + 'static> BlockDevice for WriteBehind<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    async fn read(&self, offset: u64, len: u32) -> Result<Bytes, DeviceError> {
        self.ranges.settled(range(offset, len.into())).await;
        self.device.read(offset, len).await
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), DeviceError> {
        self.check_lost()?;
        let place = self.ranges.enter(range(offset, data.len() as u64));
        let Some(room) = self.room(data.len()).filter(|_| !fua) else {
            place.reached().await;
            return self.device.write(offset, data, fua).await;
        };
        // Room is given in the order of the places, so that writes with room wait only for others
        // with room, or for those that need none.
        let room = self.free.clone().acquire_many_owned(room).await;
        let (device, lost) = (self.device.clone(), self.lost.clone());
        tokio::task::spawn_local(async move {
            place.reached().await;
            if let Err(e) = device.write(offset, data, false).await {
                tracing::error!("a write that was answered is lost: {e}");
                lost.borrow_mut().get_or_insert(e);
            }
            drop(room);
        });
        Ok(())
    }

    async fn trim(&self, offset: u64, len: u32, fua: bool) -> Result<(), DeviceError> {
        self.check_lost()?;
        let place = self.ranges.enter(range(offset, len.into()));
        place.reached().await;
        self.device.trim(offset, len, fua).await
    }

    async fn write_zeroes(&self, offset: u64, len: u32, how: Zeroing, fua: bool) -> Result<(), DeviceError> {
        self.check_lost()?;
        let place = self.ranges.enter(range(offset, len.into()));
        place.reached().await;
        self.device.write_zeroes(offset, len, how, fua).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.ranges.settled(0..u64::MAX).await;
        self.check_lost()?;
        self.device.flush().await
    }

    async fn cache(&self, offset: u64, len: u32) -> Result<(), DeviceError> {
        self.device.cache(offset, len).await
    }

    async fn extents(&self, offset: u64, len: u32) -> Result<Vec<Extent>, DeviceError> {
        self.ranges.settled(range(offset, len.into())).await;
        self.device.extents(offset, len).await
    }
}
