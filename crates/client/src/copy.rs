//! Copies that the OSDs make among themselves, and the operations of cache tiers and manifests.

use bytes::Bytes;
use spirula_denc::{Writer, encode_to_vec};
use spirula_maps::{ObjectName, snap};
use spirula_proto::osd::{CopyFromArgs, CopyFromFlags, OpArgs, OpCode, OpFlags, OsdFlags, OsdOpIn};
use spirula_proto::osd_op_data::CopySource;

use crate::ioctx::flagged;
use crate::{Connection, IoCtx, Result};

/// A chunk of an object that another object keeps (`SET_CHUNK`).
#[derive(Debug, Clone)]
pub struct Chunk {
    /// The range of the object.
    pub offset: u64,
    /// The length of the range in bytes.
    pub length: u64,
    /// The object that keeps it.
    pub target: ObjectName,
    /// The offset of the chunk in that object.
    pub target_offset: u64,
}

impl<C: Connection> IoCtx<C> {
    /// Replaces the object by a copy of `source` of the pool, namespace and locator of `from`:
    /// data, attributes, map.
    ///
    /// # Errors
    /// `ENOENT` where there is no source.
    pub async fn copy_from(
        &self,
        oid: impl Into<ObjectName>,
        from: &Self,
        source: impl Into<ObjectName>,
    ) -> Result<()> {
        let read = OpFlags::FADVISE_SEQUENTIAL.with(OpFlags::FADVISE_NOCACHE);
        let args = CopyFromArgs {
            snapid: from.snap_read(),
            version: 0,
            flags: CopyFromFlags::empty(),
            src_fadvise_flags: read,
        };
        let source = CopySource {
            oid: source.into(),
            locator: from.locator().clone(),
            truncate: None,
        };
        let op = OsdOpIn::new(OpCode::COPY_FROM, OpArgs::CopyFrom(args), encode_to_vec(&source));
        let written = OpFlags::FADVISE_SEQUENTIAL.with(OpFlags::FADVISE_DONTNEED);
        self.one("copy_from", oid, flagged(op, written)).await.map(drop)
    }

    /// Makes reads and writes of the object go to `target` of another pool.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the cluster has no manifests, `ENOENT` where there is no object.
    pub async fn set_redirect(
        &self,
        oid: impl Into<ObjectName>,
        to: &Self,
        target: impl Into<ObjectName>,
        with_reference: bool,
    ) -> Result<()> {
        let args = CopyFromArgs {
            snapid: snap::NOSNAP,
            ..CopyFromArgs::default()
        };
        let target = CopySource {
            oid: target.into(),
            locator: to.locator().clone(),
            truncate: None,
        };
        let op = OsdOpIn::new(
            OpCode::SET_REDIRECT,
            OpArgs::CopyFrom(args),
            encode_to_vec(&target),
        );
        let flags = if with_reference {
            OpFlags::WITH_REFERENCE
        } else {
            OpFlags::empty()
        };
        self.one("set_redirect", oid, flagged(op, flags)).await.map(drop)
    }

    /// Keeps a range of the object in another one, counting the reference.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the cluster has no manifests, `ENOENT` where there is no object.
    pub async fn set_chunk(&self, oid: impl Into<ObjectName>, to: &Self, chunk: &Chunk) -> Result<()> {
        let mut w = Writer::new();
        w.u64(chunk.offset);
        w.u64(chunk.length);
        w.put(to.locator());
        w.put(&chunk.target);
        w.u64(chunk.target_offset);
        let op = OsdOpIn::new(OpCode::SET_CHUNK, OpArgs::None, w.into_vec());
        self.one("set_chunk", oid, flagged(op, OpFlags::WITH_REFERENCE))
            .await
            .map(drop)
    }

    /// Runs an operation of cache tiers and manifests that has no arguments, past the tier as
    /// `rados` sends them.
    ///
    /// # Errors
    /// `EINVAL` and others where the pool is no tier or the object has no manifest.
    pub async fn tier(&self, oid: impl Into<ObjectName>, code: OpCode) -> Result<()> {
        let past = match code {
            OpCode::CACHE_FLUSH | OpCode::TIER_FLUSH | OpCode::TIER_EVICT => {
                OsdFlags::IGNORE_CACHE.with(OsdFlags::IGNORE_OVERLAY)
            }
            OpCode::CACHE_TRY_FLUSH | OpCode::CACHE_EVICT => OsdFlags::IGNORE_CACHE
                .with(OsdFlags::IGNORE_OVERLAY)
                .with(OsdFlags::SKIPRWLOCKS),
            _ => OsdFlags::empty(),
        };
        let op = OsdOpIn::new(code, OpArgs::None, Bytes::new());
        self.clone().with_flags(past).one("tier", oid, op).await.map(drop)
    }
}
