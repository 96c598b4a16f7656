//! The commands that sessions may send to the daemon itself, and the clients that they may put on
//! the blocklist.

use std::collections::BTreeSet;

use spirula_denc::Fsid;
use spirula_proto::mon::{MCommand, MCommandReply};
use spirula_proto::{MsgType, Payload};

use super::World;
use crate::command::DAEMON_COMMANDS;

/// The commands that a reader may send to a monitor. A new command belongs here or in the next
/// list.
const READS: &[&str] = &["mon_status", "perf dump", "perf schema", "quorum_status"];
/// The commands that require all capabilities at the monitor.
const TAKES_ALL: &[&str] = &[
    "add_bootstrap_peer_hint",
    "add_bootstrap_peer_hintv",
    "compact",
    "connection scores dump",
    "connection scores reset",
    "dump_mempools",
    "heap",
    "log dump",
    "log flush",
    "log reopen",
    "perf histogram dump",
    "perf histogram schema",
    "perf reset",
    "quorum enter",
    "quorum exit",
    "smart",
    "sync_force",
    "config diff",
    "config diff get",
    "config get",
    "config help",
    "config set",
    "config show",
    "config unset",
    "dump_historic_ops",
    "dump_historic_slow_ops",
    "dump_ops_in_flight",
    "dump_transitions",
    "injectargs",
    "ops",
    "sessions",
];

impl World {
    fn tell(&mut self, session: u64, json: &str) -> i32 {
        let m = MCommand {
            fsid: Fsid([7; 16]),
            cmd: vec![json.to_owned()],
            ..MCommand::default()
        };
        self.send(session, m.to_message());
        let all = self.inbox.entry(session).or_default();
        let at = all
            .iter()
            .rposition(|m| m.kind() == MsgType::COMMAND_REPLY)
            .unwrap();
        all.remove(at).decode::<MCommandReply>().unwrap().result
    }
}

#[test]
fn readers_change_nothing_at_a_monitor() {
    let all: BTreeSet<&str> = DAEMON_COMMANDS
        .iter()
        .chain(spirula_asok::config::COMMANDS)
        .map(|c| c.name)
        .collect();
    let listed: BTreeSet<&str> = READS.iter().chain(TAKES_ALL).copied().collect();
    assert_eq!(all, listed);
    let mut w = World::new();
    let admin = w.admin();
    for (id, caps) in [
        (11, "allow r"),
        (12, "allow rw"),
        (13, "profile rbd"),
        (14, "profile osd"),
    ] {
        w.open(id, "client.x".parse().unwrap(), caps);
        for command in TAKES_ALL {
            let json = format!(
                r#"{{"prefix":"{command}","var":"mon_osd_down_out_interval","val":["1"],"injected_args":["--mon_osd_down_out_interval=1"]}}"#
            );
            assert_eq!(w.tell(id, &json), -13, "{caps}: {command}");
        }
        for command in READS.iter().chain(&["get_command_descriptions", "version"]) {
            assert_eq!(
                w.tell(id, &format!(r#"{{"prefix":"{command}"}}"#)),
                0,
                "{caps}: {command}"
            );
        }
    }
    w.open(15, "client.x".parse().unwrap(), "allow command injectargs");
    for session in [admin, 15] {
        let json = r#"{"prefix":"injectargs","injected_args":["--mon_osd_down_out_interval=7"]}"#;
        assert_eq!(w.tell(session, json), 0);
    }
    assert_eq!(w.mon.view.values.uint("mon_osd_down_out_interval"), 7);
}

#[test]
fn users_of_images_shut_out_single_clients_only() {
    let mut w = World::new();
    (0..2).for_each(|o| w.boot(o));
    let admin = w.admin();
    for (id, profile) in [
        (11, "rbd"),
        (12, "rbd-mirror"),
        (13, "simple-rados-client-with-blocklist"),
        (14, "mds"),
    ] {
        w.open(id, "client.x".parse().unwrap(), &format!("profile {profile}"));
        let refused = [
            r#""prefix":"osd blocklist","blocklistop":"add","addr":"10.0.0.0/8","range":"range""#,
            r#""prefix":"osd blocklist","blocklistop":"add","addr":"10.0.0.1:0/8","range":"range""#,
            r#""prefix":"osd blocklist","blocklistop":"add","addr":"10.0.0.1:0/0""#,
            r#""prefix":"osd blocklist","blocklistop":"add","addr":"10.0.0.1:0/00""#,
            r#""prefix":"osd blocklist","blocklistop":"add","addr":"10.0.0.1""#,
            r#""prefix":"osd blocklist","blocklistop":"add","addr":["10.0.0.1:0/1","10.0.0.2:0/0"]"#,
            r#""prefix":"osd blocklist","blocklistop":"rm","addr":"10.0.0.9:0/9""#,
            r#""prefix":"osd blocklist","blocklistop":"rm","blacklistop":"add","addr":"10.0.0.9:0/9""#,
            r#""prefix":"osd blacklist","blocklistop":"add","addr":"10.0.0.9:0/9""#,
            r#""prefix":"osd blacklist","blacklistop":"rm","addr":"10.0.0.9:0/9""#,
            r#""prefix":"osd blacklist","blacklistop":"add","addr":"10.0.0.1:0/8","range":"range""#,
            r#""prefix":"osd blocklist clear""#,
            // An OSD (which heartbeats also name), the monitor, and the manager.
            r#""prefix":"osd blocklist","blocklistop":"add","addr":"127.0.0.1:6800/9""#,
            r#""prefix":"osd blocklist","blocklistop":"add","addr":"127.0.0.1:6813/9""#,
            r#""prefix":"osd blocklist","blocklistop":"add","addr":"127.0.0.1:3300/1""#,
            r#""prefix":"osd blocklist","blocklistop":"add","addr":"v2:127.0.0.1:6800/5""#,
        ];
        for json in refused {
            let result = w.command(id, &format!("{{{json}}}")).result;
            assert!(matches!(result, -1 | -13 | -22), "{profile}: {json}: {result}");
        }
        assert!(
            w.mon.view.state.osd.map.blocklist.is_empty()
                && w.mon.view.state.osd.map.range_blocklist.is_empty()
        );
        let honest = r#"{"prefix":"osd blocklist","blocklistop":"add","addr":"10.0.0.9:0/9","expire":60}"#;
        assert_eq!(w.command(id, honest).result, 0, "{profile}");
        assert_eq!(w.mon.view.state.osd.map.blocklist.len(), 1);
        // The arguments that the check reads differ from those that the command reads.
        let lie =
            r#"{"prefix":"osd blacklist","blacklistop":"add","blocklistop":"rm","addr":"10.0.0.9:0/9"}"#;
        w.command(id, lie);
        assert_eq!(w.mon.view.state.osd.map.blocklist.len(), 1, "{profile}");
        let clear = r#"{"prefix":"osd blocklist clear"}"#;
        assert_eq!(w.command(admin, clear).result, 0);
    }
    for daemon in ["127.0.0.1:6800/9", "10.0.0.1"] {
        let json = format!(r#"{{"prefix":"osd blocklist","blocklistop":"add","addr":"{daemon}"}}"#);
        assert_eq!(w.command(admin, &json).result, 0, "an administrator may");
    }
}
