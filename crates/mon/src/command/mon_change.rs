//! Adding and removing monitors; the monitor map's features and settings.

use std::collections::BTreeMap;

use serde_json::json;
use spirula_crush::CrushMap;
use spirula_denc::{AddrType, EntityAddr, EntityAddrVec};
use spirula_maps::{MonFeatures, MonInfo, MonMap};

use super::{Call, Done, Reply, commands, committed, errno, now, refuse};
use crate::core::{MAX_MONITORS, Turn};

commands! {
    "mon add name:String addr:IPAddr location?:String[A-Za-z0-9-_.=]..." "mon" "rw" add,
        "add a monitor, which becomes a member of the quorum when it runs";
    "mon rm name:String" "mon" "rw" rm, "remove a monitor";
    "mon remove name:String" "mon" "rw" rm, "remove a monitor";
    "mon ok-to-add-offline" "mon" "r" ok_to_add_offline, "tell whether a monitor may be added that does not run yet";
    "mon ok-to-rm id:String" "mon" "r" ok_to_rm, "tell whether a monitor may be removed";
    "mon feature ls with_value?:{--with-value}" "mon" "r" feature_ls, "list the monitors' features";
    "mon feature set feature_name:String yes_i_really_mean_it?:Bool" "mon" "rw" feature_set,
        "require a feature of all monitors";
    "mon set-rank name:String rank:Int" "mon" "rw" set_rank, "set a monitor's rank";
    "mon set-weight name:String weight:Int(0|65535)" "mon" "rw" set_weight,
        "set how often clients choose a monitor among others of its priority";
    "mon set_location name:String args:String[A-Za-z0-9-_.=]..." "mon" "rw" set_location,
        "set a monitor's place in the CRUSH hierarchy";
    "mon enable-msgr2" "mon" "rw" enable_msgr2, "have all monitors listen for msgr2";
}

/// Makes a change part of the next monitor map.
fn edit(m: &mut Turn<'_>, change: impl FnOnce(&mut MonMap)) {
    let mut map = m.view.state.monmap.map.clone();
    map.removed_ranks.clear();
    change(&mut map);
    m.put_monmap(map);
}

/// The default port of monitors.
const PORT: u16 = 3300;
/// The monitors' port before msgr2: a command that names it does not mean a particular port.
const LEGACY_PORT: u16 = 6789;

/// The address that a command gives for a monitor. Ours speak msgr2 only.
fn address(text: &str) -> Option<EntityAddrVec> {
    let mut addr: EntityAddr = text.parse().ok()?;
    if addr.kind == AddrType::LEGACY {
        return None;
    }
    addr.kind = AddrType::MSGR2;
    let socket = addr.socket.as_mut()?;
    if matches!(socket.port(), 0 | LEGACY_PORT) {
        socket.set_port(PORT);
    }
    Some(addr.into())
}

fn place(words: &[String]) -> Result<BTreeMap<String, String>, Reply> {
    let location = CrushMap::parse_location(words.iter().map(String::as_str)).unwrap_or_default();
    if location.is_empty() && !words.is_empty() {
        let text = format!(
            "We could not parse your input location to anything real; [{}] turned into an empty map!",
            words.join(",")
        );
        return refuse(errno::EINVAL, text);
    }
    Ok(location.into_iter().collect())
}

fn add(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, text) = (call.args.str("name")?, call.args.str("addr")?);
    let Some(addrs) = address(&text) else {
        return refuse(errno::EINVAL, format!("addr {text}does not parse"));
    };
    let location = place(&call.args.list("location"))?;
    let mons = &m.view.state.monmap.map.mons;
    let same = mons.values().find(|i| i.name == name || i.public_addrs == addrs);
    if let Some(old) = same {
        let (known, at) = (&old.name, &old.public_addrs);
        if *known == name && *at == addrs {
            return now(Reply::status(format!("mon.{name} at {addrs} already exists")));
        }
        let text = format!("mon.{known} already exists at address {at}");
        return refuse(errno::EEXIST, text);
    }
    if mons.len() >= MAX_MONITORS {
        let text = format!("there are {MAX_MONITORS} monitors already, which is the most that is supported");
        return refuse(errno::ERANGE, text);
    }
    edit(m, |map| {
        map.add(&name, addrs.clone());
        if let Some(info) = map.mons.get_mut(&name) {
            info.crush_loc = location;
        }
    });
    committed(format!("adding mon.{name} at {addrs}"))
}

fn edit_mon(m: &mut Turn<'_>, name: &str, change: impl FnOnce(&mut MonInfo)) -> Done {
    if !m.view.state.monmap.map.mons.contains_key(name) {
        return refuse(errno::ENOENT, format!("mon.{name} does not exist"));
    }
    edit(m, |map| {
        if let Some(info) = map.mons.get_mut(name) {
            change(info);
        }
    });
    committed("")
}

fn rm(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("name")?;
    if !m.view.state.monmap.map.mons.contains_key(&name) {
        let text = format!("mon.{name} does not exist or has already been removed");
        return now(Reply::status(text));
    }
    if m.view.state.monmap.map.mons.len() == 1 {
        let text = format!("error: refusing removal of last monitor {name}");
        return refuse(errno::EINVAL, text);
    }
    edit(m, |map| map.remove(&name));
    committed("")
}

/// The number of monitors that must agree, of `monitors`.
fn majority(monitors: usize) -> usize {
    monitors / 2 + 1
}

fn ok_to_add_offline(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    let running = m.view.quorum.names.len();
    if running < majority(m.view.state.monmap.map.mons.len() + 1) {
        let text = "adding a monitor may break quorum (until that monitor starts)";
        return refuse(errno::EBUSY, text);
    }
    now(Reply::status(
        "adding another mon that is not yet online will not break quorum",
    ))
}

fn ok_to_rm(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("id")?;
    let mons = &m.view.state.monmap.map.mons;
    if !mons.contains_key(&name) {
        return now(Reply::status(format!("mon.{name} does not exist")));
    }
    let left = mons.len() - 1;
    let running = m.view.quorum.names.iter().filter(|n| **n != name).count();
    if running < majority(left) {
        return refuse(errno::EBUSY, format!("removing mon.{name} would break quorum"));
    }
    now(Reply::status(format!("safe to remove mon.{name}")))
}

fn feature_ls(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let with_value = call.args.opt_str("with_value").is_some();
    let names = |f: MonFeatures| -> Vec<String> {
        f.names()
            .map(|n| match MonFeatures::from_name(n) {
                Some(bit) if with_value => format!("{n}({})", bit.0),
                _ => n.to_owned(),
            })
            .collect()
    };
    let map = &m.view.state.monmap.map;
    let required = map.persistent_features.with(map.optional_features);
    let all = names(MonFeatures::PACIFIC_ALL);
    if call.format.is_structured() {
        let v = json!({
            "all": {"supported": all, "persistent": all},
            "monmap": {"persistent": names(map.persistent_features), "optional": names(map.optional_features),
                "required": names(required)},
        });
        return now(Reply::json(call.format, &v));
    }
    now(Reply::text(format!(
        "all features\n\tsupported: [{all}]\n\tpersistent: [{all}]\non current monmap (epoch {})\n\
         \tpersistent: [{}]\n\trequired: [{}]\n",
        map.epoch,
        names(map.persistent_features).join(","),
        names(required).join(","),
        all = all.join(","),
    )))
}

fn feature_set(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let name = call.args.str("feature_name")?;
    let Some(feature) = MonFeatures::from_name(&name) else {
        return refuse(errno::ENOENT, format!("unknown feature '{name}'"));
    };
    if !call.args.flag("yes_i_really_mean_it") {
        let text = format!(
            "please specify '--yes-i-really-mean-it' if you really, **really** want to set feature 'mon_feature_t([{name}])' in the monmap."
        );
        return refuse(errno::EPERM, text);
    }
    let text = format!("setting feature 'mon_feature_t([{name}])'");
    if m.view.state.monmap.map.persistent_features.contains(feature) {
        return now(Reply::status(text));
    }
    edit(m, |map| map.persistent_features.insert(feature));
    committed(text)
}

fn set_rank(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, rank) = (call.args.str("name")?, call.args.int("rank")?);
    let Some(old) = m.view.state.monmap.map.ranks.iter().position(|n| *n == name) else {
        return refuse(errno::ENOENT, format!("mon.{name} does not exist in monmap"));
    };
    edit(m, |map| {
        let name = map.ranks.remove(old);
        let last = map.ranks.len();
        let new = usize::try_from(rank).map_or(0, |r| r.min(last));
        map.ranks.insert(new, name);
    });
    committed("")
}

fn set_weight(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, weight) = (call.args.str("name")?, call.args.int("weight")?);
    let Ok(weight) = u16::try_from(weight) else {
        return refuse(errno::EINVAL, format!("weight {weight} is out of range"));
    };
    edit_mon(m, &name, |info| info.weight = weight)
}

fn set_location(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (name, words) = (call.args.str("name")?, call.args.list("args"));
    if !m.view.state.monmap.map.mons.contains_key(&name) {
        return refuse(errno::ENOENT, format!("mon.{name} does not exist"));
    }
    let location = place(&words)?;
    edit_mon(m, &name, |info| info.crush_loc = location)
}

/// Every monitor here listens for msgr2, and for nothing else.
fn enable_msgr2(_: &mut Turn<'_>, _: &Call<'_>) -> Done {
    now(Reply::default())
}
