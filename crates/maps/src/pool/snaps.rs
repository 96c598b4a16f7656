//! A pool's snapshots: of the pool itself, or those that clients manage. A pool has one kind only.

use spirula_denc::UTime;

use super::{PgPool, PoolFlags, PoolSnap};
use crate::types::{SnapContext, SnapId};

impl PgPool {
    /// Whether the pool has, or had, snapshots of itself.
    pub fn has_pool_snaps(&self) -> bool {
        self.flags.contains(PoolFlags::POOL_SNAPS)
    }

    /// Whether clients manage the pool's snapshots, or did.
    pub fn has_selfmanaged_snaps(&self) -> bool {
        self.flags.contains(PoolFlags::SELFMANAGED_SNAPS)
    }

    /// The id of the pool's snapshot of this name.
    pub fn snap_named(&self, name: &str) -> Option<SnapId> {
        self.snaps.values().find(|s| s.name == name).map(|s| s.snapid)
    }

    /// Takes a snapshot of the pool.
    pub fn add_snap(&mut self, name: &str, stamp: UTime) {
        self.flags.insert(PoolFlags::POOL_SNAPS);
        self.snap_seq += 1;
        let snap = PoolSnap {
            snapid: self.snap_seq,
            stamp,
            name: name.to_owned(),
        };
        self.snaps.insert(self.snap_seq, snap);
    }

    /// Removes a snapshot of the pool. The newest id goes up, so that writers notice.
    pub fn remove_snap(&mut self, id: SnapId) {
        self.snaps.remove(&id);
        self.snap_seq += 1;
    }

    /// Gives out the id of a snapshot that a client manages. The first is 2, as in Ceph.
    pub fn add_selfmanaged_snap(&mut self) -> SnapId {
        self.flags.insert(PoolFlags::SELFMANAGED_SNAPS);
        self.snap_seq = self.snap_seq.max(1) + 1;
        self.snap_seq
    }

    /// A snapshot that a client managed is no more. Uses up an id, which it returns.
    pub fn remove_selfmanaged_snap(&mut self) -> SnapId {
        self.snap_seq += 1;
        self.snap_seq
    }

    /// The snapshot context of writes to a pool with snapshots of itself.
    pub fn snap_context(&self) -> SnapContext {
        SnapContext {
            seq: self.snap_seq,
            snaps: self.snaps.keys().rev().copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_only_go_up() {
        let mut p = PgPool::default();
        p.add_snap("a", UTime::ZERO);
        p.add_snap("b", UTime::ZERO);
        assert_eq!((p.snap_named("a"), p.snap_named("b")), (Some(1), Some(2)));
        p.remove_snap(1);
        assert_eq!((p.snap_named("a"), p.snap_seq), (None, 3));
        p.add_snap("a", UTime::ZERO);
        assert_eq!((p.snap_context().seq, p.snap_context().snaps), (4, vec![4, 2]));
        assert!(p.has_pool_snaps() && !p.has_selfmanaged_snaps());

        let mut p = PgPool::default();
        assert_eq!((p.add_selfmanaged_snap(), p.add_selfmanaged_snap()), (2, 3));
        assert_eq!((p.remove_selfmanaged_snap(), p.add_selfmanaged_snap()), (4, 5));
        assert!(p.has_selfmanaged_snaps() && !p.has_pool_snaps());
    }
}
