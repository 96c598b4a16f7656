//! The interval of a schedule's item, and its start time.

use std::cmp::Ordering;
use std::fmt;

use crate::failure::Failure;

const HOUR: u64 = 60;
const DAY: u64 = 24 * HOUR;
/// A hundred years.
const MAX_MINUTES: u64 = 36_525 * DAY;

/// Minutes between two times, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Interval(u64);

impl Interval {
    /// Parses `90`, `90m`, `2h` or `1d`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let unit = match text.chars().last() {
            Some('d') => DAY,
            Some('h') => HOUR,
            _ => 1,
        };
        let number = text.strip_suffix(['d', 'h', 'm']).unwrap_or(text);
        let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        let minutes = number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
        let valid = minutes.filter(|n| is_number && (1..=MAX_MINUTES).contains(n));
        valid
            .map(Self)
            .ok_or_else(|| Failure::Value(format!("Invalid interval ({text})")))
    }

    pub(crate) fn minutes(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n % DAY == 0 => write!(f, "{}d", n / DAY),
            n if n % HOUR == 0 => write!(f, "{}h", n / HOUR),
            n => write!(f, "{n}m"),
        }
    }
}

/// A time of the day, perhaps with a time zone. Those with the same [`StartTime::minutes`] are
/// equal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StartTime {
    hour: u32,
    minute: u32,
    /// Minutes by which the zone is ahead of UTC.
    offset: Option<i32>,
}

const DAY_MINUTES: i32 = 24 * 60;

impl StartTime {
    /// Parses a time in ISO 8601, with or without a date, seconds and a zone, or of a clock with
    /// twelve hours; `None` for an empty text.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, Failure> {
        if text.is_empty() {
            return Ok(None);
        }
        let unknown = || {
            Failure::Value(format!(
                "Invalid start time {text}: Unknown string format: {text}"
            ))
        };
        let time = text
            .rsplit_once(['T', ' '])
            .filter(|(date, _)| date.contains('-'));
        let time = time.map_or(text, |(_, time)| time).trim();
        let (clock, offset) = zone(time).ok_or_else(unknown)?;
        let lower = clock.trim().to_ascii_lowercase();
        let (digits, half) = match lower.strip_suffix("am").or(lower.strip_suffix("pm")) {
            Some(digits) => (digits.trim(), Some(lower.ends_with("pm"))),
            None => (lower.as_str(), None),
        };
        let ClockTime { hour, minute } = clock_time(digits, half.is_some()).ok_or_else(unknown)?;
        if hour > if half.is_some() { 12 } else { 23 } {
            let why = "hour must be in 0..23";
            return Err(Failure::Value(format!(
                "Invalid start time {text}: {why}: {text}"
            )));
        }
        let hour = match half {
            Some(afternoon) => hour % 12 + if afternoon { 12 } else { 0 },
            None => hour,
        };
        Ok(Some(Self { hour, minute, offset }))
    }

    /// Minutes since midnight, as Ceph counts: the zone's offset is added.
    pub(crate) fn minutes(self) -> u64 {
        let offset = self.offset.unwrap_or_default().rem_euclid(DAY_MINUTES);
        u64::from(self.hour * 60 + self.minute) + u64::from(offset.unsigned_abs())
    }
}

/// Splits a zone off: `Z`, `+05:30`, `-0500`.
fn zone(time: &str) -> Option<(&str, Option<i32>)> {
    if let Some(clock) = time.strip_suffix(['Z', 'z']) {
        return Some((clock, Some(0)));
    }
    let Some(at) = time.rfind(['+', '-']) else {
        return Some((time, None));
    };
    let (clock, zone) = time.split_at(at);
    let digits: String = zone[1..].chars().filter(|c| *c != ':').collect();
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes) = match digits.len() {
        1 | 2 => (digits.parse::<i32>().ok()?, 0),
        4 => (digits[..2].parse().ok()?, digits[2..].parse().ok()?),
        _ => return None,
    };
    let offset = hours * 60 + minutes;
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    (minutes < 60 && offset < DAY_MINUTES).then_some((clock, Some(sign * offset)))
}

/// A time of day, to the minute; the hour is not checked.
struct ClockTime {
    hour: u32,
    minute: u32,
}

/// `HH:MM[:SS[.…]]`; with `hour_only` the hour alone.
fn clock_time(text: &str, hour_only: bool) -> Option<ClockTime> {
    let number = |t: &str| {
        let valid = (1..=2).contains(&t.len()) && t.bytes().all(|b| b.is_ascii_digit());
        valid.then(|| t.parse::<u32>().ok()).flatten()
    };
    let parts: Vec<&str> = text.split(':').collect();
    let (hour, minute) = match *parts.as_slice() {
        [hour] if hour_only => (number(hour)?, 0),
        [hour, minute] => (number(hour)?, number(minute)?),
        [hour, minute, second] => {
            let whole = second.split_once('.').map_or(second, |(whole, _)| whole);
            number(whole).filter(|s| *s < 60)?;
            (number(hour)?, number(minute)?)
        }
        _ => return None,
    };
    (minute < 60).then_some(ClockTime { hour, minute })
}

impl PartialEq for StartTime {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for StartTime {}

impl PartialOrd for StartTime {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StartTime {
    fn cmp(&self, other: &Self) -> Ordering {
        self.minutes().cmp(&other.minutes())
    }
}

impl fmt::Display for StartTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}:00", self.hour, self.minute)?;
        let Some(offset) = self.offset else { return Ok(()) };
        let sign = if offset < 0 { '-' } else { '+' };
        write!(f, "{sign}{:02}:{:02}", offset.abs() / 60, offset.abs() % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Ceph 16.2's own class reads and writes them.
    #[test]
    fn intervals_are_spelled_in_the_greatest_unit() {
        for (text, shown) in [
            ("1", "1m"),
            ("90m", "90m"),
            ("2h", "2h"),
            ("48h", "2d"),
            ("1d", "1d"),
        ] {
            assert_eq!(Interval::parse(text).unwrap().to_string(), shown);
        }
        for text in [
            "1x",
            "",
            "-1",
            "1.5h",
            "d",
            "0",
            "99999999999999999999",
            "1dd",
            "+1",
        ] {
            let want = Failure::Value(format!("Invalid interval ({text})"));
            assert_eq!(Interval::parse(text), Err(want));
        }
    }

    /// As Ceph 16.2's own class reads and writes them.
    #[test]
    fn start_times_have_zones() {
        for (text, shown, minutes) in [
            ("14:00", "14:00:00", 840),
            ("14:00:00", "14:00:00", 840),
            ("14:00:00-05:00", "14:00:00-05:00", 1980),
            ("03:30+05:30", "03:30:00+05:30", 540),
            ("2pm", "14:00:00", 840),
            ("10 AM", "10:00:00", 600),
            ("12am", "00:00:00", 0),
            ("12:30 pm", "12:30:00", 750),
            ("00:15Z", "00:15:00+00:00", 15),
            ("14:00:30.5", "14:00:00", 840),
            ("2021-01-02T03:04", "03:04:00", 184),
            ("10:5", "10:05:00", 605),
            ("00:00:00-00:30", "00:00:00-00:30", 1410),
            ("14:00:00+0100", "14:00:00+01:00", 900),
        ] {
            let time = StartTime::parse(text).unwrap().unwrap();
            assert_eq!(
                (time.to_string().as_str(), time.minutes()),
                (shown, minutes),
                "{text}"
            );
        }
        assert_eq!(StartTime::parse(""), Ok(None));
        for text in ["noon", "14:", "1:2:3:4", "+", "14:60", "ä:ö", "13:00pm:"] {
            assert!(StartTime::parse(text).is_err(), "{text}");
        }
        let late = Failure::Value("Invalid start time 25:00: hour must be in 0..23: 25:00".into());
        assert_eq!(StartTime::parse("25:00"), Err(late));
    }
}
