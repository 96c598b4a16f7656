//! Requests on an object of any contents: vectors of ops, and methods of classes.
//!
//! An input has the object first, then the request.

mod host;

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_maps::SnapContext;
use spirula_osd::pg::object::{ObjectFlags, ObjectInfo};
use spirula_proto::osd::{CallArgs, OpArgs, OpCode, OpFlags, OsdOp, OsdOpIn};

use crate::input::Input;
use host::{Stored, execute};

/// The most ops of a request, or calls.
const MOST: usize = 16;

const EXISTS: u8 = 1;
const HAS_OMAP: u8 = 2;
/// Some bytes of the info are changed.
const BAD_INFO: u8 = 4;
/// The info has another size than the data.
const OTHER_SIZE: u8 = 8;
/// The request has the flag RETURNVEC.
const RETURNS: u8 = 16;
/// The request names snapshots.
const HAS_SNAPS: u8 = 32;

/// The op codes that an op of an input names by a byte.
pub(crate) const CODES: [OpCode; 48] = [
    OpCode::READ,
    OpCode::SYNC_READ,
    OpCode::SPARSE_READ,
    OpCode::STAT,
    OpCode::MAPEXT,
    OpCode::CHECKSUM,
    OpCode::CMPEXT,
    OpCode::NOTIFY,
    OpCode::NOTIFY_ACK,
    OpCode::ASSERT_VER,
    OpCode::LIST_WATCHERS,
    OpCode::LIST_SNAPS,
    OpCode::WRITE,
    OpCode::WRITEFULL,
    OpCode::TRUNCATE,
    OpCode::TRIMTRUNC,
    OpCode::ZERO,
    OpCode::DELETE,
    OpCode::APPEND,
    OpCode::STARTSYNC,
    OpCode::TMAPUP,
    OpCode::CREATE,
    OpCode::ROLLBACK,
    OpCode::WATCH,
    OpCode::OMAPGETKEYS,
    OpCode::OMAPGETVALS,
    OpCode::OMAPGETHEADER,
    OpCode::OMAPGETVALSBYKEYS,
    OpCode::OMAPSETVALS,
    OpCode::OMAPSETHEADER,
    OpCode::OMAPCLEAR,
    OpCode::OMAPRMKEYS,
    OpCode::OMAPRMKEYRANGE,
    OpCode::OMAP_CMP,
    OpCode::COPY_FROM,
    OpCode::COPY_FROM2,
    OpCode::COPY_GET,
    OpCode::SETALLOCHINT,
    OpCode::WRITESAME,
    OpCode::GETXATTR,
    OpCode::GETXATTRS,
    OpCode::CMPXATTR,
    OpCode::SETXATTR,
    OpCode::RMXATTR,
    OpCode::CALL,
    OpCode::PGLS,
    OpCode::PGNLS,
    OpCode::PGNLS_FILTER,
];

/// Bytes with a length of one byte before them.
fn short<'a>(input: &mut Input<'a>) -> &'a [u8] {
    let len = input.u8();
    input.bytes(len.into())
}

/// Up to `most` names with values, as attributes and omaps have them.
fn pairs(input: &mut Input<'_>, most: u8) -> BTreeMap<Bytes, Bytes> {
    let pair = |input: &mut Input<'_>| {
        let name = Bytes::copy_from_slice(short(input));
        (name, Bytes::copy_from_slice(input.blob()))
    };
    (0..input.u8() % (most + 1)).map(|_| pair(input)).collect()
}

/// An object, and the rest of a request besides its ops: snapshots, and whether outputs are
/// returned.
fn stored(input: &mut Input<'_>) -> (Stored, SnapContext, bool) {
    let flags = input.u8();
    let has = |flag| flags & flag != 0;
    let data = Bytes::copy_from_slice(input.blob());
    let attrs = pairs(input, 15);
    let (header, omap) = match has(HAS_OMAP) {
        true => (Bytes::copy_from_slice(input.blob()), pairs(input, 31)),
        false => Default::default(),
    };
    let size = match has(OTHER_SIZE) {
        true => u64::from_le_bytes(input.array()),
        false => data.len() as u64,
    };
    let info = ObjectInfo {
        size,
        flags: if has(HAS_OMAP) {
            ObjectFlags::OMAP
        } else {
            ObjectFlags::empty()
        },
        user_version: 7,
        ..ObjectInfo::default()
    };
    let mut info = info.to_bytes().to_vec();
    if has(BAD_INFO) {
        info = input.mutate(info);
    }
    let mut snapc = SnapContext::default();
    if has(HAS_SNAPS) {
        snapc.seq = u64::from(input.u16());
        let snaps = snapc.seq.saturating_sub(u64::from(input.u8()))..=snapc.seq;
        snapc.snaps = snaps.rev().filter(|s| *s > 0).collect();
    }
    let stored = Stored {
        exists: has(EXISTS),
        info: info.into(),
        data,
        attrs,
        omap,
        header,
    };
    (stored, snapc, has(RETURNS))
}

/// An op: its code, flags, the first bytes of its arguments, its data.
fn op(input: &mut Input<'_>) -> OsdOpIn {
    let code = input.u8();
    let code = match CODES.get(usize::from(code)) {
        Some(code) => *code,
        None => OpCode(input.u16()),
    };
    let flags = OpFlags(input.u8().into());
    let mut raw_args = [0; OsdOp::ARGS];
    let args = short(input);
    let len = args.len().min(OsdOp::ARGS);
    raw_args[..len].copy_from_slice(&args[..len]);
    let data = Bytes::copy_from_slice(input.blob());
    let op = OsdOp {
        code,
        flags,
        raw_args,
        payload_len: data.len() as u32,
    };
    OsdOpIn {
        op,
        data: data.into(),
    }
}

pub(crate) fn ops(data: &[u8]) {
    let mut input = Input::new(data);
    let (stored, snapc, returns) = stored(&mut input);
    let mut ops = Vec::new();
    while !input.is_empty() && ops.len() < MOST {
        ops.push(op(&mut input));
    }
    execute(&stored, ops, snapc, returns);
}

/// A call: class and method by their numbers, then the input.
fn call(input: &mut Input<'_>) -> Option<OsdOpIn> {
    let (class, method) = (usize::from(input.u8()), usize::from(input.u8()));
    let class = spirula_classes::all().nth(class % spirula_classes::all().count().max(1))?;
    let method = class.methods.get(method % class.methods.len().max(1))?;
    let indata = input.blob();
    let args = CallArgs {
        class_len: u8::try_from(class.name.len()).ok()?,
        method_len: u8::try_from(method.name.len()).ok()?,
        argc: 0,
        input_len: u32::try_from(indata.len()).ok()?,
    };
    let data = [class.name.as_bytes(), method.name.as_bytes(), indata].concat();
    Some(OsdOpIn::new(OpCode::CALL, OpArgs::Call(args), data))
}

pub(crate) fn methods(data: &[u8]) {
    let mut input = Input::new(data);
    let (stored, snapc, returns) = stored(&mut input);
    let mut ops = Vec::new();
    while !input.is_empty() && ops.len() < MOST {
        ops.extend(call(&mut input));
    }
    execute(&stored, ops, snapc, returns);
}
