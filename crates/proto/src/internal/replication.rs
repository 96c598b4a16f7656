//! Replication of writes: primary to the other acting OSDs and back.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Error, Reader, Result, Writer};
use spirula_maps::{EVersion, ReqId, SpgId};

use super::{CheckedData, Part, protocol};
use crate::macros::packed;
use crate::{Body, RawMessage};

protocol! {
    /// The replication protocol. Messages of one PG are sent and applied in order of their versions.
    ///
    /// - Version 1: first.
    pub enum Replication: REPLICATION, version 1, compat 1, priority HIGH {
        /// Apply a write.
        Op(RepOp) = 1,
        /// It is durable, or it failed.
        Reply(RepOpReply) = 2,
    }
}

/// A write for a replica: log entries and a transaction with its payloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepOp {
    /// The primary's number of the write, returned in the reply; in the header.
    pub tid: u64,
    /// The PG and the shard that the receiver holds.
    pub spg: SpgId,
    /// The primary's osdmap epoch.
    pub epoch: u32,
    /// The epoch in which the PG's interval began: a receiver in a later interval drops the message.
    pub interval: u32,
    /// The client's request.
    pub reqid: ReqId,
    /// The write's place in the log.
    pub version: EVersion,
    /// The log may be trimmed up to here.
    pub trim_to: EVersion,
    /// Every acting member has made durable what lies up to here: it is never rolled back.
    pub committed_to: EVersion,
    /// Encoded log entries, opaque here.
    pub log_entries: Bytes,
    /// The encoded transaction, opaque here; its writes name payloads by index.
    pub transaction: Bytes,
    /// What the transaction writes, in the data segment.
    pub payloads: Vec<CheckedData>,
}

impl Part for RepOp {
    fn encode_part(&self, out: &mut Body) {
        out.tid = self.tid;
        let sums: usize = self.payloads.iter().map(|p| 8 + p.sums.crc32c.len() * 4).sum();
        let front = std::mem::take(&mut out.front);
        let mut w = Writer::with_capacity(160 + self.log_entries.len() + self.transaction.len() + sums);
        w.bytes(front.as_slice());
        w.put(&self.spg);
        w.u32(self.epoch);
        w.u32(self.interval);
        w.put(&self.reqid);
        w.put(&self.version);
        w.put(&self.trim_to);
        w.put(&self.committed_to);
        w.put(&self.log_entries);
        w.put(&self.transaction);
        w.count(self.payloads.len());
        for p in &self.payloads {
            p.encode(&mut w);
            out.data.push(p.data.clone());
        }
        out.front = w;
    }

    fn decode_part(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        let mut op = Self {
            tid: msg.header.tid,
            spg: r.get()?,
            epoch: r.u32()?,
            interval: r.u32()?,
            reqid: r.get()?,
            version: r.get()?,
            trim_to: r.get()?,
            committed_to: r.get()?,
            log_entries: msg.front.slice_ref(r.blob()?),
            transaction: msg.front.slice_ref(r.blob()?),
            payloads: Vec::new(),
        };
        let n = r.count(8)?;
        op.payloads.reserve_exact(n);
        let mut at = 0;
        for _ in 0..n {
            op.payloads.push(CheckedData::decode(r, &msg.data, &mut at)?);
        }
        if at == msg.data.len() {
            Ok(op)
        } else {
            Err(Error::LeftOver(msg.data.len() - at))
        }
    }
}

packed! {
    /// The fields of a reply; the transaction id is in the header.
    pub struct RepOpOutcome {
        /// The PG and the shard that the sender holds.
        pub spg: SpgId,
        /// The sender's osdmap epoch.
        pub epoch: u32,
        /// The interval of the write that is answered.
        pub interval: u32,
        /// The write's place in the log.
        pub version: EVersion,
        /// Everything up to here is durable on the sender.
        pub last_complete: EVersion,
        /// 0, or a negative errno: the sender did not apply it.
        pub result: i32,
    }
}

/// A replica's answer, sent once the write is durable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepOpReply {
    /// The write's number; in the header.
    pub tid: u64,
    /// What became of it.
    pub outcome: RepOpOutcome,
}

impl Part for RepOpReply {
    fn encode_part(&self, out: &mut Body) {
        out.tid = self.tid;
        self.outcome.encode(&mut out.front);
    }

    fn decode_part(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        Ok(Self {
            tid: msg.header.tid,
            outcome: RepOpOutcome::decode(r)?,
        })
    }
}
