//! How often this OSD was marked down while it ran.

use std::collections::VecDeque;

use spirula_denc::Micros;

/// The times at which that happened by a monotonic clock.
#[derive(Debug, Clone, Default)]
pub(super) struct Markdowns {
    at: VecDeque<Micros>,
}

impl Markdowns {
    /// Notes that the OSD was marked down; returns how often that happened within the period, this
    /// time included.
    pub(super) fn note(&mut self, now: Micros, period: Micros) -> usize {
        self.at.push_back(now);
        self.prune(now, period);
        self.at.len()
    }

    /// Forgets times longer ago than the period.
    pub(super) fn prune(&mut self, now: Micros, period: Micros) {
        while self.at.front().is_some_and(|t| *t + period < now) {
            self.at.pop_front();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }
}
