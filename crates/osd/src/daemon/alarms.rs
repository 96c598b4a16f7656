//! Times at which the core is to be called before its next tick.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use spirula_denc::Micros;
use tokio::sync::Notify;

use super::shell::Shared;
use super::state::Osd;
use crate::core::Core;

/// Alarms are set for multiples of this: thousands of notifications have one
/// each.
const GRAIN: Micros = Micros::from_millis(5);

/// The alarms that are set.
#[derive(Default)]
pub(super) struct Alarms {
    at: BTreeSet<Micros>,
    /// Notified when an alarm is set that rings before all others.
    news: Rc<Notify>,
}

impl Alarms {
    /// Sets an alarm by the daemon's clock.
    pub(super) fn set(&mut self, usec: Micros) {
        let at = GRAIN * usec.count().div_ceil(GRAIN.count());
        let is_first = self.at.first().is_none_or(|first| at < *first);
        self.at.insert(at);
        if is_first {
            self.news.notify_one();
        }
    }

    /// Drops the alarms that are due, and returns whether there were any.
    fn take_due(&mut self, now: Micros) -> bool {
        let later = self.at.split_off(&(now + Micros::new(1)));
        !std::mem::replace(&mut self.at, later).is_empty()
    }
}

impl Osd {
    /// The time of the next alarm by the machine's clock.
    pub fn next_alarm(&self) -> Option<Micros> {
        self.alarms.at.first().copied()
    }

    /// Tells the core that an alarm is due, and returns the time until the next one.
    pub fn ring(&mut self) -> Option<Duration> {
        let now = self.usec();
        if self.alarms.take_due(now) {
            self.drive(Core::handle_alarm);
        }
        let next = self.alarms.at.first()?;
        Some(Duration::from(next.saturating_sub(now)))
    }
}

/// Calls the core at each of its alarms.
pub(super) async fn ring(shell: Shared) {
    let news = shell.with(|o| Rc::clone(&o.alarms.news));
    loop {
        match shell.with(Osd::ring) {
            Some(pause) => drop(tokio::time::timeout(pause, news.notified()).await),
            None => news.notified().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_of_the_same_moment_are_one_and_none_rings_early() {
        let mut a = Alarms::default();
        (0..1000).for_each(|i| a.set(Micros::new(1_000_001 + i)));
        assert_eq!(a.at.len(), 1);
        assert!(!a.take_due(Micros::from_millis(1001)));
        assert!(a.take_due(Micros::from_millis(1020)));
        assert!(!a.take_due(Micros::MAX));
    }
}
