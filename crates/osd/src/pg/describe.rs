//! The report on a request: its description, as official OSDs print it, and when it reached each
//! stage.
//!
//! It is made only when somebody asks, or for the few requests that are remembered as the slowest.

use std::fmt::{self, Write as _};

use spirula_denc::{EntityAddr, EntityName};
use spirula_maps::{OsdId, PgId, snap};
use spirula_proto::osd::{AllocHintArgs, AssertVersionArgs, CallArgs, OpCode, XattrArgs};
use spirula_proto::osd_op_data::XattrInput;

use super::op::{ClientOp, OsdOp, Stamps};

/// How far a request has come (`OpRequest::state_string`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It waits for something with this name.
    Delayed(&'static str),
    /// It is being executed.
    Started,
    /// It waits until its change is durable everywhere.
    SubOps,
    /// It is answered.
    Done,
}

impl Progress {
    /// The official name of the state; for a delayed request, what it waits for.
    pub fn flag_point(self) -> &'static str {
        match self {
            Self::Delayed(what) => what,
            Self::Started => "started",
            Self::SubOps => "waiting for sub ops",
            Self::Done => "commit sent; apply or cleanup",
        }
    }

    /// The official name of the kind of state.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Delayed(_) => "delayed",
            other => other.flag_point(),
        }
    }
}

/// A request under way or done.
#[derive(Debug, Clone)]
pub struct OpRecord {
    /// The request's description.
    pub description: String,
    /// The client that sent it.
    pub client: EntityName,
    /// The client's address.
    pub addr: EntityAddr,
    /// The sender's number for it.
    pub tid: u64,
    /// The PG it belongs to.
    pub pgid: PgId,
    /// When it reached each stage.
    pub stamps: Stamps,
    /// The other OSDs that a write was sent to.
    pub peers: Vec<OsdId>,
    /// The stage that it has reached.
    pub progress: Progress,
}

impl OpRecord {
    /// The record of a request that is not with a PG yet, or no longer.
    pub fn of(op: &ClientOp, progress: Progress) -> Self {
        Self {
            description: describe(op),
            client: op.client.name,
            addr: op.client.addr,
            tid: op.tid,
            pgid: op.pgid,
            stamps: op.stamps,
            peers: Vec::new(),
            progress,
        }
    }
}

/// The description of a request as official logs print it.
pub fn describe(op: &ClientOp) -> String {
    let mut out = String::new();
    // Writing into a string does not fail.
    let _ = write_op(&mut out, op);
    out
}

fn write_op(out: &mut String, op: &ClientOp) -> fmt::Result {
    write!(out, "osd_op({} {} {} [", op.reqid, op.pgid, op.object)?;
    for (i, o) in op.ops.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_sub_op(out, o)?;
    }
    write!(out, "] snapc {}", op.snapc)?;
    if op.retry_attempt > 0 {
        write!(out, " RETRY={}", op.retry_attempt)?;
    }
    write!(out, " {} e{})", op.flags, op.epoch)
}

/// The most bytes of a name or argument that are shown.
const SHOWN: usize = 128;

fn name(out: &mut String, bytes: Option<&[u8]>) -> fmt::Result {
    let bytes = bytes.unwrap_or_default();
    write!(out, "{}", bytes[..bytes.len().min(SHOWN)].escape_ascii())
}

fn write_sub_op(out: &mut String, o: &OsdOp) -> fmt::Result {
    write!(out, "{}", o.code)?;
    match o.code {
        OpCode::ASSERT_VER => write!(out, " v{}", o.args::<AssertVersionArgs>().version)?,
        OpCode::TRUNCATE => write!(out, " {}", o.extent().offset)?,
        OpCode::ROLLBACK => write!(out, " {}", snap::Display(o.args()))?,
        OpCode::SETALLOCHINT => {
            let hint: AllocHintArgs = o.args();
            let (object, write) = (hint.expected_object_size, hint.expected_write_size);
            write!(out, " object_size {object} write_size {write}")?;
        }
        OpCode::READ
        | OpCode::SPARSE_READ
        | OpCode::SYNC_READ
        | OpCode::WRITE
        | OpCode::WRITEFULL
        | OpCode::ZERO
        | OpCode::APPEND
        | OpCode::MAPEXT
        | OpCode::CMPEXT => {
            let e = o.extent();
            write!(out, " {}~{}", e.offset, e.length)?;
            if e.truncate_seq != 0 {
                write!(out, " [{}@{}]", e.truncate_seq, e.truncate_size.cast_signed())?;
            }
            if o.flags.0 != 0 {
                write!(out, " [{}]", o.flags)?;
            }
        }
        OpCode::GETXATTR | OpCode::SETXATTR | OpCode::RMXATTR | OpCode::CMPXATTR => {
            let args: XattrArgs = o.args();
            if args.name_len > 0 && !o.indata.is_empty() {
                out.push(' ');
                name(out, XattrInput::name(&args, &o.indata).as_deref())?;
            }
            if args.value_len > 0 {
                write!(out, " ({})", args.value_len)?;
            }
            if o.code == OpCode::CMPXATTR {
                write!(out, " op {} mode {}", args.cmp_op.0, args.cmp_mode.0)?;
            }
        }
        OpCode::CALL if !o.indata.is_empty() => {
            let args: CallArgs = o.args();
            let (class, method) = (usize::from(args.class_len), usize::from(args.method_len));
            out.push(' ');
            name(out, o.indata.get(..class))?;
            out.push('.');
            name(out, o.indata.get(class..class + method))?;
        }
        _ => {}
    }
    if !o.indata.is_empty() {
        write!(out, " in={}b", o.indata.len())?;
    }
    if !o.outdata.is_empty() {
        write!(out, " out={}b", o.outdata.len())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use spirula_proto::osd::ExtentArgs;

    use super::*;

    fn text(op: &OsdOp) -> String {
        let mut out = String::new();
        write_sub_op(&mut out, op).unwrap();
        out
    }

    fn op_of(code: OpCode, indata: Bytes) -> OsdOp {
        let mut op = OsdOp::default();
        (op.code, op.indata) = (code, indata);
        op
    }

    #[test]
    fn ops_read_as_in_official_logs() {
        let mut op = op_of(OpCode::WRITE, Bytes::from_static(b"abc"));
        op.set_args(&ExtentArgs {
            offset: 8,
            length: 3,
            ..ExtentArgs::default()
        });
        assert_eq!(text(&op), "write 8~3 in=3b");
        op.set_args(&ExtentArgs {
            offset: 8,
            length: 3,
            truncate_seq: 2,
            truncate_size: u64::MAX,
        });
        assert_eq!(text(&op), "write 8~3 [2@-1] in=3b");
        let mut op = op_of(OpCode::SETXATTR, Bytes::from_static(b"keyvalue"));
        op.set_args(&XattrArgs {
            name_len: 3,
            value_len: 5,
            ..XattrArgs::default()
        });
        assert_eq!(text(&op), "setxattr key (5) in=8b");
        let mut op = op_of(OpCode::CALL, Bytes::from_static(b"lockinfo..."));
        let lens = |class_len, method_len| CallArgs {
            class_len,
            method_len,
            ..CallArgs::default()
        };
        op.set_args(&lens(4, 4));
        assert_eq!(text(&op), "call lock.info in=11b");
        // Lengths that lie are no reason to fail.
        op.set_args(&lens(200, 200));
        assert_eq!(text(&op), "call . in=11b");
    }
}
