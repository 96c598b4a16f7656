//! Statistics of PGs in full.

use serde_json::{Map, Value, json};
use spirula_maps::{ObjectStatSum, OsdId, OsdStat, PgId, PgStat, PoolId, Positions, StoreStatfs};
use spirula_text::{Align, Table, size::bytes};

use super::{Call, Done, Reply, commands, now};
use crate::core::{Turn, View};
use crate::health::state_text;
use crate::service::PoolTotals;

commands! {
    "pg dump dumpcontents?:{all|summary|sum|delta|pools|osds|pgs|pgs_brief}..." "pg" "r" dump, "show the statistics";
    "pg dump_json dumpcontents?:{all|summary|sum|pools|osds|pgs}..." "pg" "r" dump_json, "show the statistics as JSON";
    "pg dump_pools_json" "pg" "r" dump_pools_json, "show the pools' statistics as JSON";
}

/// The remark below tables that show omap figures.
pub(super) const OMAP_NOTE: &str = "\n* NOTE: Omap statistics are gathered during deep scrub and may be inaccurate soon afterwards depending on utilization. See http://docs.ceph.com/en/latest/dev/placement-group/#omap-statistics for further details.\n";

macro_rules! sum_fields {
    ($s:ident; $($name:literal $field:ident),* $(,)?) => {{
        let mut v = Map::new();
        $(v.insert($name.to_owned(), json!($s.$field));)*
        Value::Object(v)
    }};
}

/// Sums of objects as JSON.
pub(super) fn sum_json(s: &ObjectStatSum) -> Value {
    sum_fields!(s;
        "num_bytes" num_bytes, "num_objects" num_objects, "num_object_clones" num_object_clones,
        "num_object_copies" num_object_copies, "num_objects_missing_on_primary" num_objects_missing_on_primary,
        "num_objects_missing" num_objects_missing, "num_objects_degraded" num_objects_degraded,
        "num_objects_misplaced" num_objects_misplaced, "num_objects_unfound" num_objects_unfound,
        "num_objects_dirty" num_objects_dirty, "num_whiteouts" num_whiteouts, "num_read" num_rd,
        "num_read_kb" num_rd_kb, "num_write" num_wr, "num_write_kb" num_wr_kb, "num_scrub_errors" num_scrub_errors,
        "num_shallow_scrub_errors" num_shallow_scrub_errors, "num_deep_scrub_errors" num_deep_scrub_errors,
        "num_objects_recovered" num_objects_recovered, "num_bytes_recovered" num_bytes_recovered,
        "num_keys_recovered" num_keys_recovered, "num_objects_omap" num_objects_omap,
        "num_objects_hit_set_archive" num_objects_hit_set_archive,
        "num_bytes_hit_set_archive" num_bytes_hit_set_archive, "num_flush" num_flush, "num_flush_kb" num_flush_kb,
        "num_evict" num_evict, "num_evict_kb" num_evict_kb, "num_promote" num_promote,
        "num_flush_mode_high" num_flush_mode_high, "num_flush_mode_low" num_flush_mode_low,
        "num_evict_mode_some" num_evict_mode_some, "num_evict_mode_full" num_evict_mode_full,
        "num_objects_pinned" num_objects_pinned, "num_legacy_snapsets" num_legacy_snapsets,
        "num_large_omap_objects" num_large_omap_objects, "num_objects_manifest" num_objects_manifest,
        "num_omap_bytes" num_omap_bytes, "num_omap_keys" num_omap_keys, "num_objects_repaired" num_objects_repaired,
    )
}

fn statfs_fields(s: &StoreStatfs) -> Value {
    sum_fields!(s;
        "total" total, "available" available, "internally_reserved" internally_reserved, "allocated" allocated,
        "data_stored" data_stored, "data_compressed" data_compressed,
        "data_compressed_allocated" data_compressed_allocated, "data_compressed_original" data_compressed_original,
        "omap_allocated" omap_allocated, "internal_metadata" internal_metadata,
    )
}

/// A PG as JSON.
pub(super) fn pg_json(pg: PgId, s: &PgStat) -> Value {
    let t = |t: spirula_denc::UTime| t.to_string();
    let none: [u8; 0] = [];
    json!({
        "pgid": pg.to_string(), "version": s.version.to_string(), "reported_seq": s.reported_seq,
        "reported_epoch": s.reported_epoch, "state": state_text(s.state), "last_fresh": t(s.last_fresh),
        "last_change": t(s.last_change), "last_active": t(s.last_active), "last_peered": t(s.last_peered),
        "last_clean": t(s.last_clean), "last_became_active": t(s.last_became_active),
        "last_became_peered": t(s.last_became_peered), "last_unstale": t(s.last_unstale),
        "last_undegraded": t(s.last_undegraded), "last_fullsized": t(s.last_fullsized),
        "mapping_epoch": s.mapping_epoch, "log_start": s.log_start.to_string(),
        "ondisk_log_start": s.ondisk_log_start.to_string(), "created": s.created,
        "last_epoch_clean": s.last_epoch_clean, "parent": s.parent.to_string(),
        "parent_split_bits": s.parent_split_bits, "last_scrub": s.last_scrub.to_string(),
        "last_scrub_stamp": t(s.last_scrub_stamp), "last_deep_scrub": s.last_deep_scrub.to_string(),
        "last_deep_scrub_stamp": t(s.last_deep_scrub_stamp), "last_clean_scrub_stamp": t(s.last_clean_scrub_stamp),
        "log_size": s.log_size, "ondisk_log_size": s.ondisk_log_size, "stats_invalid": s.stats_invalid,
        "dirty_stats_invalid": s.dirty_stats_invalid, "omap_stats_invalid": s.omap_stats_invalid,
        "hitset_stats_invalid": s.hitset_stats_invalid, "hitset_bytes_stats_invalid": s.hitset_bytes_stats_invalid,
        "pin_stats_invalid": s.pin_stats_invalid, "manifest_stats_invalid": s.manifest_stats_invalid,
        "snaptrimq_len": s.snaptrimq_len, "stat_sum": sum_json(&s.stats.sum), "up": s.up, "acting": s.acting,
        "avail_no_missing": s.avail_no_missing.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "object_location_counts": none, "blocked_by": s.blocked_by, "up_primary": s.up_primary,
        "acting_primary": s.acting_primary, "purged_snaps": none,
    })
}

/// An OSD's latencies.
pub(super) fn perf_json(s: &OsdStat) -> Value {
    let p = &s.os_perf_stat;
    json!({"commit_latency_ms": p.commit_latency_ns / 1_000_000, "apply_latency_ms": p.apply_latency_ns / 1_000_000,
        "commit_latency_ns": p.commit_latency_ns, "apply_latency_ns": p.apply_latency_ns})
}

fn osd_json(osd: Option<OsdId>, s: &OsdStat) -> Value {
    let f = &s.statfs;
    let kb = |n: i64| n / 1024;
    let mut v = Map::new();
    if let Some(o) = osd {
        v.insert("osd".into(), json!(o));
    }
    let none: [u8; 0] = [];
    let rest = json!({
        "up_from": s.up_from, "seq": s.seq, "num_pgs": s.num_pgs, "num_osds": s.num_osds,
        "num_per_pool_osds": s.num_per_pool_osds, "num_per_pool_omap_osds": s.num_per_pool_omap_osds,
        "kb": f.total / 1024, "kb_used": f.used_raw() / 1024, "kb_used_data": kb(f.allocated),
        "kb_used_omap": kb(f.omap_allocated), "kb_used_meta": kb(f.internal_metadata), "kb_avail": f.available / 1024,
        "statfs": statfs_fields(f), "hb_peers": s.hb_peers, "snap_trim_queue_len": s.snap_trim_queue_len,
        "num_snap_trimming": s.num_snap_trimming, "num_shards_repaired": s.num_shards_repaired,
        "op_queue_age_hist": {"histogram": s.op_queue_age_hist.bins, "upper_bound": 1u64 << s.op_queue_age_hist.bins.len().min(63)},
        "perf_stat": perf_json(s), "alerts": none, "network_ping_times": none,
    });
    if let Value::Object(o) = rest {
        v.extend(o);
    }
    Value::Object(v)
}

/// A pool's sums, or all pools'.
pub(super) fn totals_json(t: &PoolTotals) -> Map<String, Value> {
    Map::from_iter([
        ("stat_sum".to_owned(), sum_json(&t.sum)),
        ("store_stats".to_owned(), statfs_fields(&t.store)),
        ("log_size".to_owned(), json!(t.log_size)),
        ("ondisk_log_size".to_owned(), json!(t.ondisk_log_size)),
        ("up".to_owned(), json!(t.up)),
        ("acting".to_owned(), json!(t.acting)),
        ("num_store_stats".to_owned(), json!(t.stores)),
    ])
}

/// The sum of all OSDs' statistics.
pub(super) fn osd_sum_json(m: &View) -> Value {
    osd_json(None, &osd_sum(m))
}

fn osd_sum(m: &View) -> OsdStat {
    let mut sum = OsdStat {
        statfs: m.state.stats.raw(&m.state.osd.map),
        ..OsdStat::default()
    };
    sum.num_shards_repaired = m.state.stats.osds.values().map(|s| s.num_shards_repaired).sum();
    let n = u32::try_from(m.state.stats.osds.len()).unwrap_or(0);
    sum.num_pgs = m.state.stats.osds.values().map(|s| s.num_pgs).sum();
    (sum.num_osds, sum.num_per_pool_osds, sum.num_per_pool_omap_osds) = (n, n, n);
    sum
}

fn pgs_json(m: &View) -> Value {
    m.state.stats.pgs.iter().map(|(pg, s)| pg_json(*pg, s)).collect()
}

/// Each pool's sums.
pub(super) fn pools_json(m: &View) -> Value {
    m.state
        .osd
        .map
        .pools
        .iter()
        .rev()
        .map(|(id, p)| {
            let mut v = Map::from_iter([
                ("poolid".to_owned(), json!(id)),
                ("num_pg".to_owned(), json!(p.pg_num)),
            ]);
            v.extend(totals_json(&m.state.stats.pool(*id)));
            Value::Object(v)
        })
        .collect()
}

fn osds_json(m: &View) -> Value {
    m.state
        .stats
        .osds
        .iter()
        .rev()
        .map(|(o, s)| osd_json(Some(*o), s))
        .collect()
}

fn head(m: &View) -> Map<String, Value> {
    Map::from_iter([
        ("version".to_owned(), json!(m.state.stats.version())),
        ("stamp".to_owned(), json!(m.state.stats.stamp.to_string())),
        ("last_osdmap_epoch".to_owned(), json!(0)),
        ("last_pg_scan".to_owned(), json!(0)),
    ])
}

fn sums(m: &View) -> Map<String, Value> {
    let (delta, seconds) = m.state.stats.delta(None);
    let mut d = totals_json(&PoolTotals {
        sum: delta,
        ..PoolTotals::default()
    });
    d.insert("stamp_delta".into(), json!(format!("{seconds:.6}")));
    Map::from_iter([
        (
            "pg_stats_sum".to_owned(),
            Value::Object(totals_json(&m.state.stats.total())),
        ),
        ("osd_stats_sum".to_owned(), osd_sum_json(m)),
        ("pg_stats_delta".to_owned(), Value::Object(d)),
    ])
}

fn to_json(m: &View, what: &[String]) -> Value {
    let has = |w: &str| what.iter().any(|x| x == w);
    let mut out = Map::from_iter([("pg_ready".to_owned(), json!(true))]);
    if what.is_empty() || has("all") {
        let mut map = head(m);
        map.extend(sums(m));
        map.insert("pg_stats".into(), pgs_json(m));
        map.insert("pool_stats".into(), pools_json(m));
        map.insert("osd_stats".into(), osds_json(m));
        let none: [u8; 0] = [];
        map.insert("pool_statfs".into(), json!(none));
        out.insert("pg_map".into(), Value::Object(map));
        return Value::Object(out);
    }
    if has("sum") || has("summary") {
        let mut map = head(m);
        map.extend(sums(m));
        out.insert("pg_map".into(), Value::Object(map));
    }
    if has("pools") {
        out.insert("pool_stats".into(), pools_json(m));
    }
    if has("osds") {
        out.insert("osd_stats".into(), osds_json(m));
        let none: [u8; 0] = [];
        out.insert("pool_statfs".into(), json!(none));
    }
    if has("pgs") {
        out.insert("pg_stats".into(), pgs_json(m));
    }
    if has("pgs_brief") {
        let brief: Vec<Value> = m
            .state
            .stats
            .pgs
            .iter()
            .map(|(pg, s)| {
                json!({"pgid": pg.to_string(), "state": state_text(s.state), "up": s.up, "acting": s.acting,
                    "up_primary": s.up_primary, "acting_primary": s.acting_primary})
            })
            .collect();
        out.insert("pg_stats".into(), json!(brief));
    }
    if has("delta") {
        out.insert(
            "delta".into(),
            sums(m).remove("pg_stats_delta").unwrap_or_default(),
        );
    }
    Value::Object(out)
}

const COUNTS: [&str; 10] = [
    "OBJECTS",
    "MISSING_ON_PRIMARY",
    "DEGRADED",
    "MISPLACED",
    "UNFOUND",
    "BYTES",
    "OMAP_BYTES*",
    "OMAP_KEYS*",
    "LOG",
    "DISK_LOG",
];

fn counts(s: &ObjectStatSum, log: i64, disk: i64) -> [String; 10] {
    [
        s.num_objects,
        s.num_objects_missing_on_primary,
        s.num_objects_degraded,
        s.num_objects_misplaced,
        s.num_objects_unfound,
        s.num_bytes,
        s.num_omap_bytes,
        s.num_omap_keys,
        log,
        disk,
    ]
    .map(|n| n.to_string())
}

fn pgs_table(m: &View) -> String {
    use Align::{Left, Right};
    let mut t = Table::new(&[("PG_STAT", Left, Left)]);
    for c in COUNTS {
        t.column(c, Left, Right);
    }
    for (c, a) in [
        ("STATE", Left),
        ("STATE_STAMP", Left),
        ("VERSION", Right),
        ("REPORTED", Right),
        ("UP", Right),
        ("UP_PRIMARY", Right),
        ("ACTING", Right),
        ("ACTING_PRIMARY", Right),
        ("LAST_SCRUB", Right),
        ("SCRUB_STAMP", Right),
        ("LAST_DEEP_SCRUB", Right),
        ("DEEP_SCRUB_STAMP", Right),
        ("SNAPTRIMQ_LEN", Right),
    ] {
        t.column(c, Left, a);
    }
    for (pg, s) in &m.state.stats.pgs {
        let mut row = vec![pg.to_string()];
        row.extend(counts(&s.stats.sum, s.log_size, s.ondisk_log_size));
        row.extend([
            state_text(s.state),
            s.last_change.to_string(),
            s.version.to_string(),
            format!("{}:{}", s.reported_epoch, s.reported_seq),
            s.up.to_string(),
            s.up_primary.to_string(),
            s.acting.to_string(),
            s.acting_primary.to_string(),
            s.last_scrub.to_string(),
            s.last_scrub_stamp.to_string(),
            s.last_deep_scrub.to_string(),
            s.last_deep_scrub_stamp.to_string(),
            s.snaptrimq_len.to_string(),
        ]);
        t.row(row);
    }
    t.render()
}

fn brief_table(m: &View) -> String {
    use Align::{Left, Right};
    let mut t = Table::new(&[
        ("PG_STAT", Left, Left),
        ("STATE", Left, Right),
        ("UP", Left, Right),
        ("UP_PRIMARY", Left, Right),
        ("ACTING", Left, Right),
        ("ACTING_PRIMARY", Left, Right),
    ]);
    for (pg, s) in &m.state.stats.pgs {
        t.row([
            pg.to_string(),
            state_text(s.state),
            s.up.numbers(),
            s.up_primary.to_string(),
            s.acting.numbers(),
            s.acting_primary.to_string(),
        ]);
    }
    t.render()
}

fn counts_table(first: &str, rows: Vec<Vec<String>>, headings: bool) -> String {
    let mut t = Table::new(&[(if headings { first } else { "" }, Align::Left, Align::Left)]);
    for c in COUNTS {
        t.column(if headings { c } else { "" }, Align::Left, Align::Right);
    }
    rows.into_iter().for_each(|r| t.row(r));
    t.render()
}

fn pool_rows(m: &View) -> Vec<Vec<String>> {
    let one = |id: &PoolId| {
        let t = m.state.stats.pool(*id);
        let mut row = vec![id.to_string()];
        row.extend(counts(&t.sum, t.log_size, t.ondisk_log_size));
        row
    };
    m.state.osd.map.pools.keys().rev().map(one).collect()
}

fn sum_row(m: &View) -> Vec<Vec<String>> {
    let t = m.state.stats.total();
    let mut row = vec!["sum".to_owned()];
    row.extend(counts(&t.sum, t.log_size, t.ondisk_log_size));
    vec![row]
}

fn osds_table(m: &View, each: bool) -> String {
    use Align::{Left, Right};
    let mut t = Table::new(&[
        ("OSD_STAT", Left, Left),
        ("USED", Left, Right),
        ("AVAIL", Left, Right),
        ("USED_RAW", Left, Right),
        ("TOTAL", Left, Right),
    ]);
    if each {
        t.column("HB_PEERS", Left, Right);
        t.column("PG_SUM", Left, Right);
        t.column("PRIMARY_PG_SUM", Left, Right);
    }
    let space = |f: &StoreStatfs| [f.used_raw(), f.available, f.used_raw(), f.total].map(bytes);
    if each {
        for (o, s) in m.state.stats.osds.iter().rev() {
            let mut row = vec![o.to_string()];
            row.extend(space(&s.statfs));
            let pgs = m.state.stats.pgs_of(*o);
            row.extend([
                Positions::from(s.hb_peers.clone()).to_string(),
                pgs.all.to_string(),
                pgs.led.to_string(),
            ]);
            t.row(row);
        }
    }
    let mut row = vec!["sum".to_owned()];
    row.extend(space(&m.state.stats.raw(&m.state.osd.map)));
    t.row(row);
    t.render()
}

fn head_text(m: &View) -> String {
    format!(
        "version {}\nstamp {}\nlast_osdmap_epoch 0\nlast_pg_scan 0\n",
        m.state.stats.version(),
        m.state.stats.stamp
    )
}

fn to_text(m: &View, what: &[String]) -> String {
    let has = |w: &str| what.iter().any(|x| x == w);
    if what.is_empty() || has("all") {
        return format!(
            "{}{}\n{}\n{}{}{OMAP_NOTE}",
            head_text(m),
            pgs_table(m),
            counts_table("", pool_rows(m), false),
            counts_table("", sum_row(m), false),
            osds_table(m, true)
        );
    }
    let mut t = String::new();
    let mut note = false;
    if has("summary") || has("sum") {
        t.push_str(&format!(
            "{}{}{}",
            head_text(m),
            counts_table("PG_STAT", sum_row(m), true),
            osds_table(m, false)
        ));
        note = true;
    }
    if has("pgs") {
        t.push_str(&pgs_table(m));
        note = true;
    }
    if has("pools") {
        t.push_str(&counts_table("POOLID", pool_rows(m), true));
        note = true;
    }
    if has("pgs_brief") {
        t.push_str(&brief_table(m));
    }
    if has("osds") {
        t.push_str(&osds_table(m, true));
    }
    if note {
        t.push_str(OMAP_NOTE);
    }
    t
}

fn dump(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let what = call.args.list("dumpcontents");
    let status = format!(
        "dumped {}",
        if what.is_empty() {
            "all".to_owned()
        } else {
            what.join(",")
        }
    );
    let reply = match call.format.is_structured() {
        true => Reply::json(call.format, &to_json(m.view, &what)),
        false => Reply::text(to_text(m.view, &what)),
    };
    now(reply.with_status(status))
}

fn dump_json(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let what = call.args.list("dumpcontents");
    let status = format!(
        "dumped {}",
        if what.is_empty() {
            "all".to_owned()
        } else {
            what.join(",")
        }
    );
    now(Reply::json(call.format.or_json(), &to_json(m.view, &what)).with_status(status))
}

fn dump_pools_json(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let v = json!({"pg_ready": true, "pool_stats": pools_json(m.view)});
    now(Reply::json(call.format.or_json(), &v).with_status("dumped pools"))
}
