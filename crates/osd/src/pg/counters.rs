//! A PG's counters for its reports.

use super::exec::IoCount;

/// Counts since the daemon started, and the count in progress.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) io: IoCount,
    /// Objects, bytes and omap pairs that were copied to others.
    pub(super) recovered: (i64, i64, i64),
    /// Copies of objects that were repaired.
    pub(super) repaired: i64,
}

impl Counters {
    pub(super) fn add_io(&mut self, io: IoCount) {
        self.io.add(io);
    }

    /// Counts a part of an object that was copied, with `pairs` omap pairs; `whole` is the object's
    /// size if the part completes it.
    pub(super) fn add_recovered(&mut self, whole: Option<u64>, pairs: usize) {
        let (objects, bytes, keys) = &mut self.recovered;
        *objects += i64::from(whole.is_some());
        *bytes += whole.and_then(|n| i64::try_from(n).ok()).unwrap_or(0);
        *keys += i64::try_from(pairs).unwrap_or(0);
    }
}
