//! A pool, and what can be done to its objects.

use std::time::Duration;

use bytes::Bytes;
use spirula_denc::UTime;
use spirula_maps::{ObjectLocator, ObjectName, SnapContext, SnapId, snap};
use spirula_proto::osd::{MOsdOp, MOsdOpReply, OpFlags, OsdFlags, OsdOpIn};

use crate::objecter::{Aim, Resend, request};
use crate::{Error, ObjectList, Rados, Result, errno};

/// A pool with a namespace, a locator key, a snapshot to read and the snapshots to write under. Cheap to clone.
#[derive(Clone)]
pub struct IoCtx {
    rados: Rados,
    locator: ObjectLocator,
    flags: OsdFlags,
    mtime: Option<UTime>,
    snap: SnapId,
    snap_context: SnapContext,
    timeout: Duration,
}

/// The answer to a request of one or several operations.
#[derive(Debug)]
pub struct OpReply {
    /// Result and output of each operation.
    pub outs: Vec<(i32, Bytes)>,
    /// The object's version after it, as `rados_get_last_version` gives it.
    pub version: u64,
}

impl IoCtx {
    pub(crate) fn new(rados: Rados, pool: i64) -> Self {
        let timeout = rados.inner.options.op_timeout;
        Self {
            rados,
            locator: ObjectLocator::pool(pool),
            flags: OsdFlags::NONE,
            mtime: None,
            snap: snap::NOSNAP,
            snap_context: SnapContext::default(),
            timeout,
        }
    }

    /// The same pool with another namespace.
    #[must_use]
    pub fn with_namespace(mut self, nspace: impl Into<ObjectName>) -> Self {
        self.locator.nspace = nspace.into();
        self
    }

    /// The same pool with a locator key, which is hashed instead of the names.
    #[must_use]
    pub fn with_locator(mut self, key: impl Into<ObjectName>) -> Self {
        self.locator.key = key.into();
        self
    }

    /// The same pool with more flags on every request, such as [`OsdFlags::FULL_FORCE`].
    #[must_use]
    pub fn with_flags(mut self, flags: OsdFlags) -> Self {
        self.flags |= flags;
        self
    }

    /// The same pool with a modification time for every write instead of the clock's.
    #[must_use]
    pub fn with_mtime(mut self, mtime: UTime) -> Self {
        self.mtime = Some(mtime);
        self
    }

    /// The same pool as it was at a snapshot, for reading only; [`snap::SNAPDIR`] for [`IoCtx::list_snaps`].
    #[must_use]
    pub fn with_snap_read(mut self, snap: SnapId) -> Self {
        self.snap = snap;
        self
    }

    /// The same pool for writes that preserve these self-managed snapshots.
    #[must_use]
    pub fn with_snap_context(mut self, context: SnapContext) -> Self {
        self.snap_context = context;
        self
    }

    /// The same pool with another limit for the time of a request than `rados_osd_op_timeout`; zero for none.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The pool's id.
    pub fn pool_id(&self) -> i64 {
        self.locator.pool
    }

    /// The connection.
    pub fn rados(&self) -> &Rados {
        &self.rados
    }

    /// The namespace.
    pub fn namespace(&self) -> &ObjectName {
        &self.locator.nspace
    }

    /// The snapshot that is read.
    pub(crate) fn snap_read(&self) -> SnapId {
        self.snap
    }

    pub(crate) fn locator(&self) -> &ObjectLocator {
        &self.locator
    }

    /// Runs operations on one object, atomically.
    ///
    /// # Errors
    /// The first operation's errno that is one; `EROFS` for a write where a snapshot is read.
    pub async fn operate(
        &self,
        what: &'static str,
        oid: impl Into<ObjectName>,
        ops: Vec<OsdOpIn>,
    ) -> Result<OpReply> {
        let reply = self.send(oid.into(), ops, Aim::Object).await?;
        if reply.result < 0 {
            return Err(Error::os(what, reply.result));
        }
        let outs = reply.ops.iter().map(|o| (o.result, o.data.to_bytes())).collect();
        Ok(OpReply {
            outs,
            version: reply.user_version,
        })
    }

    /// A request as this context wants it.
    pub(crate) fn request(&self, oid: ObjectName, ops: Vec<OsdOpIn>) -> MOsdOp {
        let mut op = request(self.locator.clone(), oid);
        let writes = ops.iter().any(|o| o.op.code.is_modify());
        let direction = if writes { OsdFlags::WRITE } else { OsdFlags::READ };
        op.flags = self.flags | direction | OsdFlags::ACK | OsdFlags::ONDISK | OsdFlags::KNOWN_REDIR;
        op.ops = ops;
        op.mtime = self.mtime.unwrap_or(op.mtime);
        op.snapid = self.snap;
        op.snapc = self.snap_context.clone();
        op
    }

    pub(crate) async fn send(&self, oid: ObjectName, ops: Vec<OsdOpIn>, aim: Aim) -> Result<MOsdOpReply> {
        let mut op = self.request(oid, ops);
        if op.flags.has(OsdFlags::WRITE) && self.snap != snap::NOSNAP {
            return Err(Error::os("write to a snapshot", errno::EROFS));
        }
        if matches!(aim, Aim::Pg(_)) {
            op.flags |= OsdFlags::PGOP | OsdFlags::IGNORE_OVERLAY;
        }
        self.submit(op, aim, Resend::Always).await
    }

    pub(crate) async fn submit(&self, op: MOsdOp, aim: Aim, resend: Resend) -> Result<MOsdOpReply> {
        if self.rados.map().is_none() {
            self.rados.latest_map().await?;
        }
        let answer = self.rados.inner.objecter.borrow_mut().submit(op, aim, resend);
        let outcome = if self.timeout.is_zero() {
            answer.await
        } else {
            // The objecter forgets a request whose answer nobody awaits.
            let limited = tokio::time::timeout(self.timeout, answer).await;
            limited.map_err(|_| Error::os("request", errno::ETIMEDOUT))?
        };
        outcome
            .map_err(|_| spirula_monc::Error::ShutDown)?
            .map_err(|e| Error::os("request", e))
    }

    /// Runs one operation and gives its output.
    pub(crate) async fn one(
        &self,
        what: &'static str,
        oid: impl Into<ObjectName>,
        op: OsdOpIn,
    ) -> Result<Bytes> {
        let mut reply = self.operate(what, oid, vec![op]).await?;
        Ok(reply.outs.pop().map(|(_, data)| data).unwrap_or_default())
    }

    /// The objects of the pool, PG by PG; those of all namespaces with `all`.
    pub fn list(&self, all: bool) -> ObjectList {
        ObjectList::new(self.clone(), all)
    }

    /// The objects of one PG of the pool.
    pub fn list_pg(&self, seed: u32, all: bool) -> ObjectList {
        ObjectList::of_pg(self.clone(), all, seed)
    }
}

/// An operation with flags.
pub(crate) fn flagged(mut op: OsdOpIn, flags: OpFlags) -> OsdOpIn {
    op.op = op.op.with_flags(flags);
    op
}
