//! Lists and statistics of pools.

use serde_json::{Map, Value, json};
use spirula_maps::{ObjectStatSum, PoolId};
use spirula_text::{Align, Table, size::bytes, size::count};

use super::osd_dump::{pool_json, pools_text};
use super::{Call, Done, Reply, commands, errno, misc, now, refuse};
use crate::core::{Turn, View};

commands! {
    "osd pool ls detail?:{detail}" "osd" "r" ls, "list the pools";
    "osd pool stats pool_name?:Poolname" "osd" "r" stats, "show what goes on in pools";
    "osd pool get-quota pool:Poolname" "osd" "r" get_quota, "show a pool's quotas";
    "osd pool application get pool?:Poolname app?:String key?:String" "osd" "r" app_get, "show the pools' applications";
    "osd pool autoscale-status format?:String" "mgr" "r" autoscale, "show the pools' sizes and numbers of PGs";
}

/// A pool's id.
pub(super) fn pool_id(m: &View, name: &str) -> Result<PoolId, Reply> {
    let missing = || Reply::error(errno::ENOENT, format!("unrecognized pool '{name}'"));
    m.state.osd.map.pool_id(name).ok_or_else(missing)
}

fn ls(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = &m.view.state.osd.map;
    if call.args.opt_str("detail").is_none() {
        let names: Vec<&str> = map.pools.keys().filter_map(|id| map.pool_name(*id)).collect();
        return now(match call.format.is_structured() {
            true => Reply::json(call.format, &json!(names)),
            false => Reply::text(names.iter().map(|n| format!("{n}\n")).collect::<String>()),
        });
    }
    if !call.format.is_structured() {
        return now(Reply::text(pools_text(map) + "\n"));
    }
    let v: Vec<Value> = map
        .pools
        .iter()
        .map(|(id, p)| {
            let mut v = Map::from_iter([
                ("pool_id".to_owned(), json!(id)),
                (
                    "pool_name".to_owned(),
                    json!(map.pool_name(*id).unwrap_or_default()),
                ),
            ]);
            v.extend(pool_json(p));
            Value::Object(v)
        })
        .collect();
    now(Reply::json(call.format, &json!(v)))
}

/// Client I/O of a pool, or of all: per second, bytes and operations.
pub(super) struct Rates {
    pub(super) read_bytes: u64,
    pub(super) write_bytes: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    recovered_bytes: u64,
    recovered_objects: u64,
    recovered_keys: u64,
}

pub(super) fn rates(m: &View, pool: Option<PoolId>) -> Rates {
    let (d, seconds): (ObjectStatSum, f64) = m.state.stats.delta(pool);
    let per = |n: i64, unit: i64| {
        if seconds <= 0.0 {
            0
        } else {
            ((n.max(0) * unit) as f64 / seconds) as u64
        }
    };
    Rates {
        read_bytes: per(d.num_rd_kb, 1024),
        write_bytes: per(d.num_wr_kb, 1024),
        reads: per(d.num_rd, 1),
        writes: per(d.num_wr, 1),
        recovered_bytes: per(d.num_bytes_recovered, 1),
        recovered_objects: per(d.num_objects_recovered, 1),
        recovered_keys: per(d.num_keys_recovered, 1),
    }
}

fn nonzero(fields: [(&str, u64); 4]) -> Map<String, Value> {
    fields
        .into_iter()
        .filter(|(_, n)| *n > 0)
        .map(|(k, n)| (k.to_owned(), json!(n)))
        .collect()
}

/// Client I/O as JSON; empty when there is none.
pub(super) fn io_rate(m: &View, pool: Option<PoolId>) -> Map<String, Value> {
    let r = rates(m, pool);
    if r.reads + r.writes + r.read_bytes + r.write_bytes == 0 {
        return Map::new();
    }
    let mut out = nonzero([
        ("read_bytes_sec", r.read_bytes),
        ("write_bytes_sec", r.write_bytes),
        ("", 0),
        ("", 0),
    ]);
    out.insert("read_op_per_sec".into(), json!(r.reads));
    out.insert("write_op_per_sec".into(), json!(r.writes));
    out
}

/// Recovery as JSON; empty when there is none.
pub(super) fn recovery_rate(m: &View, pool: Option<PoolId>) -> Map<String, Value> {
    let r = rates(m, pool);
    nonzero([
        ("recovering_objects_per_sec", r.recovered_objects),
        ("recovering_bytes_per_sec", r.recovered_bytes),
        ("recovering_keys_per_sec", r.recovered_keys),
        ("", 0),
    ])
}

/// Client I/O in words.
pub(super) fn io_line(m: &View, pool: Option<PoolId>) -> Option<String> {
    let r = rates(m, pool);
    let mut parts = Vec::new();
    if r.read_bytes > 0 {
        parts.push(format!("{}/s rd", bytes(r.read_bytes)));
    }
    if r.write_bytes > 0 {
        parts.push(format!("{}/s wr", bytes(r.write_bytes)));
    }
    if r.reads + r.writes > 0 {
        parts.push(format!("{} op/s rd, {} op/s wr", count(r.reads), count(r.writes)));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Recovery in words.
pub(super) fn recovery_line(m: &View, pool: Option<PoolId>) -> Option<String> {
    let r = rates(m, pool);
    let mut parts = Vec::new();
    if r.recovered_bytes > 0 {
        parts.push(format!("{}/s", bytes(r.recovered_bytes)));
    }
    if r.recovered_keys > 0 {
        parts.push(format!("{} keys/s", count(r.recovered_keys)));
    }
    if r.recovered_objects > 0 {
        parts.push(format!("{} objects/s", count(r.recovered_objects)));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn stats(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let ids: Vec<PoolId> = match call.args.opt_str("pool_name") {
        Some(name) => vec![pool_id(m.view, &name)?],
        None => m.view.state.osd.map.pools.keys().copied().collect(),
    };
    if ids.is_empty() {
        return now(Reply::text("there are no pools!"));
    }
    if call.format.is_structured() {
        let v: Vec<Value> = ids
            .iter()
            .map(|id| {
                json!({"pool_name": m.view.state.osd.map.pool_name(*id).unwrap_or_default(), "pool_id": id,
                    "recovery": backlog(m.view, *id), "recovery_rate": recovery_rate(m.view, Some(*id)),
                    "client_io_rate": io_rate(m.view, Some(*id))})
            })
            .collect();
        return now(Reply::json(call.format, &json!(v)));
    }
    let mut t = String::new();
    for id in ids {
        t.push_str(&format!(
            "pool {} id {id}\n",
            m.view.state.osd.map.pool_name(id).unwrap_or_default()
        ));
        let s = m.view.state.stats.pool(id).sum;
        let before = t.len();
        for (n, what) in [
            (s.num_objects_degraded, "degraded"),
            (s.num_objects_misplaced, "misplaced"),
        ] {
            if n > 0 && s.num_object_copies > 0 {
                let share = n as f64 / s.num_object_copies as f64 * 100.0;
                t.push_str(&format!(
                    "  {n}/{} objects {what} ({share:.3}%)\n",
                    s.num_object_copies
                ));
            }
        }
        if let Some(r) = recovery_line(m.view, Some(id)) {
            t.push_str(&format!("  recovery io {r}\n"));
        }
        if let Some(io) = io_line(m.view, Some(id)) {
            t.push_str(&format!("  client io {io}\n"));
        }
        if t.len() == before {
            t.push_str("  nothing is going on\n");
        }
        t.push('\n');
    }
    now(Reply::text(t))
}

fn backlog(m: &View, id: PoolId) -> Map<String, Value> {
    let s = m.state.stats.pool(id).sum;
    let mut out = Map::new();
    for (n, what) in [
        (s.num_objects_degraded, "degraded"),
        (s.num_objects_misplaced, "misplaced"),
    ] {
        if n > 0 && s.num_object_copies > 0 {
            out.insert(format!("{what}_objects"), json!(n));
            out.insert(format!("{what}_total"), json!(s.num_object_copies));
            out.insert(
                format!("{what}_ratio"),
                json!(n as f64 / s.num_object_copies as f64),
            );
        }
    }
    out
}

fn get_quota(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("pool")?;
    let id = pool_id(m.view, &name)?;
    let Some(p) = m.view.state.osd.map.pool(id) else {
        return refuse(errno::ENOENT, "");
    };
    let s = m.view.state.stats.pool(id).sum;
    if call.format.is_structured() {
        let v = json!({"pool_name": name, "pool_id": id, "quota_max_objects": p.quota_max_objects,
            "current_num_objects": s.num_objects, "quota_max_bytes": p.quota_max_bytes,
            "current_num_bytes": s.num_bytes});
        return now(Reply::json(call.format, &v));
    }
    let objects = match p.quota_max_objects {
        0 => "N/A".to_owned(),
        n => format!(
            "{} objects  (current num objects: {} objects)",
            count(n),
            s.num_objects
        ),
    };
    let size = match p.quota_max_bytes {
        0 => "N/A".to_owned(),
        n => format!("{}  (current num bytes: {} bytes)", bytes(n), s.num_bytes),
    };
    now(Reply::text(format!(
        "quotas for pool '{name}':\n  max objects: {objects}\n  max bytes  : {size}\n"
    )))
}

fn app_get(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let Some(name) = call.args.opt_str("pool") else {
        let all: Map<String, Value> = m
            .view
            .state
            .osd
            .map
            .pools
            .iter()
            .map(|(id, p)| {
                (
                    m.view.state.osd.map.pool_name(*id).unwrap_or_default().to_owned(),
                    json!(p.application_metadata),
                )
            })
            .collect();
        return misc::pretty(call.format, &Value::Object(all));
    };
    let id = pool_id(m.view, &name)?;
    let Some(p) = m.view.state.osd.map.pool(id) else {
        return refuse(errno::ENOENT, "");
    };
    let Some(app) = call.args.opt_str("app") else {
        return misc::pretty(call.format, &json!(p.application_metadata));
    };
    let Some(values) = p.application_metadata.get(&app) else {
        return refuse(errno::ENOENT, format!("pool '{name}' has no application '{app}'"));
    };
    match call.args.opt_str("key") {
        None => misc::pretty(call.format, &json!(values)),
        Some(key) => match values.get(&key) {
            Some(v) => now(Reply::text(format!("{v}\n"))),
            None => refuse(
                errno::ENOENT,
                format!("application '{app}' on pool '{name}' does not have key '{key}'"),
            ),
        },
    }
}

fn autoscale(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = m.view.state.osd.map.clone();
    let raw = m.view.state.stats.raw(&map).total;
    if call.format.is_structured() {
        let v: Vec<Value> = map
            .pools
            .iter()
            .map(|(id, p)| {
                let stored = m.view.state.stats.pool(*id).stored();
                let rate = f64::from(map.raw_used_rate(*id));
                let used = stored as f64 * rate;
                let ratio = if raw == 0 { 0.0 } else { used / raw as f64 };
                json!({"actual_capacity_ratio": ratio, "actual_raw_used": used, "bias": 1.0,
                    "bulk": p.flags.contains(spirula_maps::PoolFlags::BULK), "capacity_ratio": ratio,
                    "effective_target_ratio": 0.0, "logical_used": stored,
                    "pg_autoscale_mode": p.autoscale_mode.name(), "pg_num_final": p.pg_num,
                    "pg_num_target": p.pg_num_target, "pool_id": id,
                    "pool_name": map.pool_name(*id).unwrap_or_default(), "raw_used": used,
                    "raw_used_rate": rate, "subtree_capacity": raw, "would_adjust": false})
            })
            .collect();
        return now(Reply::json(call.format, &json!(v)));
    }
    use Align::{Left, Right};
    let mut t = Table::new(&[("POOL", Left, Left)]);
    for h in [
        "SIZE",
        "TARGET SIZE",
        "RATE",
        "RAW CAPACITY",
        "RATIO",
        "TARGET RATIO",
        "EFFECTIVE RATIO",
        "BIAS",
        "PG_NUM",
        "NEW PG_NUM",
    ] {
        t.column(h, Right, Right);
    }
    t.column("AUTOSCALE", Left, Left);
    t.column("BULK", Left, Left);
    for (id, p) in &map.pools {
        let stored = m.view.state.stats.pool(*id).stored();
        let rate = f64::from(map.raw_used_rate(*id));
        let ratio = if raw == 0 {
            0.0
        } else {
            stored as f64 * rate / raw as f64
        };
        let bulk = if p.flags.contains(spirula_maps::PoolFlags::BULK) {
            "True"
        } else {
            "False"
        };
        t.row([
            map.pool_name(*id).unwrap_or_default().to_owned(),
            stored.to_string(),
            String::new(),
            format!("{rate:?}"),
            format!("{}M", raw >> 20),
            format!("{ratio:.4}"),
            String::new(),
            String::new(),
            "1.0".to_owned(),
            p.pg_num.to_string(),
            String::new(),
            p.autoscale_mode.name().to_owned(),
            bulk.to_owned(),
        ]);
    }
    // The manager's tables have two spaces after the last column too.
    let lines = t.render().lines().map(|l| format!("{l}  \n")).collect::<String>();
    now(Reply::text(lines))
}
