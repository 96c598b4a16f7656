//! A PG's surroundings: its identity, its settings, and what the newest map says of it.
//!
//! Only the PG itself changes that, when a map or a configuration comes; all others read it.

use std::sync::Arc;

use spirula_invariant::{impossible, invariant};
use spirula_maps::{HObject, OsdId, PgId};

use super::backend::Backend;
use super::bug::Bug;
use super::cluster::{ClusterMap, PoolView};
use super::coded::Coded;
use super::config::{PgConfig, Shares};
use super::interval::Interval;
use super::key::{self, KeyRange};
use super::layout::Layout;
use super::log::Usage;
use super::message::PeeringId;
use super::output::{Ctx, Output};
use super::replicated::Replicated;

/// A PG's surroundings.
#[derive(Debug)]
pub(super) struct Site {
    /// The PG.
    pub(super) pgid: PgId,
    /// This OSD.
    pub(super) whoami: OsdId,
    /// Settings.
    pub(super) cfg: Arc<PgConfig>,
    /// The PG's share of the memory of all PGs of the reactor.
    pub(super) shares: Shares,
    /// The newest map.
    pub(super) map: Arc<dyn ClusterMap>,
    /// The pool in that map or, if it is gone, in the last map that had it.
    pub(super) pool: PoolView,
    /// The way in which the PG's members hold its objects.
    pub(super) backend: Arc<dyn Backend>,
    /// The PG's present interval.
    pub(super) interval: Interval,
}

impl Site {
    pub(super) fn new(pgid: PgId, whoami: OsdId, cfg: Arc<PgConfig>, map: Arc<dyn ClusterMap>) -> Self {
        let pool = map.pool(pgid.pool).unwrap_or_default();
        Self {
            pgid,
            whoami,
            shares: cfg.shares(1),
            cfg,
            backend: backend_of(pool.layout.unwrap_or_default()),
            pool,
            interval: Interval::new(pgid, &*map),
            map,
        }
    }

    /// Does as a copy with this layout needs it, whatever the pool says.
    pub(super) fn follow(&mut self, layout: Layout) {
        self.backend = backend_of(layout);
    }

    /// The range of the store's keys that holds the PG's objects.
    pub(super) fn range(&self) -> KeyRange {
        let range = key::pg_range(self.pgid, self.pool.pg_num.max(1));
        invariant!(range.from < range.to, "a PG to have a range of keys"; pg = self.pgid, pg_num = self.pool.pg_num);
        range
    }

    /// Whether an object is the PG's.
    pub(super) fn contains(&self, o: &HObject) -> bool {
        self.pgid.contains_hash(self.pool.pg_num.max(1), o.hash)
    }

    /// Whether `from` leads the PG, as this OSD knows, in an interval whose end it has not seen.
    pub(super) fn is_leader(&self, from: OsdId, id: PeeringId) -> bool {
        self.interval.place.primary == Some(from) && id.epoch >= self.interval.since && from != self.whoami
    }

    /// Whether this OSD leads the PG in the present interval.
    pub(super) fn leads(&self) -> bool {
        self.interval.place.primary == Some(self.whoami)
    }

    /// The primary that a member which takes part follows.
    pub(super) fn leader(&self) -> OsdId {
        let Some(primary) = self.interval.place.primary else {
            impossible!("a member that takes part to follow a primary"; pg = self.pgid, epoch = self.map.epoch());
        };
        primary
    }

    /// Whether this OSD is to be a member.
    pub(super) fn is_to_be_here(&self) -> bool {
        self.interval.place.up.contains(self.whoami)
    }

    /// Whether other OSDs serve the PG than those that should.
    pub(super) fn is_remapped(&self) -> bool {
        let place = &self.interval.place;
        place.up.osds().any(|o| !place.acting.contains(o))
            || place.acting.osds().any(|o| !place.up.contains(o))
    }

    /// The number of members missing.
    pub(super) fn lacking_members(&self) -> usize {
        (self.pool.size as usize).saturating_sub(self.interval.place.acting.count())
    }

    /// The OSDs besides this one that serve the PG.
    pub(super) fn others(&self) -> Vec<OsdId> {
        let acting = self.interval.place.acting.osds();
        acting.filter(|o| *o != self.whoami).collect()
    }

    /// Whether the temporary members are too few to serve and those that should be are not.
    pub(super) fn is_better_without_temporary(&self) -> bool {
        let place = &self.interval.place;
        let would_do = self.backend.is_enough(&place.up, self.pool.min_size);
        would_do && place.up != place.acting
    }

    /// Asks the monitors for an acting set, an empty one for the one that should be.
    pub(super) fn want_acting(&self, acting: Vec<OsdId>, cx: &mut Ctx<'_>) {
        let pgid = self.pgid;
        if !acting.is_empty() || !self.cfg.has_bug(Bug::KeptTemporary) {
            cx.out.push(Output::PgTemp { pgid, acting });
        }
    }

    /// Whether this many objects of a PG are more bytes than requests should wait for, if they are
    /// as large as others.
    pub(super) fn is_heavy(&self, objects: usize, usage: Usage) -> bool {
        let bytes = usage.bytes.max(0) / usage.objects.max(1);
        bytes.saturating_mul(i64::try_from(objects).unwrap_or(i64::MAX)) > self.shares.sync_bytes
    }

    /// Whether there are enough members to serve.
    pub(super) fn is_enough(&self) -> bool {
        let holes_count = self.cfg.has_bug(Bug::CountedHoles) && self.interval.place.primary.is_some();
        holes_count || self.interval.is_enough(&*self.backend)
    }

    /// Whether an OSD is up in the newest map.
    pub(super) fn is_up(&self, osd: OsdId) -> bool {
        self.map.osd(osd).is_some_and(|v| v.up)
    }
}

/// The backend of a PG whose copies have this layout.
fn backend_of(layout: Layout) -> Arc<dyn Backend> {
    match layout {
        Layout::Whole => Arc::new(Replicated),
        Layout::Coded(layout) => Arc::new(Coded { layout }),
    }
}
