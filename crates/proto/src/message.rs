//! Raw messages, as they are sent, and the trait of typed ones.

use bytes::Bytes;
use spirula_denc::{Reader, Writer};

use crate::{BytesList, MsgHeader2, MsgType, priority};

/// Why a message could not be decoded. Always the sender's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A field could not be decoded.
    #[error("{kind}: {source}")]
    Field {
        /// The message.
        kind: MsgType,
        /// What was wrong.
        source: spirula_denc::Error,
    },
    /// Another message than the one wanted.
    #[error("{found} where {wanted} was wanted")]
    WrongType {
        /// The type wanted.
        wanted: MsgType,
        /// The type found.
        found: MsgType,
    },
    /// The message's compat version is above the version of this code.
    #[error("{kind} needs a reader of version {compat}, this one knows {known}")]
    TooNew {
        /// The message.
        kind: MsgType,
        /// The oldest version that may read it.
        compat: u16,
        /// The version this code implements.
        known: u16,
    },
    /// An encoding that is no longer read.
    #[error("{kind}: version {version} is no longer read")]
    TooOld {
        /// The message.
        kind: MsgType,
        /// The version found.
        version: u16,
    },
}

/// The result of decoding a message.
pub type Result<T> = std::result::Result<T, Error>;

/// A message before decoding or after encoding: header and segments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawMessage {
    /// The fixed header. The messenger sets `seq` and `ack_seq`.
    pub header: MsgHeader2,
    /// The encoded fields.
    pub front: Bytes,
    /// A second part that a few messages have.
    pub middle: Bytes,
    /// Payload bytes.
    pub data: BytesList,
}

impl RawMessage {
    /// The message's type.
    pub fn kind(&self) -> MsgType {
        self.header.kind
    }

    /// The same message with a transaction id.
    #[must_use]
    pub fn with_tid(mut self, tid: u64) -> Self {
        self.header.tid = tid;
        self
    }

    /// Decodes the message as a `T`.
    ///
    /// # Errors
    /// As [`Payload::from_message`].
    pub fn decode<T: Payload>(&self) -> Result<T> {
        T::from_message(self)
    }

    /// Bytes in all segments: the size of the message in a memory budget.
    pub fn len(&self) -> usize {
        self.front.len() + self.middle.len() + self.data.len()
    }

    /// Whether no segment holds a byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The segments of a message under construction.
#[derive(Debug, Default)]
pub struct Body {
    /// The encoded fields.
    pub front: Writer,
    /// A second part that a few messages have.
    pub middle: Bytes,
    /// Payload bytes.
    pub data: BytesList,
    /// Offset of the data within its object, for the header.
    pub data_off: u16,
    /// Transaction id, for the header.
    pub tid: u64,
}

/// A message with a type: official ones and our own.
pub trait Payload: Sized {
    /// Its type on the wire.
    const TYPE: MsgType;
    /// The version of the encoding that [`Payload::encode`] writes.
    const VERSION: u16;
    /// The oldest reader that understands it.
    const COMPAT: u16;
    /// The oldest version that [`Payload::decode`] reads.
    const OLDEST: u16 = Self::COMPAT;
    /// The priority it is sent with unless the sender decides otherwise.
    const PRIORITY: u16 = priority::DEFAULT;

    /// Writes the segments.
    fn encode(&self, out: &mut Body);

    /// Reads the segments; `r` stands at the start of the front segment. Trailing bytes, which
    /// newer senders append, are ignored by the caller. Type and version were checked.
    ///
    /// # Errors
    /// Where a field is truncated or holds what its type forbids.
    fn decode(r: &mut Reader<'_>, msg: &RawMessage) -> spirula_denc::Result<Self>;

    /// The message ready to send.
    fn to_message(&self) -> RawMessage {
        let mut out = Body::default();
        self.encode(&mut out);
        RawMessage {
            header: MsgHeader2 {
                kind: Self::TYPE,
                priority: Self::PRIORITY,
                version: Self::VERSION,
                compat_version: Self::COMPAT,
                data_off: out.data_off,
                tid: out.tid,
                ..MsgHeader2::default()
            },
            front: out.front.into_vec().into(),
            middle: out.middle,
            data: out.data,
        }
    }

    /// Decodes `msg` after checking its type and versions.
    ///
    /// # Errors
    /// See [`Error`].
    fn from_message(msg: &RawMessage) -> Result<Self> {
        let MsgHeader2 {
            kind,
            version,
            compat_version: compat,
            ..
        } = msg.header;
        if kind != Self::TYPE {
            return Err(Error::WrongType {
                wanted: Self::TYPE,
                found: kind,
            });
        }
        if compat > Self::VERSION {
            return Err(Error::TooNew {
                kind,
                compat,
                known: Self::VERSION,
            });
        }
        if version < Self::OLDEST {
            return Err(Error::TooOld { kind, version });
        }
        Self::decode(&mut Reader::new(&msg.front), msg).map_err(|source| Error::Field { kind, source })
    }
}
