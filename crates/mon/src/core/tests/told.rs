//! The OSDs' reports on themselves, and the cluster log's lines on the health.

use spirula_denc::Micros;
use spirula_proto::internal::report::{
    ClockSample, ConfigReport, FailureKind, OsdFailureReport, OsdReportReply,
};
use spirula_proto::internal::{Edition, Protocol};

use super::*;

fn show(w: &mut World, who: &str) -> (i32, String) {
    let ack = w.command(1, &format!(r#"{{"prefix":"config show","who":"{who}"}}"#));
    let text = match ack.result {
        0 => String::from_utf8(ack.output.to_bytes().to_vec()).unwrap(),
        _ => ack.status,
    };
    (ack.result, text)
}

#[test]
fn an_osd_is_shown_with_what_it_says_it_runs_with_while_it_is_there() {
    let mut w = World::new();
    w.admin();
    w.boot(0);
    let unknown = (-2, "no config state for daemon osd.0".to_owned());
    assert_eq!(show(&mut w, "osd.0"), unknown);
    let pair = |v: &str| BTreeMap::from([("osd_max_pgls".to_owned(), v.to_owned())]);
    let report = ConfigReport {
        file: pair("10"),
        overrides: pair("20"),
        ignored: vec!["osd_memory_target".into()],
        ..ConfigReport::default()
    };
    w.send(100, OsdReport::Config(report).to_message());
    let (_, text) = show(&mut w, "osd.0");
    let cells: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(
        cells[1..],
        [
            vec!["osd_max_pgls", "20", "override", "file[10]"],
            vec!["osd_memory_target", "134217728", "default", "mon"]
        ]
    );
    w.mon.close(100, w.now);
    assert_eq!(show(&mut w, "osd.0"), unknown);
    assert!(show(&mut w, "mon.a").1.contains("mon_allow_pool_delete"));
    assert_eq!(show(&mut w, "osd").0, -22);
}

#[test]
fn a_clock_that_stays_wrong_is_told_until_it_is_right_or_the_osd_gone() {
    let mut w = World::new();
    (0..3).for_each(|o| w.boot(o));
    let report = |w: &mut World, seq, ahead_us| {
        let r = PgStatsReport {
            seq,
            clock: Some(ClockSample {
                ahead_us,
                round_trip: Micros::new(2000),
            }),
            ..PgStatsReport::default()
        };
        w.send(101, OsdReport::PgStats(r).to_message());
        w.mon.view.health().remove("OSD_CLOCK_SKEW")
    };
    assert!(report(&mut w, 1, -300_000).is_none());
    assert!(report(&mut w, 2, -300_000).is_none());
    let check = report(&mut w, 3, -310_000).unwrap();
    assert_eq!(check.summary, "clock skew detected on osd.1");
    assert_eq!(
        check.detail,
        ["osd.1 clock skew 0.309s > max 0.05s (latency 0.002s)"]
    );
    assert!(report(&mut w, 4, 51_000).is_none());
    (5..8).for_each(|seq| assert_eq!(report(&mut w, seq, 52_000).is_some(), seq == 7));
    let bye = OsdGoingDown {
        osd: OsdId::new(1),
        ..OsdGoingDown::default()
    };
    w.send(101, OsdReport::GoingDown(bye).to_message());
    w.boot(1);
    assert!(!w.mon.view.health().contains_key("OSD_CLOCK_SKEW"));
}

#[test]
fn the_cluster_log_tells_how_the_health_changes() {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    w.pass(Duration::from_secs(15));
    w.command(admin, r#"{"prefix":"osd set","key":"noout"}"#);
    w.pass(Duration::from_secs(1));
    // A monitor that starts anew has said it already.
    w.mon = Monitor::load(identity(), w.kv.clone(), BTreeMap::new(), 2, true, w.now).unwrap();
    w.settle();
    w.pass(Duration::from_secs(15));
    w.open(1, AuthName::new(EntityType::CLIENT, "admin"), "allow *");
    w.command(admin, r#"{"prefix":"osd unset","key":"noout"}"#);
    w.pass(Duration::from_secs(1));
    // Entries alone wait for the next tick.
    w.pass(Duration::from_secs(1));
    let log = w.mon.view.state.clog.last(100, "info", "cluster");
    let lines: Vec<String> = log
        .iter()
        .map(|e| format!("{} {}", e.priority, e.message))
        .filter(|l| l.contains("ealth"))
        .collect();
    assert_eq!(
        lines,
        [
            "[WRN] Health check failed: OSD count 0 < osd_pool_default_size 3 (TOO_FEW_OSDS)",
            "[INF] Health check cleared: TOO_FEW_OSDS (was: OSD count 0 < osd_pool_default_size 3)",
            "[INF] Cluster is now healthy",
            "[WRN] Health check failed: noout flag(s) set (OSDMAP_FLAGS)",
            "[INF] Health check cleared: OSDMAP_FLAGS (was: noout flag(s) set)",
            "[INF] Cluster is now healthy",
        ]
    );
}

#[test]
fn the_cluster_log_tells_why_an_osd_is_down_or_out() {
    let mut w = World::new();
    let admin = w.admin();
    (0..3).for_each(|o| w.boot(o));
    let gone = OsdFailureReport {
        target: OsdId::new(2),
        target_addrs: w
            .mon
            .view
            .state
            .osd
            .map
            .client_addrs(OsdId::new(2))
            .unwrap()
            .clone(),
        kind: FailureKind::IMMEDIATE,
        failed_for_ms: 0,
        epoch: w.mon.view.state.osd.map.epoch,
    };
    w.send(100, OsdReport::Failure(gone).to_message());
    let sooner = r#"{"prefix":"config set","who":"mon","name":"mon_osd_report_timeout","value":"60"}"#;
    assert_eq!(w.command(admin, sooner).result, 0);
    w.command(admin, r#"{"prefix":"osd out","ids":["0"]}"#);
    w.pass(Duration::from_secs(7));
    w.command(admin, r#"{"prefix":"osd out","ids":["2"]}"#);
    w.pass(Duration::from_secs(60));
    w.settle();
    let last = w.mon.view.state.clog.last(50, "info", "cluster");
    let said: Vec<&str> = last.iter().map(|e| e.message.as_str()).collect();
    for text in [
        "osd.2 failed (root=default,host=h) (connection refused reported by osd.0)",
        "Client client.admin marked osd.0 out, while it was still marked up",
        "Client client.admin marked osd.2 out, after it was down for 7 seconds",
        "osd.0 marked down after no beacon for 60.000000 seconds",
    ] {
        assert!(said.contains(&text), "{text}: {said:#?}");
    }
}

#[test]
fn an_osd_is_answered_in_the_version_that_it_speaks() {
    let mut w = World::new();
    w.boot(0);
    let mut answer = |speaks: Edition, session: SessionId| {
        w.inbox.remove(&session);
        let report = OsdReport::PgStats(PgStatsReport::default());
        // An OSD that has not heard from the leader yet writes in the version before.
        w.send(session, report.to_raw(speaks, Edition::Previous));
        let answer = w.inbox.remove(&session).unwrap_or_default().pop().unwrap();
        assert!(OsdReportReply::from_raw(&answer, speaks).is_ok());
        answer.header.compat_version
    };
    assert_eq!(answer(Edition::Current, 100), OsdReportReply::CURRENT);
    // The session of an OSD that came back with the version before.
    assert_eq!(answer(Edition::Previous, 100), OsdReportReply::PREVIOUS);
}
