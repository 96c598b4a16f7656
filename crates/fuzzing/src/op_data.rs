//! The payloads of operations on objects.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, decode_all, encode_to_vec};
use spirula_maps::HObject;
use spirula_proto::osd::{OpCode, OpFlags, OsdOp, OsdOpIn};
use spirula_proto::osd_op_data::*;

use crate::input::Input;

/// An input is the code of an operation (`u16`), its 28 bytes of arguments and its data.
pub(crate) fn run(data: &[u8]) {
    let mut from = Input::new(data);
    let mut op = OsdOp {
        code: OpCode(from.u16()),
        flags: OpFlags::default(),
        raw_args: from.array(),
        payload_len: 0,
    };
    let data = Bytes::copy_from_slice(from.rest());
    op.payload_len = u32::try_from(data.len()).unwrap_or(u32::MAX);
    output(&op, &data);
    input(&OsdOpIn {
        op,
        data: data.into(),
    });
}

fn decode<T: Decode>(data: &[u8]) {
    let _ = Reader::new(data).get::<T>();
}

/// Decodes a structure that is also encoded: a decoded value must encode to something that decodes
/// to the same.
fn decode_twice<T: Decode + Encode + PartialEq>(data: &[u8]) {
    if let Ok(first) = Reader::new(data).get::<T>() {
        assert!(
            decode_all(&encode_to_vec(&first)) == Ok(first),
            "a value does not encode"
        );
    }
}

/// Reads the input of an operation as an OSD does.
pub(crate) fn input(op: &OsdOpIn) {
    let args = op.op.args();
    assert!(
        OsdOp::new(op.op.code, args.clone()).args() == args,
        "arguments of {} do not survive being sent on",
        op.op.code
    );
    let _ = (XattrInput::of(op), CallInput::of(op));
    let data = &op.data.to_bytes();
    match op.op.code {
        OpCode::NOTIFY => decode_twice::<NotifyRequest>(data),
        OpCode::NOTIFY_ACK => decode_twice::<NotifyAck>(data),
        OpCode::OMAPGETKEYS => decode_twice::<OmapGetKeys>(data),
        OpCode::OMAPGETVALS => decode_twice::<OmapGetVals>(data),
        OpCode::OMAPGETVALSBYKEYS | OpCode::OMAPRMKEYS => decode_twice::<OmapKeys>(data),
        OpCode::OMAPSETVALS => decode_twice::<OmapVals>(data),
        OpCode::OMAPRMKEYRANGE => decode_twice::<OmapRange>(data),
        OpCode::OMAP_CMP => decode_twice::<OmapCmp>(data),
        OpCode::COPY_FROM | OpCode::COPY_FROM2 => decode_twice::<CopySource>(data),
        OpCode::PGLS | OpCode::PGNLS => decode_twice::<HObject>(data),
        OpCode::SCRUBLS => decode_twice::<ScrubLsArg>(data),
        OpCode::PGLS_FILTER | OpCode::PGNLS_FILTER => {
            if let Ok(filter) = Reader::new(data).get::<ListFilter>() {
                decode_twice::<HObject>(&filter.rest);
            }
        }
        _ => {}
    }
}

/// Reads the output of an operation as a client does.
pub(crate) fn output(op: &OsdOp, data: &Bytes) {
    match op.code {
        OpCode::STAT => decode_twice::<StatResult>(data),
        OpCode::GETXATTRS => decode_twice::<Xattrs>(data),
        OpCode::LIST_WATCHERS => decode_twice::<ListWatchersResponse>(data),
        OpCode::LIST_SNAPS => decode_twice::<ListSnapsResponse>(data),
        OpCode::NOTIFY => decode_twice::<NotifyReplies>(data),
        OpCode::OMAPGETKEYS => decode_twice::<OmapKeysReply>(data),
        OpCode::OMAPGETVALS => decode_twice::<OmapValsReply>(data),
        OpCode::OMAPGETVALSBYKEYS => decode_twice::<OmapVals>(data),
        OpCode::PGNLS | OpCode::PGNLS_FILTER => decode_twice::<PgNlsResponse>(data),
        OpCode::PGLS | OpCode::PGLS_FILTER => decode_twice::<PgLsResponse>(data),
        OpCode::SCRUBLS => {
            decode_twice::<ScrubLsResult>(data);
            found(data);
        }
        _ => decode::<u64>(data),
    }
}

/// Reads what a scrub found, down to the objects' attributes.
fn found(data: &[u8]) {
    let result = Reader::new(data).get::<ScrubLsResult>().unwrap_or_default();
    for entry in &result.vals {
        decode_twice::<InconsistentObject>(entry);
        decode_twice::<InconsistentSnapSet>(entry);
    }
    let objects = result.entries::<InconsistentObject>().unwrap_or_default();
    for shard in objects.iter().flat_map(|o| o.shards.values()) {
        for value in shard.attrs.values() {
            decode_twice::<attr::ObjectInfo>(value);
            decode_twice::<attr::SnapSet>(value);
            decode_twice::<attr::HashInfo>(value);
        }
    }
}
