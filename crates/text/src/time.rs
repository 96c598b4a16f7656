//! Times and spans (`src/include/utime.h`).

use std::time::Duration;

use chrono::{Datelike, Timelike};
use spirula_denc::UTime;

use crate::general;

/// An age with one unit: `1.5s`, `16m`, `2h`, `3d`.
pub fn age(d: Duration) -> String {
    const DAY: u64 = 86_400;
    let s = d.as_secs();
    match s {
        0..2 => format!("{}s", general(d.as_secs_f64(), 6)),
        2..120 => format!("{s}s"),
        120..7200 => format!("{}m", s / 60),
        7200..172_800 => format!("{}h", s / 3600),
        _ if s < 14 * DAY => format!("{}d", s / DAY),
        _ if s < 84 * DAY => format!("{}w", s / (7 * DAY)),
        _ if s < 720 * DAY => format!("{}M", s / (30 * DAY)),
        _ => format!("{}y", s / (365 * DAY)),
    }
}

/// A time as ISO 8601 with microseconds and `Z`.
pub fn iso(t: UTime) -> String {
    let text = t.to_string();
    match text.strip_suffix("+0000") {
        Some(head) => format!("{head}Z"),
        None => text,
    }
}

/// A time in UTC as ISO 8601 writes it: `2026-11-25T19:00:00.123456Z`, the fraction, the `Z` and
/// the `T` (a blank) optional. `None` for what is none, or out of range.
pub fn parse(text: &str) -> Option<UTime> {
    let (date, time) = text.trim_end_matches('Z').split_once(['T', ' '])?;
    let numbers = |text: &str, by: char| -> Option<[i64; 3]> {
        let parts: Option<Vec<i64>> = text
            .split(by)
            .map(|n| Some(i64::from(n.parse::<u16>().ok()?)))
            .collect();
        parts?.try_into().ok()
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let ([y, m, d], [hour, min, sec]) = (numbers(date, '-')?, numbers(time, ':')?);
    let in_range = (1..=12).contains(&m) && (1..=31).contains(&d) && hour < 24 && min < 60 && sec < 61;
    if !in_range || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // Days since 1970-01-01 by years that begin in March (Howard Hinnant, "chrono-Compatible
    // Low-Level Date Algorithms").
    let year = if m <= 2 { y - 1 } else { y };
    let day_of_year = (153 * ((m + 9) % 12) + 2) / 5 + d - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
    let nsec: u32 = format!("{fraction:0<9}").parse().ok()?;
    let sec = u32::try_from(days * 86_400 + hour * 3600 + min * 60 + sec).ok()?;
    Some(UTime { sec, nsec })
}

/// A time where this process runs: `2026-11-21T16:31:00.373616+0000`.
pub fn local(t: UTime) -> String {
    let at = chrono::DateTime::from_timestamp(i64::from(t.sec), t.nsec.min(999_999_999));
    let at = at.unwrap_or_default().with_timezone(&chrono::Local);
    at.format("%Y-%m-%dT%H:%M:%S%.6f%z").to_string()
}

/// The seconds since the week began, on Sunday at midnight, where this process runs.
pub fn second_of_week(t: UTime) -> u32 {
    let at = chrono::DateTime::from_timestamp(i64::from(t.sec), 0);
    let at = at.unwrap_or_default().with_timezone(&chrono::Local);
    at.weekday().num_days_from_sunday() * 86_400 + at.num_seconds_from_midnight()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_printed() {
        for sec in [951_782_399, 951_782_400, 1_800_000_000, 4_000_000_000] {
            let time = UTime {
                sec,
                nsec: 123_456_000,
            };
            assert_eq!(parse(&iso(time)), Some(time));
        }
        assert_eq!(parse("1970-01-01 00:00:01"), Some(UTime::from_secs(1)));
        for bad in [
            "",
            "foo",
            "2026-13-01T00:00:00",
            "2026-11-25",
            "1969-12-31T23:59:59",
            "2026-11-25T24:00:00Z",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
