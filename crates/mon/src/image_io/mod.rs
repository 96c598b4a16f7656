//! The clients' I/O on block images, as the module `rbd_support` of Ceph's manager reports it:
//! rates of the last seconds, and sums since the query began.
//!
//! The first request about a pool begins a query; it ends a minute after the last one. While there
//! are queries the OSDs are polled in rounds, and a round ends when all have answered or their time
//! is over. Time is the steady clock's.

mod names;
mod report;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spirula_manager::ImagesToName;
use spirula_maps::{OsdId, PoolId};
use spirula_proto::internal::image_io::{ImageIo as Counts, ImageIoCounts, ImageIoPoll};

use names::Names;
pub(crate) use report::{DESCRIPTORS, Kind};

/// Time between rounds: Ceph's `mgr_stats_period`.
const PERIOD: Duration = Duration::from_secs(5);
/// The shortest time between rounds, if a new query wants one.
const SHORTEST: Duration = Duration::from_secs(1);
/// How long answers are waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long OSDs count without hearing of another round.
const HOLD: Duration = Duration::from_secs(30);
/// How long a query lasts after the last request.
const QUERY_LASTS: Duration = Duration::from_secs(60);
/// The longest time for which a rate is reported.
const LONGEST_SPAN: Duration = Duration::from_secs(60);
/// The most queries; the one whose last request is oldest gives way.
const MAX_QUERIES: usize = 64;
/// Most images of a query, and of a round. More are left out.
const MAX_IMAGES: usize = 16_384;

/// The subject of a query.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// All pools of images.
    All,
    /// A pool, and a namespace in it.
    Pool(PoolId, String),
}

impl Scope {
    fn covers(&self, image: &ImageKey) -> bool {
        match self {
            Self::All => true,
            Self::Pool(pool, nspace) => *pool == image.pool && *nspace == image.nspace,
        }
    }
}

/// The key of an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ImageKey {
    pool: PoolId,
    nspace: String,
    id: String,
}

/// Numbers in the order of [`DESCRIPTORS`]; latencies are sums in nanoseconds.
type Numbers = [u64; DESCRIPTORS.len()];

fn add(sum: &mut Numbers, more: &Numbers) {
    for (s, m) in sum.iter_mut().zip(more) {
        *s = s.saturating_add(*m);
    }
}

/// The numbers of an image.
#[derive(Debug, Clone, Copy, Default)]
struct Image {
    /// The numbers of the last round.
    last: Numbers,
    /// The sums since the query began.
    sum: Numbers,
}

/// A query of a client.
#[derive(Debug, Default)]
struct Query {
    /// The last request.
    asked: Duration,
    images: BTreeMap<ImageKey, Image>,
}

impl Query {
    fn take(&mut self, scope: &Scope, round: &BTreeMap<ImageKey, Numbers>) {
        for image in self.images.values_mut() {
            image.last = Numbers::default();
        }
        for (key, numbers) in round.iter().filter(|(key, _)| scope.covers(key)) {
            if self.images.len() >= MAX_IMAGES && !self.images.contains_key(key) {
                continue;
            }
            let image = self.images.entry(key.clone()).or_default();
            image.last = *numbers;
            add(&mut image.sum, numbers);
        }
    }
}

/// All queries, and the round under way.
#[derive(Debug, Default)]
pub(crate) struct ImageIo {
    queries: BTreeMap<Scope, Query>,
    names: Names,
    /// The number of the newest round.
    round: u64,
    /// When the newest round began; `None` before the first.
    began: Option<Duration>,
    /// When the next round is due.
    due: Duration,
    /// The OSDs whose answers are waited for.
    waiting: BTreeSet<OsdId>,
    is_under_way: bool,
    /// The time between the newest round and the one before; `None` if there was none.
    span: Option<Duration>,
    /// The OSDs' counts that are not added to the queries yet.
    gathered: BTreeMap<ImageKey, Numbers>,
}

/// An action to be carried out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Ask these OSDs.
    Poll(BTreeSet<OsdId>, ImageIoPoll),
    /// Find the names of these images; [`ImageIo::named`] takes them.
    Name(ImagesToName),
}

impl ImageIo {
    /// Forgets everything, as another monitor has led meanwhile.
    pub(crate) fn restart(&mut self) {
        let round = self.round;
        *self = Self {
            round,
            ..Self::default()
        };
    }

    /// Notes a request: the query begins, or goes on.
    pub(crate) fn ask(&mut self, scope: &Scope, now: Duration) {
        self.expire(now);
        if let Some(query) = self.queries.get_mut(scope) {
            query.asked = now;
            return;
        }
        if self.queries.len() >= MAX_QUERIES {
            let oldest = self.queries.iter().min_by_key(|(_, q)| q.asked);
            if let Some(oldest) = oldest.map(|(scope, _)| scope.clone()) {
                self.queries.remove(&oldest);
            }
        }
        let query = Query {
            asked: now,
            ..Query::default()
        };
        self.queries.insert(scope.clone(), query);
        let soonest = self.began.map_or(now, |began| began + SHORTEST);
        self.due = self.due.min(soonest.max(now));
    }

    fn expire(&mut self, now: Duration) {
        self.queries.retain(|_, q| now < q.asked + QUERY_LASTS);
        if self.queries.is_empty() {
            self.restart();
        }
    }

    /// Handles the passing of time; `osds` are those that can be asked.
    pub(crate) fn tick(&mut self, now: Duration, osds: impl FnOnce() -> BTreeSet<OsdId>) -> Vec<Action> {
        self.expire(now);
        if self.queries.is_empty() {
            return Vec::new();
        }
        let mut actions = Vec::new();
        let late = self.began.is_none_or(|began| now >= began + PATIENCE);
        if self.is_under_way && (self.waiting.is_empty() || late) {
            self.end_round();
        }
        if !self.is_under_way && now >= self.due {
            actions.push(self.begin_round(now, osds()));
        }
        actions.extend(self.unnamed(now).into_iter().map(Action::Name));
        actions
    }

    fn begin_round(&mut self, now: Duration, osds: BTreeSet<OsdId>) -> Action {
        self.round += 1;
        self.span = self.began.map(|began| now - began);
        self.began = Some(now);
        self.due = now + PERIOD;
        self.waiting.clone_from(&osds);
        self.is_under_way = true;
        let poll = ImageIoPoll {
            round: self.round,
            hold_ms: u32::try_from(HOLD.as_millis()).unwrap_or(u32::MAX),
            pools: self.pools(),
        };
        Action::Poll(osds, poll)
    }

    /// The pools that the queries are about; empty for all.
    fn pools(&self) -> Vec<PoolId> {
        let mut pools = BTreeSet::new();
        for scope in self.queries.keys() {
            match scope {
                Scope::All => return Vec::new(),
                Scope::Pool(pool, _) => pools.insert(*pool),
            };
        }
        pools.into_iter().collect()
    }

    /// Handles an OSD's answer. Before the end of the first round its counts are of an unknown
    /// time, from when another monitor had asked.
    pub(crate) fn answer(&mut self, osd: OsdId, answer: ImageIoCounts) {
        if answer.round == self.round {
            self.waiting.remove(&osd);
        }
        if self.queries.is_empty() || self.span.is_none() {
            return;
        }
        for counts in answer.images {
            let numbers = counts.numbers();
            let Counts { pool, nspace, id, .. } = counts;
            let key = ImageKey { pool, nspace, id };
            if self.gathered.len() < MAX_IMAGES || self.gathered.contains_key(&key) {
                add(self.gathered.entry(key).or_default(), &numbers);
            }
        }
    }

    fn end_round(&mut self) {
        self.is_under_way = false;
        self.waiting.clear();
        let round = std::mem::take(&mut self.gathered);
        for (scope, query) in &mut self.queries {
            query.take(scope, &round);
        }
    }

    /// The images whose names are not known and have to be asked for.
    fn unnamed(&mut self, now: Duration) -> Vec<ImagesToName> {
        let keys = || self.queries.values().flat_map(|q| q.images.iter());
        if self.names.are_old(now) {
            self.names
                .keep(|key| self.queries.values().any(|q| q.images.contains_key(key)));
            return self.names.want(now, keys().map(|(key, _)| key));
        }
        let active = keys().filter(|(key, image)| image.last != Numbers::default() && !self.names.has(key));
        let active: Vec<ImageKey> = active.map(|(key, _)| key.clone()).collect();
        self.names.want(now, active.iter())
    }

    /// Adopts the names of those of these images that have one, by id. The others are forgotten:
    /// they are gone.
    pub(crate) fn named(&mut self, images: &ImagesToName, names: &BTreeMap<String, String>) {
        for key in self.names.take(images, names) {
            for query in self.queries.values_mut() {
                query.images.remove(&key);
            }
        }
    }
}
