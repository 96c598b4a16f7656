//! `ceph osd status`: each OSD with its space, client I/O and state, in the layout of Ceph's
//! module.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use spirula_maps::{OsdId, StoreStatfs};
use spirula_text::{Align, Table, size::short};

use super::{Call, Done, Reply, commands, errno, misc, now};
use crate::core::{Turn, View};
use crate::service::Served;

commands! {
    "osd status bucket?:String" "mgr" "r" status, "summarize each OSD, or those below the buckets of a name";
}

/// Whether a name fits a pattern with `*`, `?` and `[…]`, as in a shell.
fn fits(pattern: &[char], name: &[char]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // The places in the pattern after the last star, and in the name where the text for that star
    // ends.
    let mut star = None;
    while let Some(c) = name.get(seen) {
        if pattern.get(at) == Some(&'*') {
            at += 1;
            star = Some((at, seen));
        } else if let Some(len) = takes(&pattern[at..], *c) {
            (at, seen) = (at + len, seen + 1);
        } else if let Some((behind, end)) = star {
            (at, seen) = (behind, end + 1);
            star = Some((behind, seen));
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

/// The length of the part at the beginning of the pattern that matches this character.
fn takes(pattern: &[char], c: char) -> Option<usize> {
    let (first, rest) = pattern.split_first()?;
    match (first, one_of(rest)) {
        ('?', _) => Some(1),
        ('[', Some((set, behind))) => set.has(c).then(|| pattern.len() - behind.len()),
        _ => (*first == c).then_some(1),
    }
}

/// The characters of a `[…]`.
struct Set<'a> {
    negated: bool,
    members: &'a [char],
}

impl Set<'_> {
    fn has(&self, c: char) -> bool {
        let mut left = self.members;
        let mut found = false;
        while let Some((first, rest)) = left.split_first() {
            left = rest;
            found |= match rest {
                ['-', last, after @ ..] => {
                    left = after;
                    (*first..=*last).contains(&c)
                }
                _ => *first == c,
            };
        }
        found != self.negated
    }
}

/// The characters after a `[`, and the pattern after the `]`. `None` if there is no `]`.
fn one_of(pattern: &[char]) -> Option<(Set<'_>, &[char])> {
    let negated = pattern.first() == Some(&'!');
    let members = &pattern[usize::from(negated)..];
    // A bracket in the first place is one of the characters.
    let end = 1 + members.iter().skip(1).position(|c| *c == ']')?;
    let set = Set {
        negated,
        members: &members[..end],
    };
    Some((set, &members[end + 1..]))
}

/// The OSDs below all buckets whose names fit a pattern; `None` if there are none.
fn below(m: &View, pattern: &str) -> Option<BTreeSet<OsdId>> {
    let map = m.state.osd.map.clone();
    let crush = map.crush.map();
    let chars = |text: &str| text.chars().collect::<Vec<_>>();
    let pattern = chars(pattern);
    let fitting = crush.iter_buckets().filter(|b| {
        let name = crush.name(b.id).unwrap_or_default();
        fits(&pattern, &chars(name))
    });
    let mut found = fitting.map(|b| map.osds_below(b.id)).peekable();
    found.peek()?;
    Some(found.flatten().collect())
}

struct Row {
    osd: OsdId,
    host: String,
    store: StoreStatfs,
    served: Served,
    state: Vec<&'static str>,
}

fn row(m: &View, osd: OsdId) -> Row {
    // As in Ceph nothing is shown of the store of an OSD that is out.
    let stat = m
        .state
        .stats
        .osds
        .get(&osd)
        .filter(|_| m.state.osd.map.is_in(osd));
    Row {
        osd,
        host: misc::osd_metadata(m, osd).remove("hostname").unwrap_or_default(),
        store: stat.map(|s| s.statfs).unwrap_or_default(),
        served: m.state.stats.served(osd),
        state: m.state.osd.map.state(osd).names().collect(),
    }
}

/// As later releases write it; 16.2 always answers with the table.
fn row_json(r: &Row) -> Value {
    json!({
        "id": r.osd, "host name": r.host, "kb used": r.store.used_raw() / 1024, "kb available": r.store.available / 1024,
        "write ops rate": r.served.writes, "write byte rate": r.served.write_bytes, "read ops rate": r.served.reads,
        "read byte rate": r.served.read_bytes, "state": r.state,
    })
}

fn status(m: &mut Turn<'_>, call: &Call<'_>) -> Done {
    let below = match call.args.opt_str("bucket") {
        None => None,
        Some(bucket) => match below(m.view, &bucket) {
            Some(osds) => Some(osds),
            None => {
                let mut reply = Reply::error_without_sign(errno::ENOENT, "");
                reply.data = format!("Bucket '{bucket}' not found").into();
                return Err(reply);
            }
        },
    };
    let osds = m
        .view
        .state
        .osd
        .map
        .osds()
        .filter(|o| below.as_ref().is_none_or(|b| b.contains(o)));
    let rows: Vec<Row> = osds.map(|o| row(m.view, o)).collect();
    if call.format.is_structured() {
        let list: Vec<Value> = rows.iter().map(row_json).collect();
        return now(Reply::json(call.format, &json!({"OSDs": list})));
    }
    if rows.is_empty() {
        return now(Reply::default());
    }
    use Align::{Left, Right};
    let columns = [
        "ID", "HOST", "USED", "AVAIL", "WR OPS", "WR DATA", "RD OPS", "RD DATA", "STATE",
    ];
    let align = |name: &str| {
        if matches!(name, "HOST" | "STATE") {
            Left
        } else {
            Right
        }
    };
    let columns = columns.map(|name| (name, align(name), align(name)));
    let mut t = Table::new(&columns);
    for r in rows {
        t.row([
            r.osd.to_string(),
            r.host,
            short(r.store.used_raw(), 1024),
            short(r.store.available, 1024),
            short(r.served.writes, 1000),
            short(r.served.write_bytes, 1024),
            short(r.served.reads, 1000),
            short(r.served.read_bytes, 1024),
            r.state.join(","),
        ]);
    }
    // The module's table has its space between columns behind the last one, too.
    let lines = t.render().lines().map(|l| format!("{l}  \n")).collect::<String>();
    now(Reply::text(lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_a_shell() {
        let fits = |p: &str, n: &str| fits(&p.chars().collect::<Vec<_>>(), &n.chars().collect::<Vec<_>>());
        for (pattern, name) in [
            ("default", "default"),
            ("*", ""),
            ("h*", "host1"),
            ("h?st[0-3]", "host1"),
            ("[!a-c]x", "dx"),
            ("a[]]", "a]"),
            ("[", "["),
            ("*t*", "host1"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("default", "default~hdd"),
            ("?", ""),
            ("[a-c]", "d"),
            ("[!a]", "a"),
            ("", "x"),
            ("[a", "a"),
        ] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
