//! What a turn changes, and when.

use super::*;

/// A crash whose report has so many bytes.
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
    assert_eq!(down_since(&w, 0), None);

    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    let complaints = |w: &World, osd| w.mon.view.state.osd.lives.get(osd).unwrap().failure.clone();
    w.mon
        .view
        .state
        .osd
        .lives
        .entry(1)
        .failure
        .report(0, Duration::ZERO);
    w.command(admin, r#"{"prefix":"osd down","ids":["0"]}"#);
    assert_eq!(down_since(&w, 0), Some(w.mon.view.steady.now()));
    assert!(
        complaints(&w, 1).is_empty(),
        "those of an OSD that is down do not count"
    );
    // Marked out and in again it gets the whole time again.
    w.pass(Duration::from_secs(30));
    w.command(admin, r#"{"prefix":"osd out","ids":["0"]}"#);
    assert_ne!(down_since(&w, 0), Some(w.mon.view.steady.now()));
    w.command(admin, r#"{"prefix":"osd in","ids":["0"]}"#);
    assert_eq!(down_since(&w, 0), Some(w.mon.view.steady.now()));
    w.boot(0);
    assert_eq!(down_since(&w, 0), None);
    w.command(admin, r#"{"prefix":"osd down","ids":["0"]}"#);
    w.command(admin, r#"{"prefix":"osd rm","ids":["0"]}"#);
    assert!(w.mon.view.state.osd.lives.get(0).is_none());
}
