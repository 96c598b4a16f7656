//! The entry of an object, or of one version of it: `rgw_bucket_dir_entry` of Ceph's
//! `src/cls/rgw/cls_rgw_types.h`.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, UTime, Writer, at_least, flags, versioned};

use super::key::ObjectKey;
use super::{keys, packed};
use crate::error::unless;
use crate::method::{stored, to_bytes};
use crate::{Error, Object, Result, omap};

fn complete_meta(version: u8, meta: &mut EntryMeta) {
    if version < 4 {
        meta.accounted_size = meta.size;
    }
}

versioned! {
    /// The version of the RADOS object that holds the data.
    #[derive(Copy, Eq)]
    pub(super) struct EntryVersion("rgw_bucket_entry_ver", version 1, compat 1) {
        /// Its pool; all ones for none.
        pub(super) pool: u64 = u64::MAX, via packed;
        pub(super) epoch: u64, via packed;
    }

    /// What radosgw tells of an object in listings.
    #[derive(Eq)]
    pub(super) struct EntryMeta("rgw_bucket_dir_entry_meta", version 7, compat 3, oldest 3, fix complete_meta) {
        /// `RGWObjCategory`: to whose sums in the header the entry belongs.
        pub(super) category: u8;
        /// Bytes that are stored.
        pub(super) size: u64;
        pub(super) mtime: UTime;
        etag: Bytes;
        pub(super) owner: Bytes;
        pub(super) owner_display_name: Bytes;
        content_type: Bytes;
        /// Bytes that the object has for its clients, before compression and encryption.
        pub(super) accounted_size: u64, since 4;
        user_data: Bytes, since 5;
        storage_class: Bytes, since 6;
        appendable: bool, since 7;
    }

    /// An operation between its preparation and its completion.
    #[derive(Copy, Eq)]
    pub(super) struct Pending("rgw_bucket_pending_info", version 2, compat 2, oldest 2) {
        /// `RGWPendingState`; always 0, pending.
        pub(super) state: u8;
        /// When it was prepared, by the OSD's clock.
        pub(super) timestamp: UTime;
        /// [`operation`].
        pub(super) op: u8;
    }
}

/// What is done to an object, `RGWModifyOp`.
pub(super) mod operation {
    pub(in super::super) const ADD: u8 = 0;
    pub(in super::super) const DEL: u8 = 1;
    pub(in super::super) const CANCEL: u8 = 2;
    pub(in super::super) const UNKNOWN: u8 = 3;
    pub(in super::super) const LINK_OLH: u8 = 4;
    pub(in super::super) const LINK_OLH_DELETE_MARKER: u8 = 5;
    pub(in super::super) const UNLINK_INSTANCE: u8 = 6;
    pub(in super::super) const SYNC_STOP: u8 = 7;
    pub(in super::super) const RESYNC: u8 = 8;
}

flags! {
    /// What an entry is.
    pub(super) struct EntryFlags(u16), joined "," {
        /// A version.
        VERSION = 0, "ver";
        /// The current version.
        CURRENT = 1, "current";
        /// A version that stands for the object's deletion.
        DELETE_MARKER = 2, "delete_marker";
        /// A place holder under the object's name, which says that the object has versions.
        VERSION_MARKER = 3, "ver_marker";
        /// In listings only: not an object, but what several names begin with.
        COMMON_PREFIX = 15, "common_prefix";
    }
}

/// The operations on an object that were prepared and not completed yet, by tag; several may have
/// the same one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PendingOps(Vec<(Bytes, Pending)>);

impl PendingOps {
    /// Adds one behind those with the same tag.
    pub(super) fn insert(&mut self, tag: Bytes, pending: Pending) {
        let at = self.0.partition_point(|(known, _)| *known <= tag);
        self.0.insert(at, (tag, pending));
    }

    /// Removes the first with that tag. Returns whether there was one.
    pub(super) fn remove(&mut self, tag: &[u8]) -> bool {
        let at = self.0.iter().position(|(known, _)| known[..] == *tag);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Keeps those for which `keep` holds.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Pending) -> bool) {
        self.0.retain(|(_, pending)| keep(pending));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Encode for PendingOps {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.0);
    }
}

impl Decode for PendingOps {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        let mut ops: Vec<(Bytes, Pending)> = r.get()?;
        ops.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Self(ops))
    }
}

/// An entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DirEntry {
    pub(super) key: ObjectKey,
    pub(super) version: EntryVersion,
    /// Where the RADOS object is placed, if not by its own name.
    pub(super) locator: Bytes,
    /// Whether the object exists, for which it counts in the header's sums. Without it, the entry only
    /// has pending operations.
    pub(super) exists: bool,
    pub(super) meta: EntryMeta,
    pub(super) pending: PendingOps,
    /// The header's version when the entry was last completed.
    pub(super) index_version: u64,
    /// The tag of the operation that wrote the object.
    pub(super) tag: Bytes,
    pub(super) flags: EntryFlags,
    /// Orders the versions of an object, newest highest.
    pub(super) versioned_epoch: u64,
}

impl DirEntry {
    pub(super) fn is_delete_marker(&self) -> bool {
        self.flags.contains(EntryFlags::DELETE_MARKER)
    }

    /// Whether a listing without versions shows it.
    pub(super) fn is_visible(&self) -> bool {
        let is_current =
            !self.flags.contains(EntryFlags::VERSION) || self.flags.contains(EntryFlags::CURRENT);
        is_current && !self.is_delete_marker()
    }
}

// By hand: the parts of key and version are not side by side.
impl Encode for DirEntry {
    fn encode(&self, w: &mut Writer) {
        w.section(8, 3, |w| {
            w.put(&self.key.name);
            w.u64(self.version.epoch);
            w.bool(self.exists);
            w.put(&self.meta);
            w.put(&self.pending);
            w.put(&self.locator);
            w.put(&self.version);
            packed::encode(&self.index_version, w);
            w.put(&self.tag);
            w.put(&self.key.instance);
            w.put(&self.flags);
            w.u64(self.versioned_epoch);
        });
    }
}

impl Decode for DirEntry {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        const WHAT: &str = "rgw_bucket_dir_entry";
        r.section(WHAT, 8, |version, r| {
            at_least(WHAT, version, 3)?;
            let mut entry = Self::default();
            entry.key.name = r.get()?;
            entry.version.epoch = r.u64()?;
            entry.exists = r.bool()?;
            entry.meta = r.get()?;
            entry.pending = r.get()?;
            entry.locator = r.get()?;
            if version >= 4 {
                entry.version = r.get()?;
            }
            if version >= 5 {
                entry.index_version = packed::decode(r)?;
                entry.tag = r.get()?;
            }
            if version >= 6 {
                entry.key.instance = r.get()?;
            }
            if version >= 7 {
                entry.flags = r.get()?;
            }
            if version >= 8 {
                entry.versioned_epoch = r.u64()?;
            }
            Ok(entry)
        })
    }
}

/// The value of an index key, if there is one. EIO where it can't be decoded.
pub(super) fn read<T: Decode>(object: &mut dyn Object, key: &[u8]) -> Result<Option<T>> {
    omap::find(object, key)?.as_ref().map(stored).transpose()
}

/// Sets the value of an index key.
pub(super) fn write(object: &mut dyn Object, key: Bytes, value: &impl Encode) -> Result<()> {
    omap::set(object, key, to_bytes(value))
}

/// Which of the two entries is meant that an object's version without a name can have: it is not
/// overwritten by its delete marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NullVersion {
    /// The delete marker, if there is one.
    DeleteMarkerFirst,
    Data,
}

/// The entry of an object or version, and the index key that it has or, where there is none, would
/// have. The one of an object with versions is that of its version without a name.
pub(super) fn find(
    object: &mut dyn Object,
    key: &ObjectKey,
    null: NullVersion,
) -> Result<(Bytes, Option<DirEntry>)> {
    let plain = keys::entry(key);
    let entry: Option<DirEntry> = read(object, &plain)?;
    let is_marker = |e: &DirEntry| key.instance.is_empty() && e.flags.contains(EntryFlags::VERSION_MARKER);
    if !entry.as_ref().is_some_and(is_marker) {
        return Ok((plain, entry));
    }
    if null == NullVersion::DeleteMarkerFirst {
        let marker = keys::null_delete_marker(&key.name);
        // One that can't be read counts as none.
        if let Some(Some(entry)) = unless(read(object, &marker), &[Error::EIO])? {
            return Ok((marker, Some(entry)));
        }
    }
    let instance = keys::instance(key);
    let entry = read(object, &instance)?;
    Ok((instance, entry))
}
