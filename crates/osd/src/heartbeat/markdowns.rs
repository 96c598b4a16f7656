//! How often this OSD was marked down while it ran.

use std::collections::VecDeque;

/// The times at which that happened, in microseconds of a monotonic clock.
#[derive(Debug, Clone, Default)]
pub(super) struct Markdowns {
    at: VecDeque<u64>,
}

impl Markdowns {
    /// Notes that the OSD was marked down; returns how often that happened within the period, this
    /// time included.
    pub(super) fn note(&mut self, now: u64, period: u64) -> usize {
        self.at.push_back(now);
        self.prune(now, period);
        self.at.len()
    }

    /// Forgets times longer ago than the period.
    pub(super) fn prune(&mut self, now: u64, period: u64) {
        while self.at.front().is_some_and(|t| t.saturating_add(period) < now) {
            self.at.pop_front();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }
}
