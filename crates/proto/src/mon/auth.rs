//! Ticket renewal on a monitor session. The first authentication is part of the msgr2 handshake.

use crate::Blob;
use crate::macros::message;
use crate::mon::PaxosVersion;
use spirula_maps::Epoch;

message! {
    /// A request of the authentication protocol.
    pub struct MAuth: AUTH, version 1, compat 1 {
        /// Unused prefix.
        pub paxos: PaxosVersion,
        /// 2 for cephx.
        pub protocol: u32,
        /// The protocol's request.
        pub payload: Blob,
        /// The sender's monitor map.
        pub monmap_epoch: Epoch, if left,
    }
}

message! {
    /// The answer.
    pub struct MAuthReply: AUTH_REPLY, version 1, compat 1 {
        /// The request's protocol.
        pub protocol: u32,
        /// 0 or a negative errno.
        pub result: i32,
        /// The session's global id.
        pub global_id: u64,
        /// The protocol's reply.
        pub payload: Blob,
        /// Why it failed.
        pub message: String,
    }
}
