//! Statistics that OSDs report. They are volatile: after a restart OSDs report everything again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use spirula_denc::{UTime, decode_all};
use spirula_maps::{IntervalSet, ObjectStatSum, OsdMap, OsdStat, PgId, PgStat, PgState, StoreStatfs};
use spirula_proto::internal::report::PgStatsReport;
use spirula_proto::mon::Statfs;

/// The time over which client I/O is averaged.
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// How often totals are sampled for rates.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// A pool's totals.
#[derive(Debug, Clone, Default)]
pub struct PoolTotals {
    /// Sums over its PGs.
    pub sum: ObjectStatSum,
    /// Entries in its PGs' logs.
    pub log_size: i64,
    /// Entries in them on disk.
    pub ondisk_log_size: i64,
    /// Sums over the OSDs' stores.
    pub store: StoreStatfs,
    /// OSDs that reported a store.
    pub stores: usize,
    /// Sum of the lengths of the up sets.
    pub up: usize,
    /// Sum of the lengths of the acting sets.
    pub acting: usize,
    /// PGs.
    pub pgs: usize,
}

impl PoolTotals {
    /// Bytes of user data: what the objects hold.
    pub fn stored(&self) -> u64 {
        u64::try_from(self.sum.num_bytes).unwrap_or(0)
    }

    /// Bytes that all replicas together allocate.
    pub fn used(&self) -> u64 {
        u64::try_from(self.store.allocated + self.store.omap_allocated).unwrap_or(0)
    }
}

/// All statistics.
#[derive(Debug)]
pub struct Stats {
    version: u64,
    /// When the last report came.
    pub stamp: UTime,
    /// By PG, as its primary last reported it.
    pub pgs: BTreeMap<PgId, PgStat>,
    /// By OSD.
    pub osds: BTreeMap<i32, OsdStat>,
    stores: BTreeMap<(i64, i32), StoreStatfs>,
    samples: VecDeque<(UTime, BTreeMap<i64, ObjectStatSum>)>,
    map_epoch: u32,
}

/// A PG that no OSD has reported: its state prints as `unknown`.
pub(crate) fn unknown_pg(now: UTime) -> PgStat {
    PgStat {
        last_change: now,
        up_primary: -1,
        acting_primary: -1,
        ..PgStat::default()
    }
}

impl Stats {
    pub(crate) fn new(now: UTime) -> Self {
        Self {
            version: 0,
            stamp: now,
            pgs: BTreeMap::new(),
            osds: BTreeMap::new(),
            stores: BTreeMap::new(),
            samples: VecDeque::new(),
            map_epoch: 0,
        }
    }

    /// Grows with each change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Takes a report of `osd`. What does not decode is an error of the sender.
    pub(crate) fn report(
        &mut self,
        osd: i32,
        report: &PgStatsReport,
        map: &OsdMap,
        now: UTime,
    ) -> spirula_denc::Result<()> {
        self.sync(map, now);
        if !report.osd_stat.0.is_empty() {
            self.osds.insert(osd, decode_all(&report.osd_stat)?);
        }
        for (pg, blob) in &report.pgs {
            let stat: PgStat = decode_all(blob)?;
            let Some(known) = self.pgs.get_mut(pg) else {
                continue;
            };
            // A primary of an earlier interval may be late.
            let newer =
                (stat.reported_epoch, stat.reported_seq) >= (known.reported_epoch, known.reported_seq);
            if newer {
                *known = stat;
            }
        }
        self.stores.retain(|(_, of), _| *of != osd);
        for (pool, blob) in &report.pool_statfs {
            self.stores.insert((*pool, osd), decode_all(blob)?);
        }
        self.version += 1;
        self.stamp = now;
        Ok(())
    }

    /// Follows the map: PGs appear and vanish with their pools, dead primaries make PGs stale.
    pub(crate) fn sync(&mut self, map: &OsdMap, now: UTime) {
        if self.map_epoch == map.epoch {
            return;
        }
        self.map_epoch = map.epoch;
        let wanted: std::collections::BTreeSet<PgId> = map.pgs().collect();
        self.pgs.retain(|pg, _| wanted.contains(pg));
        for pg in wanted {
            self.pgs.entry(pg).or_insert_with(|| unknown_pg(now));
        }
        self.osds.retain(|osd, _| map.exists(*osd));
        self.stores
            .retain(|(pool, osd), _| map.pools.contains_key(pool) && map.exists(*osd));
        for stat in self.pgs.values_mut() {
            let primary = stat.acting_primary;
            let reported = stat.state != PgState::empty();
            if reported && !map.is_up(primary) && !stat.state.contains(PgState::STALE) {
                stat.state.insert(PgState::STALE);
                stat.last_change = now;
                self.version += 1;
            }
        }
    }

    pub(crate) fn tick(&mut self, now: UTime, map: &OsdMap) {
        self.sync(map, now);
        let due = self
            .samples
            .back()
            .is_none_or(|(t, _)| now.since(*t) >= SAMPLE_EVERY);
        if due {
            let sums = map.pools.keys().map(|p| (*p, self.pool(*p).sum)).collect();
            self.samples.push_back((now, sums));
            while self.samples.len() > 2 && now.since(self.samples[1].0) >= RATE_WINDOW {
                self.samples.pop_front();
            }
        }
    }

    /// A pool's totals.
    pub fn pool(&self, pool: i64) -> PoolTotals {
        let mut t = PoolTotals::default();
        let Ok(id) = u64::try_from(pool) else { return t };
        let range = PgId { pool: id, seed: 0 }..=PgId {
            pool: id,
            seed: u32::MAX,
        };
        for stat in self.pgs.range(range).map(|(_, s)| s) {
            t.sum.add(&stat.stats.sum);
            t.log_size += stat.log_size;
            t.ondisk_log_size += stat.ondisk_log_size;
            t.up += stat.up.len();
            t.acting += stat.acting.len();
            t.pgs += 1;
        }
        for store in self
            .stores
            .range((pool, i32::MIN)..=(pool, i32::MAX))
            .map(|(_, s)| s)
        {
            t.store.add(store);
            t.stores += 1;
        }
        t
    }

    /// The pool's snapshots that all of its PGs say are trimmed; none while a PG has not reported.
    pub(crate) fn purged_snaps(&self, pool: u64) -> IntervalSet {
        let range = PgId { pool, seed: 0 }..=PgId { pool, seed: u32::MAX };
        let mut of_pgs = self.pgs.range(range).map(|(_, s)| &s.purged_snaps);
        let Some(first) = of_pgs.next() else {
            return IntervalSet::new();
        };
        of_pgs.fold(first.clone(), |all, s| all.intersection(s))
    }

    /// Totals over all pools.
    pub fn total(&self) -> PoolTotals {
        let mut t = PoolTotals::default();
        for stat in self.pgs.values() {
            t.sum.add(&stat.stats.sum);
            t.log_size += stat.log_size;
            t.ondisk_log_size += stat.ondisk_log_size;
            t.up += stat.up.len();
            t.acting += stat.acting.len();
            t.pgs += 1;
        }
        t
    }

    /// The stores of the OSDs that are in.
    pub fn raw(&self, map: &OsdMap) -> StoreStatfs {
        let mut sum = StoreStatfs::default();
        for (osd, stat) in &self.osds {
            if map.is_in(*osd) {
                sum.add(&stat.statfs);
            }
        }
        sum
    }

    /// What changed over the averaging window: the change of a pool's sums (of all pools for `None`) and the time.
    pub fn delta(&self, pool: Option<i64>) -> (ObjectStatSum, f64) {
        let (Some((t0, old)), Some((t1, new))) = (self.samples.front(), self.samples.back()) else {
            return (ObjectStatSum::default(), 0.0);
        };
        let mut sum = ObjectStatSum::default();
        for (id, s) in new.iter().filter(|(id, _)| pool.is_none_or(|p| p == **id)) {
            if let Some(o) = old.get(id) {
                let mut d = *s;
                d.sub(o);
                sum.add(&d);
            }
        }
        (sum, t1.since(*t0).as_secs_f64())
    }

    /// Bytes that can still be written to a pool, before replication is multiplied in: until the first OSD is full, if
    /// all fill by their share in the pool's rule. As in Ceph an OSD that is out keeps its share, and reweights do not
    /// count.
    pub fn max_avail(&self, map: &OsdMap, pool: i64) -> u64 {
        let Some(p) = map.pool(pool) else { return 0 };
        let rule = u32::from(p.crush_rule);
        let shares = map.crush.map().rule_device_shares(rule).unwrap_or_default();
        let mut least: Option<f64> = None;
        for (osd, share) in shares {
            let Some(stat) = self.osds.get(&osd) else { continue };
            if stat.statfs.total == 0 || share <= 0.0 || !map.is_in(osd) {
                continue;
            }
            let unusable = stat.statfs.total as f64 * (1.0 - f64::from(map.full_ratio));
            let avail = (stat.statfs.available as f64 - unusable).max(0.0);
            let projected = avail / f64::from(share);
            least = Some(least.map_or(projected, |l| l.min(projected)));
        }
        // In single precision, as in Ceph.
        let per_copy = least.unwrap_or(0.0) as u64 as f32 / f32::from(p.size.max(1));
        per_copy as u64
    }

    /// The answer to `statfs`.
    pub fn statfs(&self, map: &OsdMap, pool: Option<i64>) -> Statfs {
        let Some(pool) = pool else {
            let raw = self.raw(map);
            return Statfs {
                kb: raw.total / 1024,
                kb_used: raw.used_raw() / 1024,
                kb_avail: raw.available / 1024,
                num_objects: u64::try_from(self.total().sum.num_objects).unwrap_or(0),
            };
        };
        let t = self.pool(pool);
        let (used, avail) = (t.stored() / 1024, self.max_avail(map, pool) / 1024);
        let num_objects = u64::try_from(t.sum.num_objects).unwrap_or(0);
        Statfs {
            kb: used + avail,
            kb_used: used,
            kb_avail: avail,
            num_objects,
        }
    }

    /// PGs by state, most frequent first.
    pub fn states(&self) -> Vec<(PgState, usize)> {
        let mut by: BTreeMap<PgState, usize> = BTreeMap::new();
        for s in self.pgs.values() {
            *by.entry(s.state).or_default() += 1;
        }
        let mut out: Vec<_> = by.into_iter().collect();
        out.sort_by_key(|(state, n)| (std::cmp::Reverse(*n), std::cmp::Reverse(*state)));
        out
    }

    /// How many PGs an OSD is in the up set of, and how many it leads.
    pub fn pgs_of(&self, osd: i32) -> (usize, usize) {
        let mut n = (0, 0);
        for s in self.pgs.values() {
            n.0 += usize::from(s.up.contains(&osd) || s.acting.contains(&osd));
            n.1 += usize::from(s.up_primary == osd);
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use spirula_crush::CrushMap;
    use spirula_denc::Fsid;
    use spirula_maps::osdmap::{WEIGHT_IN, WEIGHT_OUT};
    use spirula_maps::{OsdState, PgPool};

    use super::*;

    /// With the numbers of a Ceph 16.2.15 cluster, and what its `ceph df` said.
    #[test]
    fn a_pool_holds_what_fits_until_the_first_osd_is_full() {
        let mut crush = CrushMap::with_default_root("osd").unwrap();
        let root = CrushMap::parse_location(["root=default"]).unwrap();
        let mut stats = Stats::new(UTime::ZERO);
        for (osd, avail_kib) in [(0, 3_896_624), (1, 3_896_856), (2, 3_896_624)] {
            let name = format!("osd.{osd}");
            crush.insert_item(osd, 255, &name, &root).unwrap();
            let stat = stats.osds.entry(osd).or_default();
            stat.statfs.total = 4 << 30;
            stat.statfs.available = avail_kib * 1024;
        }
        let mut map = OsdMap::new(Fsid::default(), crush);
        map.full_ratio = 0.95;
        map.set_max_osd(3);
        map.osd_state.fill(OsdState::EXISTS.with(OsdState::UP));
        map.osd_weight.fill(WEIGHT_IN);
        for size in [1, 3] {
            let pool = PgPool {
                size,
                ..PgPool::default()
            };
            map.pools.insert(i64::from(size), pool);
        }
        assert_eq!(stats.max_avail(&map, 1), 11_326_183_424);
        assert_eq!(stats.max_avail(&map, 3), 3_775_394_560);
        map.osd_weight[0] = WEIGHT_IN / 2;
        map.osd_weight[1] = WEIGHT_OUT;
        assert_eq!(stats.max_avail(&map, 3), 3_775_394_560);
    }
}
