//! The cluster log.

use serde_json::{Value, json};
use spirula_proto::mon::{LogEntry, LogPriority};

use super::status::addrvec;
use super::{Call, Done, Reply, commands, committed, now};
use crate::core::Monitor;

commands! {
    "log logtext:String..." "mon" "rw" add, "write text to the cluster log";
    "log last num?:Int(1) level?:{debug|info|sec|warn|error} channel?:{*|cluster|audit|cephadm}" "mon" "r" last,
        "show the last lines of the cluster log";
}

fn add(m: &mut Monitor, call: &Call<'_>) -> Done {
    let text = call.args.list("logtext").join(" ");
    let Some(s) = m.sender(call.session) else {
        return now(Reply::default());
    };
    let (rank, addr, id, kind) = (s.entity, s.addr, s.name.id, s.name.kind);
    let mut entry = m
        .view
        .state
        .clog
        .own_entry(&m.view.me, m.view.now, LogPriority::INFO, "cluster", text);
    entry.rank = rank;
    entry.addrs = addr.into();
    entry.name = spirula_proto::mon::NamedEntity {
        kind: u32::from(kind.0),
        id,
    };
    m.view.state.clog.add(entry);
    // The entry itself is what is committed.
    m.changes.flush_log = true;
    committed("")
}

fn name(e: &LogEntry) -> String {
    let kind = spirula_denc::EntityType(u8::try_from(e.name.kind).unwrap_or(0));
    format!("{}.{}", kind.name(), e.name.id)
}

fn level(p: LogPriority) -> String {
    p.to_string()
}

fn line(e: &LogEntry) -> String {
    format!(
        "{} {} ({}) {} : {} {} {}\n",
        e.stamp,
        name(e),
        e.rank,
        e.seq,
        e.channel,
        level(e.priority),
        e.message
    )
}

fn entry_json(e: &LogEntry) -> Value {
    json!({
        "name": name(e), "rank": e.rank.to_string(), "addrs": addrvec(&e.addrs), "stamp": e.stamp.to_string(),
        "seq": e.seq, "channel": e.channel, "priority": level(e.priority), "message": e.message,
    })
}

fn last(m: &mut Monitor, call: &Call<'_>) -> Done {
    let num = call
        .args
        .opt_int("num")?
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or(20);
    let level = call.args.opt_str("level").unwrap_or_else(|| "info".to_owned());
    let channel = call
        .args
        .opt_str("channel")
        .unwrap_or_else(|| "cluster".to_owned());
    let entries = m.view.state.clog.last(num, &level, &channel);
    if call.format.is_structured() {
        let v: Vec<Value> = entries.into_iter().map(entry_json).collect();
        return now(Reply::json(call.format, &json!(v)));
    }
    now(Reply::text(entries.into_iter().map(line).collect::<String>()))
}
