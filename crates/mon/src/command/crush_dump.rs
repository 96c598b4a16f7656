//! The CRUSH map as JSON.

use serde_json::{Map, Value, json};
use spirula_crush::{CrushMap, Op, Profile, Rule, hash_name};

use super::crush_weight_set::choose_args_json;
use super::{Call, Done, Reply, commands, errno, misc, now, refuse};
use crate::core::Turn;

commands! {
    "osd crush dump" "osd" "r" dump, "show the CRUSH map";
    "osd crush show-tunables" "osd" "r" show_tunables, "show the CRUSH tunables";
    "osd crush get-tunable tunable:{straw_calc_version}" "osd" "r" get_tunable, "show a CRUSH tunable";
    "osd crush rule ls" "osd" "r" rule_ls, "list the CRUSH rules";
    "osd crush rule list" "osd" "r" rule_ls, "list the CRUSH rules";
    "osd crush rule ls-by-class class:String[A-Za-z0-9-_.]" "osd" "r" rule_ls_by_class,
        "list the CRUSH rules that use a device class";
    "osd crush rule dump name?:String[A-Za-z0-9-_.]" "osd" "r" rule_dump, "show a CRUSH rule, or all";
    "osd crush ls node:String[A-Za-z0-9-_.]" "osd" "r" ls, "list what is directly below a bucket";
    "osd crush class ls" "osd" "r" class_ls, "list the device classes";
    "osd crush class ls-osd class:String[A-Za-z0-9-_]" "osd" "r" class_ls_osd, "list the OSDs of a device class";
    "osd crush get-device-class ids:String..." "osd" "r" get_class, "show OSDs' device classes";
}

fn step_json(crush: &CrushMap, op: Op, arg1: i32, arg2: i32) -> Value {
    let type_name = || crush.type_name(arg2).unwrap_or_default().to_owned();
    match op {
        Op::TAKE => json!({"op": "take", "item": arg1, "item_name": crush.name(arg1).unwrap_or_default()}),
        Op::EMIT => json!({"op": "emit"}),
        Op::CHOOSE_FIRSTN | Op::CHOOSE_INDEP | Op::CHOOSELEAF_FIRSTN | Op::CHOOSELEAF_INDEP => {
            json!({"op": op.dump_name().unwrap_or_default(), "num": arg1, "type": type_name()})
        }
        op => match op.dump_name() {
            Some(name) => json!({"op": name, "num": arg1}),
            None => json!({"opcode": op.0, "arg1": arg1, "arg2": arg2}),
        },
    }
}

fn rule_json(crush: &CrushMap, number: u32, r: &Rule) -> Value {
    let steps: Vec<Value> = r
        .steps
        .iter()
        .map(|s| step_json(crush, s.op, s.arg1, s.arg2))
        .collect();
    json!({"rule_id": number, "rule_name": crush.rule_name(number).unwrap_or_default(), "ruleset": r.ruleset,
        "type": r.rule_type, "min_size": r.min_size, "max_size": r.max_size, "steps": steps})
}

fn tunables_json(crush: &CrushMap) -> Value {
    let t = &crush.tunables;
    let bit = u8::from;
    let rules = |f: fn(&Rule) -> bool| bit(crush.iter_rules().any(|(_, r)| f(r)));
    let straw2 = bit(crush
        .iter_buckets()
        .any(|b| b.alg() == spirula_crush::Alg::Straw2));
    json!({
        "choose_local_tries": t.choose_local_tries, "choose_local_fallback_tries": t.choose_local_fallback_tries,
        "choose_total_tries": t.choose_total_tries, "chooseleaf_descend_once": t.chooseleaf_descend_once,
        "chooseleaf_vary_r": t.chooseleaf_vary_r, "chooseleaf_stable": t.chooseleaf_stable,
        "straw_calc_version": t.straw_calc_version, "allowed_bucket_algs": t.allowed_bucket_algs,
        "profile": t.profile().map_or("unknown", Profile::name),
        "optimal_tunables": bit(t.profile() == Some(Profile::Jewel)),
        "legacy_tunables": bit(t.profile() == Some(Profile::Argonaut)),
        "minimum_required_version": crush.minimum_required_version(),
        "require_feature_tunables": bit(t.needs_tunables()), "require_feature_tunables2": bit(t.needs_tunables2()),
        "has_v2_rules": rules(Rule::is_v2), "require_feature_tunables3": bit(t.needs_tunables3()),
        "has_v3_rules": rules(Rule::is_v3), "has_v4_buckets": straw2,
        "require_feature_tunables5": bit(t.needs_tunables5()), "has_v5_rules": rules(Rule::is_v5),
    })
}

fn devices_json(crush: &CrushMap) -> Vec<Value> {
    (0..crush.max_devices)
        .map(|id| {
            let name = crush
                .name(id)
                .map_or_else(|| format!("device{id}"), str::to_owned);
            let mut v = Map::from_iter([("id".to_owned(), json!(id)), ("name".to_owned(), json!(name))]);
            if let Some(c) = crush.class_of(id) {
                v.insert("class".into(), json!(c));
            }
            Value::Object(v)
        })
        .collect()
}

fn buckets_json(crush: &CrushMap) -> Vec<Value> {
    crush
        .iter_buckets()
        .map(|b| {
            let items: Vec<Value> = b
                .iter()
                .enumerate()
                .map(|(pos, (id, w))| json!({"id": id, "weight": w, "pos": pos}))
                .collect();
            json!({"id": b.id, "name": crush.name(b.id).unwrap_or_default(), "type_id": b.type_id,
                "type_name": crush.type_name(i32::from(b.type_id)).unwrap_or_default(), "weight": b.weight,
                "alg": b.alg().name(), "hash": hash_name(b.hash), "items": items})
        })
        .collect()
}

/// The whole map.
pub(super) fn map_json(crush: &CrushMap) -> Value {
    let types: Vec<Value> = crush
        .types
        .iter()
        .map(|(id, n)| json!({"type_id": id, "name": n}))
        .collect();
    let rules: Vec<Value> = crush.iter_rules().map(|(n, r)| rule_json(crush, n, r)).collect();
    json!({"devices": devices_json(crush), "types": types, "buckets": buckets_json(crush), "rules": rules,
        "tunables": tunables_json(crush), "choose_args": choose_args_json(crush)})
}

fn dump(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    misc::pretty(call.format, &map_json(m.view.state.osd.map.crush.map()))
}

fn show_tunables(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let v = tunables_json(m.view.state.osd.map.crush.map());
    misc::pretty(call.format, &v)
}

fn get_tunable(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let n = m.view.state.osd.map.crush.map().tunables.straw_calc_version;
    match call.format.is_structured() {
        true => now(Reply::json(call.format, &json!({"straw_calc_version": n}))),
        false => now(Reply::text(format!("{n}\n"))),
    }
}

fn names(call: &Call<'_>, list: Vec<String>) -> Done {
    match call.format.is_structured() {
        true => now(Reply::json(call.format, &json!(list))),
        false => now(Reply::text(
            list.iter().map(|n| format!("{n}\n")).collect::<String>(),
        )),
    }
}

fn rule_ls(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    names(
        call,
        m.view
            .state
            .osd
            .map
            .crush
            .map()
            .rule_names
            .values()
            .cloned()
            .collect(),
    )
}

fn rule_ls_by_class(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let class = call.args.str("class")?;
    let crush = m.view.state.osd.map.crush.map();
    let Some(id) = crush.class_id(&class) else {
        return refuse(errno::ENOENT, format!("failed to get rules by class '{class}'"));
    };
    let rules = crush.rules_using_class(id);
    names(
        call,
        rules
            .into_iter()
            .filter_map(|r| crush.rule_name(r).map(str::to_owned))
            .collect(),
    )
}

fn rule_dump(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let crush = m.view.state.osd.map.crush.map();
    let Some(name) = call.args.opt_str("name") else {
        let all: Vec<Value> = crush.iter_rules().map(|(n, r)| rule_json(crush, n, r)).collect();
        return misc::pretty(call.format, &json!(all));
    };
    match crush.rule_id(&name).and_then(|n| crush.rule(n).map(|r| (n, r))) {
        Some((n, r)) => misc::pretty(call.format, &rule_json(crush, n, r)),
        None => refuse(errno::ENOENT, format!("unknown crush rule '{name}'")),
    }
}

fn ls(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let node = call.args.str("node")?;
    let crush = m.view.state.osd.map.crush.map();
    let Some(id) = crush.item_id(&node) else {
        return refuse(errno::ENOENT, format!("node '{node}' does not exist"));
    };
    let item = |i: i32| crush.name(i).map_or_else(|| format!("osd.{i}"), str::to_owned);
    let list = match crush.bucket(id) {
        Some(b) => b.iter().map(|(i, _)| item(i)).collect(),
        None => vec![node],
    };
    names(call, list)
}

fn class_ls(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let list: Vec<String> = m
        .view
        .state
        .osd
        .map
        .crush
        .map()
        .class_names
        .values()
        .cloned()
        .collect();
    misc::pretty(call.format, &json!(list))
}

fn class_ls_osd(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let class = call.args.str("class")?;
    let crush = m.view.state.osd.map.crush.map();
    let osds: Vec<i32> = crush
        .class_id(&class)
        .map(|c| crush.devices_of_class(c).collect())
        .unwrap_or_default();
    match call.format.is_structured() {
        true => now(Reply::json(call.format, &json!(osds))),
        false => now(Reply::text(
            osds.iter().map(|o| format!("{o}\n")).collect::<String>(),
        )),
    }
}

fn get_class(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let words = call.args.list("ids");
    let mut osds = super::osd_query::osd_ids(m.view, &words).map_err(|refusal| {
        let unreadable = words.iter().find(|w| super::parse_osd(w).is_err());
        match unreadable {
            Some(w) => refusal.with_status(format!("unable to parse osd id:'{w}'")),
            None => refusal,
        }
    })?;
    let crush = m.view.state.osd.map.crush.map();
    osds.retain(|o| m.view.state.osd.map.exists(*o));
    if call.format.is_structured() {
        let v: Vec<Value> = osds
            .iter()
            .map(|o| json!({"osd": o, "device_class": crush.class_of(o.item()).unwrap_or_default()}))
            .collect();
        return now(Reply::json(call.format, &json!(v)));
    }
    now(Reply::text(
        osds.iter()
            .map(|o| format!("{}\n", crush.class_of(o.item()).unwrap_or_default()))
            .collect::<String>(),
    ))
}
