//! A schedule: several intervals, each with a start time.

use std::collections::BTreeSet;

use chrono::{DateTime, NaiveDateTime, TimeDelta};
use serde_json::{Value, json};
use spirula_text::python;

use super::interval::{Interval, StartTime};

/// A schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    items: BTreeSet<(Interval, Option<StartTime>)>,
}

/// The most items that are read of a schedule; nobody adds so many by hand.
const MAX_ITEMS: usize = 4096;

impl Schedule {
    pub(crate) fn add(&mut self, interval: Interval, start: Option<StartTime>) {
        self.items.insert((interval, start));
    }

    pub(crate) fn remove(&mut self, interval: Interval, start: Option<StartTime>) {
        self.items.remove(&(interval, start));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The next time after `now`, both in local time; `None` for an empty schedule.
    pub(crate) fn next_run(&self, now: NaiveDateTime) -> Option<NaiveDateTime> {
        let next = |(interval, start): &(Interval, Option<StartTime>)| {
            let epoch = DateTime::UNIX_EPOCH.naive_utc();
            let first = start.map_or(0, StartTime::minutes);
            let first = epoch + TimeDelta::minutes(i64::try_from(first).ok()?);
            let period = i64::try_from(interval.minutes()).ok()? * 60;
            let turns = (now - first).num_seconds().div_euclid(period) + 1;
            first.checked_add_signed(TimeDelta::seconds(turns.checked_mul(period)?))
        };
        self.items.iter().filter_map(next).min()
    }

    pub(crate) fn to_value(&self) -> Value {
        let item = |(interval, start): &(Interval, Option<StartTime>)| json!({"interval": interval.to_string(), "start_time": start.map(|s| s.to_string())});
        Value::Array(self.items.iter().map(item).collect())
    }

    /// The stored form.
    pub(crate) fn to_json(&self) -> String {
        python::dumps_indented(&self.to_value())
    }

    /// Parses a stored schedule.
    pub(crate) fn from_json(text: &str) -> Option<Self> {
        let items: Vec<Value> = serde_json::from_str(text).ok()?;
        let mut schedule = Self::default();
        for item in items.iter().take(MAX_ITEMS) {
            let interval = Interval::parse(item.get("interval")?.as_str()?).ok()?;
            let start = match item.get("start_time")? {
                Value::Null => None,
                text => StartTime::parse(text.as_str()?).ok()?,
            };
            schedule.add(interval, start);
        }
        Some(schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(interval: &str, start: &str) -> Schedule {
        let mut s = Schedule::default();
        s.add(
            Interval::parse(interval).unwrap(),
            StartTime::parse(start).unwrap(),
        );
        s
    }

    /// As Ceph 16.2's own class tells them.
    #[test]
    fn the_next_time_counts_from_the_start_time() {
        for (interval, start, now, next) in [
            ("1h", "", "2026-01-02 03:04:05", "2026-01-02 04:00:00"),
            ("1d", "14:00", "2026-01-02 03:04:05", "2026-01-02 14:00:00"),
            ("7m", "00:03", "2026-01-02 03:04:05", "2026-01-02 03:07:00"),
            (
                "1d",
                "14:00:00-05:00",
                "2026-01-02 03:04:05",
                "2026-01-02 09:00:00",
            ),
            ("3h", "02:00+05:30", "2026-01-02 03:00:00", "2026-01-02 04:30:00"),
        ] {
            let now = NaiveDateTime::parse_from_str(now, "%Y-%m-%d %H:%M:%S").unwrap();
            let found = schedule(interval, start).next_run(now).unwrap();
            assert_eq!(found.to_string(), next, "{interval} {start}");
        }
        assert_eq!(Schedule::default().next_run(NaiveDateTime::default()), None);
    }

    #[test]
    fn schedules_are_stored_as_the_official_manager_stores_them() {
        let text = "[\n    {\n        \"interval\": \"1d\",\n        \"start_time\": \"14:00:00\"\n    }\n]";
        assert_eq!(schedule("1d", "14:00").to_json(), text);
        assert_eq!(Schedule::from_json(text), Some(schedule("1d", "14:00")));
        let text = schedule("1d", "").to_json();
        assert!(text.contains("\"start_time\": null"));
        assert_eq!(Schedule::from_json(&text), Some(schedule("1d", "")));
        for broken in [
            "",
            "{}",
            "[1]",
            "[{\"interval\": \"1x\", \"start_time\": null}]",
            "[{\"interval\": \"1d\"}]",
        ] {
            assert_eq!(Schedule::from_json(broken), None, "{broken}");
        }
    }
}
