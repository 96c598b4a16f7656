//! Reported crashes, as Ceph's module `crash` keeps them (`src/pybind/mgr/crash/module.py`): those
//! that `ceph-crash` or an administrator posts, under the module's keys, so that Ceph's manager
//! could go on with them.

use std::collections::BTreeMap;

use serde_json::Value;
use spirula_denc::UTime;
use spirula_text::{Format, one_line};

use super::{Call, Done, Outcome, Reply, commands, config_key, errno, now};
use crate::core::{Turn, View};
use crate::crashes::{Crash, PREFIX};

commands! {
    "crash ls" "mgr" "r" ls, "list the crashes that were recorded";
    "crash ls-new" "mgr" "r" ls_new, "list the crashes that nobody has looked at";
    "crash stat" "mgr" "r" stat, "count the crashes that were recorded";
    "crash json_report hours:String" "mgr" "r" json_report, "count the crashes of the last hours by program";
    "crash info id:String" "mgr" "r" info, "show a crash";
    "crash post" "mgr" "rw" post, "record a crash (-i FILE)";
    "crash rm id:String" "mgr" "rw" rm, "forget a crash";
    "crash prune keep:String" "mgr" "rw" prune, "forget the crashes that are older than so many days";
    "crash archive id:String" "mgr" "w" archive, "note that somebody has looked at a crash";
    "crash archive-all" "mgr" "w" archive_all, "note that somebody has looked at all crashes";
}

/// Most crashes that are kept.
const MAX_CRASHES: usize = 1000;
const DAY: i64 = 86_400;

fn complain<T>(text: impl Into<String>) -> Result<T, Reply> {
    Err(Reply::error_without_sign(errno::EINVAL, text))
}

/// All crashes, by id.
fn all(m: &View) -> Result<Vec<Crash>, Reply> {
    let keys = m.kv.scan(config_key::SERVICE).map_err(|e| config_key::io(&e))?;
    let kept = keys.into_iter().filter(|(key, _)| key.starts_with(PREFIX));
    let mut all: Vec<Crash> = kept.filter_map(|(_, v)| Crash::parse(&v).ok()).collect();
    all.sort_by(|a, b| a.id().cmp(b.id()));
    Ok(all)
}

fn find(m: &View, id: &str) -> Result<Option<Crash>, Reply> {
    let kept = config_key::lookup(m, &format!("{PREFIX}{id}"))?;
    Ok(kept.and_then(|v| Crash::parse(&v).ok()))
}

fn put(m: &mut Turn<'_>, crash: &Crash) -> Result<(), Reply> {
    let text = Value::Object(crash.0.clone()).to_string();
    config_key::check_size(text.len())?;
    config_key::put(m, &format!("{PREFIX}{}", crash.id()), text.into_bytes());
    Ok(())
}

fn forget(m: &mut Turn<'_>, id: &str) {
    m.changes.txn.remove(config_key::SERVICE, format!("{PREFIX}{id}"));
}

fn done(m: &Turn<'_>) -> Done {
    let reply = Reply::default();
    Ok(match m.changes.txn.is_empty() {
        true => Outcome::Now(reply),
        false => Outcome::Commit(reply),
    })
}

fn listing(call: &Call<'_>, crashes: &[Crash]) -> Done {
    if call.format.is_structured() {
        let v: Value = crashes.iter().map(Crash::sorted).collect();
        // Python indents for every structured format.
        return now(Reply::data(Format::JsonPretty.render(&v)));
    }
    if crashes.is_empty() {
        return now(Reply::default());
    }
    let rows: Vec<[String; 3]> = crashes
        .iter()
        .map(|c| {
            let entity = one_line(c.text("entity_name").unwrap_or("unknown"));
            [
                one_line(c.id()),
                entity,
                if c.is_new() { "*" } else { "" }.to_owned(),
            ]
        })
        .collect();
    let width = |i: usize, title: &str| {
        let widest = rows.iter().map(|r: &[String; 3]| r[i].chars().count()).max();
        widest.unwrap_or(0).max(title.len())
    };
    let (id, entity) = (width(0, "ID"), width(1, "ENTITY"));
    let mut text = format!("{:<id$}  {:<entity$}  NEW  \n", "ID", "ENTITY");
    for [a, b, new] in &rows {
        text += &format!("{a:<id$}  {b:<entity$}  {new:^3}  \n");
    }
    now(Reply::text(text))
}

fn ls(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    listing(call, &all(m.view)?)
}

fn ls_new(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let mut new = all(m.view)?;
    new.retain(Crash::is_new);
    listing(call, &new)
}

/// Whether a crash is older than `days` days.
fn is_older(crash: &Crash, days: i64, now: UTime) -> bool {
    crash.age(now) > days * DAY
}

fn stat(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    let all = all(m.view)?;
    let mut text = format!("{} crashes recorded\n", all.len());
    for days in [1, 3, 7] {
        let old = all.iter().filter(|c| is_older(c, days, m.view.now));
        let ids: Vec<String> = old.map(|c| one_line(c.id())).collect();
        if !ids.is_empty() {
            text += &format!("{} older than {days} days old:\n{}\n", ids.len(), ids.join("\n"));
        }
    }
    now(Reply::text(text))
}

/// The report, spelled as by Python's `json.dumps`, in the status as in Ceph's module. Ceph's
/// counts all crashes, however old they are.
fn json_report(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let Ok(hours) = call.args.str("hours")?.trim().parse::<i32>() else {
        return complain("<hours> argument must be integer");
    };
    let mut counts = BTreeMap::<String, usize>::new();
    for c in all(m.view)?
        .iter()
        .filter(|c| c.age(m.view.now) <= i64::from(hours) * 3600)
    {
        let program = c.text("process_name").filter(|p| !p.is_empty());
        *counts.entry(program.unwrap_or("unknown").to_owned()).or_default() += 1;
    }
    let counts = counts
        .into_iter()
        .map(|(program, n)| format!("{}: {n}", Value::from(program)));
    now(Reply::status(format!(
        "{{{}}}",
        counts.collect::<Vec<_>>().join(", ")
    )))
}

fn info(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let id = call.args.str("id")?;
    match find(m.view, &id)? {
        Some(crash) => now(Reply::data(Format::JsonPretty.render(&crash.sorted()))),
        None => complain(format!("crash info: {id} not found")),
    }
}

fn post(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let crash = match Crash::parse(call.input) {
        Ok(crash) => crash,
        Err(why) => return complain(format!("malformed crash metadata: {why}")),
    };
    if find(m.view, crash.id())?.is_none() {
        // A client that posts too many crashes loses the oldest.
        let mut kept = all(m.view)?;
        kept.sort_by_key(Crash::time);
        let surplus = (kept.len() + 1).saturating_sub(MAX_CRASHES);
        kept.iter().take(surplus).for_each(|old| forget(m, old.id()));
        put(m, &crash)?;
    }
    done(m)
}

fn rm(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let id = call.args.str("id")?;
    if find(m.view, &id)?.is_some() {
        forget(m, &id);
    }
    done(m)
}

fn prune(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let Ok(days) = call.args.str("keep")?.trim().parse::<i32>() else {
        return complain("keep argument must be integer");
    };
    let now = m.view.now;
    let old = all(m.view)?
        .into_iter()
        .filter(|c| is_older(c, i64::from(days), now));
    old.for_each(|c| forget(m, c.id()));
    done(m)
}

fn note_seen(m: &mut Turn<'_>, crash: Crash) -> Result<(), Reply> {
    let mut crash = crash;
    let now = m.view.now.to_string().replace('T', " ");
    let stamp = now.trim_end_matches("+0000").to_owned();
    crash.0.insert("archived".to_owned(), stamp.into());
    put(m, &crash)
}

fn archive(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let id = call.args.str("id")?;
    match find(m.view, &id)? {
        None => return complain(format!("crash info: {id} not found")),
        Some(crash) if crash.is_new() => note_seen(m, crash)?,
        Some(_) => {}
    }
    done(m)
}

fn archive_all(m: &mut Turn<'_>, _: &Call<'_>) -> Done {
    for crash in all(m.view)? {
        if crash.is_new() {
            note_seen(m, crash)?;
        }
    }
    done(m)
}
