//! Bad commands are refused as the official monitor refuses them; health checks of the daemons;
//! mutes and history.

use super::World;

#[test]
fn bad_commands_are_refused_as_officially() {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    w.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    w.command(
        admin,
        r#"{"prefix":"osd set-require-min-compat-client","version":"luminous"}"#,
    );
    let epoch = w.mon.view.state.osd.map.epoch;
    let mut wrong = Vec::new();
    for line in include_str!("refusals.txt")
        .lines()
        .filter(|l| l.starts_with('{'))
    {
        let (json, rest) = line.split_at(line.find("} ").unwrap() + 1);
        let mut answer = rest.trim().splitn(2, ' ');
        let errno: i32 = answer.next().unwrap().parse().unwrap();
        let ack = w.command(admin, json);
        let text = answer.next();
        if -ack.result != errno || text.is_some_and(|t| t != ack.status.trim_end()) {
            wrong.push(format!("{json}: {} {}", -ack.result, ack.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(w.mon.view.state.osd.map.epoch, epoch);
}

#[test]
fn what_is_not_supported_says_why() {
    let mut w = World::new();
    let admin = w.admin();
    for (json, errno, text) in [
        (
            r#"{"prefix":"orch ls"}"#,
            2,
            "No orchestrator configured (try `ceph orch set backend`)",
        ),
        (
            r#"{"prefix":"pg repeer","pgid":"1.0"}"#,
            95,
            "'pg repeer' is not supported: `ceph osd down` of its primary makes a placement group peer again",
        ),
        (
            r#"{"prefix":"heap","heapcmd":"stats"}"#,
            22,
            "unrecognized command",
        ),
    ] {
        let ack = w.command(admin, json);
        assert_eq!((-ack.result, ack.status.as_str()), (errno, text));
    }
    // A session that may not ask gets no answer.
    w.open(7, "client.nobody".parse().unwrap(), "allow command fsid");
    let ack = w.command(7, r#"{"prefix":"orch ls"}"#);
    assert_eq!((-ack.result, ack.status.as_str()), (13, "access denied"));
}

#[test]
fn trees_show_the_weight_sets() {
    let mut w = World::new();
    let admin = w.admin();
    (0..2).for_each(|o| w.boot(o));
    w.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    for json in [
        r#"{"prefix":"osd crush weight-set create-compat"}"#,
        r#"{"prefix":"osd crush weight-set create","pool":"p","mode":"positional"}"#,
        r#"{"prefix":"osd crush weight-set reweight","pool":"p","item":"osd.1","weight":[0.5,0.25,0.125]}"#,
    ] {
        let ack = w.command(admin, json);
        assert_eq!(ack.result, 0, "{json}: {}", ack.status);
    }
    let text = |ack: super::MMonCommandAck| String::from_utf8(ack.output.to_bytes().to_vec()).unwrap();
    let plain = text(w.command(admin, r#"{"prefix":"osd crush tree"}"#));
    let cells: Vec<Vec<&str>> = plain.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(
        cells[0],
        ["ID", "CLASS", "WEIGHT", "(compat)", "p", "TYPE", "NAME"]
    );
    let osd = cells.iter().find(|c| c.last() == Some(&"osd.1")).unwrap();
    assert_eq!(osd[4], "0.50000", "{plain}");
    let json = text(w.command(admin, r#"{"prefix":"osd tree","format":"json"}"#));
    assert!(json.contains(r#""p":[0.5,0.25,0.125]"#), "{json}");
}

#[test]
fn classes_and_rules_come_and_go() {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    for (json, errno, text) in [
        (
            r#"{"prefix":"osd crush class create","class":"fast"}"#,
            0,
            "created class fast with id 1 to crush map",
        ),
        (
            r#"{"prefix":"osd crush class rename","srcname":"fast","dstname":"slow"}"#,
            0,
            "rename class 'fast' to 'slow'",
        ),
        (
            r#"{"prefix":"osd crush class rm","class":"slow"}"#,
            0,
            "removed class slow with id 1 from crush map",
        ),
        (
            r#"{"prefix":"osd crush rule create-replicated","name":"r","root":"default","type":"osd","class":"ssd"}"#,
            0,
            "",
        ),
        (
            r#"{"prefix":"osd crush class rm","class":"ssd"}"#,
            16,
            "class 'ssd' still referenced by crush_rule(s): 'r'",
        ),
        (r#"{"prefix":"osd crush rule rm","name":"r"}"#, 0, ""),
        (
            r#"{"prefix":"osd crush class rm","class":"ssd"}"#,
            0,
            "removed class ssd with id 0 from crush map",
        ),
        (
            r#"{"prefix":"osd erasure-code-profile set","name":"e","profile":["k=4","m=2","crush-failure-domain=osd"]}"#,
            0,
            "",
        ),
        (
            r#"{"prefix":"osd crush rule create-erasure","name":"e","profile":"e"}"#,
            0,
            "created rule e at 1",
        ),
        (
            r#"{"prefix":"osd crush rule create-simple","name":"s","root":"default","type":"host","mode":"indep"}"#,
            0,
            "",
        ),
        (r#"{"prefix":"osd crush set-all-straw-buckets-to-straw2"}"#, 0, ""),
    ] {
        let ack = w.command(admin, json);
        assert_eq!((-ack.result, ack.status.as_str()), (errno, text), "{json}");
    }
    let crush = w.mon.view.state.osd.map.crush.map();
    assert_eq!(
        crush.rule(1).map(|r| (r.min_size, r.max_size, r.steps.len())),
        Some((3, 6, 5))
    );
    assert!(crush.class_names.is_empty());
}

#[test]
fn a_file_of_options_is_taken_in() {
    let mut w = World::new();
    let admin = w.admin();
    let file = b"[global]\nfsid = x\n[osd]\ndebug osd = 3\nno_such = 1\n";
    let ack = w.command_with(admin, r#"{"prefix":"config assimilate-conf"}"#, file);
    assert_eq!(ack.result, 0, "{}", ack.status);
    assert_eq!(
        ack.output.to_bytes(),
        "\n[global]\n\tfsid = x\n\n[osd]\n\tno_such = 1\n".as_bytes()
    );
    let json = r#"{"prefix":"config get","who":"osd.0","key":"debug_osd"}"#;
    assert_eq!(w.command(admin, json).output.to_bytes(), "3/3\n".as_bytes());
}

#[test]
fn quotas_and_applications_are_set_as_officially() {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    w.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    let long = "a".repeat(129);
    let quota = |field: &str, val: &str| {
        format!(r#"{{"prefix":"osd pool set-quota","pool":"p","field":"{field}","val":"{val}"}}"#)
    };
    let set = |key: &str, value: &str| {
        format!(
            r#"{{"prefix":"osd pool application set","pool":"p","app":"rbd","key":"{key}","value":"{value}"}}"#
        )
    };
    let enable = r#"{"prefix":"osd pool application enable","pool":"p","app":"rbd"}"#.to_owned();
    for (json, errno, text) in [
        (
            quota("max_objects", "10K"),
            0,
            "set-quota max_objects = 10000 for pool p",
        ),
        (
            quota("max_bytes", "10Ki"),
            0,
            "set-quota max_bytes = 10240 for pool p",
        ),
        (enable.clone(), 0, "enabled application 'rbd' on pool 'p'"),
        (enable, 0, "enabled application 'rbd' on pool 'p'"),
        (set("k", ""), 0, "set application 'rbd' key 'k' to '' on pool 'p'"),
        (set("", "v"), 22, "key must be provided"),
        // The name is the application's, as officially.
        (set(&long, "v"), 22, "key 'rbd' too long; max length 128"),
    ] {
        let ack = w.command(admin, &json);
        assert_eq!((-ack.result, ack.status.as_str()), (errno, text), "{json}");
    }
}

#[test]
fn mutes_and_history_are_replicated_state() {
    let mut w = World::new();
    let admin = w.admin();
    w.command(admin, r#"{"prefix":"osd set","key":"noout"}"#);
    let mute = r#"{"prefix":"health mute","code":"OSDMAP_FLAGS","ttl":"1h"}"#;
    assert_eq!(w.command(admin, mute).result, 0);
    for value in ["1/5", "2/5"] {
        let json = format!(r#"{{"prefix":"config set","who":"osd","name":"debug_osd","value":"{value}"}}"#);
        assert_eq!(w.command(admin, &json).result, 0);
    }
    // Another process on the same store.
    let values = std::collections::BTreeMap::new();
    w.mon = super::Monitor::load(super::identity(), w.kv.clone(), values, 2, true, w.now).unwrap();
    w.settle();
    let admin = w.admin();
    let text = |ack: super::MMonCommandAck| String::from_utf8(ack.output.to_bytes().to_vec()).unwrap();
    let health = text(w.command(admin, r#"{"prefix":"health"}"#));
    assert!(health.contains("(muted: OSDMAP_FLAGS(60m))"), "{health}");
    let json = r#"{"prefix":"config reset","num":2}"#;
    assert_eq!(w.command(admin, json).result, 0);
    let log = text(w.command(admin, r#"{"prefix":"config log","num":1}"#));
    assert!(
        log.ends_with("--- reset to 2 ---\n- osd/debug_osd = 2/5\n+ osd/debug_osd = 1/5\n"),
        "{log}"
    );
    w.pass(std::time::Duration::from_secs(3601));
    let health = text(w.command(admin, r#"{"prefix":"health"}"#));
    assert!(!health.contains("muted"), "{health}");
}

#[test]
fn an_osd_of_another_version_is_told_after_the_delay() {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    let ours = crate::version::LONG;
    let metadata = |version: &str| format!(r#"{{"ceph_version":"{version}"}}"#).into_bytes();
    for (osd, version) in [
        ("0", ours),
        ("1", "ceph version 16.2.15 (spirula 0.0.1) pacific (stable)"),
    ] {
        w.mon.changes.txn.put("osd_metadata", osd, metadata(version));
    }
    w.mon.pump();
    w.settle();
    let health = |w: &mut World| {
        let ack = w.command(admin, r#"{"prefix":"health","detail":"detail"}"#);
        String::from_utf8(ack.output.to_bytes().to_vec()).unwrap()
    };
    assert!(!health(&mut w).contains("DAEMON_OLD_VERSION"));
    w.pass(std::time::Duration::from_secs(604_800));
    let text = health(&mut w);
    assert!(
        text.contains(
            "[WRN] DAEMON_OLD_VERSION: There is a daemon running an older version of ceph\n    \
             osd.1 is running an older version of ceph: 16.2.15 (spirula 0.0.1)\n"
        ),
        "{text}"
    );
    w.mon.changes.txn.put("osd_metadata", "1", metadata(ours));
    w.mon.pump();
    w.settle();
    assert!(!health(&mut w).contains("DAEMON_OLD_VERSION"));
}

#[test]
fn a_full_disk_is_told() {
    let mut w = World::new();
    let admin = w.admin();
    for (available, code) in [(31, None), (30, Some("MON_DISK_LOW")), (5, Some("MON_DISK_CRIT"))] {
        let (total, store) = (100, 1);
        w.mon.disk(crate::health::DiskUse {
            total,
            available,
            store,
        });
        let ack = w.command(admin, r#"{"prefix":"health","detail":"detail"}"#);
        let text = String::from_utf8(ack.output.to_bytes().to_vec()).unwrap();
        assert_eq!(text.contains("MON_DISK"), code.is_some(), "{text}");
        let line = format!("    mon.a has {available}% avail\n");
        assert!(
            code.is_none_or(|c| text.contains(c) && text.contains(&line)),
            "{text}"
        );
    }
}
