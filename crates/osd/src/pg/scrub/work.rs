//! A member's account of its objects in a range, while it is being made.

use std::collections::VecDeque;

use bytes::Bytes;
use spirula_denc::{Micros, decode_all};
use spirula_erasure::FragmentDigest;
use spirula_invariant::{impossible, invariant};
use spirula_maps::OsdId;

use super::account::{Account, Content, Found, Omap};
use super::digest::{self, Digest};
use super::message::Wanted;
use super::pace::ScrubPace;
use super::slots::{ScrubSlot, ScrubSlots};
use crate::pg::fetch::{Answer, Fetched, OmapRange, Pieces, ReadRange, Want, key_after};
use crate::pg::key::{self, KeyRange};
use crate::pg::message::PeeringId;
use crate::pg::object::{ObjectInfo, StoredObject};

/// The bytes of omap pairs that are read at once.
const KEY_BYTES: usize = 256 << 10;
/// The bytes of accounts after which an answer is sent, once an object's last clone is in it.
const MOST_BYTES: usize = 1 << 20;
/// The bytes of contents after which an answer is sent, so that few objects of a range are written
/// while the others are read.
const MOST_READ: u64 = 4 << 20;
/// The bytes of contents after which there may be a rest before the account is complete.
const READ_AT_ONCE: u64 = 8 << 20;

/// A member's part in the scrubs of its PG.
#[derive(Debug, Default)]
pub(in crate::pg) struct Scrubbed {
    /// The scrubs under way on this OSD.
    pub(in crate::pg) slots: ScrubSlots,
    /// Their pace.
    pub(in crate::pg) pace: ScrubPace,
    /// The last message of the primary that was remembered, and the attempt at peering.
    pub(super) heard: (PeeringId, u32),
    /// The slot that the primary has reserved here, in an attempt at peering.
    pub(super) reserved: Option<Reserved>,
    /// The account that is being made.
    pub(super) work: Option<Work>,
}

/// A slot that the primary has reserved.
#[derive(Debug)]
pub(super) struct Reserved {
    /// The attempt at peering.
    pub(super) id: PeeringId,
    pub(super) _slot: ScrubSlot,
    /// When the primary was last heard.
    pub(super) heard: Micros,
}

/// An account that is being made.
#[derive(Debug)]
pub(super) struct Work {
    /// The primary.
    pub(super) by: OsdId,
    pub(super) id: PeeringId,
    pub(super) wanted: Wanted,
    /// How much is read at once.
    strides: Strides,
    /// The keys of the objects that are left; `None` before they were listed.
    left: Option<VecDeque<Bytes>>,
    /// The first key that the listing had no room for.
    next: Option<Bytes>,
    done: Vec<Account>,
    weight: usize,
    /// The bytes of contents that were read.
    read: u64,
    /// Of them those since the last rest.
    in_a_row: u64,
    current: Option<Reading>,
    /// Whether the store was asked and has not answered.
    pub(super) waits: bool,
    /// When the store was asked.
    pub(super) since: Micros,
}

/// How much of an object is read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strides {
    /// `osd_deep_scrub_stride`: bytes of data.
    pub data: u64,
    /// `osd_deep_scrub_keys`: keys of an omap.
    pub keys: usize,
}

/// An object whose contents are read.
#[derive(Debug)]
struct Reading {
    key: Bytes,
    strides: Strides,
    found: Found,
    /// The offset up to which data was read.
    at: u64,
    data: Option<Data>,
    /// The omap key from which on pairs are to be read; `None` if none are left.
    pairs_from: Option<Bytes>,
    omap: Option<(Digest, Omap)>,
}

/// The digests of data.
#[derive(Debug)]
struct Data {
    digest: Digest,
    /// Of a fragment.
    fragment: Option<FragmentDigest>,
}

impl Data {
    fn add(&mut self, offset: u64, bytes: &[u8]) {
        self.digest.add(bytes);
        if let Some(fragment) = &mut self.fragment {
            fragment.add(offset, bytes);
        }
    }
}

/// What is to be asked of the store next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The objects in the range.
    List,
    /// An object's record.
    Lookup(Bytes),
    /// Parts of an object.
    Read(Bytes, Vec<Want>),
    /// Nothing: the account is complete.
    Give,
}

impl Work {
    pub(super) fn new(by: OsdId, id: PeeringId, wanted: Wanted, strides: Strides) -> Self {
        Self {
            by,
            id,
            wanted,
            strides,
            left: None,
            next: None,
            done: Vec::new(),
            weight: 0,
            read: 0,
            in_a_row: 0,
            current: None,
            waits: false,
            since: Micros::ZERO,
        }
    }

    pub(super) fn next(&self) -> Next {
        let Some(left) = &self.left else {
            return Next::List;
        };
        if let Some(reading) = &self.current {
            return Next::Read(reading.key.clone(), reading.wants());
        }
        match left.front() {
            Some(key) if self.has_room() || self.is_of_last(key) => Next::Lookup(key.clone()),
            Some(_) => Next::Give,
            // An object's clones are judged together: the listing goes on if it had no room for all.
            None if self.next.as_ref().is_some_and(|next| self.is_of_last(next)) => Next::List,
            None => Next::Give,
        }
    }

    fn has_room(&self) -> bool {
        self.weight < MOST_BYTES && self.read < MOST_READ
    }

    /// Whether a rest does no harm now: what is looked at may be written meanwhile, and would be read
    /// again.
    pub(super) fn may_rest(&self) -> bool {
        self.read == 0 || self.in_a_row >= READ_AT_ONCE
    }

    /// Notes that the work has rested.
    pub(super) fn rested(&mut self) {
        self.in_a_row = 0;
    }

    /// Whether a key is of the same object as the last account.
    fn is_of_last(&self, key: &Bytes) -> bool {
        let last = self.done.last();
        last.is_some_and(|a| key::head_key(&a.key) == key::head_key(key))
    }

    /// The range that is to be listed: all of it, or what an earlier listing had no room for.
    pub(super) fn unlisted(&self) -> KeyRange {
        let range = self.wanted.range.clone();
        match &self.next {
            Some(next) => range.rest(next.clone()),
            None => range,
        }
    }

    /// Takes the keys of the objects in the range, and the first key that there was no room for.
    pub(super) fn listed(&mut self, keys: impl Iterator<Item = Bytes>, next: Option<Bytes>) {
        self.left = Some(keys.collect());
        self.next = next;
    }

    /// Takes an object's record: `None` if it can't be read, else the object if it is there.
    /// `is_coded`: this member has a fragment of it.
    pub(super) fn looked_up(&mut self, object: Option<Option<StoredObject>>, is_coded: bool) {
        let Some(key) = self.left.as_mut().and_then(VecDeque::pop_front) else {
            impossible!("an object that was looked up to be one of those left"; at = self.wanted.at);
        };
        let object = match object {
            None => return self.account(Account { key, found: None }),
            // It was removed meanwhile, which the primary knows.
            Some(None) => return,
            Some(Some(object)) => object,
        };
        let found = Found {
            size: object.size,
            attrs_digest: digest::of_attrs(&object.attrs),
            // Those of many clones may be too many: then their digest tells that they differ.
            attrs: (self.wanted.attrs && self.weight < MOST_BYTES).then_some(object.attrs),
            info: object.info,
            content: None,
        };
        if !self.wanted.deep {
            let found = Some(found);
            return self.account(Account { key, found });
        }
        let has_omap = decode_all::<ObjectInfo>(&found.info).is_ok_and(|i| i.has_omap());
        let omap = Omap {
            digest: 0,
            keys: 0,
            bytes: 0,
        };
        let reading = Reading {
            key,
            strides: self.strides,
            found,
            at: 0,
            data: Some(Data {
                digest: Digest::default(),
                fragment: is_coded.then(|| FragmentDigest::new(self.wanted.seed)),
            }),
            pairs_from: has_omap.then(Bytes::new),
            omap: Some((Digest::default(), omap)),
        };
        self.go_on(reading);
    }

    /// Takes parts of the object whose contents are read. Returns the bytes of contents, holes among
    /// them.
    pub(super) fn read(&mut self, answers: Vec<Fetched>) -> u64 {
        let Some(mut reading) = self.current.take() else {
            return 0;
        };
        let before = reading.done();
        reading.take(answers);
        let read = reading.done().saturating_sub(before);
        self.read += read;
        self.in_a_row += read;
        self.go_on(reading);
        read
    }

    fn go_on(&mut self, reading: Reading) {
        match reading.is_done() {
            true => self.account(reading.end()),
            false => self.current = Some(reading),
        }
    }

    fn account(&mut self, account: Account) {
        self.weight += account.weight();
        self.done.push(account);
    }

    /// The account, and the first key that there was no room for.
    pub(super) fn give(self) -> (Vec<Account>, Option<Bytes>) {
        let left = self.left.and_then(|mut left| left.pop_front());
        (self.done, left.or(self.next))
    }
}

impl Reading {
    fn is_done(&self) -> bool {
        self.at >= self.found.size && self.pairs_from.is_none()
    }

    /// The bytes that were read.
    fn done(&self) -> u64 {
        self.at + self.omap.map_or(0, |(_, omap)| omap.bytes)
    }

    fn wants(&self) -> Vec<Want> {
        if self.at < self.found.size {
            return vec![Want::Data(ReadRange {
                offset: self.at,
                len: self.strides.data.min(self.found.size - self.at),
                sparse: true,
            })];
        }
        let is_first = self.pairs_from.as_ref().is_some_and(Bytes::is_empty);
        let header = is_first.then_some(Want::OmapHeader);
        let pairs = self.pairs_from.clone().map(|from| {
            Want::Omap(OmapRange {
                from,
                to: None,
                max: self.strides.keys,
                max_bytes: KEY_BYTES,
                values: true,
            })
        });
        header.into_iter().chain(pairs).collect()
    }

    fn take(&mut self, answers: Vec<Fetched>) {
        for f in answers {
            match (f.want, f.answer) {
                (Want::Data(range), Ok(Answer::Data(pieces))) => self.take_data(range, pieces),
                (Want::Data(range), _) => {
                    // One bad block is as bad as all.
                    self.data = None;
                    self.at = self.found.size.max(range.offset);
                }
                (Want::OmapHeader, Ok(Answer::OmapHeader(header))) => {
                    if let Some((digest, _)) = &mut self.omap {
                        digest.add_header(&header);
                    }
                }
                (Want::Omap(_), Ok(Answer::Omap(page))) => {
                    let next = page.pairs.last().map(|(k, _)| key_after(k));
                    self.pairs_from = next.filter(|_| page.more);
                    if let Some((digest, omap)) = &mut self.omap {
                        for (key, value) in &page.pairs {
                            digest.add_pair(key, value);
                            omap.keys += 1;
                            omap.bytes += (key.len() + value.len()) as u64;
                        }
                    }
                }
                _ => {
                    self.omap = None;
                    self.pairs_from = None;
                }
            }
        }
    }

    fn take_data(&mut self, range: ReadRange, pieces: Pieces) {
        invariant!(range.offset == self.at, "data to be read in order"; offset = range.offset, at = self.at);
        let end = range.offset + range.len;
        if let Some(data) = &mut self.data {
            for (offset, bytes) in pieces {
                data.digest.add_zeros(offset.saturating_sub(self.at));
                data.add(offset, &bytes);
                self.at = offset + bytes.len() as u64;
            }
            data.digest.add_zeros(end.saturating_sub(self.at));
        }
        self.at = end;
    }

    fn end(self) -> Account {
        let omap = self.omap.map(|(digest, omap)| Omap {
            digest: digest.value(),
            ..omap
        });
        let content = Content {
            data: self.data.as_ref().map(|d| d.digest.value()),
            fragment: self
                .data
                .and_then(|d| Some(Bytes::copy_from_slice(&d.fragment?.sum()))),
            omap,
        };
        let found = Found {
            content: Some(content),
            ..self.found
        };
        Account {
            key: self.key,
            found: Some(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use spirula_maps::EVersion;

    use super::*;

    fn object(name: &str) -> Bytes {
        key::object_key(&spirula_maps::HObject {
            oid: name.into(),
            snap: spirula_maps::snap::NOSNAP,
            ..spirula_maps::HObject::default()
        })
    }

    fn wanted(deep: bool, head: &Bytes) -> Wanted {
        Wanted {
            number: 1,
            at: EVersion::ZERO,
            range: key::group_range(head),
            deep,
            seed: 1,
            attrs: false,
            rest: 0,
        }
    }

    #[test]
    fn an_answer_ends_between_objects() {
        let head = object("many");
        let clones = [1, 2, 3].map(|snap| key::clone_key(&head, snap));
        let wanted = wanted(false, &head);
        let strides = Strides { data: 4096, keys: 1 };
        let mut work = Work::new(OsdId::new(0), PeeringId::default(), wanted, strides);
        work.listed(clones[..2].iter().cloned(), Some(clones[2].clone()));
        for clone in &clones[..2] {
            assert_eq!(work.next(), Next::Lookup(clone.clone()));
            work.looked_up(Some(Some(StoredObject::default())), false);
            // More than an answer should have.
            work.weight = MOST_BYTES;
        }
        // The listing had no room for the third clone.
        assert_eq!(
            (work.next(), work.unlisted().from),
            (Next::List, clones[2].clone())
        );
        work.listed(
            [clones[2].clone(), head.clone()].into_iter(),
            Some(Bytes::from_static(b"\xff")),
        );
        for key in [&clones[2], &head] {
            assert_eq!(work.next(), Next::Lookup(key.clone()));
            work.looked_up(Some(Some(StoredObject::default())), false);
        }
        assert_eq!(work.next(), Next::Give);
        let (accounts, next) = work.give();
        assert_eq!((accounts.len(), next), (4, Some(Bytes::from_static(b"\xff"))));
    }

    #[test]
    fn an_answer_ends_after_some_contents_and_rests_are_in_between() {
        let heads: Vec<Bytes> = ["a", "b", "c"].map(object).into();
        let strides = Strides {
            data: 1 << 20,
            keys: 1,
        };
        let wanted = wanted(true, &heads[0]);
        let mut work = Work::new(OsdId::new(0), PeeringId::default(), wanted, strides);
        work.listed(heads.iter().cloned(), None);
        let read = |work: &mut Work, size: u64| {
            let info = Bytes::new();
            let object = StoredObject {
                size,
                info,
                ..StoredObject::default()
            };
            work.looked_up(Some(Some(object)), false);
            let mut rests = Vec::new();
            while let Next::Read(_, wants) = work.next() {
                rests.push(work.may_rest());
                let nothing = wants.into_iter().map(|want| Fetched {
                    want,
                    answer: Ok(Answer::Data(Pieces::default())),
                });
                work.read(nothing.collect());
            }
            rests
        };
        assert!(work.may_rest(), "before anything is read");
        assert_eq!(read(&mut work, 2 << 20), [true, false]);
        assert_eq!(work.next(), Next::Lookup(heads[1].clone()));
        // Half of it is read when there is a rest, as none is due before.
        assert_eq!(
            read(&mut work, 10 << 20),
            [vec![false; 6], vec![true; 4]].concat()
        );
        assert_eq!(work.next(), Next::Give, "that was enough for an answer");
        work.rested();
        assert!(!work.may_rest());
        assert_eq!(work.give().1, Some(heads[2].clone()));
    }
}
