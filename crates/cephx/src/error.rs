//! Errors of authentication steps, and the errnos with which the official daemons answer.

use spirula_denc::EntityType;
use spirula_errno::Errno;

use crate::key::KeyType;

/// The result of an authentication step.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a key, ticket, authorizer or handshake message is refused.
///
/// No variant carries secret material: an error may be logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A message violates the protocol. The peer's fault.
    #[error("malformed message: {0}")]
    Malformed(#[from] spirula_denc::Error),
    /// The first message of a handshake can't be read or names no known mode. The peer's fault.
    #[error("malformed first message")]
    MalformedStart,
    /// A value can't be decrypted, or lacks the envelope's magic number then: it was sealed with
    /// another key or tampered with.
    #[error("can't be decrypted with this key")]
    Decrypt,
    /// A key's text or bytes are not a key, or of a type that is not implemented.
    #[error("not a usable key")]
    BadKey,
    /// The entity's key is of a type that the cluster does not take.
    #[error("keys of type {0} are not allowed")]
    UnallowedKeyType(KeyType),
    /// The method is not offered here.
    #[error("authentication method {0} is not offered")]
    UnsupportedMethod(u32),
    /// The request type is not served here.
    #[error("unknown request type {0:#06x}")]
    UnknownRequest(u16),
    /// There is no such entity.
    #[error("unknown entity")]
    UnknownEntity,
    /// The answer to the challenge was made with another key.
    #[error("wrong answer to the challenge")]
    WrongAnswer,
    /// A message that the state of the handshake does not allow.
    #[error("message out of order")]
    OutOfOrder,
    /// The service secret that a ticket names is not (or no longer) known.
    #[error("no {} secret with id {id}", service.name())]
    UnknownSecret {
        /// The service that the secret belongs to.
        service: EntityType,
        /// The secret's id.
        id: u64,
    },
    /// The ticket's life is over.
    #[error("the ticket has expired")]
    Expired,
    /// A ticket or reply belongs to another session than the one it came with.
    #[error("the ticket belongs to another session")]
    ForeignTicket,
    /// A client claims a global id without a ticket that proves that it had it.
    #[error("global_id claimed without proof")]
    UnprovenGlobalId,
    /// A new session presents a ticket of an old one.
    #[error("superfluous ticket")]
    SuperfluousTicket,
    /// The entity has no capability for this service.
    #[error("no capability for this service")]
    NoCaps,
    /// This side has no ticket for the service.
    #[error("no ticket for service {}", .0.name())]
    NoTicket(EntityType),
    /// This side can't serve the request yet (no secrets, no global ids left). Try again later.
    #[error("not ready to authenticate")]
    NotReady,
    /// The operating system gave no random bytes.
    #[error("no random bytes")]
    NoRandomness,
    /// The peer answered with an error.
    #[error("refused by the peer: errno {}", -*.0)]
    Refused(Errno),
}

impl Error {
    /// The errno to send to the peer, as the official daemons choose it
    /// (`src/auth/cephx/CephxServiceHandler.cc`, `src/mon/Monitor.cc`).
    pub fn errno(&self) -> Errno {
        match self {
            Self::Malformed(_) => spirula_errno::EPERM,
            Self::UnsupportedMethod(_) => spirula_errno::EOPNOTSUPP,
            Self::UnknownRequest(_) | Self::SuperfluousTicket => spirula_errno::EINVAL,
            Self::NotReady => spirula_errno::EBUSY,
            Self::NoRandomness => spirula_errno::EIO,
            Self::Refused(errno) => *errno,
            _ => spirula_errno::EACCES,
        }
    }
}
