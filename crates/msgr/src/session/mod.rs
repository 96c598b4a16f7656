//! The session without sockets: the handshake from the banner to the ident frames, then messages.
//!
//! [`Handshake`] takes bytes in and asks its owner the authentication questions; when it is done it
//! becomes an [`Inbound`] and an [`Outbound`] half, which share nothing but the last received
//! sequence number.

mod halves;

mod handshake;
#[cfg(test)]
mod tests;

pub use halves::{Inbound, InboundEvent, Outbound};
pub use handshake::{AcceptReply, AuthStart, Handshake, SessionKeys, Step};
use spirula_errno::Errno;

use crate::config::ConMode;
use crate::frame::{FrameError, Tag};

/// Why a session could not be established, or ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The peer broke the frame format.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer speaks msgr2.0 only, or requires messenger features that we lack.
    #[error("incompatible messenger features: supported {supported:#x}, required {required:#x}")]
    MessengerFeatures {
        /// The features that the peer supports.
        supported: u64,
        /// The features that the peer requires.
        required: u64,
    },
    /// The peer is not the kind of entity that was dialled.
    #[error("peer is of type {found}, not {wanted}")]
    PeerType {
        /// Wanted type.
        wanted: u8,
        /// Type found.
        found: u8,
    },
    /// The peer dialled an address that is not ours, or answers from one that was not dialled.
    #[error("address mismatch")]
    WrongAddress,
    /// The peer lacks features.
    #[error("missing features {0:#x}")]
    MissingFeatures(u64),
    /// The signature over the handshake is wrong: someone changed it, or the keys differ.
    #[error("handshake signature mismatch")]
    Signature,
    /// The authentication chose a mode that was not offered, or no secret for it.
    #[error("connection mode {0} not usable")]
    Mode(ConMode),
    /// Authentication failed too often on one connection.
    #[error("too many authentication attempts")]
    TooManyAttempts,
    /// Our side of the authentication gave up with this errno.
    #[error("authentication refused: {}", -*.0)]
    Denied(Errno),
    /// The peer wants a session that does not exist, or to wait for another connection: connect
    /// again.
    #[error("peer answered {0}")]
    Retry(Tag),
    /// The owner answered a question that was not asked. A defect of this program.
    #[error("answer out of turn")]
    OutOfTurn,
}
