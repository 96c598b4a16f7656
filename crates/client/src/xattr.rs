//! Operations on objects' attributes.

use bytes::Bytes;
use spirula_maps::ObjectName;
use spirula_proto::osd::{OpArgs, OpCode, OsdOpIn, XattrArgs};
use spirula_proto::osd_op_data::{XattrInput, Xattrs};

use crate::{Connection, IoCtx, Result};

impl<C: Connection> IoCtx<C> {
    /// An attribute's value.
    ///
    /// # Errors
    /// `ENODATA` where the object has no such attribute.
    pub async fn getxattr(&self, oid: impl Into<ObjectName>, name: &str) -> Result<Bytes> {
        self.one("getxattr", oid, op(OpCode::GETXATTR, name, &[])).await
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// The errno of the OSD.
    pub async fn setxattr(&self, oid: impl Into<ObjectName>, name: &str, value: &[u8]) -> Result<()> {
        self.one("setxattr", oid, op(OpCode::SETXATTR, name, value))
            .await
            .map(drop)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// The errno of the OSD.
    pub async fn rmxattr(&self, oid: impl Into<ObjectName>, name: &str) -> Result<()> {
        self.one("rmxattr", oid, op(OpCode::RMXATTR, name, &[]))
            .await
            .map(drop)
    }

    /// All attributes.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn getxattrs(&self, oid: impl Into<ObjectName>) -> Result<Xattrs> {
        let out = self
            .one(
                "getxattrs",
                oid,
                OsdOpIn::new(OpCode::GETXATTRS, OpArgs::None, Bytes::new()),
            )
            .await?;
        Ok(spirula_denc::Reader::new(&out).get()?)
    }
}

fn op(code: OpCode, name: &str, value: &[u8]) -> OsdOpIn {
    XattrInput::op(code, name.as_bytes(), value, XattrArgs::default())
}
