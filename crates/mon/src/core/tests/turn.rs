//! The changes that a turn makes, and when.

use spirula_proto::internal::report::{OsdBeacon, OsdGoingDown};

use super::*;
use crate::core::write::Change;
use crate::core::{Changes, Effect, Fate, Turn, View, Waiter};
use spirula_invariant::Counts;
use spirula_proto::mon::{LogPriority, MPoolOp};

/// A crash whose report has this many bytes.
fn crash(id: &str, bytes: usize) -> &'static [u8] {
    let mut report = format!(r#"{{"crash_id":"{id}","timestamp":"1970-01-12T13:00:00.000000Z","pad":""#);
    report += &"x".repeat(bytes - report.len() - 2);
    report += r#""}"#;
    report.leak().as_bytes()
}

#[test]
fn a_command_that_is_refused_halfway_changes_nothing() {
    let mut w = World::new();
    let admin = w.admin();
    // The second has no room for the note that somebody has looked at it.
    for (id, bytes) in [("a", 100), ("b", 65_530)] {
        let ack = w.command_with(admin, r#"{"prefix":"crash post"}"#, crash(id, bytes));
        assert_eq!((ack.result, ack.status.as_str()), (0, ""));
    }
    let list = |w: &mut World| {
        let ack = w.command(admin, r#"{"prefix":"crash ls-new"}"#);
        String::from_utf8(ack.output.to_bytes().to_vec()).unwrap()
    };
    let before = list(&mut w);
    assert!(before.contains("a ") && before.contains("b "), "{before}");
    let ack = w.command(admin, r#"{"prefix":"crash archive-all"}"#);
    assert_eq!(ack.result, -27, "{}", ack.status);
    assert_eq!(list(&mut w), before);
    let ack = w.command(admin, r#"{"prefix":"crash archive","id":"a"}"#);
    assert_eq!(ack.result, 0, "{}", ack.status);
    assert!(!list(&mut w).contains("a "));
}

#[test]
fn a_turn_that_is_refused_sends_nothing() {
    let mut w = World::new();
    let admin = w.admin();
    w.mon.take_outputs();
    let send = |turn: &mut Turn<'_>| turn.effect(Effect::Send(admin, MMonCommandAck::default().to_message()));
    for (result, sent) in [(Err(()), 0), (Ok(()), 1)] {
        let ended = w.mon.attempt(|turn| {
            send(turn);
            result
        });
        assert_eq!((ended, w.mon.take_outputs().len()), (result, sent));
    }
}

#[test]
fn copies_are_forced_wherever_they_can_be() {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    w.command(admin, r#"{"prefix":"osd pool create","pool":"p","pg_num":32}"#);
    w.all_in(PgState::ACTIVE.with(PgState::DEGRADED));
    let force = |w: &mut World, pgs: &str| {
        let json = format!(r#"{{"prefix":"pg force-recovery","pgid":[{pgs}]}}"#);
        let command = MMonCommand {
            cmd: vec![json],
            ..MMonCommand::default()
        };
        w.mon.message(admin, command.to_message(), w.now);
        let (mut told, mut said) = (0, None);
        for output in w.mon.take_outputs() {
            match output {
                Output::Send(id, msg) if id == admin => said = Some(msg.decode::<MMonCommandAck>().unwrap()),
                Output::Send(..) => told += 1,
                _ => {}
            }
        }
        (told, said.map(|ack| (ack.result, ack.status)).unwrap())
    };
    let all: Vec<String> = w
        .mon
        .view
        .state
        .osd
        .map
        .pgs()
        .map(|pg| format!("\"{pg}\""))
        .collect();
    // As in Ceph it is no error if only some can't be forced.
    let (told, (code, said)) = force(&mut w, &format!("\"x\",{}", all.join(",")));
    assert_eq!((told, code), (3, 0), "{said}");
    assert!(
        said.starts_with("invalid pgid 'x'; instructing pg(s) ["),
        "{said}"
    );
    assert_eq!(
        force(&mut w, "\"x\""),
        (0, (-22, "invalid pgid 'x'; \n".to_owned()))
    );
    // The last OSD's session ends: the others are told.
    w.mon.close(102, w.now);
    let (told, (code, said)) = force(&mut w, &all.join(","));
    assert_eq!((told, code), (2, -11), "{said}");
    assert!(said.ends_with("osd.2 is not currently connected\n"), "{said}");
}

#[test]
fn what_is_known_of_osds_follows_the_committed_map() {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    let down_since = |w: &World, osd| w.mon.view.state.osd.lives.get(osd).unwrap().down_since;
    // A change that is lost with the lead changes nothing of it.
    let down = MMonCommand {
        cmd: vec![r#"{"prefix":"osd down","ids":["0"]}"#.to_owned()],
        ..MMonCommand::default()
    };
    w.mon.message(admin, down.to_message(), w.now);
    let proposes = |o: &Output| matches!(o, Output::Propose(_));
    assert!(w.mon.take_outputs().iter().any(proposes));
    w.mon.adrift(2, w.now);
    assert_eq!(down_since(&w, OsdId::new(0)), None);

    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    let complaints = |w: &World, osd| w.mon.view.state.osd.lives.get(osd).unwrap().failure.clone();
    w.mon
        .view
        .state
        .osd
        .lives
        .entry(OsdId::new(1))
        .failure
        .report(OsdId::new(0), Duration::ZERO);
    w.command(admin, r#"{"prefix":"osd down","ids":["0"]}"#);
    assert_eq!(down_since(&w, OsdId::new(0)), Some(w.mon.view.steady.now()));
    assert!(
        complaints(&w, OsdId::new(1)).is_empty(),
        "those of an OSD that is down do not count"
    );
    // Marked out and in again it gets the whole time again.
    w.pass(Duration::from_secs(30));
    w.command(admin, r#"{"prefix":"osd out","ids":["0"]}"#);
    assert_ne!(down_since(&w, OsdId::new(0)), Some(w.mon.view.steady.now()));
    w.command(admin, r#"{"prefix":"osd in","ids":["0"]}"#);
    assert_eq!(down_since(&w, OsdId::new(0)), Some(w.mon.view.steady.now()));
    w.boot(0);
    assert_eq!(down_since(&w, OsdId::new(0)), None);
    w.command(admin, r#"{"prefix":"osd down","ids":["0"]}"#);
    w.command(admin, r#"{"prefix":"osd rm","ids":["0"]}"#);
    assert!(w.mon.view.state.osd.lives.get(OsdId::new(0)).is_none());
}

#[test]
fn nobody_waits_for_a_change_that_does_not_fit() {
    let mut w = World::new();
    let admin = w.admin();
    w.boot(0);
    let epoch = w.mon.view.state.osd.map.epoch;
    // No command prepares such a change.
    w.mon.turn(|turn| turn.pending_osd().epoch = epoch.after(2));
    let make = Box::new(|_: &View, fate: Fate| {
        let reply = fate.reply(crate::command::Reply::status("done"));
        MMonCommandAck {
            result: reply.code,
            ..MMonCommandAck::default()
        }
        .to_message()
    });
    w.mon.writes.waiters.push(Waiter { session: admin, make });
    // The next one goes on.
    let ack = w.command(admin, r#"{"prefix":"osd down","ids":["0"]}"#);
    assert_eq!((ack.result, ack.status.as_str()), (0, "marked down osd.0. "));
    assert_eq!(w.mon.view.state.osd.map.epoch, epoch.next());
    let refused: MMonCommandAck = w.inbox[&admin].last().unwrap().decode().unwrap();
    assert_eq!(refused.result, -crate::command::errno::EIO);
    let log = w.command(admin, r#"{"prefix":"log last","level":"error"}"#);
    let log = String::from_utf8(log.output.to_bytes().to_vec()).unwrap();
    assert!(log.contains("a change of the OSDMap is given up"), "{log}");
    assert_eq!(dropped(&mut w, "change_unsound"), 1);
}

/// A count of `perf dump`.
fn dropped(w: &mut World, name: &str) -> u64 {
    let dump = crate::command::daemon_command(&mut w.mon.daemon(), "perf dump", &serde_json::Map::new());
    dump.unwrap().value["mon"][name].as_u64().unwrap()
}

#[test]
fn what_is_merely_old_is_counted_by_its_reason() {
    let mut w = World::new();
    w.admin();
    (0..3).for_each(|o| w.boot(o));
    let epoch = w.mon.view.state.osd.map.epoch;
    // It is up: this is of an earlier life.
    let dead = OsdReport::Dead(OsdGoingDown {
        epoch,
        ..OsdGoingDown::default()
    });
    w.send(100, dead.to_message());
    assert_eq!(dropped(&mut w, "report_stale"), 1);
    w.send(1, beacon());
    assert_eq!(dropped(&mut w, "report_foreign"), 1);
    w.mon.routed(77, beacon(), w.now);
    w.send(77, beacon());
    assert_eq!(dropped(&mut w, "session_gone"), 2);
    w.mon.confirmed(9, w.now);
    assert_eq!(dropped(&mut w, "answer_late"), 1);
    assert_eq!(w.mon.view.state.osd.map.epoch, epoch);
}

fn beacon() -> RawMessage {
    OsdReport::Beacon(OsdBeacon::default()).to_message()
}

#[test]
#[should_panic(expected = "expected a change at the leader, session 7, term 2")]
fn only_the_leader_changes_anything() {
    let mut w = World::new();
    w.mon.adrift(2, w.now);
    w.mon.write(7, 0, Change::PoolOp(MPoolOp::default()));
}

#[test]
#[should_panic(expected = "expected one turn at a time, events 1, effects 0")]
fn a_turn_begins_when_the_one_before_has_ended() {
    let mut w = World::new();
    w.mon.turn(|_| ());
    let mut left = Changes::default();
    Turn {
        view: &w.mon.view,
        changes: &mut left,
        dropped: &mut Counts::default(),
    }
    .log_event(LogPriority::INFO, "an event");
    w.mon.changes = left;
    w.mon.turn(|_| ());
}

#[test]
#[should_panic(expected = "expected another monitor to follow, leader a")]
fn a_monitor_does_not_follow_itself() {
    let mut w = World::new();
    let me = w.mon.view.me.name.clone();
    w.mon.follow(&me, 2, w.now);
}

#[test]
fn a_barrier_answers_no_command() {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    let down = MMonCommand {
        cmd: vec![r#"{"prefix":"osd down","ids":["0"]}"#.to_owned()],
        ..MMonCommand::default()
    };
    w.mon.message(admin, down.to_message(), w.now);
    let is_answer = |o: &Output| matches!(o, Output::Send(_, m) if m.kind() == MsgType::MON_COMMAND_ACK);
    let mut outputs = w.mon.take_outputs();
    let at = outputs
        .iter()
        .position(|o| matches!(o, Output::Propose(_)))
        .unwrap();
    let Output::Propose(proposal) = outputs.swap_remove(at) else {
        unreachable!("it is a proposal");
    };
    for (index, txn, answered) in [(100, Txn::default(), false), (101, proposal, true)] {
        w.kv.0.borrow_mut().apply(&txn);
        let txn = Arc::new(txn);
        w.mon.committed(&Applied::Txn { index, txn }, w.now);
        assert_eq!(w.mon.take_outputs().iter().any(is_answer), answered, "{index}");
    }
}

#[test]
fn one_proposal_is_made_at_a_time_from_what_the_one_before_has_left() {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    let epoch = w.mon.view.state.osd.map.epoch;
    let proposals = |w: &mut World| -> Vec<Txn> {
        let outputs = w.mon.take_outputs().into_iter();
        outputs
            .filter_map(|o| match o {
                Output::Propose(txn) => Some(txn),
                _ => None,
            })
            .collect()
    };
    for osd in 0..2 {
        let down = MMonCommand {
            cmd: vec![format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#)],
            ..MMonCommand::default()
        };
        w.mon.message(admin, down.to_message(), w.now);
    }
    let first = proposals(&mut w);
    assert_eq!(first.len(), 1, "the second command waits for the first commit");
    w.mon.tick(w.now);
    assert!(proposals(&mut w).is_empty(), "and so does maintenance");
    for (i, txn) in first.into_iter().enumerate() {
        commit(&mut w, txn);
        assert_eq!(w.mon.view.state.osd.map.epoch, epoch.next().after(i as u32));
    }
    let second = proposals(&mut w);
    assert_eq!(second.len(), 1);
    second.into_iter().for_each(|txn| commit(&mut w, txn));
    let map = &w.mon.view.state.osd.map;
    assert_eq!(
        (
            map.epoch,
            map.is_up(OsdId::new(0)),
            map.is_up(OsdId::new(1)),
            map.is_up(OsdId::new(2))
        ),
        (epoch.after(2), false, false, true)
    );
}

/// The log has a transaction.
fn commit(w: &mut World, txn: Txn) {
    w.kv.0.borrow_mut().apply(&txn);
    w.index += 1;
    let news = Applied::Txn {
        index: w.index,
        txn: Arc::new(txn),
    };
    w.mon.committed(&news, w.now);
}
