//! Limits for what images say of themselves. Headers lie in pools that tenants write, and a client
//! that opens an image believes them. Numbers beyond what the official tools make are refused, so
//! that an image costs its reader neither memory nor time without end.

use std::ops::RangeInclusive;

use spirula_client::{Layout, errno};

use crate::{Error, Result};

/// The size of objects as a power of two: at least and at most (`rbd create` of Ceph knows no
/// others).
pub(crate) const MIN_ORDER: u8 = 12;
pub(crate) const MAX_ORDER: u8 = 25;
/// The largest image in bytes. Sums of offsets and lengths still fit into 64 bits.
const MAX_SIZE: u64 = 1 << 62;
/// Stripe units in the objects of one object set.
const MAX_UNITS: u64 = 1 << 22;
/// Snapshots: a write that names more is refused by the OSDs.
pub(crate) const MAX_SNAPSHOTS: usize = 8192;
/// Bytes of all snapshot records of an image together.
pub(crate) const MAX_SNAPSHOT_BYTES: usize = 16 << 20;
/// Bytes of a list that is read as a whole: a pool's namespaces, or its mirrored images.
const MAX_LISTED_BYTES: usize = 4 << 20;
/// Bytes that an entry of a list takes besides its text.
const ENTRY_BYTES: usize = 64;
/// The length of a chain of clones and their parents.
pub(crate) const MAX_PARENTS: usize = 64;
/// Objects that an object map covers (as Ceph's `MAX_OBJECT_MAP_OBJECT_COUNT`).
pub(crate) const MAX_MAPPED: u64 = 256_000_000;
/// Object sets of a journal, from the first that a client needs to the active one.
pub(crate) const MAX_SETS: u64 = 1 << 16;
/// Entries of a journal that are not committed. Its writer commits every few seconds.
pub(crate) const MAX_ENTRIES: usize = 1 << 18;
/// Bytes of an entry of a journal.
pub(crate) const MAX_ENTRY: usize = 4 << 20;

/// The bytes of an object of this order.
pub(crate) fn object_size(order: u8) -> Result<u32> {
    match order {
        MIN_ORDER..=MAX_ORDER => Ok(1 << order),
        _ => Err(Error::os("order", errno::EINVAL)),
    }
}

/// The layout of an image with objects of this size.
pub(crate) fn layout(object_size: u32, unit: u64, count: u64) -> Result<Layout> {
    let invalid = || Error::os("striping", errno::EINVAL);
    let narrow = |n: u64| u32::try_from(n).map_err(|_| invalid());
    let layout = Layout {
        stripe_unit: narrow(unit)?,
        stripe_count: narrow(count)?,
        object_size,
    };
    let units = |l: &Layout| u64::from(l.object_size / l.stripe_unit).saturating_mul(count);
    let fits = layout.is_valid() && units(&layout) <= MAX_UNITS;
    fits.then_some(layout).ok_or_else(invalid)
}

/// The size of an image or of a snapshot.
pub(crate) fn size(size: u64) -> Result<u64> {
    match size {
        0..=MAX_SIZE => Ok(size),
        _ => Err(Error::os("size", errno::EFBIG)),
    }
}

/// The bytes that a list may still take which is read as a whole.
pub(crate) struct Room(usize);

impl Room {
    /// The room of an empty list.
    pub(crate) fn new() -> Self {
        Self(MAX_LISTED_BYTES)
    }

    /// Makes room for an entry with so many bytes of text.
    ///
    /// # Errors
    /// `E2BIG` where there is none.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<()> {
        let left = self.0.checked_sub(bytes.saturating_add(ENTRY_BYTES));
        self.0 = left.ok_or(Error::os("list", errno::E2BIG))?;
        Ok(())
    }
}

/// Checks the first and the active object set of a journal, as its header names them.
pub(crate) fn sets(first: u64, active: u64) -> Result<RangeInclusive<u64>> {
    match active.checked_sub(first) {
        Some(more) if more < MAX_SETS && active < u64::MAX / u64::from(u8::MAX) => Ok(first..=active),
        _ => Err(Error::os("journal", errno::EBADMSG)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_official_tools_make_fits_and_no_more() {
        for (order, size) in [
            (12, Some(4096)),
            (25, Some(32 << 20)),
            (11, None),
            (26, None),
            (60, None),
        ] {
            assert_eq!(object_size(order).ok(), size, "{order}");
        }
        let fits = |unit, count| layout(1 << 22, unit, count).is_ok();
        assert!(fits(1 << 22, 1) && fits(4096, 16) && fits(512, 512));
        for (unit, count) in [
            (0, 1),
            (4096, 0),
            (512, 513),
            (1, 4),
            (3, 1),
            (1 << 23, 1),
            (1 << 33, 1),
            (4096, u64::MAX),
        ] {
            assert!(!fits(unit, count), "{unit} {count}");
        }
        assert!(size(MAX_SIZE).is_ok() && size(MAX_SIZE + 1).is_err());
        let mut room = Room::new();
        assert!(room.take(usize::MAX).is_err() && room.take(MAX_LISTED_BYTES / 2).is_ok());
        assert!(room.take(MAX_LISTED_BYTES / 2).is_err() && room.take(4096).is_ok());
        assert!(sets(5, 5).is_ok() && sets(5, 4 + MAX_SETS).is_ok());
        for (first, active) in [(5, 5 + MAX_SETS), (6, 5), (0, u64::MAX), (u64::MAX, u64::MAX)] {
            assert!(sets(first, active).is_err(), "{first} {active}");
        }
    }
}
