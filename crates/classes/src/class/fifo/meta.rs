//! Methods on the head object of a log. Formats: Ceph's `src/cls/fifo/cls_fifo_ops.h`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use spirula_denc::versioned;

use super::info::{DataParams, Info, JournalEntry, Objv};
use super::part::{ENTRY_OVERHEAD, MAX_HEADER};
use crate::error::unless;
use crate::method::{Nothing, stored, to_bytes};
use crate::{Error, Object, Result};

versioned! {
    /// Input of `create_meta`.
    #[derive(Eq)]
    pub(super) struct CreateOp("create_meta", version 1, compat 1) {
        pub(super) id: Bytes;
        pub(super) version: Option<Objv>;
        @reserved(Bytes = Bytes::new()) @reserved(Bytes = Bytes::new())
        pub(super) oid_prefix: Option<Bytes>;
        pub(super) max_part_size: u64;
        pub(super) max_entry_size: u64;
        /// Whether the object must be new.
        pub(super) exclusive: bool;
    }

    /// Input of `get_meta`.
    #[derive(Eq)]
    pub(super) struct GetOp("get_meta", version 1, compat 1) {
        /// The version that there has to be.
        pub(super) version: Option<Objv>;
    }

    /// Output of `get_meta`.
    #[derive(Eq)]
    pub(super) struct GetReply("get_meta_reply", version 1, compat 1) {
        pub(super) info: Info;
        /// Bytes.
        pub(super) part_header_size: u32;
        /// Bytes of an entry in a part without its data.
        pub(super) part_entry_overhead: u32;
    }

    /// Input of `update_meta`: what is not to stay.
    #[derive(Eq)]
    pub(super) struct UpdateOp("update_meta", version 1, compat 1) {
        /// The version that there has to be.
        pub(super) version: Objv;
        pub(super) tail_part_num: Option<i64>;
        pub(super) head_part_num: Option<i64>;
        pub(super) min_push_part_num: Option<i64>;
        pub(super) max_push_part_num: Option<i64>;
        pub(super) journal_entries_add: Vec<JournalEntry>;
        pub(super) journal_entries_rm: Vec<JournalEntry>;
    }
}

/// A text of random letters.
fn random_text(object: &mut dyn Object, letters: usize) -> Bytes {
    // Four letters are three bytes.
    let mut bytes = vec![0; (letters * 3).div_ceil(4)];
    object.random(&mut bytes);
    let mut text = STANDARD.encode(bytes);
    text.truncate(letters);
    text.into()
}

fn write(object: &mut dyn Object, info: &Info) -> Result<Nothing> {
    object.write_full(to_bytes(info)).map(|()| Nothing)
}

/// Reads the object; ENODATA where it is empty, ECANCELED where it has another version.
fn read(object: &mut dyn Object, version: Option<&Objv>) -> Result<Info> {
    let size = object.stat()?.size;
    let bytes = object.read(0, size)?;
    if bytes.is_empty() {
        return Err(Error::ENODATA);
    }
    let info: Info = stored(&bytes)?;
    match version.is_none_or(|version| *version == info.version) {
        true => Ok(info),
        false => Err(Error::ECANCELED),
    }
}

/// Whether this log is what is to be created.
fn is_same(info: &Info, op: &CreateOp) -> bool {
    info.id == op.id
        && op
            .oid_prefix
            .as_ref()
            .is_none_or(|prefix| *prefix == info.oid_prefix)
        && op.version.as_ref().is_none_or(|version| *version == info.version)
}

pub(super) fn create(object: &mut dyn Object, op: CreateOp) -> Result<Nothing> {
    let has_sizes = op.max_part_size > 0 && (1..=op.max_part_size).contains(&op.max_entry_size);
    if op.id.is_empty() || !has_sizes {
        return Err(Error::EINVAL);
    }
    if let Some(stat) = unless(object.stat(), &[Error::ENOENT])? {
        if op.exclusive {
            return Err(Error::EEXIST);
        }
        let info = stored(&object.read(0, stat.size)?)?;
        return match is_same(&info, &op) {
            true => Ok(Nothing),
            false => Err(Error::EEXIST),
        };
    }
    let version = match op.version {
        Some(version) => version,
        None => Objv {
            instance: random_text(object, 16),
            ver: 1,
        },
    };
    let oid_prefix = match op.oid_prefix {
        Some(prefix) => prefix,
        None => [&op.id[..], b".", &random_text(object, 11)].concat().into(),
    };
    let mut info = Info {
        id: op.id,
        version,
        oid_prefix,
        params: DataParams {
            max_part_size: op.max_part_size,
            max_entry_size: op.max_entry_size,
            // It wraps around where a part has no room for its entries' overhead.
            full_size_threshold: (op.max_part_size - op.max_entry_size).wrapping_sub(ENTRY_OVERHEAD),
        },
        ..Info::default()
    };
    if info.version.instance.is_empty() {
        info.version.instance = random_text(object, 15);
    }
    write(object, &info)
}

pub(super) fn get(object: &mut dyn Object, op: GetOp) -> Result<GetReply> {
    let info = read(object, op.version.as_ref())?;
    Ok(GetReply {
        info,
        part_header_size: MAX_HEADER as u32,
        part_entry_overhead: ENTRY_OVERHEAD as u32,
    })
}

pub(super) fn update(object: &mut dyn Object, op: UpdateOp) -> Result<Nothing> {
    if op.version.instance.is_empty() {
        return Err(Error::EINVAL);
    }
    let old = read(object, Some(&op.version))?;
    let mut info = old.clone();
    for (number, new) in [
        (&mut info.tail_part_num, op.tail_part_num),
        (&mut info.head_part_num, op.head_part_num),
        (&mut info.min_push_part_num, op.min_push_part_num),
        (&mut info.max_push_part_num, op.max_push_part_num),
    ] {
        *number = new.unwrap_or(*number);
    }
    let mut changed = info != old;
    for entry in op.journal_entries_add {
        changed |= info.journal.insert(entry);
    }
    for entry in op.journal_entries_rm {
        changed |= info.journal.remove(&entry);
    }
    if !changed {
        return Ok(Nothing);
    }
    info.version.ver = info.version.ver.wrapping_add(1);
    write(object, &info)
}
