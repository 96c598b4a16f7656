//! The memory that clients and daemons can make the monitor use for logs.

use std::collections::BTreeMap;
use std::time::Duration;

use spirula_proto::Payload;
use spirula_proto::mon::{LogEntry, MLog, MMonSubscribe, NamedEntity, Subscription};

use super::World;
use crate::core::Topic;

impl World {
    fn lines(&self, channel: &str) -> Vec<String> {
        let all = self.mon.view.state.clog.last(usize::MAX, "debug", channel);
        all.into_iter().map(|e| e.message.clone()).collect()
    }

    fn log_as(&mut self, session: u64, entries: Vec<LogEntry>) {
        let m = MLog {
            entries,
            ..MLog::default()
        };
        self.send(session, m.to_message());
        self.pass(Duration::from_secs(1));
    }
}

#[test]
fn denied_commands_are_logged_short_and_counted() {
    let mut w = World::new();
    w.open(7, "client.evil".parse().unwrap(), "allow r");
    let json = format!(r#"{{"prefix":"osd pool rm","pool":"{}"}}"#, "x".repeat(1 << 20));
    for _ in 0..200 {
        assert_eq!(w.command(7, &json).result, -13);
    }
    w.pass(Duration::from_secs(2));
    let lines = w.lines("audit");
    assert_eq!(lines.len(), 10);
    assert!(
        lines
            .iter()
            .all(|l| l.len() < 1500 && l.contains("entity='client.evil'") && l.ends_with("access denied"))
    );
    w.pass(Duration::from_secs(60));
    assert_eq!(
        w.lines("audit")[10..],
        ["entity='client.evil': access denied to 190 more commands within 60 s"]
    );
}

#[test]
fn the_audit_log_says_what_was_done_and_nothing_else() {
    let mut w = World::new();
    let admin = w.admin();
    w.command(
        admin,
        "{\"prefix\":\"osd pool create\",\"pool\":\"key\"}\n2026 mon.a: from='1' cmd=[x]: dispatch",
    );
    w.command(admin, r#"{"prefix":"config-key set","key":"k","val":"hidden"}"#);
    w.open(8, "client.a\n' forged".parse().unwrap(), "allow r");
    w.command(8, r#"{"prefix":"osd pool create","pool":"p\n"}"#);
    w.pass(Duration::from_secs(2));
    let lines = w.lines("audit");
    assert!(
        lines[0].ends_with(r#"cmd=[{"prefix":"osd pool create","pool":"key"}]: dispatch"#),
        "{lines:?}"
    );
    assert!(
        lines[1].contains(r#""key":"k""#) && !lines[1].contains("hidden"),
        "{lines:?}"
    );
    assert!(
        lines[2].contains(r"entity='client.a\n\' forged'") && lines[2].contains(r#""p\n""#),
        "{lines:?}"
    );
    assert!(lines.iter().all(|l| !l.contains('\n')));
}

#[test]
fn others_write_to_the_cluster_log_under_their_own_names_and_not_without_end() {
    let mut w = World::new();
    w.open(7, "client.reader".parse().unwrap(), "allow r");
    w.open(8, "osd.3".parse().unwrap(), "profile osd");
    let line = |channel: &str, message: String| LogEntry {
        name: NamedEntity {
            kind: 1,
            id: "a".into(),
        },
        channel: channel.to_owned(),
        message,
        ..LogEntry::default()
    };
    let before = w.lines("*").len();
    w.log_as(7, vec![line("cluster", "x".into())]);
    w.log_as(
        8,
        vec![
            line("audit", "forged".into()),
            line(&"c".repeat(1000), "x".into()),
        ],
    );
    assert_eq!(w.lines("*").len(), before);
    w.log_as(
        8,
        vec![
            line("cluster", "two\nlines".into()),
            line("cluster", "y".repeat(1 << 20)),
        ],
    );
    let all = w.mon.view.state.clog.last(2, "debug", "cluster");
    assert!(
        all.iter()
            .all(|e| e.name.kind == 4 && e.name.id == "3" && e.rank.to_string() == "osd.3")
    );
    assert!(all[0].message == "two\\nlines" && all[1].message.len() < 5000);
    w.log_as(8, vec![line("cluster", "z".into()); 5000]);
    w.pass(Duration::from_secs(60));
    assert!(
        w.lines("cluster")
            .iter()
            .any(|l| l.contains("4502 more lines of osd.3")),
        "{:?}",
        w.lines("cluster").last()
    );
}

#[test]
fn only_what_there_is_can_be_subscribed_to() {
    let mut w = World::new();
    w.open(7, "client.x".parse().unwrap(), "allow r");
    let what: BTreeMap<String, Subscription> = ["osdmap", "monmap", "log-info", "mdsmap.x", "nonsense"]
        .map(str::to_owned)
        .into_iter()
        .chain([format!("log-{}", "x".repeat(4 << 20)), "y".repeat(4 << 20)])
        .map(|name| (name, Subscription::default()))
        .collect();
    let m = MMonSubscribe {
        what,
        hostname: "h".repeat(4 << 20),
    };
    w.send(7, m.to_message());
    let s = &w.mon.view.sessions[&7];
    assert_eq!(
        s.subs.keys().map(Topic::to_string).collect::<Vec<_>>(),
        ["log-info", "mdsmap.x", "monmap", "osdmap"]
    );
    assert!(s.host.len() < 300);
}
