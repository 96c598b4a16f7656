//! Progress: events that last until PGs have moved, as the progress module of Ceph's manager
//! reports them.
//!
//! An OSD that is marked out or in begins an event about the PGs that move for it. Whenever data is
//! copied there is an event about the whole cluster besides. Events are not replicated: the next
//! leader begins anew.

mod scrubs;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value, json};
use spirula_denc::{Fsid, UTime};
use spirula_manager::TaskNews;
use spirula_maps::{Epoch, OsdId, PgId, PgState, Positions};
use spirula_text::time;

use crate::core::View;
use crate::service::ConfigEntry;

/// The option whether progress is reported, of Ceph's module of that name, set for `mgr`. The
/// default is yes.
pub(crate) const PROGRESS_OPTION: &str = "mgr/progress/enabled";
/// The number of ended events that are remembered (`max_completed_events`).
const REMEMBERED: usize = 50;
/// Tasks of modules that are shown at a time; a few are under way at a time.
const MAX_TASKS: usize = 64;
/// Characters of a bar, brackets included.
const WIDTH: usize = 30;
/// States of a PG for which data is copied, or waits to be.
const COPYING: PgState = PgState::RECOVERING
    .with(PgState::RECOVERY_WAIT)
    .with(PgState::RECOVERY_TOOFULL)
    .with(PgState::BACKFILLING)
    .with(PgState::BACKFILL_WAIT)
    .with(PgState::BACKFILL_TOOFULL);

/// The subject of an event.
#[derive(Debug, Clone)]
enum About {
    /// The whole cluster. The PGs that were clean when it began, and have not moved since, do not
    /// count.
    Cluster { untouched: BTreeSet<PgId> },
    /// A task of a module of the manager, which reports its progress.
    Task { refs: Map<String, Value> },
    /// Scrubs under way, and those that wait.
    Scrubs(scrubs::Scrubs),
    /// PGs that move because of this OSD: their number, and the remaining ones, each with the bytes
    /// that had been copied when the event began.
    Osd {
        osd: OsdId,
        count: usize,
        left: BTreeMap<PgId, i64>,
    },
}

/// An event that is under way.
#[derive(Debug, Clone)]
struct Event {
    id: String,
    message: String,
    started: UTime,
    /// The epoch of the map from which on a PG's state counts.
    epoch: Epoch,
    share: f64,
    about: About,
}

/// An event that has ended.
#[derive(Debug)]
struct Ghost {
    event: Event,
    finished: UTime,
    /// Why it failed, if it did.
    failure: Option<String>,
}

/// All events.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    events: Vec<Event>,
    completed: VecDeque<Ghost>,
    /// The OSDs that were in, in the newest map that was looked at; `None` before the first.
    inside: Option<BTreeSet<OsdId>>,
    epoch: Epoch,
    count: u64,
    /// Since when there have been scrubs without a break.
    scrubs_since: Option<UTime>,
}

impl Event {
    fn refs(&self) -> Value {
        match &self.about {
            About::Cluster { .. } => json!([["global", ""]]),
            About::Task { refs } => Value::Object(refs.clone()),
            About::Scrubs(_) => json!([["global", ""]]),
            About::Osd { osd, .. } => json!([["osd", osd]]),
        }
    }

    /// Whether `ceph -s` shows the event.
    fn is_shown(&self) -> bool {
        matches!(self.about, About::Cluster { .. } | About::Scrubs(_))
    }

    /// Whether the event lasts until PGs have moved.
    fn is_of_pgs(&self) -> bool {
        !self.is_task() && !self.is_of_scrubs()
    }

    /// Whether a module ends the event.
    fn is_task(&self) -> bool {
        matches!(self.about, About::Task { .. })
    }

    fn age(&self, now: UTime) -> String {
        let whole = std::time::Duration::from_secs(now.since(self.started).as_secs());
        format!("({})", time::age(whole))
    }

    /// The estimated seconds until the end: as OSDs say, or at the speed so far.
    fn remaining(&self, now: UTime) -> Option<u64> {
        if let About::Scrubs(scrubs) = &self.about
            && scrubs.remaining.is_some()
        {
            return scrubs.remaining;
        }
        let elapsed = now.since(self.started).as_secs_f64();
        (self.share > 0.0).then(|| (elapsed * (1.0 - self.share) / self.share) as u64)
    }

    /// The message, and below it a bar and the estimate.
    fn lines(&self, now: UTime, indent: usize) -> String {
        let inner = WIDTH - 2;
        let done = ((self.share * inner as f64) as usize).min(inner);
        let remaining = match self.remaining(now) {
            Some(s) if s > 0 => format!("(remaining: {})", time::age(std::time::Duration::from_secs(s))),
            _ => String::new(),
        };
        format!(
            "{} {}\n{}[{}{}] {remaining}",
            self.message,
            self.age(now),
            " ".repeat(indent),
            "=".repeat(done),
            ".".repeat(inner - done)
        )
    }

    fn json(&self, now: UTime) -> Value {
        json!({
            "duration": self.age(now), "id": self.id, "message": self.message, "progress": self.share,
            "refs": self.refs(), "started_at": self.started.as_secs_f64(),
            "time_remaining": self.remaining(now),
        })
    }
}

impl Progress {
    /// Forgets everything, as another monitor has led meanwhile.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.completed.clear();
    }

    /// The answer to `ceph progress`; `None` if there are no events.
    pub(crate) fn text(&self, now: UTime) -> Option<String> {
        if self.events.is_empty() && self.completed.is_empty() {
            return None;
        }
        let newest_first = self.events.iter().rev();
        let mut text: String = newest_first.map(|e| e.lines(now, 4) + "\n").collect();
        if !self.completed.is_empty() {
            text.push('\n');
        }
        for ghost in &self.completed {
            text.push_str(&format!("[Complete]: {}\n", ghost.event.lines(now, 4)));
        }
        Some(text)
    }

    /// The answer to `ceph progress json`.
    pub(crate) fn json(&self, now: UTime) -> Value {
        let ghost = |g: &Ghost| {
            let mut v = json!({
                "add_to_ceph_s:": g.event.is_shown(), "finished_at": g.finished.as_secs_f64(), "id": g.event.id,
                "message": g.event.message, "refs": g.event.refs(), "started_at": g.event.started.as_secs_f64(),
            });
            if let Some(why) = &g.failure {
                v["failed"] = json!(true);
                v["failure_message"] = json!(why);
            }
            v
        };
        json!({
            "completed": self.completed.iter().map(ghost).collect::<Vec<_>>(),
            "events": self.events.iter().map(|e| e.json(now)).collect::<Vec<_>>(),
        })
    }

    /// The lines of `ceph -s`, without heading; empty for none.
    pub(crate) fn status_text(&self, now: UTime) -> String {
        let shown = self.events.iter().filter(|e| e.is_shown());
        shown.map(|e| format!("    {}\n", e.lines(now, 6))).collect()
    }

    /// `progress_events` of the status.
    pub(crate) fn status_json(&self, now: UTime) -> Value {
        let event = |e: &Event| {
            let v = json!({"message": e.lines(now, 6), "progress": e.share, "add_to_ceph_s": e.is_shown()});
            (e.id.clone(), v)
        };
        Value::Object(self.events.iter().map(event).collect())
    }

    fn begin(&mut self, message: String, about: About, now: UTime, epoch: Epoch) {
        self.count += 1;
        let (mut id, n) = ([0; 16], self.count.to_be_bytes());
        id[..4].copy_from_slice(&now.sec.to_be_bytes());
        id[4..8].copy_from_slice(&now.nsec.to_be_bytes());
        id[8..].copy_from_slice(&n);
        self.events.push(Event {
            id: Fsid(id).to_string(),
            message,
            started: now,
            epoch,
            share: 0.0,
            about,
        });
    }

    fn complete(&mut self, at: usize, now: UTime) {
        self.end(at, now, None);
    }

    fn end(&mut self, at: usize, now: UTime, failure: Option<String>) {
        let mut event = self.events.remove(at);
        event.share = 1.0;
        if self.completed.len() == REMEMBERED {
            self.completed.pop_front();
        }
        self.completed.push_back(Ghost {
            event,
            finished: now,
            failure,
        });
    }

    /// Handles news of a task of a module of the manager.
    fn hear_task(&mut self, news: TaskNews, now: UTime, epoch: Epoch) {
        let (TaskNews::Progress { id, .. } | TaskNews::Complete { id } | TaskNews::Failed { id, .. }) = &news;
        let at = self.events.iter().position(|e| e.id == *id);
        match (news, at) {
            (TaskNews::Progress { share, message, .. }, Some(at)) => {
                let event = &mut self.events[at];
                (event.share, event.message) = (share.clamp(0.0, 1.0), message);
            }
            (
                TaskNews::Progress {
                    id,
                    message,
                    share,
                    mut refs,
                },
                None,
            ) => {
                if self.events.iter().filter(|e| e.is_task()).count() >= MAX_TASKS {
                    tracing::debug!("task {id} is one too many to be shown");
                    return;
                }
                refs.shift_insert(0, "origin".to_owned(), json!(spirula_manager::MODULE));
                self.events.push(Event {
                    id,
                    message,
                    started: now,
                    epoch,
                    share: share.clamp(0.0, 1.0),
                    about: About::Task { refs },
                });
            }
            (TaskNews::Complete { .. }, Some(at)) => self.end(at, now, None),
            (TaskNews::Failed { why, .. }, Some(at)) => self.end(at, now, Some(why)),
            (TaskNews::Complete { .. } | TaskNews::Failed { .. }, None) => {}
        }
    }
}

impl View {
    /// Whether progress is reported: [`PROGRESS_OPTION`].
    pub(crate) fn tells_progress(&self) -> bool {
        let of_module = |e: &ConfigEntry| e.who.section == "mgr" && e.name == PROGRESS_OPTION;
        let value = self.state.config.entries().find(of_module);
        !value.is_some_and(|e| matches!(e.value.to_lowercase().as_str(), "false" | "no" | "off" | "0"))
    }

    /// Updates the events. To be called about twice a second if this monitor leads.
    pub(crate) fn watch_progress(&mut self) {
        if !self.tells_progress() {
            self.progress.restart();
            return;
        }
        let mut p = std::mem::take(&mut self.progress);
        self.notice_in_and_out(&mut p);
        self.notice_copying(&mut p);
        scrubs::notice(self, &mut p);
        let now = self.now;
        for e in p.events.iter_mut().filter(|e| e.is_of_pgs()) {
            e.share = self.share_done(e).clamp(0.0, 1.0);
        }
        while let Some(at) = p.events.iter().position(|e| e.is_of_pgs() && e.share >= 1.0) {
            p.complete(at, now);
        }
        self.progress = p;
    }

    /// Handles news of a task of a module of the manager.
    pub(crate) fn task_progress(&mut self, news: TaskNews) {
        if self.tells_progress() {
            self.progress.hear_task(news, self.now, self.state.osd.map.epoch);
        }
    }

    /// Begins events about OSDs that were marked out or in.
    fn notice_in_and_out(&self, p: &mut Progress) {
        let map = &self.state.osd.map;
        if p.epoch == map.epoch && p.inside.is_some() {
            return;
        }
        p.epoch = map.epoch;
        let inside: BTreeSet<OsdId> = map.osds().filter(|o| map.is_in(*o)).collect();
        let Some(before) = p.inside.replace(inside.clone()) else {
            return;
        };
        for osd in before.symmetric_difference(&inside).copied() {
            let marked = if inside.contains(&osd) { "in" } else { "out" };
            if !map.exists(osd) {
                continue;
            }
            let of_osd = |e: &Event| matches!(e.about, About::Osd { osd: o, .. } if o == osd);
            while let Some(at) = p.events.iter().position(of_osd).filter(|_| marked == "in") {
                p.complete(at, self.now);
            }
            let left = self.moving_for(osd);
            if !left.is_empty() {
                let count = left.len();
                let message = format!("Rebalancing after osd.{osd} marked {marked}");
                p.begin(message, About::Osd { osd, count, left }, self.now, map.epoch);
            }
        }
    }

    /// The PGs that the newest map gives to this OSD or takes from it, with the bytes copied of
    /// each.
    fn moving_for(&self, osd: OsdId) -> BTreeMap<PgId, i64> {
        let moves = self.state.stats.pgs.iter().filter(|(pg, stat)| {
            let up = self.state.osd.map.map_pg(**pg).up;
            let set = |up: &Positions| up.slots().iter().copied().collect::<BTreeSet<_>>();
            set(&up) != set(&stat.up) && (up.contains(osd) || stat.up.contains(osd))
        });
        moves
            .map(|(pg, stat)| (*pg, stat.stats.sum.num_bytes_recovered))
            .collect()
    }

    /// Begins the event about the cluster, if something is copied.
    fn notice_copying(&self, p: &mut Progress) {
        let copying = |s: PgState| s.intersects(COPYING);
        let is_of_cluster = |e: &Event| matches!(e.about, About::Cluster { .. });
        if p.events.iter().any(is_of_cluster) || !self.state.stats.pgs.values().any(|s| copying(s.state)) {
            return;
        }
        let untouched = self.state.stats.pgs.iter().filter(|(_, s)| is_done(s.state));
        let untouched = untouched.map(|(pg, _)| *pg).collect();
        let epoch = self.state.osd.map.epoch;
        p.begin(
            "Global Recovery Event".to_owned(),
            About::Cluster { untouched },
            self.now,
            epoch,
        );
    }

    /// The share of an event that is done.
    fn share_done(&self, e: &mut Event) -> f64 {
        match &mut e.about {
            About::Task { .. } | About::Scrubs(_) => e.share,
            About::Cluster { untouched } => {
                untouched.retain(|pg| self.state.stats.pgs.get(pg).is_some_and(|s| is_done(s.state)));
                let counted = self
                    .state
                    .stats
                    .pgs
                    .iter()
                    .filter(|(pg, _)| !untouched.contains(pg));
                let (done, all) = counted.fold((0, 0), |(done, all), (_, s)| {
                    (done + u32::from(is_done(s.state)), all + 1)
                });
                if all == 0 {
                    1.0
                } else {
                    f64::from(done) / f64::from(all)
                }
            }
            About::Osd { count, left, .. } => {
                let mut partly = 0.0;
                left.retain(|pg, before| {
                    let Some(s) = self.state.stats.pgs.get(pg) else {
                        return false;
                    };
                    let current = s.reported_epoch >= e.epoch;
                    if current && is_done(s.state) {
                        return false;
                    }
                    let bytes = s.stats.sum.num_bytes;
                    if current && bytes > 0 {
                        let copied = s.stats.sum.num_bytes_recovered - *before;
                        partly += (copied as f64 / bytes as f64).clamp(0.0, 1.0);
                    }
                    true
                });
                ((*count - left.len()) as f64 + partly) / (*count).max(1) as f64
            }
        }
    }
}

fn is_done(state: PgState) -> bool {
    state.contains(PgState::ACTIVE.with(PgState::CLEAN))
}
