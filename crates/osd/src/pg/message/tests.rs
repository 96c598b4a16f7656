use spirula_maps::PoolId;

use super::*;
use crate::pg::push::{Lacking, Patch, PushEnd, PushPart};
use proptest::prelude::*;

#[test]
fn every_message_round_trips() {
    let b = Bytes::from_static;
    let end = PushEnd {
        size: 9,
        info: b(b"i"),
        attrs: vec![(b(b"n"), b(b"v"))],
        omap_header: b(b"h"),
    };
    let part = PushPart::Data {
        first: true,
        pieces: vec![(4, b(b"data"))],
        pairs: vec![(b(b"k"), b(b"v"))],
        last: Some(end),
        patch: Some(Patch {
            omap: true,
            zeros: vec![spirula_denc::Extent { offset: 5, len: 6 }],
        }),
    };
    let v = EVersion::new(Epoch::new(3), 4);
    let lacking = Lacking {
        key: b(b"k"),
        had: Some(v),
    };
    let bodies = [
        PeerBody::RepOp(RepOp {
            prev: v,
            entry: b(b"e"),
            trim_to: v,
            stable: v,
            txn: Txn::default(),
        }),
        PeerBody::RepCommitted(v),
        PeerBody::Ahead {
            number: 5,
            data: b(b"data").into(),
        },
        PeerBody::Placed {
            number: 5,
            done: true,
        },
        PeerBody::Query,
        PeerBody::Notify {
            info: None,
            promised: Promise {
                primary: Micros::new(7),
                members: Micros::new(8),
            },
            kept_since: Some(Epoch::new(9)),
        },
        PeerBody::Notify {
            info: Some(PgInfo::default()),
            promised: Promise::default(),
            kept_since: None,
        },
        PeerBody::Lease {
            stamp: Micros::new(5),
            shared: true,
        },
        PeerBody::ShareLease(Micros::new(5)),
        PeerBody::LeaseShared(LeaseShare {
            stamp: Micros::new(5),
            length: Micros::new(6),
            stable: v,
            epoch: Epoch::new(7),
        }),
        PeerBody::LeaseGranted(Micros::new(6)),
        PeerBody::GetLog,
        PeerBody::Log {
            tail: v,
            head: v,
            entries: Vec::new(),
            dups: vec![DupBatch::default()],
        },
        PeerBody::StartSync {
            targets: vec![
                (OsdId::new(1), SyncPlan::Backfill),
                (OsdId::new(2), SyncPlan::Objects(vec![lacking])),
                (OsdId::new(3), SyncPlan::Replay(EVersion::new(Epoch::new(2), 7))),
            ],
            parts: Vec::new(),
        },
        PeerBody::SyncDone(OsdId::new(3)),
        PeerBody::Push(Push {
            key: b(b"k"),
            part: PushPart::Absent,
        }),
        PeerBody::Push(Push { key: b(b"k"), part }),
        PeerBody::PushAck,
        PeerBody::PushRefused,
        PeerBody::FragmentWant(FragmentWant {
            number: (3, 1),
            key: b(b"k"),
            extents: vec![(0..9).into(), (20..30).into()],
            at: EVersion::new(Epoch::new(2), 7),
        }),
        PeerBody::Fragment {
            number: (3, 1),
            found: Some(vec![(0, b(b"abc")), (20, b(b"d"))]),
        },
        PeerBody::Fragment {
            number: (4, 0),
            found: None,
        },
        PeerBody::SyncRefused(OsdId::new(3)),
        PeerBody::Scan {
            from: b(b"a"),
            to: b(b"z"),
            objects: vec![(b(b"k"), v)],
        },
        PeerBody::ScanAck(vec![b(b"k")]),
        PeerBody::Activate {
            info: PgInfo::default(),
            log: LogUpdate {
                keep_to: v,
                replace: true,
                entries: Vec::new(),
                dups: vec![DupBatch::default()],
            },
        },
        PeerBody::Copied {
            info: PgInfo::default(),
            log: LogUpdate {
                keep_to: v,
                replace: false,
                entries: Vec::new(),
                dups: Vec::new(),
            },
        },
        PeerBody::Activated,
        PeerBody::Remove,
        PeerBody::SyncFailed(None),
        PeerBody::SyncFailed(Some(b(b"k"))),
        PeerBody::Reserve(180),
        PeerBody::Reserved,
        PeerBody::Release,
        PeerBody::Revoked,
        PeerBody::CopyRead(CopyRead {
            token: 1,
            from: PgId::new(PoolId::new(3), 4),
            object: HObject::min(),
            version: 5,
            cursor: CopyCursor::default(),
        }),
        PeerBody::CopyPart(CopyPart {
            token: 1,
            result: -2,
            user_version: 3,
            data: b(b"part"),
        }),
    ];
    for body in bodies {
        let m = PeerMessage {
            pgid: PgId::new(PoolId::new(1), 2),
            id: PeeringId {
                epoch: Epoch::new(5),
                round: 6,
            },
            body,
        };
        let raw = m.compose(Edition::Current);
        assert_eq!(PeerMessage::parse(&raw, Edition::Current).as_ref(), Ok(&m));
        let raw = m.compose(Edition::Previous);
        assert_eq!(PeerMessage::parse(&raw, Edition::Previous), Ok(as_previous(m)));
    }
}

/// A message without what the version before cannot say.
fn as_previous(mut m: PeerMessage) -> PeerMessage {
    match &mut m.body {
        PeerBody::Notify { kept_since, .. } => *kept_since = None,
        PeerBody::SyncFailed(unreadable) => *unreadable = None,
        _ => {}
    }
    m
}

proptest! {
    #[test]
    fn garbage_never_panics(front in proptest::collection::vec(any::<u8>(), 0..200), data in "[a-z]{0,20}") {
        let mut m = PeerMessage { pgid: PgId::default(), id: PeeringId::default(), body: PeerBody::Query }.compose(Edition::Current);
        m.front = front.into();
        m.data = Bytes::from(data.into_bytes()).into();
        let _ = PeerMessage::parse(&m, Edition::Current);
    }
}
