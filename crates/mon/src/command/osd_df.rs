//! How full the OSDs are, and how fast.

use serde_json::{Value, json};
use spirula_maps::{OsdId, StoreStatfs};
use spirula_text::{Align, Table, size::bytes};

use super::osd_tree::{Line, line_json, lines, weight_text};
use super::{Call, Done, Reply, commands, errno, now, refuse};
use crate::core::{Turn, View};

commands! {
    "osd df output_method?:{plain|tree} filter_by?:{class|name} filter?:String" "osd" "r" df,
        "show how full the OSDs are";
    "osd perf" "osd" "r" perf, "show the OSDs' commit latencies";
    "osd blocked-by" "osd" "r" blocked_by, "count which OSDs keep PGs from peering";
}

/// Sums of a line: an OSD's store, or that of all below a bucket.
struct Space {
    line: Line,
    sum: StoreStatfs,
    pgs: Option<usize>,
}

fn meta(s: &StoreStatfs) -> u64 {
    u64::try_from(s.internal_metadata).unwrap_or(0)
}

fn data(s: &StoreStatfs) -> u64 {
    u64::try_from(s.allocated).unwrap_or(0)
}

fn omap(s: &StoreStatfs) -> u64 {
    u64::try_from(s.omap_allocated).unwrap_or(0)
}

fn use_percent(s: &StoreStatfs) -> f64 {
    if s.total == 0 {
        0.0
    } else {
        s.used_raw() as f64 / s.total as f64 * 100.0
    }
}

fn unknown_filter<T>(name: &str) -> Result<T, Reply> {
    let text = format!("'{name}' not a pool, crush node or device class name");
    refuse(errno::EINVAL, text)
}

fn collect(m: &View, call: &Call<'_>, tree: bool) -> Result<Vec<Space>, Reply> {
    let map = &m.state.osd.map;
    let crush = map.crush.map().clone();
    let filter = call.args.opt_str("filter");
    let by = call.args.opt_str("filter_by");
    let mut root = None;
    let mut class = None;
    if let (Some(by), None) = (&by, &filter) {
        return refuse(errno::EINVAL, format!("must specify filter for filter_by '{by}'"));
    }
    match (by.as_deref(), filter) {
        (Some("class"), Some(c)) => {
            if crush.class_id(&c).is_none() {
                return unknown_filter(&c);
            }
            class = Some(c);
        }
        (_, Some(name)) => match crush.item_id(&name) {
            Some(id) => root = Some(id),
            None => return unknown_filter(&name),
        },
        _ => {}
    }
    let show = |item: i32| class.as_deref().is_none_or(|c| crush.class_of(item) == Some(c));
    let all = class.is_none();
    let out = lines(&crush, root, false, &show, all)
        .into_iter()
        .filter(|l| tree || l.id >= 0)
        .map(|line| {
            let mut sum = StoreStatfs::default();
            let osd = OsdId::of_item(line.id);
            let below: Vec<OsdId> = match osd {
                Some(osd) => vec![osd],
                None => {
                    let all = map.osds_below(line.id).into_iter();
                    all.filter(|o| show(o.item())).collect()
                }
            };
            for osd in below.iter().filter(|o| map.exists(**o)) {
                if let Some(s) = m.state.stats.osds.get(osd) {
                    sum.add(&s.statfs);
                }
            }
            let pgs = osd.map(|osd| m.state.stats.pgs_of(osd).all);
            Space { line, sum, pgs }
        })
        .collect();
    Ok(out)
}

fn df(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let tree = call.args.opt_str("output_method").as_deref() == Some("tree");
    let all = collect(m.view, call, tree)?;
    let mut total = StoreStatfs::default();
    for s in all.iter().filter(|s| s.line.id >= 0) {
        total.add(&s.sum);
    }
    let average = use_percent(&total);
    let var = |s: &StoreStatfs| {
        if average == 0.0 {
            0.0
        } else {
            use_percent(s) / average
        }
    };
    let used: Vec<&Space> = all.iter().filter(|s| s.line.id >= 0 && s.sum.total > 0).collect();
    let vars: Vec<f64> = used.iter().map(|s| var(&s.sum)).collect();
    let low = vars.iter().copied().fold(f64::INFINITY, f64::min);
    let high = vars.iter().copied().fold(0.0, f64::max);
    let low = if low.is_finite() { low } else { 0.0 };
    let n = used.len().max(1) as f64;
    let dev = (used
        .iter()
        .map(|s| (use_percent(&s.sum) - average).powi(2))
        .sum::<f64>()
        / n)
        .sqrt();
    if call.format.is_structured() {
        let nodes: Vec<Value> = all.iter().map(|s| node_json(m.view, s, var(&s.sum))).collect();
        let v = json!({"nodes": nodes, "stray": [], "summary": {
            "total_kb": total.total / 1024, "total_kb_used": total.used_raw() / 1024,
            "total_kb_used_data": data(&total) / 1024, "total_kb_used_omap": omap(&total) / 1024,
            "total_kb_used_meta": meta(&total) / 1024, "total_kb_avail": total.available / 1024,
            "average_utilization": average, "min_var": low, "max_var": high, "dev": dev,
        }});
        return now(Reply::json(call.format, &v));
    }
    let mut t = df_table(tree);
    for s in &all {
        t.row(df_row(m.view, s, var(&s.sum), tree));
    }
    let mut last = vec![String::new(); 3];
    last.extend(["TOTAL".to_owned(), bytes(total.total)]);
    last.extend(
        [
            total.used_raw(),
            data(&total),
            omap(&total),
            meta(&total),
            total.available,
        ]
        .map(bytes),
    );
    last.push(format!("{average:.2}"));
    t.row(last);
    let text = format!(
        "{}MIN/MAX VAR: {low:.2}/{high:.2}  STDDEV: {}\n",
        t.render(),
        if dev < 0.005 {
            "0".to_owned()
        } else {
            format!("{dev:.2}")
        }
    );
    now(Reply::text(text))
}

fn df_table(tree: bool) -> Table {
    use Align::{Left, Right};
    let mut t = Table::new(&[
        ("ID", Left, Right),
        ("CLASS", Left, Right),
        ("WEIGHT", Left, Right),
        ("REWEIGHT", Left, Right),
        ("SIZE", Left, Right),
        ("RAW USE", Left, Right),
        ("DATA", Left, Right),
        ("OMAP", Left, Right),
        ("META", Left, Right),
        ("AVAIL", Left, Right),
        ("%USE", Left, Right),
        ("VAR", Left, Right),
        ("PGS", Left, Right),
        ("STATUS", Left, Right),
    ]);
    if tree {
        t.column("TYPE NAME", Left, Left);
    }
    t
}

fn df_row(m: &View, s: &Space, var: f64, tree: bool) -> Vec<String> {
    let l = &s.line;
    let map = &m.state.osd.map;
    let osd = OsdId::of_item(l.id);
    let mut row = vec![
        l.id.to_string(),
        l.class.clone().unwrap_or_default(),
        weight_text(l.weight),
    ];
    row.push(osd.map_or_else(|| "-".to_owned(), |osd| weight_text(map.weight_f64(osd))));
    let x = &s.sum;
    row.extend([x.total, x.used_raw(), data(x), omap(x), meta(x), x.available].map(bytes));
    let share = use_percent(x);
    row.push(if share < 0.005 {
        "0".to_owned()
    } else {
        format!("{share:.2}")
    });
    row.push(if var < 0.005 {
        "0".to_owned()
    } else {
        format!("{var:.2}")
    });
    row.push(s.pgs.map_or_else(|| "-".to_owned(), |n| n.to_string()));
    row.push(match osd {
        Some(osd) if map.is_up(osd) => "up".to_owned(),
        Some(_) => "down".to_owned(),
        None => String::new(),
    });
    if tree {
        let what = if osd.is_some() {
            l.name.clone()
        } else {
            format!("{} {}", l.type_name, l.name)
        };
        row.push(format!("{}{what}", "    ".repeat(l.depth)));
    }
    row
}

fn node_json(m: &View, s: &Space, var: f64) -> Value {
    let mut v = line_json(&m.state.osd.map, &s.line);
    let x = &s.sum;
    let map = &m.state.osd.map;
    let osd = OsdId::of_item(s.line.id);
    v.insert(
        "reweight".into(),
        json!(osd.map_or(-1.0, |osd| map.weight_f64(osd))),
    );
    for (key, n) in [
        ("kb", x.total),
        ("kb_used", x.used_raw()),
        ("kb_used_data", data(x)),
        ("kb_used_omap", omap(x)),
        ("kb_used_meta", meta(x)),
        ("kb_avail", x.available),
    ] {
        v.insert(key.into(), json!(n / 1024));
    }
    v.insert("utilization".into(), json!(use_percent(x)));
    v.insert("var".into(), json!(var));
    v.insert("pgs".into(), json!(s.pgs.unwrap_or(0)));
    if let Some(osd) = osd {
        v.insert("status".into(), json!(if map.is_up(osd) { "up" } else { "down" }));
    } else {
        v.insert("children".into(), json!(s.line.children));
    }
    Value::Object(v)
}

fn perf(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    if call.format.is_structured() {
        let list: Vec<Value> = m
            .view
            .state
            .stats
            .osds
            .iter()
            .rev()
            .map(|(id, s)| json!({"id": id, "perf_stats": super::pg_dump::perf_json(s)}))
            .collect();
        let v = json!({"pg_ready": true, "osdstats": {"osd_perf_infos": list}});
        return now(Reply::json(call.format, &v));
    }
    use Align::{Left, Right};
    let mut t = Table::new(&[
        ("osd", Left, Right),
        ("commit_latency(ms)", Left, Right),
        ("apply_latency(ms)", Left, Right),
    ]);
    for (id, s) in m.view.state.stats.osds.iter().rev() {
        let ms = |ns: u64| (ns / 1_000_000).to_string();
        t.row([
            id.to_string(),
            ms(s.os_perf_stat.commit_latency_ns),
            ms(s.os_perf_stat.apply_latency_ns),
        ]);
    }
    now(Reply::text(t.render()))
}

fn blocked_by(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let mut counts = std::collections::BTreeMap::<OsdId, usize>::new();
    for osd in m.view.state.stats.pgs.values().flat_map(|s| &s.blocked_by) {
        *counts.entry(*osd).or_default() += 1;
    }
    if call.format.is_structured() {
        let list: Vec<Value> = counts
            .iter()
            .map(|(o, n)| json!({"id": o, "num_blocked": n}))
            .collect();
        let v = json!({"pg_ready": true, "osd_blocked_by": {"osd_blocked_by_infos": list}});
        return now(Reply::json(call.format, &v));
    }
    let mut t = Table::new(&[
        ("osd", Align::Left, Align::Right),
        ("num_blocked", Align::Left, Align::Right),
    ]);
    for (o, n) in counts {
        t.row([o.to_string(), n.to_string()]);
    }
    now(Reply::text(t.render()))
}
