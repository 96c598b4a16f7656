//! Bad commands are refused as the official monitor refuses them; health checks of the daemons; mutes and history.

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
    let epoch = w.mon.osd.map.epoch;
    for line in include_str!("refusals.txt")
        .lines()
        .filter(|l| l.starts_with('{'))
    {
        let (json, rest) = line.split_at(line.find("} ").unwrap() + 1);
        let mut answer = rest.trim().splitn(2, ' ');
        let errno: i32 = answer.next().unwrap().parse().unwrap();
        let ack = w.command(admin, json);
        assert_eq!(-ack.result, errno, "{json}: {}", ack.status);
        if let Some(text) = answer.next() {
            assert_eq!(ack.status, text, "{json}");
        }
    }
    assert_eq!(w.mon.osd.map.epoch, epoch);
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
    w.mon = super::Monitor::load(super::identity(), w.kv.clone(), values, 2, w.now).unwrap();
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
        w.mon.writes.txn.put("osd_metadata", osd, metadata(version));
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
    w.mon.writes.txn.put("osd_metadata", "1", metadata(ours));
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
