//! Snapshots of pools: giving out ids, removing, and noting which are trimmed everywhere.
//!
//! A removed snapshot is in the map's queue (`removed_snaps_queue`) until all PGs of the pool
//! report that they have trimmed it; then it leaves the queue and is noted as purged in the store
//! ([`PurgedSnaps`]).

use std::collections::BTreeMap;
use std::rc::Rc;

use spirula_invariant::invariant;
use spirula_maps::{IntervalSet, OsdMap, PgPool, PoolId, SnapId};
use spirula_proto::internal::report::{OsdReportReply, PurgedSnaps as Purged, PurgedSnapsWanted};
use spirula_proto::mon::{MPoolOp, PoolOpCode};

use super::{Effect, LoadError, Monitor, SessionId, Turn, View};
use crate::command::errno::{self, Errno};
use crate::kv::{KvRead, Txn};
use crate::service::PurgedSnaps;

impl View {
    fn snap_named(&self, pool: PoolId, name: &str) -> Option<SnapId> {
        self.state.osd.map.pool(pool)?.snap_named(name)
    }
}

impl Turn<'_> {
    /// Changes a pool's snapshots in the next map.
    fn change_snaps<T>(&mut self, id: PoolId, change: impl FnOnce(&mut PgPool) -> T) -> Option<T> {
        let mut pool = self.view.state.osd.map.pool(id)?.clone();
        let inc = self.pending_osd();
        pool.snap_epoch = inc.epoch;
        let result = change(&mut pool);
        inc.new_pools.insert(id, pool);
        Some(result)
    }

    /// Prepares a snapshot of a pool; returns whether it is new.
    pub(crate) fn add_pool_snap(&mut self, pool: PoolId, name: &str) -> bool {
        let now = self.view.now;
        self.view.snap_named(pool, name).is_none()
            && self.change_snaps(pool, |p| p.add_snap(name, now)).is_some()
    }

    /// Prepares the removal of a pool's snapshot; returns whether it existed.
    pub(crate) fn remove_pool_snap(&mut self, pool: PoolId, name: &str) -> bool {
        let Some(snap) = self.view.snap_named(pool, name) else {
            return false;
        };
        self.change_snaps(pool, |p| p.remove_snap(snap));
        self.pending_osd()
            .new_removed_snaps
            .entry(pool)
            .or_default()
            .insert(snap);
        true
    }

    /// Prepares a snapshot operation of librados. Returns the new snapshot's id, if there is one;
    /// `None` if there is nothing to commit; or the result code.
    pub(super) fn prepare_snap_op(&mut self, m: &MPoolOp) -> Result<Option<Option<SnapId>>, Errno> {
        let id = m.pool;
        let Some(pool) = self.view.state.osd.map.pool(id) else {
            return Err(errno::ENOENT);
        };
        let of_pool = matches!(m.op, PoolOpCode::CREATE_SNAP | PoolOpCode::DELETE_SNAP);
        if (of_pool && pool.has_selfmanaged_snaps()) || (!of_pool && pool.has_pool_snaps()) {
            return Err(errno::EINVAL);
        }
        match m.op {
            PoolOpCode::CREATE_SNAP => Ok(self.add_pool_snap(id, &m.name).then_some(None)),
            PoolOpCode::DELETE_SNAP => Ok(self.remove_pool_snap(id, &m.name).then_some(None)),
            PoolOpCode::CREATE_UNMANAGED_SNAP => {
                Ok(Some(self.change_snaps(id, PgPool::add_selfmanaged_snap)))
            }
            PoolOpCode::DELETE_UNMANAGED_SNAP => self.remove_selfmanaged_snap(id, m.snapid),
            _ => Err(errno::EOPNOTSUPP),
        }
    }

    fn remove_selfmanaged_snap(&mut self, id: PoolId, snap: SnapId) -> Result<Option<Option<SnapId>>, Errno> {
        let map = self.view.state.osd.map.clone();
        let queued = map.removed_snaps_queue.get(&id).is_some_and(|q| q.contains(snap));
        let purged = PurgedSnaps::new(self.view.kv.as_ref(), id).contains(snap);
        let purged = purged.map_err(|e| self.snaps_unreadable(e))?;
        if queued || purged {
            return Ok(None);
        }
        let Some(pool) = map.pool(id).filter(|p| p.has_selfmanaged_snaps()) else {
            return Err(errno::EOPNOTSUPP);
        };
        if snap > pool.snap_seq {
            return Err(errno::ENOENT);
        }
        let Some(used) = self.change_snaps(id, PgPool::remove_selfmanaged_snap) else {
            return Err(errno::ENOENT);
        };
        let removed = self.pending_osd().new_removed_snaps.entry(id).or_default();
        removed.insert(snap);
        // The id that the removal used up was never a snapshot: with it, purged ids stay one range.
        self.note_purged(id, &[used].into_iter().collect())
            .map_err(|e| self.snaps_unreadable(e))?;
        Ok(Some(None))
    }

    fn note_purged(&mut self, pool: PoolId, snaps: &IntervalSet) -> Result<(), LoadError> {
        let mut txn = Txn::default();
        PurgedSnaps::new(self.view.kv.as_ref(), pool).add(snaps, &mut txn)?;
        self.changes.txn.extend(txn);
        Ok(())
    }

    /// Ends the daemon because its store is damaged; until then nobody gets a wrong answer.
    fn snaps_unreadable(&mut self, e: LoadError) -> Errno {
        tracing::error!("purged snapshots: {e}");
        self.effect(Effect::Fail(e));
        errno::EIO
    }

    /// Removes from the queues the snapshots that all PGs have trimmed, and those of pools that are
    /// gone.
    pub(super) fn prune_removed_snaps(&mut self, map: &Rc<OsdMap>) {
        let mut left = self.view.values.uint("mon_max_snap_prune_per_epoch");
        for (id, queue) in &map.removed_snaps_queue {
            if !map.pools.contains_key(id) {
                self.pending_osd().new_purged_snaps.insert(*id, queue.clone());
                continue;
            }
            let trimmed = self.view.state.stats.purged_snaps(*id);
            let purged = trimmed.intersection(queue).first(left);
            if purged.is_empty() {
                continue;
            }
            let count = purged.count();
            invariant!(count <= left, "no more snapshots than a map may have"; pool = id, count = count, left = left);
            left -= count;
            if let Err(e) = self.note_purged(*id, &purged) {
                self.snaps_unreadable(e);
                return; // The daemon ends.
            }
            self.pending_osd().new_purged_snaps.insert(*id, purged);
        }
    }
}

impl Monitor {
    /// Tells an OSD all purged snapshots.
    pub(super) fn send_purged_snaps(&mut self, id: SessionId, wanted: PurgedSnapsWanted) {
        if wanted.epoch > self.view.state.osd.map.epoch {
            return; // It knows a newer map, and asks again.
        }
        match purged_snaps(self.view.kv.as_ref(), &self.view.state.osd.map) {
            Ok(purged) => {
                let msg = self.view.to_osd(id, &OsdReportReply::PurgedSnaps(purged));
                self.send(id, msg);
            }
            Err(e) => drop(self.turn(|turn| turn.snaps_unreadable(e))),
        }
    }
}

/// The purged snapshots of the map's pools.
fn purged_snaps(kv: &dyn KvRead, map: &OsdMap) -> Result<Purged, LoadError> {
    let mut pools = BTreeMap::new();
    for &id in map.pools.keys() {
        let all = PurgedSnaps::new(kv, id).all()?;
        if !all.is_empty() {
            pools.insert(id, all);
        }
    }
    Ok(Purged {
        epoch: map.epoch,
        pools,
    })
}
