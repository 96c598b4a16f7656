//! Our own protocols.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{EntityAddr, EntityName, EntityType, Fsid, UTime};
use spirula_maps::{EVersion, HObject, PgId, ReqId, SpgId, snap};
use spirula_proto::internal::heartbeat::{Beat, Heartbeat};
use spirula_proto::internal::peering::*;
use spirula_proto::internal::raft::{Raft, RaftBody, RaftCall, RaftFields};
use spirula_proto::internal::replication::{RepOp, RepOpOutcome, RepOpReply, Replication};
use spirula_proto::internal::report::*;
use spirula_proto::internal::{BlockSums, CheckedData};
use spirula_proto::{MsgType, Payload, RawMessage, Result};

const AT: EVersion = EVersion::new(7, 12);

fn object() -> HObject {
    HObject::new(
        3,
        "ns".into(),
        "".into(),
        "name".into(),
        snap::NOSNAP,
        0x1234_5678,
    )
}

fn spg() -> SpgId {
    SpgId::whole(PgId::new(3, 5))
}

fn context() -> PgContext {
    PgContext {
        spg: spg(),
        epoch: 9,
        interval: 8,
    }
}

fn checked(data: &'static [u8]) -> CheckedData {
    CheckedData {
        data: Bytes::from_static(data),
        sums: BlockSums {
            block: 4,
            crc32c: vec![1; data.len().div_ceil(4)],
        },
    }
}

fn info() -> PgInfo {
    PgInfo {
        last_update: AT,
        last_backfill: HObject::max(),
        stats: vec![1, 2].into(),
        acting: vec![0, 1, 2],
        ..PgInfo::default()
    }
}

fn rep_op() -> RepOp {
    RepOp {
        tid: 77,
        spg: spg(),
        epoch: 9,
        interval: 8,
        reqid: ReqId {
            name: EntityName::new(EntityType::CLIENT, 4117),
            tid: 3,
            inc: 1,
        },
        version: AT,
        trim_to: EVersion::ZERO,
        committed_to: EVersion::new(7, 11),
        log_entries: Bytes::from_static(b"entries"),
        transaction: Bytes::from_static(b"transaction"),
        payloads: vec![
            checked(b"0123456789"),
            CheckedData {
                data: Bytes::from_static(b"raw"),
                sums: BlockSums::NONE,
            },
        ],
    }
}

fn peering() -> Vec<Peering> {
    let report = PgInfoReport {
        pg: context(),
        query_epoch: 9,
        info: info(),
        lease_left_ms: 5,
    };
    let lease = Lease {
        pg: context(),
        stamp: 1,
        duration_ms: 8000,
        committed_to: AT,
    };
    let progress = PushProgress {
        data: 4096,
        omap: Bytes::from_static(b"key"),
        data_done: true,
        omap_done: false,
    };
    vec![
        Peering::Query(PgQuery {
            pg: context(),
            kind: QueryKind::LOG,
            since: AT,
            history: PgHistory::default(),
        }),
        Peering::Info(report.clone()),
        Peering::Log(PgLogPart {
            pg: context(),
            query_epoch: 9,
            info: info(),
            after: EVersion::ZERO,
            to: AT,
            more: true,
            missing: vec![MissingObject {
                object: object(),
                need: AT,
                have: EVersion::ZERO,
            }],
            entries: Bytes::from_static(b"log"),
        }),
        Peering::Activate(Activate {
            pg: context(),
            info: info(),
            rewind_to: AT,
            acting: vec![0, 1, 2],
            lease: lease.clone(),
            entries: Bytes::from_static(b"log"),
        }),
        Peering::ActivateAck(report),
        Peering::Pull(Pull {
            pg: context(),
            items: vec![PullItem {
                object: object(),
                version: AT,
                progress: PushProgress::default(),
            }],
            max_bytes: 1 << 20,
        }),
        Peering::Push(Push {
            pg: context(),
            object: object(),
            version: AT,
            kind: PushKind::PIECE,
            size: 8192,
            before: PushProgress::default(),
            after: progress.clone(),
            attributes: vec![1].into(),
            omap: vec![2].into(),
            extents: vec![(0, checked(b"abcd")), (4096, checked(b"efg"))],
        }),
        Peering::PushAck(PushAck {
            pg: context(),
            object: object(),
            version: AT,
            progress,
            result: 0,
        }),
        Peering::Lease(lease),
        Peering::LeaseAck(LeaseAck {
            pg: context(),
            stamp: 1,
        }),
        Peering::Remove(context()),
    ]
}

fn reports() -> Vec<OsdReport> {
    let addrs: spirula_denc::EntityAddrVec = "v2:127.0.0.1:6800/9".parse::<EntityAddr>().unwrap().into();
    let pairs = || BTreeMap::from([("host".to_owned(), "a".to_owned())]);
    vec![
        OsdReport::Boot(OsdBoot {
            osd: 1,
            fsid: Fsid([1; 16]),
            uuid: Fsid([2; 16]),
            public_addrs: addrs.clone(),
            metadata: pairs(),
            protocols: BTreeMap::from([("replication".to_owned(), 1)]),
            crush_location: pairs(),
            ..OsdBoot::default()
        }),
        OsdReport::Alive(OsdAlive { epoch: 5, want: 4 }),
        OsdReport::Beacon(OsdBeacon {
            epoch: 5,
            pgs: vec![PgId::new(1, 2)],
            ..OsdBeacon::default()
        }),
        OsdReport::PgStats(PgStatsReport {
            seq: 1,
            epoch: 5,
            osd_stat: vec![1].into(),
            pgs: BTreeMap::from([(PgId::new(1, 2), vec![3].into())]),
            pool_statfs: BTreeMap::from([(1, vec![4].into())]),
            slow_ops: (1, 30_000),
        }),
        OsdReport::WantMaps(OsdMapWanted {
            first: 1,
            last: 0,
            full: true,
        }),
        OsdReport::Failure(OsdFailureReport {
            epoch: 5,
            target: 2,
            target_addrs: addrs,
            kind: FailureKind::TIMEOUT,
            failed_for_ms: 21_000,
        }),
        OsdReport::Full(FullState {
            epoch: 5,
            state: Fullness::NEARFULL,
        }),
        OsdReport::GoingDown(OsdGoingDown {
            epoch: 5,
            osd: 1,
            reason: "shutdown".into(),
        }),
        OsdReport::PgTemp(PgTempWanted {
            epoch: 5,
            acting: BTreeMap::from([(PgId::new(1, 2), vec![0, 1])]),
        }),
    ]
}

/// One message of each kind.
pub(crate) fn samples() -> Vec<RawMessage> {
    let reply = RepOpReply {
        tid: 77,
        outcome: RepOpOutcome {
            spg: spg(),
            version: AT,
            result: -5,
            ..RepOpOutcome::default()
        },
    };
    let beat = Beat {
        fsid: Fsid([1; 16]),
        epoch: 5,
        up_from: 3,
        stamp: 99,
        full: true,
    };
    let body = RaftBody {
        tid: 4,
        fields: RaftFields {
            call: RaftCall::VOTE,
            from: 1,
            monmap_epoch: 1,
        },
        body: Bytes::from_static(b"raft"),
    };
    let mut out = vec![
        Replication::Op(rep_op()).to_message(),
        Replication::Reply(reply).to_message(),
        Heartbeat::Ping(beat).to_message(),
        Raft::Request(body).to_message(),
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
    ];
    out.extend(peering().iter().map(Payload::to_message));
    out.extend(reports().iter().map(Payload::to_message));
    out
}

/// Decodes one of our messages by its type and encodes it again.
pub(crate) fn round_trip(m: &RawMessage) -> Option<Result<RawMessage>> {
    fn again<T: Payload>(m: &RawMessage) -> Option<Result<RawMessage>> {
        Some(m.decode::<T>().map(|v| v.to_message()))
    }
    match m.kind() {
        MsgType::REPLICATION => again::<Replication>(m),
        MsgType::PEERING => again::<Peering>(m),
        MsgType::HEARTBEAT => again::<Heartbeat>(m),
        MsgType::RAFT => again::<Raft>(m),
        MsgType::OSD_REPORT => again::<OsdReport>(m),
        MsgType::OSD_REPORT_REPLY => again::<OsdReportReply>(m),
        _ => None,
    }
}

#[test]
fn every_message_round_trips() {
    for m in samples() {
        assert_eq!(round_trip(&m), Some(Ok(m.clone())), "{}", m.kind());
    }
}

#[test]
fn a_write_keeps_its_payloads_apart_and_shared() {
    let m = Replication::Op(rep_op()).to_message();
    assert_eq!(m.header.tid, 77);
    assert_eq!(m.data.iter().count(), 2);
    let received = RawMessage {
        data: m.data.to_bytes().into(),
        ..m
    };
    let Ok(Replication::Op(op)) = received.decode() else {
        panic!("no write")
    };
    assert_eq!(op, rep_op());
    assert_eq!(
        op.payloads[0].data.as_ptr(),
        received.data.iter().next().unwrap().as_ptr()
    );
}

#[test]
fn data_that_belongs_to_no_payload_is_an_error() {
    let mut m = Replication::Op(rep_op()).to_message();
    m.data.push(Bytes::from_static(b"more"));
    assert!(m.decode::<Replication>().is_err());
}

#[test]
fn sums_fit_their_payload_or_are_none() {
    assert!(BlockSums::NONE.fits(9));
    assert!(
        BlockSums {
            block: 4,
            crc32c: vec![0; 3]
        }
        .fits(9)
    );
    assert!(
        !BlockSums {
            block: 4,
            crc32c: vec![0; 2]
        }
        .fits(9)
    );
    assert!(
        !BlockSums {
            block: 3,
            crc32c: vec![0; 3]
        }
        .fits(9)
    );
}
