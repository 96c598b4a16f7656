//! The central configuration.

use serde_json::{Map, Value, json};
use spirula_conf::ConfFile;

use super::{Call, Done, Outcome, Reply, commands, committed, config_show, errno, now, refuse};
use crate::core::Monitor;
use crate::fmt::{Align, Table};
use crate::options::{self, ALL};
use crate::service::{ConfigEntry, Who};

commands! {
    "config set who:String name:String value:String force?:Bool" "config" "rw" set, "set an option";
    "config rm who:String name:String" "config" "rw" rm, "clear an option";
    "config get who:String key?:String" "config" "r" get, "show what applies to a daemon or client";
    "config dump" "mon" "r" dump, "show everything that is set";
    "config help key:String" "config" "r" help, "describe an option";
    "config ls" "config" "r" ls, "list the options";
    "config show who:String key?:String" "mgr" "r" config_show::show, "show a daemon's values that are not defaults";
    "config show-with-defaults who:String" "mgr" "r" config_show::show_all, "show all values of a daemon";
    "config assimilate-conf" "config" "rw" assimilate, "store the options of -i FILE, and give back what cannot be stored";
    "config generate-minimal-conf" "config" "r" minimal, "give a minimal ceph.conf";
}

fn who(call: &Call<'_>) -> Result<Who, Reply> {
    let text = call.args.str("who")?;
    Who::parse(&text)
        .ok_or_else(|| Reply::error(errno::EINVAL, format!("unrecognized config target '{text}'")))
}

fn change(m: &mut Monitor, values: Vec<(Who, String, Option<String>)>, name: String) -> Done {
    let now = m.now;
    m.config.change(values, name, now, &mut m.writes.txn);
    committed("")
}

fn set(m: &mut Monitor, call: &Call<'_>) -> Done {
    let who = who(call)?;
    let name = options::normalize(&call.args.str("name")?);
    let value = call.args.str("value")?;
    let force = call.args.flag("force");
    let value = match options::find(&name) {
        // Modules define their own options.
        None if force || name.starts_with("mgr/") => value,
        None => return refuse(errno::EINVAL, format!("unrecognized config option '{name}'")),
        Some(o) => match o.parse(&value) {
            Ok(_) if !o.is_central() => return special(&name),
            Ok(_) => value,
            Err(e) => return refuse(errno::EINVAL, format!("error parsing value: {e}")),
        },
    };
    change(m, vec![(who, name, Some(value))], String::new())
}

/// Refuses an option that only a `ceph.conf` can set.
fn special(name: &str) -> Done {
    refuse(
        errno::EINVAL,
        format!("{name} is special and cannot be stored by the mon"),
    )
}

fn rm(m: &mut Monitor, call: &Call<'_>) -> Done {
    let who = who(call)?;
    let name = options::normalize(&call.args.str("name")?);
    if !m.config.entries().any(|e| e.who == who && e.name == name) {
        return now(Reply::default());
    }
    change(m, vec![(who, name, None)], String::new())
}

/// Stores what a `ceph.conf` says; the answer is a `ceph.conf` of what cannot be stored or is set differently already.
fn assimilate(m: &mut Monitor, call: &Call<'_>) -> Done {
    let text = String::from_utf8_lossy(call.input);
    let file =
        ConfFile::parse(&text).map_err(|e| Reply::error(errno::EINVAL, format!("parse error: {e}")))?;
    let (mut values, mut rest) = (Vec::new(), String::new());
    for (section, options) in file.sections() {
        let mut left = String::new();
        for (key, raw) in options {
            let known = options::find(key).filter(|o| o.is_central());
            let parsed = known.and_then(|o| Some((Who::parse(section)?, o.parse(raw).ok()?)));
            let Some((who, value)) = parsed else {
                left.push_str(&format!("\t{key} = {raw}\n"));
                continue;
            };
            match m.config.entries().find(|e| e.who == who && e.name == *key) {
                None => values.push((who, key.clone(), Some(value))),
                Some(e) if e.value == value => {}
                Some(_) => left.push_str(&format!("\t{key} = {raw}\n")),
            }
        }
        if !left.is_empty() {
            rest.push_str(&format!("\n[{section}]\n{left}"));
        }
    }
    let reply = Reply::text(rest);
    if values.is_empty() {
        return now(reply);
    }
    let stamp = m.now;
    m.config.change(values, String::new(), stamp, &mut m.writes.txn);
    Ok(Outcome::Commit(reply))
}

fn level(name: &str) -> &'static str {
    options::find(name).map_or("unknown", |o| o.level.name())
}

fn mask(e: &ConfigEntry) -> String {
    e.who.mask.clone().unwrap_or_default()
}

fn table(rows: impl Iterator<Item = (String, ConfigEntry)>) -> String {
    use Align::Left;
    let mut t = Table::new(&[
        ("WHO", Left, Left),
        ("MASK", Left, Left),
        ("LEVEL", Left, Left),
        ("OPTION", Left, Left),
        ("VALUE", Left, Left),
        ("RO", Left, Left),
    ]);
    for (who, e) in rows {
        t.row([
            who,
            mask(&e),
            level(&e.name).to_owned(),
            e.name.clone(),
            e.value.clone(),
            String::new(),
        ]);
    }
    t.render()
}

fn get(m: &mut Monitor, call: &Call<'_>) -> Done {
    let text = call.args.str("who")?;
    let (kind, id) = text.split_once('.').unwrap_or((text.as_str(), ""));
    if spirula_denc::EntityType::from_name(kind).is_none() && Who::parse(&text).is_none() {
        return refuse(errno::EINVAL, format!("unrecognized entity '{text}'"));
    }
    let host = m
        .sessions
        .values()
        .find(|s| s.name.to_string() == text)
        .map(|s| s.host.clone())
        .unwrap_or_default();
    let class = id
        .parse()
        .ok()
        .filter(|_| kind == "osd")
        .and_then(|o| m.osd.map.crush.map().class_of(o));
    let found = m.config.sources(kind, id, &host, class.unwrap_or_default());
    if let Some(key) = call.args.opt_str("key") {
        let key = options::normalize(&key);
        let value = match (found.get(&key), options::find(&key)) {
            _ if key == "fsid" => m.me.fsid.to_string(),
            (_, Some(o)) if !o.is_central() => return special(&key),
            (Some(e), _) => e.value.clone(),
            (None, Some(o)) => o.default.to_owned(),
            (None, None) => return refuse(errno::ENOENT, format!("unrecognized key '{key}'")),
        };
        // As text in every format, like the official monitor.
        return now(Reply::text(value + "\n"));
    }
    if !call.format.is_structured() {
        return now(Reply::text(table(
            found.into_values().map(|e| (e.who.section.clone(), e)),
        )));
    }
    let v: Map<String, Value> = found
        .into_iter()
        .map(|(name, e)| {
            let mask: Map<String, Value> = e
                .who
                .mask
                .iter()
                .filter_map(|m| m.split_once(':'))
                .map(|(k, v)| (if k == "class" { "device_class".to_owned() } else { k.to_owned() }, json!(v)))
                .collect();
            let v = json!({"value": e.value, "section": e.who.section, "mask": mask, "can_update_at_runtime": true});
            (name, v)
        })
        .collect();
    now(Reply::json(call.format, &Value::Object(v)))
}

fn dump(m: &mut Monitor, call: &Call<'_>) -> Done {
    if call.format.is_structured() {
        let v: Vec<Value> = m
            .config
            .entries()
            .map(|e| {
                json!({"section": e.who.section, "name": e.name, "value": e.value, "level": level(&e.name),
                       "can_update_at_runtime": true, "mask": mask(&e)})
            })
            .collect();
        return now(Reply::json(call.format, &json!(v)));
    }
    // Types are indented below global, entities below their type.
    let indent = |section: &str| match (section, section.contains('.')) {
        ("global", _) => "global".to_owned(),
        (s, false) => format!("  {s}"),
        (s, true) => format!("    {s}"),
    };
    let mut all: Vec<ConfigEntry> = m.config.entries().collect();
    all.sort_by_key(|e| (e.who.section != "global", e.who.clone(), e.name.clone()));
    now(Reply::text(table(
        all.into_iter().map(|e| (indent(&e.who.section), e)),
    )))
}

/// A default as JSON of the option's type.
fn typed(o: &options::Opt) -> Value {
    match o.kind {
        options::Kind::Bool => json!(o.default == "true"),
        options::Kind::Str => json!(o.default),
        options::Kind::Float => json!(o.default.parse::<f64>().unwrap_or(0.0)),
        _ => json!(o.default.parse::<i64>().unwrap_or(0)),
    }
}

fn help(_: &mut Monitor, call: &Call<'_>) -> Done {
    let key = call.args.str("key")?;
    let Some(o) = options::find(&key) else {
        return refuse(
            errno::ENOENT,
            format!("configuration option '{key}' not recognized"),
        );
    };
    let services: Vec<&str> = o.services.split(' ').filter(|s| !s.is_empty()).collect();
    if call.format.is_structured() {
        let v = json!({
            "name": o.name, "type": o.kind.name(), "level": o.level.name(), "desc": o.help, "long_desc": "",
            "default": typed(o), "daemon_default": "", "tags": [], "services": services, "see_also": [],
            "min": "", "max": "", "can_update_at_runtime": true, "flags": [],
        });
        return now(Reply::json(call.format, &v));
    }
    now(Reply::text(format!(
        "{} - {}\n  ({}, {})\n  Default: {}\n  Can update at runtime: true\n  Services: [{}]\n",
        o.name,
        o.help,
        o.kind.name(),
        o.level.name(),
        o.default,
        services.join(", ")
    )))
}

fn ls(_: &mut Monitor, call: &Call<'_>) -> Done {
    if call.format.is_structured() {
        return now(Reply::json(call.format, &ALL.iter().map(|o| o.name).collect()));
    }
    now(Reply::text(
        ALL.iter().map(|o| format!("{}\n", o.name)).collect::<String>(),
    ))
}

fn minimal(m: &mut Monitor, _: &Call<'_>) -> Done {
    let hosts: Vec<String> = m
        .monmap
        .map
        .mons
        .values()
        .map(|i| format!("[{}]", i.public_addrs.to_string().trim_matches(['[', ']'])))
        .collect();
    now(Reply::text(format!(
        "# minimal ceph.conf for {0}\n[global]\n\tfsid = {0}\n\tmon_host = {1}\n",
        m.me.fsid,
        hosts.join(" ")
    )))
}
