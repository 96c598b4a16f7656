//! Statistics from OSDs, cut to possible values: the reporter may be broken or worse, and
//! everything here is added up and shown.

use spirula_denc::{Result, UTime, decode_all};
use spirula_maps::{Epoch, OsdId, OsdMap, OsdStat, PgId, PgStat, PoolId, StoreStatfs};
use spirula_proto::Blob;
use spirula_proto::internal::report::PgStatsReport;

/// Most entries of a log, as of anything else (`ObjectStatSum::bound`).
const MAX: i64 = 1 << 56;
/// Most OSDs in a list.
const MAX_LIST: usize = 1000;
/// Most bytes of the statistics of an OSD or a PG.
const MAX_BYTES: usize = 256 << 10;
/// Bins of a histogram of powers of two.
const MAX_BINS: usize = 32;

/// A decoded report.
pub(super) struct Reported {
    pub(super) osd: Option<OsdStat>,
    pub(super) pgs: Vec<(PgId, PgStat)>,
    pub(super) stores: Vec<(PoolId, StoreStatfs)>,
}

/// Decodes a report of `osd`, without PGs that it does not lead by this map, and pools that do not
/// exist.
pub(super) fn read(osd: OsdId, report: &PgStatsReport, map: &OsdMap, now: UTime) -> Result<Reported> {
    let mut out = Reported {
        osd: None,
        pgs: Vec::new(),
        stores: Vec::new(),
    };
    let fits = |blob: &Blob| blob.0.len() <= MAX_BYTES;
    if !report.osd_stat.0.is_empty() && fits(&report.osd_stat) {
        out.osd = Some(osd_stat(decode_all(&report.osd_stat)?, map));
    }
    for (pg, blob) in &report.pgs {
        let leads = || map.map_pg(*pg).acting_primary == Some(osd);
        if map.has_pg(*pg) && fits(blob) && leads() {
            out.pgs.push((*pg, pg_stat(decode_all(blob)?, map.epoch, now)));
        }
    }
    for (pool, blob) in &report.pool_statfs {
        if map.pools.contains_key(pool) {
            out.stores.push((*pool, statfs(decode_all(blob)?)));
        }
    }
    Ok(out)
}

fn osd_stat(mut s: OsdStat, map: &OsdMap) -> OsdStat {
    s.statfs = statfs(s.statfs);
    s.hb_peers.truncate(MAX_LIST);
    s.hb_pingtime.retain(|osd, _| map.exists(*osd));
    s.op_queue_age_hist.bins.truncate(MAX_BINS);
    s.os_perf_stat.bound();
    s.num_shards_repaired = s.num_shards_repaired.min(MAX.unsigned_abs());
    s.snap_trim_queue_len = s.snap_trim_queue_len.max(0);
    s.num_snap_trimming = s.num_snap_trimming.max(0);
    s
}

fn statfs(mut s: StoreStatfs) -> StoreStatfs {
    s.bound();
    s
}

/// Cuts epochs and times to the present: future ones would stay in force, whatever the next primary
/// says.
fn pg_stat(mut s: PgStat, epoch: Epoch, now: UTime) -> PgStat {
    for e in [
        &mut s.reported_epoch,
        &mut s.last_epoch_clean,
        &mut s.mapping_epoch,
        &mut s.created,
    ] {
        *e = (*e).min(epoch);
    }
    for t in [
        &mut s.last_fresh,
        &mut s.last_change,
        &mut s.last_active,
        &mut s.last_clean,
        &mut s.last_unstale,
        &mut s.last_became_active,
        &mut s.last_undegraded,
        &mut s.last_fullsized,
        &mut s.last_peered,
        &mut s.last_became_peered,
        &mut s.last_scrub_stamp,
        &mut s.last_deep_scrub_stamp,
        &mut s.last_clean_scrub_stamp,
    ] {
        *t = (*t).min(now);
    }
    for n in [&mut s.log_size, &mut s.ondisk_log_size] {
        *n = (*n).clamp(0, MAX);
    }
    for list in [&mut s.up, &mut s.acting] {
        list.truncate(MAX_LIST);
    }
    s.blocked_by.truncate(MAX_LIST);
    s.avail_no_missing.truncate(MAX_LIST);
    s.stats.sum.bound();
    s
}
