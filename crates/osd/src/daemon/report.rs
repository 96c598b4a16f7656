//! Statistics for the monitors: of the PGs that this OSD leads, and of the OSD itself.

use std::collections::{BTreeMap, HashMap};

use spirula_conf::options::Source;
use spirula_denc::UTime;
use spirula_maps::{
    Epoch, ObjectStatCollection, ObjectStatSum, ObjectStorePerfStat, OsdStat, PgId, PgShard, PgStat, PgState,
    PoolId, SpgId, StoreStatfs,
};
use spirula_proto::Blob;
use spirula_proto::internal::report::{ConfigReport, Fullness, OsdReport, PgStatsReport};
use spirula_store::Store;

use super::clock::ClockCheck;
use super::maps::Maps;
use super::mons::Mons;
use super::perf::Perf;
use super::scrub_reports::ScrubReports;
use super::setup::Setup;
use super::state::Osd;
use super::store_writes::Writes;
use crate::core::Core;
use crate::heartbeat::Heartbeats;
use crate::pg::PgReport;

/// A report is sent after this many ticks even if nothing changed.
const QUIET_TICKS: u32 = 10;

/// When a PG's states last changed.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    change: UTime,
    active: UTime,
    clean: UTime,
    peered: UTime,
    undegraded: UTime,
    fullsized: UTime,
    became_active: UTime,
    clean_epoch: Epoch,
}

/// The state of the reports to the monitors.
#[derive(Default)]
pub(super) struct Reports {
    sent: HashMap<PgId, PgReport>,
    times: HashMap<PgId, Times>,
    seq: u64,
    acked: u64,
    quiet: u32,
    slow_ops: u32,
    /// The ticks so far, for lines that are logged every few ticks.
    ticks: u32,
    pub(super) fullness: Option<Fullness>,
    /// Ticks for which the map has not said that.
    pub(super) unheard: u32,
    pub(super) clock: ClockCheck,
    /// The options as reported in this session.
    config: Option<ConfigReport>,
    /// Scrubs as reported in this session.
    pub(super) scrubs: ScrubReports,
}

impl Reports {
    /// Forgets what was reported, so that a new session is told everything again.
    pub(super) fn forget(&mut self) {
        self.sent.clear();
        self.fullness = None;
        self.clock.forget();
        self.config = None;
        self.scrubs.forget();
        self.quiet = QUIET_TICKS;
    }

    pub(super) fn acknowledged(&mut self, seq: u64) {
        self.acked = self.acked.max(seq);
    }

    /// Whether a line that is logged every `every` ticks is due.
    pub(super) fn is_line_due(&mut self, every: u32) -> bool {
        self.ticks = self.ticks.wrapping_add(1);
        self.ticks.is_multiple_of(every)
    }

    fn times(&mut self, r: &PgReport, now: UTime) -> Times {
        let before = self.sent.get(&r.pgid);
        let t = self.times.entry(r.pgid).or_default();
        let active = r.state.contains(&"active");
        if before.is_none_or(|b| b.state != r.state) {
            t.change = now;
            if active {
                t.became_active = now;
            }
        }
        if active {
            t.active = now;
        }
        if active || r.state.contains(&"peered") {
            t.peered = now;
        }
        if !r.state.contains(&"degraded") {
            t.undegraded = now;
        }
        if !r.state.contains(&"undersized") {
            t.fullsized = now;
        }
        if r.state.contains(&"clean") {
            t.clean = now;
            t.clean_epoch = r.reported_epoch;
        }
        *t
    }
}

fn state_bits(names: &[&str]) -> PgState {
    names
        .iter()
        .filter_map(|n| PgState::from_name(n))
        .fold(PgState::empty(), PgState::with)
}

fn pg_stat(r: &PgReport, t: Times, seq: u64, now: UTime) -> PgStat {
    let io = r.done.io;
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let sum = ObjectStatSum {
        num_bytes: r.usage.bytes,
        num_objects: r.usage.objects,
        num_object_clones: r.usage.clones,
        num_whiteouts: r.usage.whiteouts,
        num_object_copies: r.copies.all,
        num_objects_degraded: r.copies.degraded,
        num_objects_misplaced: r.copies.misplaced,
        num_objects_unfound: i64::try_from(r.copies.unfound.len()).unwrap_or(i64::MAX),
        num_objects_repaired: r.done.repaired,
        num_objects_recovered: r.done.recovered.objects,
        num_bytes_recovered: r.done.recovered.bytes,
        num_keys_recovered: r.done.recovered.keys,
        num_rd: io.rd,
        num_rd_kb: io.rd_kb,
        num_wr: io.wr,
        num_wr_kb: io.wr_kb,
        num_scrub_errors: r.scrubs.errors().into(),
        num_shallow_scrub_errors: r.scrubs.shallow_errors.into(),
        num_deep_scrub_errors: r.scrubs.deep_errors.into(),
        num_large_omap_objects: r.scrubs.large_omaps.into(),
        num_omap_bytes: signed(r.scrubs.omap_bytes),
        num_omap_keys: signed(r.scrubs.omap_keys),
        ..ObjectStatSum::default()
    };
    let log_size = i64::try_from(r.log.len).unwrap_or(i64::MAX);
    PgStat {
        version: r.log.head,
        reported_seq: seq,
        reported_epoch: r.reported_epoch,
        state: state_bits(&r.state),
        log_start: r.log.tail,
        ondisk_log_start: r.log.tail,
        created: r.created,
        last_epoch_clean: t.clean_epoch,
        stats: ObjectStatCollection { sum },
        log_size,
        ondisk_log_size: log_size,
        up: r.place.up.clone(),
        acting: r.place.acting.clone(),
        last_fresh: now,
        last_change: t.change,
        last_active: t.active,
        last_clean: t.clean,
        last_unstale: now,
        mapping_epoch: r.place.since,
        stats_invalid: r.usage_invalid,
        last_became_active: t.became_active,
        up_primary: r.place.up_primary.into(),
        acting_primary: r.place.acting_primary.into(),
        blocked_by: r.blocked_by.clone(),
        last_undegraded: t.undegraded,
        last_fullsized: t.fullsized,
        last_peered: t.peered,
        snaptrimq_len: u32::try_from(r.snaps.to_trim).unwrap_or(u32::MAX),
        purged_snaps: r.snaps.purged.clone(),
        last_scrub: r.scrubs.version,
        last_scrub_stamp: r.scrubs.stamp,
        last_deep_scrub: r.scrubs.deep_version,
        last_deep_scrub_stamp: r.scrubs.deep_stamp,
        last_clean_scrub_stamp: r.scrubs.clean_stamp,
        avail_no_missing: match r.copies.degraded > 0 {
            true => r
                .copies
                .whole
                .iter()
                .map(|osd| PgShard {
                    osd: *osd,
                    shard: SpgId::NO_SHARD,
                })
                .collect(),
            false => Vec::new(),
        },
        ..PgStat::default()
    }
}

/// Reports to the monitors on PGs and this OSD.
pub(super) struct Reporting<'a> {
    pub(super) setup: &'a Setup,
    pub(super) maps: &'a Maps,
    pub(super) pgs: &'a Core,
    pub(super) store: &'a Store,
    pub(super) writes: &'a Writes,
    pub(super) heartbeats: &'a Heartbeats,
    pub(super) perf: &'a mut Perf,
    pub(super) reports: &'a mut Reports,
    pub(super) mons: &'a mut Mons,
}

impl Reporting<'_> {
    /// Each pool's share of this store. The store does not know pools: its allocated bytes are
    /// shared out by what the PGs hold, each object counting as at least a block.
    fn pool_statfs(&self) -> BTreeMap<PoolId, Blob> {
        #[derive(Default)]
        struct Held {
            bytes: u64,
            weight: u64,
        }
        let mut pools: BTreeMap<PoolId, Held> = BTreeMap::new();
        for pg in self.pgs.pgs() {
            let Some(info) = pg.seen().info() else { continue };
            let (bytes, objects) = (info.usage.bytes.max(0) as u64, info.usage.objects.max(0) as u64);
            let pool = pools.entry(pg.pgid().pool).or_default();
            pool.bytes += bytes;
            pool.weight += bytes.max(objects.saturating_mul(spirula_store::BLOCK as u64));
        }
        let all: u64 = pools.values().map(|p| p.weight).sum();
        let allocated = self.store.statfs().allocated;
        let share = |weight: u64| u128::from(allocated) * u128::from(weight) / u128::from(all.max(1));
        pools
            .into_iter()
            .map(|(pool, Held { bytes, weight })| {
                let statfs = StoreStatfs {
                    allocated: i64::try_from(share(weight)).unwrap_or(i64::MAX),
                    data_stored: i64::try_from(bytes).unwrap_or(i64::MAX),
                    ..StoreStatfs::default()
                };
                (pool, Blob::of(&statfs))
            })
            .collect()
    }

    /// Reports what changed; every so many ticks, everything.
    fn report(&mut self, is_tick: bool) {
        let now = self.setup.now();
        let current: Vec<PgReport> = self.pgs.reports().collect();
        let mut pgs = BTreeMap::new();
        let everything = self.reports.quiet >= QUIET_TICKS;
        self.reports.seq += 1;
        let seq = self.reports.seq;
        for r in current {
            let same = self.reports.sent.get(&r.pgid).is_some_and(|s| {
                // The epoch alone is not worth a report.
                let r = PgReport {
                    reported_epoch: s.reported_epoch,
                    ..r.clone()
                };
                *s == r
            });
            let t = self.reports.times(&r, now);
            if !same || everything {
                pgs.insert(r.pgid, Blob::of(&pg_stat(&r, t, seq, now)));
                self.reports.sent.insert(r.pgid, r);
            }
        }
        let slow_ops = self.slow_ops();
        // While something is slow, its age is news.
        let slow = slow_ops.count > 0 && is_tick || slow_ops.count != self.reports.slow_ops;
        if pgs.is_empty() && !everything && !slow {
            self.reports.quiet += u32::from(is_tick);
            return; // The monitors know all of it.
        }
        self.reports.slow_ops = slow_ops.count;
        self.reports.quiet = 0;
        // A store that makes nothing durable any more has no average.
        let stalled = self
            .writes
            .stalled(self.setup.usec())
            .count()
            .saturating_mul(1000);
        let latency = self.perf.take_commit_latency_ns().max(stalled);
        let osd_stat = self.osd_stat(seq, latency);
        let report = PgStatsReport {
            seq,
            epoch: self.maps.epoch(),
            osd_stat: Blob::of(&osd_stat),
            pgs,
            pool_statfs: self.pool_statfs(),
            slow_ops,
            clock: self.reports.clock.take(),
        };
        let usec = self.setup.usec();
        self.reports.clock.sent(seq, usec, self.setup.now());
        self.mons.report(OsdReport::PgStats(report));
    }

    /// Tells the monitors which options are in force, if that has changed.
    pub(super) fn report_config(&mut self) {
        let known = |source| -> BTreeMap<String, String> {
            let set = self.setup.values.layer(source).iter();
            // The file may hold anything, secrets too.
            set.filter(|(k, _)| spirula_conf::options::find(k).is_some())
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect()
        };
        let report = ConfigReport {
            file: known(Source::File),
            central: known(Source::Mon),
            overrides: known(Source::Override),
            ignored: self.setup.values.ignored.iter().cloned().collect(),
        };
        if self.reports.config.as_ref() != Some(&report)
            && self.mons.report(OsdReport::Config(report.clone()))
        {
            self.reports.config = Some(report);
        }
    }

    fn osd_stat(&self, seq: u64, latency_ns: u64) -> OsdStat {
        let s = self.store.statfs();
        let signed = |v: u64| i64::try_from(v).unwrap_or(i64::MAX);
        OsdStat {
            statfs: StoreStatfs {
                total: s.total,
                available: s.available,
                internally_reserved: s.fixed,
                allocated: signed(s.allocated),
                data_stored: signed(s.stored),
                internal_metadata: signed(s.index),
                ..StoreStatfs::default()
            },
            hb_peers: self.heartbeats.peers().collect(),
            hb_pingtime: self
                .heartbeats
                .times()
                .filter(|(_, t)| t.last_update > 0)
                .collect(),
            up_from: self.setup.info(self.maps.map()).up_from,
            os_perf_stat: ObjectStorePerfStat {
                commit_latency_ns: latency_ns,
                // A submitted transaction can be read at once.
                apply_latency_ns: latency_ns,
            },
            seq,
            num_pgs: u32::try_from(self.pgs.pgs().count()).unwrap_or(u32::MAX),
            num_osds: 1,
            num_shards_repaired: self.perf.core.repaired,
            ..OsdStat::default()
        }
    }
}

impl Osd {
    /// Checks the space, and reports what changed; every so many ticks, everything.
    pub fn report(&mut self, is_tick: bool) {
        let mut spacing = self.spacing();
        if is_tick {
            spacing.doubt();
        }
        spacing.check();
        spacing.check_room();
        if self.is_up() {
            self.reporting().report(is_tick);
            if is_tick {
                self.report_scrubs();
            }
        }
    }

    /// Reports everything now, and returns the report's number.
    pub(super) fn report_now(&mut self) -> u64 {
        self.reports.quiet = QUIET_TICKS;
        self.report(false);
        self.reports.seq
    }
}
