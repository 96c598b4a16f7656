//! Tags of a journal: numbered in the order of their creation, each in a class of tags that follow
//! each other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use bytes::Bytes;
use spirula_denc::{Decode, Reader};

use super::{Client, NEXT_TAG_CLASS, NEXT_TAG_TID, client_key, read, scan_clients, write};
use crate::method::{Nothing, stored};
use crate::omap;
use crate::text::leading_hex;
use crate::{Error, Object, Result};
use spirula_denc::versioned;

const PREFIX: &[u8] = b"tag_";
/// Asks for a new class.
const NEW_CLASS: u64 = u64::MAX;

versioned! {
    /// A tag.
    #[derive(Eq)]
    pub struct Tag("cls::journal::Tag", version 1, compat 1) {
        /// Its number.
        pub tid: u64;
        /// The class of the tag.
        pub class: u64;
        /// Data of its creator.
        pub data: Bytes;
    }
}

fn tag_key(tid: u64) -> Vec<u8> {
    format!("tag_{tid:016x}").into_bytes()
}

/// Calls `visit` with the tags in order until it breaks.
fn scan(object: &mut dyn Object, mut visit: impl FnMut(Bytes, Tag) -> Result<ControlFlow<()>>) -> Result<()> {
    omap::scan(object, PREFIX, PREFIX, |key, tag| visit(key, stored(&tag)?))
}

pub(super) fn get(object: &mut dyn Object, tid: u64) -> Result<Tag> {
    read(object, &tag_key(tid))
}

type Creation = (u64, (u64, Bytes));

pub(super) fn create(object: &mut dyn Object, (tid, (class, data)): Creation) -> Result<Nothing> {
    let key = tag_key(tid);
    if omap::find(object, &key)?.is_some() {
        return Err(Error::EEXIST);
    }
    if tid != read::<u64>(object, NEXT_TAG_TID)? {
        return Err(Error::ESTALE);
    }
    let next_class: u64 = read(object, NEXT_TAG_CLASS)?;
    let class = if class == NEW_CLASS {
        write(object, NEXT_TAG_CLASS, &next_class.wrapping_add(1))?;
        next_class
    } else if class < next_class {
        class
    } else {
        return Err(Error::EINVAL);
    };
    expire(object, None)?;
    write(object, NEXT_TAG_TID, &tid.wrapping_add(1))?;
    write(object, &key, &Tag { tid, class, data })
}

/// Removes the tags that no client besides `without` needs any more: in each class those before the
/// newest one that is not newer than the oldest tag in use. While a connected client has no
/// position, all tags are needed.
pub(super) fn expire(object: &mut dyn Object, without: Option<&[u8]>) -> Result<()> {
    let Some(oldest) = oldest_in_use(object, without)? else {
        return Ok(());
    };
    let needed = needed_by_class(object, oldest)?;
    let mut expired = BTreeSet::new();
    scan(object, |key, tag| {
        if leading_hex(&key[PREFIX.len()..]).0 != tag.tid {
            return Err(Error::EINVAL);
        }
        if needed.get(&tag.class).is_some_and(|first| tag.tid < *first) {
            expired.insert(key);
        }
        Ok(until(tag.tid >= oldest))
    })?;
    match expired.is_empty() {
        true => Ok(()),
        false => object.omap_remove(&expired),
    }
}

fn until(enough: bool) -> ControlFlow<()> {
    match enough {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    }
}

/// The oldest tag in a client's position, if there is one.
fn oldest_of(client: &Client) -> Option<u64> {
    client.commit_position.positions.iter().map(|p| p.tag_tid).min()
}

fn oldest_in_use(object: &mut dyn Object, without: Option<&[u8]>) -> Result<Option<u64>> {
    let (mut oldest, mut one_is_nowhere) = (None, false);
    scan_clients(object, |key, client| {
        // A disconnected client keeps nothing.
        if without == Some(key) || !client.is_connected() {
            return ControlFlow::Continue(());
        }
        let its = oldest_of(client);
        one_is_nowhere = its.is_none();
        oldest = oldest.into_iter().chain(its).min();
        until(one_is_nowhere)
    })?;
    Ok(oldest.filter(|tid| !one_is_nowhere && *tid != u64::MAX))
}

/// By class, the newest tag up to and with the first one that is not older than `oldest`.
fn needed_by_class(object: &mut dyn Object, oldest: u64) -> Result<BTreeMap<u64, u64>> {
    let mut newest = BTreeMap::new();
    scan(object, |_, tag| {
        newest.insert(tag.class, tag.tid);
        Ok(until(tag.tid >= oldest))
    })?;
    Ok(newest)
}

/// Input of `tag_list`.
pub(super) struct Listing {
    /// The tags follow this one; 0 for all.
    after: u64,
    /// The most tags.
    max: u64,
    client: Bytes,
    /// The class of the tags; `None` for all.
    class: Option<u64>,
}

impl Decode for Listing {
    fn decode(r: &mut Reader<'_>) -> spirula_denc::Result<Self> {
        Ok(Self {
            after: r.get()?,
            max: r.get()?,
            client: r.get()?,
            class: r.get()?,
        })
    }
}

/// The tags, of one class or all, that a client needs.
pub(super) fn list(object: &mut dyn Object, listing: Listing) -> Result<Vec<Tag>> {
    let Listing {
        after, max, class, ..
    } = listing;
    let client: Client = read(object, &client_key(&listing.client))?;
    let needed = match oldest_of(&client).filter(|tid| *tid != u64::MAX) {
        Some(oldest) => needed_by_class(object, oldest)?,
        None => BTreeMap::new(),
    };
    let mut tags = Vec::new();
    scan(object, |_, tag| {
        if after != 0 && tag.tid <= after {
            return Ok(ControlFlow::Continue(()));
        }
        let is_needed = needed.get(&tag.class).is_none_or(|first| tag.tid >= *first);
        if is_needed && class.is_none_or(|class| tag.class == class) {
            tags.push(tag);
        }
        Ok(until(tags.len() as u64 >= max))
    })?;
    Ok(tags)
}
