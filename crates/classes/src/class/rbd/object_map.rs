//! The objects `rbd_object_map.` and an image's id: which of the image's objects exist, so that
//! clients need not ask the OSDs.

use spirula_denc::Reader;

use super::arguments::arguments;
use super::bit_vector::{self, BLOCK, BitVector, HEADER_LEN, PER_BYTE};
use crate::error::unless;
use crate::method::{Nothing, stored};
use crate::{Error, Object, Result};

/// The states of objects.
pub mod object_state {
    /// The object does not exist.
    pub const NONEXISTENT: u8 = 0;
    /// The object exists, and was written since the newest snapshot.
    pub const EXISTS: u8 = 1;
    /// The object is being removed.
    pub const PENDING: u8 = 2;
    /// The object exists, and was not written since the newest snapshot.
    pub const EXISTS_CLEAN: u8 = 3;
}

use object_state::{EXISTS, EXISTS_CLEAN};

/// The most objects that a map may cover.
const MAX_OBJECTS: u64 = 256_000_000;

/// The map; EINVAL where it can't be decoded.
fn read(object: &mut dyn Object) -> Result<BitVector> {
    let size = object.stat()?.size;
    if size == 0 {
        return Err(Error::ENOENT);
    }
    let bytes = object.read(0, size)?;
    stored(&bytes).map_err(|_| Error::EINVAL)
}

fn write(object: &mut dyn Object, map: &BitVector) -> Result<Nothing> {
    object.write_full(map.to_bytes()).map(|()| Nothing)
}

/// The whole map, without checksums.
pub(super) fn load(object: &mut dyn Object, _: Nothing) -> Result<BitVector> {
    let mut map = read(object)?;
    map.checksummed = false;
    Ok(map)
}

pub(super) fn save(object: &mut dyn Object, mut map: BitVector) -> Result<Nothing> {
    map.checksummed = true;
    write(object, &map)
}

/// Changes the number of objects: new ones have this state, and removed ones must have it.
pub(super) fn resize(object: &mut dyn Object, (count, state): (u64, u8)) -> Result<Nothing> {
    if count > MAX_OBJECTS {
        return Err(Error::EINVAL);
    }
    let mut map = unless(read(object), &[Error::ENOENT])?.unwrap_or_default();
    if !map.is_all(count, state) {
        return Err(Error::ESTALE);
    }
    object.reserve(bit_vector::bytes_for(count))?;
    map.resize(count, state);
    write(object, &map)
}

arguments! {
    /// Input of `object_map_update`.
    pub(super) struct Update {
        pub(super) start: u64,
        /// The first object behind the range.
        pub(super) end: u64,
        pub(super) new: u8,
        /// Only objects in this state change.
        pub(super) current: Option<u8>,
    }
}

impl Update {
    fn new_state(&self, state: u8) -> u8 {
        let matches = match self.current {
            None => true,
            Some(EXISTS) => state == EXISTS || state == EXISTS_CLEAN,
            Some(current) => state == current,
        };
        if matches { self.new } else { state }
    }
}

/// Changes the states of objects. Only the blocks that hold them, and their checksums, are read and
/// written.
pub(super) fn update(object: &mut dyn Object, op: Update) -> Result<Nothing> {
    object.stat()?;
    let header = object.read(0, HEADER_LEN)?;
    let (len, _) = bit_vector::decode_header(&mut Reader::new(&header)).map_err(|_| Error::EINVAL)?;
    if op.start >= op.end || op.end > len {
        return Err(Error::ERANGE);
    }
    let bytes = bit_vector::bytes_for(len);
    let block = BLOCK as u64;
    let (first, last) = (op.start / PER_BYTE / block, (op.end - 1) / PER_BYTE / block);
    let from = first * block;
    let to = ((last + 1) * block).min(bytes);
    // The checksums follow the length of the footer, the header's checksum and their number.
    let sums_at = HEADER_LEN + bytes + 3 * 4 + first * 4;
    let sums = object.read(sums_at, (last - first + 1) * 4)?;
    let old = object.read(HEADER_LEN + from, to - from)?;
    let known = sums
        .chunks(4)
        .map(|sum| sum.try_into().map(u32::from_le_bytes).ok());
    let is_sound = known.eq(old.chunks(BLOCK).map(|b| Some(bit_vector::checksum(b))));
    if old.len() as u64 != to - from || !is_sound {
        return Err(Error::EINVAL);
    }
    let mut new = old.to_vec();
    let before = from * PER_BYTE;
    if bit_vector::replace(&mut new, op.start - before, op.end - before, |s| op.new_state(s)) {
        let sums = new
            .chunks(BLOCK)
            .flat_map(|b| bit_vector::checksum(b).to_le_bytes());
        let sums = sums.collect::<Vec<_>>();
        object.write(HEADER_LEN + from, new.into())?;
        object.write(sums_at, sums.into())?;
    }
    Ok(Nothing)
}

/// Updates the map after a new snapshot: no object was written since.
pub(super) fn snap_add(object: &mut dyn Object, _: Nothing) -> Result<Nothing> {
    let mut map = read(object)?;
    let clean = |state| if state == EXISTS { EXISTS_CLEAN } else { state };
    match map.replace(0, u64::MAX, clean) {
        true => write(object, &map),
        false => Ok(Nothing),
    }
}

/// Updates the map after the removal of a snapshot with this map: objects written before that
/// snapshot count as written.
pub(super) fn snap_remove(object: &mut dyn Object, removed: BitVector) -> Result<Nothing> {
    let mut map = read(object)?;
    // Four elements at a time: of those that are `EXISTS_CLEAN`, where the other map says `EXISTS`,
    // or has no more, the higher bit goes.
    const LOW: u8 = 0b01_01_01_01;
    let changed = map.combine(&removed, EXISTS, |ours, theirs| {
        let clean = ours & (ours >> 1) & LOW;
        let existed = theirs & !(theirs >> 1) & LOW;
        ours & !((clean & existed) << 1)
    });
    match changed {
        true => write(object, &map),
        false => Ok(Nothing),
    }
}
