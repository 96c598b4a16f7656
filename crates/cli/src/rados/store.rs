//! The target of commands on objects' data and attributes: plain objects, or striped ones with
//! `--striper`.

use bytes::Bytes;
use spirula_client::{IoCtx, Result, Striper};
use spirula_denc::UTime;
use spirula_maps::ObjectName;
use spirula_proto::osd_op_data::Xattrs;

/// A pool with plain or striped objects.
pub(super) enum Store {
    Plain(IoCtx),
    Striped(IoCtx, Striper),
}

impl Store {
    pub(super) fn new(io: &IoCtx, striped: bool) -> Self {
        if striped {
            Self::Striped(io.clone(), Striper::new(io.clone()))
        } else {
            Self::Plain(io.clone())
        }
    }

    /// The object that carries the attributes of `oid`.
    fn bearer(&self, oid: &ObjectName) -> (&IoCtx, ObjectName) {
        match self {
            Self::Plain(io) => (io, oid.clone()),
            Self::Striped(io, striper) => (io, striper.first_piece(oid)),
        }
    }

    pub(super) async fn read(&self, oid: &ObjectName, offset: u64, len: u64) -> Result<Bytes> {
        match self {
            Self::Plain(io) => io.read(oid, offset, len).await,
            Self::Striped(_, striper) => striper.read(oid, offset, len).await,
        }
    }

    pub(super) async fn write(&self, oid: &ObjectName, offset: u64, data: Bytes) -> Result<()> {
        match self {
            Self::Plain(io) => io.write(oid, offset, data).await,
            Self::Striped(_, striper) => striper.write(oid, offset, data).await,
        }
    }

    pub(super) async fn write_full(&self, oid: &ObjectName, data: Bytes) -> Result<()> {
        match self {
            Self::Plain(io) => io.write_full(oid, data).await,
            Self::Striped(_, striper) => striper.write_full(oid, data).await,
        }
    }

    pub(super) async fn append(&self, oid: &ObjectName, data: Bytes) -> Result<()> {
        match self {
            Self::Plain(io) => io.append(oid, data).await,
            Self::Striped(_, striper) => striper.append(oid, data).await,
        }
    }

    pub(super) async fn truncate(&self, oid: &ObjectName, size: u64) -> Result<()> {
        match self {
            Self::Plain(io) => io.truncate(oid, size).await,
            Self::Striped(_, striper) => striper.truncate(oid, size).await,
        }
    }

    pub(super) async fn remove(&self, oid: &ObjectName) -> Result<()> {
        match self {
            Self::Plain(io) => io.remove(oid).await,
            Self::Striped(_, striper) => striper.remove(oid).await,
        }
    }

    pub(super) async fn stat(&self, oid: &ObjectName) -> Result<(u64, UTime)> {
        match self {
            Self::Plain(io) => io.stat(oid).await,
            Self::Striped(_, striper) => striper.stat(oid).await,
        }
    }

    pub(super) async fn getxattr(&self, oid: &ObjectName, name: &str) -> Result<Bytes> {
        let (io, oid) = self.bearer(oid);
        io.getxattr(oid, name).await
    }

    pub(super) async fn setxattr(&self, oid: &ObjectName, name: &str, value: &[u8]) -> Result<()> {
        let (io, oid) = self.bearer(oid);
        io.setxattr(oid, name, value).await
    }

    pub(super) async fn rmxattr(&self, oid: &ObjectName, name: &str) -> Result<()> {
        let (io, oid) = self.bearer(oid);
        io.rmxattr(oid, name).await
    }

    pub(super) async fn getxattrs(&self, oid: &ObjectName) -> Result<Xattrs> {
        match self {
            Self::Plain(io) => io.getxattrs(oid).await,
            Self::Striped(_, striper) => striper.getxattrs(oid).await,
        }
    }
}
