//! A clock that cannot be set. The core is told the wall clock's time; what counts how long something has lasted must not
//! believe it when it jumps.

use std::time::Duration;

use spirula_denc::UTime;

/// The core hears of the time several times a second. More than this at once is a jump of the clock, or a time in which
/// this process did not run: either way nobody else's silence.
const LONGEST_STEP: Duration = Duration::from_secs(5);

/// How long the monitor has been running.
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

    /// The wall clock shows `now`.
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
