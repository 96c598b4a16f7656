//! `ceph health`, and muting its checks.

use std::time::Duration;

use serde_json::Value;

use super::{Call, Done, Reply, commands, committed, errno, now, refuse};
use crate::core::{Turn, View};
use crate::health::{Mute, Mutes};

commands! {
    "health detail?:{detail}" "mon" "r" health, "show whether the cluster is healthy";
    "health mute code:String ttl?:String sticky?:Bool" "mon" "w" mute, "mute a health check";
    "health unmute code?:String" "mon" "w" unmute, "let a health check, or all of them, be heard again";
}

/// The health as JSON.
pub(super) fn health_json(mon: &View, detail: bool) -> Value {
    mon.health_report().json(detail)
}

fn health(mon: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let detail = call.args.opt_str("detail").is_some();
    let report = mon.view.health_report();
    if call.format.is_structured() {
        return now(Reply::json(call.format, &report.json(detail)));
    }
    let mut text = report.line(" ", "; ") + "\n";
    if detail {
        text.push_str(&report.detail());
    }
    now(Reply::text(text))
}

/// Longest code that can be muted; sticky ones need not exist.
const MAX_CODE: usize = 128;
/// Most mutes.
const MAX_MUTES: usize = 1024;

fn mute(mon: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let code = call.args.str("code")?;
    if code.is_empty() {
        return refuse(errno::EINVAL, "must specify an alert code to mute");
    }
    if code.len() > MAX_CODE || mon.view.state.mutes.iter().count() >= MAX_MUTES {
        return refuse(errno::E2BIG, "too many mutes, or too long a code");
    }
    let mut mute = Mute {
        sticky: call.args.flag("sticky"),
        ..Mute::default()
    };
    if let Some(ttl) = call.args.opt_str("ttl") {
        let lasts = timespan(&ttl).and_then(|d| match d.is_zero() {
            true => Err("timespan = 0".to_owned()),
            false => Ok(d),
        });
        match lasts {
            Ok(d) => mute.until = mon.view.now.plus(d),
            Err(why) => return refuse(errno::EINVAL, format!("invalid duration: {ttl} ({why})")),
        }
    }
    if !mute.sticky {
        let checks = mon.view.health();
        let Some(check) = checks.get(code.as_str()) else {
            return refuse(
                errno::ENOENT,
                format!("health alert {code} is not currently raised"),
            );
        };
        mute.summary = check.summary.clone();
        mute.count = check.count as u64;
    }
    Mutes::set(&code, &mute, &mut mon.changes.txn);
    committed("")
}

fn unmute(mon: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let codes: Vec<String> = match call.args.opt_str("code") {
        Some(code) => vec![code],
        None => mon
            .view
            .state
            .mutes
            .iter()
            .map(|(code, _)| code.clone())
            .collect(),
    };
    for code in codes.iter().filter(|c| mon.view.state.mutes.contains(c)) {
        Mutes::remove(code, &mut mon.changes.txn);
    }
    committed("")
}

const DAY: u64 = 86_400;
/// Units of a time span with their seconds.
const UNITS: [(&[&str], u64); 7] = [
    (&["", "s", "sec", "second", "seconds"], 1),
    (&["m", "min", "minute", "minutes"], 60),
    (&["h", "hr", "hour", "hours"], 3600),
    (&["d", "day", "days"], DAY),
    (&["w", "wk", "week", "weeks"], 7 * DAY),
    (&["mo", "month", "months"], 30 * DAY),
    (&["y", "yr", "year", "years"], 365 * DAY),
];

/// Reads `90`, `1h 30m`, `2weeks`; the error is the official text.
fn timespan(text: &str) -> Result<Duration, String> {
    let cut = |s: &mut &str, want: fn(&char) -> bool| -> String {
        let end = s.find(|c: char| !want(&c)).unwrap_or(s.len());
        let (head, tail) = s.split_at(end);
        *s = tail;
        head.to_owned()
    };
    let (mut rest, mut total) = (text.trim_start(), 0u64);
    while !rest.is_empty() {
        let digits = cut(&mut rest, char::is_ascii_digit);
        if digits.is_empty() {
            return Err("expected digit".to_owned());
        }
        rest = rest.trim_start();
        let unit = cut(&mut rest, char::is_ascii_alphabetic);
        if unit.is_empty() && !rest.is_empty() {
            return Err(format!("unexpected trailing '{rest}'"));
        }
        let found = UNITS.iter().find(|(names, _)| names.contains(&unit.as_str()));
        // The official text's own spelling.
        let (_, seconds) = found.ok_or_else(|| format!("unrecogized unit '{unit}'"))?;
        let add = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(*seconds));
        let sum = add.and_then(|n| total.checked_add(n)).filter(|n| *n <= MAX_SPAN);
        total = sum.ok_or_else(|| "out of range".to_owned())?;
        rest = rest.trim_start();
    }
    Ok(Duration::from_secs(total))
}

/// The longest time span: a longer one would overflow a time stamp.
const MAX_SPAN: u64 = 50 * 365 * DAY;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans_are_read_with_units() {
        let secs = |t| timespan(t).map(|d| d.as_secs());
        assert_eq!(secs("90"), Ok(90));
        assert_eq!(secs("1h 30m"), Ok(5400));
        assert_eq!(secs("2weeks"), Ok(14 * DAY));
        assert_eq!(secs("xx"), Err("expected digit".into()));
        assert_eq!(secs("1 q"), Err("unrecogized unit 'q'".into()));
        assert!(secs("99999999999999999999y").is_err());
    }
}
