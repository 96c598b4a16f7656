//! A clock that cannot be set. The core is told the wall clock's time, which may jump; code that
//! measures how long something has lasted must not follow such jumps.

use std::time::Duration;

use spirula_denc::UTime;

/// The longest step that counts: the core hears of the time several times a second. A longer one is
/// a jump of the clock, or a time in which this process did not run: either way no other process
/// was silent.
const LONGEST_STEP: Duration = Duration::from_secs(5);

/// The time for which the monitor has been running.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steady {
    last: UTime,
    passed: Duration,
}

impl Steady {
    pub(super) fn new(now: UTime) -> Self {
        Self {
            last: now,
            passed: Duration::ZERO,
        }
    }

    /// Adds the time since the last call; the wall clock shows `now`.
    pub(super) fn see(&mut self, now: UTime) {
        self.passed += now.since(self.last).min(LONGEST_STEP);
        self.last = now;
    }

    /// The time that has passed.
    pub(crate) fn now(&self) -> Duration {
        self.passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_of_the_clock_do_not_count() {
        let mut c = Steady::new(UTime::from_secs(1000));
        for s in [1001, 1002, 90_000, 90_001, 10, 11] {
            c.see(UTime::from_secs(s));
        }
        assert_eq!(c.now(), Duration::from_secs(4) + LONGEST_STEP);
    }
}
