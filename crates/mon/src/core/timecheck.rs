//! The monitors' clocks, compared: the leader asks the others in quorum for the time, in rounds, as
//! official monitors do. A round's number is odd while it is under way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spirula_denc::UTime;
use spirula_invariant::{dropped, invariant};

use super::{DropReason, Monitor, View};
use spirula_proto::mon::LogPriority;
use spirula_text::general;

/// If the round trip on both clocks differs by more than this, a clock was set between question and
/// answer, and the answer is worthless.
const READJUSTED: Duration = Duration::from_millis(20);

/// How far a monitor's clock is ahead of the leader's, in seconds. Signed; the least possible
/// difference, as the part that the network may explain is subtracted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Skew {
    pub(crate) skew: f64,
    /// The round trip, averaged over rounds.
    pub(crate) latency: f64,
}

/// The leader's measurements of the others' clocks.
#[derive(Debug, Clone, Default)]
pub(crate) struct TimeCheck {
    pub(crate) round: u64,
    waiting: BTreeSet<String>,
    /// When the round under way began, on the steady clock.
    began: Duration,
    /// When the next round is due; `None` if there is no monitor to ask.
    due: Option<Duration>,
    /// The differences by monitor, this one among them.
    pub(crate) skews: BTreeMap<String, Skew>,
    rounds_since_clean: u32,
}

impl TimeCheck {
    pub(crate) fn is_under_way(&self) -> bool {
        !self.round.is_multiple_of(2)
    }

    fn give_up(&mut self) {
        self.waiting.clear();
        self.round += u64::from(self.is_under_way());
    }
}

/// The answer of a monitor that was asked for the time.
#[derive(Debug, Clone, Copy)]
pub struct TimeAnswer {
    /// The round in which the monitor was asked.
    pub round: u64,
    /// When the monitor was asked, on our clock.
    pub sent: UTime,
    /// The time on the monitor's clock.
    pub theirs: UTime,
    /// How long the answer took, on a clock that cannot be set.
    pub round_trip: Duration,
}

/// The difference of two clocks after a round trip, less the part that the round trip may explain.
fn bounded(theirs: UTime, ours: UTime, latency: f64) -> f64 {
    let delta = theirs.as_secs_f64() - ours.as_secs_f64();
    let bound = (delta.abs() - latency).max(0.0);
    if delta < 0.0 { -bound } else { bound }
}

impl View {
    /// Restarts the measurements, as the quorum has changed.
    pub(super) fn restart_time_checks(&mut self) {
        let others = self.quorum.leads() && self.quorum.names.len() > 1;
        self.timecheck = TimeCheck {
            due: others.then(|| self.steady.now()),
            ..TimeCheck::default()
        };
    }

    fn timecheck_interval(&self) -> Duration {
        let seconds = self.values.float("mon_timecheck_interval").max(1.0);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Schedules the next round: sooner after a difference was found, and later again the longer it
    /// lasts.
    fn schedule_time_check(&mut self) {
        let usual = self.timecheck_interval();
        let skewed = self.values.float("mon_timecheck_skew_interval");
        let skewed = skewed * f64::from(self.timecheck.rounds_since_clean);
        let wait = Duration::try_from_secs_f64(skewed).unwrap_or_default();
        let wait = if wait.is_zero() { usual } else { wait.min(usual) };
        self.timecheck.due = Some(self.steady.now().saturating_add(wait));
    }

    /// Whether a difference is more than is allowed.
    fn is_skewed(&self, skew: f64) -> bool {
        skew.abs() > self.values.float("mon_clock_drift_allowed")
    }

    /// The text about a clock that differs too much.
    pub(crate) fn skew_text(&self, skew: f64) -> Option<String> {
        self.is_skewed(skew).then(|| {
            format!(
                "clock skew {}s > max {}s",
                general(skew.abs(), 6),
                general(self.values.float("mon_clock_drift_allowed"), 6)
            )
        })
    }

    fn finish_time_check(&mut self) {
        let (t, waiting) = (&self.timecheck, self.timecheck.waiting.len());
        invariant!(t.is_under_way() && waiting == 0, "a round with all answers"; round = t.round, waiting = waiting);
        self.timecheck.round += 1;
        if self.timecheck.skews.values().any(|s| self.is_skewed(s.skew)) {
            self.timecheck.rounds_since_clean += 1;
            self.schedule_time_check();
        } else if self.timecheck.rounds_since_clean > 0 {
            // Once more soon, to be sure.
            self.timecheck.rounds_since_clean = 1;
            self.schedule_time_check();
            self.timecheck.rounds_since_clean = 0;
        }
    }

    /// Starts a round if one is due; returns its number, and the monitors to ask.
    pub(super) fn time_check_due(&mut self) -> Option<(u64, Vec<String>)> {
        let (now, interval) = (self.steady.now(), self.timecheck_interval());
        let t = &mut self.timecheck;
        if t.due.is_none_or(|due| now < due) {
            return None;
        }
        if t.is_under_way() {
            if now.saturating_sub(t.began) < interval * 3 {
                return None;
            }
            t.give_up();
        }
        t.round += 1;
        invariant!(t.is_under_way(), "one round at a time"; round = t.round);
        t.began = now;
        let me = &self.me.name;
        t.waiting = self.quorum.names.iter().filter(|n| *n != me).cloned().collect();
        t.skews.insert(me.clone(), Skew::default());
        let round = (t.round, t.waiting.iter().cloned().collect());
        self.schedule_time_check();
        Some(round)
    }
}

impl Monitor {
    /// Handles another monitor's answer with its time.
    pub fn time_answer(&mut self, name: &str, a: &TimeAnswer, now: UTime) {
        self.view.see_time(now);
        let t = &mut self.view.timecheck;
        if a.round != t.round || !t.waiting.remove(name) {
            return dropped!(self.dropped, DropReason::AnswerLate; mon = name, round = a.round);
        }
        let by_clock = now.as_secs_f64() - a.sent.as_secs_f64();
        let latency = a.round_trip.as_secs_f64();
        if (by_clock - latency).abs() > READJUSTED.as_secs_f64() {
            tracing::info!("this host's clock was readjusted: the round of time checks is dropped");
            return t.give_up();
        }
        let skew = bounded(a.theirs, now, latency);
        let average = match t.skews.get(name) {
            Some(s) => s.latency * 0.8 + latency * 0.2,
            None => latency,
        };
        let measured = Skew {
            skew,
            latency: average,
        };
        t.skews.insert(name.to_owned(), measured);
        let finished = t.waiting.is_empty();
        if let Some(text) = self.view.skew_text(skew) {
            let rank = self.view.state.monmap.map.rank_of(name).unwrap_or_default();
            self.view.log_event(LogPriority::WARN, format!("{rank} {text}"));
        }
        if finished {
            self.view.finish_time_check();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_network_may_explain_is_no_difference() {
        let at = |ms: u64| UTime::from(Duration::from_millis(1_000_000 + ms));
        assert_eq!(bounded(at(100), at(80), 0.05), 0.0);
        assert!((bounded(at(600), at(0), 0.1) - 0.5).abs() < 1e-6);
        assert!((bounded(at(0), at(600), 0.1) + 0.5).abs() < 1e-6);
    }
}
