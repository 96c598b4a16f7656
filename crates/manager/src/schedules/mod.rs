//! Schedules: expired images are purged from the trash, and images that are mirrored by snapshots
//! get new ones.
//!
//! Formats, answers and times are those of Ceph's
//! `src/pybind/mgr/rbd_support/{schedule,trash_purge_schedule,mirror_snapshot_schedule}.py`. Times
//! are local ones.

mod agenda;
mod interval;
mod level;
mod resolve;
mod schedule;
mod store;
mod work;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use chrono::{Local, NaiveDateTime};
use serde_json::{Map, Value, json};
use spirula_maps::PoolId;
use spirula_text::python;
use tokio::sync::{Mutex, Notify, Semaphore};

use self::agenda::Agenda;
use self::interval::{Interval, StartTime};
use self::level::{Level, is_in_pool, key};
pub(crate) use self::schedule::Schedule;
use self::store::Place;
use crate::clients::Clients;
use crate::cluster::{Cluster, Snapshot};
use crate::failure::Failure;
use crate::module::{Asked, LocalFuture, Module};
use crate::question::{Authority, Reply};
use crate::rights::{Basis, Origin, Place as Home};
use crate::service::News;

/// The kind of a schedule's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    TrashPurge,
    MirrorSnapshot,
}

impl Kind {
    fn place(self) -> Place {
        match self {
            Self::TrashPurge => Place {
                object: "rbd_trash_purge_schedule",
                option: "trash_purge_schedule",
            },
            Self::MirrorSnapshot => Place {
                object: "rbd_mirror_snapshot_schedule",
                option: "mirror_snapshot_schedule",
            },
        }
    }
}

/// The target of the work: a pool and namespace, or an image in them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    pool: PoolId,
    namespace: String,
    image: Option<String>,
}

/// The schedules of a kind, and their targets and events.
#[derive(Default)]
struct State {
    /// The schedules with their levels, by key.
    schedules: BTreeMap<String, (Level, Schedule)>,
    /// The targets with their names: the pool, or the image with pool and namespace.
    targets: BTreeMap<Target, String>,
    agenda: Agenda<Target>,
}

/// The most mirror snapshots that are made at the same time (`max_concurrent_snap_create`).
const SNAPSHOTS: usize = 4;

/// Schedules and does the work of one kind.
pub(crate) struct Scheduler {
    kind: Kind,
    /// Reads pools and images, and writes schedules, and nothing else.
    cluster: Cluster,
    clients: Rc<Clients>,
    state: RefCell<State>,
    /// Held by a command, or while pools and images are read.
    turn: Mutex<()>,
    wake: Notify,
    /// Pools and images must be read at once.
    is_stale: Cell<bool>,
    permits: Rc<Semaphore>,
    /// Images whose mirror snapshot is being made.
    pending: RefCell<Vec<Target>>,
    /// Targets for which no schedule has enough rights.
    denied: RefCell<BTreeSet<Target>>,
}

fn now() -> NaiveDateTime {
    Local::now().naive_local()
}

impl State {
    /// The schedule of the nearest level that covers a target, with its key.
    fn schedule_for(&self, target: &Target) -> Option<(&str, &Schedule)> {
        let (pool, namespace) = (Some(target.pool), Some(target.namespace.as_str()));
        let keys = [
            target.image.as_deref().map(|i| key(pool, namespace, Some(i))),
            Some(key(pool, namespace, None)),
            Some(key(pool, None, None)),
            Some(String::new()),
        ];
        let keys = keys.into_iter().flatten();
        let mut found = keys.filter_map(|k| self.schedules.get_key_value(&k));
        found.next().map(|(key, (_, s))| (key.as_str(), s))
    }

    fn enqueue(&mut self, target: &Target, now: NaiveDateTime) {
        if let Some(at) = self.schedule_for(target).and_then(|(_, s)| s.next_run(now)) {
            self.agenda.add(at, target.clone());
        }
    }

    /// Recomputes the agenda, except the events that are due.
    fn rebuild(&mut self, now: NaiveDateTime) {
        self.agenda.clear_future(now);
        let targets: Vec<Target> = self.targets.keys().cloned().collect();
        for target in &targets {
            self.enqueue(target, now);
        }
    }

    /// Replaces the targets.
    fn set_targets(&mut self, targets: BTreeMap<Target, String>, now: NaiveDateTime) {
        self.agenda.retain(|t| targets.contains_key(t));
        let old = std::mem::replace(&mut self.targets, targets);
        let new: Vec<Target> = self
            .targets
            .keys()
            .filter(|t| !old.contains_key(t))
            .cloned()
            .collect();
        for target in &new {
            self.enqueue(target, now);
        }
    }

    /// The schedules of a level and below; those of the level above if it has none of its own. Only
    /// those for which `seen` returns true.
    fn list(&self, level: &Level, seen: impl Fn(&Level) -> bool) -> Value {
        let above = || {
            let all = self
                .schedules
                .values()
                .map(|(l, _)| l)
                .filter(|l| level.is_within(l));
            all.reduce(|near, l| if l.is_within(near) { l } else { near })
        };
        let parent = match self.schedules.get(&level.key()) {
            Some((own, _)) => Some(own),
            None => above(),
        };
        let parent = parent.map(Level::key);
        let mut shown = Map::new();
        for (key, (l, schedule)) in &self.schedules {
            if (parent.as_ref() == Some(key) || l.is_within(level)) && seen(l) {
                let v = json!({"name": l.name, "schedule": schedule.to_value()});
                shown.insert(key.clone(), v);
            }
        }
        Value::Object(shown)
    }
}

impl Scheduler {
    pub(crate) fn new(kind: Kind, cluster: Cluster, clients: Rc<Clients>) -> Rc<Self> {
        Rc::new(Self {
            kind,
            cluster,
            clients,
            state: RefCell::default(),
            turn: Mutex::new(()),
            wake: Notify::new(),
            is_stale: Cell::new(false),
            permits: Rc::new(Semaphore::new(SNAPSHOTS)),
            pending: RefCell::default(),
            denied: RefCell::default(),
        })
    }

    async fn answer(&self, command: &str, asked: &Asked<'_>) -> Result<Reply, Failure> {
        let _turn = self.turn.lock().await;
        let (question, cluster) = (asked.question, &asked.cluster);
        let name = question.optional("level_spec").unwrap_or_default();
        let level = match resolve::by_name(self.kind, (&self.cluster, cluster), name).await {
            Err(Failure::Value(why)) => {
                return Err(Failure::Value(format!("Invalid level spec {name}: {why}")));
            }
            other => other?,
        };
        let authority = &question.authority;
        if matches!(command, "add" | "remove") && !is_allowed(cluster, authority, &level) {
            return Err(Failure::Denied(format!("not authorized on {name}")));
        }
        let (interval, start) = (question.optional("interval"), question.optional("start_time"));
        match command {
            "add" => {
                let interval = Interval::parse(interval.unwrap_or_default())?;
                self.add(
                    asked.number,
                    level,
                    (interval, StartTime::parse(start.unwrap_or_default())?),
                )
                .await
            }
            "remove" => self.remove(asked.number, &level, (interval, start)).await,
            "list" => {
                let seen = |l: &Level| l.is_global() || is_allowed(cluster, authority, l);
                let listed = self.state.borrow().list(&level, seen);
                Ok(Reply::output(python::dumps_indented(&listed)))
            }
            "status" => Ok(self.status(cluster, &level, authority)),
            _ => Err(Failure::Value(format!("no such command: {command}"))),
        }
    }

    /// The origin under which the monitors know a schedule.
    fn origin(&self, key: &str, schedule: &Schedule) -> Origin {
        Origin {
            key: self.origin_key(key),
            text: schedule.to_json(),
        }
    }

    fn origin_key(&self, key: &str) -> String {
        format!("{}/{key}", self.kind.place().object)
    }

    /// The rights for the work on a target. `None` if no schedule covers it any more.
    fn basis(&self, target: &Target) -> Option<Basis> {
        let state = self.state.borrow();
        let (key, schedule) = state.schedule_for(target)?;
        // Schedules of a pool and all its namespaces lie in one object.
        let of_pool = Home {
            pool: target.pool,
            namespace: String::new(),
        };
        Some(Basis::Stored {
            origin: self.origin(key, schedule),
            at: Some(of_pool).filter(|_| !key.is_empty()),
        })
    }

    async fn add(
        &self,
        question: u64,
        level: Level,
        (interval, start): (Interval, Option<StartTime>),
    ) -> Result<Reply, Failure> {
        let known = self.state.borrow().schedules.get(&level.key()).cloned();
        let (_, mut schedule) = known.unwrap_or((level.clone(), Schedule::default()));
        schedule.add(interval, start);
        let origin = self.origin(&level.key(), &schedule);
        self.clients.desk().note(question, origin).await?;
        self.save(&level, Some(&schedule)).await?;
        let mut state = self.state.borrow_mut();
        state.schedules.insert(level.key(), (level, schedule));
        self.changed(&mut state);
        Ok(Reply::default())
    }

    async fn remove(
        &self,
        question: u64,
        level: &Level,
        (interval, start): (Option<&str>, Option<&str>),
    ) -> Result<Reply, Failure> {
        let known = self.state.borrow().schedules.get(&level.key()).cloned();
        let mut left = known.map(|(_, schedule)| schedule);
        match (&mut left, interval) {
            (Some(schedule), Some(interval)) => {
                let start = StartTime::parse(start.unwrap_or_default())?;
                schedule.remove(Interval::parse(interval)?, start);
            }
            (left, _) => *left = None,
        }
        let left = left.filter(|s| !s.is_empty());
        match &left {
            Some(schedule) => {
                let origin = self.origin(&level.key(), schedule);
                self.clients.desk().note(question, origin).await?;
            }
            None => self.tell(News::Forget(self.origin_key(&level.key()))),
        }
        self.save(level, left.as_ref()).await?;
        let mut state = self.state.borrow_mut();
        match left {
            Some(schedule) => {
                let level = level.clone();
                state.schedules.insert(level.key(), (level, schedule));
            }
            None => drop(state.schedules.remove(&level.key())),
        }
        self.changed(&mut state);
        Ok(Reply::default())
    }

    fn tell(&self, news: News) {
        self.clients.desk().tell(news);
    }

    fn changed(&self, state: &mut State) {
        state.rebuild(now());
        self.denied.borrow_mut().clear();
        // There may be more to do it to now.
        self.is_stale.set(true);
        self.wake.notify_one();
    }

    async fn save(&self, level: &Level, schedule: Option<&Schedule>) -> Result<(), Failure> {
        let (place, text) = (self.kind.place(), schedule.map(Schedule::to_json));
        let Some(pool) = level.pool else {
            return place.set_global(self.cluster.rados(), text).await;
        };
        let io = self.cluster.pool(pool).await?;
        place.set(&io, level.key(), text).await
    }

    fn status(&self, cluster: &Snapshot, level: &Level, authority: &Authority) -> Reply {
        let state = self.state.borrow();
        let covered = |t: &Target| {
            level.covers(t.pool, &t.namespace, t.image.as_deref())
                && authority.allows(cluster.pool_name(t.pool), &t.namespace)
        };
        let entry = |(at, target): (NaiveDateTime, &Target)| {
            let time = at.format("%Y-%m-%d %H:%M:00").to_string();
            let name = state.targets.get(target).cloned().unwrap_or_default();
            match self.kind {
                Kind::TrashPurge => json!({
                    "schedule_time": time, "pool_id": target.pool.to_string(), "pool_name": name,
                    "namespace": target.namespace,
                }),
                Kind::MirrorSnapshot => json!({"schedule_time": time, "image": name}),
            }
        };
        let shown: Vec<Value> = state
            .agenda
            .iter()
            .filter(|(_, t)| covered(t))
            .map(entry)
            .collect();
        let key = match self.kind {
            Kind::TrashPurge => "scheduled",
            Kind::MirrorSnapshot => "scheduled_images",
        };
        Reply::output(python::dumps_indented(&json!({key: shown})))
    }

    /// Reads all schedules. Those whose level does not exist any more are removed.
    async fn read_all(&self, cluster: &Snapshot) -> Result<(), Failure> {
        let place = self.kind.place();
        let mut schedules = BTreeMap::new();
        if let Some(text) = place.global(self.cluster.rados()).await? {
            match Schedule::from_json(&text) {
                Some(schedule) => drop(schedules.insert(String::new(), (Level::default(), schedule))),
                None => tracing::error!("{}: no schedule: {text}", place.option),
            }
        }
        for (pool, name) in cluster.image_pools() {
            let loaded = self.load_pool(pool, name, &mut schedules).await;
            match loaded {
                Err(e) if e.is_shut_out() => return Err(e),
                Err(e) => tracing::error!("schedules of pool {name}: {}", e.text()),
                Ok(()) => {}
            }
        }
        self.state.borrow_mut().schedules = schedules;
        Ok(())
    }

    async fn load_pool(
        &self,
        pool: PoolId,
        name: &str,
        schedules: &mut BTreeMap<String, (Level, Schedule)>,
    ) -> Result<(), Failure> {
        let place = self.kind.place();
        let io = self.cluster.pool(pool).await?;
        for (key, text) in place.of_pool(&io).await? {
            let level = match resolve::by_key(self.kind, &io, name, &key).await {
                Ok(level) => level,
                Err(Failure::Value(why)) => {
                    tracing::info!("{} {key}: {why}", place.object);
                    // A tenant that may write this pool has no say about another pool's schedules.
                    if is_in_pool(&key, pool) {
                        self.tell(News::Forget(self.origin_key(&key)));
                    }
                    place.set(&io, key, None).await?;
                    continue;
                }
                Err(e) => return Err(e),
            };
            match Schedule::from_json(&text) {
                Some(schedule) => drop(schedules.insert(key, (level, schedule))),
                None => tracing::error!("{} {key}: no schedule: {text}", place.object),
            }
        }
        Ok(())
    }
}

impl Module for Scheduler {
    fn prefix(&self) -> &'static str {
        match self.kind {
            Kind::TrashPurge => "rbd trash purge schedule ",
            Kind::MirrorSnapshot => "rbd mirror snapshot schedule ",
        }
    }

    fn load(&self) -> LocalFuture<'_, Result<(), Failure>> {
        Box::pin(self.prepare())
    }

    fn command<'a>(&'a self, command: &'a str, asked: Asked<'a>) -> LocalFuture<'a, Result<Reply, Failure>> {
        Box::pin(async move { self.answer(command, &asked).await })
    }

    fn work(self: Rc<Self>) -> LocalFuture<'static, Failure> {
        Box::pin(self.keep())
    }
}

/// Whether an authority may access everything that a level covers.
fn is_allowed(cluster: &Snapshot, authority: &Authority, level: &Level) -> bool {
    let pool = level.pool.map(|id| cluster.pool_name(id));
    match (pool, &level.namespace) {
        (Some(pool), Some(namespace)) => authority.allows(pool, namespace),
        (pool, _) => authority.allows_all_of(pool),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(name: &str, pool: Option<PoolId>, namespace: Option<&str>) -> Level {
        Level {
            name: name.to_owned(),
            pool,
            namespace: namespace.map(str::to_owned),
            image: None,
        }
    }

    fn state() -> State {
        let mut s = State::default();
        for (l, interval) in [
            (level("", None, None), "1d"),
            (level("p/n/", Some(PoolId::new(1)), Some("n")), "1h"),
        ] {
            let mut schedule = Schedule::default();
            schedule.add(Interval::parse(interval).unwrap(), None);
            s.schedules.insert(l.key(), (l, schedule));
        }
        s
    }

    fn keys(v: &Value) -> Vec<&str> {
        v.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn a_level_is_listed_with_what_is_below_or_else_above() {
        let s = state();
        let all = |_: &Level| true;
        assert_eq!(keys(&s.list(&Level::default(), all)), ["", "1/n"]);
        assert_eq!(
            keys(&s.list(&Level::of_pool(PoolId::new(1), "p"), all)),
            ["", "1/n"]
        );
        assert_eq!(
            keys(&s.list(&level("p/n/", Some(PoolId::new(1)), Some("n")), all)),
            ["1/n"]
        );
        assert_eq!(
            keys(&s.list(&level("p/m/", Some(PoolId::new(1)), Some("m")), all)),
            [""]
        );
    }

    #[test]
    fn the_nearest_schedule_counts_and_what_is_gone_is_not_done() {
        let mut s = state();
        let target = |namespace: &str| Target {
            pool: PoolId::new(1),
            namespace: namespace.to_owned(),
            image: None,
        };
        let now = NaiveDateTime::parse_from_str("2026-01-02 03:04:05", "%Y-%m-%d %H:%M:%S").unwrap();
        let both = [(target(""), "p".to_owned()), (target("n"), "p".to_owned())];
        s.set_targets(both.clone().into(), now);
        let times: Vec<String> = s
            .agenda
            .iter()
            .map(|(at, t)| format!("{at} {}", t.namespace))
            .collect();
        assert_eq!(times, ["2026-01-02 04:00:00 n", "2026-01-03 00:00:00 "]);
        s.set_targets([both[0].clone()].into(), now);
        assert_eq!(s.agenda.iter().count(), 1);
        s.schedules.clear();
        s.rebuild(now);
        assert_eq!(s.agenda.iter().count(), 0);
    }
}
