//! Questions about OSDs.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use spirula_maps::{ObjectLocator, ObjectName, OsdId, OsdOrNone, Positions, release};
use spirula_text::{Align, Table};

use super::status::{addrvec, osd_line, osdmap_summary, shown_flags};
use super::{ArgResult, Call, Done, NoOsd, Reply, commands, errno, misc, now, parse_osd, refuse};
use crate::core::{Turn, View};

commands! {
    "osd stat" "osd" "r" stat, "summarize the OSDMap";
    "osd ls epoch?:Int(0)" "osd" "r" ls, "list the OSDs";
    "osd getmaxosd" "osd" "r" getmaxosd, "show the number of OSD ids";
    "osd find id:OsdName" "osd" "r" find, "show where an OSD is";
    "osd metadata id?:OsdName" "osd" "r" metadata, "show what is known of an OSD, or of all";
    "osd count-metadata property:String" "osd" "r" count_metadata, "count OSDs by a property";
    "osd versions" "osd" "r" versions, "count the OSDs' versions";
    "osd numa-status" "osd" "r" numa_status, "show which NUMA nodes the OSDs are bound to";
    "osd map pool:Poolname object:Objectname nspace?:String" "osd" "r" map, "show where an object is";
    "osd lspools" "osd" "r" lspools, "list the pools";
    "osd get-require-min-compat-client" "osd" "r" min_compat, "show the oldest release clients may have";
    "osd last-stat-seq id:OsdName" "osd" "r" last_stat_seq, "show the number of an OSD's last statistics";
}

fn stat(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    if call.format.is_structured() {
        return now(Reply::json(call.format, &osdmap_summary(m.view)));
    }
    let map = &m.view.state.osd.map;
    let mut t = format!("{}; epoch: e{}", osd_line(m.view, map), map.epoch);
    if !map.pg_temp.is_empty() {
        t.push_str(&format!("; {} remapped pgs", map.pg_temp.len()));
    }
    t.push('\n');
    let flags = shown_flags(map);
    if !flags.is_empty() {
        t.push_str(&format!("flags {flags}\n"));
    }
    now(Reply::text(t))
}

fn ls(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let osds: Vec<OsdId> = super::osd_dump::map_of(m.view, call)?.osds().collect();
    if call.format.is_structured() {
        return now(Reply::json(call.format, &json!(osds)));
    }
    now(Reply::text(
        osds.iter().map(|o| format!("{o}\n")).collect::<String>(),
    ))
}

fn getmaxosd(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let map = &m.view.state.osd.map;
    if call.format.is_structured() {
        return now(Reply::json(
            call.format,
            &json!({"epoch": map.epoch, "max_osd": map.max_osd}),
        ));
    }
    now(Reply::text(format!(
        "max_osd = {} in epoch {}\n",
        map.max_osd, map.epoch
    )))
}

/// A command's OSD, which must exist.
pub(super) fn existing(m: &View, call: &Call<'_>, name: &str) -> ArgResult<OsdId> {
    let osd = call.args.osd(name)?;
    if m.state.osd.map.exists(osd) {
        Ok(osd)
    } else {
        refuse(errno::ENOENT, format!("osd.{osd} does not exist"))
    }
}

fn find(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let osd = existing(m.view, call, "id")?;
    let map = &m.view.state.osd.map;
    let i = osd.index();
    let location: BTreeMap<String, String> = map.crush.map().location(osd.item()).into_iter().collect();
    let metadata = misc::osd_metadata(m.view, osd);
    let mut v = Map::new();
    v.insert("osd".into(), json!(osd));
    v.insert("addrs".into(), addrvec(&map.client_addrs[i]));
    v.insert("osd_fsid".into(), json!(map.osd_uuid[i].to_string()));
    for (key, from) in [
        ("host", "hostname"),
        ("pod_name", "pod_name"),
        ("container_name", "container_name"),
    ] {
        if let Some(x) = metadata.get(from) {
            v.insert(key.into(), json!(x));
        }
    }
    v.insert("crush_location".into(), json!(location));
    misc::pretty(call.format, &Value::Object(v))
}

fn metadata(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let one = |m: &View, osd: OsdId| {
        let mut v = Map::from_iter([("id".to_owned(), json!(osd))]);
        // OSDs of earlier builds tell their number too, as a text.
        let said = misc::osd_metadata(m, osd).into_iter().filter(|(k, _)| k != "id");
        v.extend(said.map(|(k, x)| (k, json!(x))));
        Value::Object(v)
    };
    if call.args.opt_osd("id")?.is_some() {
        let osd = existing(m.view, call, "id")?;
        let v = one(m.view, osd);
        return misc::pretty(call.format, &v);
    }
    let all: Vec<Value> = m.view.state.osd.map.osds().map(|o| one(m.view, o)).collect();
    misc::pretty(call.format, &json!(all))
}

fn count_metadata(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let property = call.args.str("property")?;
    let mut counts = BTreeMap::<String, usize>::new();
    for osd in m.view.state.osd.map.osds() {
        let value = misc::osd_metadata(m.view, osd)
            .remove(&property)
            .unwrap_or_else(|| "unknown".to_owned());
        *counts.entry(value).or_default() += 1;
    }
    misc::pretty(call.format, &json!(counts))
}

fn versions(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    misc::pretty(call.format, &json!(misc::osd_versions(m.view)))
}

/// OSDs are not bound to NUMA nodes, so only the host is shown.
fn numa_status(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let hosts: Vec<(OsdId, String)> = m
        .view
        .state
        .osd
        .map
        .osds()
        .filter_map(|o| Some((o, misc::osd_metadata(m.view, o).remove("hostname")?)))
        .collect();
    if call.format.is_structured() {
        let v = hosts.iter().map(|(osd, host)| json!({"osd": osd, "host": host}));
        return now(Reply::json(call.format, &v.collect()));
    }
    let mut t = Table::new(&[
        ("OSD", Align::Left, Align::Right),
        ("HOST", Align::Left, Align::Left),
        ("NETWORK", Align::Right, Align::Right),
        ("STORAGE", Align::Right, Align::Right),
        ("AFFINITY", Align::Right, Align::Right),
        ("CPUS", Align::Left, Align::Left),
    ]);
    for (osd, host) in hosts {
        let none = || "-".to_owned();
        t.row([osd.to_string(), host, none(), none(), none(), none()]);
    }
    now(Reply::text(t.render()))
}

fn map(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let (pool, object) = (call.args.str("pool")?, call.args.str("object")?);
    let nspace = call.args.opt_str("nspace").unwrap_or_default();
    let map = &m.view.state.osd.map;
    let Some(id) = map.pool_id(&pool) else {
        return refuse(errno::ENOENT, format!("pool {pool} does not exist"));
    };
    let name = ObjectName::from(object.clone());
    let locator = ObjectLocator {
        pool: Some(id),
        nspace: ObjectName::from(nspace.clone()),
        ..ObjectLocator::default()
    };
    let Some((raw, pg)) = map
        .object_to_raw_pg(&name, &locator)
        .zip(map.object_to_pg(&name, &locator))
    else {
        return refuse(errno::ENOENT, format!("pool {pool} does not exist"));
    };
    let at = map.map_pg(pg);
    let full = if nspace.is_empty() {
        object.clone()
    } else {
        format!("{nspace}/{object}")
    };
    if call.format.is_structured() {
        let v = json!({"epoch": map.epoch, "pool": pool, "pool_id": id, "objname": full, "raw_pgid": raw.to_string(),
            "pgid": pg.to_string(), "up": at.up, "up_primary": OsdOrNone(at.up_primary), "acting": at.acting,
            "acting_primary": OsdOrNone(at.acting_primary)});
        return now(Reply::json(call.format, &v));
    }
    let list = |osds: &Positions, primary| format!("({osds}, p{})", OsdOrNone(primary));
    now(Reply::text(format!(
        "osdmap e{} pool '{pool}' ({id}) object '{full}' -> pg {raw} ({pg}) -> up {} acting {}\n",
        map.epoch,
        list(&at.up, at.up_primary),
        list(&at.acting, at.acting_primary)
    )))
}

fn lspools(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let names = &m.view.state.osd.map.pool_names;
    if call.format.is_structured() {
        let v: Vec<Value> = names
            .iter()
            .map(|(id, n)| json!({"poolnum": id, "poolname": n}))
            .collect();
        return now(Reply::json(call.format, &json!(v)));
    }
    now(Reply::text(
        names
            .iter()
            .map(|(id, n)| format!("{id} {n}\n"))
            .collect::<String>(),
    ))
}

fn min_compat(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    let name = release::name(m.view.state.osd.map.require_min_compat_client);
    now(Reply::text(format!("{name}\n")))
}

/// The OSDs that a question names: all words must be valid, and the answer repeats one that is not.
pub(super) fn asked(m: &View, call: &Call<'_>) -> Result<Vec<OsdId>, Reply> {
    let words = call.args.list("ids");
    osd_ids(m, &words).map_err(|refusal| {
        let unreadable = words.iter().find_map(|w| Some((w, parse_osd(w).err()?)));
        match unreadable {
            Some((w, why)) => refusal.with_status(format!("{}invalid osd id '{w}'", why.text)),
            None => refusal,
        }
    })
}

/// OSDs named by a list: ids, `any`/`all`/`*`. The second part names those that do not parse.
pub(super) fn osd_ids(m: &View, words: &[String]) -> Result<Vec<OsdId>, Reply> {
    if words.iter().any(|w| ["any", "all", "*"].contains(&w.as_str())) {
        return Ok(m.state.osd.map.osds().collect());
    }
    let mut out = Vec::new();
    for w in words
        .iter()
        .flat_map(|w| w.split([' ', ',']))
        .filter(|w| !w.is_empty())
    {
        match parse_osd(w) {
            Ok(id) => out.push(id),
            Err(NoOsd { text, code }) => {
                return refuse(errno::EINVAL, format!("{text}invalid osd id{code}"));
            }
        }
    }
    Ok(out)
}

fn last_stat_seq(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let osd = call.args.osd("id")?;
    let seq = m.view.state.stats.osds.get(&osd).map_or(0, |s| s.seq);
    match call.format.is_structured() {
        true => now(Reply::json(call.format, &json!(seq))),
        false => now(Reply::text(format!("{seq}\n"))),
    }
}
