//! Snapshots of images of the first format, whose header is data that clients read:
//! `rbd_obj_header_ondisk` of Ceph's `src/include/rbd_types.h`, snapshots with ids and sizes,
//! newest first, and their names, each with a NUL.

use bytes::Bytes;
use spirula_denc::{Encode, Reader, Writer};

use super::snapshot_limit;
use crate::method::{Nothing, Raw, input};
use crate::text::until_nul;
use crate::{Error, Object, Result};

/// Bytes of the header before the snapshots.
const FIXED: usize = 112;
/// The offset of the image's size in the header. Behind it are the highest snapshot id ever, the
/// number of snapshots, four reserved bytes and the length of the snapshots' names.
const IMAGE_SIZE_AT: usize = 80;
/// Bytes of a snapshot without its name.
const SNAPSHOT: u64 = 16;

/// A header.
#[derive(Debug)]
pub(super) struct OldHeader {
    /// The bytes before the image's size.
    start: Bytes,
    image_size: u64,
    seq: u64,
    reserved: u32,
    snaps: Vec<Snapshot>,
}

#[derive(Debug)]
struct Snapshot {
    id: u64,
    image_size: u64,
    /// The name without its NUL.
    name: Bytes,
}

impl OldHeader {
    /// Decodes the header; EINVAL where there is none.
    pub(super) fn read(object: &mut dyn Object) -> Result<Self> {
        let fixed = object.read(0, FIXED as u64)?;
        if fixed.len() < FIXED {
            return Err(Error::EINVAL);
        }
        let mut r = Reader::new(&fixed[IMAGE_SIZE_AT..]);
        let (image_size, (seq, (count, (reserved, names_len)))): Fixed = r.get().map_err(|_| Error::EIO)?;
        let snaps_len = u64::from(count) * SNAPSHOT;
        let rest = match snaps_len.checked_add(names_len) {
            None => return Err(Error::EIO),
            Some(0) => Bytes::new(),
            Some(len) => object.read(FIXED as u64, len)?,
        };
        let split = usize::try_from(snaps_len).ok().filter(|n| *n <= rest.len());
        let (numbers, names) = rest.split_at(split.ok_or(Error::EIO)?);
        let mut names = names.split_inclusive(|b| *b == 0);
        let snaps = numbers.chunks(16).map(|numbers| {
            let (id, image_size) = Reader::new(numbers).get().map_err(|_| Error::EIO)?;
            let name = names.next().and_then(|n| n.strip_suffix(&[0]));
            let name = Bytes::copy_from_slice(name.ok_or(Error::EIO)?);
            Ok(Snapshot { id, image_size, name })
        });
        Ok(Self {
            start: fixed.slice(..IMAGE_SIZE_AT),
            image_size,
            seq,
            reserved,
            snaps: snaps.collect::<Result<_>>()?,
        })
    }

    /// The number of snapshots.
    pub(super) fn count(&self) -> usize {
        self.snaps.len()
    }

    fn write(&self, object: &mut dyn Object) -> Result<Nothing> {
        let names: usize = self.snaps.iter().map(|s| s.name.len() + 1).sum();
        let mut w = Writer::new();
        w.bytes(&self.start);
        w.u64(self.image_size);
        w.u64(self.seq);
        w.count(self.snaps.len());
        w.u32(self.reserved);
        w.u64(names as u64);
        for snap in &self.snaps {
            w.u64(snap.id);
            w.u64(snap.image_size);
        }
        for snap in &self.snaps {
            w.bytes(&snap.name);
            w.u8(0);
        }
        object.write_full(w.into_vec().into()).map(|()| Nothing)
    }

    /// EEXIST where a snapshot has that name.
    fn check_unused(&self, name: &[u8]) -> Result<()> {
        match self.snaps.iter().any(|s| s.name == name) {
            true => Err(Error::EEXIST),
            false => Ok(()),
        }
    }
}

/// The image's size, the highest snapshot id, the number of snapshots, reserved bytes and the
/// length of the names.
type Fixed = (u64, (u64, (u32, (u32, u64))));

/// Output of `snap_list`.
pub(super) struct List(OldHeader);

impl Encode for List {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.0.seq);
        w.count(self.0.snaps.len());
        for snap in &self.0.snaps {
            w.u64(snap.id);
            w.u64(snap.image_size);
            w.put(&snap.name);
        }
    }
}

pub(super) fn list(object: &mut dyn Object, _: Nothing) -> Result<List> {
    OldHeader::read(object).map(List)
}

/// The text up to the first NUL.
fn as_name(text: &Bytes) -> Bytes {
    text.slice(..until_nul(text).len())
}

pub(super) fn add(object: &mut dyn Object, op: Raw) -> Result<Nothing> {
    let mut header = OldHeader::read(object)?;
    let (name, id): (Bytes, u64) = input(&op.0)?;
    if header.seq > id {
        return Err(Error::ESTALE);
    }
    if header.count() as u64 >= snapshot_limit::read(object)? {
        return Err(Error::EDQUOT);
    }
    let name = as_name(&name);
    header.check_unused(&name)?;
    header.seq = id;
    let image_size = header.image_size;
    header.snaps.insert(0, Snapshot { id, image_size, name });
    header.write(object)
}

pub(super) fn remove(object: &mut dyn Object, op: Raw) -> Result<Nothing> {
    let mut header = OldHeader::read(object)?;
    let name = as_name(&input(&op.0)?);
    let at = header.snaps.iter().position(|s| s.name == name);
    header.snaps.remove(at.ok_or(Error::ENOENT)?);
    header.write(object)
}

pub(super) fn rename(object: &mut dyn Object, op: Raw) -> Result<Nothing> {
    let mut header = OldHeader::read(object)?;
    let (id, name): (u64, Bytes) = input(&op.0)?;
    let name = as_name(&name);
    header.check_unused(&name)?;
    let snap = header.snaps.iter_mut().find(|s| s.id == id);
    snap.ok_or(Error::ENOENT)?.name = name;
    header.write(object)
}
