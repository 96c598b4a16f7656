//! Methods on a part of a log: a header, and entries behind it. Formats: Ceph's
//! `src/cls/fifo/cls_fifo_types.h` and `cls_fifo_ops.h`.

use bytes::Bytes;
use spirula_denc::{UTime, Writer, versioned};

use super::info::DataParams;
use super::part_reader::{PRE_HEADER, PartReader, PreHeader};
use crate::error::unless;
use crate::method::{Nothing, Return, stored, to_bytes};
use crate::{Error, Object, Result};

/// Bytes for the header; entries begin behind them.
pub(super) const MAX_HEADER: u64 = 512;
/// Bytes of an entry without its data.
pub(super) const ENTRY_OVERHEAD: u64 = PRE_HEADER + 14;
/// Entries in one listing at most.
const MAX_LIST: i32 = 512;

versioned! {
    /// The header.
    #[derive(Eq)]
    pub(super) struct PartHeader("part_header", version 1, compat 1) {
        @reserved(Bytes = Bytes::new())
        pub(super) params: DataParams;
        /// A random number with which each entry begins.
        pub(super) magic: u64;
        /// The offset of the first entry that was not trimmed.
        pub(super) min_ofs: u64;
        /// The offset of the last entry.
        pub(super) last_ofs: u64;
        /// The offset where the next entry will be.
        pub(super) next_ofs: u64;
        /// The number of the first entry that was not trimmed.
        pub(super) min_index: u64;
        /// The number of the next entry.
        pub(super) max_index: u64;
        /// When an entry was last pushed.
        pub(super) max_time: UTime;
    }

    /// What stands before the data of an entry, behind its [`PreHeader`].
    #[derive(Eq)]
    pub(super) struct EntryHeader("entry_header", version 1, compat 1) {
        /// When it was pushed.
        pub(super) mtime: UTime;
    }

    /// Input of `init_part`.
    #[derive(Eq)]
    pub(super) struct InitOp("init_part", version 1, compat 1) {
        @reserved(Bytes = Bytes::new())
        pub(super) params: DataParams;
    }

    /// Input of `push_part`.
    #[derive(Eq)]
    pub(super) struct PushOp("push_part", version 1, compat 1) {
        @reserved(Bytes = Bytes::new())
        pub(super) entries: Vec<Bytes>;
        /// The bytes of all entries.
        pub(super) total_len: u64;
    }

    /// Input of `trim_part`.
    #[derive(Eq)]
    pub(super) struct TrimOp("trim_part", version 1, compat 1) {
        /// The offset of the last entry that goes.
        @reserved(Option<Bytes> = None)
        pub(super) ofs: u64;
        /// Whether that entry stays.
        pub(super) exclusive: bool;
    }

    /// Input of `part_list`.
    #[derive(Eq)]
    pub(super) struct ListOp("list_part", version 1, compat 1) {
        /// The offset of the entry after which to begin; before the first, to begin with that.
        @reserved(Option<Bytes> = None)
        pub(super) ofs: u64;
        pub(super) max_entries: i32;
    }

    /// An entry in the output of `part_list`.
    #[derive(Eq)]
    pub(super) struct ListEntry("part_list_entry", version 1, compat 1) {
        pub(super) data: Bytes;
        pub(super) ofs: u64;
        pub(super) mtime: UTime;
    }

    /// Output of `part_list`.
    #[derive(Eq)]
    pub(super) struct ListReply("list_part_reply", version 1, compat 1) {
        @reserved(Bytes = Bytes::new())
        pub(super) entries: Vec<ListEntry>;
        /// Whether more entries follow.
        pub(super) more: bool;
        pub(super) full_part: bool;
    }

    /// Input of `get_part_info`.
    #[derive(Eq)]
    pub(super) struct GetInfoOp("get_part_info", version 1, compat 1) {}

    /// Output of `get_part_info`.
    #[derive(Eq)]
    pub(super) struct GetInfoReply("get_part_info_reply", version 1, compat 1) {
        pub(super) header: PartHeader;
    }
}

impl PartHeader {
    fn read(object: &mut dyn Object) -> Result<Self> {
        stored(&object.read(0, MAX_HEADER)?)
    }

    fn write(&self, object: &mut dyn Object) -> Result<Nothing> {
        object.write(0, to_bytes(self)).map(|()| Nothing)
    }

    /// Whether the part takes no more entries.
    fn is_full(&self) -> bool {
        self.next_ofs > self.params.full_size_threshold
    }
}

pub(super) fn init(object: &mut dyn Object, op: InitOp) -> Result<Nothing> {
    let stat = unless(object.stat(), &[Error::ENOENT])?;
    if stat.is_some_and(|stat| stat.size > 0) {
        return match PartHeader::read(object)?.params == op.params {
            true => Ok(Nothing),
            false => Err(Error::EEXIST),
        };
    }
    let mut magic = [0; 8];
    object.random(&mut magic);
    let header = PartHeader {
        params: op.params,
        magic: u64::from_le_bytes(magic),
        min_ofs: MAX_HEADER,
        next_ofs: MAX_HEADER,
        max_time: object.now(),
        ..PartHeader::default()
    };
    header.write(object)
}

/// Appends entries, as many as there are until the part is full; returns how many. EINVAL where
/// they are more than a part may have, ERANGE where it is full.
pub(super) fn push(object: &mut dyn Object, op: PushOp) -> Result<Return> {
    let mut header = PartHeader::read(object)?;
    let overhead = op.entries.len() as u64 * ENTRY_OVERHEAD;
    if op.total_len.saturating_add(overhead) > header.params.max_part_size {
        return Err(Error::EINVAL);
    }
    if header.is_full() {
        return Err(Error::ERANGE);
    }
    if op.entries.iter().map(|e| e.len() as u64).sum::<u64>() != op.total_len {
        return Err(Error::EINVAL);
    }
    object.reserve(op.total_len + overhead)?;
    header.max_time = object.now();
    let entry_header = to_bytes(&EntryHeader {
        mtime: header.max_time,
    });
    let (at, mut pushed, mut w) = (header.next_ofs, 0, Writer::new());
    for data in op.entries {
        if header.is_full() {
            break;
        }
        w.put(&PreHeader {
            magic: header.magic,
            pre_size: PRE_HEADER,
            header_size: entry_header.len() as u64,
            data_size: data.len() as u64,
            index: header.max_index,
        });
        w.bytes(&entry_header);
        w.bytes(&data);
        header.last_ofs = header.next_ofs;
        header.next_ofs = at.checked_add(w.len() as u64).ok_or(Error::EINVAL)?;
        header.max_index = header.max_index.wrapping_add(1);
        pushed += 1;
    }
    if pushed == 0 {
        return Err(Error::EFAULT);
    }
    object.write(at, w.into_vec().into())?;
    header.write(object)?;
    Ok(Return {
        code: pushed,
        data: Bytes::new(),
    })
}

/// Trims entries up to an offset; a full part that has no more entries then is removed.
pub(super) fn trim(object: &mut dyn Object, op: TrimOp) -> Result<Nothing> {
    let mut header = PartHeader::read(object)?;
    if op.ofs < header.min_ofs || (op.exclusive && op.ofs == header.min_ofs) {
        return Ok(Nothing);
    }
    if op.ofs < header.next_ofs {
        let mut reader = PartReader::new(object, &header, op.ofs);
        let mut index = reader.pre_header()?.index;
        if !op.exclusive {
            reader.next()?;
            index = index.wrapping_add(1);
        }
        let ofs = reader.ofs();
        (header.min_index, header.min_ofs) = (index, ofs);
    } else if header.is_full() {
        return object.remove().map(|()| Nothing);
    } else {
        (header.min_index, header.min_ofs) = (header.max_index, header.next_ofs);
    }
    header.write(object)
}

pub(super) fn list(object: &mut dyn Object, op: ListOp) -> Result<ListReply> {
    let header = PartHeader::read(object)?;
    let mut reader = PartReader::new(object, &header, op.ofs.max(header.min_ofs));
    if op.ofs >= header.min_ofs && !reader.at_end() {
        reader.next()?;
    }
    let mut entries = Vec::new();
    for _ in 0..op.max_entries.min(MAX_LIST) {
        if reader.at_end() {
            break;
        }
        entries.push(reader.next()?);
    }
    Ok(ListReply {
        entries,
        more: !reader.at_end(),
        full_part: header.is_full(),
    })
}

pub(super) fn get_info(object: &mut dyn Object, _: GetInfoOp) -> Result<GetInfoReply> {
    let header = PartHeader::read(object)?;
    Ok(GetInfoReply { header })
}
