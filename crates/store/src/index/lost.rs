//! Ranges of the index that are lost: damaged leaves that were cut out of its trees.
//!
//! They are kept in the index until the owner has acted on them.

use bytes::Bytes;

use crate::apply::{OMAP_PREFIX, is_omap_key};
use crate::codec::{Dec, Enc};

/// Version of the record.
const VERSION: u8 = 1;
/// The most ranges: with more, so much is lost that the store is ruined.
pub(super) const MOST: usize = 256;

/// What a range had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LostKind {
    /// Objects.
    Objects,
    /// Omap pairs.
    Pairs,
}

/// A range of keys of which nothing is left that was in the index when it was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostRange {
    pub(crate) kind: LostKind,
    /// The greatest key before the range.
    pub(crate) after: Option<Bytes>,
    /// The greatest key that may have been in it.
    pub(crate) upto: Option<Bytes>,
}

impl LostRange {
    /// Whether it is one of objects, and not of omap pairs.
    pub(crate) fn is_of_objects(&self) -> bool {
        self.kind == LostKind::Objects
    }

    /// Whether an object of this key may have been in it.
    pub(crate) fn has_object(&self, key: &[u8]) -> bool {
        self.kind == LostKind::Objects
            && self.after.as_ref().is_none_or(|after| key > after.as_ref())
            && self.upto.as_ref().is_none_or(|upto| key <= upto.as_ref())
    }

    /// Whether pairs of this omap may have been in it.
    pub(crate) fn has_omap(&self, omap: u64) -> bool {
        // A bound may be shorter than any key: then the first and the last number that fit it.
        let number = |key: &Bytes, fill: u8| {
            if !is_omap_key(key) {
                return 0;
            }
            let mut bytes = [fill; 8];
            for (to, from) in bytes.iter_mut().zip(&key[1..key.len().min(OMAP_PREFIX)]) {
                *to = *from;
            }
            u64::from_be_bytes(bytes)
        };
        self.kind == LostKind::Pairs
            && self.after.as_ref().is_none_or(|after| omap >= number(after, 0))
            && self
                .upto
                .as_ref()
                .is_none_or(|upto| omap <= number(upto, u8::MAX))
    }
}

pub(super) fn encode(ranges: &[LostRange]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut e = Enc(&mut out);
    e.u8(VERSION);
    e.varint(ranges.len() as u64);
    for range in ranges {
        e.u8(match range.kind {
            LostKind::Objects => 1,
            LostKind::Pairs => 2,
        });
        for bound in [&range.after, &range.upto] {
            e.u8(u8::from(bound.is_some()));
            e.bytes(bound.as_deref().unwrap_or_default());
        }
    }
    out
}

pub(super) fn decode(bytes: &[u8]) -> Option<Vec<LostRange>> {
    let mut d = Dec::new(bytes);
    if d.u8()? != VERSION {
        return None;
    }
    let count = d.count(5)?;
    let ranges = (0..count).map(|_| {
        let kind = match d.u8()? {
            1 => LostKind::Objects,
            2 => LostKind::Pairs,
            _ => return None,
        };
        let mut bound = || {
            let is_there = d.u8()? != 0;
            let key = d.owned()?;
            Some(is_there.then_some(key))
        };
        let (after, upto) = (bound()?, bound()?);
        Some(LostRange { kind, after, upto })
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::omap_key;

    fn range(kind: LostKind, after: Option<&[u8]>, upto: Option<&[u8]>) -> LostRange {
        let own = |key: &[u8]| Bytes::copy_from_slice(key);
        LostRange {
            kind,
            after: after.map(own),
            upto: upto.map(own),
        }
    }

    #[test]
    fn ranges_are_kept_as_they_are() {
        let all = [
            range(LostKind::Objects, None, None),
            range(LostKind::Objects, Some(b"a"), Some(b"")),
            range(LostKind::Pairs, Some(b"o\0"), None),
        ];
        assert_eq!(decode(&encode(&all)).as_deref(), Some(&all[..]));
        assert_eq!(decode(&[2, 0]), None);
        assert_eq!(decode(&[1, 1, 3, 0, 0, 0, 0]), None);
    }

    #[test]
    fn what_a_range_may_have_had() {
        let objects = range(LostKind::Objects, Some(b"b"), Some(b"d"));
        let has = |key: &[u8]| objects.has_object(key);
        assert_eq!(
            [has(b"b"), has(b"b\0"), has(b"d"), has(b"d\0")],
            [false, true, true, false]
        );
        assert!(!objects.has_omap(5));
        let pairs = range(LostKind::Pairs, Some(&omap_key(5, b"k")), Some(&omap_key(7, b"")));
        let has: Vec<u64> = (0..10).filter(|n| pairs.has_omap(*n)).collect();
        assert_eq!(has, [5, 6, 7]);
        assert!(!pairs.has_object(b"o"));
        // A bound that was shortened.
        let short = range(LostKind::Pairs, Some(b"n"), Some(&omap_key(0x0102, b"")[..8]));
        assert!(short.has_omap(0) && short.has_omap(0x01ff) && !short.has_omap(0x0200));
        let open = range(LostKind::Pairs, Some(&omap_key(9, b"z")), None);
        assert!(!open.has_omap(8) && open.has_omap(9) && open.has_omap(u64::MAX));
    }
}
