//! Requests that are answered once, and sent again on every new session until they are.

use std::collections::BTreeMap;

use bytes::Bytes;
use spirula_proto::mon::{MMonCommandAck, MMonGetVersionReply};
use spirula_proto::{MsgType, Payload, RawMessage};
use tokio::sync::oneshot;

/// The outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandReply {
    /// 0, or a negative errno.
    pub result: i32,
    /// The status line.
    pub status: String,
    /// The output.
    pub output: Bytes,
}

impl From<MMonCommandAck> for CommandReply {
    fn from(m: MMonCommandAck) -> Self {
        Self {
            result: m.result,
            status: m.status,
            output: m.output.to_bytes(),
        }
    }
}

struct Pending {
    request: RawMessage,
    answer: oneshot::Sender<RawMessage>,
}

/// Requests without an answer so far, by transaction id.
#[derive(Default)]
pub(crate) struct Requests {
    last_tid: u64,
    pending: BTreeMap<u64, Pending>,
}

impl Requests {
    /// An unused transaction id.
    pub(crate) fn next_tid(&mut self) -> u64 {
        self.last_tid += 1;
        self.last_tid
    }

    /// Adds a request whose header holds its transaction id.
    pub(crate) fn add(&mut self, request: RawMessage) -> oneshot::Receiver<RawMessage> {
        let (answer, receiver) = oneshot::channel();
        self.pending
            .insert(request.header.tid, Pending { request, answer });
        receiver
    }

    /// Hands an answer to its waiter; returns the message if there is none.
    pub(crate) fn answer(&mut self, msg: RawMessage) -> Option<RawMessage> {
        let tid = match msg.kind() {
            MsgType::MON_GET_VERSION_REPLY => MMonGetVersionReply::from_message(&msg).map_or(0, |m| m.handle),
            MsgType::MON_COMMAND_ACK
            | MsgType::STATFS_REPLY
            | MsgType::GET_POOL_STATS_REPLY
            | MsgType::POOL_OP_REPLY => msg.header.tid,
            _ => return Some(msg),
        };
        if let Some(pending) = self.pending.remove(&tid) {
            // The caller may have given up meanwhile.
            let _ = pending.answer.send(msg);
        }
        None
    }

    /// The requests to send on a new session; drops those whose callers have gone.
    pub(crate) fn resend(&mut self) -> Vec<RawMessage> {
        self.pending.retain(|_, p| !p.answer.is_closed());
        self.pending.values().map(|p| p.request.clone()).collect()
    }
}
