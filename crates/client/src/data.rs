//! Operations on objects' data. Data to be written may be several buffers, which are sent without
//! being joined.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_denc::{Reader, UTime};
use spirula_maps::ObjectName;
use spirula_proto::osd::{AllocHintArgs, ExtentArgs, OpArgs, OpCode, OpFlags, OsdOpIn};
use spirula_proto::osd_op_data::StatResult;

use crate::ioctx::flagged;
use crate::{BytesList, Connection, IoCtx, Result};

impl<C: Connection> IoCtx<C> {
    /// Reads up to `len` bytes from `offset`; short at the object's end.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn read(&self, oid: impl Into<ObjectName>, offset: u64, len: u64) -> Result<Bytes> {
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
    pub async fn write(
        &self,
        oid: impl Into<ObjectName>,
        offset: u64,
        data: impl Into<BytesList>,
    ) -> Result<()> {
        let data = data.into();
        let args = extent(offset, data.len() as u64);
        self.one("write", oid, OsdOpIn::new(OpCode::WRITE, args, data))
            .await
            .map(drop)
    }

    /// Replaces the object's contents.
    ///
    /// # Errors
    /// The errno of the OSD.
    pub async fn write_full(&self, oid: impl Into<ObjectName>, data: impl Into<BytesList>) -> Result<()> {
        let data = data.into();
        let args = extent(0, data.len() as u64);
        self.one("write_full", oid, OsdOpIn::new(OpCode::WRITEFULL, args, data))
            .await
            .map(drop)
    }

    /// Appends to the object.
    ///
    /// # Errors
    /// The errno of the OSD.
    pub async fn append(&self, oid: impl Into<ObjectName>, data: impl Into<BytesList>) -> Result<()> {
        let data = data.into();
        let args = extent(0, data.len() as u64);
        self.one("append", oid, OsdOpIn::new(OpCode::APPEND, args, data))
            .await
            .map(drop)
    }

    /// Truncates or extends the object to `size` bytes.
    ///
    /// # Errors
    /// The errno of the OSD.
    pub async fn truncate(&self, oid: impl Into<ObjectName>, size: u64) -> Result<()> {
        self.one(
            "truncate",
            oid,
            OsdOpIn::new(OpCode::TRUNCATE, extent(size, 0), Bytes::new()),
        )
        .await
        .map(drop)
    }

    /// Creates the object; with `exclusive` it fails where the object exists.
    ///
    /// # Errors
    /// `EEXIST`.
    pub async fn create(&self, oid: impl Into<ObjectName>, exclusive: bool) -> Result<()> {
        let op = OsdOpIn::new(OpCode::CREATE, OpArgs::None, Bytes::new());
        let flags = if exclusive {
            OpFlags::EXCL
        } else {
            OpFlags::empty()
        };
        self.one("create", oid, flagged(op, flags)).await.map(drop)
    }

    /// Removes the object.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    pub async fn remove(&self, oid: impl Into<ObjectName>) -> Result<()> {
        self.one(
            "remove",
            oid,
            OsdOpIn::new(OpCode::DELETE, OpArgs::None, Bytes::new()),
        )
        .await
        .map(drop)
    }

    /// The object's size in bytes and the time of its last modification.
    ///
    /// # Errors
    /// `ENOENT` where there is none.
    pub async fn stat(&self, oid: impl Into<ObjectName>) -> Result<(u64, UTime)> {
        let out = self
            .one(
                "stat",
                oid,
                OsdOpIn::new(OpCode::STAT, OpArgs::None, Bytes::new()),
            )
            .await?;
        let stat: StatResult = Reader::new(&out).get()?;
        Ok((stat.size, stat.mtime))
    }

    /// The ranges of the object that hold data, between `offset` and `offset + len`: lengths by
    /// offsets.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn mapext(
        &self,
        oid: impl Into<ObjectName>,
        offset: u64,
        len: u64,
    ) -> Result<BTreeMap<u64, u64>> {
        let op = OsdOpIn::new(OpCode::MAPEXT, extent(offset, len), Bytes::new());
        let out = self.one("mapext", oid, op).await?;
        Ok(Reader::new(&out).get()?)
    }

    /// Tells the OSD which writes to expect; creates the object if it does not exist.
    ///
    /// # Errors
    /// The errno of the OSD.
    pub async fn set_alloc_hint(&self, oid: impl Into<ObjectName>, hint: AllocHintArgs) -> Result<()> {
        let op = OsdOpIn::new(OpCode::SETALLOCHINT, OpArgs::AllocHint(hint), Bytes::new());
        // An OSD that does not know hints ignores them.
        self.one("set_alloc_hint", oid, flagged(op, OpFlags::FAILOK))
            .await
            .map(drop)
    }
}

fn extent(offset: u64, length: u64) -> OpArgs {
    OpArgs::Extent(ExtentArgs {
        offset,
        length,
        ..ExtentArgs::default()
    })
}
