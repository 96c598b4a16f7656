//! Answers a request for a listing, page by page.

use std::collections::VecDeque;

use bytes::Bytes;
use spirula_classes::{Filter, FilterKind};
use spirula_denc::{Decode, Encode, Reader, Writer};
use spirula_errno::*;
use spirula_invariant::{impossible, invariant};
use spirula_maps::{HObject, snap};
use spirula_proto::osd::{ListArgs, OpCode, OsdFlags};
use spirula_proto::osd_op_data::{ListEntry, PgLsEntry, PgLsResponse, PgNlsResponse};

use super::Listing;
use crate::pg::fetch::{Answer, Fetched, ReadError, Want};
use crate::pg::key::{self, KeyRange};
use crate::pg::op::{ClientOp, OsdOp};
use crate::pg::op_checks::in_class_list;
use crate::pg::output::{Ctx, Page};
use crate::pg::scrub::findings::Findings;
use crate::pg::serving::Serving;
use crate::pg::site::Site;
use crate::pg::store_queue::Pending;

/// The namespace of a listing that means all namespaces.
const ALL_NAMESPACES: &[u8] = b"\x01";
/// The number of objects that are read for a filter at a time: the attributes of one may have a
/// MiB.
const READ_AT_ONCE: usize = 8;

/// Whether an op lists the objects of all namespaces, or of one that its answer does not name.
fn has_namespaces(code: OpCode) -> bool {
    matches!(code, OpCode::PGNLS | OpCode::PGNLS_FILTER)
}

/// The parameters of a listing.
struct Asked {
    from: Bytes,
    count: usize,
    filter: Option<Box<dyn Filter>>,
}

impl Site {
    /// Where the listing starts, the most entries it may return, and its filter.
    fn asked(&self, op: &ClientOp, o: &OsdOp) -> Result<Asked, Errno> {
        let mut input = Reader::new(&o.indata);
        let filter = match o.code {
            OpCode::PGNLS | OpCode::PGLS => None,
            OpCode::PGNLS_FILTER | OpCode::PGLS_FILTER => Some(self.filter(&mut input)?),
            _ => return Err(EOPNOTSUPP),
        };
        if op.snapid != snap::NOSNAP {
            return Err(EINVAL);
        }
        let cursor = HObject::decode(&mut input).map_err(|_| EINVAL)?;
        let KeyRange { from: start, to: end } = self.range();
        let from = if cursor.is_min() {
            start.clone()
        } else {
            key::object_key(&cursor)
        };
        if from < start || from >= end && !cursor.max && has_namespaces(o.code) {
            return Err(EINVAL);
        }
        let count = usize::try_from(o.args::<ListArgs>().count.min(self.cfg.max_pgls)).unwrap_or(usize::MAX);
        Ok(Asked {
            from,
            count: count.max(1),
            filter,
        })
    }

    /// The filter at the beginning of a request: two words that are always the same, the kind, and
    /// the parameters of the kind.
    fn filter(&self, input: &mut Reader<'_>) -> Result<Box<dyn Filter>, Errno> {
        let words: spirula_denc::Result<(&[u8], &[u8], &[u8])> =
            (|| Ok((input.blob()?, input.blob()?, input.blob()?)))();
        let (_, _, kind) = words.map_err(|_| EINVAL)?;
        let filter = self.filter_kind(kind)?.filter(input);
        filter.map_err(|_| EINVAL)
    }

    /// The kind of filter of a name: one of the OSD's own, or `CLASS.FILTER`.
    fn filter_kind(&self, name: &[u8]) -> Result<&'static FilterKind, Errno> {
        if name == spirula_classes::PLAIN.name.as_bytes() {
            return Ok(&spirula_classes::PLAIN);
        }
        let dot = name.iter().position(|b| *b == b'.').ok_or(EINVAL)?;
        let (class, filter) = (&name[..dot], &name[dot + 1..]);
        if class.is_empty() || filter.is_empty() {
            return Err(EINVAL);
        }
        if !in_class_list(&self.cfg.class_load_list, class) {
            return Err(EPERM);
        }
        let class = spirula_classes::find(class);
        class.and_then(|c| c.filter(filter)).ok_or(EINVAL)
    }
}

impl Serving<'_> {
    /// Handles a request about the PG: its ops in order, each of which may have to wait for the
    /// store.
    pub(in crate::pg) fn list(&mut self, op: ClientOp, cx: &mut Ctx<'_>) {
        self.list_from(op, 0, 0, cx);
    }

    fn list_from(&mut self, mut op: ClientOp, mut index: usize, mut result: i32, cx: &mut Ctx<'_>) {
        while result >= 0 && index < op.ops.len() {
            if op.ops[index].code == OpCode::SCRUBLS {
                let Some((refused, e)) = Findings::of(self.reborrow()).read(op, index, cx) else {
                    return; // It is read.
                };
                op = refused;
                result = -e;
            } else {
                match self.site.asked(&op, &op.ops[index]) {
                    Ok(Asked { from, count, filter }) => {
                        let rest = self.site.range().rest(from);
                        let listing = Listing {
                            op,
                            index,
                            filter,
                            left: VecDeque::new(),
                            kept: Vec::new(),
                            next: None,
                        };
                        let what = Pending::List(Box::new(listing));
                        return self.store.list(rest, count, what, cx);
                    }
                    Err(e) => result = -e,
                }
            }
            op.ops[index].rval = result;
            index += 1;
        }
        cx.note_slow(&op);
        let mut reply = op.reply(
            result,
            self.site.map.epoch(),
            OsdFlags::ACK.with(OsdFlags::ONDISK),
        );
        reply.set_versions(self.copy.info.last_update, self.copy.info.last_user_version);
        self.site.reply(&op, reply, 0, cx);
    }

    /// Handles the store's page.
    pub(in crate::pg) fn listed(&mut self, mut l: Listing, r: Result<Page, ReadError>, cx: &mut Ctx<'_>) {
        let Ok((objects, next)) = r else {
            return self.list_done(l, -EIO, cx);
        };
        l.next = next.and_then(|k| key::parse_object_key(&k));
        let nspace = &l.op.object.nspace;
        let all = has_namespaces(l.op.ops[l.index].code) && nspace.as_bytes() == ALL_NAMESPACES;
        // Whiteouts are listed, as the official OSD does.
        let found = objects
            .iter()
            .filter_map(|(k, _)| key::parse_object_key(k))
            .filter(|o| o.is_head() && (all || o.nspace == *nspace));
        match &l.filter {
            None => l.kept = found.collect(),
            Some(f) if f.attribute().is_empty() => {
                let nothing = Bytes::new();
                l.kept = found
                    .filter(|o| f.wants(o.oid.as_bytes(), Some(&nothing)))
                    .collect();
            }
            Some(_) => l.left = found.collect(),
        }
        self.list_on(l, cx);
    }

    /// Reads the next objects for the filter, if there are any.
    fn list_on(&mut self, mut l: Listing, cx: &mut Ctx<'_>) {
        let keys = l.left.iter().take(READ_AT_ONCE).map(key::object_key);
        let wants: Vec<_> = keys.map(Want::Object).collect();
        let Some(Want::Object(first)) = wants.first() else {
            let result = l.fill_page(self.site.pgid.hobj_end(self.site.pool.pg_num));
            return self.list_done(l, result, cx);
        };
        let key = first.clone();
        self.store.read(key, wants, None, Pending::List(Box::new(l)), cx);
    }

    /// Filters the objects that were read.
    pub(in crate::pg) fn list_fetched(&mut self, mut l: Listing, fetched: Vec<Fetched>, cx: &mut Ctx<'_>) {
        for f in fetched {
            let (Some(o), Some(filter)) = (l.left.pop_front(), &l.filter) else {
                impossible!("an object that was read for a listing to be one that its filter is to judge"; pg = self.site.pgid, epoch = self.site.map.epoch());
            };
            let stored = match f.answer {
                Ok(Answer::Object(stored)) => stored,
                _ => return self.list_done(l, -EIO, cx),
            };
            // One that was removed meanwhile is not listed.
            let Some(stored) = stored else { continue };
            let name = filter.attribute().strip_prefix(b"_");
            let value = name.and_then(|n| stored.attrs.get(n));
            if filter.wants(o.oid.as_bytes(), value) {
                l.kept.push(o);
            }
        }
        self.list_on(l, cx);
    }

    /// Sets the listing's result, and goes on with the next op of the request.
    fn list_done(&mut self, l: Listing, result: i32, cx: &mut Ctx<'_>) {
        let Listing { op, index, .. } = l;
        self.pg_op_done(op, index, result, cx);
    }

    /// Sets the result of an op about the PG, and goes on with the next one of the request.
    pub(in crate::pg) fn pg_op_done(
        &mut self,
        mut op: ClientOp,
        index: usize,
        result: i32,
        cx: &mut Ctx<'_>,
    ) {
        if !self.role.has_lease(&self.site.cfg, cx.usec) {
            return self.list_later(op, cx);
        }
        invariant!(index < op.ops.len(), "a listing to be one of its request's ops"; pg = self.site.pgid, epoch = self.site.map.epoch(), index = index);
        op.ops[index].rval = result;
        self.list_from(op, index + 1, result, cx);
    }
}

impl Listing {
    /// Writes the answer and returns the result. `pg_end`: the place where the next PG starts.
    fn fill_page(&mut self, pg_end: HObject) -> i32 {
        let o = &mut self.op.ops[self.index];
        let kept = std::mem::take(&mut self.kept).into_iter();
        let next = self.next.take();
        let ended = next.is_none();
        let mut w = Writer::new();
        if has_namespaces(o.code) {
            let entries = kept
                .map(|o| ListEntry {
                    nspace: o.nspace,
                    oid: o.oid,
                    locator: o.key,
                })
                .collect();
            // At the end, a cursor that stays right when PGs split.
            let handle = next.unwrap_or(pg_end);
            PgNlsResponse { handle, entries }.encode(&mut w);
        } else {
            let entries = kept
                .map(|o| PgLsEntry {
                    oid: o.oid,
                    locator: o.key,
                })
                .collect();
            let handle = next.unwrap_or_else(HObject::max);
            PgLsResponse { handle, entries }.encode(&mut w);
        }
        o.outdata.push(w.into_vec().into());
        i32::from(ended)
    }
}
