//! When an OSD is marked down, and out after it was down for long; the cluster log words it as the official monitor does.

use std::time::Duration;

use spirula_denc::UTime;
use spirula_maps::osdmap::WEIGHT_OUT;
use spirula_maps::{OsdMapFlags, OsdState, OsdXInfo};
use spirula_proto::internal::report::{FailureKind, OsdFailureReport};
use spirula_proto::mon::LogPriority;

use super::Monitor;
use crate::health::Clock;

impl Monitor {
    /// Marks an OSD down in the next map; the text is for the cluster log.
    pub(crate) fn mark_down(&mut self, osd: i32, text: Option<String>) {
        if !self.osd.map.is_up(osd) {
            return;
        }
        let xinfo = self
            .osd
            .map
            .osd_xinfo
            .get(osd as usize)
            .copied()
            .unwrap_or_default();
        let now = self.now;
        let inc = self.pending_osd();
        inc.new_state.insert(osd, OsdState::UP);
        inc.new_xinfo.insert(
            osd,
            OsdXInfo {
                down_stamp: now,
                ..xinfo
            },
        );
        inc.new_last_up_change = now;
        let life = self.osd.lives.entry(osd);
        life.complaints.clear();
        life.clock = Clock::default();
        life.lost = None;
        life.down_since = Some(now);
        self.osd.lives.forget_reporter(osd);
        if let Some(text) = text {
            self.log_event(LogPriority::INFO, text);
        }
    }

    /// The text for an OSD that others or this monitor found dead: `osd.0 failed (root=default,host=a) (WHY)`.
    fn failed(&self, osd: i32, why: &str) -> String {
        let path = self.osd.map.crush.map().location(osd);
        let place: Vec<String> = path.iter().rev().map(|(k, v)| format!("{k}={v}")).collect();
        format!("osd.{osd} failed ({}) ({why})", place.join(","))
    }

    fn may_mark_down(&self, osd: i32) -> bool {
        let map = &self.osd.map;
        map.is_up(osd)
            && !map.flags.contains(OsdMapFlags::NODOWN)
            && !map.state(osd).contains(OsdState::NODOWN)
    }

    pub(super) fn failure(&mut self, reporter: i32, f: &OsdFailureReport) {
        let target = f.target;
        let same_life = self
            .osd
            .map
            .client_addrs(target)
            .is_some_and(|a| *a == f.target_addrs)
            || self
                .osd
                .map
                .cluster_addrs(target)
                .is_some_and(|a| *a == f.target_addrs);
        if !same_life || !self.osd.map.is_up(reporter) || !self.may_mark_down(target) {
            return;
        }
        let now = self.now;
        match f.kind {
            FailureKind::RECOVERED => {
                self.osd.lives.entry(target).complaints.remove(&reporter);
            }
            FailureKind::IMMEDIATE => {
                let text = self.failed(target, &format!("connection refused reported by osd.{reporter}"));
                self.mark_down(target, Some(text));
            }
            _ => {
                let since = UTime::from(
                    now.to_duration()
                        .saturating_sub(Duration::from_millis(u64::from(f.failed_for_ms))),
                );
                self.osd.lives.entry(target).complaints.insert(reporter, since);
                self.judge(target);
            }
        }
    }

    /// Enough OSDs have complained for long enough.
    fn judge(&mut self, target: i32) {
        let others = self
            .osd
            .map
            .osds()
            .filter(|o| *o != target && self.osd.map.is_up(*o))
            .count();
        let wanted = usize::try_from(self.values.uint("mon_osd_min_down_reporters"))
            .unwrap_or(2)
            .min(others)
            .max(1);
        let grace = Duration::from_secs(self.values.uint("osd_heartbeat_grace"));
        let now = self.now;
        let Some(life) = self.osd.lives.get(target) else {
            return;
        };
        let valid = life
            .complaints
            .values()
            .filter(|since| now.since(**since) >= grace);
        let (count, first) = (valid.clone().count(), valid.min().copied());
        if let Some(first) = first.filter(|_| count >= wanted) {
            let after = UTime::from(now.since(first));
            let why = format!(
                "{count} reporters from different osd after {after} >= grace {}",
                UTime::from(grace)
            );
            let text = self.failed(target, &why);
            self.mark_down(target, Some(text));
        }
    }

    pub(super) fn mark_silent_down(&mut self) {
        let now = self.now;
        let broken = Duration::from_millis(self.values.uint("spirula_osd_down_grace"));
        let silent = Duration::from_secs(self.values.uint("osd_heartbeat_grace"));
        let map = self.osd.map.clone();
        for osd in map.osds() {
            let Some(life) = self.osd.lives.get(osd).filter(|_| self.may_mark_down(osd)) else {
                continue;
            };
            let patience = silent.max(life.interval * 4);
            let gone = life.lost.is_some_and(|t| now.since(t) >= broken);
            let quiet = now.since(life.seen) >= patience;
            if gone {
                let text = self.failed(osd, &format!("connection lost to mon.{}", self.me.name));
                self.mark_down(osd, Some(text));
            } else if quiet {
                let after = UTime::from(now.since(life.seen));
                let text = format!("osd.{osd} marked down after no beacon for {after} seconds");
                self.mark_down(osd, Some(text));
            } else {
                self.judge(osd);
            }
        }
    }

    pub(super) fn mark_long_down_out(&mut self) {
        let interval = self.values.uint("mon_osd_down_out_interval");
        let map = self.osd.map.clone();
        if interval == 0 || map.flags.contains(OsdMapFlags::NOOUT) {
            return;
        }
        let (total, _, mut inside) = map.counts();
        let least = self.values.float("mon_osd_min_in_ratio") * total as f64;
        for osd in map.osds() {
            let skip = map.is_up(osd) || map.is_out(osd) || map.state(osd).contains(OsdState::NOOUT);
            let Some(life) = self.osd.lives.get(osd).filter(|_| !skip) else {
                continue;
            };
            let due = life
                .down_since
                .is_some_and(|t| self.now.since(t).as_secs() >= interval);
            if due && (inside as f64 - 1.0) >= least {
                inside -= 1;
                let weight = map.weight(osd);
                self.set_weight(osd, WEIGHT_OUT);
                let inc = self.pending_osd();
                inc.new_state.entry(osd).or_default().insert(OsdState::AUTOOUT);
                let base = map.osd_xinfo.get(osd as usize).copied().unwrap_or_default();
                inc.new_xinfo.entry(osd).or_insert(base).old_weight = weight;
                self.log_event(
                    LogPriority::INFO,
                    format!("Marking osd.{osd} out (has been down for {interval} seconds)"),
                );
            }
        }
    }
}
