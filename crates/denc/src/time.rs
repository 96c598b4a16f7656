//! `utime_t`: seconds and nanoseconds since the epoch, 32 bits each.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Decode, Encode, Reader, Result, Writer};

/// A point in time, or a span, as Ceph stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UTime {
    /// Whole seconds.
    pub sec: u32,
    /// Nanoseconds, below 10⁹.
    pub nsec: u32,
}

impl UTime {
    /// The zero time, which means "never" or "unset".
    pub const ZERO: Self = Self { sec: 0, nsec: 0 };

    /// A time of whole seconds.
    pub const fn from_secs(sec: u32) -> Self {
        Self { sec, nsec: 0 }
    }

    /// The wall clock's time. For daemons' shells: cores are given the time.
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    /// Whether it is unset.
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// The span or time as a [`Duration`] since the epoch.
    pub fn to_duration(self) -> Duration {
        Duration::new(u64::from(self.sec), self.nsec.min(999_999_999))
    }

    /// Seconds as a float, for ages and rates.
    pub fn as_secs_f64(self) -> f64 {
        self.to_duration().as_secs_f64()
    }

    /// The time `d` later; saturates.
    #[must_use]
    pub fn plus(self, d: Duration) -> Self {
        Self::from(self.to_duration().saturating_add(d))
    }

    /// As `ctime` of the C library prints it, in UTC: `Sat Nov 21 10:00:41 2026`.
    pub fn to_ctime(self) -> String {
        const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        let days = self.sec / 86_400;
        let Date { year, month, day } = civil(i64::from(days));
        let s = self.sec % 86_400;
        let month = usize::try_from(month - 1).ok().and_then(|m| MONTHS.get(m));
        format!(
            "{} {} {day:>2} {:02}:{:02}:{:02} {year}",
            DAYS[days as usize % 7],
            month.unwrap_or(&""),
            s / 3600,
            s / 60 % 60,
            s % 60
        )
    }

    /// The span since `earlier`, zero where that lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        self.to_duration().saturating_sub(earlier.to_duration())
    }
}

impl From<Duration> for UTime {
    fn from(d: Duration) -> Self {
        match u32::try_from(d.as_secs()) {
            Ok(sec) => Self {
                sec,
                nsec: d.subsec_nanos(),
            },
            Err(_) => Self {
                sec: u32::MAX,
                nsec: 999_999_999,
            },
        }
    }
}

impl From<SystemTime> for UTime {
    fn from(t: SystemTime) -> Self {
        Self::from(t.duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

/// A day of the civil calendar.
struct Date {
    year: i64,
    month: i64,
    day: i64,
}

/// The day that is `days` days after 1970-01-01, by the civil calendar algorithm of Howard
/// Hinnant's "chrono-Compatible Low-Level Date Algorithms".
fn civil(days: i64) -> Date {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    Date {
        year: yoe + era * 400 + i64::from(month <= 2),
        month,
        day: doy - (153 * mp + 2) / 5 + 1,
    }
}

/// Ceph's own form: `2026-11-21T10:00:00.123456+0000`, or plain seconds for spans below ten years.
impl fmt::Display for UTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usec = self.nsec / 1000;
        if self.sec < 60 * 60 * 24 * 365 * 10 {
            return write!(f, "{}.{usec:06}", self.sec);
        }
        let Date { year, month, day } = civil(i64::from(self.sec / 86_400));
        let s = self.sec % 86_400;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{usec:06}+0000",
            s / 3600,
            s / 60 % 60,
            s % 60
        )
    }
}

impl Encode for UTime {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.sec);
        w.u32(self.nsec);
    }
}

impl Decode for UTime {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            sec: r.u32()?,
            nsec: r.u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_ctime_does() {
        assert_eq!(
            UTime::from_secs(1_795_255_241).to_ctime(),
            "Sat Nov 21 10:00:41 2026"
        );
        assert_eq!(
            UTime::from_secs(951_782_400).to_ctime(),
            "Tue Feb 29 00:00:00 2000"
        );
        assert_eq!(
            UTime::from_secs(1_567_616_689).to_ctime(),
            "Wed Sep  4 17:04:49 2019"
        );
    }

    #[test]
    fn prints_as_ceph_does() {
        assert_eq!(
            UTime {
                sec: 1_795_255_241,
                nsec: 5_000
            }
            .to_string(),
            "2026-11-21T10:00:41.000005+0000"
        );
        assert_eq!(
            UTime {
                sec: 951_782_400,
                nsec: 0
            }
            .to_string(),
            "2000-02-29T00:00:00.000000+0000"
        );
        assert_eq!(
            UTime {
                sec: 3,
                nsec: 250_000_000
            }
            .to_string(),
            "3.250000"
        );
    }
}
