//! The frame codec of msgr2.1: a preamble, one to four segments and, for more than one, an
//! epilogue.
//!
//! Layout after Ceph's public description (`doc/dev/msgr2.rst`, `src/msg/async/frames_v2.h`),
//! revision 1 only:
//!
//! ```text
//! preamble (32)   tag u8 | segments u8 | 4 x (length u32, alignment u16) | flags u8 | 0 u8 | crc u32, seed 0
//! crc mode        preamble | segment 0 | crc u32 | segments 1-3 | epilogue (13): status u8, 3 x crc u32
//! secure mode     GCM(preamble | first 48 bytes of segment 0) | GCM(rest of segment 0)
//!                 | GCM(segments 1-3, each padded to 16 | epilogue (16): status u8, zeros)
//! ```
//!
//! Segment CRCs are CRC32C seeded with -1. The epilogue is absent where there is one segment.

mod crypto;
mod decode;
mod encode;
mod large;

use spirula_invariant::{impossible, invariant};
use spirula_proto::MsgHeader2;

pub(crate) use crypto::gcm_pair;
pub use crypto::{GcmRx, GcmTx, SECRET_LEN};
pub use decode::{Decoder, Frame, Progress};
pub use encode::Encoder;

/// The first bytes on a connection, before a `u16` length and the feature words.
pub const BANNER_PREFIX: &[u8; 8] = b"ceph v2\n";
/// Bytes of the banner's payload: supported and required messenger features.
pub(crate) const BANNER_PAYLOAD: usize = 16;
/// Messenger feature bit 0: revision 1 of the frame format.
pub const FEATURE_REVISION_1: u64 = 1;

const PREAMBLE: usize = 32;
const MAX_SEGMENTS: usize = 4;
/// The most bytes that one system call reads or writes, and that a connection moves before others
/// have the thread: with a fast peer it would go on for whole bodies, keep small messages of others
/// waiting, and have all of a buffer that lies in a file in memory. Much less costs throughput:
/// large messages would all arrive late, and at the same time.
pub(crate) const MOVED_AT_ONCE: usize = 1 << 20;
/// Bytes of segment 0 that travel inside the first GCM block of secure mode.
const INLINE: usize = 48;
const TAG_LEN: usize = 16;
const EPILOGUE_CRC: usize = 13;
const EPILOGUE_SECURE: usize = 16;
const STATUS_COMPLETE: u8 = 0xe;
const STATUS_ABORTED: u8 = 0x1;
const STATUS_MASK: u8 = 0xf;
/// Bit of the preamble's flags: segments are compressed. Never negotiated here.
const FLAG_COMPRESSED: u8 = 1;

/// The kind of a frame. Unknown values are an error: the peer speaks a protocol that was not
/// negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag(pub u8);

macro_rules! tags {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl Tag {
            $($(#[$doc])* pub const $name: Self = Self($value);)*
        }

        impl std::fmt::Display for Tag {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.0 {
                    $($value => f.write_str(stringify!($name)),)*
                    n => write!(f, "tag {n}"),
                }
            }
        }
    };
}

tags! {
    /// Entity type, and the peer's address as seen.
    HELLO = 1;
    /// Start of the authentication.
    AUTH_REQUEST = 2;
    /// Refusal, with the methods that would be accepted.
    AUTH_BAD_METHOD = 3;
    /// A further round, from the server.
    AUTH_REPLY_MORE = 4;
    /// A further round, from the client.
    AUTH_REQUEST_MORE = 5;
    /// Success.
    AUTH_DONE = 6;
    /// Signature that proves that nobody changed the handshake.
    AUTH_SIGNATURE = 7;
    /// The client's identity.
    CLIENT_IDENT = 8;
    /// The server's identity.
    SERVER_IDENT = 9;
    /// The client lacks features.
    IDENT_MISSING_FEATURES = 10;
    /// The client wants its earlier session back.
    SESSION_RECONNECT = 11;
    /// There is no such session.
    SESSION_RESET = 12;
    /// Reconnect again with a higher connect sequence.
    SESSION_RETRY = 13;
    /// Reconnect again with a higher global sequence.
    SESSION_RETRY_GLOBAL = 14;
    /// The session goes on.
    SESSION_RECONNECT_OK = 15;
    /// Both sides connected at once and the other connection wins.
    WAIT = 16;
    /// A message.
    MESSAGE = 17;
    /// Question whether the peer is alive.
    KEEPALIVE2 = 18;
    /// Answer to `KEEPALIVE2`.
    KEEPALIVE2_ACK = 19;
    /// Messages up to a sequence number were received.
    ACK = 20;
}

impl Tag {
    fn is_known(self) -> bool {
        (Self::HELLO.0..=Self::ACK.0).contains(&self.0)
    }

    fn most_segments(self) -> usize {
        if self == Self::MESSAGE { MAX_SEGMENTS } else { 1 }
    }
}

/// Limits in bytes on the sizes that a peer may announce, checked before anything is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Payload of a control frame.
    pub control: usize,
    /// Front segment of a message.
    pub front: usize,
    /// Middle segment of a message.
    pub middle: usize,
    /// Data segment of a message.
    pub data: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            control: 32 << 10,
            front: 16 << 20,
            middle: 16 << 20,
            data: 128 << 20,
        }
    }
}

/// Why received bytes are not a frame. Always the peer's (or the network's) fault: the connection
/// ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The first bytes are not a msgr2 banner.
    #[error("not a msgr2 banner")]
    Banner,
    /// The checksum of the preamble is wrong.
    #[error("preamble checksum mismatch")]
    PreambleCrc,
    /// The checksum of a segment is wrong.
    #[error("checksum mismatch in segment {0}")]
    SegmentCrc(usize),
    /// The authentication tag of an encrypted block is wrong.
    #[error("authentication tag mismatch")]
    AuthTag,
    /// The number of segments is 0, more than four, or not the frame's, or the last segment is
    /// empty.
    #[error("{0}: malformed segments")]
    Segments(Tag),
    /// A tag that no negotiated protocol has.
    #[error("unknown {0}")]
    UnknownTag(Tag),
    /// A frame out of place, such as a message before the session is established.
    #[error("unexpected {0}")]
    Unexpected(Tag),
    /// A segment longer than the limits allow.
    #[error("{tag}: segment {segment} of {len} bytes exceeds the limit")]
    TooLong {
        /// The frame.
        tag: Tag,
        /// The segment's index.
        segment: usize,
        /// The announced length.
        len: usize,
    },
    /// A compressed frame without compression having been negotiated.
    #[error("compressed frame")]
    Compressed,
    /// The epilogue's status is neither complete nor aborted.
    #[error("bad epilogue status")]
    Status,
    /// The bytes exchanged before authentication exceed their bound.
    #[error("handshake too long")]
    HandshakeTooLong,
    /// The contents of a segment do not match its frame.
    #[error("{tag}: {source}")]
    Content {
        /// The frame.
        tag: Tag,
        /// The error in it.
        source: spirula_denc::Error,
    },
    /// All nonces of the session are used up; cannot happen within 2^64 frames.
    #[error("out of nonces")]
    OutOfNonces,
}

/// A frame's first 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Preamble {
    tag: Tag,
    segments: usize,
    lens: [usize; MAX_SEGMENTS],
}

impl Preamble {
    /// Describes a frame of `lens`, dropping empty trailing segments.
    fn new(tag: Tag, lens: [usize; MAX_SEGMENTS]) -> Self {
        let segments = lens.iter().rposition(|&l| l > 0).map_or(1, |i| i + 1);
        let most = tag.most_segments();
        invariant!(segments <= most, "a frame with as many segments as its kind has"; tag = tag, segments = segments);
        Self { tag, segments, lens }
    }

    /// Bytes of the whole frame on the wire.
    fn wire_len(&self, secure: bool) -> usize {
        let head = match secure {
            // A message's header fits into the first block.
            true => PREAMBLE + INLINE + TAG_LEN,
            false => PREAMBLE + self.lens[0] + 4,
        };
        head + self.body_len(secure)
    }

    /// Bytes on the wire after the first segment.
    fn body_len(&self, secure: bool) -> usize {
        let lens = self.lens[1..].iter();
        match (self.segments, secure) {
            (1, _) => 0,
            (_, false) => lens.sum::<usize>() + EPILOGUE_CRC,
            (_, true) => lens.map(|&l| padded(l)).sum::<usize>() + EPILOGUE_SECURE + TAG_LEN,
        }
    }

    fn encode(&self) -> [u8; PREAMBLE] {
        let mut out = [0; PREAMBLE];
        out[0] = self.tag.0;
        out[1] = self.segments.to_le_bytes()[0];
        for i in 0..self.segments {
            let Ok(len) = u32::try_from(self.lens[i]) else {
                impossible!("a segment below 4 GiB"; tag = self.tag, segment = i, bytes = self.lens[i])
            };
            // Data wants page alignment at the receiver; everything else that of a pointer.
            let align: u16 = if i == 3 { 4096 } else { 8 };
            out[2 + 6 * i..6 + 6 * i].copy_from_slice(&len.to_le_bytes());
            out[6 + 6 * i..8 + 6 * i].copy_from_slice(&align.to_le_bytes());
        }
        let crc = preamble_crc(&out[..28]);
        out[28..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes a preamble, and checks everything that depends only on the limits.
    fn decode(b: &[u8; PREAMBLE], limits: &Limits) -> Result<Self, FrameError> {
        if le32(&b[28..]) != preamble_crc(&b[..28]) {
            return Err(FrameError::PreambleCrc);
        }
        let tag = Tag(b[0]);
        let segments = usize::from(b[1]);
        if !tag.is_known() {
            return Err(FrameError::UnknownTag(tag));
        }
        if b[26] & FLAG_COMPRESSED != 0 {
            return Err(FrameError::Compressed);
        }
        let most = tag.most_segments();
        if segments < 1 || segments > most {
            return Err(FrameError::Segments(tag));
        }
        let mut lens = [0; MAX_SEGMENTS];
        for (i, len) in lens.iter_mut().enumerate().take(segments) {
            *len = le32(&b[2 + 6 * i..]) as usize;
        }
        if segments > 1 && lens[segments - 1] == 0 {
            return Err(FrameError::Segments(tag));
        }
        let most = if tag == Tag::MESSAGE {
            [MsgHeader2::SIZE, limits.front, limits.middle, limits.data]
        } else {
            [limits.control, 0, 0, 0]
        };
        if let Some(segment) = (0..MAX_SEGMENTS).find(|&i| lens[i] > most[i]) {
            return Err(FrameError::TooLong {
                tag,
                segment,
                len: lens[segment],
            });
        }
        if tag == Tag::MESSAGE && lens[0] != MsgHeader2::SIZE {
            return Err(FrameError::Segments(tag));
        }
        Ok(Self { tag, segments, lens })
    }
}

/// The wire form of a segment's checksum: seeded with -1, not inverted at the end.
fn segment_crc(data: &[u8]) -> u32 {
    !crc32c::crc32c(data)
}

fn preamble_crc(data: &[u8]) -> u32 {
    !crc32c::crc32c_append(!0, data)
}

/// The little-endian word at the start of `b`, which callers cut from a buffer of known size.
fn le32(b: &[u8]) -> u32 {
    b.first_chunk().map_or(0, |c| u32::from_le_bytes(*c))
}

/// Length on the wire of a segment in secure mode.
fn padded(len: usize) -> usize {
    len.next_multiple_of(16)
}

/// Whether the frame is to be delivered (`true`) or was aborted by its sender.
fn check_status(status: u8) -> Result<bool, FrameError> {
    match status & STATUS_MASK {
        STATUS_COMPLETE => Ok(true),
        STATUS_ABORTED => Ok(false),
        _ => Err(FrameError::Status),
    }
}

#[cfg(test)]
mod tests;
