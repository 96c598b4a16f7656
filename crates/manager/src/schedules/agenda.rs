//! The next events of all schedules.

use std::collections::BTreeMap;

use chrono::{NaiveDateTime, Timelike};

/// Events by their time: local, without seconds.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    times: BTreeMap<NaiveDateTime, Vec<T>>,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Self {
            times: BTreeMap::new(),
        }
    }
}

impl<T: PartialEq> Agenda<T> {
    /// Adds an event at a time, once.
    pub(crate) fn add(&mut self, at: NaiveDateTime, what: T) {
        let entries = self.times.entry(at).or_default();
        if !entries.contains(&what) {
            entries.push(what);
        }
    }

    /// Takes an event that is due; else returns the time of the next one.
    pub(crate) fn take(&mut self, now: NaiveDateTime) -> Result<T, Option<NaiveDateTime>> {
        let Some(mut first) = self.times.first_entry() else {
            return Err(None);
        };
        let at = *first.key();
        if now < at {
            return Err(Some(at));
        }
        let entries = first.get_mut();
        let what = (!entries.is_empty()).then(|| entries.remove(0));
        if entries.is_empty() {
            first.remove();
        }
        what.ok_or(None)
    }

    /// Removes the events that are not due yet.
    pub(crate) fn clear_future(&mut self, now: NaiveDateTime) {
        let minute = now
            .with_second(0)
            .and_then(|t| t.with_nanosecond(0))
            .unwrap_or(now);
        self.times.retain(|at, _| *at <= minute);
    }

    /// Keeps the events for which `keep` returns true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.times.retain(|_, entries| {
            entries.retain(&mut keep);
            !entries.is_empty()
        });
    }

    /// All events, in the order of their times.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NaiveDateTime, &T)> {
        self.times
            .iter()
            .flat_map(|(at, all)| all.iter().map(|what| (*at, what)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: u32, second: u32) -> NaiveDateTime {
        let day = chrono::NaiveDate::from_ymd_opt(2026, 1, 2).unwrap();
        day.and_hms_opt(3, minute, second).unwrap()
    }

    #[test]
    fn things_are_done_at_their_time_and_in_order() {
        let mut agenda = Agenda::default();
        for (minute, what) in [(5, "c"), (4, "a"), (4, "b"), (4, "a")] {
            agenda.add(at(minute, 0), what);
        }
        assert_eq!(agenda.take(at(3, 59)), Err(Some(at(4, 0))));
        assert_eq!(agenda.take(at(4, 0)), Ok("a"));
        agenda.clear_future(at(4, 30));
        assert_eq!(agenda.iter().collect::<Vec<_>>(), [(at(4, 0), &"b")]);
        assert_eq!(agenda.take(at(9, 0)), Ok("b"));
        assert_eq!(agenda.take(at(9, 0)), Err(None));
        agenda.add(at(5, 0), "c");
        agenda.retain(|what| *what != "c");
        assert_eq!(agenda.iter().count(), 0);
    }
}
