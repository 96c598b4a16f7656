//! Pool operations and statistics.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Fsid, Reader, Result};
use spirula_maps::{Epoch, PoolId};

use crate::macros::{message, packed, wire_enum};
use crate::mon::PaxosVersion;
use crate::{Blob, Body, MsgType, Payload, RawMessage, Section};

message! {
    /// Asks for the usage of the cluster, or of one pool.
    pub struct MStatfs: STATFS, version 2, compat 1 {
        /// The newest statistics the client has seen.
        pub paxos: PaxosVersion,
        /// The cluster.
        pub fsid: Fsid,
        /// One pool only.
        pub data_pool: Option<PoolId>, since 2,
    }
}

packed! {
    /// `ceph_statfs`.
    pub struct Statfs {
        /// Total size in KiB.
        pub kb: u64,
        /// Used, in KiB.
        pub kb_used: u64,
        /// Available, in KiB.
        pub kb_avail: u64,
        /// Objects.
        pub num_objects: u64,
    }
}

message! {
    /// The answer to [`MStatfs`].
    pub struct MStatfsReply: STATFS_REPLY, version 1, compat 1 {
        /// The cluster.
        pub fsid: Fsid,
        /// Version of the statistics.
        pub version: u64,
        /// The figures.
        pub st: Statfs,
    }
}

message! {
    /// Asks for the statistics of pools.
    pub struct MGetPoolStats: GET_POOL_STATS, version 1, compat 1 {
        /// The newest statistics the client has seen.
        pub paxos: PaxosVersion,
        /// The cluster.
        pub fsid: Fsid,
        /// The pools' names.
        pub pools: Vec<String>,
    }
}

message! {
    /// The answer to [`MGetPoolStats`].
    pub struct MGetPoolStatsReply: GET_POOL_STATS_REPLY, version 2, compat 1 {
        /// Version of the statistics.
        pub paxos: PaxosVersion,
        /// The cluster.
        pub fsid: Fsid,
        /// Encoded `pool_stat_t` by pool name.
        pub pools: BTreeMap<String, Section>,
        /// Whether stored bytes are counted by pool, not estimated.
        pub per_pool: bool, since 2,
    }
}

wire_enum! {
    /// The operation on a pool (`POOL_OP_*`).
    pub struct PoolOpCode(u32) {
        /// Create the pool of the message's name.
        CREATE = 0x01, "create";
        /// Delete the pool.
        DELETE = 0x02, "delete";
        /// Obsolete.
        AUID_CHANGE = 0x03, "auid change";
        /// Take a pool snapshot.
        CREATE_SNAP = 0x11, "create snap";
        /// Remove a pool snapshot.
        DELETE_SNAP = 0x12, "delete snap";
        /// Allocate the id of a self-managed snapshot; it is in the reply's data.
        CREATE_UNMANAGED_SNAP = 0x21, "create unmanaged snap";
        /// Remove a self-managed snapshot.
        DELETE_UNMANAGED_SNAP = 0x22, "delete unmanaged snap";
    }
}

/// An operation on a pool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MPoolOp {
    /// The newest osdmap the client has seen.
    pub paxos: PaxosVersion,
    /// The cluster.
    pub fsid: Fsid,
    /// The pool's id; 0 for a new one.
    pub pool: PoolId,
    /// The operation.
    pub op: PoolOpCode,
    /// The snapshot to remove.
    pub snapid: u64,
    /// Name of the new pool or snapshot.
    pub name: String,
    /// CRUSH rule of a new pool; -1 for the default.
    pub crush_rule: i16,
}

impl Payload for MPoolOp {
    const TYPE: MsgType = MsgType::POOL_OP;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 2;

    fn encode(&self, out: &mut Body) {
        let w = &mut out.front;
        w.put(&self.paxos);
        w.put(&self.fsid);
        // Ids that are in use have 31 bits.
        w.u32(u32::try_from(self.pool.unsigned()).unwrap_or(u32::MAX));
        w.put(&self.op);
        // Once the owner's id.
        w.u64(0);
        w.u64(self.snapid);
        w.string(&self.name);
        // Version 3 had the rule in one byte.
        w.u8(0);
        w.i16(self.crush_rule);
    }

    fn decode(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        let (paxos, fsid, pool, op) = (r.get()?, r.get()?, PoolId::new(r.u32()?), r.get()?);
        r.skip(8)?;
        let (snapid, name) = (r.u64()?, r.string()?);
        let crush_rule = match msg.header.version {
            0..=2 => -1,
            3 => i16::from(r.u8()?),
            _ => {
                r.skip(1)?;
                r.i16()?
            }
        };
        Ok(Self {
            paxos,
            fsid,
            pool,
            op,
            snapid,
            name,
            crush_rule,
        })
    }
}

/// The outcome of a pool operation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MPoolOpReply {
    /// The osdmap that has the change; the client waits for it.
    pub paxos: PaxosVersion,
    /// The cluster.
    pub fsid: Fsid,
    /// 0 or a negative errno.
    pub result: i32,
    /// The osdmap epoch that has the change.
    pub epoch: Epoch,
    /// The operation's output, empty for most: the id of a new self-managed snapshot as `u64`.
    pub data: Bytes,
}

impl Payload for MPoolOpReply {
    const TYPE: MsgType = MsgType::POOL_OP_REPLY;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, out: &mut Body) {
        let w = &mut out.front;
        w.put(&self.paxos);
        w.put(&self.fsid);
        w.i32(self.result);
        w.put(&self.epoch);
        w.put(
            &Some(&self.data)
                .filter(|d| !d.is_empty())
                .map(|d| Blob(d.clone())),
        );
    }

    fn decode(r: &mut Reader<'_>, _: &RawMessage) -> Result<Self> {
        Ok(Self {
            paxos: r.get()?,
            fsid: r.get()?,
            result: r.i32()?,
            epoch: r.get()?,
            data: r.get::<Option<Bytes>>()?.unwrap_or_default(),
        })
    }
}
