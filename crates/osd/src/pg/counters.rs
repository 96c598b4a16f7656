//! A PG's counters for its reports.

use super::exec::IoCount;

/// What was copied to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Objects.
    pub objects: i64,
    /// Bytes of these objects.
    pub bytes: i64,
    /// Omap pairs.
    pub keys: i64,
}

/// Counts since the daemon started, and the count in progress.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) io: IoCount,
    pub(super) recovered: Recovered,
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
        let sum = &mut self.recovered;
        sum.objects += i64::from(whole.is_some());
        sum.bytes += whole.and_then(|n| i64::try_from(n).ok()).unwrap_or(0);
        sum.keys += i64::try_from(pairs).unwrap_or(0);
    }
}
