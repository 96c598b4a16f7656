//! Pool operations of librados.

use std::collections::BTreeMap;

use spirula_maps::PoolStat;
use spirula_proto::mon::{
    MGetPoolStats, MGetPoolStatsReply, MPoolOp, MPoolOpReply, PaxosVersion, PoolOpCode,
};
use spirula_proto::{Payload, RawMessage};

use super::{Monitor, SessionId, Waiter};
use crate::command::{NewPool, create_pool, delete_pool, errno};

impl Monitor {
    fn pool_op_reply(&self, tid: u64, result: i32) -> RawMessage {
        let epoch = self.osd.map.epoch;
        let reply = MPoolOpReply {
            paxos: PaxosVersion(u64::from(epoch)),
            fsid: self.me.fsid,
            result,
            epoch,
            data: bytes::Bytes::new(),
        };
        reply.to_message().with_tid(tid)
    }

    /// A pool operation whose turn it is.
    pub(super) fn pool_op(&mut self, id: SessionId, tid: u64, m: &MPoolOp) {
        match self.prepare_pool_op(id, m) {
            Ok(true) => {
                let make = Box::new(move |mon: &Monitor| mon.pool_op_reply(tid, 0));
                self.writes.waiters.push(Waiter { session: id, make });
            }
            Ok(false) => {
                let reply = self.pool_op_reply(tid, 0);
                self.send(id, reply);
            }
            Err(result) => {
                let reply = self.pool_op_reply(tid, result);
                self.send(id, reply);
            }
        }
    }

    /// Whether something is to be committed; the error is the result code.
    fn prepare_pool_op(&mut self, id: SessionId, m: &MPoolOp) -> Result<bool, i32> {
        if m.fsid != self.me.fsid {
            return Err(errno::EINVAL);
        }
        let pool = i64::from(m.pool);
        let name = self.osd.map.pool_name(pool).unwrap_or_default().to_owned();
        let (command, args) = match m.op {
            PoolOpCode::CREATE => ("osd pool create", vec![("pool".to_owned(), m.name.clone())]),
            PoolOpCode::DELETE => ("osd pool delete", vec![("poolname".to_owned(), name)]),
            _ => ("osd pool op unmanaged-snap", vec![("poolname".to_owned(), name)]),
        };
        let allowed = self
            .sessions
            .get(&id)
            .is_some_and(|s| s.caps.is_allowed("osd", command, &args, "w"));
        if !allowed {
            return Err(errno::EPERM);
        }
        match m.op {
            PoolOpCode::CREATE => {
                if self.osd.map.pool_id(&m.name).is_some() {
                    return Err(errno::EEXIST);
                }
                let rule = u32::try_from(m.crush_rule).ok();
                let new = NewPool {
                    name: m.name.clone(),
                    rule,
                    ..NewPool::default()
                };
                create_pool(self, new).map(|_| true).map_err(|r| r.code)
            }
            PoolOpCode::DELETE if self.osd.map.pool(pool).is_none() => Ok(false),
            PoolOpCode::DELETE => delete_pool(self, pool).map(|()| true).map_err(|r| r.code),
            _ => Err(errno::EOPNOTSUPP),
        }
    }

    /// Statistics of pools by name.
    pub(super) fn pool_stats(&mut self, id: SessionId, tid: u64, m: &MGetPoolStats) {
        let mut pools = BTreeMap::new();
        for name in &m.pools {
            let Some(pool) = self.osd.map.pool_id(name) else {
                continue;
            };
            let t = self.stats.pool(pool);
            let mut stat = PoolStat::default();
            stat.stats.sum = t.sum;
            stat.log_size = t.log_size;
            stat.ondisk_log_size = t.ondisk_log_size;
            stat.up = i32::try_from(t.up).unwrap_or(i32::MAX);
            stat.acting = i32::try_from(t.acting).unwrap_or(i32::MAX);
            stat.store_stats = t.store;
            stat.num_store_stats = i32::try_from(t.stores).unwrap_or(i32::MAX);
            pools.insert(name.clone(), spirula_proto::Section::of(&stat));
        }
        let reply = MGetPoolStatsReply {
            paxos: PaxosVersion(self.stats.version()),
            fsid: self.me.fsid,
            pools,
            per_pool: true,
        };
        self.send(id, reply.to_message().with_tid(tid));
    }
}
