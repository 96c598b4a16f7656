//! The operations that turn one content of an object into the next.

use std::ops::Range;

use bytes::Bytes;
use spirula_proto::osd::{OpCode, OsdOpIn};

use crate::cls::{create, delete, ranged};

/// Blocks of this many bytes that are equal are not written.
const CHUNK: usize = 16 << 10;

/// The content of an object without zeros at its end; `None` for no object.
pub(super) type Content = Option<Bytes>;

/// Removes the zeros from the end.
pub(super) fn trimmed(data: Bytes) -> Bytes {
    let len = data.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
    data.slice(..len)
}

fn is_zero(data: &[u8]) -> bool {
    data.iter().all(|b| *b == 0)
}

/// The operation for a range of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Keep,
    Write,
    Zero,
}

/// The ranges in which `new` differs from `old`, up to the end of `new`.
fn differences(old: &[u8], new: &[u8]) -> Vec<(Kind, Range<usize>)> {
    let mut found: Vec<(Kind, Range<usize>)> = Vec::new();
    let mut at = 0;
    for chunk in new.chunks(CHUNK) {
        let range = at..at + chunk.len();
        let before = old
            .get(at.min(old.len())..range.end.min(old.len()))
            .unwrap_or_default();
        let (common, rest) = chunk.split_at(before.len());
        let kind = if common == before && is_zero(rest) {
            Kind::Keep
        } else if is_zero(chunk) {
            Kind::Zero
        } else {
            Kind::Write
        };
        at = range.end;
        match found.last_mut() {
            Some((last, r)) if *last == kind => r.end = range.end,
            _ => found.push((kind, range)),
        }
    }
    found.retain(|(kind, _)| *kind != Kind::Keep);
    found
}

/// The operations that turn the content `old` of an object into `new`.
pub(super) fn changes(old: &Content, new: &Content) -> Vec<OsdOpIn> {
    let mut ops = Vec::new();
    let (held, wanted) = match (old, new) {
        (None, None) => return ops,
        (Some(_), None) => return vec![delete()],
        (None, Some(wanted)) => {
            ops.push(create(false));
            (&Bytes::new(), wanted)
        }
        (Some(held), Some(wanted)) => (held, wanted),
    };
    if wanted.len() < held.len() {
        ops.push(ranged(OpCode::TRUNCATE, wanted.len() as u64, 0, Bytes::new()));
    }
    for (kind, range) in differences(held, wanted) {
        let (offset, len) = (range.start as u64, range.len() as u64);
        ops.push(match kind {
            Kind::Write => ranged(OpCode::WRITE, offset, len, wanted.slice(range)),
            _ => ranged(OpCode::ZERO, offset, len, Bytes::new()),
        });
    }
    ops
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(chunks: &[u8]) -> Content {
        let all: Vec<u8> = chunks.iter().flat_map(|b| [*b; CHUNK]).collect();
        Some(trimmed(all.into()))
    }

    fn codes(old: &Content, new: &Content) -> Vec<(OpCode, usize)> {
        let ops = changes(old, new);
        ops.iter().map(|op| (op.op.code, op.data.len())).collect()
    }

    #[test]
    fn only_what_differs_is_written() {
        assert_eq!(codes(&None, &None), []);
        assert_eq!(codes(&None, &content(&[])), [(OpCode::CREATE, 0)]);
        assert_eq!(codes(&content(&[1]), &None), [(OpCode::DELETE, 0)]);
        assert_eq!(codes(&content(&[1, 2]), &content(&[1, 2])), []);
        assert_eq!(
            codes(&None, &content(&[0, 1, 2, 0, 3])),
            [
                (OpCode::CREATE, 0),
                (OpCode::WRITE, 2 * CHUNK),
                (OpCode::WRITE, CHUNK)
            ]
        );
        assert_eq!(
            codes(&content(&[1, 2, 3, 4]), &content(&[1, 0, 3])),
            [(OpCode::TRUNCATE, 0), (OpCode::ZERO, 0)]
        );
    }

    /// Zeros at the end are not kept, so a content may end within a chunk.
    #[test]
    fn contents_of_any_length_are_compared() {
        let text = |t: &'static str| Some(Bytes::from_static(t.as_bytes()));
        assert_eq!(codes(&text("abc"), &text("abc")), []);
        assert_eq!(codes(&text("abc"), &text("ab")), [(OpCode::TRUNCATE, 0)]);
        assert_eq!(codes(&text("ab"), &text("abc")), [(OpCode::WRITE, 3)]);
        let mut long = vec![b'a'; CHUNK];
        long.push(b'b');
        let long = Some(Bytes::from(long));
        assert_eq!(codes(&content(b"a"), &long), [(OpCode::WRITE, 1)]);
        assert_eq!(trimmed(Bytes::from_static(b"a\0\0")), "a");
        assert_eq!(trimmed(Bytes::from_static(b"\0")), "");
    }
}
