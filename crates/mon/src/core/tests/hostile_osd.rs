//! An OSD with arbitrary reports.

use std::collections::BTreeMap;

use spirula_denc::Micros;
use spirula_maps::{
    Epoch, ObjectStatSum, OsdId, OsdOrNone, OsdStat, PgId, PgStat, PgState, PingTimes, PoolId, Positions,
    StoreStatfs,
};
use spirula_proto::internal::report::SlowOps;
use spirula_proto::internal::report::*;
use spirula_proto::{Blob, Payload};

use super::{Output, World};

/// An OSD that no map has room for.
const LAST: OsdId = OsdId::new(u16::MAX);

/// All commands that show an OSD's report.
const SHOWN_IN: &[&str] = &[
    "status",
    "df",
    "osd df",
    "osd pool stats",
    "pg dump",
    "pg ls",
    "pg stat",
    "pg dump_stuck",
    "health",
    "report",
    "osd perf",
    "osd utilization",
    "osd blocked-by",
    "osd dump",
    "osd tree",
    "osd metadata",
    "node ls",
    "versions",
    "log last",
    "osd pool ls",
    "osd safe-to-destroy",
    "osd ok-to-stop",
];

/// A number that is no OSD's makes a report one that can't be read: the session ends, and nothing
/// else does.
#[test]
fn a_number_that_is_no_osds_is_refused() {
    let mut w = world(2);
    let failure = OsdReport::Failure(OsdFailureReport {
        target: OsdId::new(0x0707),
        ..Default::default()
    });
    for number in [-1, -5, i32::MIN, spirula_maps::ITEM_NONE] {
        w.boot(1);
        let mut message = failure.to_message();
        let mut front = message.front.to_vec();
        let at = front
            .windows(4)
            .position(|b| b == 0x0707i32.to_le_bytes())
            .unwrap();
        front[at..at + 4].copy_from_slice(&i32::to_le_bytes(number));
        message.front = front.into();
        w.mon.message(101, message, w.now);
        let outputs = w.mon.take_outputs();
        assert!(
            matches!(outputs[..], [Output::Close(101)]),
            "{number}: {outputs:?}"
        );
    }
    assert!(w.mon.view.state.osd.map.is_up(OsdId::new(0)));
    assert_eq!(w.command(1, r#"{"prefix":"status"}"#).result, 0);
}

fn sums(n: i64) -> ObjectStatSum {
    ObjectStatSum {
        num_bytes: n,
        num_objects: n,
        num_object_clones: n,
        num_object_copies: n,
        num_objects_missing_on_primary: n,
        num_objects_degraded: n,
        num_objects_unfound: n,
        num_objects_misplaced: n,
        num_rd: n,
        num_rd_kb: n,
        num_wr: n,
        num_wr_kb: n,
        num_omap_bytes: n,
        num_omap_keys: n,
        num_bytes_recovered: n,
        num_objects_recovered: n,
        num_keys_recovered: n,
        ..ObjectStatSum::default()
    }
}

fn space(n: i64, m: u64) -> StoreStatfs {
    StoreStatfs {
        total: m,
        available: m,
        internally_reserved: m,
        allocated: n,
        data_stored: n,
        data_compressed: n,
        data_compressed_allocated: n,
        data_compressed_original: n,
        omap_allocated: n,
        internal_metadata: n,
    }
}

/// The report of OSD 0 on all PGs with these numbers in all places.
fn extreme(w: &World, n: i64, m: u64, u: u32) -> PgStatsReport {
    let mut stat = OsdStat {
        statfs: space(n, m),
        hb_peers: vec![OsdId::new(0), LAST],
        snap_trim_queue_len: n as i32,
        num_snap_trimming: n as i32,
        num_shards_repaired: m,
        up_from: Epoch::new(u),
        seq: m,
        num_pgs: u,
        num_osds: u,
        hb_pingtime: BTreeMap::from([
            (OsdId::new(0), PingTimes::default()),
            (LAST, PingTimes::default()),
        ]),
        os_alerts: BTreeMap::from([(i32::MIN, BTreeMap::from([("A\n".to_owned(), "x\n".to_owned())]))]),
        ..OsdStat::default()
    };
    stat.op_queue_age_hist.bins = vec![n as i32; 100];
    (
        stat.os_perf_stat.commit_latency_ns,
        stat.os_perf_stat.apply_latency_ns,
    ) = (m, m);
    let time = spirula_denc::UTime {
        sec: u,
        nsec: 999_999_999,
    };
    let mut pg = PgStat {
        state: PgState::ACTIVE.with(PgState::DEGRADED),
        reported_seq: m,
        reported_epoch: Epoch::new(u),
        created: Epoch::new(u),
        last_epoch_clean: Epoch::new(u),
        mapping_epoch: Epoch::new(u),
        log_size: n,
        ondisk_log_size: n,
        snaptrimq_len: u,
        up: [Some(LAST), None].into_iter().cycle().take(2000).collect(),
        acting: [LAST; 2].into(),
        blocked_by: vec![LAST; 2],
        up_primary: OsdOrNone(OsdId::of_item(n as i32)),
        acting_primary: OsdOrNone(OsdId::of_item(n as i32)),
        last_fresh: time,
        last_active: time,
        last_clean: time,
        ..PgStat::default()
    };
    pg.stats.sum = sums(n);
    PgStatsReport {
        seq: m,
        epoch: Epoch::new(u),
        osd_stat: Blob::of(&stat),
        pgs: w
            .mon
            .view
            .state
            .osd
            .map
            .pgs()
            .map(|id| (id, Blob::of(&pg)))
            .collect(),
        pool_statfs: [0, 1, 2, i64::MAX]
            .map(|p| (PoolId::try_from(p).unwrap(), Blob::of(&space(n, m))))
            .into(),
        slow_ops: SlowOps {
            count: u,
            oldest_ms: u,
        },
        clock: Some(ClockSample {
            ahead_us: n,
            round_trip: Micros::new(m),
        }),
    }
}

/// A cluster of one OSD, which therefore leads all PGs, or of two.
fn world(osds: u16) -> World {
    let mut w = World::new();
    let admin = w.admin();
    (0..osds).for_each(|o| w.boot(o));
    for pool in ["p", "q"] {
        let json = format!(r#"{{"prefix":"osd pool create","pool":"{pool}","pg_num":8}}"#);
        assert_eq!(w.command(admin, &json).result, 0);
    }
    w.all_active();
    w
}

#[test]
fn no_number_ends_the_monitor() {
    let mut w = world(1);
    for (n, m, u) in [
        (i64::MAX, u64::MAX, u32::MAX),
        (i64::MIN, 0, 0),
        (-1, u64::MAX - 1, 1),
        (i64::MAX, 1, u32::MAX),
    ] {
        let report = extreme(&w, n, m, u);
        for _ in 0..4 {
            w.send(100, OsdReport::PgStats(report.clone()).to_message());
            w.pass(std::time::Duration::from_secs(6));
        }
        for (prefix, format) in SHOWN_IN
            .iter()
            .flat_map(|p| ["plain", "json", "xml"].map(|f| (p, f)))
        {
            let json =
                format!(r#"{{"prefix":"{prefix}","format":"{format}","ids":["0"],"detail":"detail"}}"#);
            let ack = w.command(1, &json);
            assert!(
                matches!(ack.result, 0 | -16 | -11),
                "{json}: {} {}",
                ack.result,
                ack.status
            );
        }
        let stats = &w.mon.view.state.stats;
        assert!(stats.total().sum.num_bytes <= 1 << 60 && stats.pool(PoolId::new(1)).used() <= 1 << 61);
    }
    // A later primary of a PG is listened to, as no report is of a future epoch.
    let newest = w.mon.view.state.osd.map.epoch;
    assert!(
        w.mon
            .view
            .state
            .stats
            .pgs
            .values()
            .all(|s| s.reported_epoch <= newest && s.last_active <= w.mon.view.now)
    );
}

#[test]
fn other_reports_with_extreme_numbers_are_taken() {
    let mut w = world(2);
    let (pg, u) = (
        PgId {
            pool: PoolId::new(1),
            seed: 0,
        },
        u32::MAX,
    );
    let reports = [
        OsdReport::Alive(OsdAlive {
            epoch: Epoch::new(u),
            want: Epoch::new(u),
        }),
        OsdReport::Beacon(OsdBeacon {
            epoch: Epoch::new(u),
            min_last_epoch_clean: Epoch::new(u),
            pgs: vec![pg; 1000],
            interval_ms: u,
        }),
        OsdReport::WantMaps(OsdMapWanted {
            first: Epoch::new(u),
            last: Epoch::new(u),
            full: true,
        }),
        OsdReport::WantMaps(OsdMapWanted {
            first: Epoch::NONE,
            last: Epoch::new(u),
            full: false,
        }),
        OsdReport::Failure(OsdFailureReport {
            epoch: Epoch::new(u),
            target: LAST,
            failed_for_ms: u,
            ..Default::default()
        }),
        OsdReport::Failure(OsdFailureReport {
            epoch: Epoch::new(u),
            target: OsdId::new(0),
            failed_for_ms: u,
            ..Default::default()
        }),
        OsdReport::Full(FullState {
            epoch: Epoch::new(u),
            state: Fullness(255),
        }),
        OsdReport::GoingDown(OsdGoingDown {
            epoch: Epoch::new(u),
            osd: OsdId::new(0),
            reason: "x\n".repeat(1000),
        }),
        OsdReport::Dead(OsdGoingDown {
            epoch: Epoch::new(u),
            osd: OsdId::new(0),
            reason: String::new(),
        }),
        OsdReport::PgTemp(PgTempWanted {
            epoch: Epoch::new(u),
            acting: [(
                PgId {
                    pool: PoolId::try_from(i64::MAX).unwrap(),
                    seed: u,
                },
                [LAST].into(),
            )]
            .into(),
        }),
        OsdReport::WantPurgedSnaps(PurgedSnapsWanted { epoch: Epoch::new(u) }),
        OsdReport::Boot(OsdBoot {
            osd: OsdId::new(1),
            size: u64::MAX,
            boot_epoch: Epoch::new(u),
            newest_map: Epoch::new(u),
            ..Default::default()
        }),
        OsdReport::Boot(OsdBoot {
            osd: LAST,
            ..Default::default()
        }),
    ];
    for report in reports {
        w.send(101, report.to_message());
        w.pass(std::time::Duration::from_secs(1));
    }
    assert!(w.mon.view.state.osd.map.is_up(OsdId::new(0)));
    assert_eq!(w.command(1, r#"{"prefix":"status"}"#).result, 0);
}

#[test]
fn only_the_primary_speaks_for_a_pg() {
    let mut w = world(2);
    let pg = w
        .mon
        .view
        .state
        .osd
        .map
        .pgs()
        .find(|pg| w.mon.view.state.osd.map.map_pg(*pg).acting_primary == Some(OsdId::new(0)))
        .unwrap();
    let before = w.mon.view.state.stats.pgs[&pg].clone();
    let lie = PgStat {
        state: PgState::INCOMPLETE,
        reported_epoch: w.mon.view.state.osd.map.epoch,
        reported_seq: u64::MAX,
        ..PgStat::default()
    };
    let report = |stat: &PgStat| {
        let pgs = BTreeMap::from([(pg, Blob::of(stat))]);
        OsdReport::PgStats(PgStatsReport {
            pgs,
            ..PgStatsReport::default()
        })
        .to_message()
    };
    w.send(101, report(&lie));
    assert_eq!(w.mon.view.state.stats.pgs[&pg], before);
    let only = |osd: u16| Positions::from([OsdId::new(osd)]);
    let wish = |osd: u16| {
        let acting = BTreeMap::from([(pg, only(osd))]);
        OsdReport::PgTemp(PgTempWanted {
            epoch: Epoch::NONE,
            acting,
        })
        .to_message()
    };
    w.send(101, wish(1));
    assert!(w.mon.view.state.osd.map.pg_temp.is_empty());
    // Seeds beyond the pool's PGs fold onto this one.
    let folded = [1, 1 << 20].map(|n| {
        (
            PgId {
                seed: pg.seed + 8 * n,
                ..pg
            },
            only(1),
        )
    });
    let acting = BTreeMap::from(folded);
    w.send(
        100,
        OsdReport::PgTemp(PgTempWanted {
            epoch: Epoch::NONE,
            acting,
        })
        .to_message(),
    );
    assert!(
        w.mon.view.state.osd.map.pg_temp.is_empty(),
        "there are no such PGs"
    );
    w.send(100, wish(7));
    assert!(
        w.mon.view.state.osd.map.pg_temp.is_empty(),
        "there is no such OSD"
    );
    w.send(100, wish(1));
    assert_eq!(w.mon.view.state.osd.map.pg_temp.len(), 1);
    w.send(101, report(&lie));
    assert_eq!(
        w.mon.view.state.stats.pgs[&pg].state,
        PgState::INCOMPLETE,
        "it leads now"
    );
}
