//! `MOSDOpReply` of `src/messages/MOSDOpReply.h`.

use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer};
use spirula_maps::{EVersion, Epoch, ObjectLocator, ObjectName, PgId};

use super::request::name;
use super::{MOsdOp, OsdFlags, OsdOp, OsdOpOut, Trace};
use crate::{Body, MsgType, Payload, RawMessage};

/// Sends the client to another object (`request_redirect_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Redirect {
    /// The place of the other object.
    pub locator: ObjectLocator,
    /// The other object's name; empty for the same.
    pub oid: ObjectName,
}

// By hand: it ends with a dead field.
impl Encode for Redirect {
    fn encode(&self, w: &mut Writer) {
        w.section(1, 1, |w| {
            w.put(&self.locator);
            w.put(&self.oid);
            // Once instructions for the OSD.
            w.u32(0);
        });
    }
}

impl Decode for Redirect {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.section("request_redirect_t", 1, |_, r| {
            let v = Self {
                locator: r.get()?,
                oid: r.get()?,
            };
            r.blob()?;
            Ok(v)
        })
    }
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MOsdOpReply {
    /// The request's transaction id, in the header.
    pub tid: u64,
    /// The object's name.
    pub oid: ObjectName,
    /// The PG.
    pub pgid: PgId,
    /// The request's flags, with [`OsdFlags::ONDISK`] where the change is durable.
    pub flags: OsdFlags,
    /// 0 or positive, or a negative errno.
    pub result: i32,
    /// The version that clients before Dumpling saw; see [`MOsdOpReply::set_versions`].
    pub bad_replay_version: EVersion,
    /// The OSD's osdmap epoch.
    pub epoch: Epoch,
    /// The operations with their outcomes.
    pub ops: Vec<OsdOpOut>,
    /// The request's attempt. The client ignores a reply to another one.
    pub retry_attempt: i32,
    /// The write's version in the PG's log.
    pub replay_version: EVersion,
    /// The object's user version.
    pub user_version: u64,
    /// The object to ask for instead.
    pub redirect: Option<Redirect>,
    /// The request's trace.
    pub trace: Trace,
}

impl MOsdOpReply {
    /// An answer to `request` without versions and output.
    pub fn to(request: &MOsdOp, result: i32, epoch: Epoch, ack: OsdFlags) -> Self {
        let acks = OsdFlags::ACK.with(OsdFlags::ONNVRAM).with(OsdFlags::ONDISK);
        Self {
            tid: request.tid,
            oid: request.oid.clone(),
            pgid: request.spg.pgid,
            flags: request.flags.without(acks).with(ack),
            result,
            epoch,
            ops: request.ops.iter().map(|o| o.op.into()).collect(),
            retry_attempt: request.retry_attempt,
            ..Self::default()
        }
    }

    /// Sets the versions of a write, or of a read with `version` zero. Old clients expect the user
    /// version in the place of the log's version.
    pub fn set_versions(&mut self, version: EVersion, user_version: u64) {
        self.replay_version = version;
        self.user_version = user_version;
        self.bad_replay_version = version;
        if user_version != 0 {
            self.bad_replay_version.version = user_version;
        }
    }

    /// Sets the versions of a failed request, which has no version in the log.
    pub fn set_enoent_versions(&mut self, version: EVersion, user_version: u64) {
        self.user_version = user_version;
        self.bad_replay_version = version;
    }
}

impl Payload for MOsdOpReply {
    const TYPE: MsgType = MsgType::OSD_OP_REPLY;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 2;
    const OLDEST: u16 = 7;

    fn encode(&self, out: &mut Body) {
        out.tid = self.tid;
        let mut w = Writer::with_capacity(160 + self.oid.len() + self.ops.len() * (OsdOp::SIZE + 4));
        w.put(&self.oid);
        w.put(&self.pgid);
        w.u64(u64::from(self.flags.0));
        w.i32(self.result);
        w.put(&self.bad_replay_version);
        w.put(&self.epoch);
        w.count(self.ops.len());
        for o in &self.ops {
            let payload_len = u32::try_from(o.data.len()).unwrap_or(u32::MAX);
            w.put(&OsdOp { payload_len, ..o.op });
            out.data.extend(&o.data);
        }
        w.i32(self.retry_attempt);
        for o in &self.ops {
            w.i32(o.result);
        }
        w.put(&self.replay_version);
        w.u64(self.user_version);
        w.put(&self.redirect);
        w.put(&self.trace);
        out.front = w;
    }

    fn decode(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        let oid = name(r, msg)?;
        let pgid = r.get()?;
        let flags = u32::try_from(r.u64()?).map_err(|_| Error::Invalid("OSD flags"))?;
        let (result, bad_replay_version, epoch) = (r.i32()?, r.get()?, r.get()?);
        let n = usize::try_from(r.u32()?).map_err(|_| Error::Invalid("count"))?;
        let mut ops = OsdOp::decode_many(n, r, &msg.data, |op, data| OsdOpOut {
            data: data.into(),
            ..op.into()
        })?;
        let retry_attempt = r.i32()?;
        for o in &mut ops {
            o.result = r.i32()?;
        }
        Ok(Self {
            tid: msg.header.tid,
            oid,
            pgid,
            flags: OsdFlags(flags),
            result,
            bad_replay_version,
            epoch,
            ops,
            retry_attempt,
            replay_version: r.get()?,
            user_version: r.u64()?,
            redirect: r.get()?,
            trace: if msg.header.version >= 8 {
                r.get()?
            } else {
                Trace::default()
            },
        })
    }
}
