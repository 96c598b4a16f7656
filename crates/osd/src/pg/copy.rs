//! COPY_FROM: fetching another object, in parts, from the primary of its PG, which may be any OSD.
//!
//! The destination's primary asks ([`CopyRead`]) and asks again until it is answered, as messages may be lost and the
//! source may move. The source's primary treats the question as a client's read of the object, so its order among the
//! object's writes is theirs. A part is asked for together with the version that the first one had. The object is held in
//! memory until all of it is there: an OSD fetches one object at a time.

use std::sync::Arc;

use bytes::Bytes;
use spirula_denc::{Reader, decode_all, encode_to_vec};
use spirula_maps::{HObject, ReqId, SnapContext};
use spirula_proto::osd::{AssertVersionArgs, OpArgs};
use spirula_proto::osd::{MOsdOpReply, OpCode, OsdFlags, OsdOpIn};
use spirula_proto::osd_op_data::{CopyCursor, CopyData};

use super::errno::*;
use super::fetch::{Answer, Copied, CopyWant, Fetched, Want};
use super::message::{CopyPart, CopyRead, PeerBody, PeerMessage, PeeringId};
use super::op::{Asker, Client, ClientOp, OsdOp};
use super::{Ctx, Output, Pending, Pg};

/// Seconds after which a part is asked for again.
const RETRY: u64 = 3;

/// An object to be fetched for an op that waits.
#[derive(Debug)]
pub(super) struct CopyJob {
    /// The op's place among what is pending.
    seq: u32,
    want: CopyWant,
    started: bool,
    /// Parts that came.
    parts: u32,
    /// When a part was asked for last.
    asked: u64,
    cursor: CopyCursor,
    copied: Copied,
}

impl CopyJob {
    pub(super) fn new(seq: u32, want: CopyWant) -> Self {
        Self {
            seq,
            copied: Copied {
                user_version: want.version,
                ..Copied::default()
            },
            want,
            started: false,
            parts: 0,
            asked: 0,
            cursor: CopyCursor::default(),
        }
    }

    /// Names the part that is asked for.
    fn token(&self) -> u64 {
        u64::from(self.seq) << 32 | u64::from(self.parts)
    }

    /// Takes a part. Returns whether the object is complete.
    fn take(&mut self, user_version: u64, data: &[u8]) -> Result<bool, i32> {
        let part: CopyData = decode_all(data).map_err(|_| -EIO)?;
        let c = &mut self.copied;
        if self.parts == 0 {
            (c.size, c.mtime) = (part.size, part.mtime);
            c.truncate = (part.truncate_seq, part.truncate_size);
            c.attrs = part.attrs;
            c.user_version = user_version;
        }
        if !part.data.is_empty() {
            c.pieces.push((self.cursor.data_offset, part.data));
        }
        if !part.omap_header.is_empty() {
            c.omap_header = part.omap_header;
        }
        if !part.omap_data.is_empty() {
            let pairs: Vec<(Bytes, Bytes)> = Reader::new(&part.omap_data).get().map_err(|_| -EIO)?;
            c.pairs.extend(pairs);
        }
        self.cursor = part.cursor;
        self.parts += 1;
        Ok(self.cursor.is_complete())
    }
}

/// How far a PG is with fetching objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyState {
    /// Nothing to fetch.
    Idle,
    /// It would like to begin.
    Waiting,
    /// It has begun.
    Running,
}

impl Pg {
    /// Whether the PG fetches an object, or would like to.
    pub(crate) fn copy_state(&self) -> CopyState {
        match self.copies.front() {
            None => CopyState::Idle,
            Some(job) if job.started => CopyState::Running,
            Some(_) => CopyState::Waiting,
        }
    }

    /// Begins to fetch the next object.
    pub(crate) fn start_copy(&mut self, cx: &mut Ctx<'_>) {
        if let Some(job) = self.copies.front_mut() {
            job.started = true;
            self.ask_for_part(cx);
        }
    }

    fn ask_for_part(&mut self, cx: &mut Ctx<'_>) {
        let Some(job) = self.copies.front_mut() else {
            return;
        };
        job.asked = cx.usec;
        let w = &job.want;
        let Some(raw) = self.map.object_to_raw_pg(&w.oid, &w.locator) else {
            return self.copy_ended(Err(-ENOENT), cx);
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
        if matches!(self.pending.get(&job.seq), Some(Pending::Op(r)) if r.op.object == object) {
            return self.copy_ended(Err(-EINVAL), cx);
        }
        let read = CopyRead {
            token: job.token(),
            from: self.pgid,
            object,
            version: job.copied.user_version,
            cursor: job.cursor.clone(),
        };
        let Some(pgid) = self.map.raw_pg_to_pg(raw) else {
            return self.copy_ended(Err(-ENOENT), cx);
        };
        let primary = self.map.placement(pgid).primary;
        if primary >= 0 {
            self.send_to_pg(primary, pgid, PeerBody::CopyRead(read), cx);
        }
    }

    /// A message to another PG, which may be on this OSD too.
    fn send_to_pg(&self, osd: i32, pgid: spirula_maps::PgId, body: PeerBody, cx: &mut Ctx<'_>) {
        let id = PeeringId {
            epoch: self.map.epoch(),
            round: 0,
        };
        let msg = PeerMessage { pgid, id, body }.to_raw();
        cx.out.push(Output::Send {
            osd,
            msg,
            reply: false,
        });
    }

    /// Another OSD wants part of an object.
    pub(super) fn copy_read(&mut self, from: i32, epoch: u32, r: CopyRead, cx: &mut Ctx<'_>) {
        let mut input = encode_to_vec(&r.cursor);
        input.extend_from_slice(&self.cfg.copy_chunk.to_le_bytes());
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
        let op = ClientOp {
            client: Arc::new(Client::peer(asker)),
            tid: r.token,
            reqid: ReqId::default(),
            pgid: self.pgid,
            snapid: r.object.snap,
            object: HObject {
                snap: spirula_maps::snap::NOSNAP,
                ..r.object
            },
            epoch,
            flags: OsdFlags::READ,
            mtime: Default::default(),
            ops,
            snapc: SnapContext::default(),
            retry_attempt: 0,
            trace: Default::default(),
            stamps: Default::default(),
        };
        self.handle_op(op, cx);
    }

    /// Answers another OSD's question.
    pub(super) fn answer_asker(&self, asker: &Asker, reply: &MOsdOpReply, cx: &mut Ctx<'_>) {
        let data = reply.ops.last().map(|o| o.data.to_bytes()).unwrap_or_default();
        let part = CopyPart {
            token: asker.token,
            result: reply.result,
            user_version: reply.user_version,
            data,
        };
        self.send_to_pg(asker.osd, asker.pgid, PeerBody::CopyPart(part), cx);
    }

    /// Part of the object that is fetched.
    pub(super) fn copy_part(&mut self, p: CopyPart, cx: &mut Ctx<'_>) {
        let most = self.cfg.max_write_size as u64;
        let Some(job) = self
            .copies
            .front_mut()
            .filter(|j| j.started && j.token() == p.token)
        else {
            return;
        };
        let taken = if p.result < 0 {
            Err(p.result)
        } else {
            job.take(p.user_version, &p.data)
        };
        match taken {
            Err(e) => self.copy_ended(Err(e), cx),
            Ok(_) if job.copied.size > most || job.copied.len() > most => self.copy_ended(Err(-EFBIG), cx),
            Ok(false) => self.ask_for_part(cx),
            Ok(true) => {
                let copied = Arc::new(std::mem::take(&mut job.copied));
                self.copy_ended(Ok(copied), cx);
            }
        }
    }

    fn copy_ended(&mut self, result: Result<Arc<Copied>, i32>, cx: &mut Ctx<'_>) {
        let Some(job) = self.copies.pop_front() else {
            return;
        };
        if let Some(Pending::Op(reading)) = self.pending.remove(&job.seq) {
            let fetched = Fetched {
                want: Want::Copy(Box::new(job.want)),
                answer: Ok(Answer::Copy(result)),
            };
            self.op_fetched(*reading, vec![fetched], cx);
        }
    }

    /// Asks again for what was not answered.
    pub(super) fn retry_copy(&mut self, cx: &mut Ctx<'_>) {
        let late = |j: &CopyJob| j.started && cx.usec.saturating_sub(j.asked) >= RETRY * 1_000_000;
        if self.copies.front().is_some_and(late) {
            self.ask_for_part(cx);
        }
    }
}
