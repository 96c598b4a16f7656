//! The central configuration's history: looking at it, and going back.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Call, Done, Reply, commands, committed, errno, now, refuse};
use crate::core::{Turn, View};
use crate::service::{ChangeSet, Config, Who};

commands! {
    "config log num?:Int" "config" "r" log, "show the newest changes of the configuration";
    "config reset num:Int(0)" "config" "rw" reset, "go back to an earlier version of the configuration";
}

fn changes(m: &View, version: u64) -> Result<Option<ChangeSet>, Reply> {
    Config::changes(m.kv.as_ref(), version).map_err(|e| Reply::error(errno::EIO, e.to_string()))
}

fn to_json(version: u64, set: &ChangeSet) -> Value {
    let one = |c: &crate::service::Change| {
        let mut v = Map::from_iter([("name".to_owned(), json!(format!("{}/{}", c.who, c.name)))]);
        for (key, value) in [("previous_value", &c.old), ("new_value", &c.new)] {
            v.extend(value.as_ref().map(|x| (key.to_owned(), json!(x))));
        }
        Value::Object(v)
    };
    let list: Vec<Value> = set.changes.iter().map(one).collect();
    json!({"version": version, "timestamp": set.stamp.to_string(), "name": set.name, "changes": list})
}

fn to_text(version: u64, set: &ChangeSet) -> String {
    let name = match set.name.as_str() {
        "" => String::new(),
        n => format!(" --- {n}"),
    };
    let mut text = format!("--- {version} --- {}{name} ---\n", set.stamp);
    for c in &set.changes {
        for (sign, value) in [('-', &c.old), ('+', &c.new)] {
            if let Some(v) = value {
                text.push_str(&format!("{sign} {}/{} = {v}\n", c.who, c.name));
            }
        }
    }
    text
}

fn log(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let newest = m.view.state.config.version();
    // The official monitor takes a negative number for a very large one.
    let wanted = u64::try_from(call.args.opt_int("num")?.unwrap_or(10)).unwrap_or(u64::MAX);
    let mut sets = Vec::new();
    for version in (1..=newest)
        .rev()
        .take(usize::try_from(wanted).unwrap_or(usize::MAX))
    {
        match changes(m.view, version)? {
            Some(set) => sets.push((version, set)),
            None if version == 1 => sets.push((version, ChangeSet::default())),
            None => break,
        }
    }
    now(match call.format.is_structured() {
        true => Reply::json(call.format, &sets.iter().map(|(v, s)| to_json(*v, s)).collect()),
        false => Reply::text(sets.iter().map(|(v, s)| to_text(*v, s)).collect::<String>()),
    })
}

fn reset(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let newest = m.view.state.config.version();
    let unknown = || {
        let text = "must specify a valid historical version to revert to; see 'ceph config log' for a list of avialable configuration historical versions";
        Reply::error(errno::EINVAL, text)
    };
    let target = u64::try_from(call.args.int("num")?).map_err(|_| unknown())?;
    if target > newest {
        return Err(unknown());
    }
    // Going back through the versions, the value that the oldest undone version replaced counts.
    let mut undo: BTreeMap<(Who, String), Option<String>> = BTreeMap::new();
    for version in (target + 1..=newest).rev() {
        match changes(m.view, version)? {
            Some(set) => undo.extend(set.changes.into_iter().map(|c| ((c.who, c.name), c.old))),
            None if version == 1 => {}
            None => return refuse(errno::EINVAL, unknown().status),
        }
    }
    if undo.is_empty() {
        return now(Reply::default());
    }
    let values = undo.into_iter().map(|((who, name), v)| (who, name, v));
    let stamp = m.view.now;
    m.view.state.config.change(
        values.collect(),
        format!("reset to {target}"),
        stamp,
        &mut m.changes.txn,
    );
    committed("")
}
