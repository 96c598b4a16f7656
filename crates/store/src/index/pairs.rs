//! Changes of the pairs table. An omap that is removed as a whole may have millions of pairs; as
//! its number is never used again, they are only noted as garbage and removed some at a time.

use std::ops::Bound;

use redb::{CursorError, ReadableTable, Table};

use crate::apply::{OMAP_PREFIX, is_omap_key};
use crate::table::KvOverlay;
use crate::{Result, StoreError};

type PairTable<'txn> = Table<'txn, &'static [u8], &'static [u8]>;

/// Pairs removed in one go. Bounds how long a commit of the index waits for garbage, and how much
/// of the index it changes.
const BATCH: usize = 4096;

/// Removes pairs of `[from, to)`, at most [`BATCH`]. Returns the first key that was left.
fn remove_some(table: &mut PairTable<'_>, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut keys = table
        .range::<&[u8]>(from..to)?
        .take(BATCH + 1)
        .map(|entry| Ok::<_, StoreError>(entry?.0.value().to_vec()))
        .collect::<Result<Vec<_>>>()?;
    let next = if keys.len() > BATCH { keys.pop() } else { None };
    for key in keys {
        table.remove(key.as_slice())?;
    }
    Ok(next)
}

/// The part of a removed range that consists of whole omaps, which may be removed later: adjacent
/// ranges were merged. Keys before and behind it belong to omaps in use.
fn whole_omaps<'a>(from: &'a [u8], to: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    // A removed part of an omap in use, or of several omaps of which it is the last.
    let end = to.get(..OMAP_PREFIX)?;
    (is_omap_key(from) && from.len() == OMAP_PREFIX && from < end).then_some((from, end))
}

/// Applies the changes of a generation.
pub(super) fn apply(
    pairs: &mut PairTable<'_>,
    garbage: &mut PairTable<'_>,
    changes: &KvOverlay,
) -> Result<()> {
    for (from, to) in changes.ranges() {
        let mut rest = from.as_ref();
        if let Some((from, end)) = whole_omaps(from, to) {
            garbage.insert(from, end)?;
            rest = end;
        }
        if rest < to.as_ref() {
            pairs.retain_in::<&[u8], _>(rest..to.as_ref(), |_, _| false)?;
        }
    }
    put(pairs, changes)
}

fn put(pairs: &mut PairTable<'_>, changes: &KvOverlay) -> Result<()> {
    let mut puts = changes.puts().peekable();
    while let Some((key, value)) = puts.next() {
        let Some(value) = value else {
            pairs.remove(key.as_ref())?;
            continue;
        };
        pairs.insert(key.as_ref(), value.as_ref())?;
        if !matches!(puts.peek(), Some((_, Some(_)))) {
            continue;
        }
        // Entries of PG logs come in runs with nothing between them in the index: these go in
        // together.
        let mut gap = pairs.upper_bound_mut(Bound::<&[u8]>::Included(key.as_ref()))?;
        while let Some((key, Some(value))) = puts.peek() {
            match gap.insert_before(key.as_ref(), value.as_ref()) {
                Ok(()) => drop(puts.next()),
                Err(CursorError::UnorderedKey) => break,
                Err(e) => return Err(redb::Error::from(e).into()),
            }
        }
        gap.close()?;
    }
    Ok(())
}

/// Removes some garbage. Returns whether there is more.
pub(super) fn purge(pairs: &mut PairTable<'_>, garbage: &mut PairTable<'_>) -> Result<bool> {
    let first = |garbage: &PairTable<'_>| -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let entry = garbage.first()?;
        Ok(entry.map(|(from, to)| (from.value().to_vec(), to.value().to_vec())))
    };
    let before = pairs_left(pairs)?;
    while let Some((from, to)) = first(garbage)? {
        if before.saturating_sub(pairs_left(pairs)?) >= BATCH as u64 {
            return Ok(true);
        }
        let next = remove_some(pairs, &from, &to)?;
        garbage.remove(from.as_slice())?;
        if let Some(next) = next {
            garbage.insert(next.as_slice(), to.as_slice())?;
        }
    }
    Ok(false)
}

fn pairs_left(pairs: &PairTable<'_>) -> Result<u64> {
    use redb::ReadableTableMetadata;
    Ok(pairs.len()?)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::apply::{omap_end, omap_key};

    #[test]
    fn only_whole_omaps_are_garbage() {
        let (start, end) = (omap_key(5, b""), omap_end(5));
        assert_eq!(whole_omaps(&start, &end), Some((&start[..], &end[..])));
        // Two that were merged, and a part of a third.
        let part = omap_key(7, b"key");
        assert_eq!(
            whole_omaps(&start, &part),
            Some((&start[..], &omap_key(7, b"")[..]))
        );
        assert_eq!(whole_omaps(&omap_key(5, b"a"), &omap_key(5, b"b")), None);
        assert_eq!(whole_omaps(&start, &omap_key(5, b"b")), None);
        let meta = (Bytes::from_static(b"m12345678"), Bytes::from_static(b"m12345679"));
        assert_eq!(whole_omaps(&meta.0, &meta.1), None);
    }
}
