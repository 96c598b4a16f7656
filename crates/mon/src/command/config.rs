//! The central configuration.

use serde_json::{Map, Value, json};
use spirula_conf::ConfFile;
use spirula_text::{Align, Table};

use super::{Call, Done, Outcome, Reply, commands, committed, config_show, errno, now, refuse};
use crate::core::{Turn, View};
use crate::options::{self, all, of_modules};
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

fn change(m: &mut Turn<'_>, values: Vec<(Who, String, Option<String>)>, name: String) -> Done {
    let now = m.view.now;
    m.view.state.config.change(values, name, now, &mut m.changes.txn);
    committed("")
}

fn set(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
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
            Err(e) => return refuse(options::errno(&e), format!("error parsing value: {e}")),
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

fn rm(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let who = who(call)?;
    let name = options::normalize(&call.args.str("name")?);
    if !m
        .view
        .state
        .config
        .entries()
        .any(|e| e.who == who && e.name == name)
    {
        return now(Reply::default());
    }
    change(m, vec![(who, name, None)], String::new())
}

/// Stores the options of a `ceph.conf`; the answer is a `ceph.conf` of those that cannot be stored
/// or are set differently already.
fn assimilate(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
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
            match m
                .view
                .state
                .config
                .entries()
                .find(|e| e.who == who && e.name == *key)
            {
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
    let stamp = m.view.now;
    m.view
        .state
        .config
        .change(values, String::new(), stamp, &mut m.changes.txn);
    Ok(Outcome::Commit(reply))
}

fn level(name: &str) -> &'static str {
    options::find(name).map_or("unknown", |o| o.level.name())
}

/// A value in the canonical spelling.
fn shown(e: &ConfigEntry) -> String {
    options::find(&e.name).map_or_else(|| e.value.clone(), |o| o.shown(&e.value))
}

/// Whether a running daemon follows an option.
fn runtime(name: &str) -> bool {
    options::find(name).is_none_or(|o| o.runtime)
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
            shown(&e),
            if runtime(&e.name) { "" } else { "*" }.to_owned(),
        ]);
    }
    t.render()
}

fn get(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let text = call.args.str("who")?;
    let (kind, id) = text.split_once('.').unwrap_or((text.as_str(), ""));
    if spirula_denc::EntityType::from_name(kind).is_none() && Who::parse(&text).is_none() {
        return refuse(errno::EINVAL, format!("unrecognized entity '{text}'"));
    }
    let host = m
        .view
        .sessions
        .values()
        .find(|s| s.name.to_string() == text)
        .map(|s| s.host.clone())
        .unwrap_or_default();
    let class = id
        .parse()
        .ok()
        .filter(|_| kind == "osd")
        .and_then(|o| m.view.state.osd.map.crush.map().class_of(o));
    let found = m
        .view
        .state
        .config
        .sources(kind, id, &host, class.unwrap_or_default());
    if let Some(key) = call.args.opt_str("key") {
        let key = options::normalize(&key);
        let value = match (found.get(&key), options::find(&key)) {
            _ if key == "fsid" => m.view.me.fsid.to_string(),
            (_, Some(o)) if !o.is_central() => return special(&key),
            (Some(e), o) => o.map_or_else(|| e.value.clone(), |o| o.shown(&e.value)),
            (None, Some(o)) if kind != "client" && !o.daemon_default.is_empty() => o.shown(o.daemon_default),
            (None, Some(o)) => o.shown(o.default),
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
                .map(|(k, v)| {
                    (
                        if k == "class" {
                            "device_class".to_owned()
                        } else {
                            k.to_owned()
                        },
                        json!(v),
                    )
                })
                .collect();
            let v = json!({"value": shown(&e), "section": e.who.section, "mask": mask,
                           "can_update_at_runtime": runtime(&name)});
            (name, v)
        })
        .collect();
    now(Reply::json(call.format, &Value::Object(v)))
}

/// Sections in the official order: `global`, then each type with its entities.
const TYPES: [&str; 6] = ["global", "mon", "mgr", "osd", "mds", "client"];

/// All values in the official order: by section, option and mask.
fn ordered(m: &View) -> Vec<ConfigEntry> {
    let mut all: Vec<ConfigEntry> = m.state.config.entries().collect();
    all.sort_by_cached_key(|e| {
        let (kind, id) = e.who.section.split_once('.').unwrap_or((&e.who.section, ""));
        let place = TYPES.iter().position(|t| *t == kind).unwrap_or(TYPES.len());
        (place, id.to_owned(), e.name.clone(), e.who.mask.clone())
    });
    all
}

fn entry_json(e: &ConfigEntry) -> Value {
    let mut v = json!({"section": e.who.section, "name": e.name, "value": shown(e), "level": level(&e.name),
        "can_update_at_runtime": runtime(&e.name), "mask": mask(e)});
    match e.who.mask.as_deref().and_then(|m| m.split_once(':')) {
        Some(("class", class)) => v["device_class"] = json!(class),
        Some((kind, name)) => {
            v["location_type"] = json!(kind);
            v["location_value"] = json!(name);
        }
        None => {}
    }
    v
}

fn dump(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    if call.format.is_structured() {
        let v: Vec<Value> = ordered(m.view).iter().map(entry_json).collect();
        return now(Reply::json(call.format, &json!(v)));
    }
    // Types are indented below global, entities below their type.
    let indent = |section: &str| match (section, section.contains('.')) {
        ("global", _) => "global".to_owned(),
        (s, false) => format!("  {s}"),
        (s, true) => format!("    {s}"),
    };
    now(Reply::text(table(
        ordered(m.view).into_iter().map(|e| (indent(&e.who.section), e)),
    )))
}

/// A value as JSON of the option's type.
fn typed(o: &options::Opt, text: &str) -> Value {
    let number = |text: &str| match (text.parse::<i64>(), text.parse::<f64>()) {
        (Ok(n), _) => json!(n),
        (_, Ok(n)) => json!(n),
        _ => json!(text),
    };
    match o.kind {
        options::Kind::Bool => json!(text == "true"),
        options::Kind::Int | options::Kind::Uint | options::Kind::Float => number(text),
        _ => json!(text),
    }
}

/// A limit or a default, if the option has one.
fn typed_if(o: &options::Opt, text: &str) -> Value {
    if text.is_empty() {
        json!("")
    } else {
        typed(o, text)
    }
}

fn words(text: &'static str, separator: char) -> Vec<&'static str> {
    if text.is_empty() {
        return Vec::new();
    }
    text.split(separator).collect()
}

fn help_json(o: &options::Opt) -> Value {
    let mut v = Map::new();
    let mut put = |key: &str, value: Value| drop(v.insert(key.to_owned(), value));
    put("name", json!(o.name));
    put("type", json!(o.kind.name()));
    put("level", json!(o.level.name()));
    put("desc", json!(o.help));
    put("long_desc", json!(""));
    put("default", typed(o, o.default));
    put("daemon_default", typed_if(o, o.daemon_default));
    put("tags", json!([]));
    put("services", json!(words(o.services, ' ')));
    put("see_also", json!([]));
    if o.kind == options::Kind::Str {
        put("enum_values", json!(words(o.values, '|')));
    }
    put("min", typed_if(o, o.min));
    put("max", typed_if(o, o.max));
    put("can_update_at_runtime", json!(o.runtime));
    put("flags", json!(words(o.flags, ' ')));
    Value::Object(v)
}

fn help_text(o: &options::Opt) -> String {
    let mut t = format!(
        "{} - {}\n  ({}, {})\n",
        o.name,
        o.help,
        o.kind.name(),
        o.level.name()
    );
    if o.daemon_default.is_empty() {
        t.push_str(&format!("  Default: {}\n", o.shown(o.default)));
    } else {
        let (other, daemon) = (o.shown(o.default), o.shown(o.daemon_default));
        t.push_str(&format!(
            "  Default (non-daemon): {other}\n  Default (daemon): {daemon}\n"
        ));
    }
    let values = words(o.values, '|');
    if !values.is_empty() {
        t.push_str(&format!("  Possible values:  {}\n", values.join(" ")));
    }
    if !o.min.is_empty() || !o.max.is_empty() {
        let limit = |text: &str| {
            if text.is_empty() {
                String::new()
            } else {
                o.shown(text)
            }
        };
        t.push_str(&format!(
            "  Minimum: {}\n  Maximum: {}\n",
            limit(o.min),
            limit(o.max)
        ));
    }
    t.push_str(&format!("  Can update at runtime: {}\n", o.runtime));
    let services = words(o.services, ' ');
    if !services.is_empty() {
        t.push_str(&format!("  Services: [{}]\n", services.join(", ")));
    }
    t
}

fn help(_: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let key = call.args.str("key")?;
    let Some(o) = options::find(&key) else {
        return refuse(
            errno::ENOENT,
            format!("configuration option '{key}' not recognized"),
        );
    };
    now(match call.format.is_structured() {
        true => Reply::json(call.format, &help_json(o)),
        false => Reply::text(help_text(o)),
    })
}

fn ls(_: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let names = all().iter().chain(of_modules());
    let names = names.filter(|o| !o.is_log_level()).map(|o| o.name);
    now(match call.format.is_structured() {
        true => Reply::json(call.format, &names.collect()),
        false => Reply::text(names.map(|n| format!("{n}\n")).collect::<String>()),
    })
}

fn minimal(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    let hosts: Vec<String> = m
        .view
        .state
        .monmap
        .map
        .mons
        .values()
        .map(|i| format!("[{}]", i.public_addrs.to_string().trim_matches(['[', ']'])))
        .collect();
    now(Reply::text(format!(
        "# minimal ceph.conf for {0}\n[global]\n\tfsid = {0}\n\tmon_host = {1}\n",
        m.view.me.fsid,
        hosts.join(" ")
    )))
}
