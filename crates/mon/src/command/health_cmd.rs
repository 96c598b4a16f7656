//! `ceph health`.

use serde_json::{Map, Value, json};

use super::{Call, Done, Reply, commands, now};
use crate::core::Monitor;
use crate::health::{Checks, overall};

commands! {
    "health detail?:{detail}" "mon" "r" health, "show whether the cluster is healthy";
}

/// The checks as JSON.
pub(super) fn checks_json(checks: &Checks, detail: bool) -> Value {
    let mut out = Map::new();
    for (code, c) in checks {
        let mut v = Map::new();
        v.insert("severity".into(), json!(c.severity.name()));
        v.insert("summary".into(), json!({"message": c.summary, "count": c.count}));
        if detail {
            v.insert(
                "detail".into(),
                c.detail.iter().map(|d| json!({"message": d})).collect(),
            );
        }
        v.insert("muted".into(), json!(false));
        out.insert((*code).to_owned(), Value::Object(v));
    }
    json!({"status": overall(checks), "checks": out, "mutes": []})
}

/// The health as JSON.
pub(super) fn health_json(mon: &Monitor, detail: bool) -> Value {
    checks_json(&mon.health(), detail)
}

fn health(mon: &mut Monitor, call: &Call<'_>) -> Done {
    let detail = call.args.opt_str("detail").is_some();
    let checks = mon.health();
    if call.format.is_json() {
        return now(Reply::json(call.format, &checks_json(&checks, detail)));
    }
    let mut text = overall(&checks).to_owned();
    if !checks.is_empty() {
        text.push(' ');
        let summaries: Vec<&str> = checks.values().map(|c| c.summary.as_str()).collect();
        text.push_str(&summaries.join("; "));
    }
    if detail && !checks.is_empty() {
        for (code, c) in &checks {
            text.push_str(&format!("\n[{}] {code}: {}", c.severity.short(), c.summary));
            for line in &c.detail {
                text.push_str(&format!("\n    {line}"));
            }
        }
    }
    text.push('\n');
    now(Reply::text(text))
}
