//! The entries of one version of an object: its instance entry, and the plain one by which listings
//! find it.

use bytes::Bytes;

use super::entry::{self, DirEntry, EntryFlags, EntryMeta, NullVersion};
use super::key::ObjectKey;
use super::keys;
use crate::method::stored;
use crate::{Error, Object, Result, omap};

/// The tag that entries of delete markers have.
const DELETE_MARKER_TAG: &[u8] = b"delete-marker";

/// The epoch of a version from before the bucket had versions.
pub(super) const CONVERTED_EPOCH: u64 = 1;

/// A version.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) key: ObjectKey,
    /// The key of its instance entry.
    index_key: Bytes,
    /// That entry; the default one where there is none.
    pub(super) entry: DirEntry,
}

impl Version {
    /// The version, and whether it has an entry.
    pub(super) fn find(object: &mut dyn Object, key: &ObjectKey, null: NullVersion) -> Result<(Self, bool)> {
        let (index_key, entry) = entry::find(object, key, null)?;
        let exists = entry.is_some();
        let version = Self {
            key: key.clone(),
            index_key,
            entry: entry.unwrap_or_default(),
        };
        Ok((version, exists))
    }

    /// The version; ENOENT without an entry.
    fn read(object: &mut dyn Object, key: &ObjectKey) -> Result<Self> {
        match Self::find(object, key, NullVersion::DeleteMarkerFirst)? {
            (version, true) => Ok(version),
            _ => Err(Error::ENOENT),
        }
    }

    /// Makes it a delete marker.
    pub(super) fn set_delete_marker(&mut self, meta: EntryMeta) {
        self.entry.key = self.key.clone();
        self.entry.flags = EntryFlags::DELETE_MARKER;
        self.entry.meta = meta;
        self.entry.tag = Bytes::from_static(DELETE_MARKER_TAG);
    }

    /// Removes it from listings.
    pub(super) fn unlist(&self, object: &mut dyn Object) -> Result<()> {
        omap::remove(object, keys::listed_version(&self.entry))
    }

    /// Removes the instance entry.
    pub(super) fn remove(&self, object: &mut dyn Object) -> Result<()> {
        omap::remove(object, self.index_key.clone())
    }

    /// Writes it with an epoch.
    pub(super) fn write(&mut self, object: &mut dyn Object, epoch: u64, is_current: bool) -> Result<()> {
        if self.entry.versioned_epoch > 0 {
            self.unlist(object)?;
        }
        self.entry.versioned_epoch = epoch;
        self.entry.flags.insert(EntryFlags::VERSION);
        if is_current {
            self.entry.flags.insert(EntryFlags::CURRENT);
        }
        self.write_entries(object)
    }

    fn write_entries(&self, object: &mut dyn Object) -> Result<()> {
        let is_null_delete_marker = self.entry.is_delete_marker() && self.entry.key.instance.is_empty();
        let index_key = match is_null_delete_marker {
            true => keys::null_delete_marker(&self.key.name),
            false => keys::instance(&self.key),
        };
        write_listed(object, index_key, &self.entry)
    }

    /// The version that follows it in listings, if the object has one: the next older.
    pub(super) fn next(&self, object: &mut dyn Object) -> Result<Option<ObjectKey>> {
        let after = keys::listed_version(&self.entry);
        let page = object.omap_vals(&after, &self.key.name, 1)?;
        let Some((_, value)) = page.items.first() else {
            return Ok(None);
        };
        let next: DirEntry = stored(value)?;
        Ok((next.key.name == self.key.name).then_some(next.key))
    }
}

/// Writes an instance entry and the plain one.
fn write_listed(object: &mut dyn Object, index_key: Bytes, entry: &DirEntry) -> Result<()> {
    entry::write(object, index_key, entry)?;
    entry::write(object, keys::listed_version(entry), entry)
}

/// The version is current no more.
pub(super) fn demote(object: &mut dyn Object, key: &ObjectKey) -> Result<()> {
    let mut version = Version::read(object, key)?;
    version.entry.flags.remove(EntryFlags::CURRENT);
    version.write_entries(object)
}

/// Makes the version current, under its own epoch. Returns whether it is a delete marker.
pub(super) fn promote(object: &mut dyn Object, key: &ObjectKey) -> Result<bool> {
    let mut version = Version::read(object, key)?;
    version
        .entry
        .flags
        .insert(EntryFlags::VERSION.with(EntryFlags::CURRENT));
    version.write_entries(object)?;
    Ok(version.entry.is_delete_marker())
}

/// What becomes of the object from before the bucket had versions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conversion {
    /// Whether another version is current then.
    pub(super) demote: bool,
    /// Whether listings find it.
    pub(super) list: bool,
}

/// Makes an object from before the bucket had versions its version without a name, if there is one,
/// and marks that it has versions.
pub(super) fn convert(object: &mut dyn Object, name: &Bytes, conversion: Conversion) -> Result<()> {
    let key = ObjectKey::of_name(name.clone());
    if let (_, Some(mut entry)) = entry::find(object, &key, NullVersion::Data)? {
        entry.versioned_epoch = CONVERTED_EPOCH;
        entry.flags.insert(EntryFlags::VERSION);
        if conversion.demote {
            entry.flags.remove(EntryFlags::CURRENT);
        }
        match conversion.list {
            true => write_listed(object, keys::instance(&key), &entry)?,
            false => entry::write(object, keys::instance(&key), &entry)?,
        }
    }
    let marker = DirEntry {
        key,
        flags: EntryFlags::VERSION_MARKER,
        ..DirEntry::default()
    };
    entry::write(object, name.clone(), &marker)
}
