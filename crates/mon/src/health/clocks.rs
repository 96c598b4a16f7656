//! Clocks: how far the hosts of OSDs are from the monitor's.

use std::collections::VecDeque;
use std::time::Duration;

use spirula_proto::internal::report::ClockSample;
use spirula_text::general;

use super::{Checks, warn};
use crate::core::View;

/// A difference counts once it has shown in this many successive reports.
const PERSISTENT: usize = 3;

/// An OSD's latest measurements.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    recent: VecDeque<ClockSample>,
}

/// The least difference of the clocks: the truth is within half the round trip of the measured one.
fn skew(s: &ClockSample) -> Duration {
    Duration::from_micros(s.ahead_us.unsigned_abs().saturating_sub(s.round_trip.count() / 2))
}

/// A clock that differs.
#[derive(Debug, PartialEq, Eq)]
struct Skewed {
    skew: Duration,
    /// The round trip of the measurement.
    latency: Duration,
}

impl Clock {
    pub(crate) fn take(&mut self, sample: ClockSample) {
        if self.recent.len() == PERSISTENT {
            self.recent.pop_front();
        }
        self.recent.push_back(sample);
    }

    /// The last difference, if the last few all exceed the allowed one.
    fn trouble(&self, allowed: Duration) -> Option<Skewed> {
        let last = self.recent.back()?;
        let bad = self.recent.len() == PERSISTENT && self.recent.iter().all(|s| skew(s) > allowed);
        bad.then(|| Skewed {
            skew: skew(last),
            latency: last.round_trip.into(),
        })
    }
}

impl View {
    pub(super) fn clocks(&self, out: &mut Checks) {
        self.monitors_clocks(out);
        let map = &self.state.osd.map;
        let limit = self.values.float("mon_clock_drift_allowed").max(0.0);
        let allowed = Duration::try_from_secs_f64(limit).unwrap_or(Duration::MAX);
        let (mut names, mut detail) = (Vec::new(), Vec::new());
        for osd in map.osds().filter(|o| map.is_up(*o)) {
            let life = self.state.osd.lives.get(osd);
            let Some(Skewed { skew, latency }) = life.and_then(|l| l.clock.trouble(allowed)) else {
                continue;
            };
            names.push(format!("osd.{osd}"));
            detail.push(format!(
                "osd.{osd} clock skew {}s > max {}s (latency {}s)",
                general(skew.as_secs_f64(), 6),
                general(limit, 6),
                general(latency.as_secs_f64(), 6)
            ));
        }
        if !names.is_empty() {
            let summary = format!("clock skew detected on {}", names.join(", "));
            out.insert("OSD_CLOCK_SKEW", warn(summary, names.len(), detail));
        }
    }

    /// Checks the clocks of the other monitors, as the leader has measured them.
    fn monitors_clocks(&self, out: &mut Checks) {
        let skewed = self
            .timecheck
            .skews
            .iter()
            .filter_map(|(name, s)| Some((format!("mon.{name}"), self.skew_text(s.skew)?, s.latency)));
        let (names, detail): (Vec<String>, Vec<String>) = skewed
            .map(|(name, text, latency)| {
                let line = format!("{name} {text} (latency {}s)", general(latency, 6));
                (name, line)
            })
            .unzip();
        if !names.is_empty() {
            let summary = format!("clock skew detected on {}", names.join(", "));
            out.insert("MON_CLOCK_SKEW", warn(summary, names.len(), detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::Micros;

    use super::*;

    fn sample(ahead_ms: i64, round_trip_ms: u64) -> ClockSample {
        ClockSample {
            ahead_us: ahead_ms * 1000,
            round_trip: Micros::from_millis(round_trip_ms),
        }
    }

    #[test]
    fn a_difference_counts_when_it_stays_and_the_network_does_not_explain_it() {
        let allowed = Duration::from_millis(50);
        let mut c = Clock::default();
        let bad = |c: &Clock| c.trouble(allowed).is_some();
        for n in 1..=PERSISTENT {
            assert!(!bad(&c));
            c.take(sample(-80, 20));
            assert_eq!(bad(&c), n == PERSISTENT);
        }
        let want = Skewed {
            skew: Duration::from_millis(70),
            latency: Duration::from_millis(20),
        };
        assert_eq!(c.trouble(allowed), Some(want));
        assert_eq!(c.trouble(Duration::from_millis(70)), None);
        // One report that a slow network could explain ends it.
        c.take(sample(-80, 60));
        assert!(!bad(&c));
        for _ in 0..PERSISTENT {
            assert!(!bad(&c));
            c.take(sample(80, 0));
        }
        assert!(bad(&c));
        c.take(sample(i64::MIN / 1000, 0));
        c.take(sample(0, 0));
        assert!(!bad(&c));
    }
}
