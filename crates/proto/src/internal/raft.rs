//! The envelope of the Raft messages between monitors. Their content belongs to the consensus library.

use bytes::Bytes;
use spirula_denc::{Reader, Result};

use super::{Part, protocol};
use crate::macros::{packed, wire_enum};
use crate::{Body, BytesList, RawMessage};

protocol! {
    /// Raft between monitors. The header's transaction id joins a response to its request.
    ///
    /// - Version 1: first.
    pub enum Raft: RAFT, version 1, compat 1, priority HIGHEST {
        /// Calls a procedure of the peer.
        Request(RaftBody) = 1,
        /// Its result.
        Response(RaftBody) = 2,
        /// A command or query that the sender, who does not lead, passes on to the leader.
        Forward(RaftBody) = 3,
        /// The leader's answer.
        Forwarded(RaftBody) = 4,
    }
}

wire_enum! {
    /// Which remote procedure of the consensus library.
    pub struct RaftCall(u8) {
        /// Append log entries, or a heartbeat.
        APPEND = 1, "append";
        /// Ask for a vote.
        VOTE = 2, "vote";
        /// A part of a snapshot.
        SNAPSHOT = 3, "snapshot";
        /// Give up leadership.
        TRANSFER = 4, "transfer";
    }
}

packed! {
    /// What stands before the body.
    pub struct RaftFields {
        /// The procedure.
        pub call: RaftCall,
        /// The sender's rank.
        pub from: u64,
        /// The monitor map epoch the sender goes by.
        pub monmap_epoch: u32,
    }
}

/// An encoded message of the consensus library.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RaftBody {
    /// Joins response and request; in the header.
    pub tid: u64,
    /// Procedure and sender.
    pub fields: RaftFields,
    /// The message, in the data segment.
    pub body: Bytes,
}

impl Part for RaftBody {
    fn encode_part(&self, out: &mut Body) {
        out.tid = self.tid;
        out.front.put(&self.fields);
        out.data = BytesList::from(self.body.clone());
    }

    fn decode_part(r: &mut Reader<'_>, msg: &RawMessage) -> Result<Self> {
        Ok(Self {
            tid: msg.header.tid,
            fields: r.get()?,
            body: msg.data.to_bytes(),
        })
    }
}
