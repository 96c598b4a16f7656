//! Methods of object classes.

use bytes::Bytes;
use spirula_maps::ObjectName;
use spirula_proto::osd::{OsdFlags, OsdOpIn};
use spirula_proto::osd_op_data::CallInput;

use crate::{Connection, Error, IoCtx, Result, errno};

/// A call of `class.method`, for [`IoCtx::operate`].
pub(crate) fn call(class: &str, method: &str, input: &[u8]) -> Result<OsdOpIn> {
    CallInput::op(class, method, input).ok_or(Error::os("exec", errno::EINVAL))
}

impl<C: Connection> IoCtx<C> {
    /// Runs a method of a class on the object and returns its output.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where there is no such class or method, else the method's own error.
    pub async fn exec(
        &self,
        oid: impl Into<ObjectName>,
        class: &str,
        method: &str,
        input: &[u8],
    ) -> Result<Bytes> {
        self.one("exec", oid, call(class, method, input)?).await
    }

    /// Runs a method that writes. Its output is dropped, as a resent request would not get it.
    ///
    /// # Errors
    /// As [`IoCtx::exec`].
    pub async fn exec_write(
        &self,
        oid: impl Into<ObjectName>,
        class: &str,
        method: &str,
        input: &[u8],
    ) -> Result<()> {
        let io = self.clone().with_flags(OsdFlags::WRITE);
        io.exec(oid, class, method, input).await.map(drop)
    }
}
