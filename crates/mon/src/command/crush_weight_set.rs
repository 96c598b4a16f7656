//! `ceph osd crush weight-set` and `swap-bucket`.

use serde_json::{Map, Value, json};
use spirula_crush::{ChooseArg, CrushMap, DEFAULT_CHOOSE_ARGS, weight_from_f64, weight_to_f64};
use spirula_maps::{PoolId, release};

use super::crush::{crush_error, edit};
use super::{Call, Done, Reply, commands, committed, errno, misc, now, refuse};
use crate::core::{Turn, View};

commands! {
    "osd crush weight-set ls" "osd" "r" ls, "list the weight sets";
    "osd crush weight-set dump" "osd" "r" dump, "show the weight sets";
    "osd crush weight-set create-compat" "osd" "rw" create_compat, "create the weight set that serves all pools";
    "osd crush weight-set create pool:Poolname mode:{flat|positional}" "osd" "rw" create, "create a pool's weight set";
    "osd crush weight-set rm pool:Poolname" "osd" "rw" rm, "remove a pool's weight set";
    "osd crush weight-set rm-compat" "osd" "rw" rm_compat, "remove the weight set that serves all pools";
    "osd crush weight-set reweight pool:Poolname item:String weight:Float(0.0)..." "osd" "rw" reweight,
        "set an item's weight in a pool's weight set";
    "osd crush weight-set reweight-compat item:String weight:Float(0.0)..." "osd" "rw" reweight_compat,
        "set an item's weight in the weight set that serves all pools";
    "osd crush swap-bucket source:String[A-Za-z0-9-_.] dest:String[A-Za-z0-9-_.] yes_i_really_mean_it?:Bool" "osd" "rw"
        swap, "exchange the contents of two buckets";
}

fn ls(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = &m.view.state.osd.map;
    let name = |id: &i64| match *id {
        DEFAULT_CHOOSE_ARGS => "(compat)".to_owned(),
        index => PoolId::try_from(index)
            .ok()
            .and_then(|pool| map.pool_name(pool))
            .unwrap_or_default()
            .to_owned(),
    };
    let names: Vec<String> = map.crush.map().choose_args.keys().map(name).collect();
    now(match call.format.is_structured() {
        true => Reply::json(call.format, &json!(names)),
        false => Reply::text(names.iter().map(|n| format!("{n}\n")).collect::<String>()),
    })
}

fn arg_json(index: u32, arg: &ChooseArg) -> Value {
    let mut v = Map::from_iter([("bucket_id".to_owned(), json!(-1 - i64::from(index)))]);
    let weight = |w: &u32| f64::from(weight_to_f64(*w) as f32);
    let sets: Vec<Vec<f64>> = arg
        .weight_sets
        .iter()
        .map(|s| s.iter().map(weight).collect())
        .collect();
    if !sets.is_empty() {
        v.insert("weight_set".into(), json!(sets));
    }
    if !arg.ids.is_empty() {
        v.insert("ids".into(), json!(arg.ids));
    }
    Value::Object(v)
}

/// All weight sets, by pool.
pub(super) fn choose_args_json(crush: &CrushMap) -> Value {
    let one = |(pool, args): (&i64, &spirula_crush::ChooseArgs)| {
        let list = args.by_index.iter().filter(|(_, a)| !a.is_empty());
        (
            pool.to_string(),
            list.map(|(index, a)| arg_json(*index, a)).collect(),
        )
    };
    Value::Object(crush.choose_args.iter().map(one).collect())
}

fn dump(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    misc::pretty(call.format, &choose_args_json(m.view.state.osd.map.crush.map()))
}

fn pool(m: &View, call: &Call<'_>) -> Result<(String, PoolId), Reply> {
    let name = call.args.str("pool")?;
    match m.state.osd.map.pool_id(&name) {
        Some(id) => Ok((name, id)),
        None => refuse(errno::ENOENT, format!("pool '{name}' not found")),
    }
}

/// Makes the weight set that the CRUSH map has under this index: a pool's id, or
/// [`DEFAULT_CHOOSE_ARGS`].
fn add(m: &mut Turn<'_>, index: i64, positions: usize, exists: String) -> Done {
    if m.view.state.osd.map.crush.map().choose_args.contains_key(&index) {
        return now(Reply::status(exists));
    }
    edit(m, |c| Ok(c.create_weight_set(index, positions)))?;
    committed("")
}

fn check_straw2(m: &View) -> Result<(), Reply> {
    match m.state.osd.map.crush.map().takes_weight_sets() {
        true => Ok(()),
        false => refuse(
            errno::EPERM,
            "crush map contains one or more bucket(s) that are not straw2",
        ),
    }
}

fn create_compat(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    check_straw2(m.view)?;
    add(
        m,
        DEFAULT_CHOOSE_ARGS,
        1,
        "compat weight-set already created".to_owned(),
    )
}

fn create(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    check_straw2(m.view)?;
    let oldest = m.view.state.osd.map.require_min_compat_client;
    if oldest != 0 && oldest < release::LUMINOUS {
        return refuse(
            errno::EPERM,
            format!(
                "require_min_compat_client {} < luminous, which is required for per-pool weight-sets. Try 'ceph osd set-require-min-compat-client luminous' before using the new interface",
                release::name(oldest)
            ),
        );
    }
    let (name, id) = pool(m.view, call)?;
    let size = m.view.state.osd.map.pool(id).map_or(1, |p| usize::from(p.size));
    let positions = match call.args.str("mode")?.as_str() {
        "flat" => 1,
        _ => size.max(1),
    };
    add(
        m,
        id.signed(),
        positions,
        format!("weight-set for pool '{name}' already created"),
    )
}

fn remove(m: &mut Turn<'_>, index: i64) -> Done {
    edit(m, |c| {
        c.remove_weight_set(index);
        Ok(())
    })?;
    committed("")
}

fn rm(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (_, id) = pool(m.view, call)?;
    remove(m, id.signed())
}

fn rm_compat(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    remove(m, DEFAULT_CHOOSE_ARGS)
}

fn set_weights(m: &mut Turn<'_>, call: &Call<'_>, index: i64) -> Done {
    let name = call.args.str("item")?;
    let weights = call
        .args
        .floats("weight")?
        .into_iter()
        .map(|w| weight_from_f64(w).map_err(|e| crush_error(&e)))
        .collect::<Result<Vec<u32>, Reply>>()?;
    let crush = m.view.state.osd.map.crush.map();
    let positions = crush.choose_args.get(&index).map_or(1, |a| a.positions());
    if weights.len() != positions {
        return refuse(
            errno::EINVAL,
            format!("must specify exact {positions} weight values"),
        );
    }
    let Some(item) = crush.item_id(&name) else {
        return refuse(errno::ENOENT, format!("item '{name}' does not exist"));
    };
    edit(m, |c| c.adjust_weight_set(index, item, &weights)).map_err(|e| match e.code == -errno::ENOENT {
        true => e.with_status(format!("item {item} not found in crush map")),
        false => e,
    })?;
    committed("")
}

fn reweight(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, id) = pool(m.view, call)?;
    if !m
        .view
        .state
        .osd
        .map
        .crush
        .map()
        .choose_args
        .contains_key(&id.signed())
    {
        return refuse(errno::ENOENT, format!("no weight-set for pool '{name}'"));
    }
    set_weights(m, call, id.signed())
}

fn reweight_compat(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    if !m
        .view
        .state
        .osd
        .map
        .crush
        .map()
        .choose_args
        .contains_key(&DEFAULT_CHOOSE_ARGS)
    {
        return refuse(errno::ENOENT, "no backward-compatible weight-set");
    }
    set_weights(m, call, DEFAULT_CHOOSE_ARGS)
}

fn swap(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (source, dest) = (call.args.str("source")?, call.args.str("dest")?);
    let sure = call.args.flag("yes_i_really_mean_it");
    let crush = m.view.state.osd.map.crush.map();
    let find = |what: &str, name: &str| {
        let missing = || Reply::error(errno::ENOENT, format!("{what} item {name} does not exist"));
        crush.item_id(name).ok_or_else(missing)
    };
    let (a, b) = (find("source", &source)?, find("dest", &dest)?);
    if crush.parent(a).is_some() && !sure {
        return refuse(
            errno::EPERM,
            format!(
                "source item {source} is not an orphan bucket; pass --yes-i-really-mean-it to proceed anyway"
            ),
        );
    }
    let alg = |id| crush.bucket(id).map(|x| x.alg().name());
    if let (Some(x), Some(y)) = (alg(a), alg(b))
        && x != y
        && !sure
    {
        return refuse(
            errno::EPERM,
            format!(
                "source bucket alg {x} != dest bucket alg {y}; pass --yes-i-really-mean-it to proceed anyway"
            ),
        );
    }
    edit(m, |c| c.swap_buckets(a, b)).map_err(|_| {
        Reply::error(
            errno::EINVAL,
            "failed to swap bucket contents: (22) Invalid argument",
        )
    })?;
    committed(format!("swapped bucket of {source} to {dest}"))
}
