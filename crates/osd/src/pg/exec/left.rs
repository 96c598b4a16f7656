//! The results of a request besides a changed object.

use crate::pg::watch::WatchEffects;
use crate::pg::watch::watchers::Watchers;

/// Reads and writes, counted as `ceph df` and `pg dump` show them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IoCount {
    /// Ops that read.
    pub rd: i64,
    /// KiB that were read.
    pub rd_kb: i64,
    /// Ops that wrote.
    pub wr: i64,
    /// KiB that were written.
    pub wr_kb: i64,
}

impl IoCount {
    pub(crate) fn add(&mut self, o: Self) {
        self.rd += o.rd;
        self.rd_kb += o.rd_kb;
        self.wr += o.wr;
        self.wr_kb += o.wr_kb;
    }

    /// Counts `bytes` that an op has read.
    pub(super) fn count_read(&mut self, bytes: u64) {
        self.rd += 1;
        self.rd_kb += kib(bytes);
    }

    /// Counts `bytes` that an op has written.
    pub(super) fn count_write(&mut self, bytes: u64) {
        self.wr += 1;
        self.wr_kb += kib(bytes);
    }
}

/// `bytes` in KiB, rounded up.
pub(super) fn kib(bytes: u64) -> i64 {
    i64::try_from(bytes.div_ceil(1024)).unwrap_or(i64::MAX)
}

/// The results of a request besides a changed object, for when it is done. The ops hold their own
/// outputs.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Reads and writes.
    pub io: IoCount,
    /// Offset of the first read, for the reply's header.
    pub data_off: Option<u64>,
    /// The effects on watches and notifications.
    pub watch_effects: Option<Box<WatchEffects>>,
}

impl Left {
    /// The effects on watches and notifications, to be added to.
    pub(super) fn effects(&mut self) -> &mut WatchEffects {
        self.watch_effects.get_or_insert_default()
    }

    /// Ends these watches, as their object is removed: their clients are to be told.
    pub(super) fn disconnect(&mut self, watchers: &Watchers) {
        if !watchers.is_empty() {
            let gone = watchers.iter().map(|(key, _)| (*key, true));
            self.effects().disconnects.extend(gone);
        }
    }
}
