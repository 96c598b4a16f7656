//! The cluster log.

use serde_json::{Value, json};
use spirula_proto::mon::{LogEntry, LogPriority};

use super::status::addrvec;
use super::{Call, Done, Reply, commands, committed, now};
use crate::core::Turn;

commands! {
    "log logtext:String..." "mon" "rw" add, "write text to the cluster log";
    "log last num?:Int(1) level?:{debug|info|sec|warn|error} channel?:{*|cluster|audit|cephadm}" "mon" "r" last,
        "show the last lines of the cluster log";
}

fn add(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let text = call.args.list("logtext").join(" ");
    let Some(by) = m.view.sender(call.session) else {
        return now(Reply::default());
    };
    m.log_for(by, text);
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

fn last(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
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
