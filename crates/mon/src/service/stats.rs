//! Statistics that OSDs report. After a restart OSDs report everything again; until they have, a
//! pool's totals are those that were last kept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use spirula_denc::{UTime, versioned};
use spirula_maps::{
    Epoch, IntervalSet, ObjectStatSum, OsdId, OsdMap, OsdStat, PgId, PgStat, PgState, PoolId, StoreStatfs,
};
use spirula_proto::internal::report::PgStatsReport;
use spirula_proto::mon::Statfs;

use super::state::{Service, Source};
use super::{Kept, Keyed, reported};
use crate::core::LoadError;
use crate::kv::{KvRead, Txn};

/// The time over which client I/O is averaged.
const RATE_WINDOW: Duration = Duration::from_secs(10);
/// How often totals are sampled for rates.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// How often the pools' totals are kept, if they change.
const KEEP_EVERY: Duration = Duration::from_secs(10);

/// A number of things as eight bytes.
mod count {
    use spirula_denc::{Reader, Result, Writer};

    pub(super) fn encode(n: &usize, w: &mut Writer) {
        w.u64(*n as u64);
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<usize> {
        r.u64().map(|n| usize::try_from(n).unwrap_or(usize::MAX))
    }
}

versioned! {
    /// A pool's totals.
    pub struct PoolTotals("pool totals", version 1, compat 1) {
        /// Sums over its PGs.
        pub sum: ObjectStatSum;
        /// Entries in its PGs' logs.
        pub log_size: i64;
        /// Entries in them on disk.
        pub ondisk_log_size: i64;
        /// Sums over the OSDs' stores.
        pub store: StoreStatfs;
        /// OSDs that reported a store.
        pub stores: usize, via count;
        /// PGs.
        pub pgs: usize, via count;
        /// Sum of the lengths of the up sets.
        pub up: usize, via count;
        /// Sum of the lengths of the acting sets.
        pub acting: usize, via count;
    }
}

impl Kept for PoolTotals {
    const SERVICE: &'static str = "pool_totals";
    const WHAT: &'static str = "pool totals";
}

impl PoolTotals {
    fn add_logs(&mut self, entries: i64, on_disk: i64) {
        self.log_size = self.log_size.saturating_add(entries);
        self.ondisk_log_size = self.ondisk_log_size.saturating_add(on_disk);
    }

    /// Bytes of user data in the objects.
    pub fn stored(&self) -> u64 {
        u64::try_from(self.sum.num_bytes).unwrap_or(0)
    }

    /// Bytes that all replicas together allocate.
    pub fn used(&self) -> u64 {
        u64::try_from(self.store.allocated + self.store.omap_allocated).unwrap_or(0)
    }
}

/// Keeps the times before a new primary: it reports since when a PG is in its states only as far as
/// it has led it; earlier times are known from the earlier primary.
fn keep_times(now: &mut PgStat, before: &PgStat) {
    for (new, old) in [
        (&mut now.last_active, before.last_active),
        (&mut now.last_clean, before.last_clean),
        (&mut now.last_peered, before.last_peered),
        (&mut now.last_undegraded, before.last_undegraded),
        (&mut now.last_fullsized, before.last_fullsized),
        (&mut now.last_became_active, before.last_became_active),
        (&mut now.last_became_peered, before.last_became_peered),
    ] {
        *new = old.max(*new);
    }
    now.last_epoch_clean = now.last_epoch_clean.max(before.last_epoch_clean);
}

/// The clients' I/O on an OSD, as the primary of its PGs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

impl Served {
    /// Adds the growth of a PG's sums.
    fn add_growth(&mut self, now: &ObjectStatSum, before: &ObjectStatSum) {
        let grown = |now: i64, before: i64| u64::try_from(now.saturating_sub(before)).unwrap_or(0);
        let kib = |now: i64, before: i64| grown(now, before).saturating_mul(1024);
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        add(&mut self.reads, grown(now.num_rd, before.num_rd));
        add(&mut self.writes, grown(now.num_wr, before.num_wr));
        add(&mut self.read_bytes, kib(now.num_rd_kb, before.num_rd_kb));
        add(&mut self.write_bytes, kib(now.num_wr_kb, before.num_wr_kb));
    }

    /// The growth since `before` per second.
    fn rate(&self, before: &Self, seconds: f64) -> Self {
        let per = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as u64;
        Self {
            reads: per(self.reads, before.reads),
            writes: per(self.writes, before.writes),
            read_bytes: per(self.read_bytes, before.read_bytes),
            write_bytes: per(self.write_bytes, before.write_bytes),
        }
    }
}

/// Sums at some time, for rates.
#[derive(Debug)]
struct Sample {
    at: UTime,
    pools: BTreeMap<PoolId, ObjectStatSum>,
    served: BTreeMap<OsdId, Served>,
}

/// All statistics.
#[derive(Debug)]
pub struct Stats {
    version: u64,
    /// When the last report came.
    pub stamp: UTime,
    /// The statistics by PG, as its primary last reported it.
    pub pgs: BTreeMap<PgId, PgStat>,
    /// The statistics by OSD.
    pub osds: BTreeMap<OsdId, OsdStat>,
    stores: BTreeMap<(PoolId, OsdId), StoreStatfs>,
    /// The clients' I/O on each OSD since the first report.
    served: BTreeMap<OsdId, Served>,
    samples: VecDeque<Sample>,
    map_epoch: Epoch,
    /// The kept totals of the pools, by id.
    pub(crate) kept: Keyed<PoolTotals>,
    kept_at: UTime,
    /// Pools of which everything has been reported since the start.
    known: BTreeSet<PoolId>,
}

/// A PG that no OSD has reported: its state prints as `unknown`.
pub(crate) fn unknown_pg(now: UTime) -> PgStat {
    PgStat {
        last_change: now,
        ..PgStat::default()
    }
}

impl Service for Stats {
    const NAMES: &'static [&'static str] = Keyed::<PoolTotals>::NAMES;

    fn load(from: Source<'_>) -> Result<Self, LoadError> {
        Self::read(from.kv.as_ref(), from.now)
    }

    /// The OSDs' reports stay.
    fn reload(&mut self, from: Source<'_>) -> Result<(), LoadError> {
        self.kept = Keyed::load(from)?;
        Ok(())
    }

    fn apply(&mut self, name: &str, key: &str, value: Option<&Bytes>) -> Result<(), LoadError> {
        self.kept.apply(name, key, value)
    }
}

/// The number of an OSD's PGs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PgsOfOsd {
    /// PGs of whose up or acting set the OSD is a member.
    pub all: usize,
    /// PGs whose up primary is the OSD.
    pub led: usize,
}

impl Stats {
    fn read(kv: &dyn KvRead, now: UTime) -> Result<Self, LoadError> {
        Ok(Self {
            kept: Keyed::read(kv)?,
            ..Self::new(now)
        })
    }

    pub(crate) fn new(now: UTime) -> Self {
        Self {
            version: 0,
            stamp: now,
            pgs: BTreeMap::new(),
            osds: BTreeMap::new(),
            stores: BTreeMap::new(),
            served: BTreeMap::new(),
            samples: VecDeque::new(),
            map_epoch: Epoch::NONE,
            kept: Keyed::default(),
            kept_at: now,
            known: BTreeSet::new(),
        }
    }

    /// Forgets the reports, but not the kept totals: OSDs are about to report everything.
    pub(crate) fn restart(&mut self, now: UTime) {
        let kept = std::mem::take(&mut self.kept);
        *self = Self {
            kept,
            ..Self::new(now)
        };
    }

    /// The totals that are to be kept now: those of known pools that have changed.
    pub(crate) fn keep(&mut self, map: &OsdMap, now: UTime) -> Txn {
        let mut txn = Txn::default();
        if now.since(self.kept_at) < KEEP_EVERY {
            return txn;
        }
        self.kept_at = now;
        for pool in self.known.iter().filter(|p| map.pools.contains_key(p)) {
            let (key, totals) = (pool.to_string(), self.pool(*pool));
            if self.kept.get(&key) != Some(&totals) {
                Keyed::set(&key, &totals, &mut txn);
            }
        }
        for (key, _) in self.kept.iter() {
            if !key.parse().is_ok_and(|p: PoolId| map.pools.contains_key(&p)) {
                Keyed::<PoolTotals>::remove(key, &mut txn);
            }
        }
        txn
    }

    /// Notes the pools whose PGs have all been reported, and the space that they take on each of
    /// their OSDs.
    fn note_known(&mut self, map: &OsdMap) {
        if map.pools.keys().all(|p| self.known.contains(p)) {
            return;
        }
        let mut pools: BTreeMap<PoolId, bool> = BTreeMap::new();
        for (pg, stat) in &self.pgs {
            let pool = pg.pool;
            let stored = || {
                stat.acting
                    .osds()
                    .all(|osd| self.stores.contains_key(&(pool, osd)))
            };
            *pools.entry(pool).or_insert(true) &= stat.state != PgState::empty() && stored();
        }
        let known = pools.into_iter().filter(|(_, known)| *known);
        self.known.extend(known.map(|(pool, _)| pool));
    }

    /// A number that grows with each change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Handles a report of `osd`. A report that does not decode is an error of the sender.
    pub(crate) fn report(
        &mut self,
        osd: OsdId,
        report: &PgStatsReport,
        map: &OsdMap,
        now: UTime,
    ) -> spirula_denc::Result<()> {
        self.sync(map, now);
        let reported = reported::read(osd, report, map, now)?;
        if let Some(stat) = reported.osd
            && map.exists(osd)
        {
            self.osds.insert(osd, stat);
        }
        for (pg, stat) in reported.pgs {
            let Some(known) = self.pgs.get_mut(&pg) else {
                continue;
            };
            // A primary of an earlier interval may be late.
            let newer =
                (stat.reported_epoch, stat.reported_seq) >= (known.reported_epoch, known.reported_seq);
            if newer {
                let before = std::mem::replace(known, stat);
                keep_times(known, &before);
                if before.state != PgState::empty() {
                    let served = self.served.entry(osd).or_default();
                    served.add_growth(&known.stats.sum, &before.stats.sum);
                }
            }
        }
        self.stores.retain(|(_, of), _| *of != osd);
        for (pool, store) in reported.stores {
            self.stores.insert((pool, osd), store);
        }
        self.note_known(map);
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
        let wanted: BTreeSet<PgId> = map.pgs().collect();
        self.pgs.retain(|pg, _| wanted.contains(pg));
        for pg in wanted {
            self.pgs.entry(pg).or_insert_with(|| unknown_pg(now));
        }
        self.osds.retain(|osd, _| map.exists(*osd));
        self.served.retain(|osd, _| map.exists(*osd));
        self.known.retain(|p| map.pools.contains_key(p));
        self.stores
            .retain(|(pool, osd), _| map.pools.contains_key(pool) && map.exists(*osd));
        for stat in self.pgs.values_mut() {
            let led = stat.acting_primary.0.is_some_and(|primary| map.is_up(primary));
            let reported = stat.state != PgState::empty();
            if reported && !led && !stat.state.contains(PgState::STALE) {
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
            .is_none_or(|s| now.since(s.at) >= SAMPLE_EVERY);
        if due {
            let known = map.pools.keys().filter(|p| self.known.contains(p));
            let sample = Sample {
                at: now,
                pools: known.map(|p| (*p, self.pool(*p).sum)).collect(),
                served: self.served.clone(),
            };
            self.samples.push_back(sample);
            while self.samples.len() > 2 && now.since(self.samples[1].at) >= RATE_WINDOW {
                self.samples.pop_front();
            }
        }
    }

    /// A pool's totals; until all of its PGs have been reported, the kept ones.
    pub fn pool(&self, pool: PoolId) -> PoolTotals {
        let kept = self.kept.get(&pool.to_string());
        if let Some(kept) = kept.filter(|_| !self.known.contains(&pool)) {
            return kept.clone();
        }
        let mut t = PoolTotals::default();
        let range = PgId { pool, seed: 0 }..=PgId { pool, seed: u32::MAX };
        for stat in self.pgs.range(range).map(|(_, s)| s) {
            t.sum.add(&stat.stats.sum);
            t.add_logs(stat.log_size, stat.ondisk_log_size);
            t.up += stat.up.slots().len();
            t.acting += stat.acting.slots().len();
            t.pgs += 1;
        }
        let of_pool = self.stores.range((pool, OsdId::new(0))..);
        for (_, store) in of_pool.take_while(|((p, _), _)| *p == pool) {
            t.store.add(store);
            t.stores += 1;
        }
        t
    }

    /// The pool's snapshots that all of its PGs report as trimmed; none while a PG has not
    /// reported.
    pub(crate) fn purged_snaps(&self, pool: PoolId) -> IntervalSet {
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
        let pools: BTreeSet<PoolId> = self.pgs.keys().map(|pg| pg.pool).collect();
        for p in pools.into_iter().map(|p| self.pool(p)) {
            t.sum.add(&p.sum);
            t.add_logs(p.log_size, p.ondisk_log_size);
            t.up += p.up;
            t.acting += p.acting;
        }
        t.pgs = self.pgs.len();
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

    /// The change of a pool's sums (of all pools for `None`) over the averaging window, and the
    /// time.
    pub fn delta(&self, pool: Option<PoolId>) -> (ObjectStatSum, f64) {
        let (Some(old), Some(new)) = (self.samples.front(), self.samples.back()) else {
            return (ObjectStatSum::default(), 0.0);
        };
        let mut sum = ObjectStatSum::default();
        for (id, s) in new.pools.iter().filter(|(id, _)| pool.is_none_or(|p| p == **id)) {
            if let Some(o) = old.pools.get(id) {
                let mut d = *s;
                d.sub(o);
                sum.add(&d);
            }
        }
        (sum, new.at.since(old.at).as_secs_f64())
    }

    /// The clients' I/O on an OSD per second, averaged over the window.
    pub fn served(&self, osd: OsdId) -> Served {
        let (Some(old), Some(new)) = (self.samples.front(), self.samples.back()) else {
            return Served::default();
        };
        let seconds = new.at.since(old.at).as_secs_f64();
        match new.served.get(&osd) {
            Some(new) if seconds > 0.0 => {
                new.rate(&old.served.get(&osd).copied().unwrap_or_default(), seconds)
            }
            _ => Served::default(),
        }
    }

    /// Bytes that can still be written to a pool, before replication is multiplied in: until the
    /// first OSD is full, if all fill by their share in the pool's rule. As in Ceph an OSD that is
    /// out keeps its share, and reweights do not count.
    pub fn max_avail(&self, map: &OsdMap, pool: PoolId) -> u64 {
        let Some(p) = map.pool(pool) else { return 0 };
        let rule = u32::from(p.crush_rule);
        let shares = map.crush.map().rule_device_shares(rule).unwrap_or_default();
        let mut least: Option<f64> = None;
        let of_osds = shares.into_iter();
        for (osd, share) in of_osds.filter_map(|(item, share)| Some((OsdId::of_item(item)?, share))) {
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
        match map.raw_used_rate(pool) {
            rate if rate > 0.0 => (least.unwrap_or(0.0) as u64 as f32 / rate) as u64,
            _ => 0,
        }
    }

    /// The answer to `statfs`.
    pub fn statfs(&self, map: &OsdMap, pool: Option<PoolId>) -> Statfs {
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

    /// The number of PGs whose up set an OSD is in, and of those that it leads.
    pub fn pgs_of(&self, osd: OsdId) -> PgsOfOsd {
        let mut n = PgsOfOsd::default();
        for s in self.pgs.values() {
            n.all += usize::from(s.up.contains(osd) || s.acting.contains(osd));
            n.led += usize::from(s.up_primary.0 == Some(osd));
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
    use spirula_proto::Blob;

    use super::*;

    /// With the numbers of a Ceph 16.2.15 cluster, and what its `ceph df` said.
    #[test]
    fn a_pool_holds_what_fits_until_the_first_osd_is_full() {
        let mut crush = CrushMap::with_default_root("osd").unwrap();
        let root = CrushMap::parse_location(["root=default"]).unwrap();
        let mut stats = Stats::new(UTime::ZERO);
        for (osd, avail_kib) in [(0, 3_896_624), (1, 3_896_856), (2, 3_896_624)] {
            let name = format!("osd.{osd}");
            crush.insert_item(osd.into(), 255, &name, &root).unwrap();
            let stat = stats.osds.entry(OsdId::new(osd)).or_default();
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
            map.pools.insert(PoolId::new(size.into()), pool);
        }
        assert_eq!(stats.max_avail(&map, PoolId::new(1)), 11_326_183_424);
        assert_eq!(stats.max_avail(&map, PoolId::new(3)), 3_775_394_560);
        map.osd_weight[0] = WEIGHT_IN / 2;
        map.osd_weight[1] = WEIGHT_OUT;
        assert_eq!(stats.max_avail(&map, PoolId::new(3)), 3_775_394_560);
    }

    #[test]
    fn what_a_primary_does_for_clients_is_told_by_the_second() {
        let mut map = OsdMap::new(Fsid::default(), CrushMap::with_default_root("osd").unwrap());
        map.epoch = Epoch::new(1);
        map.set_max_osd(2);
        map.osd_state.fill(OsdState::EXISTS.with(OsdState::UP));
        map.pg_temp.insert(
            PgId {
                pool: PoolId::new(1),
                seed: 0,
            },
            [0, 1].map(OsdId::new).into(),
        );
        let pool = PgPool {
            pg_num: 1,
            ..PgPool::default()
        };
        map.pools.insert(PoolId::new(1), pool);
        let at = |s: u32| UTime::from_secs(1000 + s);
        let mut stats = Stats::new(at(0));
        let report = |stats: &mut Stats, seconds: u32, writes: i64, kb: i64| {
            let mut stat = PgStat {
                state: PgState::ACTIVE,
                acting: [0, 1].map(OsdId::new).into(),
                reported_seq: u64::from(seconds),
                ..PgStat::default()
            };
            (stat.stats.sum.num_wr, stat.stats.sum.num_wr_kb) = (writes, kb);
            let pgs = [(
                PgId {
                    pool: PoolId::new(1),
                    seed: 0,
                },
                Blob::of(&stat),
            )]
            .into();
            let report = PgStatsReport {
                pgs,
                ..PgStatsReport::default()
            };
            stats.report(OsdId::new(0), &report, &map, at(seconds)).unwrap();
            stats.tick(at(seconds), &map);
        };
        // I/O before the first report counts for no OSD.
        report(&mut stats, 0, 1000, 1000);
        assert_eq!(stats.served(OsdId::new(0)), Served::default());
        report(&mut stats, 1, 1010, 1000);
        report(&mut stats, 4, 1040, 1008);
        let want = Served {
            writes: 10,
            write_bytes: 2048,
            ..Served::default()
        };
        assert_eq!(
            (stats.served(OsdId::new(0)), stats.served(OsdId::new(1))),
            (want, Served::default())
        );
        // Another primary knows less; then a long time nothing happens.
        report(&mut stats, 5, 5, 5);
        for seconds in 6..20 {
            report(&mut stats, seconds, 5, 5);
        }
        assert_eq!(stats.served(OsdId::new(0)), Served::default());
    }

    #[test]
    fn totals_are_kept_until_all_pgs_are_reported_again() {
        use crate::kv::MemKv;
        let mut map = OsdMap::new(Fsid::default(), CrushMap::with_default_root("osd").unwrap());
        map.epoch = Epoch::new(1);
        map.set_max_osd(2);
        map.osd_state.fill(OsdState::EXISTS.with(OsdState::UP));
        // osd.0 leads both PGs.
        for seed in 0..2 {
            map.pg_temp.insert(
                PgId {
                    pool: PoolId::new(1),
                    seed,
                },
                [0, 1].map(OsdId::new).into(),
            );
        }
        map.pools.insert(
            PoolId::new(1),
            PgPool {
                pg_num: 2,
                ..PgPool::default()
            },
        );
        let report = |seeds: &[u32], bytes: i64| {
            let mut stat = PgStat {
                state: PgState::ACTIVE,
                acting: [0, 1].map(OsdId::new).into(),
                ..PgStat::default()
            };
            stat.stats.sum.num_bytes = bytes;
            let store = StoreStatfs {
                allocated: 3 * bytes,
                ..StoreStatfs::default()
            };
            PgStatsReport {
                pgs: seeds
                    .iter()
                    .map(|seed| {
                        (
                            PgId {
                                pool: PoolId::new(1),
                                seed: *seed,
                            },
                            Blob::of(&stat),
                        )
                    })
                    .collect(),
                pool_statfs: [(PoolId::new(1), Blob::of(&store))].into(),
                ..PgStatsReport::default()
            }
        };
        let at = |s: u32| UTime::from_secs(1000 + s);
        let mut kv = MemKv::default();
        let mut stats = Stats::read(&kv, at(0)).unwrap();
        stats
            .report(OsdId::new(0), &report(&[0], 5), &map, at(0))
            .unwrap();
        assert!(stats.keep(&map, at(11)).is_empty(), "one PG is unknown");
        stats
            .report(OsdId::new(0), &report(&[0, 1], 5), &map, at(12))
            .unwrap();
        stats
            .report(OsdId::new(1), &report(&[], 5), &map, at(12))
            .unwrap();
        assert!(stats.keep(&map, at(13)).is_empty(), "too early");
        kv.apply(&stats.keep(&map, at(30)));
        let mut stats = Stats::read(&kv, at(40)).unwrap();
        stats.sync(&map, at(40));
        let read = |s: &Stats| {
            (
                s.pool(PoolId::new(1)).stored(),
                s.pool(PoolId::new(1)).used(),
                s.total().stored(),
            )
        };
        assert_eq!(read(&stats), (10, 30, 10));
        stats
            .report(OsdId::new(0), &report(&[1], 7), &map, at(41))
            .unwrap();
        assert_eq!(read(&stats), (10, 30, 10));
        stats
            .report(OsdId::new(0), &report(&[0], 7), &map, at(42))
            .unwrap();
        assert_eq!(read(&stats), (10, 30, 10), "an OSD is missing");
        stats
            .report(OsdId::new(1), &report(&[], 7), &map, at(43))
            .unwrap();
        assert_eq!(read(&stats), (14, 42, 14));
        map.pools.clear();
        kv.apply(&stats.keep(&map, at(60)));
        assert!(Stats::read(&kv, at(61)).unwrap().kept.is_empty());
    }
}
