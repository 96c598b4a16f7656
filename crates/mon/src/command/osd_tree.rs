//! The hierarchy with the OSDs' states.

use serde_json::{Map, Value, json};
use spirula_crush::{ChooseArgs, CrushMap};
use spirula_maps::{OsdId, OsdMap, OsdState, PoolId};
use spirula_text::{Align, Table};

use super::osd_dump::map_of;
use super::{Call, Done, Reply, commands, errno, now, refuse};
use crate::core::{Turn, View};

commands! {
    "osd tree epoch?:Int(0) states?:{up|down|in|out|destroyed}..." "osd" "r" tree, "show the hierarchy of OSDs";
    "osd tree-from epoch?:Int(0) bucket:String states?:{up|down|in|out|destroyed}..." "osd" "r" tree_from,
        "show the hierarchy below a bucket";
    "osd ls-tree epoch?:Int(0) name:String" "osd" "r" ls_tree, "list the OSDs below a bucket";
    "osd crush tree shadow?:{--show-shadow}" "osd" "r" crush_tree, "show the CRUSH hierarchy";
}

/// A weight in the tables: five decimals, `0` for nothing.
pub(super) fn weight_text(w: f64) -> String {
    if w < 0.000_001 {
        "0".to_owned()
    } else {
        format!("{w:.5}")
    }
}

/// A line's contents that both trees show.
pub(super) struct Line {
    pub(super) id: i32,
    pub(super) name: String,
    pub(super) type_name: String,
    pub(super) type_id: i32,
    pub(super) class: Option<String>,
    pub(super) weight: f64,
    pub(super) depth: usize,
    pub(super) children: Vec<i32>,
    is_root: bool,
    /// By pool, the item's weights in its bucket's weight sets, a number a position. Empty if the
    /// bucket has none.
    weight_sets: Vec<(i64, Vec<f64>)>,
}

/// Lines of the hierarchy in the official order.
pub(super) fn lines(
    crush: &CrushMap,
    root: Option<i32>,
    shadow: bool,
    show: &dyn Fn(i32) -> bool,
    all: bool,
) -> Vec<Line> {
    let walk = match root {
        Some(r) => crush.walk_from(vec![r]),
        None if shadow => crush.walk_from(crush.roots()),
        None => crush.walk(),
    };
    let walk: Box<dyn Iterator<Item = spirula_crush::WalkItem> + '_> = if all {
        Box::new(walk)
    } else {
        Box::new(walk.only_devices(show))
    };
    walk.map(|w| {
        let type_id = crush.item_type(w.id).unwrap_or(0);
        Line {
            id: w.id,
            name: crush
                .name(w.id)
                .map_or_else(|| format!("osd.{}", w.id), str::to_owned),
            type_name: crush.type_name(type_id).unwrap_or_default().to_owned(),
            type_id,
            class: crush.class_of(w.id).map(str::to_owned),
            weight: spirula_crush::weight_to_f64(w.weight),
            depth: w.depth,
            is_root: w.parent == 0,
            weight_sets: weight_sets(crush, w.parent, w.id),
            children: w.children,
        }
    })
    .collect()
}

/// An item's weights in all weight sets of the bucket that holds it.
fn weight_sets(crush: &CrushMap, parent: i32, item: i32) -> Vec<(i64, Vec<f64>)> {
    let place = crush.bucket(parent).and_then(|b| b.position(item));
    let Some(at) = place else { return Vec::new() };
    let of = |args: &ChooseArgs| -> Vec<f64> {
        let sets = args
            .get(parent)
            .map(|a| a.weight_sets.as_slice())
            .unwrap_or_default();
        sets.iter()
            .map(|set| spirula_crush::weight_to_f64(set.get(at).copied().unwrap_or(0)))
            .collect()
    };
    let all = crush.choose_args.iter().map(|(pool, args)| (*pool, of(args)));
    all.filter(|(_, weights)| !weights.is_empty()).collect()
}

/// The name in the trees of the weight sets that the CRUSH map has under this index: a pool's, or
/// those for all.
fn weight_set_name(map: &OsdMap, index: i64) -> String {
    let pool = PoolId::try_from(index).ok();
    match pool.and_then(|pool| map.pool_name(pool)) {
        _ if index == spirula_crush::DEFAULT_CHOOSE_ARGS => "(compat)".to_owned(),
        Some(name) => name.to_owned(),
        None => index.to_string(),
    }
}

/// A line as JSON, without the fields that only one of the trees has.
pub(super) fn line_json(map: &OsdMap, l: &Line) -> Map<String, Value> {
    let mut v = Map::new();
    v.insert("id".into(), json!(l.id));
    if let Some(c) = &l.class {
        v.insert("device_class".into(), json!(c));
    }
    v.insert("name".into(), json!(l.name));
    v.insert("type".into(), json!(l.type_name));
    v.insert("type_id".into(), json!(l.type_id));
    if l.id >= 0 {
        v.insert("crush_weight".into(), json!(l.weight));
        v.insert("depth".into(), json!(l.depth));
    }
    if !l.is_root {
        let weights = l
            .weight_sets
            .iter()
            .map(|(pool, w)| (weight_set_name(map, *pool), json!(w)));
        v.insert("pool_weights".into(), Value::Object(weights.collect()));
    }
    v
}

fn wanted(map: &OsdMap, osd: OsdId, states: &[String]) -> bool {
    let group = |a: &str, b: &str, is_a: bool| {
        let (wa, wb) = (states.iter().any(|s| s == a), states.iter().any(|s| s == b));
        (!wa && !wb) || (wa && is_a) || (wb && !is_a)
    };
    let destroyed = map.state(osd).contains(OsdState::DESTROYED);
    group("up", "down", map.is_up(osd))
        && group("in", "out", map.is_in(osd))
        && (!states.iter().any(|s| s == "destroyed") || destroyed)
}

fn status_of(map: &OsdMap, osd: OsdId) -> &'static str {
    if map.is_up(osd) {
        "up"
    } else if map.state(osd).contains(OsdState::DESTROYED) {
        "destroyed"
    } else {
        "down"
    }
}

fn osd_part(map: &OsdMap, osd: OsdId) -> [(String, Value); 4] {
    [
        ("exists".to_owned(), json!(u8::from(map.exists(osd)))),
        ("status".to_owned(), json!(status_of(map, osd))),
        ("reweight".to_owned(), json!(map.weight_f64(osd))),
        (
            "primary_affinity".to_owned(),
            json!(f64::from(map.affinity(osd)) / 65536.0),
        ),
    ]
}

fn tree_reply(m: &View, call: &Call<'_>, root: Option<&str>) -> Done {
    let map = map_of(m, call)?;
    let crush = map.crush.map().clone();
    let states = call.args.list("states");
    let given = |names: &[&str]| names.iter().filter(|n| states.iter().any(|s| s == *n)).count();
    if given(&["in", "out"]) > 1 {
        return refuse(errno::EINVAL, "cannot specify both 'in' and 'out'");
    }
    if given(&["up", "down", "destroyed"]) > 1 {
        return refuse(
            errno::EINVAL,
            "can specify only one of 'up', 'down' and 'destroyed'",
        );
    }
    let root = match root {
        None => None,
        Some(name) => match crush.item_id(name) {
            None => return refuse(errno::ENOENT, format!("bucket '{name}' does not exist")),
            Some(id) if id >= 0 => return refuse(errno::EINVAL, format!("\"{name}\" is not a bucket")),
            id => id,
        },
    };
    let show = |item: i32| OsdId::of_item(item).is_some_and(|osd| wanted(&map, osd, &states));
    let lines = lines(&crush, root, false, &show, states.is_empty());
    let strays: Vec<OsdId> = map
        .osds()
        .filter(|o| root.is_none() && !crush.is_held(o.item()) && wanted(&map, *o, &states))
        .collect();
    if call.format.is_structured() {
        return now(Reply::json(call.format, &tree_json(&map, &lines, &strays)));
    }
    now(Reply::text(tree_text(&map, &lines, &strays)))
}

fn tree_json(map: &OsdMap, lines: &[Line], strays: &[OsdId]) -> Value {
    let nodes: Vec<Value> = lines
        .iter()
        .map(|l| {
            let mut v = line_json(map, l);
            match OsdId::of_item(l.id) {
                Some(osd) => v.extend(osd_part(map, osd)),
                None => drop(v.insert("children".into(), json!(l.children))),
            }
            Value::Object(v)
        })
        .collect();
    let stray: Vec<Value> = strays
        .iter()
        .map(|o| {
            let mut v = Map::from_iter([
                ("id".to_owned(), json!(o)),
                ("name".to_owned(), json!(format!("osd.{o}"))),
                ("type".to_owned(), json!("osd")),
                ("type_id".to_owned(), json!(0)),
                ("crush_weight".to_owned(), json!(0)),
                ("depth".to_owned(), json!(0)),
            ]);
            v.extend(osd_part(map, *o));
            Value::Object(v)
        })
        .collect();
    json!({"nodes": nodes, "stray": stray})
}

fn tree_text(map: &OsdMap, lines: &[Line], strays: &[OsdId]) -> String {
    use Align::{Left, Right};
    let mut t = Table::new(&[
        ("ID", Left, Right),
        ("CLASS", Left, Right),
        ("WEIGHT", Left, Right),
        ("TYPE NAME", Left, Left),
        ("STATUS", Left, Right),
        ("REWEIGHT", Left, Right),
        ("PRI-AFF", Left, Right),
    ]);
    let osd_cells = |osd: OsdId| {
        if !map.exists(osd) {
            return ["DNE".to_owned(), "0".to_owned(), String::new()];
        }
        [
            status_of(map, osd).to_owned(),
            weight_text(map.weight_f64(osd)),
            weight_text(f64::from(map.affinity(osd)) / 65536.0),
        ]
    };
    for l in lines {
        let indent = "    ".repeat(l.depth);
        let what = if l.id >= 0 {
            l.name.clone()
        } else {
            format!("{} {}", l.type_name, l.name)
        };
        let mut row = vec![
            l.id.to_string(),
            l.class.clone().unwrap_or_default(),
            weight_text(l.weight),
            format!("{indent}{what}"),
        ];
        row.extend(OsdId::of_item(l.id).map(osd_cells).into_iter().flatten());
        t.row(row);
    }
    for o in strays {
        let mut row = vec![o.to_string(), String::new(), "0".to_owned(), format!("osd.{o}")];
        row.extend(osd_cells(*o));
        t.row(row);
    }
    t.render()
}

fn tree(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    tree_reply(m.view, call, None)
}

fn tree_from(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let bucket = call.args.str("bucket")?;
    tree_reply(m.view, call, Some(&bucket))
}

fn ls_tree(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = map_of(m.view, call)?;
    let name = call.args.str("name")?;
    let crush = map.crush.map();
    let Some(id) = crush.item_id(&name) else {
        return refuse(errno::ENOENT, format!("\"{name}\" does not exist"));
    };
    let osds: Vec<OsdId> = map
        .osds_below(id)
        .into_iter()
        .filter(|o| map.exists(*o))
        .collect();
    if call.format.is_structured() {
        return now(Reply::json(call.format, &json!(osds)));
    }
    now(Reply::text(
        osds.iter().map(|o| format!("{o}\n")).collect::<String>(),
    ))
}

fn crush_tree(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = m.view.state.osd.map.clone();
    let crush = map.crush.map();
    let shadow = call.args.opt_str("shadow").is_some();
    let lines = lines(crush, None, shadow, &|_| true, true);
    if call.format.is_structured() {
        let nodes: Vec<Value> = lines
            .iter()
            .map(|l| {
                let mut v = line_json(&map, l);
                if l.id < 0 {
                    v.insert("children".into(), json!(l.children));
                }
                Value::Object(v)
            })
            .collect();
        return now(Reply::json(call.format, &json!({"nodes": nodes, "stray": []})));
    }
    use Align::{Left, Right};
    let mut t = Table::new(&[
        ("ID", Left, Right),
        ("CLASS", Left, Right),
        ("WEIGHT", Left, Right),
    ]);
    for pool in crush.choose_args.keys() {
        t.column(&weight_set_name(&map, *pool), Left, Right);
    }
    t.column("TYPE NAME", Left, Left);
    for l in lines {
        let first = |pool: &i64| {
            let found = l.weight_sets.iter().find(|(p, _)| p == pool);
            found
                .and_then(|(_, w)| w.first())
                .map_or_else(String::new, |w| weight_text(*w))
        };
        let sets: Vec<String> = crush.choose_args.keys().map(first).collect();
        let what = if l.id >= 0 {
            l.name.clone()
        } else {
            format!("{} {}", l.type_name, l.name)
        };
        let mut row = vec![
            l.id.to_string(),
            l.class.unwrap_or_default(),
            weight_text(l.weight),
        ];
        row.extend(sets);
        row.push(format!("{}{what}", "    ".repeat(l.depth)));
        t.row(row);
    }
    now(Reply::text(t.render()))
}
