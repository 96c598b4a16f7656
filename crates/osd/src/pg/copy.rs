//! COPY_FROM: fetching another object, in parts, from the primary of its PG, which may be any OSD.
//!
//! The destination's primary asks ([`CopyRead`]) and asks again until it is answered, as messages may be lost and the
//! source may move. The source's primary treats the question as a client's read of the object, so its order among the
//! object's writes is theirs. A part is asked for together with the version that the first one had. An object of one small part
//! is copied in one change; of a larger one each part goes into a staging object before the next is asked for ([`super::stage`]).

use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::{Reader, decode_all, encode_to_vec};
use spirula_invariant::dropped;
use spirula_maps::HObject;
use spirula_proto::osd::{AssertVersionArgs, OpArgs};
use spirula_proto::osd::{OpCode, OsdFlags, OsdOpIn};
use spirula_proto::osd_op_data::{CopyCursor, CopyData};

use super::errno::*;
use super::fetch::{Copied, CopyWant};
use super::message::{CopyPart, CopyRead, PeerBody};
use super::op::{Asker, Client, ClientOp, OsdOp};
use super::output::Ctx;
use super::perf::DropReason;
use super::serving::Serving;
use super::stage::Staging;
use super::store_queue::Pending;
use super::txn::ObjectOp;

/// Seconds after which a part is asked for again.
const RETRY: u64 = 3;

/// An object that is fetched for an op that waits.
#[derive(Debug)]
pub(super) struct CopyFetch {
    want: CopyWant,
    /// Parts that came.
    parts: u32,
    /// When a part was asked for last.
    asked: u64,
    /// Of which OSD; -1 for none.
    asked_of: i32,
    /// Whether that was not answered yet.
    waiting: bool,
    cursor: CopyCursor,
    /// What is known of it so far, without its content.
    pub(super) copied: Copied,
}

impl CopyFetch {
    pub(super) fn new(want: CopyWant) -> Self {
        Self {
            copied: Copied {
                user_version: want.version,
                ..Copied::default()
            },
            want,
            parts: 0,
            asked: 0,
            asked_of: -1,
            waiting: false,
            cursor: CopyCursor::default(),
        }
    }

    /// Whether all of it was fetched.
    pub(super) fn is_complete(&self) -> bool {
        self.cursor.is_complete()
    }

    /// Takes a part. Returns what it adds to the copy.
    fn take(&mut self, user_version: u64, data: &[u8]) -> Result<Vec<ObjectOp>, i32> {
        let part: CopyData = decode_all(data).map_err(|_| -EIO)?;
        let (c, mut ops) = (&mut self.copied, Vec::new());
        if self.parts == 0 {
            (c.size, c.mtime) = (part.size, part.mtime);
            c.truncate = (part.truncate_seq, part.truncate_size);
            c.attrs = part.attrs;
            c.user_version = user_version;
        }
        if !part.data.is_empty() {
            ops.push(ObjectOp::Write {
                offset: self.cursor.data_offset,
                data: part.data,
            });
        }
        if !part.omap_header.is_empty() {
            c.has_omap = true;
            ops.push(ObjectOp::OmapHeader(part.omap_header));
        }
        if !part.omap_data.is_empty() {
            c.has_omap = true;
            let pairs = Reader::new(&part.omap_data).get().map_err(|_| -EIO)?;
            ops.push(ObjectOp::OmapSet(pairs));
        }
        self.cursor = part.cursor;
        self.parts += 1;
        self.waiting = false;
        Ok(ops)
    }
}

/// Names a part: the op that waits for it, and which one it is.
fn part_token(seq: u32, parts: u32) -> u64 {
    u64::from(seq) << 32 | u64::from(parts)
}

impl Staging<'_> {
    /// Asks for the next part of what an op copies.
    pub(super) fn ask_for_part(&mut self, seq: u32, cx: &mut Ctx<'_>) {
        let Some(fetch) = self.serving.ops.stages.running_copy(seq) else {
            return;
        };
        (fetch.asked, fetch.waiting) = (cx.usec, true);
        let w = &fetch.want;
        let Some(raw) = self.serving.site.map.object_to_raw_pg(&w.oid, &w.locator) else {
            return self.stage_failed(seq, -ENOENT, cx);
        };
        let object = HObject {
            oid: w.oid.clone(),
            key: w.locator.key.clone(),
            nspace: w.locator.nspace.clone(),
            pool: w.locator.pool,
            hash: raw.seed,
            snap: w.snapid,
            ..HObject::min()
        };
        if matches!(self.serving.store.pending.get(&seq), Some(Pending::Op(r)) if r.op.object == object) {
            return self.stage_failed(seq, -EINVAL, cx);
        }
        let read = CopyRead {
            token: part_token(seq, fetch.parts),
            from: self.serving.site.pgid,
            object,
            version: fetch.copied.user_version,
            cursor: fetch.cursor.clone(),
        };
        let Some(pgid) = self.serving.site.map.raw_pg_to_pg(raw) else {
            return self.stage_failed(seq, -ENOENT, cx);
        };
        let primary = self.serving.site.map.placement(pgid).primary;
        if let Some(fetch) = self.serving.ops.stages.running_copy(seq) {
            fetch.asked_of = primary;
        }
        if primary >= 0 {
            self.serving
                .site
                .send_to_pg(primary, pgid, PeerBody::CopyRead(read), cx);
        }
    }

    /// Part of an object that is fetched.
    pub(super) fn copy_part(&mut self, from: i32, p: CopyPart, cx: &mut Ctx<'_>) {
        let seq = (p.token >> 32) as u32;
        let fetch = self.serving.ops.stages.running_copy(seq);
        let Some(fetch) = fetch.filter(|f| f.waiting && part_token(seq, f.parts) == p.token) else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate);
        };
        if fetch.asked_of != from {
            return dropped!(cx.perf.dropped, DropReason::PeerForeign);
        }
        let taken = if p.result < 0 {
            Err(p.result)
        } else {
            fetch.take(p.user_version, &p.data)
        };
        let complete = fetch.is_complete();
        match taken {
            Err(e) => self.stage_failed(seq, e, cx),
            Ok(ops) => self.stage_part(seq, ops, complete, cx),
        }
    }

    /// Asks again for what was not answered.
    pub(super) fn retry_copies(&mut self, cx: &mut Ctx<'_>) {
        let late = |f: &CopyFetch| f.waiting && cx.usec.saturating_sub(f.asked) >= RETRY * 1_000_000;
        let copies = self.serving.ops.stages.running_copies();
        let late: Vec<u32> = copies.filter(|(_, f)| late(f)).map(|(seq, _)| seq).collect();
        for seq in late {
            self.ask_for_part(seq, cx);
        }
    }
}

impl Serving<'_> {
    /// Another OSD wants part of an object.
    pub(super) fn copy_read(&mut self, from: i32, epoch: u32, r: CopyRead, cx: &mut Ctx<'_>) {
        if self.site.map.placement(r.from).primary != from {
            // By an older map it may have been.
            let is_stale = epoch < self.site.map.epoch();
            return dropped!(cx.perf.dropped, DropReason::of_stranger(is_stale));
        }
        let mut input = encode_to_vec(&r.cursor);
        input.extend_from_slice(&self.site.cfg.copy_chunk.to_le_bytes());
        let mut ops = Vec::new();
        if r.version > 0 {
            let args = AssertVersionArgs {
                unused: 0,
                version: r.version,
            };
            let args = OpArgs::AssertVersion(args);
            ops.push(OsdOp::from(OsdOpIn::new(OpCode::ASSERT_VER, args, Bytes::new())));
        }
        ops.push(OsdOp::from(OsdOpIn::new(OpCode::COPY_GET, OpArgs::None, input)));
        let asker = Asker {
            osd: from,
            pgid: r.from,
            token: r.token,
        };
        let object = HObject {
            snap: spirula_maps::snap::NOSNAP,
            ..r.object
        };
        let op = ClientOp {
            client: Arc::new(Client::peer(asker)),
            tid: r.token,
            snapid: r.object.snap,
            epoch,
            flags: OsdFlags::READ,
            ..self.site.internal_op(object, ops, cx.usec)
        };
        self.handle_op(op, cx);
    }
}
