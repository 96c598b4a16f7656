//! The hours and days at which scheduled scrubs are permitted, as a week that repeats.

use std::cmp::Ordering;

/// The hours of a day, and of a week.
const DAY: u32 = 24;
const WEEK: u32 = 7 * DAY;
/// The seconds of an hour, and of a week.
const HOUR_SECONDS: u32 = 3600;
const WEEK_SECONDS: f64 = (WEEK * HOUR_SECONDS) as f64;

/// The hours of the day and the days of the week at which scheduled scrubs are permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hours {
    /// A bit for each hour of a day.
    of_day: u32,
    /// A bit for each day of a week, from Sunday on.
    of_week: u32,
}

/// Permitted hours, and where in the week it is now.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Week {
    /// The hours.
    pub hours: Hours,
    /// The seconds since the week began.
    pub at: f64,
}

impl Default for Hours {
    /// All hours.
    fn default() -> Self {
        Self::new((0, 0), (0, 0))
    }
}

/// Bits for the points below `all` that are within a range, which may go on behind the last one. A
/// range that ends where it begins is all.
fn bits((first, end): (u64, u64), all: u32) -> u32 {
    let is_within = |at: &u32| match first.cmp(&end) {
        Ordering::Equal => true,
        Ordering::Less => (first..end).contains(&u64::from(*at)),
        Ordering::Greater => u64::from(*at) >= first || u64::from(*at) < end,
    };
    (0..all).filter(is_within).fold(0, |bits, at| bits | 1 << at)
}

impl Hours {
    /// The hours within a range of hours of the day, on the days within a range of days of the week,
    /// from 0 for Sunday. The end of a range is not in it.
    pub fn new(of_day: (u64, u64), of_week: (u64, u64)) -> Self {
        Self {
            of_day: bits(of_day, DAY),
            of_week: bits(of_week, WEEK / DAY),
        }
    }

    /// The same days, with all their hours.
    #[must_use]
    pub fn all_day(self) -> Self {
        Self {
            of_day: Self::default().of_day,
            ..self
        }
    }

    /// The same hours, on all days.
    #[must_use]
    pub fn all_week(self) -> Self {
        Self {
            of_week: Self::default().of_week,
            ..self
        }
    }

    /// The number of hours of a day, and of days of a week.
    pub fn count(self) -> (u32, u32) {
        (self.of_day.count_ones(), self.of_week.count_ones())
    }

    /// Whether an hour of the week is permitted.
    fn permits(self, hour: u32) -> bool {
        self.of_day >> (hour % DAY) & 1 == 1 && self.of_week >> (hour / DAY) & 1 == 1
    }

    /// The permitted seconds of a week.
    fn seconds(self) -> f64 {
        let (hours, days) = self.count();
        f64::from(hours * days * HOUR_SECONDS)
    }
}

impl Week {
    /// The same hours, some seconds later.
    #[must_use]
    pub fn after(self, seconds: f64) -> Self {
        Self {
            at: (self.at + seconds) % WEEK_SECONDS,
            ..self
        }
    }

    /// Whether scheduled scrubs are permitted now.
    pub fn is_open(&self) -> bool {
        self.hours.permits(self.at as u32 / HOUR_SECONDS % WEEK)
    }

    /// A week from now on in pieces of an hour at most, each with its seconds and whether it is
    /// permitted.
    fn pieces(&self) -> impl Iterator<Item = (f64, bool)> {
        let (hours, hour) = (self.hours, f64::from(HOUR_SECONDS));
        let (first, gone) = ((self.at / hour) as u32, self.at % hour);
        (0..=WEEK).map(move |i| {
            let len = match i {
                0 => hour - gone,
                WEEK => gone,
                _ => hour,
            };
            (len, hours.permits((first + i) % WEEK))
        })
    }

    /// The permitted seconds within the next `span` seconds.
    pub fn open_within(&self, span: f64) -> f64 {
        let span = span.max(0.0);
        let mut left = span % WEEK_SECONDS;
        let mut open = (span / WEEK_SECONDS).floor() * self.hours.seconds();
        for (len, permitted) in self.pieces() {
            if permitted {
                open += len.min(left);
            }
            left -= len.min(left);
        }
        open
    }

    /// The seconds until `work` permitted seconds have passed; infinite if they never do.
    pub fn until_done(&self, work: f64) -> f64 {
        let each = self.hours.seconds();
        if work <= 0.0 {
            return 0.0;
        }
        if each == 0.0 || !work.is_finite() {
            return f64::INFINITY;
        }
        // What is left after whole weeks may be done before the last of them is over.
        let weeks = (work / each).ceil() - 1.0;
        let (mut left, mut passed) = (work - weeks * each, weeks * WEEK_SECONDS);
        for (len, permitted) in self.pieces() {
            if permitted && len >= left {
                return passed + left;
            }
            passed += len;
            left -= if permitted { len } else { 0.0 };
        }
        // No more is left than what rounding makes.
        passed
    }

    /// The seconds until scheduled scrubs are permitted: 0 if they are, infinite if they never are.
    pub fn until_open(&self) -> f64 {
        let mut passed = 0.0;
        for (len, permitted) in self.pieces() {
            if permitted {
                return passed;
            }
            passed += len;
        }
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: f64 = 3600.0;

    fn week(of_day: (u64, u64), of_week: (u64, u64), day: u32, hour: u32, minute: u32) -> Week {
        Week {
            hours: Hours::new(of_day, of_week),
            at: f64::from((day * 24 + hour) * 3600 + minute * 60),
        }
    }

    #[test]
    fn ranges_may_go_on_behind_their_last_hour_or_day() {
        let open = |h| week((22, 6), (0, 0), 3, h, 59).is_open();
        let by_hour: Vec<bool> = [21, 22, 23, 0, 5, 6].map(open).into();
        assert_eq!(by_hour, [false, true, true, true, true, false]);
        let open = |d| week((0, 0), (1, 6), d, 12, 0).is_open();
        let by_day: Vec<bool> = [0, 1, 5, 6].map(open).into();
        assert_eq!(by_day, [false, true, true, false]);
        let night = Hours::new((22, 6), (1, 6));
        assert_eq!(night.count(), (8, 5));
        assert_eq!(
            (night.all_day().count(), night.all_week().count()),
            ((24, 5), (8, 7))
        );
        assert!(Week::default().is_open() && Hours::default().count() == (24, 7));
    }

    #[test]
    fn permitted_seconds_are_counted() {
        let night = week((22, 6), (0, 0), 6, 20, 30);
        let hours = |n: f64| night.open_within(n * HOUR) / HOUR;
        let spans = [0.0, 1.0, 2.0, 9.5, 20.0, 24.0, 7.0 * 24.0, 14.0 * 24.0];
        let counted: Vec<f64> = spans.map(hours).into();
        assert_eq!(counted, [0.0, 0.0, 0.5, 8.0, 8.0, 8.0, 56.0, 112.0]);
        assert_eq!(night.after(2.0 * HOUR).open_within(HOUR), HOUR);
        assert_eq!(Week::default().open_within(1e6), 1e6);
        let never = week((0, 0), (7, 8), 0, 0, 0);
        assert_eq!(never.open_within(1e9), 0.0);
    }

    #[test]
    fn work_ends_when_it_was_permitted_for_long_enough() {
        let night = week((22, 6), (0, 0), 6, 20, 30);
        let hours = |n: f64| night.until_done(n * HOUR) / HOUR;
        let done: Vec<f64> = [0.0, 1.0, 8.0, 8.5, 56.0, 57.0].map(hours).into();
        assert_eq!(done, [0.0, 2.5, 9.5, 26.0, 6.0 * 24.0 + 9.5, 7.0 * 24.0 + 2.5]);
        assert_eq!(night.until_open(), 1.5 * HOUR);
        let open = week((22, 6), (0, 0), 6, 23, 10);
        assert_eq!((open.until_open(), open.until_done(60.0)), (0.0, 60.0));
        assert_eq!(Week::default().until_done(1e7), 1e7);
        let never = week((0, 0), (7, 8), 0, 0, 0);
        assert!(never.until_open().is_infinite() && never.until_done(1.0).is_infinite());
        for work in [1.0, 5e4, 1e6] {
            let open = night.open_within(night.until_done(work));
            assert!((open - work).abs() < 1e-3, "{open} of {work}");
        }
    }
}
