//! Reads the uncommitted entries of a journal whose writer has gone.

use std::collections::BTreeMap;

use spirula_classes::journal::{ObjectPosition, ObjectSetPosition};
use spirula_client::errno;
use spirula_denc::Reader;

use super::entry::{self, EntryId, Parsed};
use super::event::Event;
use super::header::JournalHeader;
use crate::cls::read;
use crate::{Error, Result, bounds};

/// Bytes per read.
const CHUNK: u64 = 1 << 20;

/// The place of an entry.
#[derive(Debug, Clone, Copy)]
struct Place {
    object: u64,
    offset: u64,
    len: u64,
}

/// The entries to be replayed, in order.
pub(super) struct Player<'a> {
    header: &'a JournalHeader,
    entries: std::vec::IntoIter<(EntryId, Place)>,
}

fn broken() -> Error {
    Error::os("journal", errno::EBADMSG)
}

/// The place directly behind an entry, under the same tag.
fn after(id: EntryId) -> EntryId {
    EntryId {
        number: id.number.saturating_add(1),
        ..id
    }
}

/// The entries behind the committed one. A tag ends before its first missing entry: its writer
/// never relied on entries behind the gap. The next tag begins where its writer found that end.
fn in_order<T: Copy>(found: &BTreeMap<EntryId, T>, committed: Option<EntryId>) -> Vec<(EntryId, T)> {
    let mut next = match committed {
        Some(id) => after(id),
        None => EntryId { tag: 0, number: 0 },
    };
    let mut order = Vec::new();
    for (id, place) in found.range(next..) {
        let begins_tag = id.tag > next.tag && id.number == 0;
        if *id == next || begins_tag {
            order.push((*id, *place));
            next = after(*id);
        }
    }
    order
}

impl<'a> Player<'a> {
    /// Finds the uncommitted entries.
    ///
    /// # Errors
    /// `EBADMSG` where an object holds something else than entries.
    pub(super) async fn find(header: &'a JournalHeader, position: &ObjectSetPosition) -> Result<Self> {
        let sets = header.sets().await?;
        let (first, last) = (*sets.start(), *sets.end());
        let mut found = BTreeMap::new();
        for place in 0..header.width {
            let at_place = |p: &&ObjectPosition| p.object_number % header.width == place;
            let known = position.positions.iter().find(at_place);
            let from = known.map_or(first, |p| p.object_number / header.width);
            for set in from.max(first)..=last {
                scan(header, header.object_of(set, place), &mut found).await?;
            }
        }
        let committed = position.positions.first().map(|p| EntryId {
            tag: p.tag_tid,
            number: p.entry_tid,
        });
        let entries = in_order(&found, committed).into_iter();
        Ok(Self { header, entries })
    }

    /// The next event and the position of its entry.
    pub(super) async fn next(&mut self) -> Result<Option<(ObjectPosition, Event)>> {
        let Some((id, place)) = self.entries.next() else {
            return Ok(None);
        };
        let data = self.header.read(place.object, place.offset, place.len).await?;
        let Parsed::Entry { payload, .. } = entry::parse(&data) else {
            return Err(broken());
        };
        let position = ObjectPosition {
            object_number: place.object,
            tag_tid: id.tag,
            entry_tid: id.number,
        };
        Ok(Some((position, Reader::new(payload).get()?)))
    }
}

/// Adds the complete entries of a part of an object. Returns their bytes.
fn take_entries(
    object: u64,
    offset: u64,
    part: &[u8],
    found: &mut BTreeMap<EntryId, Place>,
) -> Result<usize> {
    let mut used = 0;
    while used < part.len() {
        used += match entry::parse(&part[used..]) {
            Parsed::Entry { id, len, .. } => {
                let place = Place {
                    object,
                    offset: offset + used as u64,
                    len: len as u64,
                };
                found.insert(id, place);
                if found.len() > bounds::MAX_ENTRIES {
                    return Err(broken());
                }
                len
            }
            Parsed::Padding(len) => len,
            Parsed::Part if part.len() - used > bounds::MAX_ENTRY => return Err(broken()),
            Parsed::Part => break,
            Parsed::Broken => return Err(broken()),
        };
    }
    Ok(used)
}

/// Decodes an object's content, and the events of its entries (`stored.rs`).
pub(super) fn read_stored(data: &[u8]) {
    let mut found = BTreeMap::new();
    let _ = take_entries(0, 0, data, &mut found);
    for (_, place) in in_order(&found, found.keys().next().copied()) {
        let at = place.offset as usize;
        if let Parsed::Entry { payload, .. } = entry::parse(&data[at..]) {
            let _ = read::<Event>(payload);
        }
    }
    let _ = read::<Event>(data);
}

/// Finds the entries of an object.
async fn scan(header: &JournalHeader, object: u64, found: &mut BTreeMap<EntryId, Place>) -> Result<()> {
    let mut offset = 0;
    let mut rest = Vec::new();
    loop {
        let data = header.read(object, offset + rest.len() as u64, CHUNK).await?;
        if data.is_empty() {
            break;
        }
        rest.extend_from_slice(&data);
        let used = take_entries(object, offset, &rest, found)?;
        rest.drain(..used);
        offset += used as u64;
    }
    match rest.is_empty() {
        true => Ok(()),
        false => Err(broken()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_ends_with_the_first_entry_that_is_missing() {
        let found: BTreeMap<EntryId, ()> = [
            (1, 4),
            (2, 5),
            (2, 6),
            (2, 7),
            (2, 9),
            (3, 1),
            (5, 0),
            (5, 1),
            (6, 0),
            (6, 2),
        ]
        .into_iter()
        .map(|(tag, number)| (EntryId { tag, number }, ()))
        .collect();
        let ids = |committed: Option<(u64, u64)>| -> Vec<(u64, u64)> {
            let committed = committed.map(|(tag, number)| EntryId { tag, number });
            in_order(&found, committed)
                .into_iter()
                .map(|(id, ())| (id.tag, id.number))
                .collect()
        };
        assert_eq!(ids(Some((2, 5))), [(2, 6), (2, 7), (5, 0), (5, 1), (6, 0)]);
        assert_eq!(ids(Some((2, 7))), [(5, 0), (5, 1), (6, 0)]);
        assert_eq!(ids(Some((6, 0))), []);
        assert_eq!(ids(Some((7, 0))), []);
        assert_eq!(ids(None), [(5, 0), (5, 1), (6, 0)]);
    }
}
