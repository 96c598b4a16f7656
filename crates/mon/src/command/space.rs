//! `ceph df`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use spirula_maps::{PoolId, StoreStatfs};
use spirula_text::{Align, Table, percent, size::bytes, size::count};

use super::{Call, Done, Reply, commands, now};
use crate::core::{Turn, View};
use crate::service::PoolTotals;

commands! {
    "df detail?:{detail}" "mon" "r" df, "show how full the cluster is";
}

/// Figures of a pool as `df` shows them, bytes.
struct PoolSpace {
    totals: PoolTotals,
    used: u64,
    omap_used: u64,
    max_avail: u64,
    /// Raw bytes for one byte of data.
    rate: f64,
}

impl PoolSpace {
    fn of(m: &View, id: PoolId) -> Self {
        let totals = m.state.stats.pool(id);
        let rate = f64::from(m.state.osd.map.raw_used_rate(id));
        let omap_used = u64::try_from(totals.store.omap_allocated).unwrap_or(0);
        Self {
            used: totals.used(),
            omap_used,
            max_avail: m.state.stats.max_avail(&m.state.osd.map, id),
            rate,
            totals,
        }
    }

    fn share_used(&self) -> f64 {
        let available = self.max_avail as f64 * self.rate;
        if self.used == 0 {
            0.0
        } else {
            f64::from((self.used as f64 / (self.used as f64 + available)) as f32)
        }
    }

    /// User bytes in omaps.
    fn omap(&self) -> u64 {
        u64::try_from(self.totals.sum.num_omap_bytes).unwrap_or(0)
    }

    fn data(&self) -> u64 {
        self.totals.stored()
    }

    fn stored(&self) -> u64 {
        self.data() + self.omap()
    }

    fn objects(&self) -> u64 {
        u64::try_from(self.totals.sum.num_objects).unwrap_or(0)
    }

    fn json(&self, m: &View, id: PoolId, detail: bool) -> Value {
        let s = &self.totals.sum;
        let mut v = Map::new();
        let mut put = |k: &str, x: Value| {
            v.insert(k.to_owned(), x);
        };
        put("stored", json!(self.stored()));
        if detail {
            put("stored_data", json!(self.data()));
            put("stored_omap", json!(self.omap()));
        }
        put("objects", json!(s.num_objects));
        put("kb_used", json!(self.used.div_ceil(1024)));
        put("bytes_used", json!(self.used));
        if detail {
            put(
                "data_bytes_used",
                json!(self.used - self.omap_used.min(self.used)),
            );
            put("omap_bytes_used", json!(self.omap_used));
        }
        put("percent_used", json!(self.share_used()));
        put("max_avail", json!(self.max_avail));
        if detail {
            let pool = m.state.osd.map.pool(id);
            put("quota_objects", json!(pool.map_or(0, |p| p.quota_max_objects)));
            put("quota_bytes", json!(pool.map_or(0, |p| p.quota_max_bytes)));
            put("dirty", json!(s.num_objects_dirty.max(0)));
            put("rd", json!(s.num_rd));
            put("rd_bytes", json!(s.num_rd_kb.saturating_mul(1024)));
            put("wr", json!(s.num_wr));
            put("wr_bytes", json!(s.num_wr_kb.saturating_mul(1024)));
            put(
                "compress_bytes_used",
                json!(self.totals.store.data_compressed_allocated),
            );
            put(
                "compress_under_bytes",
                json!(self.totals.store.data_compressed_original),
            );
            put("stored_raw", json!((self.stored() as f64 * self.rate) as u64));
            put("avail_raw", json!((self.max_avail as f64 * self.rate) as u64));
        }
        Value::Object(v)
    }
}

fn raw_json(raw: &StoreStatfs) -> Map<String, Value> {
    let ratio = if raw.total == 0 {
        0.0
    } else {
        f64::from((raw.used_raw() as f64 / raw.total as f64) as f32)
    };
    Map::from_iter([
        ("total_bytes".to_owned(), json!(raw.total)),
        ("total_avail_bytes".to_owned(), json!(raw.available)),
        ("total_used_bytes".to_owned(), json!(raw.used_raw())),
        ("total_used_raw_bytes".to_owned(), json!(raw.used_raw())),
        ("total_used_raw_ratio".to_owned(), json!(ratio)),
    ])
}

/// Sums over the OSDs that are in, by device class.
fn by_class(m: &View) -> BTreeMap<String, StoreStatfs> {
    let mut out: BTreeMap<String, StoreStatfs> = BTreeMap::new();
    for (osd, stat) in m
        .state
        .stats
        .osds
        .iter()
        .filter(|(o, _)| m.state.osd.map.is_in(**o))
    {
        let class = m
            .state
            .osd
            .map
            .crush
            .map()
            .class_of(osd.item())
            .unwrap_or_default();
        out.entry(class.to_owned()).or_default().add(&stat.statfs);
    }
    out
}

fn df(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let detail = call.args.opt_str("detail").is_some();
    let raw = m.view.state.stats.raw(&m.view.state.osd.map);
    let ids: Vec<PoolId> = m.view.state.osd.map.pools.keys().copied().collect();
    if !call.format.is_structured() {
        return now(Reply::text(df_text(m.view, &raw, &ids, detail)));
    }
    let mut stats = raw_json(&raw);
    let n = m.view.state.stats.osds.len();
    stats.insert("num_osds".into(), json!(n));
    stats.insert("num_per_pool_osds".into(), json!(n));
    stats.insert("num_per_pool_omap_osds".into(), json!(n));
    let classes: Map<String, Value> = by_class(m.view)
        .into_iter()
        .map(|(k, s)| (k, Value::Object(raw_json(&s))))
        .collect();
    let pools: Vec<Value> = ids
        .iter()
        .map(|id| {
            let name = m.view.state.osd.map.pool_name(*id).unwrap_or_default();
            json!({"name": name, "id": id, "stats": PoolSpace::of(m.view, *id).json(m.view, *id, detail)})
        })
        .collect();
    now(Reply::json(
        call.format,
        &json!({"stats": stats, "stats_by_class": classes, "pools": pools}),
    ))
}

fn raw_table(m: &View, raw: &StoreStatfs) -> String {
    use Align::{Left, Right};
    let mut t = Table::new(&[
        ("CLASS", Left, Left),
        ("SIZE", Right, Right),
        ("AVAIL", Right, Right),
        ("USED", Right, Right),
        ("RAW USED", Right, Right),
        ("%RAW USED", Right, Right),
    ]);
    let mut line = |name: String, s: &StoreStatfs| {
        let share = if s.total == 0 {
            0.0
        } else {
            s.used_raw() as f64 / s.total as f64
        };
        let used = bytes(s.used_raw());
        t.row([
            name,
            bytes(s.total),
            bytes(s.available),
            used.clone(),
            used,
            percent(share),
        ]);
    };
    for (class, s) in by_class(m) {
        line(class, &s);
    }
    line("TOTAL".to_owned(), raw);
    t.render()
}

fn df_text(m: &View, raw: &StoreStatfs, ids: &[PoolId], detail: bool) -> String {
    use Align::{Left, Right};
    let mut t = Table::default();
    t.column("POOL", Left, Left);
    let plain = ["ID", "PGS", "STORED", "OBJECTS", "USED", "%USED", "MAX AVAIL"];
    let full = [
        "ID",
        "PGS",
        "STORED",
        "(DATA)",
        "(OMAP)",
        "OBJECTS",
        "USED",
        "(DATA)",
        "(OMAP)",
        "%USED",
        "MAX AVAIL",
        "QUOTA OBJECTS",
        "QUOTA BYTES",
        "DIRTY",
        "USED COMPR",
        "UNDER COMPR",
    ];
    for heading in if detail { &full[..] } else { &plain[..] } {
        t.column(heading, Right, Right);
    }
    for id in ids {
        let Some(pool) = m.state.osd.map.pool(*id) else {
            continue;
        };
        let s = PoolSpace::of(m, *id);
        let mut row = vec![
            m.state.osd.map.pool_name(*id).unwrap_or_default().to_owned(),
            id.to_string(),
        ];
        row.extend([pool.pg_num.to_string(), bytes(s.stored())]);
        if detail {
            row.extend([bytes(s.data()), bytes(s.omap())]);
        }
        row.extend([count(s.objects()), bytes(s.used)]);
        if detail {
            row.extend([bytes(s.used - s.omap_used.min(s.used)), bytes(s.omap_used)]);
        }
        row.extend([percent(s.share_used()), bytes(s.max_avail)]);
        if detail {
            let quota = |n: u64, f: fn(u64) -> String| if n == 0 { "N/A".to_owned() } else { f(n) };
            let signed = |n: i64| bytes(u64::try_from(n).unwrap_or(0));
            row.extend([
                quota(pool.quota_max_objects, count),
                quota(pool.quota_max_bytes, bytes),
                "N/A".to_owned(),
                signed(s.totals.store.data_compressed_allocated),
                signed(s.totals.store.data_compressed_original),
            ]);
        }
        t.row(row);
    }
    format!(
        "--- RAW STORAGE ---\n{} \n--- POOLS ---\n{}",
        raw_table(m, raw),
        t.render()
    )
}
