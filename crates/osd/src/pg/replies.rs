//! Replies to clients and, for copies, to other OSDs.

use std::sync::Arc;

use spirula_proto::osd::MOsdOpReply;

use super::describe::{OpRecord, Progress};
use super::errno::EAGAIN;
use super::message::{CopyPart, PeerBody, PeerMessage, PeeringId};
use super::op::{Asker, ClientOp};
use super::output::{Ctx, Output};
use super::site::Site;
use super::stored_copy::StoredCopy;

impl Site {
    /// Answers that the request was not executed.
    pub(super) fn fail(&self, op: &mut ClientOp, result: i32, cx: &mut Ctx<'_>) {
        cx.note_slow(op);
        let reply = op.error_reply(result, self.map.epoch());
        self.reply(op, reply, 0, cx);
    }

    pub(super) fn reply(&self, op: &ClientOp, reply: MOsdOpReply, data_off: u16, cx: &mut Ctx<'_>) {
        // Taken here also where nobody asks for it: the next request to be answered is another one.
        let description = cx.described.take();
        if let Some(asker) = &op.client.asker {
            return self.answer_asker(asker, &reply, cx);
        }
        if op.client.is_internal() {
            return;
        }
        let client = Arc::clone(&op.client);
        let record = description.map(|d| Box::new(self.record_of(op, d)));
        cx.out.push(Output::Reply {
            client,
            reply: Box::new(reply),
            data_off,
            stamps: op.stamps,
            record,
        });
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

    /// A message to another PG, which may be on this OSD too.
    pub(super) fn send_to_pg(&self, osd: i32, pgid: spirula_maps::PgId, body: PeerBody, cx: &mut Ctx<'_>) {
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

    /// What is remembered of a request that was answered. Its sub-ops went to the acting set, which has not changed, as
    /// a request does not outlive its interval.
    fn record_of(&self, op: &ClientOp, description: String) -> OpRecord {
        let peers = if op.stamps.sub_ops_sent != 0 {
            self.others()
        } else {
            Vec::new()
        };
        OpRecord {
            description,
            client: op.client.name,
            addr: op.client.addr,
            tid: op.tid,
            pgid: self.pgid,
            stamps: op.stamps,
            peers,
            progress: Progress::Done,
        }
    }

    /// Tells clients to ask the primary.
    pub(super) fn send_to_primary(&self, ops: impl IntoIterator<Item = ClientOp>, cx: &mut Ctx<'_>) {
        for mut op in ops {
            op.reset();
            self.fail(&mut op, -EAGAIN, cx);
        }
    }
}

impl StoredCopy {
    pub(super) fn reply_dup(
        &self,
        site: &Site,
        mut op: ClientOp,
        version: spirula_maps::EVersion,
        cx: &mut Ctx<'_>,
    ) {
        let Some(e) = self.log.find(&op.reqid).filter(|e| e.version == version) else {
            return;
        };
        cx.note_slow(&op);
        let mut reply = op.error_reply(e.return_code, site.map.epoch());
        reply.set_versions(e.version, e.user_version);
        for (out, (result, data)) in reply.ops.iter_mut().zip(&e.op_returns) {
            out.result = *result;
            out.data = data.clone().into();
        }
        site.reply(&op, reply, 0, cx);
    }

    /// Answers a request that is no longer in the log.
    pub(super) fn reply_forgotten(&self, site: &Site, mut op: ClientOp, cx: &mut Ctx<'_>) {
        let Some(d) = self.dups.find(&op.reqid) else {
            return;
        };
        let mut reply = op.error_reply(d.return_code, site.map.epoch());
        reply.set_versions(d.version, d.user_version);
        for (out, (result, data)) in reply.ops.iter_mut().zip(&d.op_returns) {
            out.result = *result;
            out.data = data.clone().into();
        }
        site.reply(&op, reply, 0, cx);
    }
}
