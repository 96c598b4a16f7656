//! Read-ahead: of an object that is read in order, the page cache gets what comes next before a
//! client asks for it.
//!
//! Only small reads are followed: a client that reads large parts reads ahead itself.

use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::DefaultHashBuilder;
use spirula_invariant::invariant;

use crate::config::BLOCK64;
use crate::device::{IoKind, Way};
use crate::onode::Onode;
use crate::read::Piece;
use crate::store::{Purpose, Store};
use crate::{BLOCK, ObjectKey};

/// The number of objects that are followed at a time. Another object that has the same place takes
/// it over.
const STREAMS: usize = 64;
/// The bytes that are read ahead at first.
const FIRST: u64 = 64 << 10;
/// The most bytes that are read ahead of one object.
const MOST: u64 = 512 << 10;
/// The most bytes that are being read ahead of all objects.
const UNDER_WAY: u64 = 1 << 20;

/// An object that may be read in order.
#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// The hash of its key.
    object: u64,
    /// The byte after the last read.
    next: u64,
    /// The byte after what was read ahead.
    ahead: u64,
    /// The bytes to read ahead; 0 as long as the page cache has what is asked for.
    window: u64,
}

/// The objects that were read last.
#[derive(Debug)]
pub(crate) struct Streams {
    slots: Box<[Stream; STREAMS]>,
    hasher: DefaultHashBuilder,
    /// The bytes that are being read ahead.
    under_way: u64,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self {
            slots: Box::new([Stream::default(); STREAMS]),
            hasher: DefaultHashBuilder::default(),
            under_way: 0,
        }
    }

    /// Notes that a part of an object was read, and whether the page cache lacked some of it.
    /// Returns the part to read ahead, if any.
    fn follow(&mut self, key: &ObjectKey, read: Range<u64>, missed: bool) -> Option<Range<u64>> {
        let object = self.hasher.hash_one(key.as_slice());
        let s = &mut self.slots[object as usize % STREAMS];
        if s.object != object || s.next != read.start {
            *s = Stream {
                object,
                next: read.end,
                ..Stream::default()
            };
            return None;
        }
        s.next = read.end;
        s.ahead = s.ahead.max(read.end);
        if missed && s.window == 0 {
            s.window = FIRST;
        }
        if s.window == 0 || s.ahead - s.next > s.window / 2 || self.under_way + s.window > UNDER_WAY {
            return None;
        }
        let part = s.ahead..s.next + s.window;
        s.ahead = part.end;
        s.window = (s.window * 2).min(MOST);
        Some(part)
    }
}

impl Store {
    /// Reads ahead if a small read, of which the page cache may have lacked some, goes on where the
    /// last one ended.
    pub(crate) fn read_ahead(&mut self, key: &ObjectKey, onode: &Onode, read: Range<u64>, missed: bool) {
        let Some(part) = self.streams.follow(key, read, missed) else {
            return; // It does not go on there, or enough was read ahead.
        };
        let part = part.start / BLOCK64..part.end.min(onode.size).div_ceil(BLOCK64);
        if part.is_empty() {
            return; // The object ends before it.
        }
        let (first, last) = (part.start as u32, part.end as u32 - 1);
        let Ok(pieces) = self.state.pieces(key, onode, first, last) else {
            return; // The read that needs it reports the damage.
        };
        let mut first_block = self.state.pool.get(BLOCK);
        for piece in pieces {
            let Piece::Device { pblk, crcs, .. } = piece else {
                continue;
            };
            let (offset, len) = (pblk * BLOCK64, crcs.len() * BLOCK);
            // What begins in the page cache is taken to be there.
            if self.dev.read_cached(offset, &mut first_block[..]) {
                continue;
            }
            let buf = self.state.pool.get(len);
            self.last_read += 1;
            self.reading.insert(self.last_read);
            self.streams.under_way += len as u64;
            let way = Way::Cached;
            self.queue(
                IoKind::Read { offset, buf, way },
                Purpose::Ahead(self.last_read, len as u64),
            );
            self.stats.ahead_reads += 1;
        }
    }

    /// Handles that something was read ahead, or could not be: the read that needs it reports that.
    pub(crate) fn ahead_done(&mut self, id: u64, len: u64) {
        let known = self.reading.remove(&id);
        invariant!(known, "something that is being read ahead"; read = id);
        invariant!(
            self.streams.under_way >= len,
            "bytes that are being read ahead to be counted";
            counted = self.streams.under_way,
            read = len,
        );
        self.streams.under_way -= len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::from(name)
    }

    #[test]
    fn what_is_read_in_order_is_read_ahead_in_growing_parts() {
        let mut streams = Streams::new();
        let (a, mut parts) = (key("a"), Vec::new());
        for at in (0..256 * KIB).step_by(4096) {
            // The page cache has what was read ahead.
            let missed = parts.last().is_none_or(|p: &Range<u64>| p.end <= at);
            parts.extend(streams.follow(&a, at..at + 4096, missed));
        }
        assert_eq!(parts[0], 8 * KIB..72 * KIB);
        assert!(parts.windows(2).all(|p| p[0].end == p[1].start));
        assert!(
            parts.len() < 6 && parts.last().unwrap().end > 256 * KIB,
            "{parts:?}"
        );
    }

    #[test]
    fn what_is_cached_or_read_out_of_order_is_not_read_ahead() {
        let mut streams = Streams::new();
        let a = key("a");
        for at in (0..256 * KIB).step_by(4096) {
            assert_eq!(streams.follow(&a, at..at + 4096, false), None);
        }
        for at in (0..32).rev().map(|n| n * 8 * KIB) {
            assert_eq!(streams.follow(&a, at..at + 4096, true), None);
        }
    }

    #[test]
    fn little_is_read_ahead_at_a_time() {
        let mut streams = Streams::new();
        for n in 0..STREAMS {
            let key = key(&format!("o{n}"));
            for at in (0..512 * KIB).step_by(4096) {
                if let Some(part) = streams.follow(&key, at..at + 4096, true) {
                    assert!(part.end - part.start <= MOST);
                    streams.under_way += part.end - part.start;
                }
            }
        }
        assert!(streams.under_way > UNDER_WAY / 2 && streams.under_way <= UNDER_WAY);
    }
}
