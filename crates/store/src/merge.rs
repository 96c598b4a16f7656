//! Ordered pages of the index with the generations of changes laid over them.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::event::{Listing, Pairs};
use crate::index::{Page, PageLimit};
use crate::onode::Listed;
use crate::state::State;
use crate::{ObjectKey, Result};

/// First key behind `key`.
fn successor(key: &[u8]) -> Bytes {
    let mut next = key.to_vec();
    next.push(0);
    next.into()
}

/// The end of a page of the index: behind its last entry if there is more, else the end of the
/// range. `None` for a page that was cut before its first entry.
fn page_end<T>(page: &Page<T>, from: &[u8], to: Option<&[u8]>) -> Option<Bytes> {
    match page.entries.last() {
        Some((last, _)) if page.more => Some(successor(last)),
        None if page.cut => Some(Bytes::copy_from_slice(from)),
        _ => to.map(Bytes::copy_from_slice),
    }
}

impl State {
    /// Lays the changes over a page of objects.
    pub(crate) fn merge_objects<T: Listed>(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        page: Page<T>,
        limit: usize,
    ) -> Listing<T> {
        let end = page_end(&page, from, to);
        let more = page.more;
        let upper = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut changes = BTreeMap::new();
        for table in self
            .tables
            .iter()
            .filter(|_| end.as_ref().is_none_or(|e| e > from))
        {
            let range = (Bound::Included(from), upper);
            for (key, known) in table.objects.range::<[u8], _>(range) {
                changes.insert(Bytes::copy_from_slice(key.as_slice()), known.as_ref().map(T::of));
            }
        }
        let mut objects = lay(page.entries, changes);
        let next = match objects.get(limit) {
            Some((key, _)) => Some(ObjectKey::new(key)),
            None if more => end.as_deref().map(ObjectKey::new),
            None => None,
        };
        objects.truncate(limit);
        Listing { objects, next }
    }

    /// Lays the changes over a page of pairs; `skip` bytes of each key are the store's own prefix.
    pub(crate) fn merge_pairs(
        &self,
        from: &[u8],
        to: &Bytes,
        page: Page<Bytes>,
        limit: PageLimit,
        skip: usize,
    ) -> Pairs {
        let end = page_end(&page, from, Some(to));
        let (more, cut) = (page.more, page.cut);
        let (mut stored, mut changes) = (page.entries, BTreeMap::new());
        for table in self
            .tables
            .iter()
            .filter(|_| end.as_ref().is_none_or(|e| e > from))
        {
            table.pairs.merge(from, end.as_deref(), &mut stored, &mut changes);
        }
        let (mut out, mut bytes) = (Pairs::default(), 0usize);
        for (key, value) in lay(stored, changes) {
            let value = if limit.values { value } else { Bytes::new() };
            let len = key.len() + value.len();
            let is_full = out.pairs.len() >= limit.count || bytes >= limit.bytes;
            out.cut = !is_full && limit.cuts(bytes, len);
            if is_full || out.cut {
                out.next = Some(key.slice(skip..));
                return out;
            }
            bytes = bytes.saturating_add(len);
            out.pairs.push((key.slice(skip..), value));
        }
        out.next = if more { end.map(|e| e.slice(skip..)) } else { None };
        out.cut = cut;
        out
    }

    /// The pairs of these keys; `None` if the index must be asked about one.
    pub(crate) fn pairs_in_memory(&self, keys: &[Bytes], limit: PageLimit, skip: usize) -> Option<Pairs> {
        let mut found = Found::default();
        for key in keys {
            if let Some(value) = self.pair_in_memory(key)?
                && !found.add(key.slice(skip..), value, limit)
            {
                break;
            }
        }
        Some(found.pairs)
    }

    /// Lays the changes over the index's pairs of these keys.
    pub(crate) fn merge_keys(
        &self,
        keys: &[Bytes],
        page: Page<Bytes>,
        limit: PageLimit,
        skip: usize,
    ) -> Pairs {
        // Where the index has reached the limit, it knows nothing of the keys that follow.
        let last = page.entries.last().map(|(k, _)| k.clone());
        let is_known = |key: &Bytes| !page.more || last.as_ref().is_some_and(|last| key <= last);
        let cut = page.cut;
        let mut stored = page.entries.into_iter().peekable();
        let mut found = Found::default();
        for key in keys {
            if !is_known(key) {
                found.pairs.next = Some(key.slice(skip..));
                found.pairs.cut = cut;
                break;
            }
            let indexed = stored.next_if(|(k, _)| k == key).map(|(_, value)| value);
            if let Some(value) = self.pair_in_memory(key).unwrap_or(indexed)
                && !found.add(key.slice(skip..), value, limit)
            {
                break;
            }
        }
        found.pairs
    }

    /// All pairs in `[from, to)`, blocking on the index.
    pub(crate) fn all_pairs(&self, from: &[u8], to: &Bytes) -> Result<Vec<(Bytes, Bytes)>> {
        let page = self.index.list_pairs(from, Some(to), PageLimit::NONE)?;
        Ok(self.merge_pairs(from, to, page, PageLimit::NONE, 0).pairs)
    }
}

/// Pairs that were looked up, up to a limit.
#[derive(Default)]
struct Found {
    pairs: Pairs,
    bytes: usize,
}

impl Found {
    /// Adds a pair; returns whether there was room for it.
    fn add(&mut self, key: Bytes, value: Bytes, limit: PageLimit) -> bool {
        let value = if limit.values { value } else { Bytes::new() };
        let len = key.len() + value.len();
        let is_full = self.bytes >= limit.bytes;
        self.pairs.cut = !is_full && limit.cuts(self.bytes, len);
        if is_full || self.pairs.cut {
            self.pairs.next = Some(key);
            return false;
        }
        self.bytes = self.bytes.saturating_add(len);
        self.pairs.pairs.push((key, value));
        true
    }
}

/// Lays changes over stored values, both in the order of their keys; `None` removes.
fn lay<K: Ord, T>(stored: Vec<(K, T)>, changes: BTreeMap<K, Option<T>>) -> Vec<(K, T)> {
    if changes.is_empty() {
        return stored;
    }
    let mut out = Vec::with_capacity(stored.len() + changes.len());
    let mut changes = changes.into_iter().peekable();
    for (key, value) in stored {
        while let Some((k, change)) = changes.next_if(|(k, _)| *k < key) {
            out.extend(change.map(|v| (k, v)));
        }
        match changes.next_if(|(k, _)| *k == key) {
            Some((_, change)) => out.extend(change.map(|v| (key, v))),
            None => out.push((key, value)),
        }
    }
    out.extend(changes.filter_map(|(k, change)| Some((k, change?))));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_replace_add_and_remove() {
        let stored = vec![(2, 'b'), (4, 'd'), (6, 'f')];
        let changes = [
            (1, Some('A')),
            (2, None),
            (3, None),
            (4, Some('D')),
            (5, Some('E')),
            (7, Some('G')),
        ];
        let laid = lay(stored.clone(), changes.into());
        assert_eq!(laid, [(1, 'A'), (4, 'D'), (5, 'E'), (6, 'f'), (7, 'G')]);
        assert_eq!(lay(stored.clone(), BTreeMap::new()), stored);
    }
}
