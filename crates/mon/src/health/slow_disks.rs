//! Disks that are much slower than those of the other OSDs: `OSD_SLOW_DISK`.
//!
//! One such disk holds up every write of every PG that it takes part in, and the resulting slow
//! requests are reported of the primaries, which wait for it. So OSDs are compared by how long
//! their own stores take to make a transaction durable (`ceph osd perf`), with the others of their
//! device class.

use std::time::Duration;

use spirula_maps::OsdId;

use super::{Checks, place, plural, warn};
use crate::core::View;

/// How long a disk must have been slow, in every report.
const PERSISTENT: Duration = Duration::from_secs(10);
/// How long the last measurement counts; an idle disk sends no new ones.
const LIFETIME: Duration = Duration::from_secs(600);

/// An average that an OSD has reported.
#[derive(Debug, Clone, Copy)]
struct Average {
    time: Duration,
    /// When it was reported.
    reported: Duration,
}

/// The time that an OSD's store takes for a transaction. Times of the monitor's steady clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommitTime {
    /// The last average.
    last: Option<Average>,
    /// Since when all averages were too long.
    slow_since: Option<Duration>,
}

impl CommitTime {
    /// Adds an average, with whether it is too long.
    fn take(&mut self, average: Duration, is_slow: bool, now: Duration) {
        self.last = Some(Average {
            time: average,
            reported: now,
        });
        self.slow_since = is_slow.then(|| self.slow_since.unwrap_or(now));
    }

    /// The last average, while it counts.
    fn current(&self, now: Duration) -> Option<Duration> {
        let last = self.last?;
        (now.saturating_sub(last.reported) <= LIFETIME).then_some(last.time)
    }

    fn is_slow(&self) -> bool {
        let lasted = self
            .slow_since
            .zip(self.last)
            .map(|(from, last)| last.reported.saturating_sub(from));
        lasted.is_some_and(|l| l >= PERSISTENT)
    }
}

/// The median of some times, the lower one of two; `None` of none.
fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len().checked_sub(1)? / 2).copied()
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

impl View {
    /// Notes the time that an OSD's store took of late; 0 if it was idle.
    pub(crate) fn commit_time(&mut self, osd: OsdId, nanoseconds: u64) {
        if nanoseconds == 0 {
            return;
        }
        let (average, now) = (Duration::from_nanos(nanoseconds), self.steady.now());
        let floor = self.values.float("spirula_slow_disk_time").max(0.0) / 1000.0;
        let ratio = self.values.float("spirula_slow_disk_ratio");
        let others = self.commit_time_of_others(osd);
        let is_slow = ratio > 0.0
            && average.as_secs_f64() >= floor
            && others.is_some_and(|o| average.as_secs_f64() >= o.as_secs_f64() * ratio);
        self.state
            .osd
            .lives
            .entry(osd)
            .commits
            .take(average, is_slow, now);
    }

    /// The median of the other OSDs of the same device class.
    fn commit_time_of_others(&self, osd: OsdId) -> Option<Duration> {
        let (map, now) = (&self.state.osd.map, self.steady.now());
        let class = |o: OsdId| map.crush.map().class_of(o.item());
        let alike = map
            .osds()
            .filter(|o| *o != osd && map.is_up(*o) && class(*o) == class(osd));
        median(
            alike
                .filter_map(|o| self.state.osd.lives.get(o)?.commits.current(now))
                .collect(),
        )
    }

    pub(super) fn slow_disks(&self, out: &mut Checks) {
        let (map, now) = (&self.state.osd.map, self.steady.now());
        let (mut names, mut detail) = (Vec::new(), Vec::new());
        for osd in map.osds().filter(|o| map.is_up(*o)) {
            let commits = self
                .state
                .osd
                .lives
                .get(osd)
                .map(|l| l.commits)
                .unwrap_or_default();
            let Some(average) = commits.current(now).filter(|_| commits.is_slow()) else {
                continue;
            };
            let others = self.commit_time_of_others(osd).map(ms).unwrap_or_default();
            names.push(format!("osd.{osd}"));
            detail.push(format!(
                "osd.{osd} ({}) takes {} to commit, others {others}; see `ceph osd perf`",
                place(map, osd.item()),
                ms(average)
            ));
        }
        if !names.is_empty() {
            let n = names.len();
            let summary = format!(
                "{} with a disk much slower than others: {}",
                plural(n, "osd"),
                names.join(", ")
            );
            out.insert("OSD_SLOW_DISK", warn(summary, n, detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn slowness_must_last() {
        let (long, short) = (Duration::from_millis(500), Duration::from_millis(5));
        let mut c = CommitTime::default();
        assert!(!c.is_slow() && c.current(at(0)).is_none());
        c.take(long, true, at(1));
        // One measurement is none, however long ago.
        assert!(!c.is_slow());
        c.take(long, true, at(10));
        assert!(!c.is_slow());
        c.take(long, true, at(11));
        assert!(c.is_slow());
        assert_eq!(c.current(at(611)), Some(long));
        assert_eq!(c.current(at(612)), None);
        c.take(short, false, at(12));
        assert!(!c.is_slow());
        c.take(long, true, at(13));
        assert!(!c.is_slow(), "it begins anew");
    }

    #[test]
    fn the_middle_is_not_moved_by_one() {
        let times = |list: &[u64]| list.iter().map(|t| Duration::from_millis(*t)).collect::<Vec<_>>();
        let of = |list: &[u64]| median(times(list)).map(|d| d.as_millis());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), Some(7));
        assert_eq!(of(&[900, 4]), Some(4));
        assert_eq!(of(&[5, 900, 4]), Some(5));
    }
}
