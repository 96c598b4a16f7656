//! Our own protocols.

use std::collections::BTreeMap;

use spirula_denc::{EntityAddr, Fsid, Micros, UTime};
use spirula_maps::{Epoch, OsdId, PgId, PoolId};
use spirula_proto::internal::heartbeat::{Beat, Heartbeat};
use spirula_proto::internal::image_io::*;
use spirula_proto::internal::report::*;
use spirula_proto::{MsgType, Payload, RawMessage, Result};

fn reports() -> Vec<OsdReport> {
    let addrs: spirula_denc::EntityAddrVec = "v2:127.0.0.1:6800/9".parse::<EntityAddr>().unwrap().into();
    let pairs = || BTreeMap::from([("host".to_owned(), "a".to_owned())]);
    vec![
        OsdReport::Boot(OsdBoot {
            osd: OsdId::new(1),
            fsid: Fsid([1; 16]),
            uuid: Fsid([2; 16]),
            public_addrs: addrs.clone(),
            metadata: pairs(),
            protocols: BTreeMap::from([("replication".to_owned(), 1)]),
            crush_location: pairs(),
            ..OsdBoot::default()
        }),
        OsdReport::Alive(OsdAlive {
            epoch: Epoch::new(5),
            want: Epoch::new(4),
        }),
        OsdReport::Beacon(OsdBeacon {
            epoch: Epoch::new(5),
            pgs: vec![PgId::new(PoolId::new(1), 2)],
            ..OsdBeacon::default()
        }),
        OsdReport::PgStats(PgStatsReport {
            seq: 1,
            epoch: Epoch::new(5),
            osd_stat: vec![1].into(),
            pgs: BTreeMap::from([(PgId::new(PoolId::new(1), 2), vec![3].into())]),
            pool_statfs: BTreeMap::from([(PoolId::new(1), vec![4].into())]),
            slow_ops: SlowOps {
                count: 1,
                oldest_ms: 30_000,
            },
            clock: Some(ClockSample {
                ahead_us: -5,
                round_trip: Micros::new(300),
            }),
        }),
        OsdReport::WantMaps(OsdMapWanted {
            first: Epoch::new(1),
            last: Epoch::NONE,
            full: true,
        }),
        OsdReport::Failure(OsdFailureReport {
            epoch: Epoch::new(5),
            target: OsdId::new(2),
            target_addrs: addrs,
            kind: FailureKind::TIMEOUT,
            failed_for_ms: 21_000,
        }),
        OsdReport::Full(FullState {
            epoch: Epoch::new(5),
            state: Fullness::NEARFULL,
        }),
        OsdReport::GoingDown(OsdGoingDown {
            epoch: Epoch::new(5),
            osd: OsdId::new(1),
            reason: "shutdown".into(),
        }),
        OsdReport::Dead(OsdGoingDown {
            epoch: Epoch::new(8),
            osd: OsdId::new(1),
            reason: String::new(),
        }),
        OsdReport::PgTemp(PgTempWanted {
            epoch: Epoch::new(5),
            acting: BTreeMap::from([(PgId::new(PoolId::new(1), 2), [0, 1].map(OsdId::new).into())]),
        }),
        OsdReport::Config(ConfigReport {
            file: pairs(),
            central: pairs(),
            overrides: pairs(),
            ignored: vec!["host".into()],
        }),
        OsdReport::WantPurgedSnaps(PurgedSnapsWanted { epoch: Epoch::new(5) }),
    ]
}

/// One message of each kind.
pub(crate) fn samples() -> Vec<RawMessage> {
    let beat = Beat {
        fsid: Fsid([1; 16]),
        epoch: Epoch::new(5),
        up_from: Epoch::new(3),
        stamp: Micros::new(99),
        full: true,
        padding: vec![0; 20].into(),
    };
    let mut out = vec![
        Heartbeat::Ping(beat).to_message(),
        OsdReportReply::BootDenied(BootDenied {
            result: -1,
            reason: "no".into(),
        })
        .to_message(),
        OsdReportReply::PgStatsAck(PgStatsAck {
            seq: 1,
            stamp: UTime::from_secs(1),
        })
        .to_message(),
        OsdReportReply::Force(ForceCopy {
            pgs: vec![PgId::new(PoolId::new(1), 2)],
            backfill: true,
            on: true,
        })
        .to_message(),
        OsdReportReply::PurgedSnaps(PurgedSnaps {
            epoch: Epoch::new(5),
            pools: BTreeMap::from([(PoolId::new(2), [3, 4, 9].into_iter().collect())]),
        })
        .to_message(),
    ];
    out.push(
        ImageIoQuery::Poll(ImageIoPoll {
            round: 3,
            hold_ms: 15_000,
            pools: vec![PoolId::new(2)],
        })
        .to_message(),
    );
    out.push(
        ImageIoReport::Counts(ImageIoCounts {
            round: 3,
            images: vec![ImageIo {
                pool: PoolId::new(2),
                nspace: "n".into(),
                id: "10a2b3".into(),
                write_ops: 1,
                read_ops: 2,
                write_bytes: 3,
                read_bytes: 4,
                write_latency: 5,
                read_latency: 6,
            }],
        })
        .to_message(),
    );
    out.extend(reports().iter().map(Payload::to_message));
    out
}

/// Decodes one of our messages by its type and encodes it again.
pub(crate) fn round_trip(m: &RawMessage) -> Option<Result<RawMessage>> {
    fn again<T: Payload>(m: &RawMessage) -> Option<Result<RawMessage>> {
        Some(m.decode::<T>().map(|v| v.to_message()))
    }
    match m.kind() {
        MsgType::HEARTBEAT => again::<Heartbeat>(m),
        MsgType::OSD_REPORT => again::<OsdReport>(m),
        MsgType::OSD_REPORT_REPLY => again::<OsdReportReply>(m),
        MsgType::IMAGE_IO_QUERY => again::<ImageIoQuery>(m),
        MsgType::IMAGE_IO_REPORT => again::<ImageIoReport>(m),
        _ => None,
    }
}

#[test]
fn every_message_round_trips() {
    for m in samples() {
        assert_eq!(round_trip(&m), Some(Ok(m.clone())), "{}", m.kind());
    }
}
