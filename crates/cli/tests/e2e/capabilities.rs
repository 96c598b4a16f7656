//! Keys give access to what their capabilities name, and to nothing else.

use std::time::Duration;

use spirula_maps::{Epoch, OsdId, OsdStat, PgId, PgStat, PgState};
use spirula_proto::internal::report::{OsdReport, PgStatsReport, PgTempWanted};
use spirula_proto::mon::{MMonSubscribe, Subscription};
use spirula_proto::{Blob, Payload};

use crate::common::Cluster;
use crate::common::raw_client::{RawClient, bystander, run};

const CAPABILITIES: &str = include_str!("../data/capabilities.py");
/// The memory limit of a daemon, in bytes.
const BUDGET: u64 = 128 << 20;

#[test]
fn keys_open_what_they_are_for() {
    let c = Cluster::up("capabilities", 3, &[]);
    c.sh("ceph osd pool create b 8 8 replicated");
    let other = bystander(&c, "b", 20, Duration::from_secs(1));
    c.sh(&format!("/usr/bin/python3 - <<'EOF'\n{CAPABILITIES}\nEOF"));
    other.join().unwrap();
    assert!(c.peak_rss("mon.a") < BUDGET);
}

/// A client with osd.0's key: the monitor goes on, and believes only reports that osd.0 could make.
#[test]
fn an_osd_that_lies_ends_no_monitor() {
    let c = Cluster::up("lying-osd", 3, &[]);
    c.sh("ceph osd pool create b 8 8 replicated");
    c.wait_healthy();
    let dump = c.sh("ceph pg dump pgs_brief -f json 2>/dev/null");
    let dump: serde_json::Value = serde_json::from_str(&dump).unwrap();
    let pgs = dump["pg_stats"].as_array().or_else(|| dump.as_array()).unwrap();
    let of = |osd: i64| -> Vec<PgId> {
        let led = pgs.iter().filter(|p| p["acting_primary"] == osd);
        led.map(|p| p["pgid"].as_str().unwrap().parse().unwrap())
            .collect()
    };
    let (own, others) = (of(0), of(1));
    let monitor = c.pid("mon.a");
    let other = bystander(&c, "b", 20, Duration::from_secs(1));
    run(async {
        let osd = RawClient::login(&c, "osd.0").await;
        let mut pg = PgStat {
            state: PgState::ACTIVE.with(PgState::CLEAN),
            reported_epoch: Epoch::MAX,
            log_size: i64::MAX,
            ondisk_log_size: i64::MAX,
            ..PgStat::default()
        };
        pg.stats.sum.num_bytes = i64::MAX;
        pg.stats.sum.num_objects = i64::MAX;
        let mut stat = OsdStat::default();
        (stat.statfs.total, stat.statfs.available, stat.statfs.allocated) = (u64::MAX, u64::MAX, i64::MAX);
        let report = PgStatsReport {
            seq: 1,
            osd_stat: Blob::of(&stat),
            pgs: own.iter().chain(&others).map(|id| (*id, Blob::of(&pg))).collect(),
            ..PgStatsReport::default()
        };
        for _ in 0..20 {
            assert!(osd.monitors.send(OsdReport::PgStats(report.clone()).to_message()));
        }
        let acting = others.iter().map(|id| (*id, [OsdId::new(0)].into())).collect();
        osd.monitors.send(
            OsdReport::PgTemp(PgTempWanted {
                epoch: Epoch::new(1),
                acting,
            })
            .to_message(),
        );
        let subscribe = MMonSubscribe {
            what: [("x".repeat(4 << 20), Subscription::default())].into(),
            hostname: "h".repeat(4 << 20),
        };
        for _ in 0..16 {
            osd.monitors.send(subscribe.to_message());
        }
        for command in ["df", "status", "osd df", "pg dump", "health", "report"] {
            let asked = osd
                .monitors
                .command(vec![format!(r#"{{"prefix":"{command}"}}"#)], Default::default());
            asked.await.unwrap();
        }
    });
    other.join().unwrap();
    let df = c.sh("ceph df detail -f json; ceph osd df; ceph pg dump; ceph health detail");
    assert!(df.contains("\"name\":\"b\""), "{df}");
    let temp = c.sh("ceph osd dump | grep -c pg_temp || true");
    assert_eq!(temp.trim(), "0");
    assert_eq!(c.pid("mon.a"), monitor, "it ended and was started again");
    assert!(c.peak_rss("mon.a") < BUDGET);
}
