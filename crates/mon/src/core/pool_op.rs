//! Pool operations of librados.

use std::collections::BTreeMap;

use spirula_cephx::KeyServer;
use spirula_cephx::caps::OsdCap;
use spirula_maps::PoolStat;
use spirula_proto::mon::{
    MGetPoolStats, MGetPoolStatsReply, MPoolOp, MPoolOpReply, PaxosVersion, PoolOpCode,
};
use spirula_proto::{Payload, RawMessage};

use super::{Fate, Monitor, SessionId, Turn, View, Waiter};
use crate::command::errno::{self, Errno};
use crate::command::{NewPool, Reply, create_pool, delete_pool};

/// The outcome of a pool operation.
enum Prepared {
    /// There is something to commit; with the reply's data.
    Commit(bytes::Bytes),
    /// Nothing to do.
    Nothing,
}

impl View {
    fn pool_op_reply(&self, tid: u64, result: i32, data: bytes::Bytes) -> RawMessage {
        let epoch = self.state.osd.map.epoch;
        let reply = MPoolOpReply {
            paxos: PaxosVersion(u64::from(epoch)),
            fsid: self.me.fsid,
            result,
            epoch,
            data,
        };
        reply.to_message().with_tid(tid)
    }

    /// Whether a pool operation is allowed. Self-managed snapshots are also allowed to a client
    /// that may write in the pool, by its capabilities at the OSDs.
    fn pool_op_allowed(&self, id: SessionId, m: &MPoolOp) -> bool {
        let Some(s) = self.sessions.get(&id) else {
            return false;
        };
        if !matches!(
            m.op,
            PoolOpCode::CREATE_UNMANAGED_SNAP | PoolOpCode::DELETE_UNMANAGED_SNAP
        ) {
            return s.caps.is_allowed_service("osd", "w");
        }
        let pool = self.state.osd.map.pool_name(m.pool);
        let args: Vec<_> = pool
            .map(|p| ("poolname".to_owned(), p.to_owned()))
            .into_iter()
            .collect();
        let osd_caps = || {
            let entity = self.state.auth.lookup(&s.name)?;
            OsdCap::parse(entity.caps.get("osd")?).ok()
        };
        s.caps.is_allowed("osd", "osd pool op unmanaged-snap", &args, "w")
            || osd_caps().is_some_and(|c| c.may_write_in(pool))
    }

    /// Statistics of pools by name.
    pub(super) fn pool_stats(&self, m: &MGetPoolStats) -> RawMessage {
        let mut pools = BTreeMap::new();
        for name in &m.pools {
            let Some(pool) = self.state.osd.map.pool_id(name) else {
                continue;
            };
            let t = self.state.stats.pool(pool);
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
            paxos: PaxosVersion(self.state.stats.version()),
            fsid: self.me.fsid,
            pools,
            per_pool: true,
        };
        reply.to_message()
    }
}

/// The errno of a command that was refused.
fn refusal(reply: Reply) -> Errno {
    Errno::of_result(reply.code).unwrap_or(errno::EIO)
}

impl Turn<'_> {
    /// Prepares a pool operation; the error is the result code.
    fn prepare_pool_op(&mut self, id: SessionId, m: &MPoolOp) -> Result<Prepared, Errno> {
        if !self.view.pool_op_allowed(id, m) {
            return Err(errno::EPERM);
        }
        if m.fsid != self.view.me.fsid {
            return Err(errno::EINVAL);
        }
        let pool = m.pool;
        let done = Prepared::Commit(bytes::Bytes::new());
        match m.op {
            PoolOpCode::CREATE => {
                if self.view.state.osd.map.pool_id(&m.name).is_some() {
                    return Err(errno::EEXIST);
                }
                let rule = u32::try_from(m.crush_rule).ok();
                let new = NewPool {
                    name: m.name.clone(),
                    rule,
                    ..NewPool::default()
                };
                create_pool(self, new).map(|_| done).map_err(refusal)
            }
            PoolOpCode::DELETE if self.view.state.osd.map.pool(pool).is_none() => Ok(Prepared::Nothing),
            PoolOpCode::DELETE => delete_pool(self, pool).map(|()| done).map_err(refusal),
            _ => Ok(match self.prepare_snap_op(m)? {
                Some(Some(snap)) => Prepared::Commit(snap.to_le_bytes().to_vec().into()),
                Some(None) => done,
                None => Prepared::Nothing,
            }),
        }
    }
}

impl Monitor {
    /// Handles a pool operation that has its turn.
    pub(super) fn pool_op(&mut self, id: SessionId, tid: u64, m: &MPoolOp) {
        let result = match self.attempt(|turn| turn.prepare_pool_op(id, m)) {
            Ok(Prepared::Commit(data)) => {
                let make =
                    Box::new(move |view: &View, fate: Fate| view.pool_op_reply(tid, fate.code(), data));
                return self.writes.waiters.push(Waiter { session: id, make });
            }
            Ok(Prepared::Nothing) => 0,
            Err(errno) => -errno,
        };
        let reply = self.view.pool_op_reply(tid, result, bytes::Bytes::new());
        self.send(id, reply);
    }
}
