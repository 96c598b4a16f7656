//! Erasure-code profiles and erasure-coded pools, compared with what `conformance/expected/ec.txt`
//! recorded of real Ceph.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value, json};
use spirula_maps::{PgId, PoolFlags, PoolId};

use super::{MMonCommandAck, OsdId, OsdMap, Positions, World};

const EXPECTED: &str = include_str!("../../../../../conformance/expected/ec.txt");

/// What is told of a gap in `conformance/gaps.txt`, or needs OSDs.
const PASSED_OVER: [&str; 5] = ["mapping", "unsupported", "in_use.006", "shown", "widths.035"];

/// A command of the recording: its name there, exit code, words, and what it printed.
struct Recorded {
    name: &'static str,
    code: i32,
    line: &'static str,
    said: BTreeMap<&'static str, Vec<&'static str>>,
}

fn recorded() -> Vec<Recorded> {
    let mut all: Vec<Recorded> = Vec::new();
    for line in EXPECTED.lines() {
        let (name, rest) = line.split_once(": ").unwrap();
        match (name.split('.').nth(2), rest.split_once(" $ ")) {
            (None, Some((code, line))) => all.push(Recorded {
                name,
                code: code.parse().unwrap(),
                line,
                said: BTreeMap::new(),
            }),
            (Some(stream), _) => all.last_mut().unwrap().said.entry(stream).or_default().push(rest),
            (None, None) => panic!("{line}"),
        }
    }
    all
}

/// The words of a command, up to a pipe, without functions; `None` for any other.
fn words(line: &str, pool: &str) -> Option<Vec<String>> {
    let line = line.split(" 2>&1 |").next()?.split(" | ").next()?;
    let (mut words, mut word, mut quote, mut begun) = (Vec::new(), String::new(), None, false);
    for c in line
        .replace("$P", pool)
        .replace("$Q", &format!("{pool}-2"))
        .chars()
    {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (None, '\'' | '"') => (quote, begun) = (Some(c), true),
            (None, ' ') if begun => {
                words.push(std::mem::take(&mut word));
                begun = false;
            }
            (None, '|' | ';' | '&' | '$' | '>') => return None,
            (None, ' ') => {}
            (_, c) => {
                word.push(c);
                begun = true;
            }
        }
    }
    words.extend(begun.then_some(word));
    (words.first()? == "ceph").then(|| words.split_off(1))
}

/// The arguments that the official tool makes of a command line; `None` where a test cannot.
fn arguments(words: &[String]) -> Option<Value> {
    const COMMANDS: [(&str, &[&str]); 12] = [
        ("osd erasure-code-profile set", &["name", "profile"]),
        ("osd erasure-code-profile get", &["name"]),
        ("osd erasure-code-profile rm", &["name"]),
        (
            "osd pool create",
            &[
                "pool",
                "pg_num",
                "pgp_num",
                "pool_type",
                "erasure_code_profile",
                "rule",
                "expected_num_objects",
            ],
        ),
        ("osd pool set", &["pool", "var", "val"]),
        ("osd pool get", &["pool", "var"]),
        ("osd pool rm", &["pool", "pool2"]),
        ("osd pool rename", &["srcpool", "destpool"]),
        ("osd crush class create", &["class"]),
        ("osd crush class rm", &["class"]),
        ("osd crush rule create-erasure", &["name", "profile"]),
        ("osd crush rule rm", &["name"]),
    ];
    const OPTIONS: [&str; 7] = [
        "size",
        "autoscale_mode",
        "pg_num",
        "pgp_num",
        "pool_type",
        "erasure_code_profile",
        "rule",
    ];
    let said = words.join(" ");
    let (prefix, names) = COMMANDS.iter().find(|(prefix, _)| {
        said.strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with(' '))
    })?;
    let mut args = Map::from_iter([("prefix".to_owned(), json!(prefix))]);
    let mut names = names.iter().peekable();
    let mut words = words[prefix.split(' ').count()..].iter();
    while let Some(word) = words.next() {
        let (name, text) = match word.strip_prefix("--") {
            Some("format") => return None,
            Some(option) if OPTIONS.contains(&option) => (option, words.next()?),
            Some(flag) => {
                args.insert(flag.replace('-', "_"), json!(true));
                continue;
            }
            // The last parameter of this one takes all words that follow.
            None if prefix.ends_with("profile set") && names.peek() == Some(&&"profile") => ("profile", word),
            None => {
                // Numbers may be left out.
                let is_number = word.parse::<i64>().is_ok();
                let fits = |name: &&&str| is_number || !["pg_num", "pgp_num"].contains(*name);
                (*names.by_ref().find(fits)?, word)
            }
        };
        let value = match name {
            "profile" if prefix.ends_with("profile set") => {
                let list = args.entry("profile").or_insert_with(|| json!([]));
                list.as_array_mut()?.push(json!(text));
                continue;
            }
            "pg_num" | "pgp_num" | "size" | "expected_num_objects" => json!(text.parse::<i64>().ok()?),
            "pool_type" if !["replicated", "erasure"].contains(&text.as_str()) => return None,
            _ => json!(text),
        };
        args.insert(name.to_owned(), value);
    }
    Some(Value::Object(args))
}

/// A text with the numbers replaced that the recording has replaced.
fn normal(text: &str) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    for at in 1..words.len() {
        let before = words[at - 1];
        let is_number = words[at].bytes().all(|b| b.is_ascii_digit());
        if is_number
            && (before == "at"
                || before == "pool" && words[0] == "set"
                || before.contains("_rule")
                || text.contains("crush ruleset"))
        {
            words[at] = "N";
        }
    }
    words.join(" ")
}

fn text(ack: &MMonCommandAck) -> String {
    String::from_utf8(ack.output.to_bytes().to_vec()).unwrap()
}

fn erasure_world() -> (World, u64) {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    // As a cluster is made with it.
    let create = json!({"prefix": "osd pool create", "pool": "first", "pg_num": 1, "pool_type": "erasure"});
    run(&mut w, admin, &create);
    (w, admin)
}

/// Runs a command that has to succeed.
fn run(w: &mut World, admin: u64, args: &Value) -> MMonCommandAck {
    let ack = w.command(admin, &args.to_string());
    assert_eq!(ack.result, 0, "{args}: {}", ack.status);
    ack
}

#[test]
fn commands_are_answered_as_recorded() {
    let (mut w, admin) = erasure_world();
    let (mut wrong, mut compared, mut case) = (String::new(), 0, "");
    for r in recorded() {
        let of = r.name.split('.').next().unwrap();
        if PASSED_OVER.iter().any(|p| of == *p || r.name == *p) {
            continue;
        }
        let pool = format!("commands-{of}");
        if case != of {
            case = of;
            for name in [pool.clone(), format!("{pool}-2")] {
                run(
                    &mut w,
                    admin,
                    &json!({"prefix": "osd pool create", "pool": name, "pg_num": 1}),
                );
            }
        }
        let Some(args) = words(r.line, &pool).and_then(|words| arguments(&words)) else {
            continue;
        };
        let said = r.said.values().flatten();
        // Some are refused by the official tool itself.
        if said
            .into_iter()
            .any(|line| line.contains("EINVAL: invalid command"))
        {
            continue;
        }
        let ack = w.command(admin, &args.to_string());
        let wanted = |stream| {
            r.said
                .get(stream)
                .map(|lines| lines.join("\n"))
                .unwrap_or_default()
        };
        if r.line.contains(" | ") {
            continue;
        }
        let mut err = ack.status.trim_end().to_owned();
        if let Some(errno) = spirula_errno::Errno::of_result(ack.result) {
            err = format!("Error {}: {err}", errno.name());
        }
        let (out, err) = (normal(text(&ack).trim_end()), normal(&err));
        // The exit code has one byte.
        if (-ack.result) & 0xff != r.code || err.trim_end() != wanted("err") || out != wanted("out") {
            let _ = writeln!(wrong, "{}: {}\n  {} {err}{out}", r.name, r.line, -ack.result);
            let _ = writeln!(wrong, "  {} {}{}", r.code, wanted("err"), wanted("out"));
        }
        compared += 1;
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(compared > 600, "{compared}");
}

#[test]
fn stripes_are_as_wide_as_recorded() {
    let (mut w, admin) = erasure_world();
    let mut compared = 0;
    for r in recorded() {
        let Some(profile) = r.line.strip_prefix("width ") else {
            continue;
        };
        let mut words: Vec<&str> = profile.split(' ').collect();
        words.push("crush-failure-domain=osd");
        let set =
            json!({"prefix": "osd erasure-code-profile set", "name": "p", "profile": words, "force": true});
        run(&mut w, admin, &set);
        let create = json!({"prefix": "osd pool create", "pool": "a", "pg_num": 1, "pgp_num": 1,
            "pool_type": "erasure", "erasure_code_profile": "p"});
        run(&mut w, admin, &create);
        let map = &w.mon.view.state.osd.map;
        let p = map.pool(map.pool_id("a").unwrap()).unwrap();
        let shown = format!(
            "{{'size': {}, 'min_size': {}, 'stripe_width': {}}}",
            p.size, p.min_size, p.stripe_width
        );
        assert_eq!(r.said["out"][1], shown, "{profile}");
        let rule = map.crush.map().rule(p.crush_rule.into()).unwrap();
        assert_eq!(r.said["out"][3], format!("\"min_size\":{}", rule.min_size));
        assert_eq!(r.said["out"][4], format!("\"max_size\":{}", rule.max_size));
        assert!(p.flags.contains(PoolFlags::EC_OVERWRITES));
        let rm =
            json!({"prefix": "osd pool rm", "pool": "a", "pool2": "a", "yes_i_really_really_mean_it": true});
        run(&mut w, admin, &rm);
        run(
            &mut w,
            admin,
            &json!({"prefix": "osd crush rule rm", "name": "a"}),
        );
        compared += 1;
    }
    assert!(compared > 30, "{compared}");
}

#[test]
fn pools_are_erasure_coded_where_that_is_the_default() {
    let (mut w, admin) = erasure_world();
    let default =
        json!({"prefix": "config set", "who": "mon", "name": "osd_pool_default_type", "value": "erasure"});
    run(&mut w, admin, &default);
    for (name, stated) in [("coded", None), ("copied", Some("replicated"))] {
        let mut create = json!({"prefix": "osd pool create", "pool": name});
        if let Some(stated) = stated {
            create["pool_type"] = stated.into();
        }
        run(&mut w, admin, &create);
        let map = &w.mon.view.state.osd.map;
        let kind = map.pool(map.pool_id(name).unwrap()).unwrap().kind.name();
        assert_eq!(kind, stated.unwrap_or("erasure"));
    }
}

/// A pool of 4+2 chunks on three OSDs.
fn pool_with_holes(w: &mut World, admin: u64) -> PoolId {
    for args in [
        json!({"prefix": "osd erasure-code-profile set", "name": "p", "profile": ["k=4", "m=2", "crush-failure-domain=osd"]}),
        json!({"prefix": "osd pool create", "pool": "e", "pg_num": 8, "pgp_num": 8, "pool_type": "erasure",
            "erasure_code_profile": "p"}),
    ] {
        run(w, admin, &args);
    }
    w.mon.view.state.osd.map.pool_id("e").unwrap()
}

#[test]
fn holes_are_shown_and_stay_where_they_are() {
    let (mut w, admin) = erasure_world();
    let pool = pool_with_holes(&mut w, admin);
    let pg = PgId { pool, seed: 3 };
    let up = |map: &OsdMap| map.map_pg(pg).up;
    let before = up(&w.mon.view.state.osd.map);
    assert_eq!((before.slots().len(), before.count()), (6, 3));
    let shown = text(&run(
        &mut w,
        admin,
        &json!({"prefix": "pg map", "pgid": pg.to_string()}),
    ));
    let numbers = before.numbers();
    assert!(numbers.contains("2147483647"));
    assert!(
        shown.ends_with(&format!(" -> up {numbers} acting {numbers}\n")),
        "{shown}"
    );
    let question = json!({"prefix": "osd map", "pool": "e", "object": "o"});
    let shown = text(&run(&mut w, admin, &question));
    assert!(shown.contains("NONE") && !shown.contains("2147483647"), "{shown}");
    let json = text(&run(
        &mut w,
        admin,
        &json!({"prefix": "osd map", "pool": "e", "object": "o", "format": "json"}),
    ));
    assert!(json.contains("2147483647"), "{json}");

    // The first member goes down: the others stay in their places.
    let first = before.first().unwrap();
    run(&mut w, admin, &json!({"prefix": "osd set", "key": "noup"}));
    run(
        &mut w,
        admin,
        &json!({"prefix": "osd down", "ids": [first.to_string()]}),
    );
    let after = up(&w.mon.view.state.osd.map);
    let left: Positions = before.slots().iter().map(|o| o.filter(|o| *o != first)).collect();
    assert_eq!(after, left);

    // Temporary members with a hole, as the map has them of OSDs.
    let temporary: Positions = [None, Some(OsdId::new(1)), Some(OsdId::new(2))]
        .into_iter()
        .collect();
    let mut map = (*w.mon.view.state.osd.map).clone();
    map.pg_temp.insert(pg, temporary.clone());
    let at = map.map_pg(pg);
    let expected: Positions = temporary
        .slots()
        .iter()
        .map(|o| o.filter(|o| map.is_up(*o)))
        .collect();
    assert_eq!((at.acting_primary, at.acting), (expected.first(), expected));
}

#[test]
fn raw_space_is_counted_by_the_chunks() {
    let (mut w, admin) = erasure_world();
    let pool = pool_with_holes(&mut w, admin);
    let map = &w.mon.view.state.osd.map;
    assert_eq!(map.raw_used_rate(pool), 1.5);
    let status = text(&run(
        &mut w,
        admin,
        &json!({"prefix": "osd pool autoscale-status", "format": "json"}),
    ));
    assert!(status.contains(r#""raw_used_rate":1.5"#), "{status}");
}
