//! Listings: PGNLS and PGLS, one page of the PG's objects after a cursor.

use bytes::Bytes;
use spirula_denc::{Decode, Encode, Reader, Writer};
use spirula_maps::{HObject, snap};
use spirula_proto::osd::{OpCode, OsdFlags};
use spirula_proto::osd_op_data::{ListEntry, PgLsEntry, PgLsResponse, PgNlsResponse};

use super::errno::*;
use super::op::ClientOp;
use super::{Ctx, Output, Page, Pending, Pg, ReadError, key};

/// Names all namespaces in a listing.
const ALL_NAMESPACES: &[u8] = b"\x01";

/// A listing that waits for the store.
#[derive(Debug)]
pub(super) struct Listing {
    pub op: ClientOp,
    /// Which op of the request it is.
    index: usize,
}

impl Pg {
    /// A request about the PG: its ops in order, of which each may have to wait for the store.
    pub(super) fn list(&mut self, op: ClientOp, cx: &mut Ctx<'_>) {
        self.list_from(op, 0, 0, cx);
    }

    fn list_from(&mut self, mut op: ClientOp, mut index: usize, mut result: i32, cx: &mut Ctx<'_>) {
        while result >= 0 && index < op.ops.len() {
            match self.list_cursor(&op, index) {
                Ok((from, count)) => {
                    let (_, to) = self.range();
                    let token = self.token(Pending::List(Box::new(Listing { op, index })));
                    cx.out.push(Output::List {
                        token,
                        from,
                        to,
                        max: count,
                    });
                    return;
                }
                Err(e) => result = e,
            }
            op.ops[index].rval = result;
            index += 1;
        }
        cx.note_slow(&op);
        let mut reply = op.reply(result, self.map.epoch(), OsdFlags::ACK | OsdFlags::ONDISK);
        reply.set_versions(self.info.last_update, self.info.last_user_version);
        self.reply(&op, reply, 0, cx);
    }

    /// Where the listing starts, and the most entries it may return.
    fn list_cursor(&self, op: &ClientOp, index: usize) -> Result<(Bytes, usize), i32> {
        let o = &op.ops[index];
        if o.code != OpCode::PGNLS && o.code != OpCode::PGLS {
            // Filters are classes' or name attributes of directories: none is known. Other PG ops neither.
            let filter = o.code == OpCode::PGNLS_FILTER || o.code == OpCode::PGLS_FILTER;
            return Err(if filter { -EINVAL } else { -EOPNOTSUPP });
        }
        if op.snapid != snap::NOSNAP {
            return Err(-EINVAL);
        }
        let cursor = HObject::decode(&mut Reader::new(&o.indata)).map_err(|_| -EINVAL)?;
        let (start, end) = self.range();
        let at = if cursor.is_min() {
            start.clone()
        } else {
            key::object_key(&cursor)
        };
        if at < start || at >= end && !cursor.max && o.code == OpCode::PGNLS {
            return Err(-EINVAL);
        }
        let count = usize::try_from(o.list_count().min(self.cfg.max_pgls)).unwrap_or(usize::MAX);
        Ok((at, count.max(1)))
    }

    /// The store's page.
    pub(super) fn listed(&mut self, l: Listing, r: Result<Page, ReadError>, cx: &mut Ctx<'_>) {
        let Listing { mut op, index } = l;
        let result = match r {
            Ok((objects, next)) => self.fill_page(&mut op, index, objects, next),
            Err(_) => -EIO,
        };
        op.ops[index].rval = result;
        self.list_from(op, index + 1, result, cx);
    }

    fn fill_page(
        &self,
        op: &mut ClientOp,
        index: usize,
        objects: Vec<(Bytes, Bytes)>,
        next: Option<Bytes>,
    ) -> i32 {
        let namespaces = op.ops[index].code == OpCode::PGNLS;
        let nspace = op.object.nspace.clone();
        let all = namespaces && nspace.as_bytes() == ALL_NAMESPACES;
        let next = next.and_then(|k| key::parse_object_key(&k));
        let ended = next.is_none();
        // Whiteouts are listed, as the official OSD does.
        let found = objects
            .iter()
            .filter_map(|(k, _)| key::parse_object_key(k))
            .filter(|o| o.is_head() && (all || o.nspace == nspace));
        let mut w = Writer::new();
        if namespaces {
            let entries = found
                .map(|o| ListEntry {
                    nspace: o.nspace,
                    oid: o.oid,
                    locator: o.key,
                })
                .collect();
            // At the end, the place where the next PG starts: a cursor that stays right when PGs split.
            let handle = next.unwrap_or_else(|| self.pgid.hobj_end(self.pool.pg_num));
            PgNlsResponse { handle, entries }.encode(&mut w);
        } else {
            let entries = found
                .map(|o| PgLsEntry {
                    oid: o.oid,
                    locator: o.key,
                })
                .collect();
            PgLsResponse {
                handle: next.unwrap_or_else(HObject::max),
                entries,
            }
            .encode(&mut w);
        }
        op.ops[index].outdata.push(w.into_vec().into());
        i32::from(ended)
    }
}
