//! Progress events, and forced recovery.

use spirula_maps::{PgId, PgStat, PoolId};
use spirula_proto::internal::report::{ForceCopy, OsdReportReply};

use super::*;

/// The PGs of a pool on four OSDs, as their primaries last reported them.
struct Pgs {
    w: World,
    seq: u64,
}

impl Pgs {
    fn new() -> Self {
        let mut w = World::new();
        let admin = w.admin();
        (0..4).for_each(|o| w.boot(o));
        let made = w.command(
            admin,
            r#"{"prefix":"osd pool create","pool":"p","pg_num":4,"pgp_num":4}"#,
        );
        assert_eq!(made.result, 0, "{}", made.status);
        Self { w, seq: 0 }
    }

    fn say(&mut self, command: &str) -> (i32, String, String) {
        let ack = self.w.command(1, command);
        let text = String::from_utf8(ack.output.to_bytes().to_vec()).unwrap();
        (ack.result, ack.status, text)
    }

    /// Reports all PGs with this state, a thousand bytes and `recovered` recovered ones.
    fn report(&mut self, state: PgState, recovered: i64) {
        let epoch = self.w.mon.view.state.osd.map.epoch;
        for seed in 0..4 {
            let pg = PgId::new(PoolId::new(1), seed);
            let at = self.w.mon.view.state.osd.map.map_pg(pg);
            self.seq += 1;
            let mut stat = PgStat {
                state,
                reported_epoch: epoch,
                reported_seq: self.seq,
                up: at.up,
                acting: at.acting,
                acting_primary: at.acting_primary.into(),
                ..PgStat::default()
            };
            stat.stats.sum.num_bytes = 1000;
            stat.stats.sum.num_bytes_recovered = recovered;
            let r = PgStatsReport {
                seq: self.seq,
                pgs: [(pg, Blob::of(&stat))].into(),
                ..PgStatsReport::default()
            };
            let primary = 100 + SessionId::from(at.acting_primary.unwrap());
            self.w.send(primary, OsdReport::PgStats(r).to_message());
        }
        self.w.pass(Duration::from_secs(1));
    }
}

const CLEAN: PgState = PgState::ACTIVE.with(PgState::CLEAN);
const MOVES: PgState = PgState::ACTIVE.with(PgState::REMAPPED).with(PgState::BACKFILLING);

#[test]
fn an_osd_that_is_marked_out_begins_an_event_that_ends_when_its_pgs_have_moved() {
    let mut p = Pgs::new();
    p.report(CLEAN, 0);
    let nothing = (0, "Nothing in progress".to_owned(), String::new());
    assert_eq!(p.say(r#"{"prefix":"progress"}"#), nothing);
    p.say(r#"{"prefix":"osd out","ids":["0"]}"#);
    p.w.pass(Duration::from_secs(1));
    p.report(MOVES, 500);
    p.w.pass(Duration::from_secs(2));
    let (_, _, text) = p.say(r#"{"prefix":"progress"}"#);
    assert!(text.contains("Rebalancing after osd.0 marked out ("), "{text}");
    assert!(
        text.contains("\n    [==============..............] (remaining: "),
        "{text}"
    );
    assert!(text.contains("Global Recovery Event ("), "{text}");
    let (_, _, status) = p.say(r#"{"prefix":"status"}"#);
    let shown = "\n  progress:\n    Global Recovery Event (";
    assert!(status.contains(shown), "{status}");
    assert!(
        status.ends_with("s)\n      [............................] \n \n"),
        "{status:?}"
    );
    p.report(CLEAN, 1000);
    let (_, _, text) = p.say(r#"{"prefix":"progress"}"#);
    assert!(
        text.contains("[Complete]: Rebalancing after osd.0 marked out"),
        "{text}"
    );
    assert!(!p.say(r#"{"prefix":"status"}"#).2.contains("progress:"));
    let (_, _, json) = p.say(r#"{"prefix":"progress json"}"#);
    assert!(
        json.contains(r#""completed": ["#) && json.contains(r#""events": []"#),
        "{json}"
    );
    p.say(r#"{"prefix":"progress clear"}"#);
    assert_eq!(p.say(r#"{"prefix":"progress"}"#), nothing);
}

#[test]
fn nothing_is_told_while_that_is_off() {
    let mut p = Pgs::new();
    p.report(CLEAN, 0);
    let say = |p: &mut Pgs, word: &str| p.say(&format!(r#"{{"prefix":"progress {word}"}}"#)).1;
    assert_eq!(say(&mut p, "on"), "progress already enabled!");
    assert_eq!(say(&mut p, "off"), "progress disabled");
    assert_eq!(say(&mut p, "off"), "progress already disabled!");
    let got = r#"{"prefix":"config get","who":"mgr","key":"mgr/progress/enabled"}"#;
    assert_eq!(p.say(got).2.trim_end(), "False");
    p.report(MOVES, 500);
    p.w.pass(Duration::from_secs(2));
    assert_eq!(p.say(r#"{"prefix":"progress"}"#).1, "Nothing in progress");
    assert_eq!(say(&mut p, "on"), "progress enabled");
    p.w.pass(Duration::from_secs(2));
    let (_, _, text) = p.say(r#"{"prefix":"progress"}"#);
    assert!(text.contains("Global Recovery Event ("), "{text}");
}

#[test]
fn primaries_are_told_what_an_operator_wants_first() {
    let mut p = Pgs::new();
    p.report(CLEAN, 0);
    let force = r#"{"prefix":"pg force-backfill","pgid":["1.1"]}"#;
    let said = p.say(force);
    assert_eq!(
        (said.0, said.1.as_str()),
        (0, "pg 1.1 doesn't require backfilling; \n")
    );
    p.report(MOVES, 0);
    let primary = p.w.mon.view.state.stats.pgs[&PgId::new(PoolId::new(1), 1)].acting_primary;
    let said = p.say(force);
    assert_eq!(said.0, 0);
    assert_eq!(
        said.1,
        format!("instructing pg(s) [1.1] on osd.{primary} to force-backfill; \n")
    );
    p.report(MOVES.with(PgState::FORCED_BACKFILL), 0);
    let said = p.say(force);
    assert_eq!(
        (said.0, said.1.as_str()),
        (-22, "pg 1.1 backfill already forced; \n")
    );
    let said = p.say(r#"{"prefix":"pg cancel-force-backfill","pgid":["1.1","9.9"]}"#);
    assert_eq!(said.0, 0);
    assert!(said.1.contains("to cancel-force-backfill; ") && said.1.contains("pg 9.9 does not exist; "));
    let wish = ForceCopy {
        pgs: vec![PgId::new(PoolId::new(1), 1)],
        backfill: true,
        on: false,
    };
    let sent = OsdReportReply::Force(wish).to_message();
    assert!(p.w.inbox.values().flatten().any(|m| m.front == sent.front));
}
