//! Listing the objects of a pool.

use std::collections::VecDeque;

use spirula_maps::{HObject, ObjectName, PgId};
use spirula_proto::osd::{ListArgs, OpArgs, OpCode, OsdOpIn};
use spirula_proto::osd_op_data::{ListEntry, PgNlsResponse};

use crate::objecter::Aim;
use crate::{Error, IoCtx, Result};

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

/// A listing under way. Goes through the PGs in order, each with a cursor that survives splits.
pub struct ObjectList {
    io: IoCtx,
    seed: u32,
    cursor: HObject,
    done: bool,
    batch: VecDeque<ListEntry>,
}

impl ObjectList {
    pub(crate) fn new(io: IoCtx, all: bool) -> Self {
        let io = if all {
            io.with_namespace(ALL_NAMESPACES)
        } else {
            io
        };
        Self {
            io,
            seed: 0,
            cursor: HObject::min(),
            done: false,
            batch: VecDeque::new(),
        }
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
            if self.done {
                return Ok(None);
            }
            self.fetch().await?;
        }
    }

    async fn fetch(&mut self) -> Result<()> {
        if self.io.rados().map().is_none() {
            self.io.rados().latest_map().await?;
        }
        let pg = PgId {
            pool: self.io.pool_id().cast_unsigned(),
            seed: self.seed,
        };
        let args = ListArgs {
            count: BATCH,
            start_epoch: 0,
        };
        let op = OsdOpIn::new(
            OpCode::PGNLS,
            OpArgs::List(args),
            spirula_denc::encode_to_vec(&self.cursor),
        );
        let reply = self.io.send(ObjectName::EMPTY, vec![op], Aim::Pg(pg)).await?;
        if reply.result < 0 {
            return Err(Error::os("list", reply.result));
        }
        let data = reply.ops.first().map(|o| o.data.to_bytes()).unwrap_or_default();
        let page: PgNlsResponse = spirula_denc::Reader::new(&data).get()?;
        self.batch = page.entries.into();
        // Result 1: the PG is at its end; the handle is where the next one begins.
        if reply.result == 1 {
            self.seed += 1;
            self.cursor = HObject::min();
            self.done = self.seed >= self.io.pg_num()?;
        } else {
            self.cursor = page.handle;
        }
        Ok(())
    }
}

impl IoCtx {
    /// Where listings run: for messages.
    pub fn namespace(&self) -> &ObjectName {
        &self.locator().nspace
    }
}
