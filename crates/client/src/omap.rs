//! Operations on objects' omaps: keys and values in the order of the keys' bytes, and a header.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, encode_to_vec};
use spirula_maps::ObjectName;
use spirula_proto::osd::{OpArgs, OpCode, OsdOpIn};
use spirula_proto::osd_op_data::{
    OmapGetKeys, OmapGetVals, OmapKeys, OmapKeysReply, OmapRange, OmapVals, OmapValsReply,
};

use crate::{BytesList, Connection, IoCtx, Result};

fn op(code: OpCode, input: &impl Encode) -> OsdOpIn {
    OsdOpIn::new(code, OpArgs::None, encode_to_vec(input))
}

impl<C: Connection> IoCtx<C> {
    async fn ask<T: Decode>(&self, what: &'static str, oid: impl Into<ObjectName>, op: OsdOpIn) -> Result<T> {
        let out = self.one(what, oid, op).await?;
        Ok(Reader::new(&out).get()?)
    }

    /// Up to `max` keys behind `start_after`, and whether there are more.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn omap_keys(
        &self,
        oid: impl Into<ObjectName>,
        start_after: Bytes,
        max: u64,
    ) -> Result<OmapKeysReply> {
        let input = OmapGetKeys { start_after, max };
        self.ask("omap_keys", oid, op(OpCode::OMAPGETKEYS, &input)).await
    }

    /// Up to `max` keys behind `start_after` that begin with `prefix`, with their values, and
    /// whether there are more.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn omap_vals(
        &self,
        oid: impl Into<ObjectName>,
        start_after: Bytes,
        prefix: Bytes,
        max: u64,
    ) -> Result<OmapValsReply> {
        let input = OmapGetVals {
            start_after,
            max,
            prefix,
        };
        self.ask("omap_vals", oid, op(OpCode::OMAPGETVALS, &input)).await
    }

    /// The values of those of these keys that exist.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn omap_vals_by_keys(&self, oid: impl Into<ObjectName>, keys: &OmapKeys) -> Result<OmapVals> {
        self.ask("omap_vals_by_keys", oid, op(OpCode::OMAPGETVALSBYKEYS, keys))
            .await
    }

    /// Sets values; creates the object where there is none.
    ///
    /// # Errors
    /// The errno of the OSD.
    pub async fn omap_set(&self, oid: impl Into<ObjectName>, values: &OmapVals) -> Result<()> {
        self.one("omap_set", oid, op(OpCode::OMAPSETVALS, values))
            .await
            .map(drop)
    }

    /// Removes keys; missing ones are no error.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn omap_rm_keys(&self, oid: impl Into<ObjectName>, keys: &OmapKeys) -> Result<()> {
        self.one("omap_rm_keys", oid, op(OpCode::OMAPRMKEYS, keys))
            .await
            .map(drop)
    }

    /// Removes the keys from `begin` to before `end`.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn omap_rm_range(&self, oid: impl Into<ObjectName>, begin: Bytes, end: Bytes) -> Result<()> {
        let input = OmapRange { begin, end };
        self.one("omap_rm_range", oid, op(OpCode::OMAPRMKEYRANGE, &input))
            .await
            .map(drop)
    }

    /// Removes all keys and the header.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn omap_clear(&self, oid: impl Into<ObjectName>) -> Result<()> {
        let op = OsdOpIn::new(OpCode::OMAPCLEAR, OpArgs::None, Bytes::new());
        self.one("omap_clear", oid, op).await.map(drop)
    }

    /// The header, empty where there is none.
    ///
    /// # Errors
    /// `ENOENT` where there is no object.
    pub async fn omap_header(&self, oid: impl Into<ObjectName>) -> Result<Bytes> {
        let op = OsdOpIn::new(OpCode::OMAPGETHEADER, OpArgs::None, Bytes::new());
        self.one("omap_header", oid, op).await
    }

    /// Sets the header; creates the object where there is none.
    ///
    /// # Errors
    /// The errno of the OSD.
    pub async fn omap_set_header(
        &self,
        oid: impl Into<ObjectName>,
        header: impl Into<BytesList>,
    ) -> Result<()> {
        let op = OsdOpIn::new(OpCode::OMAPSETHEADER, OpArgs::None, header);
        self.one("omap_set_header", oid, op).await.map(drop)
    }
}
