//! Marking OSDs down, and out after they were down for long; the cluster log words it as the
//! official monitor does.

use std::collections::BTreeSet;
use std::time::Duration;

use spirula_denc::UTime;
use spirula_invariant::{dropped, invariant};
use spirula_maps::{Epoch, Incremental, OsdCounts, OsdMap, OsdState, OsdXInfo};
use spirula_maps::{OsdId, osdmap::WEIGHT_OUT};
use spirula_proto::internal::report::{FailureKind, OsdFailureReport};
use spirula_proto::mon::LogPriority;

use super::failure::{self, Clocks, Policy};
use super::{DropReason, Monitor, Turn, View};

/// The monitor's own silence means something only if this many beacons are missing.
const BEACONS_MISSED: u32 = 2;

impl View {
    /// The text for an OSD that others or this monitor found dead:
    /// `osd.0 failed (root=default,host=a) (WHY)`.
    fn failed(&self, osd: OsdId, why: &str) -> String {
        let path = self.state.osd.map.crush.map().location(osd.item());
        let place: Vec<String> = path.iter().rev().map(|(k, v)| format!("{k}={v}")).collect();
        format!("osd.{osd} failed ({}) ({why})", place.join(","))
    }

    fn down_long_enough(&self, map: &OsdMap, osd: OsdId, down: Duration) -> bool {
        if map.state(osd).contains(OsdState::DESTROYED) {
            let interval = self.values.uint("mon_osd_destroyed_out_interval");
            return interval > 0 && down.as_secs() >= interval;
        }
        let interval = self.values.uint("mon_osd_down_out_interval");
        let mut grace = Duration::from_secs(interval);
        if self.values.flag("mon_osd_adjust_down_out_interval") {
            grace += failure::lag(&xinfo(map, osd), down, failure::halflife(&self.values));
        }
        interval > 0 && down >= grace
    }
}

impl Turn<'_> {
    /// Marks an OSD down in the next map; the text is for the cluster log.
    pub(crate) fn mark_down(&mut self, osd: OsdId, text: Option<String>) {
        if !self.view.state.osd.map.is_up(osd) {
            return; // It is down already.
        }
        let mut xinfo = xinfo(&self.view.state.osd.map, osd);
        let now = self.view.now;
        failure::before_down(&mut xinfo, now, failure::halflife(&self.view.values));
        let inc = self.pending_osd();
        inc.new_state.insert(osd, OsdState::UP);
        inc.new_xinfo.insert(osd, xinfo);
        inc.new_last_up_change = now;
        if let Some(text) = text {
            self.log_event(LogPriority::INFO, text);
        }
    }

    /// Whether an OSD may be marked down by itself: no flag forbids it, and enough are up.
    fn may_mark_down(&self, osd: OsdId) -> bool {
        let map = &self.view.state.osd.map;
        if !map.is_up(osd) || map.is_flagged(osd, OsdState::NODOWN) {
            return false;
        }
        let OsdCounts { all, up, .. } = map.counts();
        let up = up.saturating_sub(
            self.changes
                .osd
                .as_ref()
                .map_or(0, |inc| going_down(inc, map).count()),
        );
        up as f64 / all.max(1) as f64 >= self.view.values.float("mon_osd_min_up_ratio")
    }

    /// Marks an OSD down whose process is certainly gone.
    fn mark_dead(&mut self, target: OsdId, reporter: OsdId) {
        let map = &self.view.state.osd.map;
        invariant!(map.is_up(target), "an OSD that was up"; osd = target, reporter = reporter, epoch = map.epoch);
        let text = self
            .view
            .failed(target, &format!("connection refused reported by osd.{reporter}"));
        self.mark_down(target, Some(text));
        let epoch = self.view.state.osd.map.epoch.next();
        if let Some(x) = self.pending_osd().new_xinfo.get_mut(&target) {
            x.dead_epoch = epoch;
        }
    }

    /// Notes that an OSD that was marked down while it ran has stopped serving.
    pub(super) fn confirmed_dead(&mut self, osd: OsdId, epoch: Epoch) {
        let map = &self.view.state.osd.map;
        if !map.exists(osd) || map.is_up(osd) || epoch > map.epoch {
            return dropped!(self.dropped, DropReason::ReportStale; osd = osd, epoch = epoch);
        }
        let mut x = xinfo(map, osd);
        if epoch <= x.dead_epoch {
            return; // The map says so already.
        }
        x.dead_epoch = epoch;
        self.pending_osd().new_xinfo.insert(osd, x);
        self.log_event(
            LogPriority::INFO,
            format!("osd.{osd} marked itself dead as of e{epoch}"),
        );
    }

    /// Whether OSDs may still be marked out by themselves: enough are in.
    fn may_mark_out(&self) -> bool {
        let map = &self.view.state.osd.map;
        let OsdCounts { all, inside, .. } = map.counts();
        let leaving = self.changes.osd.as_ref().map_or(0, |inc| {
            let out = inc.new_weight.iter().filter(|(_, w)| **w == WEIGHT_OUT);
            out.filter(|(o, _)| map.is_in(**o)).count()
        });
        let share = inside.saturating_sub(leaving) as f64 / all.max(1) as f64;
        share >= self.view.values.float("mon_osd_min_in_ratio")
    }

    fn mark_out(&mut self, osd: OsdId, down: Duration) {
        let map = &self.view.state.osd.map;
        invariant!(!map.is_up(osd) && !map.is_out(osd), "an OSD that is down and in"; osd = osd, epoch = map.epoch);
        let (weight, base) = (
            self.view.state.osd.map.weight(osd),
            xinfo(&self.view.state.osd.map, osd),
        );
        self.set_weight(osd, WEIGHT_OUT);
        let inc = self.pending_osd();
        inc.new_state.entry(osd).or_default().insert(OsdState::AUTOOUT);
        inc.new_xinfo.entry(osd).or_insert(base).old_weight = weight;
        let text = format!(
            "Marking osd.{osd} out (has been down for {} seconds)",
            down.as_secs()
        );
        self.log_event(LogPriority::INFO, text);
    }
}

impl Monitor {
    pub(super) fn failure(&mut self, reporter: OsdId, f: &OsdFailureReport) {
        let (target, map) = (f.target, &self.view.state.osd.map);
        let up_from = map
            .osd_info
            .get(target.index())
            .map_or(Epoch::NONE, |i| i.up_from);
        let same_life = map.client_addrs(target).is_some_and(|a| *a == f.target_addrs) && f.epoch >= up_from;
        if !same_life || !map.is_up(reporter) || !map.is_up(target) || reporter == target {
            return dropped!(self.dropped, DropReason::ReportStale; osd = target, reporter = reporter);
        }
        match f.kind {
            FailureKind::RECOVERED => {
                self.view.state.osd.lives.entry(target).failure.cancel(reporter);
                let text = format!("osd.{target} failure report canceled by osd.{reporter}");
                self.view.log_event(LogPriority::DEBUG, text);
            }
            FailureKind::IMMEDIATE => {
                let text = format!("osd.{target} reported immediately failed by osd.{reporter}");
                self.view.log_event(LogPriority::DEBUG, text);
                self.turn(|turn| {
                    if turn.may_mark_down(target) {
                        turn.mark_dead(target, reporter);
                    }
                });
            }
            _ => {
                let text = format!("osd.{target} reported failed by osd.{reporter}");
                self.view.log_event(LogPriority::DEBUG, text);
                let ago = Duration::from_millis(u64::from(f.failed_for_ms));
                let since = self.view.steady.now().saturating_sub(ago);
                self.view
                    .state
                    .osd
                    .lives
                    .entry(target)
                    .failure
                    .report(reporter, since);
                if self.turn(|turn| turn.may_mark_down(target)) {
                    self.judge(target);
                }
            }
        }
    }

    /// Marks an OSD down if enough others have complained for long enough.
    fn judge(&mut self, target: OsdId) {
        let policy = Policy::of(&self.view.values);
        let clocks = Clocks {
            steady: self.view.steady.now(),
            wall: self.view.now,
        };
        let map = self.view.state.osd.map.clone();
        let life = self.view.state.osd.lives.entry(target);
        // Complaints by an OSD that is itself going down do not count.
        if let Some(inc) = &self.changes.osd {
            going_down(inc, &map).for_each(|reporter| life.failure.cancel(reporter));
        }
        if life.failure.is_empty() {
            return; // Nobody complains.
        }
        let silent = clocks.steady.saturating_sub(life.seen);
        let silent = Some(silent).filter(|s| *s >= life.interval * BEACONS_MISSED);
        if let Some(v) = failure::judge(&map, target, &mut life.failure, silent, &policy, clocks) {
            let why = format!(
                "{} reporters from different {} after {} >= grace {}",
                v.reporters,
                policy.level,
                UTime::from(v.failed_for),
                UTime::from(v.grace)
            );
            let text = self.view.failed(target, &why);
            self.turn(|turn| turn.mark_down(target, Some(text)));
        }
    }

    /// Marks OSDs down whose connection broke, which have not been heard of for long, or about
    /// which others complain.
    pub(super) fn mark_silent_down(&mut self) {
        let now = self.view.steady.now();
        let broken = Duration::from_millis(self.view.values.uint("spirula_osd_down_grace"));
        let silent = Duration::from_secs(self.view.values.uint("mon_osd_report_timeout"));
        let map = self.view.state.osd.map.clone();
        for osd in map.osds() {
            if !self.turn(|turn| turn.may_mark_down(osd)) {
                continue;
            }
            let Some(life) = self.view.state.osd.lives.get(osd) else {
                continue;
            };
            let gone = life.lost.is_some_and(|t| now.saturating_sub(t) >= broken);
            let quiet = now.saturating_sub(life.seen);
            if gone {
                let text = self
                    .view
                    .failed(osd, &format!("connection lost to mon.{}", self.view.me.name));
                self.turn(|turn| turn.mark_down(osd, Some(text)));
            } else if quiet >= silent {
                let after = UTime::from(quiet);
                let text = format!("osd.{osd} marked down after no beacon for {after} seconds");
                self.turn(|turn| turn.mark_down(osd, Some(text)));
            } else {
                self.judge(osd);
            }
        }
    }

    /// Marks OSDs out that were down for long, unless all of a large bucket is down: that is rather
    /// a failed network or power supply, which comes back as a whole.
    pub(super) fn mark_long_down_out(&mut self) {
        let now = self.view.steady.now();
        let map = self.view.state.osd.map.clone();
        let limit = self.view.values.get("mon_osd_down_out_subtree_limit");
        let limit = map.crush.map().type_id(limit).filter(|t| *t > 0);
        for osd in map.osds() {
            if map.is_up(osd) || map.is_out(osd) || map.is_flagged(osd, OsdState::NOOUT) {
                continue;
            }
            let Some(since) = self.view.state.osd.lives.get(osd).and_then(|l| l.down_since) else {
                continue;
            };
            if !self.turn(|turn| turn.may_mark_out()) {
                return; // Too many are out.
            }
            if limit.is_some_and(|t| all_around_is_down(&map, osd, t)) {
                self.view.state.osd.lives.entry(osd).down_since = Some(now);
                continue;
            }
            let down = now.saturating_sub(since);
            if self.view.down_long_enough(&map, osd, down) {
                self.turn(|turn| turn.mark_out(osd, down));
            }
        }
    }
}

fn xinfo(map: &OsdMap, osd: OsdId) -> OsdXInfo {
    map.osd_xinfo.get(osd.index()).copied().unwrap_or_default()
}

/// The OSDs that are up and that a change marks down.
fn going_down<'a>(inc: &'a Incremental, map: &'a OsdMap) -> impl Iterator<Item = OsdId> + 'a {
    let down = inc.new_state.iter().filter(|(_, s)| s.contains(OsdState::UP));
    down.map(|(o, _)| *o).filter(|o| map.is_up(*o))
}

/// Whether everything in the bucket of at least this type that holds an OSD is down.
fn all_around_is_down(map: &OsdMap, osd: OsdId, type_id: i32) -> bool {
    let crush = map.crush.map();
    let mut seen = BTreeSet::new();
    let mut at = osd.item();
    while let Some(parent) = crush.parent(at).filter(|b| seen.insert(b.id)) {
        if map.osds_below(parent.id).iter().any(|o| map.is_up(*o)) {
            return false;
        }
        if i32::from(parent.type_id) >= type_id {
            return true;
        }
        at = parent.id;
    }
    false
}
