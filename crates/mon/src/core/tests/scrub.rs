//! Orders to scrub, and what the health says about scrubs.

use spirula_maps::{PoolId, SpgId};
use spirula_proto::osd::MOsdScrub2;

use super::*;
use crate::health::Severity;

/// Three OSDs with a pool `p` of 8 PGs, and an erasure-coded one, `e`, of 4.
pub(super) struct Pools {
    pub(super) w: World,
    seq: u64,
}

impl Pools {
    pub(super) fn new() -> Self {
        let mut w = World::new();
        let admin = w.admin();
        (0..3).for_each(|o| w.boot(o));
        for json in [
            r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"pgp_num":8}"#,
            r#"{"prefix":"osd erasure-code-profile set","name":"k2m1","profile":["k=2","m=1","crush-failure-domain=osd"]}"#,
            r#"{"prefix":"osd pool create","pool":"e","pg_num":4,"pgp_num":4,"pool_type":"erasure","erasure_code_profile":"k2m1"}"#,
        ] {
            let made = w.command(admin, json);
            assert_eq!(made.result, 0, "{}", made.status);
        }
        let mut pools = Self { w, seq: 0 };
        pools.report(|_, _| {});
        pools
    }

    pub(super) fn map(&self) -> &OsdMap {
        &self.w.mon.view.state.osd.map
    }

    /// Reports all PGs that have a primary, as active and clean and scrubbed just now, with changes
    /// to that.
    pub(super) fn report(&mut self, change: impl Fn(PgId, &mut PgStat)) {
        for pg in self.map().pgs().collect::<Vec<_>>() {
            let at = self.map().map_pg(pg);
            let Some(primary) = at.acting_primary else {
                continue;
            };
            self.seq += 1;
            let mut stat = PgStat {
                state: PgState::ACTIVE.with(PgState::CLEAN),
                reported_epoch: self.map().epoch,
                reported_seq: self.seq,
                up: at.up,
                acting: at.acting,
                acting_primary: at.acting_primary.into(),
                last_scrub_stamp: self.w.now,
                last_deep_scrub_stamp: self.w.now,
                ..PgStat::default()
            };
            change(pg, &mut stat);
            let report = PgStatsReport {
                seq: self.seq,
                pgs: [(pg, Blob::of(&stat))].into(),
                ..PgStatsReport::default()
            };
            let session = 100 + u64::from(primary);
            self.w.send(session, OsdReport::PgStats(report).to_message());
        }
    }

    /// The answer to a command: errno, status line, output.
    pub(super) fn say(&mut self, json: &str) -> (i32, String, String) {
        let ack = self.w.command(1, json);
        let text = String::from_utf8(ack.output.to_bytes().to_vec()).unwrap();
        (-ack.result, ack.status, text)
    }

    /// The orders that OSDs have got since the last call, by OSD.
    fn orders(&mut self) -> BTreeMap<u64, MOsdScrub2> {
        let mut orders = BTreeMap::new();
        for (session, inbox) in &mut self.w.inbox {
            inbox.retain(|m| {
                let is_order = m.kind() == MsgType::OSD_SCRUB2;
                if is_order {
                    let before = orders.insert(session - 100, m.decode().unwrap());
                    assert_eq!(before, None);
                }
                !is_order
            });
        }
        orders
    }

    /// The PGs of a pool that an OSD leads, as orders name them.
    fn led(&self, pool: u32, osd: u16) -> Vec<SpgId> {
        let map = self.map();
        let of_pool = map.pgs().filter(|pg| pg.pool == PoolId::new(pool));
        let primaries = of_pool.filter_map(|pg| map.primary_shard(pg));
        primaries
            .filter(|(primary, _)| *primary == OsdId::new(osd))
            .map(|(_, spg)| spg)
            .collect()
    }

    /// A health check: its severity, summary, count and lines.
    pub(super) fn check(&self, code: &str) -> Option<(Severity, String, usize, Vec<String>)> {
        let check = self.w.mon.view.health().remove(code)?;
        Some((check.severity, check.summary, check.count, check.detail))
    }
}

fn pg(pool: u32, seed: u32) -> PgId {
    PgId::new(PoolId::new(pool), seed)
}

#[test]
fn the_primary_of_a_pg_is_told_to_scrub_it() {
    let mut p = Pools::new();
    for (command, repair, deep) in [
        ("scrub", false, false),
        ("deep-scrub", false, true),
        ("repair", true, false),
    ] {
        for (name, shown) in [("1.3", "1.3"), ("2.1", "2.1s0")] {
            let (primary, spg) = p.map().primary_shard(name.parse().unwrap()).unwrap();
            assert_eq!(spg.to_string(), shown);
            let said = p.say(&format!(r#"{{"prefix":"pg {command}","pgid":"{name}"}}"#));
            let text = format!("instructing pg {shown} on osd.{primary} to {command}");
            assert_eq!(said, (0, text, String::new()));
            let order = MOsdScrub2 {
                fsid: Fsid([7; 16]),
                epoch: p.map().epoch,
                pgs: vec![spg],
                repair,
                deep,
            };
            assert_eq!(p.orders(), [(u64::from(primary), order)].into());
        }
    }
    // The primary's session ends.
    let (primary, _) = p.map().primary_shard(pg(1, 3)).unwrap();
    p.w.mon.close(100 + u64::from(primary), p.w.now);
    let text = format!("pg 1.3 primary osd.{primary} is not currently connected");
    let scrub = r#"{"prefix":"pg scrub","pgid":"1.3"}"#;
    assert_eq!(p.say(scrub), (11, text, String::new()));
}

#[test]
fn an_erasure_coded_pg_is_named_with_the_shard_of_its_primary() {
    let mut p = Pools::new();
    let at = p.map().map_pg(pg(2, 1)).acting;
    let (first, second) = (at.slots()[0].unwrap(), at.slots()[1].unwrap());
    p.say(&format!(r#"{{"prefix":"osd down","ids":["{first}"]}}"#));
    let said = p.say(r#"{"prefix":"pg repair","pgid":"2.1"}"#);
    let text = format!("instructing pg 2.1s1 on osd.{second} to repair");
    assert_eq!((said.0, said.1), (0, text));
    let told = &p.orders()[&u64::from(second)];
    assert_eq!(
        told.pgs,
        [SpgId {
            pgid: pg(2, 1),
            shard: 1
        }]
    );
}

#[test]
fn osds_are_told_to_scrub_what_they_lead() {
    let mut p = Pools::new();
    let led = |p: &Pools, osd| [p.led(1, osd), p.led(2, osd)].concat();
    let said = p.say(r#"{"prefix":"osd deep-scrub","who":"osd.1"}"#);
    assert_eq!(
        (said.0, said.1.as_str()),
        (0, "instructed osd(s) 1 to deep-scrub")
    );
    let orders = p.orders();
    assert_eq!(orders.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(orders[&1].pgs, led(&p, 1));
    assert!(!orders[&1].pgs.is_empty() && orders[&1].deep && !orders[&1].repair);
    for who in ["*", "all", "any"] {
        let said = p.say(&format!(r#"{{"prefix":"osd repair","who":"{who}"}}"#));
        assert_eq!(
            (said.0, said.1.as_str()),
            (0, "instructed osd(s) 0,1,2 to repair")
        );
        let orders = p.orders();
        let pgs: usize = orders.values().map(|o| o.pgs.len()).sum();
        assert_eq!((orders.len(), pgs), (3, 12));
        for (osd, order) in orders {
            assert_eq!(order.pgs, led(&p, osd as u16));
            assert!(order.repair);
        }
    }
    // As in Ceph, OSDs that can't be told make no error.
    p.w.mon.close(102, p.w.now);
    let said = p.say(r#"{"prefix":"osd scrub","who":"all"}"#);
    let text = "instructed osd(s) 0,1 to scrub; osd(s) 2 were not connected";
    assert_eq!((said.0, said.1.as_str()), (0, text));
    assert_eq!(p.orders().len(), 2);
    let said = p.say(r#"{"prefix":"osd scrub","who":"2"}"#);
    let text = "failed to instruct osd(s) 2 to scrub (not connected)";
    assert_eq!((said.0, said.1.as_str()), (0, text));
    p.say(r#"{"prefix":"osd down","ids":["all"]}"#);
    let said = p.say(r#"{"prefix":"osd scrub","who":"all"}"#);
    let text = "failed to instruct osd(s)  to scrub (not connected)";
    assert_eq!((said.0, said.1.as_str()), (0, text));
    assert!(p.orders().is_empty());
}

#[test]
fn pools_are_scrubbed_by_all_primaries_or_none() {
    let mut p = Pools::new();
    let scrub = |p: &mut Pools, who: &str| {
        let (code, said, _) = p.say(&format!(r#"{{"prefix":"osd pool scrub","who":[{who}]}}"#));
        (code, said, p.orders())
    };
    for (who, pools) in [(r#""p""#, &[1][..]), (r#""e""#, &[2]), (r#""p","e""#, &[1, 2])] {
        let (code, said, orders) = scrub(&mut p, who);
        assert_eq!((code, said.as_str()), (0, ""));
        for osd in 0..3 {
            let led: Vec<SpgId> = pools.iter().flat_map(|pool| p.led(*pool, osd)).collect();
            let told = orders.get(&osd.into()).map(|o| o.pgs.clone());
            assert_eq!(told.unwrap_or_default(), led);
        }
    }
    let refused = |(code, said, orders): (i32, String, BTreeMap<u64, MOsdScrub2>)| {
        assert!(orders.is_empty());
        (code, said)
    };
    assert_eq!(
        refused(scrub(&mut p, r#""p","nope""#)),
        (2, "unrecognized pool 'nope'".to_owned())
    );
    p.w.mon.close(102, p.w.now);
    assert_eq!(
        refused(scrub(&mut p, r#""p""#)),
        (11, "osd.2 is not currently connected".to_owned())
    );
    p.say(r#"{"prefix":"osd down","ids":["all"]}"#);
    assert_eq!(
        p.say(r#"{"prefix":"pg scrub","pgid":"1.3"}"#).1,
        "pg 1.3 has no primary osd"
    );
    assert_eq!(
        refused(scrub(&mut p, r#""e","p""#)),
        (11, "osd.-1 is not currently connected".to_owned())
    );
    assert_eq!(refused(scrub(&mut p, r#""e""#)), (0, String::new()));
}

#[test]
fn a_reader_orders_no_scrubs() {
    let mut p = Pools::new();
    p.w.open(9, AuthName::new(EntityType::CLIENT, "reader"), "allow r");
    for json in [
        r#"{"prefix":"pg repair","pgid":"1.3"}"#,
        r#"{"prefix":"osd scrub","who":"all"}"#,
        r#"{"prefix":"osd pool deep-scrub","who":["p"]}"#,
    ] {
        let ack = p.w.command(9, json);
        assert_eq!((ack.result, ack.status.as_str()), (-13, "access denied"));
    }
    assert!(p.orders().is_empty());
}

#[test]
fn damage_that_a_scrub_finds_is_shown() {
    let mut p = Pools::new();
    let list = r#"{"prefix":"pg ls","pool":1,"states":["inconsistent"],"format":"json"}"#;
    assert_eq!(p.say(list).2, r#"{"pg_ready":true}"#);
    for code in ["PG_DAMAGED", "OSD_SCRUB_ERRORS", "LARGE_OMAP_OBJECTS"] {
        assert_eq!(p.check(code), None);
    }
    p.report(|id, stat| {
        if id == pg(1, 3) {
            stat.state.insert(PgState::INCONSISTENT);
            stat.stats.sum.num_scrub_errors = 2;
        }
        if id.pool == PoolId::new(2) {
            stat.stats.sum.num_large_omap_objects = 1;
        }
    });
    let (code, _, text) = p.say(list);
    let listed: serde_json::Value = serde_json::from_str(&text).unwrap();
    let pgs = listed["pg_stats"].as_array().unwrap();
    assert_eq!((code, pgs.len()), (0, 1));
    assert_eq!(pgs[0]["pgid"], "1.3");
    let acting = p.map().map_pg(pg(1, 3)).acting.to_string();
    assert_eq!(
        p.check("PG_DAMAGED"),
        Some((
            Severity::Error,
            "Possible data damage: 1 pg inconsistent".to_owned(),
            1,
            vec![format!("pg 1.3 is active+clean+inconsistent, acting {acting}")]
        ))
    );
    assert_eq!(
        p.check("OSD_SCRUB_ERRORS"),
        Some((Severity::Error, "2 scrub errors".to_owned(), 2, Vec::new()))
    );
    assert_eq!(
        p.check("LARGE_OMAP_OBJECTS"),
        Some((
            Severity::Warn,
            "4 large omap objects".to_owned(),
            4,
            vec![
                "4 large objects found in pool 'e'".to_owned(),
                "Search the cluster log for 'Large omap object found' for more details.".to_owned()
            ]
        ))
    );
}

/// A week and half a week: by default a scrub is late after that.
const LATE: Duration = Duration::from_secs(604_800 / 2 * 3);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn late_scrubs_are_told_by_pg() {
    let mut p = Pools::new();
    let before = |p: &Pools, ago: Duration| UTime::from(p.w.now.to_duration() - ago);
    let (then, just) = (before(&p, LATE + SECOND), before(&p, LATE));
    p.report(|id, stat| match id {
        id if id == pg(1, 3) => stat.last_scrub_stamp = then,
        // A deep scrub may be later.
        id if id == pg(1, 4) => stat.last_deep_scrub_stamp = then,
        _ => stat.last_scrub_stamp = just,
    });
    let late = |pgs: usize, lines: Vec<String>| {
        Some((
            Severity::Warn,
            format!("{pgs} pgs not scrubbed in time"),
            pgs,
            lines,
        ))
    };
    let line = format!("pg 1.3 not scrubbed since {then}");
    assert_eq!(p.check("PG_NOT_SCRUBBED"), late(1, vec![line.clone()]));
    assert_eq!(p.check("PG_NOT_DEEP_SCRUBBED"), None);
    // A pool's own interval counts for its PGs, unless it is none.
    let set = |p: &mut Pools, var: &str, val: &str| {
        let json = format!(r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{val}"}}"#);
        assert_eq!(p.say(&json).0, 0);
    };
    set(&mut p, "scrub_max_interval", "1e6");
    assert_eq!(p.check("PG_NOT_SCRUBBED"), None);
    set(&mut p, "scrub_max_interval", "-1");
    assert_eq!(p.check("PG_NOT_SCRUBBED"), late(1, vec![line.clone()]));
    set(&mut p, "deep_scrub_interval", "500000");
    assert_eq!(
        p.check("PG_NOT_DEEP_SCRUBBED"),
        Some((
            Severity::Warn,
            "1 pgs not deep-scrubbed in time".to_owned(),
            1,
            vec![format!("pg 1.4 not deep-scrubbed since {then}")]
        ))
    );
    // Neither count if nobody wants to know.
    for kind in ["scrubbed", "deep_scrubbed"] {
        let name = format!("mon_warn_pg_not_{kind}_ratio");
        p.say(&format!(
            r#"{{"prefix":"config set","who":"global","name":"{name}","value":"0"}}"#
        ));
    }
    assert_eq!(p.check("PG_NOT_SCRUBBED"), None);
    assert_eq!(p.check("PG_NOT_DEEP_SCRUBBED"), None);
}

#[test]
fn a_pg_that_was_never_scrubbed_is_late_by_the_age_of_its_pool() {
    let mut p = Pools::new();
    for (name, seconds) in [("osd_scrub_max_interval", 20), ("osd_deep_scrub_interval", 100)] {
        p.say(&format!(
            r#"{{"prefix":"config set","who":"global","name":"{name}","value":"{seconds}"}}"#
        ));
    }
    let made = p.map().pool(PoolId::new(1)).unwrap().create_time;
    let never = |_: PgId, stat: &mut PgStat| {
        stat.last_scrub_stamp = UTime::ZERO;
        stat.last_deep_scrub_stamp = UTime::ZERO;
    };
    p.report(never);
    p.w.pass(Duration::from_secs(29));
    assert_eq!(p.check("PG_NOT_SCRUBBED"), None);
    p.w.pass(Duration::from_secs(2));
    let (_, summary, count, lines) = p.check("PG_NOT_SCRUBBED").unwrap();
    assert_eq!((summary.as_str(), count), ("12 pgs not scrubbed in time", 12));
    assert_eq!(lines[0], format!("pg 1.0 not scrubbed since {made}"));
    assert_eq!(p.check("PG_NOT_DEEP_SCRUBBED"), None);
    // A new leader knows nothing of PGs before they are reported.
    p.w.mon.view.state.stats.restart(p.w.now);
    p.w.pass(SECOND);
    assert_eq!(p.check("PG_NOT_SCRUBBED"), None);
}

#[test]
fn fifty_late_pgs_are_told_one_by_one() {
    let mut p = Pools::new();
    let create = r#"{"prefix":"osd pool create","pool":"big","pg_num":64,"pgp_num":64}"#;
    assert_eq!(p.say(create).0, 0);
    let then = UTime::from(p.w.now.to_duration() - LATE - SECOND);
    p.report(|_, stat| stat.last_scrub_stamp = then);
    let (_, summary, count, lines) = p.check("PG_NOT_SCRUBBED").unwrap();
    assert_eq!((summary.as_str(), count), ("76 pgs not scrubbed in time", 76));
    assert_eq!((lines.len(), lines[50].as_str()), (51, "26 more pgs... "));
}

#[test]
fn pools_that_are_not_scrubbed_are_told_and_are_no_problem() {
    let mut p = Pools::new();
    for json in [
        r#"{"prefix":"osd pool application enable","pool":"p","app":"rbd"}"#,
        r#"{"prefix":"osd pool set","pool":"p","var":"noscrub","val":"true"}"#,
        r#"{"prefix":"osd pool set","pool":"e","var":"nodeep-scrub","val":"1"}"#,
    ] {
        assert_eq!(p.say(json).0, 0);
    }
    assert_eq!(
        p.check("POOL_SCRUB_FLAGS"),
        Some((
            Severity::Ok,
            "Some pool(s) have the noscrub, nodeep-scrub flag(s) set".to_owned(),
            0,
            vec![
                "Pool p has noscrub flag".to_owned(),
                "Pool e has nodeep-scrub flag".to_owned()
            ]
        ))
    );
    let (_, _, text) = p.say(r#"{"prefix":"health","detail":"detail"}"#);
    assert_eq!(
        text,
        "HEALTH_OK Some pool(s) have the noscrub, nodeep-scrub flag(s) set\n\
         [OK] POOL_SCRUB_FLAGS: Some pool(s) have the noscrub, nodeep-scrub flag(s) set\n    \
         Pool p has noscrub flag\n    Pool e has nodeep-scrub flag\n"
    );
    // A monitor that starts waits for so long before it tells the log of its health.
    p.w.pass(Duration::from_secs(16));
    let (_, _, log) = p.say(r#"{"prefix":"log last","num":50,"channel":"cluster","level":"info"}"#);
    let line = "[INF] Health check failed: Some pool(s) have the noscrub, nodeep-scrub flag(s) set (POOL_SCRUB_FLAGS)";
    assert!(log.contains(line), "{log}");
}

/// As Ceph 16.2.15 shows them.
#[test]
fn the_options_of_a_pool_about_scrubs_are_shown() {
    let mut p = Pools::new();
    for (var, val) in [
        ("scrub_min_interval", "3600"),
        ("scrub_max_interval", "86400.5"),
        ("deep_scrub_interval", "1e6"),
        ("scrub_priority", "7"),
        ("noscrub", "true"),
    ] {
        let said = p.say(&format!(
            r#"{{"prefix":"osd pool set","pool":"p","var":"{var}","val":"{val}"}}"#
        ));
        assert_eq!((said.0, said.1), (0, format!("set pool 1 {var} to {val}")));
    }
    let (_, _, all) = p.say(r#"{"prefix":"osd pool get","pool":"p","var":"all"}"#);
    let shown = "noscrub: true\nnodeep-scrub: false\nuse_gmt_hitset: 1\nfast_read: 0\n\
                 scrub_min_interval: 3600\nscrub_max_interval: 86400.5\ndeep_scrub_interval: 1e+06\nscrub_priority: 7\n";
    assert!(all.contains(shown), "{all}");
    let (_, _, json) = p.say(r#"{"prefix":"osd pool get","pool":"p","var":"all","format":"json"}"#);
    let shown = r#""scrub_min_interval":3600,"scrub_max_interval":86400.5,"deep_scrub_interval":1000000,"scrub_priority":7,"#;
    assert!(json.contains(shown), "{json}");
    let (_, _, detail) = p.say(r#"{"prefix":"osd pool ls","detail":"detail"}"#);
    let shown = " flags hashpspool,noscrub stripe_width 0 deep_scrub_interval 1e+06 \
                 scrub_max_interval 86400.5 scrub_min_interval 3600 scrub_priority 7\n";
    assert!(detail.contains(shown), "{detail}");
}
