//! Keys of the object's omap, one by one and in ranges.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use bytes::Bytes;
use spirula_denc::{Decode, Encode};

use crate::method::{stored, to_bytes};
use crate::{Error, Object, Result};

/// Pairs that are read at once: as many as an OSD returns to clients at once.
const PAGE: u64 = 1024;

/// The value of a key, if the key exists.
pub(crate) fn find(object: &mut dyn Object, key: &[u8]) -> Result<Option<Bytes>> {
    let keys = BTreeSet::from([Bytes::copy_from_slice(key)]);
    Ok(object.omap_by_keys(&keys)?.into_values().next())
}

/// The value of a key; ENOENT where there is no such key.
pub(crate) fn get(object: &mut dyn Object, key: &[u8]) -> Result<Bytes> {
    find(object, key)?.ok_or(Error::ENOENT)
}

/// Sets a key.
pub(crate) fn set(object: &mut dyn Object, key: impl Into<Bytes>, value: Bytes) -> Result<()> {
    object.omap_set(&BTreeMap::from([(key.into(), value)]))
}

/// Removes a key, which need not exist; ENOENT where the object does not exist.
pub(crate) fn remove(object: &mut dyn Object, key: impl Into<Bytes>) -> Result<()> {
    object.omap_remove(&BTreeSet::from([key.into()]))
}

/// Calls `visit` with the pairs behind the key `after` whose keys start with `prefix`, until the
/// last, or until it breaks.
pub(crate) fn scan(
    object: &mut dyn Object,
    after: &[u8],
    prefix: &[u8],
    mut visit: impl FnMut(Bytes, Bytes) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut after = Bytes::copy_from_slice(after);
    loop {
        let page = object.omap_vals(&after, prefix, PAGE)?;
        let last = page.items.last().map(|(key, _)| key.clone());
        for (key, value) in page.items {
            if visit(key, value)?.is_break() {
                return Ok(());
            }
        }
        match last {
            Some(key) if page.more => after = key,
            _ => return Ok(()),
        }
    }
}

/// A range of omap keys: those behind `after` that start with `prefix`.
pub(crate) struct Range {
    pub(crate) after: &'static [u8],
    pub(crate) prefix: &'static [u8],
}

/// Makes `state` of all pairs of these ranges, by calling `visit` with the range's number and one pair
/// after the other, until the range's last, or until it breaks the range off. After each page the state
/// is noted, so that any number of pairs can be read.
pub(crate) fn fold<S: Encode + Decode>(
    object: &mut dyn Object,
    ranges: &[Range],
    mut state: S,
    mut visit: impl FnMut(&mut S, u32, Bytes, Bytes) -> Result<ControlFlow<()>>,
) -> Result<S> {
    // The range, and the key in it behind which the next page begins.
    let (mut at, mut last) = (0u32, None);
    if let Some(note) = object.noted() {
        ((at, last), state) = stored(&note)?;
    }
    while let Some(range) = ranges.get(at as usize) {
        let after = last.take().unwrap_or(Bytes::from_static(range.after));
        let page = object.omap_vals(&after, range.prefix, PAGE)?;
        let is_last = !page.more || page.items.is_empty();
        last = page.items.last().map(|(key, _)| key.clone());
        let mut flow = ControlFlow::Continue(());
        for (key, value) in page.items {
            flow = visit(&mut state, at, key, value)?;
            if flow.is_break() {
                break;
            }
        }
        if is_last || flow.is_break() {
            (at, last) = (at + 1, None);
        }
        let note = ((at, last), state);
        object.note(to_bytes(&note));
        ((at, last), state) = note;
    }
    Ok(state)
}

/// Up to `max` of these pairs, each converted by `read` from the key's rest behind the prefix and
/// the value.
pub(crate) fn list<T>(
    object: &mut dyn Object,
    after: &[u8],
    prefix: &[u8],
    max: u64,
    mut read: impl FnMut(Bytes, Bytes) -> Result<T>,
) -> Result<Vec<T>> {
    let mut found = Vec::new();
    if max == 0 {
        return Ok(found);
    }
    scan(object, after, prefix, |key, value| {
        found.push(read(key.slice(prefix.len()..), value)?);
        Ok(match found.len() as u64 >= max {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    })?;
    Ok(found)
}
