//! Asks other PGs for the parts of an object that is copied, and answers such questions.

use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::{Micros, encode_to_vec};
use spirula_errno::*;
use spirula_invariant::{dropped, impossible, invariant};
use spirula_maps::{Epoch, HObject};
use spirula_maps::{OsdId, types::or_none};
use spirula_proto::osd::{AssertVersionArgs, OpArgs};
use spirula_proto::osd::{OpCode, OsdFlags, OsdOpIn};

use super::CopyFetch;
use crate::pg::message::{CopyPart, CopyRead, PeerBody};
use crate::pg::op::{Asker, Client, ClientOp, OsdOp};
use crate::pg::output::Ctx;
use crate::pg::perf::DropReason;
use crate::pg::serving::Serving;
use crate::pg::stage::handler::Staging;
use crate::pg::store_queue::Pending;

/// Seconds after which a part is asked for again.
const RETRY: Micros = Micros::from_secs(3);

/// The token of a part: the op that waits for it, and its number.
fn part_token(seq: u32, parts: u32) -> u64 {
    u64::from(seq) << 32 | u64::from(parts)
}

impl Staging<'_> {
    /// Asks for the next part of the object that an op copies.
    pub(in crate::pg) fn ask_for_part(&mut self, seq: u32, cx: &mut Ctx<'_>) {
        let Some(fetch) = self.serving.ops.stages.running_copy(seq) else {
            impossible!("a copy whose next part is asked for to be under way"; pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch(), job = seq);
        };
        invariant!(
            !fetch.is_complete(),
            "a copy that is asked for more to lack something";
            pg = self.serving.site.pgid, epoch = self.serving.site.map.epoch(), job = seq
        );
        (fetch.asked, fetch.waiting) = (cx.usec, true);
        let w = &fetch.want;
        let Some(raw) = self.serving.site.map.object_to_raw_pg(&w.oid, &w.locator) else {
            return self.stage_failed(seq, ENOENT, cx);
        };
        let object = HObject {
            oid: w.oid.clone(),
            key: w.locator.key.clone(),
            nspace: w.locator.nspace.clone(),
            pool: or_none::number(w.locator.pool),
            hash: raw.seed,
            snap: w.snapid,
            ..HObject::min()
        };
        if matches!(self.serving.store.pending.get(&seq), Some(Pending::Op(r)) if r.op.object == object) {
            return self.stage_failed(seq, EINVAL, cx);
        }
        let read = CopyRead {
            token: part_token(seq, fetch.parts),
            from: self.serving.site.pgid,
            object,
            version: fetch.copied.user_version,
            cursor: fetch.cursor.clone(),
        };
        let Some(pgid) = self.serving.site.map.raw_pg_to_pg(raw) else {
            return self.stage_failed(seq, ENOENT, cx);
        };
        let primary = self.serving.site.map.placement(pgid).primary;
        if let Some(fetch) = self.serving.ops.stages.running_copy(seq) {
            fetch.asked_of = primary;
        }
        if let Some(primary) = primary {
            self.serving
                .site
                .send_to_pg(primary, pgid, PeerBody::CopyRead(read), cx);
        }
    }

    /// Handles a part of an object that is fetched.
    pub(in crate::pg) fn copy_part(&mut self, from: OsdId, p: CopyPart, cx: &mut Ctx<'_>) {
        let seq = (p.token >> 32) as u32;
        let fetch = self.serving.ops.stages.running_copy(seq);
        let Some(fetch) = fetch.filter(|f| f.waiting && part_token(seq, f.parts) == p.token) else {
            return dropped!(cx.perf.dropped, DropReason::PeerLate);
        };
        if fetch.asked_of != Some(from) {
            return dropped!(cx.perf.dropped, DropReason::PeerForeign);
        }
        let taken = match Errno::of_result(p.result) {
            Some(errno) => Err(errno),
            None => fetch.take(p.user_version, &p.data),
        };
        let complete = fetch.is_complete();
        match taken {
            Err(e) => self.stage_failed(seq, e, cx),
            Ok(ops) => self.stage_part(seq, ops, complete, cx),
        }
    }

    /// Asks again for parts that were not answered.
    pub(in crate::pg) fn retry_copies(&mut self, cx: &mut Ctx<'_>) {
        let late = |f: &CopyFetch| f.waiting && cx.usec.saturating_sub(f.asked) >= RETRY;
        let copies = self.serving.ops.stages.running_copies();
        let late: Vec<u32> = copies.filter(|(_, f)| late(f)).map(|(seq, _)| seq).collect();
        for seq in late {
            self.ask_for_part(seq, cx);
        }
    }
}

impl Serving<'_> {
    /// Handles another OSD's question for part of an object.
    pub(in crate::pg) fn copy_read(&mut self, from: OsdId, epoch: Epoch, r: CopyRead, cx: &mut Ctx<'_>) {
        if self.site.map.placement(r.from).primary != Some(from) {
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
