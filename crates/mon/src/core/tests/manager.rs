//! A client's commands to the manager.

use std::time::Duration;

use spirula_denc::EntityAddr;
use spirula_manager::{News, Reply as Answer, Request};
use spirula_maps::{Epoch, OsdId};
use spirula_proto::mgr::{MMgrConfigure, MMgrOpen};
use spirula_proto::mon::{
    MCommand, MCommandReply, MMgrCommand, MMgrCommandReply, MMonCommand, MMonCommandAck,
};
use spirula_proto::{MsgType, Payload};

use super::{Fsid, World, identity};
use crate::core::{MgrSession, Monitor};

impl World {
    fn open_mgr(&mut self, id: u64, caps: &str) {
        let addr = EntityAddr::v2("127.0.0.1:0".parse().unwrap(), 7);
        let name = "client.x".parse().unwrap();
        let session = MgrSession::new(name, 4000 + id, caps, addr, None);
        self.mon.open_mgr(id, session);
    }

    fn mgr_command(&mut self, id: u64, json: &str) -> MMgrCommandReply {
        let m = MMgrCommand {
            fsid: Fsid::default(),
            cmd: vec![json.to_owned()],
            input: Default::default(),
        };
        self.send(id, m.to_message().with_tid(9));
        let reply = self.inbox.remove(&id).unwrap().pop().unwrap();
        assert_eq!((reply.kind(), reply.header.tid), (MsgType::MGR_COMMAND_REPLY, 9));
        reply.decode().unwrap()
    }
}

#[test]
fn the_leader_is_the_manager_and_a_new_address_is_a_new_map() {
    let mut w = World::new();
    w.pass(Duration::from_secs(1));
    let map = w.mon.view.state.manager.map.clone();
    assert_eq!(
        (map.active_addrs, map.active_name.as_str()),
        (identity().mgr_addrs, "a")
    );
    assert!(map.available && map.active_gid > 0 && map.epoch > Epoch::new(1));
    let mut moved = identity();
    moved.mgr_addrs = EntityAddr::v2("127.0.0.1:6801".parse().unwrap(), 6).into();
    w.mon = Monitor::load(moved.clone(), w.kv.clone(), Default::default(), 2, true, w.now).unwrap();
    w.settle();
    w.pass(Duration::from_secs(1));
    assert_eq!(w.mon.view.state.manager.map.active_addrs, moved.mgr_addrs);
    assert_eq!(w.mon.view.state.manager.map.epoch, map.epoch.next());
}

#[test]
fn a_manager_that_is_failed_is_gone_and_comes_back_as_another() {
    let mut w = World::new();
    w.boot(0);
    let admin = w.admin();
    w.pass(Duration::from_secs(1));
    let before = w.mon.view.state.manager.map.clone();
    let fail = |w: &mut World, who: &str| {
        let ack = w.command(admin, &format!(r#"{{"prefix":"mgr fail"{who}}}"#));
        (ack.result, ack.status)
    };
    let unknown = (0, "Daemon not found 'b', already failed?".to_owned());
    assert_eq!(fail(&mut w, r#","who":"b""#), unknown);
    assert_eq!(w.mon.view.state.manager.map, before);

    assert_eq!(fail(&mut w, ""), (0, String::new()));
    let gone = w.mon.view.state.manager.map.clone();
    assert!(!gone.available && gone.active_gid == 0 && gone.active_name.is_empty());
    assert_eq!(gone.epoch, before.epoch.next());
    assert_eq!(gone.last_failure_osd_epoch, w.mon.view.state.osd.map.epoch);
    assert_eq!(fail(&mut w, ""), (0, "Currently no active mgr".to_owned()));

    w.pass(Duration::from_secs(1));
    let after = w.mon.view.state.manager.map.clone();
    assert!(after.available && after.active_gid > before.active_gid);
    assert_eq!(
        (after.active_name, after.epoch),
        (before.active_name, before.epoch.after(2))
    );
    assert_eq!(
        fail(&mut w, &format!(r#","who":"{}""#, after.active_gid)),
        (0, String::new())
    );
    assert!(!w.mon.view.state.manager.map.available);
}

#[test]
fn the_modules_that_are_there_are_named_and_stay() {
    let mut w = World::new();
    w.boot(0);
    let admin = w.admin();
    w.pass(Duration::from_secs(1));
    let json = |w: &mut World, prefix: &str| -> serde_json::Value {
        let ack = w.command(admin, &format!(r#"{{"prefix":"{prefix}","format":"json"}}"#));
        serde_json::from_slice(&ack.output.to_bytes()).unwrap()
    };
    let modules = serde_json::json!(["crash", "iostat", "progress", "rbd_support", "status"]);
    assert_eq!(json(&mut w, "mgr module ls")["always_on_modules"], modules);
    let dump = json(&mut w, "mgr dump");
    assert_eq!(dump["always_on_modules"], serde_json::json!({"pacific": modules}));
    for (module, result, status) in [
        (
            "progress",
            -22,
            "module 'progress' cannot be disabled (always-on)",
        ),
        ("restful", 0, "module 'restful' is already disabled"),
    ] {
        let command = format!(r#"{{"prefix":"mgr module disable","module":"{module}"}}"#);
        let ack = w.command(admin, &command);
        assert_eq!((ack.result, ack.status.as_str()), (result, status));
    }
}

#[test]
fn the_manager_serves_its_commands_under_its_capabilities() {
    let mut w = World::new();
    (0..2).for_each(|o| w.boot(o));
    let admin = w.admin();
    w.command(admin, r#"{"prefix":"osd down","ids":["1"]}"#);
    for (id, caps) in [
        (50, "allow *"),
        (51, ""),
        (52, "profile read-only"),
        (53, "profile rbd"),
        (54, "allow command \"osd df\""),
    ] {
        w.open_mgr(id, caps);
    }
    // The session, the command, and the errno.
    for (id, json, errno) in [
        (50, r#"{"prefix":"pg ls-by-pool","poolstr":"none"}"#, 2),
        (50, r#"{"prefix":"osd df"}"#, 0),
        (50, r#"{"prefix":"no such command"}"#, 22),
        // A monitor's, not the manager's.
        (50, r#"{"prefix":"osd dump"}"#, 22),
        (50, "no json", 22),
        (50, r#"{"prefix":"restful list-keys"}"#, 95),
        (51, r#"{"prefix":"osd df"}"#, 13),
        (51, r#"{"prefix":"no such command"}"#, 13),
        (52, r#"{"prefix":"osd df"}"#, 0),
        (52, r#"{"prefix":"no such command"}"#, 22),
        (52, r#"{"prefix":"osd purge","id":1,"force":true}"#, 13),
        (53, r#"{"prefix":"rbd task add migration abort"}"#, 11),
        (53, r#"{"prefix":"osd df"}"#, 13),
        (54, r#"{"prefix":"osd df"}"#, 0),
        (54, r#"{"prefix":"pg stat"}"#, 13),
        (
            50,
            r#"{"prefix":"osd purge","id":"1","force":true,"yes_i_really_mean_it":true}"#,
            0,
        ),
    ] {
        let reply = w.mgr_command(id, json);
        assert_eq!(-reply.result, errno, "{id} {json}: {}", reply.status);
        assert_eq!(
            errno == 13,
            reply.status.starts_with("access denied: does your client key")
        );
    }
    assert!(
        !w.mon.view.state.osd.map.exists(OsdId::new(1)),
        "the reply came after the commit"
    );
}

#[test]
fn a_command_without_a_cluster_is_the_managers_and_one_with_it_the_daemons() {
    let mut w = World::new();
    w.open_mgr(50, "allow *");
    w.open_mgr(51, "allow r");
    let mut ask = |id: u64, fsid: Fsid, json: &str| {
        let m = MCommand {
            fsid,
            cmd: vec![json.to_owned()],
            input: Default::default(),
        };
        w.send(id, m.to_message());
        let reply = w.inbox.remove(&id).unwrap().pop().unwrap();
        let reply: MCommandReply = reply.decode().unwrap();
        (
            -reply.result,
            String::from_utf8(reply.output.to_bytes().to_vec()).unwrap(),
        )
    };
    let ours = identity().fsid;
    assert!(
        ask(50, Fsid::default(), r#"{"prefix":"pg stat"}"#)
            .1
            .contains("pgs")
    );
    assert!(ask(50, ours, r#"{"prefix":"version"}"#).1.contains("16.2"));
    assert_eq!(ask(50, ours, r#"{"prefix":"sessions"}"#).0, 22);
    assert_eq!(ask(51, ours, r#"{"prefix":"version"}"#).0, 13);
}

#[test]
fn daemons_that_open_a_session_are_told_how_often_to_report() {
    let mut w = World::new();
    w.open_mgr(50, "");
    w.send(50, MMgrOpen::default().to_message());
    let reply = w.inbox.remove(&50).unwrap().pop().unwrap();
    assert_eq!(reply.decode::<MMgrConfigure>().unwrap().stats_period, 5);
}

/// A question that was handed to the modules, with its number.
fn asked(w: &mut World) -> (u64, spirula_manager::Question) {
    match w.asked.pop() {
        Some(Request::Ask(id, question)) => (id, *question),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_modules_start_when_the_client_of_those_before_is_shut_out() {
    let mut w = World::new();
    w.boot(0);
    w.pass(Duration::from_secs(3));
    let map = w.mon.view.state.manager.map.clone();
    assert_eq!(w.modules.len(), 1, "once");
    assert_eq!(map.client_addrs.len(), spirula_manager::ADDRESSES);
    assert_eq!(map.client_addrs[0], w.modules[0].into());
    assert!(w.mon.view.state.osd.map.blocklist.is_empty());

    let again = Monitor::load(identity(), w.kv.clone(), Default::default(), 2, true, w.now);
    w.mon = again.unwrap();
    w.settle();
    w.pass(Duration::from_secs(1));
    let shut_out = |w: &World, at: usize| w.mon.view.state.osd.map.is_blocklisted(&w.modules[at]);
    assert!(
        shut_out(&w, 0) && w.modules.len() == 1,
        "before the next one starts"
    );
    w.pass(Duration::from_secs(1));
    assert_eq!(w.modules.len(), 2);
    assert!(!shut_out(&w, 1));
    assert_eq!(
        w.mon.view.state.manager.map.last_failure_osd_epoch,
        w.mon.view.state.osd.map.epoch
    );

    w.mon.module_news(News::Ended("shut out".into()), w.now);
    w.settle();
    assert_eq!(w.stopped, 1);
    w.pass(Duration::from_secs(3));
    assert_eq!(w.modules.len(), 3);
    assert!(shut_out(&w, 1) && !shut_out(&w, 2));
}

#[test]
fn the_modules_answer_their_commands() {
    let mut w = World::new();
    w.boot(0);
    w.open_mgr(50, "profile rbd pool=p");
    let list = r#"{"prefix":"rbd task list"}"#;
    w.mon.stop_module();
    assert_eq!(w.mgr_command(50, list).result, -11, "they are not ready");
    w.pass(Duration::from_secs(3));

    let m = MMgrCommand {
        cmd: vec![r#"{"prefix":"rbd task add remove","image_spec":"q/i"}"#.to_owned()],
        ..MMgrCommand::default()
    };
    w.send(50, m.to_message().with_tid(9));
    let (id, question) = asked(&mut w);
    assert_eq!(
        (question.prefix.as_str(), question.default_pool.as_str()),
        ("rbd task add remove", "rbd")
    );
    assert_eq!(question.args["image_spec"], "q/i");
    assert!(question.authority.allows("p", "n") && !question.authority.allows("q", ""));
    assert!(!w.inbox.contains_key(&50));
    let answer = |w: &mut World, id: u64, reply: Answer| {
        w.mon.module_news(News::Reply(id, reply), w.now);
        w.settle();
        let reply: MMgrCommandReply = w.inbox.remove(&50)?.pop()?.decode().unwrap();
        Some((reply.result, reply.status))
    };
    let denied = Answer::error(
        crate::command::errno::EACCES,
        "not authorized on pool=q, namespace=",
    );
    let (code, status) = answer(&mut w, id, denied).unwrap();
    assert_eq!(code, -13);
    assert!(status.starts_with("not authorized on pool=q, namespace=access denied: does your client"));
    assert_eq!(answer(&mut w, id, Answer::default()), None, "it was answered");

    // An administrator that asks a monitor has no limits, and is answered by the next modules if
    // these end.
    let admin = w.admin();
    let m = MMonCommand {
        cmd: vec![list.to_owned()],
        ..MMonCommand::default()
    };
    w.send(admin, m.to_message().with_tid(8));
    assert!(asked(&mut w).1.authority.allows("q", ""));
    w.mon.module_news(News::Ended("shut out".into()), w.now);
    w.settle();
    let ack: MMonCommandAck = w.inbox.remove(&admin).unwrap().pop().unwrap().decode().unwrap();
    assert_eq!(ack.result, -11);
}

/// Modules that end again and again are started less and less often, and the health says why, until
/// they have worked for a while.
#[test]
fn modules_that_end_again_and_again_are_told_of() {
    let mut w = World::new();
    w.boot(0);
    w.pass(Duration::from_secs(3));
    let failure = |w: &World| {
        let check = w.mon.view.health().remove("MGR_MODULE_ERROR");
        check.map(|c| c.summary)
    };
    let mut pauses = Vec::new();
    for death in 1..=12 {
        let started = w.modules.len();
        w.mon.module_news(News::Ended(format!("death\n{death}")), w.now);
        w.settle();
        let mut waited = 0;
        while w.modules.len() == started {
            w.pass(Duration::from_secs(1));
            waited += 1;
            assert!(waited < 400, "{death}");
        }
        pauses.push(waited);
        let wanted = (death > 2).then(|| format!("Module 'rbd_support' has failed: death?{death}"));
        assert_eq!(failure(&w), wanted);
    }
    assert!(pauses[0] <= 3 && pauses[1] <= 4, "{pauses:?}");
    assert!(pauses.is_sorted() && pauses[4] >= 8, "{pauses:?}");
    assert!(pauses[11] >= 300 && pauses[11] <= 304, "{pauses:?}");
    w.pass(Duration::from_secs(590));
    assert!(failure(&w).is_some());
    w.pass(Duration::from_secs(30));
    assert_eq!(failure(&w), None, "they have worked for ten minutes");
    let started = w.modules.len();
    w.mon.module_news(News::Ended("once".into()), w.now);
    w.settle();
    w.pass(Duration::from_secs(4));
    assert_eq!((w.modules.len(), failure(&w)), (started + 1, None));
}

#[test]
fn warnings_of_the_modules_are_bounded() {
    let mut w = World::new();
    w.boot(0);
    let admin = w.admin();
    w.pass(Duration::from_secs(3));
    let warn = |w: &mut World, count: usize| {
        for n in 0..count {
            w.mon.module_news(News::Suspect(format!("x\n{n}")), w.now);
        }
        w.settle();
        w.pass(Duration::from_secs(2));
        let ack = w.command(admin, r#"{"prefix":"log last","num":10000,"level":"warn"}"#);
        let log = String::from_utf8(ack.output.to_bytes().to_vec()).unwrap();
        log.lines().filter(|l| l.contains("manager: ")).count()
    };
    assert_eq!(warn(&mut w, 50), 50);
    assert_eq!(warn(&mut w, 500), 100);
    w.pass(Duration::from_secs(3600));
    assert_eq!(warn(&mut w, 1), 101);
}
