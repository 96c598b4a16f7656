//! Replies to clients and, for copies, to other OSDs.

use std::sync::Arc;

use bytes::Bytes;
use spirula_errno::{EAGAIN, Errno};
use spirula_maps::{EVersion, OsdId, ReqId};
use spirula_proto::osd::MOsdOpReply;

use super::describe::{OpRecord, Progress};
use super::message::{CopyPart, PeerBody, PeerMessage, PeeringId};
use super::op::{Asker, ClientOp};
use super::output::{Ctx, Output};
use super::site::Site;
use super::stored_copy::StoredCopy;

impl Site {
    /// Answers that the request was not executed.
    pub(super) fn fail(&self, op: &mut ClientOp, errno: Errno, cx: &mut Ctx<'_>) {
        cx.note_slow(op);
        let reply = op.error_reply(-errno, self.map.epoch());
        self.reply(op, reply, 0, cx);
    }

    pub(super) fn reply(&self, op: &ClientOp, reply: MOsdOpReply, data_off: u16, cx: &mut Ctx<'_>) {
        // Taken here also where nobody asks for it: the next request to be answered is another one.
        let description = cx.described.take();
        if let Some(asker) = &op.client.asker {
            return self.answer_asker(asker, &reply, cx);
        }
        if op.client.is_internal() {
            // The PG's own ops are checked where they end.
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

    /// Sends a message to another PG, which may be on this OSD too.
    pub(super) fn send_to_pg(&self, osd: OsdId, pgid: spirula_maps::PgId, body: PeerBody, cx: &mut Ctx<'_>) {
        let id = PeeringId {
            epoch: self.map.epoch(),
            round: 0,
        };
        let msg = cx.versions.write(osd, &PeerMessage { pgid, id, body });
        cx.out.push(Output::Send {
            osd,
            msg,
            reply: false,
        });
    }

    /// The record of a request that was answered. Its sub-ops went to the acting set, which has not
    /// changed, as a request does not outlive its interval.
    fn record_of(&self, op: &ClientOp, description: String) -> OpRecord {
        let peers = if !op.stamps.sub_ops_sent.is_zero() {
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

    /// Tells clients to send these ops to the primary.
    pub(super) fn send_to_primary(&self, ops: impl IntoIterator<Item = ClientOp>, cx: &mut Ctx<'_>) {
        for mut op in ops {
            op.reset();
            self.fail(&mut op, EAGAIN, cx);
        }
    }
}

/// The answer to a request.
#[derive(Debug)]
pub(super) struct Answered {
    /// The request's place in the log.
    pub(super) version: EVersion,
    user_version: u64,
    return_code: i32,
    /// Result and data of each op, for requests that asked for them.
    op_returns: Vec<(i32, Bytes)>,
}

impl Site {
    /// Answers a request as the first time, with the data that its ops were to return.
    pub(super) fn reply_again(&self, mut op: ClientOp, answer: &Answered, cx: &mut Ctx<'_>) {
        cx.note_slow(&op);
        let mut reply = op.error_reply(answer.return_code, self.map.epoch());
        reply.set_versions(answer.version, answer.user_version);
        for (out, (result, data)) in reply.ops.iter_mut().zip(&answer.op_returns) {
            out.result = *result;
            out.data = data.clone().into();
        }
        self.reply(&op, reply, 0, cx);
    }
}

impl StoredCopy {
    /// The earlier answer to a request, from the log or the batches of its older entries. If
    /// neither has it, the request is a new one, as in Ceph.
    pub(super) fn answer_to(&self, request: &ReqId) -> Option<Answered> {
        if let Some(e) = self.log.find(request) {
            return Some(Answered {
                version: e.version,
                user_version: e.user_version,
                return_code: e.return_code,
                op_returns: e.op_returns.clone(),
            });
        }
        let d = self.dups.find(request)?;
        Some(Answered {
            version: d.version,
            user_version: d.user_version,
            return_code: d.return_code,
            op_returns: d.op_returns.to_vec(),
        })
    }
}
