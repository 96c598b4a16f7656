//! The tags whose time was put off. Formats: Ceph's `src/cls/rgw_gc/cls_rgw_gc_types.h`.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Reader, UTime, versioned};

use crate::class::queue::{Head, read_spilled};
use crate::class::rgw::gc_entry::ObjInfo;
use crate::{Error, Object, Result};

/// The attribute for what the head has no room for: times by tags. Ceph writes such maps in no
/// particular order.
pub(super) type Spilled = BTreeMap<Bytes, UTime>;

versioned! {
    /// The urgent data in the head.
    #[derive(Eq)]
    pub(super) struct UrgentData("cls_rgw_gc_urgent_data", version 1, compat 1) {
        /// The new times by tags.
        pub(super) times: BTreeMap<Bytes, UTime>;
        /// The number of tags that there may be.
        pub(super) max_entries: u32;
        /// The number of tags in `times`.
        pub(super) head_entries: u32;
        /// The number of tags in the attribute.
        pub(super) xattr_entries: u32;
    }
}

impl UrgentData {
    /// The number of all tags.
    pub(super) fn entries(&self) -> u32 {
        self.head_entries.wrapping_add(self.xattr_entries)
    }
}

/// What was put off, of which the attribute is read only when it is needed.
pub(super) struct Deferred {
    pub(super) urgent: UrgentData,
    spilled: Option<Spilled>,
}

/// Where a time is noted, and how it compares with the entry's.
enum Noted {
    Nowhere,
    InHead(Ordering),
    InXattr(Ordering),
}

impl Deferred {
    pub(super) fn read(head: &Head) -> Result<Self> {
        let urgent = match head.urgent_data.is_empty() {
            true => UrgentData::default(),
            false => Reader::new(&head.urgent_data).get().map_err(|_| Error::EINVAL)?,
        };
        Ok(Self {
            urgent,
            spilled: None,
        })
    }

    fn find(&mut self, object: &mut dyn Object, info: &ObjInfo) -> Result<Noted> {
        if let Some(time) = self.urgent.times.get(&info.tag) {
            return Ok(Noted::InHead(time.cmp(&info.time)));
        }
        if self.urgent.xattr_entries == 0 {
            return Ok(Noted::Nowhere);
        }
        let spilled = match self.spilled.take() {
            Some(spilled) => spilled,
            None => read_spilled(object)?.unwrap_or_default(),
        };
        let noted = spilled.get(&info.tag).map(|time| time.cmp(&info.time));
        self.spilled = Some(spilled);
        Ok(noted.map_or(Noted::Nowhere, Noted::InXattr))
    }

    /// Whether the time of this entry was put off.
    pub(super) fn is_put_off(&mut self, object: &mut dyn Object, info: &ObjInfo) -> Result<bool> {
        let noted = self.find(object, info)?;
        Ok(matches!(
            noted,
            Noted::InHead(Ordering::Greater) | Noted::InXattr(Ordering::Greater)
        ))
    }

    /// Drops the note of an entry with the very time that is noted. In the attribute it stays, and
    /// is only not counted any more: so does Ceph.
    pub(super) fn forget(&mut self, object: &mut dyn Object, info: &ObjInfo) -> Result<()> {
        match self.find(object, info)? {
            Noted::InHead(Ordering::Equal) => {
                self.urgent.times.remove(&info.tag);
                self.urgent.head_entries = self.urgent.head_entries.wrapping_sub(1);
            }
            Noted::InXattr(Ordering::Equal) => {
                self.urgent.xattr_entries = self.urgent.xattr_entries.wrapping_sub(1);
            }
            _ => {}
        }
        Ok(())
    }
}
