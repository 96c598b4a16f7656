//! Snapshots: of whole pools, and self-managed ones.
//!
//! With snapshots of a pool, the OSDs preserve objects by themselves; a client with self-managed
//! snapshots names the existing ones with each write ([`IoCtx::with_snap_context`]). A pool has one
//! kind or the other.

use bytes::Bytes;
use spirula_denc::Reader;
use spirula_maps::{ObjectName, PgPool, PoolFlags, PoolSnap, SnapId, snap};
use spirula_proto::mon::PoolOpCode;
use spirula_proto::osd::{OpArgs, OpCode, OsdOpIn};
use spirula_proto::osd_op_data::ListSnapsResponse;

use crate::{Connection, Error, IoCtx, Result, errno};

impl<C: Connection> IoCtx<C> {
    /// The pool in the newest map.
    async fn pool_now(&self) -> Result<PgPool> {
        let pool = |io: IoCtx| async move {
            let map = io.rados().latest_map().await?;
            let pool = map.pool(io.pool_id()).cloned();
            pool.ok_or(Error::os("pool", errno::ENOENT))
        };
        self.run(0, pool).await
    }

    /// Runs an operation on the pool's snapshots; see [`Rados::pool_op`](crate::Rados::pool_op).
    async fn pool_op(&self, op: PoolOpCode, name: &str, id: SnapId) -> Result<Bytes> {
        let name = name.to_owned();
        let operate = move |io: IoCtx| async move { io.rados().pool_op(op, io.pool_id(), &name, id).await };
        self.run(0, operate).await
    }

    /// Whether clients manage the pool's snapshots.
    ///
    /// # Errors
    /// `ENOENT` where the pool is gone.
    pub async fn has_self_managed_snaps(&self) -> Result<bool> {
        Ok(self
            .pool_now()
            .await?
            .flags
            .contains(PoolFlags::SELFMANAGED_SNAPS))
    }

    /// The pool's snapshots by their ids.
    ///
    /// # Errors
    /// `ENOENT` where the pool is gone.
    pub async fn snaps(&self) -> Result<Vec<PoolSnap>> {
        Ok(self.pool_now().await?.snaps.into_values().collect())
    }

    /// The pool's snapshot of this name.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    pub async fn snap_by_name(&self, name: &str) -> Result<PoolSnap> {
        let mut snaps = self.snaps().await?.into_iter();
        snaps
            .find(|s| s.name == name)
            .ok_or(Error::os("look up snapshot", errno::ENOENT))
    }

    /// Takes a snapshot of the pool.
    ///
    /// # Errors
    /// `EEXIST` for a name that exists, `EINVAL` where clients manage the pool's snapshots.
    pub async fn snap_create(&self, name: &str) -> Result<()> {
        if self.snap_by_name(name).await.is_ok() {
            return Err(Error::os("create snapshot", errno::EEXIST));
        }
        self.pool_op(PoolOpCode::CREATE_SNAP, name, 0).await.map(drop)
    }

    /// Removes a snapshot of the pool.
    ///
    /// # Errors
    /// `ENOENT` where there is none of this name.
    pub async fn snap_remove(&self, name: &str) -> Result<()> {
        self.snap_by_name(name).await?;
        self.pool_op(PoolOpCode::DELETE_SNAP, name, 0).await.map(drop)
    }

    /// Allocates the id of a new self-managed snapshot.
    ///
    /// # Errors
    /// `EINVAL` where the pool has snapshots of its own.
    pub async fn self_managed_snap_create(&self) -> Result<SnapId> {
        let data = self.pool_op(PoolOpCode::CREATE_UNMANAGED_SNAP, "", 0).await?;
        Ok(Reader::new(&data).u64()?)
    }

    /// Removes a self-managed snapshot, and with it the data that only it preserved.
    ///
    /// # Errors
    /// The errno of the monitors.
    pub async fn self_managed_snap_remove(&self, id: SnapId) -> Result<()> {
        self.pool_op(PoolOpCode::DELETE_UNMANAGED_SNAP, "", id)
            .await
            .map(drop)
    }

    /// Rolls the object back to a snapshot.
    ///
    /// # Errors
    /// `ENOENT` where the object existed neither then nor now.
    pub async fn rollback(&self, oid: impl Into<ObjectName>, to: SnapId) -> Result<()> {
        let op = OsdOpIn::new(OpCode::ROLLBACK, OpArgs::Snap(to), Bytes::new());
        self.one("rollback", oid, op).await.map(drop)
    }

    /// The object's clones and its head, whatever snapshot this context reads.
    ///
    /// # Errors
    /// `ENOENT` where there is neither.
    pub async fn list_snaps(&self, oid: impl Into<ObjectName>) -> Result<ListSnapsResponse> {
        let op = OsdOpIn::new(OpCode::LIST_SNAPS, OpArgs::None, Bytes::new());
        let all = self.clone().with_snap_read(snap::SNAPDIR);
        let out = all.one("list_snaps", oid, op).await?;
        Ok(Reader::new(&out).get()?)
    }
}
