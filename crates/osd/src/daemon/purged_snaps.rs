//! The snapshots that are removed and trimmed everywhere, so that a write of a client that was away
//! keeps nothing for them. An osdmap tells the snapshots purged in its epoch; only a monitor knows
//! all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use spirula_maps::{Epoch, Incremental, IntervalSet, PoolId};
use spirula_proto::internal::report::{OsdReport, PurgedSnaps as Answer, PurgedSnapsWanted};

/// After this many ranges from maps the monitors are asked again. Their ranges are fewer: a removal
/// uses up an id that no map tells of, so that ids from maps do not merge into one range.
const RANGES_FROM_MAPS: usize = 10_000;

/// The known purged snapshots of all pools.
#[derive(Debug, Clone, Default)]
pub(super) struct PurgedSnaps {
    pools: BTreeMap<PoolId, Arc<IntervalSet>>,
    from_maps: usize,
    /// Whether the monitors' answer is missing.
    incomplete: bool,
}

impl PurgedSnaps {
    /// The purged snapshots of a pool.
    pub(super) fn of_pool(&self, id: PoolId) -> Arc<IntervalSet> {
        self.pools.get(&id).cloned().unwrap_or_default()
    }

    /// Adds the purged snapshots of the next map.
    pub(super) fn follow(&mut self, inc: &Incremental) {
        for (id, snaps) in &inc.new_purged_snaps {
            Arc::make_mut(self.pools.entry(*id).or_default()).union(snaps);
            self.from_maps += snaps.ranges().count();
        }
        for id in &inc.old_pools {
            self.pools.remove(id);
        }
        self.incomplete |= self.from_maps > RANGES_FROM_MAPS;
    }

    /// Notes that maps were missed, or none was seen yet.
    pub(super) fn missed_some(&mut self) {
        self.incomplete = true;
    }

    /// The question to the monitors, from an OSD whose map is of `epoch`; `None` if nothing is
    /// missing.
    pub(super) fn question(&self, epoch: Epoch) -> Option<OsdReport> {
        let wanted = PurgedSnapsWanted { epoch };
        self.incomplete.then(|| OsdReport::WantPurgedSnaps(wanted))
    }

    /// Adopts a monitor's answer that came while the OSD's map was of `epoch`. An older answer
    /// lacks the snapshots of maps that may have been missed.
    pub(super) fn learn(&mut self, answer: Answer, epoch: Epoch) {
        for (id, snaps) in answer.pools {
            Arc::make_mut(self.pools.entry(id).or_default()).union(&snaps);
        }
        if answer.epoch >= epoch {
            self.incomplete = false;
            self.from_maps = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use spirula_denc::Fsid;

    use super::*;

    fn set(ids: &[u64]) -> IntervalSet {
        ids.iter().copied().collect()
    }

    fn answer(epoch: Epoch, ids: &[u64]) -> Answer {
        Answer {
            epoch,
            pools: BTreeMap::from([(PoolId::new(1), set(ids))]),
        }
    }

    #[test]
    fn maps_and_answers_add_up() {
        let mut p = PurgedSnaps::default();
        assert!(p.question(Epoch::NONE).is_none());
        p.missed_some();
        assert!(p.question(Epoch::new(4)).is_some());
        let mut inc = Incremental::new(Fsid::default(), Epoch::new(5));
        inc.new_purged_snaps.insert(PoolId::new(1), set(&[9]));
        p.follow(&inc);
        p.learn(answer(Epoch::new(4), &[2, 3]), Epoch::new(5));
        assert_eq!(*p.of_pool(PoolId::new(1)), set(&[2, 3, 9]));
        assert!(
            p.question(Epoch::new(5)).is_some(),
            "the answer is older than the map"
        );
        p.learn(answer(Epoch::new(5), &[2, 3, 4, 9]), Epoch::new(5));
        assert_eq!(*p.of_pool(PoolId::new(1)), set(&[2, 3, 4, 9]));
        assert!(p.question(Epoch::new(5)).is_none());
        inc.new_purged_snaps.insert(
            PoolId::new(1),
            (0..=RANGES_FROM_MAPS as u64).map(|i| 2 * i).collect(),
        );
        p.follow(&inc);
        assert!(p.question(Epoch::new(6)).is_some(), "many small ranges");
        inc.old_pools = [PoolId::new(1)].into_iter().collect();
        p.follow(&inc);
        assert!(p.of_pool(PoolId::new(1)).is_empty());
    }
}
