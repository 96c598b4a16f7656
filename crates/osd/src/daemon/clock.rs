//! The difference between this host's clock and the monitor's: the acknowledgement of a report
//! carries the monitor's time.

use spirula_denc::{Micros, UTime};
use spirula_proto::internal::report::ClockSample;

/// After this long without an acknowledgement another report is timed: most likely the
/// session broke.
const GIVE_UP: Micros = Micros::from_secs(30);

/// A report that was sent and is to be acknowledged.
#[derive(Debug, Clone, Copy)]
struct Sent {
    seq: u64,
    /// When it was sent on the monotonic clock, which measures the round trip.
    usec: Micros,
    /// When it was sent on the clock that is compared.
    wall: UTime,
}

/// Times one report after the other.
#[derive(Debug, Default)]
pub(super) struct ClockCheck {
    sent: Option<Sent>,
    sample: Option<ClockSample>,
}

impl ClockCheck {
    /// Forgets the report under way, as the session has ended and nothing sent on it will be
    /// acknowledged.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Notes that a report goes out.
    pub(super) fn sent(&mut self, seq: u64, usec: Micros, wall: UTime) {
        let waits = |s: Sent| usec.saturating_sub(s.usec) < GIVE_UP;
        if !self.sent.is_some_and(waits) {
            self.sent = Some(Sent { seq, usec, wall });
        }
    }

    /// Notes that the monitor received the report at `stamp` on its clock, and that its
    /// acknowledgement came at `usec`.
    pub(super) fn acknowledged(&mut self, seq: u64, stamp: UTime, usec: Micros) {
        let Some(sent) = self.sent.take_if(|s| s.seq == seq) else {
            return; // Only one report at a time is timed.
        };
        let round_trip = usec.saturating_sub(sent.usec);
        // Halfway, as far as anybody can know: the truth is within half the round trip of it.
        let ahead = micros(sent.wall) + i128::from(round_trip.count() / 2) - micros(stamp);
        self.sample = Some(ClockSample {
            ahead_us: i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX }),
            round_trip,
        });
    }

    /// Takes the newest measurement.
    pub(super) fn take(&mut self) -> Option<ClockSample> {
        self.sample.take()
    }
}

fn micros(t: UTime) -> i128 {
    // At most 2^32 seconds.
    t.to_duration().as_micros().cast_signed()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> UTime {
        UTime::from(Duration::from_millis(1_700_000_000_000 + millis))
    }

    #[test]
    fn the_offset_is_taken_in_the_middle_of_the_round_trip() {
        let mut c = ClockCheck::default();
        // This clock is 500 ms ahead: sent at 0 on it, received 20 ms later at -480 on the
        // monitor's, answered at once.
        c.sent(1, Micros::new(1_000), at(1000));
        c.acknowledged(1, at(520), Micros::new(41_000));
        let want = ClockSample {
            ahead_us: 500_000,
            round_trip: Micros::from_millis(40),
        };
        assert_eq!((c.take(), c.take()), (Some(want), None));
        // And behind by three seconds.
        c.sent(2, Micros::new(100_000), at(0));
        c.acknowledged(2, at(3000), Micros::new(100_000));
        assert_eq!(c.take().map(|s| s.ahead_us), Some(-3_000_000));
    }

    #[test]
    fn one_report_is_timed_at_a_time() {
        let mut c = ClockCheck::default();
        c.sent(1, Micros::new(10), at(0));
        c.sent(2, Micros::new(20), at(9));
        c.acknowledged(2, at(9), Micros::new(30));
        assert_eq!(c.take(), None, "the first is still timed");
        c.acknowledged(1, at(0), Micros::new(30));
        assert_eq!(c.take().map(|s| s.round_trip), Some(Micros::new(20)));
        // One that is never acknowledged does not keep the others from being timed.
        c.sent(3, Micros::new(100), at(0));
        c.sent(4, Micros::new(100) + GIVE_UP, at(0));
        c.acknowledged(4, at(0), Micros::new(200) + GIVE_UP);
        assert_eq!(c.take().map(|s| s.round_trip), Some(Micros::new(100)));
        c.sent(5, Micros::ZERO, at(0));
        c.forget();
        c.acknowledged(5, at(0), Micros::new(1));
        assert_eq!(c.take(), None);
        c.acknowledged(6, UTime::ZERO, Micros::MAX);
    }
}
