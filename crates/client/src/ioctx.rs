//! A pool, and what can be done to its objects.

use bytes::Bytes;
use spirula_denc::UTime;
use spirula_maps::{ObjectLocator, ObjectName};
use spirula_proto::osd::{Extent, MOsdOpReply, OpArgs, OpCode, OsdFlags, OsdOpIn, XattrArgs};
use spirula_proto::osd_op_data::{StatResult, XattrInput, Xattrs};

use crate::objecter::{Aim, request};
use crate::{Error, ObjectList, Rados, Result};

/// A pool with a namespace and locator key. Cheap to clone.
#[derive(Clone)]
pub struct IoCtx {
    rados: Rados,
    locator: ObjectLocator,
    flags: OsdFlags,
    mtime: Option<UTime>,
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
        Self {
            rados,
            locator: ObjectLocator::pool(pool),
            flags: OsdFlags::NONE,
            mtime: None,
        }
    }

    /// The same pool with another namespace.
    #[must_use]
    pub fn with_namespace(mut self, nspace: &str) -> Self {
        self.locator.nspace = nspace.into();
        self
    }

    /// The same pool with a locator key, which is hashed instead of the names.
    #[must_use]
    pub fn with_locator(mut self, key: &str) -> Self {
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

    /// The pool's id.
    pub fn pool_id(&self) -> i64 {
        self.locator.pool
    }

    pub(crate) fn rados(&self) -> &Rados {
        &self.rados
    }

    pub(crate) fn locator(&self) -> &ObjectLocator {
        &self.locator
    }

    /// Runs operations on one object, atomically.
    ///
    /// # Errors
    /// The first operation's errno that is one.
    pub async fn operate(&self, what: &'static str, oid: &str, ops: Vec<OsdOpIn>) -> Result<OpReply> {
        let reply = self.send(ObjectName::from(oid), ops, Aim::Object).await?;
        if reply.result < 0 {
            return Err(Error::os(what, reply.result));
        }
        let outs = reply.ops.iter().map(|o| (o.result, o.data.to_bytes())).collect();
        Ok(OpReply {
            outs,
            version: reply.user_version,
        })
    }

    pub(crate) async fn send(&self, oid: ObjectName, ops: Vec<OsdOpIn>, aim: Aim) -> Result<MOsdOpReply> {
        let mut op = request(self.locator.clone(), oid);
        let writes = ops.iter().any(|o| o.op.code.is_modify());
        let direction = if writes { OsdFlags::WRITE } else { OsdFlags::READ };
        op.flags = self.flags | direction | OsdFlags::ACK | OsdFlags::ONDISK | OsdFlags::KNOWN_REDIR;
        if matches!(aim, Aim::Pg(_)) {
            op.flags |= OsdFlags::PGOP | OsdFlags::IGNORE_OVERLAY;
        }
        op.ops = ops;
        op.mtime = self.mtime.unwrap_or(op.mtime);
        if self.rados.map().is_none() {
            self.rados.latest_map().await?;
        }
        let answer = self.rados.inner.objecter.borrow_mut().submit(op, aim);
        let outcome = answer.await.map_err(|_| spirula_monc::Error::ShutDown)?;
        outcome.map_err(|e| Error::os("request", e))
    }

    async fn one(&self, what: &'static str, oid: &str, op: OsdOpIn) -> Result<Bytes> {
        let mut reply = self.operate(what, oid, vec![op]).await?;
        Ok(reply.outs.pop().map(|(_, data)| data).unwrap_or_default())
    }

    /// Reads up to `len` bytes from `offset`; short at the object's end.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn read(&self, oid: &str, offset: u64, len: u64) -> Result<Bytes> {
        self.one(
            "read",
            oid,
            OsdOpIn::new(OpCode::READ, extent(offset, len), Bytes::new()),
        )
        .await
    }

    /// Writes at `offset`.
    ///
    /// # Errors
    /// The errno of the OSD.
    pub async fn write(&self, oid: &str, offset: u64, data: Bytes) -> Result<()> {
        let args = extent(offset, data.len() as u64);
        self.one("write", oid, OsdOpIn::new(OpCode::WRITE, args, data))
            .await
            .map(drop)
    }

    /// Replaces the object's contents.
    ///
    /// # Errors
    /// The errno of the OSD.
    pub async fn write_full(&self, oid: &str, data: Bytes) -> Result<()> {
        let args = extent(0, data.len() as u64);
        self.one("write_full", oid, OsdOpIn::new(OpCode::WRITEFULL, args, data))
            .await
            .map(drop)
    }

    /// Appends to the object.
    ///
    /// # Errors
    /// The errno of the OSD.
    pub async fn append(&self, oid: &str, data: Bytes) -> Result<()> {
        let args = extent(0, data.len() as u64);
        self.one("append", oid, OsdOpIn::new(OpCode::APPEND, args, data))
            .await
            .map(drop)
    }

    /// Cuts or extends the object to `size` bytes.
    ///
    /// # Errors
    /// The errno of the OSD.
    pub async fn truncate(&self, oid: &str, size: u64) -> Result<()> {
        self.one(
            "truncate",
            oid,
            OsdOpIn::new(OpCode::TRUNCATE, extent(size, 0), Bytes::new()),
        )
        .await
        .map(drop)
    }

    /// Creates the object; with `exclusive`, only where there is none.
    ///
    /// # Errors
    /// `EEXIST`.
    pub async fn create(&self, oid: &str, exclusive: bool) -> Result<()> {
        let mut op = OsdOpIn::new(OpCode::CREATE, OpArgs::None, Bytes::new());
        if exclusive {
            op.op = op.op.with_flags(spirula_proto::osd::OpFlags::EXCL);
        }
        self.one("create", oid, op).await.map(drop)
    }

    /// Removes the object.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    pub async fn remove(&self, oid: &str) -> Result<()> {
        self.one(
            "remove",
            oid,
            OsdOpIn::new(OpCode::DELETE, OpArgs::None, Bytes::new()),
        )
        .await
        .map(drop)
    }

    /// The object's size in bytes and when it was last modified.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    pub async fn stat(&self, oid: &str) -> Result<(u64, UTime)> {
        let out = self
            .one(
                "stat",
                oid,
                OsdOpIn::new(OpCode::STAT, OpArgs::None, Bytes::new()),
            )
            .await?;
        let stat: StatResult = spirula_denc::Reader::new(&out).get()?;
        Ok((stat.size, stat.mtime))
    }

    /// An attribute's value.
    ///
    /// # Errors
    /// `ENODATA` where the object has no such attribute.
    pub async fn getxattr(&self, oid: &str, name: &str) -> Result<Bytes> {
        self.one("getxattr", oid, xattr(OpCode::GETXATTR, name, &[]))
            .await
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// The errno of the OSD.
    pub async fn setxattr(&self, oid: &str, name: &str, value: &[u8]) -> Result<()> {
        self.one("setxattr", oid, xattr(OpCode::SETXATTR, name, value))
            .await
            .map(drop)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// The errno of the OSD.
    pub async fn rmxattr(&self, oid: &str, name: &str) -> Result<()> {
        self.one("rmxattr", oid, xattr(OpCode::RMXATTR, name, &[]))
            .await
            .map(drop)
    }

    /// All attributes.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn getxattrs(&self, oid: &str) -> Result<Xattrs> {
        let out = self
            .one(
                "getxattrs",
                oid,
                OsdOpIn::new(OpCode::GETXATTRS, OpArgs::None, Bytes::new()),
            )
            .await?;
        Ok(spirula_denc::Reader::new(&out).get()?)
    }

    /// The objects of the pool, PG by PG; those of all namespaces with `all`.
    pub fn list(&self, all: bool) -> ObjectList {
        ObjectList::new(self.clone(), all)
    }
}

fn extent(offset: u64, length: u64) -> OpArgs {
    OpArgs::Extent(Extent {
        offset,
        length,
        ..Extent::default()
    })
}

fn xattr(code: OpCode, name: &str, value: &[u8]) -> OsdOpIn {
    XattrInput::op(code, name.as_bytes(), value, XattrArgs::default())
}
