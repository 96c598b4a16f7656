//! `MOSDOp` of `src/messages/MOSDOp.h`: a client's request.

use spirula_denc::{EntityName, Reader, Result, UTime, Writer};
use spirula_maps::{Epoch, HObject, ObjectLocator, ObjectName, ReqId, SnapContext, SnapId, SpgId};

use super::{OsdFlags, OsdOp, OsdOpIn};
use crate::macros::packed;
use crate::{Body, MsgType, Payload, RawMessage};

packed! {
    /// Blkin tracing ids, zero where the request isn't traced. Passed back in the reply.
    pub struct Trace {
        /// The trace.
        pub trace_id: u64,
        /// The span.
        pub span_id: u64,
        /// The span above.
        pub parent_span_id: u64,
    }
}

/// A client's request: several operations on one object, executed all or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOsdOp {
    /// Transaction id, from the header.
    pub tid: u64,
    /// The PG that the client computed; from version 7 senders (before Luminous) the raw one.
    pub spg: SpgId,
    /// The object's hash in full.
    pub hash: u32,
    /// The client's osdmap epoch.
    pub epoch: Epoch,
    /// The request's flags.
    pub flags: OsdFlags,
    /// The id of another client's request in Ceph's cache tiers; of a client's own only the
    /// incarnation counts, see [`MOsdOp::reqid`].
    pub explicit_reqid: ReqId,
    /// Tracing.
    pub trace: Trace,
    /// The client's incarnation.
    pub client_inc: u32,
    /// The client's time, which becomes the object's.
    pub mtime: UTime,
    /// Pool, namespace, locator key.
    pub locator: ObjectLocator,
    /// The object's name; empty for PG operations.
    pub oid: ObjectName,
    /// The operations, in order.
    pub ops: Vec<OsdOpIn>,
    /// The snapshot to read; `NOSNAP` for the head.
    pub snapid: SnapId,
    /// The snapshots that a write must preserve.
    pub snapc: SnapContext,
    /// How often it was sent before; -1 if the client doesn't know.
    pub retry_attempt: i32,
    /// The client's features.
    pub features: u64,
}

impl MOsdOp {
    /// The request's id; `source` is the authenticated peer. It stays the same when the request is
    /// resent. A foreign id in the message is not trusted: a client could make that other request
    /// look as if it were done. Ceph's OSDs use foreign ids when they pass requests on for a cache
    /// tier, which does not exist here.
    pub fn reqid(&self, source: EntityName) -> ReqId {
        ReqId {
            name: source,
            tid: self.tid,
            inc: self.explicit_reqid.inc,
        }
    }

    /// The object concerned, in its place in the PG's order.
    pub fn object(&self) -> HObject {
        let l = &self.locator;
        let pool = self.spg.pgid.pool.signed();
        HObject::new(
            pool,
            l.nspace.clone(),
            l.key.clone(),
            self.oid.clone(),
            self.snapid,
            self.hash,
        )
    }

    /// Whether any operation changes something.
    pub fn may_write(&self) -> bool {
        self.flags.intersects(OsdFlags::WRITE) || self.ops.iter().any(|o| o.op.code.is_modify())
    }
}

/// A name without a copy: it shares the front segment.
pub(super) fn name(r: &mut Reader<'_>, msg: &RawMessage) -> Result<ObjectName> {
    Ok(ObjectName(msg.front.slice_ref(r.blob()?)))
}

impl Payload for MOsdOp {
    const TYPE: MsgType = MsgType::OSD_OP;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 3;
    const OLDEST: u16 = 7;

    fn encode(&self, out: &mut Body) {
        out.tid = self.tid;
        let names = self.oid.len() + self.locator.key.len() + self.locator.nspace.len();
        let mut w =
            Writer::with_capacity(256 + names + self.ops.len() * OsdOp::SIZE + self.snapc.snaps.len() * 8);
        w.put(&self.spg);
        w.u32(self.hash);
        w.put(&self.epoch);
        w.u32(self.flags.0);
        w.put(&self.explicit_reqid);
        w.put(&self.trace);
        w.u32(self.client_inc);
        w.put(&self.mtime);
        w.put(&self.locator);
        w.put(&self.oid);
        w.u16(u16::try_from(self.ops.len()).unwrap_or(u16::MAX));
        for OsdOpIn { op, data } in self.ops.iter().take(usize::from(u16::MAX)) {
            let payload_len = u32::try_from(data.len()).unwrap_or(u32::MAX);
            w.put(&OsdOp { payload_len, ..*op });
            out.data.extend(data);
        }
        w.u64(self.snapid);
        w.put(&self.snapc);
        w.i32(self.retry_attempt);
        w.u64(self.features);
        out.front = w;
    }

    fn decode(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        let version = msg.header.version;
        let (spg, hash) = if version >= 8 {
            (r.get()?, r.u32()?)
        } else {
            let spg = SpgId::whole(r.get()?);
            (spg, spg.pgid.seed)
        };
        let (epoch, flags) = (r.get()?, OsdFlags(r.u32()?));
        if version < 8 {
            // The version that a replayed write had: replay is gone.
            r.skip(12)?;
        }
        let explicit_reqid = r.get()?;
        let trace = if version >= 8 { r.get()? } else { Trace::default() };
        if version >= 9 {
            // OpenTelemetry's context, a section of its own.
            r.section("jspan_context", u8::MAX, |_, _| Ok(()))?;
        }
        let (client_inc, mtime) = (r.u32()?, r.get()?);
        let locator: ObjectLocator = r.get()?;
        let oid = name(r, msg)?;
        let n = usize::from(r.u16()?);
        let ops = OsdOp::decode_many(n, r, &msg.data, |op, data| OsdOpIn {
            op,
            data: data.into(),
        })?;
        Ok(Self {
            tid: msg.header.tid,
            spg,
            hash,
            epoch,
            flags,
            explicit_reqid,
            trace,
            client_inc,
            mtime,
            locator,
            oid,
            ops,
            snapid: r.u64()?,
            snapc: r.get()?,
            retry_attempt: r.i32()?,
            features: r.u64()?,
        })
    }
}
