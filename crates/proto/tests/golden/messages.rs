//! Whole messages.

use spirula_maps::{Epoch, PgId, PoolId, SpgId};
use spirula_proto::mgr::{MMgrClose, MMgrConfigure, MMgrMap, MMgrOpen, MMgrReport, MServiceMap};
use spirula_proto::mon::*;
use spirula_proto::osd::{MOsdBackoff, MOsdOp, MOsdOpReply, MOsdScrub2, MWatchNotify};
use spirula_proto::{Payload, RawMessage, Result};

fn again<T: Payload>(m: &RawMessage) -> Option<Result<RawMessage>> {
    (m.kind() == T::TYPE).then(|| m.decode::<T>().map(|v| v.to_message()))
}

/// Decodes a message by its type and encodes it again; `None` for a type without a codec.
pub(crate) fn round_trip(m: &RawMessage) -> Option<Result<RawMessage>> {
    macro_rules! first {
        ($($t:ty),* $(,)?) => {
            None$(.or_else(|| again::<$t>(m)))*
        };
    }
    first!(
        MAuth,
        MAuthReply,
        MCommand,
        MCommandReply,
        MConfig,
        MFsMap,
        MFsMapUser,
        MGetConfig,
        MGetPoolStats,
        MGetPoolStatsReply,
        MLog,
        MLogAck,
        MMdsMap,
        MMgrClose,
        MMgrCommand,
        MMgrCommandReply,
        MMgrConfigure,
        MMgrMap,
        MMgrOpen,
        MMgrReport,
        MMonCommand,
        MMonCommandAck,
        MMonGetMap,
        MMonGetOsdMap,
        MMonGetVersion,
        MMonGetVersionReply,
        MMonMap,
        MMonSubscribe,
        MMonSubscribeAck,
        MOsdBackoff,
        MOsdMap,
        MOsdOp,
        MOsdOpReply,
        MOsdScrub2,
        MPing,
        MPoolOp,
        MPoolOpReply,
        MServiceMap,
        MStatfs,
        MStatfsReply,
        MWatchNotify,
    )
}

#[test]
fn recorded_messages_encode_to_the_same_bytes() {
    let mut seen = 0;
    for (name, m) in crate::hex::messages() {
        if name == "ping" {
            // Its answer has a front that is not part of the message's definition.
            continue;
        }
        let back = round_trip(&m)
            .unwrap_or_else(|| panic!("{name}: no codec"))
            .unwrap();
        assert_eq!(back.front, m.front, "{name}");
        assert_eq!(back.middle, m.middle, "{name}");
        assert_eq!(back.data, m.data, "{name}");
        assert_eq!(back.header.version, m.header.version, "{name}");
        assert_eq!(back.header.compat_version, m.header.compat_version, "{name}");
        seen += 1;
    }
    assert!(seen > 60, "{seen} samples");
}

#[test]
fn a_ping_is_answered_with_json_in_its_front() {
    let (_, answer) = crate::hex::messages()
        .into_iter()
        .rfind(|(n, m)| *n == "ping" && !m.front.is_empty())
        .unwrap();
    let json = spirula_denc::decode_all::<String>(&answer.front).unwrap();
    assert!(json.contains("\"pong\"") || json.contains("health"));
    assert_eq!(MPing::reply(&json).front, answer.front);
}

#[test]
fn the_empty_fsmap_is_the_official_one() {
    assert_eq!(
        MFsMap::empty(Epoch::new(1)).to_message().front,
        crate::hex::message("fsmap").front
    );
}

#[test]
fn messages_of_other_types_and_versions_are_refused() {
    let m = crate::hex::message("statfs");
    assert!(m.decode::<MLog>().is_err());
    let mut newer = m.clone();
    newer.header.compat_version = 3;
    assert!(newer.decode::<MStatfs>().is_err());
    newer.header.compat_version = 1;
    newer.header.version = 9;
    assert_eq!(newer.decode::<MStatfs>(), m.decode::<MStatfs>());
    let mut old = crate::hex::message("mon_subscribe");
    old.header.version = 1;
    assert!(old.decode::<MMonSubscribe>().is_err());
}

#[test]
fn orders_to_scrub_are_read() {
    let orders: Vec<MOsdScrub2> = crate::hex::messages()
        .iter()
        .filter(|(name, _)| *name == "scrub2")
        .map(|(_, m)| m.decode().unwrap())
        .collect();
    let pg = |pool, seed| PgId::new(PoolId::new(pool), seed);
    let of_primary = |seed| SpgId {
        pgid: pg(3, seed),
        shard: 0,
    };
    let [repair, shallow, deep] = orders.as_slice() else {
        panic!("{orders:?}");
    };
    assert_eq!(repair.epoch, Epoch::new(33));
    assert_eq!(repair.pgs, [of_primary(0x1a)]);
    assert_eq!((repair.repair, repair.deep), (true, false));
    assert_eq!(shallow.pgs, [SpgId::whole(pg(2, 1))]);
    assert_eq!((shallow.repair, shallow.deep), (false, false));
    assert_eq!(deep.pgs, [SpgId::whole(pg(2, 2)), of_primary(1), of_primary(3)]);
    assert_eq!((deep.repair, deep.deep), (false, true));
    assert_eq!(deep.fsid.to_string(), "6779b63f-122a-42c8-b8c0-918d2fc5c630");
}
