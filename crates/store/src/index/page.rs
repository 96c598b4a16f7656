//! Pages of ranges of the index, and their limits.

use std::ops::Bound;

use bytes::Bytes;
use redb::{Database, ReadableDatabase, TableDefinition};

use crate::Result;

/// A page of a range: entries, and whether the range may go on behind the last one.
#[derive(Debug, Clone)]
pub(crate) struct Page<T> {
    pub(crate) entries: Vec<(Bytes, T)>,
    pub(crate) more: bool,
    /// Whether the page ends before an entry that would have made it larger than allowed; it may be
    /// empty then.
    pub(crate) cut: bool,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            more: false,
            cut: false,
        }
    }
}

/// Limits of a page of pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// The most pairs.
    pub(crate) count: usize,
    /// Bytes of keys and values after which no more pairs follow.
    pub(crate) bytes: usize,
    /// Bytes of keys and values that are never exceeded, not even by the first pair.
    pub(crate) most: usize,
    /// Whether values are wanted; without, all are empty.
    pub(crate) values: bool,
}

impl PageLimit {
    /// No limit.
    pub(crate) const NONE: Self = Self {
        count: usize::MAX,
        bytes: usize::MAX,
        most: usize::MAX,
        values: true,
    };

    /// At most `count` pairs (65,536 where that is less), and none after those that reach `bytes`.
    pub fn new(count: usize, bytes: usize) -> Self {
        Self {
            count: count.clamp(1, 65_536),
            bytes: bytes.max(1),
            ..Self::NONE
        }
    }

    /// None after the pairs that reach `bytes`.
    pub fn of_bytes(bytes: usize) -> Self {
        Self {
            bytes: bytes.max(1),
            ..Self::NONE
        }
    }

    /// These limits, and never more than `most` bytes: the page is cut before a pair that does not
    /// fit.
    pub fn within(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Whether a pair of `len` bytes must not follow pairs of `bytes`.
    pub(crate) fn cuts(&self, bytes: usize, len: usize) -> bool {
        bytes.saturating_add(len) > self.most
    }

    /// These limits, with empty values.
    pub fn keys_only(self) -> Self {
        Self {
            values: false,
            ..self
        }
    }
}

/// The pairs of some keys, as far as they exist, up to the limit's bytes.
pub(super) fn of_keys(
    db: &Database,
    table: TableDefinition<'_, &[u8], &[u8]>,
    keys: &[Bytes],
    limit: PageLimit,
) -> Result<Page<Bytes>> {
    let table = db.begin_read()?.open_table(table)?;
    let mut page = Page::default();
    let mut bytes = 0usize;
    for key in keys {
        if let Some(value) = table.get(key.as_ref())? {
            let value = if limit.values { value.value() } else { b"" };
            let len = key.len() + value.len();
            let is_full = bytes >= limit.bytes;
            page.cut = !is_full && limit.cuts(bytes, len);
            if is_full || page.cut {
                page.more = true;
                break;
            }
            bytes = bytes.saturating_add(len);
            page.entries.push((key.clone(), Bytes::copy_from_slice(value)));
        }
    }
    Ok(page)
}

/// A page of the keys in `[from, to)` with the wanted part of their values, all in one piece of
/// memory: there may be thousands.
pub(super) fn of_range(
    db: &Database,
    table: TableDefinition<'_, &[u8], &[u8]>,
    (from, to): (&[u8], Option<&[u8]>),
    limit: PageLimit,
    part: impl Fn(&[u8]) -> Result<&[u8]>,
) -> Result<Page<Bytes>> {
    let mut page = Page::default();
    if to.is_some_and(|to| to <= from) {
        return Ok(page);
    }
    let table = db.begin_read()?.open_table(table)?;
    let end = to.map_or(Bound::Unbounded, Bound::Excluded);
    let (mut held, mut places) = (Vec::new(), Vec::new());
    let mut bytes = 0usize;
    for entry in table.range::<&[u8]>((Bound::Included(from), end))? {
        let (key, value) = entry?;
        let mut len = key.value().len();
        if limit.values {
            len += value.value().len();
        }
        let is_full = places.len() >= limit.count || bytes >= limit.bytes;
        page.cut = !is_full && limit.cuts(bytes, len);
        if is_full || page.cut {
            page.more = true;
            break;
        }
        bytes = bytes.saturating_add(len);
        let start = held.len();
        held.extend_from_slice(key.value());
        let middle = held.len();
        held.extend_from_slice(part(value.value())?);
        places.push((start, middle, held.len()));
    }
    let held = Bytes::from(held);
    let slices = |(start, middle, end)| (held.slice(start..middle), held.slice(middle..end));
    page.entries = places.into_iter().map(slices).collect();
    Ok(page)
}
