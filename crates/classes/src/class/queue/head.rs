//! The head of a queue: where its entries are, and data of its user. It is the start of the
//! object's data. Formats: Ceph's `src/cls/queue/cls_queue_types.h`.

use bytes::Bytes;
use spirula_denc::{Reader, Writer, encode_to_vec, versioned};

use crate::method::Nothing;
use crate::text::until_nul;
use crate::{Error, Object, Result};

/// What the object's data begins with, before the length of the encoded head.
const HEAD_START: u16 = 0xdead;
/// Bytes before the encoded head: the start and the length.
const HEAD_OVERHEAD: u64 = 10;
/// Bytes before the data of an entry: a start and the length.
pub(in crate::class) const ENTRY_OVERHEAD: u64 = 10;
/// Bytes of the head without urgent data.
const HEAD_SIZE: u64 = 1024;
/// Bytes that are read at first: the head, unless it has much urgent data.
const PAGE: u64 = 4096;

versioned! {
    /// A place in the queue. Markers of entries are texts: generation, slash, offset.
    #[derive(Eq, Copy)]
    pub(in crate::class) struct Marker("cls_queue_marker", version 1, compat 1) {
        /// How often the ring was begun anew.
        pub(in crate::class) generation: u64;
        /// The offset in the object.
        pub(in crate::class) offset: u64;
    }

    /// The head.
    #[derive(Eq)]
    pub(in crate::class) struct Head("cls_queue_head", version 1, compat 1) {
        /// Bytes for the head, and the offset where the ring begins.
        pub(in crate::class) max_head_size: u64;
        /// The first entry.
        pub(in crate::class) front: Marker;
        /// Where the next entry will be.
        pub(in crate::class) tail: Marker;
        /// Bytes of head and ring: the offset where the ring ends.
        pub(in crate::class) queue_size: u64;
        /// Bytes of `urgent_data` at most.
        pub(in crate::class) max_urgent_data_size: u64;
        /// Data of the queue's user that is read with the head.
        pub(in crate::class) urgent_data: Bytes;
    }
}

impl Marker {
    /// The marker as clients get it.
    pub(in crate::class) fn to_bytes(self) -> Bytes {
        format!("{}/{}", self.generation, self.offset).into()
    }

    /// What can be read of a client's marker, zeros for the rest.
    pub(in crate::class) fn parse(text: &[u8]) -> Self {
        let (generation, rest) = leading_number(until_nul(text));
        let offset = rest.strip_prefix(b"/").map_or(0, |rest| leading_number(rest).0);
        Self { generation, offset }
    }
}

/// The number that the decimal digits at the start make, and what follows them; the largest where
/// they make a larger one.
fn leading_number(text: &[u8]) -> (u64, &[u8]) {
    let len = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(len);
    let number = digits.iter().fold(0u64, |n, d| {
        n.saturating_mul(10).saturating_add(u64::from(d - b'0'))
    });
    (number, rest)
}

impl Head {
    /// The head of an empty queue.
    pub(super) fn new(size: u64, max_urgent_data_size: u64, urgent_data: Bytes) -> Self {
        let max_head_size = HEAD_SIZE.saturating_add(max_urgent_data_size);
        let start = Marker {
            generation: 0,
            offset: max_head_size,
        };
        Self {
            max_head_size,
            front: start,
            tail: start,
            queue_size: max_head_size.saturating_add(size),
            max_urgent_data_size,
            urgent_data,
        }
    }

    /// Reads the head; EINVAL where the object has none.
    pub(in crate::class) fn read(object: &mut dyn Object) -> Result<Self> {
        let page = object.read(0, PAGE)?;
        let mut r = Reader::new(&page);
        let (start, len): (u16, u64) = r.get().map_err(|_| Error::EINVAL)?;
        if start != HEAD_START {
            return Err(Error::EINVAL);
        }
        let mut encoded = page.slice(r.position()..);
        let in_page = PAGE - HEAD_OVERHEAD;
        if len > in_page {
            let rest = object.read(PAGE, len - in_page)?;
            object.reserve(encoded.len() as u64 + rest.len() as u64)?;
            encoded = [encoded, rest].concat().into();
        }
        let head: Self = Reader::new(&encoded).get().map_err(|_| Error::EINVAL)?;
        head.check()?;
        Ok(head)
    }

    /// EINVAL where front or tail are not in the ring, which no queue comes to.
    fn check(&self) -> Result<()> {
        let ring = self.max_head_size..=self.queue_size;
        match ring.contains(&self.front.offset) && ring.contains(&self.tail.offset) {
            true => Ok(()),
            false => Err(Error::EINVAL),
        }
    }

    /// Writes the head; EINVAL where the urgent data is too long for it.
    pub(in crate::class) fn write(&self, object: &mut dyn Object) -> Result<Nothing> {
        let encoded = encode_to_vec(self);
        let mut w = Writer::new();
        w.u16(HEAD_START);
        w.u64(encoded.len() as u64);
        w.bytes(&encoded);
        if w.len() as u64 > self.max_head_size {
            return Err(Error::EINVAL);
        }
        object.write(0, w.into_vec().into()).map(|()| Nothing)
    }

    /// Bytes for entries.
    pub(in crate::class) fn capacity(&self) -> u64 {
        self.queue_size - self.max_head_size
    }

    /// Bytes that no entry takes. Ceph takes a queue that is full to the last byte for an empty one
    /// in some places, and overwrites entries that are added in one call with the last that fits.
    pub(in crate::class) fn free(&self) -> u64 {
        if self.front.offset < self.tail.offset || self.is_empty() {
            self.capacity() - (self.tail.offset - self.front.offset)
        } else {
            self.front.offset - self.tail.offset
        }
    }

    /// Whether there is no entry.
    pub(super) fn is_empty(&self) -> bool {
        self.front == self.tail
    }

    /// The place itself or, at the ring's end, the ring's beginning.
    pub(super) fn around(&self, at: Marker) -> Marker {
        if at.offset != self.queue_size {
            return at;
        }
        Marker {
            generation: at.generation.wrapping_add(1),
            offset: self.max_head_size,
        }
    }
}

/// The data of a queue with other urgent data, and with zeros behind the head, where longer ones may
/// have left something.
#[cfg(test)]
pub(in crate::class) fn with_urgent_data(data: &[u8], change: impl FnOnce(Bytes) -> Bytes) -> Vec<u8> {
    let mut r = Reader::new(data);
    let Ok((HEAD_START, (_, mut head))) = r.get::<(u16, (u64, Head))>() else {
        return data.to_vec();
    };
    head.urgent_data = change(head.urgent_data);
    let len = encode_to_vec(&head).len() as u64;
    let mut out = encode_to_vec(&(HEAD_START, (len, head.clone())));
    let max = usize::try_from(head.max_head_size).unwrap();
    out.resize(max.max(out.len()), 0);
    out.extend_from_slice(data.get(max..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_read_as_far_as_they_go() {
        let at = |generation, offset| Marker { generation, offset };
        for (text, want) in [
            ("", at(0, 0)),
            ("3/1024", at(3, 1024)),
            ("3", at(3, 0)),
            ("3/", at(3, 0)),
            ("3/7x", at(3, 7)),
            ("x3/7", at(0, 0)),
            ("3/7\0 8", at(3, 7)),
            ("1/99999999999999999999", at(1, u64::MAX)),
        ] {
            assert_eq!(Marker::parse(text.as_bytes()), want, "{text}");
        }
        assert_eq!(at(3, 1024).to_bytes(), "3/1024");
    }
}
