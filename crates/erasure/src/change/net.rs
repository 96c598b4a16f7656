//! What the ops of a request make of an object's data, all taken together.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::len;

/// New contents of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct New {
    /// The end of the range.
    pub(super) end: u64,
    /// Its bytes; `None` for a hole, where nothing is stored.
    pub(super) data: Option<Bytes>,
}

/// A change of an object's data. Ops are added in their order; what was before is the *base*: the
/// object itself, or another one that takes its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The end of the base's data.
    pub(super) base_end: u64,
    /// The end of the part of the base that is not cut off.
    pub(super) kept: u64,
    /// The size so far.
    size: u64,
    /// New contents, by the start of their ranges.
    pub(super) new: BTreeMap<u64, New>,
}

impl Change {
    /// No change yet of an object of `size` bytes.
    pub fn new(size: u64) -> Self {
        Self {
            base_end: size,
            kept: size,
            size,
            new: BTreeMap::new(),
        }
    }

    /// The size of the object after the change.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes bytes.
    pub fn write(&mut self, offset: u64, data: Bytes) {
        let end = offset + data.len() as u64;
        if data.is_empty() {
            return;
        }
        self.clear(offset..end);
        self.size = self.size.max(end);
        self.new.insert(
            offset,
            New {
                end,
                data: Some(data),
            },
        );
    }

    /// Makes a hole of a range, as far as the object reaches.
    pub fn zero(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.size);
        if offset >= end {
            return;
        }
        self.clear(offset..end);
        let end = end.min(self.kept);
        if offset < end {
            self.new.insert(offset, New { end, data: None });
        }
    }

    /// Cuts the object off, or extends it by a hole.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.clear(size..u64::MAX);
            self.kept = self.kept.min(size);
        }
        self.size = size;
    }

    /// Whether the data stays what it was.
    pub fn is_nothing(&self) -> bool {
        self.new.is_empty() && self.kept == self.base_end && self.size == self.base_end
    }

    /// Forgets what was new in a range.
    fn clear(&mut self, range: Range<u64>) {
        let first = self.new.range(..range.start).next_back().map(|(at, _)| *at);
        let from = first.unwrap_or(range.start);
        let touched: Vec<u64> = self.new.range(from..range.end).map(|(at, _)| *at).collect();
        for at in touched {
            let Some(new) = self.new.remove(&at) else { continue };
            let part = |from: u64, end: u64| New {
                end,
                data: new.data.as_ref().map(|d| d.slice(len(from - at)..len(end - at))),
            };
            if at < range.start {
                self.new.insert(at, part(at, new.end.min(range.start)));
            }
            if range.end < new.end {
                self.new.insert(range.end, part(range.end.max(at), new.end));
            }
        }
    }
}
