//! Entries of a journal's objects, one behind the other: `Entry` of Ceph's `src/journal/Entry.cc`.

use spirula_denc::Writer;

/// The first bytes of an entry.
const PREAMBLE: u64 = 0x3141_5926_5358_9793;
const VERSION: u8 = 1;
/// Bytes before the payload: preamble, version, number, tag, the payload's length.
const HEAD: usize = 29;
const CRC: usize = 4;
/// Bytes of an entry besides its payload.
pub(super) const OVERHEAD: usize = HEAD + CRC;

/// The place of an entry in the order of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryId {
    pub(super) tag: u64,
    /// Its number under that tag.
    pub(super) number: u64,
}

/// The first item in a part of an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// An entry of this many bytes.
    Entry {
        id: EntryId,
        payload: &'a [u8],
        len: usize,
    },
    /// This many zeros, which may fill up objects between entries.
    Padding(usize),
    /// The beginning of an entry whose rest is missing.
    Part,
    /// Bytes that no writer of journals makes.
    Broken,
}

fn crc(data: &[u8]) -> u32 {
    !crc32c::crc32c_append(!0, data)
}

/// Encodes an entry.
pub(super) fn encode(EntryId { tag, number }: EntryId, payload: &[u8]) -> Vec<u8> {
    let mut w = Writer::with_capacity(OVERHEAD + payload.len());
    w.u64(PREAMBLE);
    w.u8(VERSION);
    w.u64(number);
    w.u64(tag);
    w.blob(payload);
    let crc = crc(w.as_slice());
    w.u32(crc);
    w.into_vec()
}

/// Parses the first item of `data`, which is not empty.
pub(super) fn parse(data: &[u8]) -> Parsed<'_> {
    let zeros = data.iter().take_while(|b| **b == 0).count();
    if zeros > 0 {
        return Parsed::Padding(zeros);
    }
    let known = PREAMBLE.to_le_bytes();
    if data.iter().zip(known).any(|(have, want)| *have != want) {
        return Parsed::Broken;
    }
    let Some((head, rest)) = data.split_first_chunk::<HEAD>() else {
        return Parsed::Part;
    };
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| head[at + i]));
    if head[8] != VERSION {
        return Parsed::Broken;
    }
    let payload_len = u32::from_le_bytes(std::array::from_fn(|i| head[25 + i])) as usize;
    let Some((payload, rest)) = rest.split_at_checked(payload_len) else {
        return Parsed::Part;
    };
    let Some(stored) = rest.first_chunk::<CRC>() else {
        return Parsed::Part;
    };
    if u32::from_le_bytes(*stored) != crc(&data[..HEAD + payload_len]) {
        return Parsed::Broken;
    }
    Parsed::Entry {
        id: EntryId {
            tag: word(17),
            number: word(9),
        },
        payload,
        len: OVERHEAD + payload_len,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(tag: u64, number: u64) -> EntryId {
        EntryId { tag, number }
    }

    #[test]
    fn entries_are_found_between_padding() {
        let first = encode(id(7, 9), b"payload");
        let data = [first.clone(), vec![0; 3], encode(id(7, 10), b"")].concat();
        let len = first.len();
        assert_eq!(len, OVERHEAD + 7);
        let entry = Parsed::Entry {
            id: id(7, 9),
            payload: b"payload",
            len,
        };
        assert_eq!(parse(&data), entry);
        assert_eq!(parse(&data[len..]), Parsed::Padding(3));
        let last = Parsed::Entry {
            id: id(7, 10),
            payload: b"",
            len: OVERHEAD,
        };
        assert_eq!(parse(&data[len + 3..]), last);
    }

    #[test]
    fn parts_and_flipped_bits_are_no_entries() {
        let entry = encode(id(1, 2), b"payload");
        for len in 1..entry.len() {
            assert_eq!(parse(&entry[..len]), Parsed::Part, "{len} bytes");
        }
        for bit in 0..entry.len() * 8 {
            let mut flipped = entry.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(parse(&flipped), Parsed::Entry { .. }), "bit {bit}");
        }
    }
}
