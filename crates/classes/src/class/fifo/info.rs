//! What the head object of a log knows of it: all of its data. Formats: Ceph's
//! `src/cls/fifo/cls_fifo_types.h`.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Writer, versioned};

versioned! {
    /// A version: a number among those of the same instance.
    #[derive(Eq)]
    pub(super) struct Objv("objv", version 1, compat 1) {
        /// A random text.
        pub(super) instance: Bytes;
        pub(super) ver: u64;
    }

    /// Sizes, in bytes.
    #[derive(Eq)]
    pub(super) struct DataParams("data_params", version 1, compat 1) {
        /// Of all entries that are pushed into a part at once.
        pub(super) max_part_size: u64;
        pub(super) max_entry_size: u64;
        /// A part that is longer takes no more entries.
        pub(super) full_size_threshold: u64;
    }

    /// The head object.
    #[derive(Eq)]
    pub(super) struct Info("info", version 1, compat 1) {
        pub(super) id: Bytes;
        pub(super) version: Objv;
        /// The start of the names of parts, before a dot and the number.
        pub(super) oid_prefix: Bytes;
        pub(super) params: DataParams;
        /// The oldest part.
        pub(super) tail_part_num: i64;
        /// The part that is written to.
        pub(super) head_part_num: i64 = -1;
        pub(super) min_push_part_num: i64;
        pub(super) max_push_part_num: i64 = -1;
        /// What clients have begun to do with parts.
        @reserved(BTreeMap<i64, Bytes> = BTreeMap::new()) @reserved(Bytes = Bytes::new())
        pub(super) journal: BTreeSet<JournalEntry>, via journal;
    }
}

/// Something to be done with a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JournalEntry {
    /// 1: create the part; 2: write to it; 3: remove it.
    op: i32,
    part_num: i64,
}

impl Encode for JournalEntry {
    fn encode(&self, w: &mut Writer) {
        w.section(1, 1, |w| {
            w.put(&self.op);
            w.put(&self.part_num);
            w.string("");
        });
    }
}

impl Decode for JournalEntry {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        r.section("journal_entry", 1, |_, r| {
            let entry = Self {
                op: r.get()?,
                part_num: r.get()?,
            };
            r.blob()?;
            match (1..=3).contains(&entry.op) && entry.part_num >= 0 {
                true => Ok(entry),
                false => Err(spirula_denc::Error::Invalid("journal entry")),
            }
        })
    }
}

/// The journal: each entry behind the number of its part.
mod journal {
    use std::collections::BTreeSet;

    use spirula_denc::{Reader, Result, Writer};

    use super::JournalEntry;

    pub(super) fn encode(journal: &BTreeSet<JournalEntry>, w: &mut Writer) {
        w.count(journal.len());
        for entry in journal {
            w.put(&entry.part_num);
            w.put(entry);
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<BTreeSet<JournalEntry>> {
        let mut journal = BTreeSet::new();
        for _ in 0..r.count(8)? {
            r.i64()?;
            journal.insert(r.get()?);
        }
        Ok(journal)
    }
}
