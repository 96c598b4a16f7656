//! Reading the entries of a part.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Writer};

use super::part::{EntryHeader, ListEntry, PartHeader};
use crate::method::stored;
use crate::{Error, Object, Result};

/// Bytes of a [`PreHeader`].
pub(super) const PRE_HEADER: u64 = 44;
/// Bytes that are read at once at least.
const PREFETCH: u64 = 128 << 10;

/// What an entry begins with: `entry_header_pre` of Ceph's `src/cls/fifo/cls_fifo.cc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PreHeader {
    /// The magic number of the part.
    pub(super) magic: u64,
    /// Bytes of this structure.
    pub(super) pre_size: u64,
    /// Bytes of the [`EntryHeader`].
    pub(super) header_size: u64,
    /// Bytes of the entry's data.
    pub(super) data_size: u64,
    /// The entry's number in the part.
    pub(super) index: u64,
}

impl Encode for PreHeader {
    fn encode(&self, w: &mut Writer) {
        for number in [
            self.magic,
            self.pre_size,
            self.header_size,
            self.data_size,
            self.index,
        ] {
            w.u64(number);
        }
        // Reserved.
        w.u32(0);
    }
}

impl Decode for PreHeader {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        Ok(Self {
            magic: r.get()?,
            pre_size: r.get()?,
            header_size: r.get()?,
            data_size: r.get()?,
            index: r.get()?,
        })
    }
}

/// Reads one entry after the other.
pub(super) struct PartReader<'a> {
    object: &'a mut dyn Object,
    header: &'a PartHeader,
    /// The offset of the first byte of `data`.
    ofs: u64,
    /// What was read and not used yet.
    data: Bytes,
}

impl<'a> PartReader<'a> {
    pub(super) fn new(object: &'a mut dyn Object, header: &'a PartHeader, ofs: u64) -> Self {
        Self {
            object,
            header,
            ofs,
            data: Bytes::new(),
        }
    }

    /// The offset of the next entry.
    pub(super) fn ofs(&self) -> u64 {
        self.ofs
    }

    /// Whether no entry follows.
    pub(super) fn at_end(&self) -> bool {
        self.ofs >= self.header.next_ofs
    }

    /// Has `len` bytes in memory; ERANGE where there are fewer. Ceph's class also answers so where
    /// they are more than it reads at once.
    fn fetch(&mut self, len: u64) -> Result<usize> {
        if len > self.header.next_ofs.saturating_sub(self.ofs) {
            return Err(Error::ERANGE);
        }
        let have = self.data.len() as u64;
        if have < len {
            let more = self.object.read(self.ofs + have, PREFETCH.max(len - have))?;
            self.object.reserve(have + more.len() as u64)?;
            self.data = [&self.data[..], &more].concat().into();
        }
        let len = usize::try_from(len).ok().filter(|len| *len <= self.data.len());
        len.ok_or(Error::ERANGE)
    }

    fn take(&mut self, len: u64) -> Result<Bytes> {
        let part = self.fetch(len)?;
        self.ofs += len;
        Ok(self.data.split_to(part))
    }

    /// What the next entry begins with; ERANGE where there is no entry.
    pub(super) fn pre_header(&mut self) -> Result<PreHeader> {
        let len = self.fetch(PRE_HEADER)?;
        let pre: PreHeader = Reader::new(&self.data[..len]).get().map_err(|_| Error::ERANGE)?;
        match pre.magic == self.header.magic {
            true => Ok(pre),
            false => Err(Error::ERANGE),
        }
    }

    /// The next entry; ERANGE where there is something else.
    pub(super) fn next(&mut self) -> Result<ListEntry> {
        let ofs = self.ofs;
        let pre = self.pre_header()?;
        self.take(pre.pre_size)?;
        let EntryHeader { mtime } = stored(&self.take(pre.header_size)?)?;
        let data = self.take(pre.data_size)?;
        // For its copy in what the method returns.
        self.object.reserve(pre.data_size)?;
        Ok(ListEntry { data, ofs, mtime })
    }
}
