//! How often this OSD was marked down although it ran.

use std::collections::VecDeque;

/// When it happened, in microseconds of a monotonic clock.
#[derive(Debug, Clone, Default)]
pub(super) struct Markdowns {
    at: VecDeque<u64>,
}

impl Markdowns {
    /// It happened again; returns how often within the period, this time included.
    pub(super) fn note(&mut self, now: u64, period: u64) -> usize {
        self.at.push_back(now);
        self.prune(now, period);
        self.at.len()
    }

    /// Forgets what is longer ago than the period.
    pub(super) fn prune(&mut self, now: u64, period: u64) {
        while self.at.front().is_some_and(|t| t.saturating_add(period) < now) {
            self.at.pop_front();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }
}
