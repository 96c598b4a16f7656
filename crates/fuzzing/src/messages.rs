//! Messages: every type with every version.

use bytes::Bytes;
use spirula_osd::pg::message::PeerMessage;
use spirula_proto::internal::heartbeat::Heartbeat;
use spirula_proto::internal::quorum::{MonPeer, MonPeerReply};
use spirula_proto::internal::report::{OsdReport, OsdReportReply};
use spirula_proto::internal::{Edition, Protocol};
use spirula_proto::mgr::*;
use spirula_proto::mon::*;
use spirula_proto::osd::*;
use spirula_proto::{MsgHeader2, MsgType, Payload, RawMessage};

use crate::input::Input;
use crate::op_data;

/// The header of an input: type, version and compat version as `u16`, lengths of middle and data as
/// `u16`. Data, then middle stand at the end of the input.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let header = MsgHeader2 {
        kind: MsgType(input.u16()),
        version: input.u16(),
        compat_version: input.u16(),
        ..MsgHeader2::default()
    };
    let (middle, data) = (usize::from(input.u16()), usize::from(input.u16()));
    let rest = Bytes::copy_from_slice(input.rest());
    let data_at = rest.len() - data.min(rest.len());
    let middle_at = data_at - middle.min(data_at);
    decode_any(&RawMessage {
        header,
        front: rest.slice(..middle_at),
        middle: rest.slice(middle_at..data_at),
        data: rest.slice(data_at..).into(),
    });
}

/// Decodes a message by its type.
pub(crate) fn decode_any(msg: &RawMessage) {
    match msg.kind() {
        MOsdOp::TYPE => osd_op(msg),
        MOsdOpReply::TYPE => osd_op_reply(msg),
        MsgType::OSD_MAP => osd_maps(msg),
        kind if PeerMessage::is_kind(kind) => between_osds(msg),
        kind => {
            if let Some((_, decode)) = DECODERS.iter().find(|(t, _)| *t == kind) {
                decode(msg);
            }
        }
    }
}

/// Decodes a message; a decoded one must encode to something that decodes to the same.
fn decode<T: Payload>(msg: &RawMessage) {
    let _ = decode_twice::<T>(msg);
}

fn decode_twice<T: Payload>(msg: &RawMessage) -> Option<T> {
    let first = msg.decode::<T>().ok()?;
    let encoded = first.to_message();
    let again = encoded.decode::<T>();
    // Numbers that are not equal to themselves are equal in their encoding.
    assert!(
        again.as_ref().is_ok_and(|again| again.to_message() == encoded),
        "{} does not survive being sent on: {:?}",
        msg.kind(),
        again.err()
    );
    Some(first)
}

macro_rules! decoders {
    ($($message:ty,)*) => {
        /// Messages that only need decoding.
        const DECODERS: &[(MsgType, fn(&RawMessage))] = &[
            $((<$message>::TYPE, decode::<$message>),)*
        ];
    };
}

decoders! {
    MAuth, MAuthReply, MCommand, MCommandReply, MConfig, MFsMap, MFsMapUser, MGetConfig, MGetPoolStats,
    MGetPoolStatsReply, MLog, MLogAck, MMdsMap, MMgrClose, MMgrCommand, MMgrCommandReply, MMgrConfigure, MMgrMap,
    MMgrOpen, MMgrReport, MMonCommand, MMonCommandAck, MMonGetMap, MMonGetOsdMap, MMonGetVersion,
    MMonGetVersionReply, MMonMap, MMonSubscribe, MMonSubscribeAck, MOsdBackoff, MOsdScrub2, MPing, MPoolOp, MPoolOpReply,
    MServiceMap, MStatfs, MStatfsReply, MWatchNotify, Heartbeat, MonPeer, MonPeerReply, OsdReport, OsdReportReply,
}

fn osd_op(msg: &RawMessage) {
    let Some(op) = decode_twice::<MOsdOp>(msg) else {
        return;
    };
    let _ = (
        op.reqid(spirula_denc::EntityName::default()),
        op.object(),
        op.may_write(),
    );
    for op in &op.ops {
        op_data::input(op);
    }
}

fn osd_op_reply(msg: &RawMessage) {
    let Some(reply) = decode_twice::<MOsdOpReply>(msg) else {
        return;
    };
    for out in &reply.ops {
        op_data::output(&out.op, &out.data.to_bytes());
    }
}

fn between_osds(msg: &RawMessage) {
    let Ok(first) = PeerMessage::from_raw(msg, Edition::Current) else {
        return;
    };
    let again = PeerMessage::from_raw(
        &first.to_raw(Edition::Current, Edition::Current),
        Edition::Current,
    );
    assert_eq!(
        again,
        Ok(first),
        "a message between OSDs does not survive being sent on"
    );
}

fn osd_maps(msg: &RawMessage) {
    decode::<MOsdMap>(msg);
}
