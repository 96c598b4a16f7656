//! Intervals: spans of epochs in which a PG belongs to the same OSDs, and what happens when one
//! ends.

use spirula_maps::{Epoch, OsdId, PgId};

use super::backend::Backend;
use super::cluster::{ClusterMap, Placement};
use super::history::PastInterval;

/// The present interval.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Interval {
    /// The epoch in which the interval began, as far as this OSD knows.
    pub since: Epoch,
    /// The epoch in which this OSD first saw the interval: `since`, unless maps were missed.
    /// Primaries have this one recorded, as no member can know of a later beginning.
    pub seen: Epoch,
    /// The epoch since which the primary is the same.
    pub same_primary_since: Epoch,
    /// The epoch since which the pool has this many PGs.
    pub split_at: Epoch,
    /// The OSDs of the PG.
    pub place: Placement,
    /// Since when each acting member is up: a restart ends the interval too.
    member_since: Vec<Epoch>,
    size: u32,
    min_size: u32,
    pub(super) pg_num: u32,
}

impl Interval {
    pub(super) fn new(pgid: PgId, map: &dyn ClusterMap) -> Self {
        let place = map.placement(pgid);
        let up_from = |osd: OsdId| map.osd(osd).map_or(Epoch::NONE, |o| o.up_from);
        let member_since: Vec<Epoch> = place.acting.osds().map(up_from).collect();
        let pool = map.pool(pgid.pool).unwrap_or_default();
        // When maps were missed, the youngest member's start is the earliest epoch that is
        // possible.
        let since = member_since
            .iter()
            .copied()
            .max()
            .unwrap_or_default()
            .max(pool.created);
        let since = since.min(map.epoch());
        let same_primary_since = place
            .primary
            .and_then(|p| map.osd(p))
            .map_or(since, |o| o.up_from);
        Self {
            since,
            seen: map.epoch(),
            same_primary_since,
            split_at: Epoch::NONE,
            member_since,
            place,
            size: pool.size,
            min_size: pool.min_size,
            pg_num: pool.pg_num,
        }
    }

    pub(super) fn is_same(&self, o: &Self) -> bool {
        self.place == o.place
            && self.member_since == o.member_since
            && (self.size, self.min_size, self.pg_num) == (o.size, o.min_size, o.pg_num)
    }

    /// The members that serve, ascending.
    pub(super) fn members(&self) -> Vec<OsdId> {
        let mut out: Vec<OsdId> = self.place.acting.osds().collect();
        out.sort_unstable();
        out
    }

    /// Whether there are enough members to serve.
    pub(super) fn is_enough(&self, backend: &dyn Backend) -> bool {
        self.place.primary.is_some() && backend.is_enough(&self.place.acting, self.min_size)
    }

    /// Whether the map says that the primary was up in this interval, as it must before the PG is
    /// activated.
    pub(super) fn is_recorded(&self, map: &dyn ClusterMap) -> bool {
        let primary = self.place.primary.and_then(|p| map.osd(p));
        primary.is_some_and(|o| o.up_thru >= self.seen)
    }

    /// The record of this interval after it has ended with the map `last`; none if it cannot have
    /// served.
    pub(super) fn ended(
        &self,
        backend: &dyn Backend,
        last: &dyn ClusterMap,
        end: Epoch,
    ) -> Option<PastInterval> {
        let primary = self.place.primary?;
        let up_thru = last.osd(primary).map_or(Epoch::MAX, |o| o.up_thru);
        // It began at `since` or later, so this is true for too many at most.
        (self.is_enough(backend) && up_thru >= self.since).then(|| PastInterval {
            first: self.since,
            last: end,
            acting: self.place.acting.clone(),
            primary,
        })
    }
}
