//! `struct ceph_osd_op` of `src/include/rados.h`: code, flags, 28 bytes of arguments, payload
//! length.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer};

use super::args::OpArgs;
use super::{OpCode, OpFlags};
use crate::BytesList;

/// One operation without its payload, 38 bytes packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OsdOp {
    /// The operation's code.
    pub code: OpCode,
    /// The operation's flags.
    pub flags: OpFlags,
    /// The arguments as they are on the wire; see [`OsdOp::args`].
    pub raw_args: [u8; Self::ARGS],
    /// Bytes of the operation's payload in the message's data segment.
    pub payload_len: u32,
}

impl OsdOp {
    /// Encoded size in bytes.
    pub const SIZE: usize = 38;
    /// Size of the arguments.
    pub const ARGS: usize = 28;

    /// An operation without payload.
    pub fn new(code: OpCode, args: OpArgs) -> Self {
        Self {
            code,
            raw_args: args.to_raw(),
            ..Self::default()
        }
    }

    /// The same operation with flags.
    #[must_use]
    pub fn with_flags(self, flags: OpFlags) -> Self {
        Self { flags, ..self }
    }

    /// The arguments, decoded by the operation's code.
    pub fn args(&self) -> OpArgs {
        OpArgs::from_raw(self.code, &self.raw_args)
    }

    /// Reads `n` operations and cuts each one's payload from the data segment; `make` joins the
    /// two.
    pub(super) fn decode_many<T>(
        n: usize,
        r: &mut Reader<'_>,
        data: &BytesList,
        make: impl Fn(Self, Bytes) -> T,
    ) -> Result<Vec<T>> {
        let wanted = n.saturating_mul(Self::SIZE);
        if wanted > r.remaining() {
            let left = r.remaining();
            return Err(Error::Truncated { wanted, left });
        }
        let mut ops = Vec::with_capacity(n);
        let mut at = 0;
        for _ in 0..n {
            let op: Self = r.get()?;
            let wanted = usize::try_from(op.payload_len).map_err(|_| Error::Invalid("payload length"))?;
            let left = data.len() - at;
            let payload = data.slice(at, wanted).ok_or(Error::Truncated { wanted, left })?;
            at += wanted;
            ops.push(make(op, payload));
        }
        Ok(ops)
    }
}

impl Encode for OsdOp {
    fn encode(&self, w: &mut Writer) {
        w.u16(self.code.0);
        w.u32(self.flags.0);
        w.bytes(&self.raw_args);
        w.u32(self.payload_len);
    }
}

impl Decode for OsdOp {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            code: OpCode(r.u16()?),
            flags: OpFlags(r.u32()?),
            raw_args: r.array()?,
            payload_len: r.u32()?,
        })
    }
}

/// An operation of a request with its input.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdOpIn {
    /// The operation. Its payload length is set when the message is encoded.
    pub op: OsdOp,
    /// Its input. Received input is one buffer, shared with the message if it lies in one of its
    /// buffers.
    pub data: BytesList,
}

impl OsdOpIn {
    /// An operation with input.
    pub fn new(code: OpCode, args: OpArgs, data: impl Into<BytesList>) -> Self {
        let data = data.into();
        let mut op = OsdOp::new(code, args);
        op.payload_len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        Self { op, data }
    }
}

/// An operation of a reply with its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdOpOut {
    /// The operation as requested; some fields are updated. Its payload length is set when the
    /// message is encoded.
    pub op: OsdOp,
    /// 0 or positive, or a negative errno.
    pub result: i32,
    /// Its output.
    pub data: BytesList,
}

impl From<OsdOp> for OsdOpOut {
    fn from(op: OsdOp) -> Self {
        Self {
            op,
            result: 0,
            data: BytesList::new(),
        }
    }
}

const _: () = assert!(2 + 4 + OsdOp::ARGS + 4 == OsdOp::SIZE);
