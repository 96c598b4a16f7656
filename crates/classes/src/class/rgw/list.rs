//! `bucket_list`: the objects of a shard in the order of their names. Formats: Ceph's
//! `src/cls/rgw/cls_rgw_ops.h`.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::versioned;
use spirula_errno::EFBIG;

use super::entry::{self, DirEntry, EntryFlags};
use super::header::{self, DirHeader};
use super::key::ObjectKey;
use super::keys;
use crate::error::unless;
use crate::method::{input, to_bytes};
use crate::{Error, Object, Page, Result, Return};

/// Pages that are read at most to find as many entries as are wanted, where some are not to be shown.
const MAX_ATTEMPTS: u32 = 8;

versioned! {
    /// Input.
    #[derive(Eq)]
    pub(super) struct ListOp("rgw_cls_list_op", version 6, compat 4, oldest 4) {
        /// The most entries to return; with 0 only the header is wanted.
        num_entries: u32;
        filter_prefix: Bytes;
        /// The object or version after which to begin.
        start: ObjectKey;
        /// Whether all versions are wanted, and delete markers.
        list_versions: bool, since 5;
        /// If not empty: names that have this behind the prefix are replaced by what they have in
        /// common up to there.
        delimiter: Bytes, since 6;
    }

    /// Objects by their index keys, and common prefixes.
    #[derive(Eq)]
    pub(super) struct Dir("rgw_bucket_dir", version 2, compat 2, oldest 2) {
        header: DirHeader;
        entries: BTreeMap<Bytes, DirEntry>;
    }

    /// Output. That its version is above 2 tells radosgw that delimiter and versions were heeded.
    #[derive(Eq)]
    pub(super) struct ListReply("rgw_cls_list_ret", version 4, compat 2, oldest 2) {
        dir: Dir;
        is_truncated: bool;
        /// Where to go on, if it is truncated.
        pub(super) marker: ObjectKey, since 4;
    }
}

pub(super) fn bucket_list(object: &mut dyn Object, op: ListOp) -> Result<Return> {
    let mut reply = ListReply::default();
    reply.dir.header = header::read(object)?;
    if op.num_entries > 0 {
        Listing::new(object, &op)?.run(object, &mut reply)?;
    }
    // With this result radosgw calls again at once, from the marker on.
    let has_found_none = reply.is_truncated && reply.dir.entries.is_empty();
    Ok(Return {
        code: if has_found_none { -EFBIG } else { 0 },
        data: to_bytes(&reply),
    })
}

struct Listing<'a> {
    op: &'a ListOp,
    /// The index key after which the next page begins.
    after: Bytes,
    /// The same for the client.
    marker: ObjectKey,
    /// The last common prefix in the reply.
    prefix: Bytes,
}

/// What comes behind a common prefix and all names that have it: no UTF-8 has this byte.
fn after_prefix(prefix: &[u8]) -> Bytes {
    [prefix, &[0xff]].concat().into()
}

impl<'a> Listing<'a> {
    fn new(object: &mut dyn Object, op: &'a ListOp) -> Result<Self> {
        let mut after = start_key(object, &op.start)?;
        if !op.delimiter.is_empty() && after > op.filter_prefix && after.ends_with(&op.delimiter) {
            after = after_prefix(&after);
        }
        Ok(Self {
            op,
            after,
            marker: ObjectKey::default(),
            prefix: Bytes::new(),
        })
    }

    fn run(mut self, object: &mut dyn Object, reply: &mut ListReply) -> Result<()> {
        let mut attempts = 0;
        reply.is_truncated = true;
        while attempts < MAX_ATTEMPTS && reply.is_truncated {
            let missing = u64::from(self.op.num_entries) - reply.dir.entries.len() as u64;
            if missing == 0 {
                break;
            }
            let page = plain_page(object, &self.after, &self.op.filter_prefix, missing)?;
            reply.is_truncated = page.more && !page.items.is_empty();
            self.take(page.items, &mut reply.dir.entries)?;
            attempts += 1;
        }
        if reply.is_truncated {
            reply.marker = self.marker;
        }
        Ok(())
    }

    /// Adds what is to be shown of a page.
    fn take(&mut self, page: Vec<(Bytes, Bytes)>, found: &mut BTreeMap<Bytes, DirEntry>) -> Result<()> {
        for (key, value) in page {
            // The rest of a common prefix.
            if key < self.after {
                continue;
            }
            let entry: DirEntry = input(&value)?;
            self.after = key.clone();
            self.marker = entry.key.clone();
            let Some(name) = keys::listed_name(&key).filter(|name| self.shows(&entry, name)) else {
                continue;
            };
            match self.common_prefix(name) {
                Some(prefix) if *prefix == self.prefix => {}
                Some(prefix) => {
                    self.prefix = Bytes::copy_from_slice(prefix);
                    found.insert(self.prefix.clone(), proxy(self.prefix.clone()));
                    self.after = after_prefix(&self.prefix);
                    self.marker = ObjectKey::of_name(self.after.clone());
                }
                None => drop(found.insert(key, entry)),
            }
        }
        Ok(())
    }

    fn shows(&self, entry: &DirEntry, name: &[u8]) -> bool {
        let is_object = !entry.flags.contains(EntryFlags::VERSION_MARKER);
        // A version of the object after which to begin is none of the next object.
        is_object && (self.op.list_versions || (entry.is_visible() && self.op.start.name != name))
    }

    /// What a name begins with, up to the first delimiter behind the prefix that was asked for.
    fn common_prefix<'n>(&self, name: &'n [u8]) -> Option<&'n [u8]> {
        let delimiter = &self.op.delimiter[..];
        let from = self.op.filter_prefix.len();
        if delimiter.is_empty() {
            return None;
        }
        let rest = name.get(from..)?;
        let at = rest.windows(delimiter.len()).position(|w| w == delimiter)?;
        name.get(..from + at + delimiter.len())
    }
}

/// The entry that stands for a common prefix.
fn proxy(prefix: Bytes) -> DirEntry {
    DirEntry {
        key: ObjectKey::of_name(prefix),
        flags: EntryFlags::COMMON_PREFIX,
        ..DirEntry::default()
    }
}

/// The index key of the object or version after which to begin.
fn start_key(object: &mut dyn Object, start: &ObjectKey) -> Result<Bytes> {
    if start.instance.is_empty() {
        return Ok(start.name.clone());
    }
    let mut version = start.clone();
    if version.instance == keys::NULL_INSTANCE {
        version.instance.clear();
    }
    let read = entry::read::<DirEntry>(object, &keys::instance(&version));
    Ok(match unless(read, &[Error::EIO])? {
        Some(Some(entry)) => keys::listed_version(&entry),
        // Behind all versions of the object.
        Some(None) => [&start.name[..], &[1]].concat().into(),
        // From the beginning, where the entry is damaged.
        None => Bytes::new(),
    })
}

/// Up to `max` plain entries, without what is between them.
fn plain_page(
    object: &mut dyn Object,
    after: &[u8],
    prefix: &[u8],
    max: u64,
) -> Result<Page<(Bytes, Bytes)>> {
    const BEHIND: &[u8] = &[keys::SPECIAL + 1];
    let first_byte = |(key, _): &(Bytes, Bytes)| key.first().copied().unwrap_or_default();
    let mut page = object.omap_vals(after, prefix, max)?;
    let is_before = page
        .items
        .last()
        .is_none_or(|last| first_byte(last) < keys::SPECIAL);
    let is_behind = page
        .items
        .first()
        .is_some_and(|first| first_byte(first) > keys::SPECIAL);
    if is_before || is_behind {
        return Ok(page);
    }
    page.items.retain(|pair| first_byte(pair) != keys::SPECIAL);
    let missing = max - page.items.len() as u64;
    if missing == 0 || !page.more {
        return Ok(page);
    }
    let after = page
        .items
        .last()
        .map_or(BEHIND, |(key, _)| key)
        .max(BEHIND)
        .to_vec();
    let rest = object.omap_vals(&after, prefix, missing)?;
    page.items.extend(rest.items);
    page.more = rest.more;
    Ok(page)
}
