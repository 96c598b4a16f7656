//! Bad commands are refused as the official monitor refuses them, and change nothing.

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
