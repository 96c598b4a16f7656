//! A pool, and operations on its objects.

use std::time::Duration;

use bytes::Bytes;
use spirula_denc::UTime;
use spirula_errno::Errno;
use spirula_maps::{ObjectLocator, ObjectName, PoolId, SnapContext, SnapId, snap};
use spirula_proto::osd::{MOsdOp, MOsdOpReply, OpArgs, OpCode, OpFlags, OsdFlags, OsdOpIn};

use crate::objecter::{Aim, Resend, request};
use crate::{Connection, Error, ObjectList, Rados, Result, errno};

/// A pool with a namespace, a locator key, a snapshot to read and the snapshots to write under.
/// Cheap to clone.
///
/// With a [`RadosHandle`](crate::RadosHandle) as its connection it may be used by any thread.
#[derive(Clone)]
pub struct IoCtx<C = Rados> {
    connection: C,
    context: Context,
}

/// The parameters that an [`IoCtx`] puts into each request.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pool: PoolId,
    /// Of this pool.
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
    /// The object's version after the request, as `rados_get_last_version` returns it.
    pub version: u64,
}

impl IoCtx {
    pub(crate) fn new(rados: Rados, pool: PoolId) -> Self {
        let timeout = rados.inner.options.op_timeout;
        Self {
            connection: rados,
            context: Context {
                pool,
                locator: ObjectLocator::pool(pool),
                flags: OsdFlags::empty(),
                mtime: None,
                snap: snap::NOSNAP,
                snap_context: SnapContext::default(),
                timeout,
            },
        }
    }
}

impl Rados {
    /// Sends a request and awaits the answer, for at most `timeout` unless that is zero.
    async fn submit(&self, op: MOsdOp, aim: Aim, resend: Resend, timeout: Duration) -> Result<MOsdOpReply> {
        if self.map().is_none() {
            self.latest_map().await?;
        }
        let answer = self.inner.objecter.borrow_mut().submit(op, aim, resend);
        let outcome = if timeout.is_zero() {
            answer.await
        } else {
            // The objecter forgets a request whose answer nobody awaits.
            let limited = tokio::time::timeout(timeout, answer).await;
            limited.map_err(|_| Error::os("request", errno::ETIMEDOUT))?
        };
        outcome
            .map_err(|_| spirula_monc::Error::ShutDown)?
            .map_err(|e| Error::os("request", e))
    }
}

impl<C> IoCtx<C> {
    pub(crate) fn from_parts(connection: C, context: Context) -> Self {
        Self { connection, context }
    }

    pub(crate) fn into_parts(self) -> (C, Context) {
        (self.connection, self.context)
    }

    /// The same pool with another namespace.
    #[must_use]
    pub fn with_namespace(mut self, nspace: impl Into<ObjectName>) -> Self {
        self.context.locator.nspace = nspace.into();
        self
    }

    /// The same pool with a locator key, which is hashed instead of objects' names.
    #[must_use]
    pub fn with_locator(mut self, key: impl Into<ObjectName>) -> Self {
        self.context.locator.key = key.into();
        self
    }

    /// The same pool with more flags on every request, such as [`OsdFlags::FULL_FORCE`].
    #[must_use]
    pub fn with_flags(mut self, flags: OsdFlags) -> Self {
        self.context.flags.insert(flags);
        self
    }

    /// The same pool with a modification time for every write instead of the clock's.
    #[must_use]
    pub fn with_mtime(mut self, mtime: UTime) -> Self {
        self.context.mtime = Some(mtime);
        self
    }

    /// The same pool as it was at a snapshot, for reading only; [`snap::SNAPDIR`] for
    /// [`IoCtx::list_snaps`].
    #[must_use]
    pub fn with_snap_read(mut self, snap: SnapId) -> Self {
        self.context.snap = snap;
        self
    }

    /// The same pool for writes that preserve these self-managed snapshots.
    #[must_use]
    pub fn with_snap_context(mut self, context: SnapContext) -> Self {
        self.context.snap_context = context;
        self
    }

    /// The same pool with another limit for the time of a request than `rados_osd_op_timeout`; zero
    /// for none.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.context.timeout = timeout;
        self
    }

    /// The pool's id.
    pub fn pool_id(&self) -> PoolId {
        self.context.pool
    }

    /// The connection.
    pub fn rados(&self) -> &C {
        &self.connection
    }

    /// The namespace.
    pub fn namespace(&self) -> &ObjectName {
        &self.context.locator.nspace
    }

    /// The snapshot that is read.
    pub(crate) fn snap_read(&self) -> SnapId {
        self.context.snap
    }

    pub(crate) fn locator(&self) -> &ObjectLocator {
        &self.context.locator
    }

    /// A request with this context's parameters.
    pub(crate) fn request(&self, oid: ObjectName, ops: Vec<OsdOpIn>) -> MOsdOp {
        let context = &self.context;
        let mut op = request(context.locator.clone(), oid);
        let writes = ops.iter().any(|o| o.op.code.is_modify());
        let direction = if writes { OsdFlags::WRITE } else { OsdFlags::READ };
        op.flags = context
            .flags
            .with(direction)
            .with(OsdFlags::ACK)
            .with(OsdFlags::ONDISK)
            .with(OsdFlags::KNOWN_REDIR);
        op.ops = ops;
        op.mtime = context.mtime.unwrap_or(op.mtime);
        op.snapid = context.snap;
        op.snapc = context.snap_context.clone();
        op
    }
}

impl<C: Connection> IoCtx<C> {
    /// Runs `work` with this pool on the client's thread; see [`Connection::run`].
    pub(crate) async fn run<T, F, W>(&self, bytes: usize, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(IoCtx) -> W + Send + 'static,
        W: Future<Output = Result<T>> + 'static,
    {
        let context = self.context.clone();
        let here = move |rados| work(IoCtx::from_parts(rados, context));
        self.connection.run(bytes, here).await
    }

    /// Runs operations on one object, atomically.
    ///
    /// # Errors
    /// The errno of the first failed operation; `EROFS` for a write where a snapshot is read.
    pub async fn operate(
        &self,
        what: &'static str,
        oid: impl Into<ObjectName>,
        ops: Vec<OsdOpIn>,
    ) -> Result<OpReply> {
        let reply = self.send(oid.into(), ops, Aim::Object).await?;
        if let Some(errno) = Errno::of_result(reply.result) {
            return Err(Error::os(what, errno));
        }
        let outs = reply.ops.iter().map(|o| (o.result, o.data.to_bytes())).collect();
        Ok(OpReply {
            outs,
            version: reply.user_version,
        })
    }

    pub(crate) async fn send(&self, oid: ObjectName, ops: Vec<OsdOpIn>, aim: Aim) -> Result<MOsdOpReply> {
        let mut op = self.request(oid, ops);
        if op.flags.intersects(OsdFlags::WRITE) && self.context.snap != snap::NOSNAP {
            return Err(Error::os("write to a snapshot", errno::EROFS));
        }
        if matches!(aim, Aim::Pg(_)) {
            op.flags.insert(OsdFlags::PGOP.with(OsdFlags::IGNORE_OVERLAY));
        }
        self.submit(op, aim, Resend::Always).await
    }

    pub(crate) async fn submit(&self, op: MOsdOp, aim: Aim, resend: Resend) -> Result<MOsdOpReply> {
        let (bytes, timeout) = (memory(&op.ops), self.context.timeout);
        let submit = move |rados: Rados| async move { rados.submit(op, aim, resend, timeout).await };
        self.connection.run(bytes, submit).await
    }

    /// Runs one operation and returns its output.
    pub(crate) async fn one(
        &self,
        what: &'static str,
        oid: impl Into<ObjectName>,
        op: OsdOpIn,
    ) -> Result<Bytes> {
        let mut reply = self.operate(what, oid, vec![op]).await?;
        Ok(reply.outs.pop().map(|(_, data)| data).unwrap_or_default())
    }

    /// Lists the objects of the pool, PG by PG; with `all`, those of all namespaces.
    pub fn list(&self, all: bool) -> ObjectList<C> {
        ObjectList::new(self.clone(), all)
    }

    /// Lists the objects of one PG of the pool.
    pub fn list_pg(&self, seed: u32, all: bool) -> ObjectList<C> {
        ObjectList::of_pg(self.clone(), all, seed)
    }
}

/// The default of `osd_max_object_size`: readers of whole objects ask for more than objects have.
const LARGEST_READ: u64 = 128 << 20;

/// The memory of a request and its answer, as far as that can be told before: the inputs, and the
/// length of the data to be read.
fn memory(ops: &[OsdOpIn]) -> usize {
    let of = |op: &OsdOpIn| {
        let answer = match (op.op.code, op.op.args()) {
            (OpCode::READ | OpCode::SPARSE_READ | OpCode::SYNC_READ, OpArgs::Extent(extent)) => extent.length,
            _ => 0,
        };
        usize::try_from(answer.min(LARGEST_READ))
            .unwrap_or(usize::MAX)
            .saturating_add(op.data.len())
    };
    ops.iter().map(of).fold(0, usize::saturating_add)
}

/// An operation with flags.
pub(crate) fn flagged(mut op: OsdOpIn, flags: OpFlags) -> OsdOpIn {
    op.op = op.op.with_flags(flags);
    op
}
