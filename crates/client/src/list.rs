//! Listing the objects of a pool.

use std::collections::VecDeque;

use spirula_errno::Errno;
use spirula_maps::{Epoch, HObject, ObjectName, PgId};
use spirula_proto::osd::{ListArgs, OpArgs, OpCode, OsdOpIn};
use spirula_proto::osd_op_data::{ListEntry, PgNlsResponse};

use crate::objecter::Aim;
use crate::{Connection, Error, IoCtx, Rados, Result};

/// The namespace that stands for all of them (`LIBRADOS_ALL_NSPACES`).
const ALL_NAMESPACES: &str = "\u{1}";
/// Entries asked for at a time.
const BATCH: u64 = 1024;

/// A listed object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its namespace.
    pub nspace: ObjectName,
    /// Its name.
    pub oid: ObjectName,
    /// Its locator key, empty where it has none.
    pub locator: ObjectName,
}

/// A listing under way. It goes through the objects in the order of their bit-reversed hashes, and
/// so through one PG after the other. The cursor is a place in that order: it survives splits of
/// PGs.
pub struct ObjectList<C = Rados> {
    io: IoCtx<C>,
    /// The start of the next batch; the maximum at the end.
    cursor: HObject,
    batch: VecDeque<ListEntry>,
    /// The PG to which the listing is limited.
    only: Option<u32>,
}

impl<C: Connection> ObjectList<C> {
    pub(crate) fn new(io: IoCtx<C>, all: bool) -> Self {
        let io = if all {
            io.with_namespace(ALL_NAMESPACES)
        } else {
            io
        };
        Self {
            io,
            cursor: HObject::min(),
            batch: VecDeque::new(),
            only: None,
        }
    }

    pub(crate) fn of_pg(io: IoCtx<C>, all: bool, seed: u32) -> Self {
        let first = HObject {
            pool: io.pool_id().signed(),
            hash: seed,
            ..HObject::min()
        };
        Self {
            cursor: first,
            only: Some(seed),
            ..Self::new(io, all)
        }
    }

    /// Whether the next batch belongs to another PG than the one to which the listing is limited.
    async fn is_past(&self) -> Result<bool> {
        let Some(seed) = self.only else { return Ok(false) };
        let raw = PgId {
            pool: self.io.pool_id(),
            seed: self.cursor.hash,
        };
        let is_past = move |io: IoCtx| async move {
            let map = io.rados().map();
            let pool = map.as_ref().and_then(|m| m.pool(io.pool_id()));
            Ok(pool.is_some_and(|p| p.raw_pg_to_pg(raw).seed != seed))
        };
        self.io.run(0, is_past).await
    }

    /// The next object, `None` after the last.
    ///
    /// # Errors
    /// The errno of an OSD.
    pub async fn next(&mut self) -> Result<Option<Listed>> {
        loop {
            if let Some(e) = self.batch.pop_front() {
                return Ok(Some(Listed {
                    nspace: e.nspace,
                    oid: e.oid,
                    locator: e.locator,
                }));
            }
            if self.cursor.max || self.is_past().await? {
                return Ok(None);
            }
            self.fetch().await?;
        }
    }

    async fn fetch(&mut self) -> Result<()> {
        // The PG that holds this hash, whatever the number of PGs is by the time the request
        // arrives.
        let pg = PgId {
            pool: self.io.pool_id(),
            seed: self.cursor.hash,
        };
        let args = ListArgs {
            count: BATCH,
            start_epoch: Epoch::NONE,
        };
        let op = OsdOpIn::new(
            OpCode::PGNLS,
            OpArgs::List(args),
            spirula_denc::encode_to_vec(&self.cursor),
        );
        let reply = self.io.send(ObjectName::EMPTY, vec![op], Aim::Pg(pg)).await?;
        if let Some(errno) = Errno::of_result(reply.result) {
            return Err(Error::os("list", errno));
        }
        let data = reply.ops.first().map(|o| o.data.to_bytes()).unwrap_or_default();
        let page: PgNlsResponse = spirula_denc::Reader::new(&data).get()?;
        self.batch = page.entries.into();
        // At the end of a PG the handle is where the next one begins.
        if page.handle <= self.cursor && self.batch.is_empty() {
            return Err(Error::Malformed("a listing that does not go on".into()));
        }
        self.cursor = page.handle;
        Ok(())
    }
}
