//! The payloads of control frames (`src/msg/async/frames_v2.h`).

use bytes::Bytes;
use spirula_denc::{Decode, Encode, EntityAddr, EntityAddrVec, Reader, Result, UTime, Writer};

use crate::frame::{FrameError, Tag};

/// A control frame's payload.
pub(crate) trait Control: Encode + Decode {
    const TAG: Tag;

    /// Decodes a received payload. Fields that newer peers append are ignored, as by the official
    /// decoder.
    fn parse(payload: &[u8]) -> std::result::Result<Self, FrameError> {
        Self::decode(&mut Reader::new(payload)).map_err(|source| FrameError::Content {
            tag: Self::TAG,
            source,
        })
    }
}

macro_rules! control_frames {
    ($($name:ident = $tag:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }

        impl Encode for $name {
            fn encode(&self, w: &mut Writer) {
                $(self.$field.encode(w);)*
            }
        }

        impl Decode for $name {
            fn decode(r: &mut Reader<'_>) -> Result<Self> {
                Ok(Self { $($field: r.get()?,)* })
            }
        }

        impl Control for $name {
            const TAG: Tag = Tag::$tag;
        }
    )*};
}

control_frames! {
    Hello = HELLO { entity_type: u8, peer_addr: EntityAddr }
    AuthRequest = AUTH_REQUEST { method: u32, preferred_modes: Vec<u32>, payload: Bytes }
    AuthBadMethod = AUTH_BAD_METHOD {
        method: u32,
        result: i32,
        allowed_methods: Vec<u32>,
        allowed_modes: Vec<u32>,
    }
    AuthReplyMore = AUTH_REPLY_MORE { payload: Bytes }
    AuthRequestMore = AUTH_REQUEST_MORE { payload: Bytes }
    AuthDone = AUTH_DONE { global_id: u64, con_mode: u32, payload: Bytes }
    AuthSignature = AUTH_SIGNATURE { signature: Digest }
    ClientIdent = CLIENT_IDENT {
        addrs: EntityAddrVec,
        target_addr: EntityAddr,
        gid: i64,
        global_seq: u64,
        supported: u64,
        required: u64,
        flags: u64,
        cookie: u64,
    }
    ServerIdent = SERVER_IDENT {
        addrs: EntityAddrVec,
        gid: i64,
        global_seq: u64,
        supported: u64,
        required: u64,
        flags: u64,
        cookie: u64,
    }
    MissingFeatures = IDENT_MISSING_FEATURES { features: u64 }
    Reconnect = SESSION_RECONNECT {
        addrs: EntityAddrVec,
        client_cookie: u64,
        server_cookie: u64,
        global_seq: u64,
        connect_seq: u64,
        msg_seq: u64,
    }
    Reset = SESSION_RESET { full: bool }
    Keepalive = KEEPALIVE2 { stamp: UTime }
    KeepaliveAck = KEEPALIVE2_ACK { stamp: UTime }
    Ack = ACK { seq: u64 }
}

/// Flag of the ident frames: messages may be dropped when the connection ends.
pub(crate) const FLAG_LOSSY: u64 = 1;

/// A SHA-256 digest, without a length before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest(pub(crate) [u8; 32]);

impl Encode for Digest {
    fn encode(&self, w: &mut Writer) {
        w.bytes(&self.0);
    }
}

impl Decode for Digest {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.array().map(Self)
    }
}
