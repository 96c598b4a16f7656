//! The outcome of a step of an accepting handshake.

use spirula_denc::UTime;
use spirula_errno::Errno;

use crate::Error;
use crate::key::{ConnectionSecret, CryptoKey};
use crate::name::AuthName;
use crate::wire::AuthCaps;

/// The result of one message of a handshake, on the accepting side.
#[derive(Debug)]
pub enum Outcome {
    /// Send `AUTH_REPLY_MORE` with this payload and wait for `AUTH_REQUEST_MORE`.
    More(Vec<u8>),
    /// Send `AUTH_DONE` and start the session.
    Done(Box<Accepted>),
    /// Send `AUTH_BAD_METHOD` with this errno, or just close the connection where it is `EBUSY`.
    Denied {
        /// The errno for the peer.
        errno: Errno,
        /// The reason, for the log.
        why: Error,
    },
}

impl Outcome {
    pub(crate) fn denied(why: Error) -> Self {
        Self::Denied {
            errno: why.errno(),
            why,
        }
    }
}

/// A peer whose handshake succeeded.
#[derive(Debug)]
pub struct Accepted {
    /// The payload of `AUTH_DONE`.
    pub payload: Vec<u8>,
    /// The peer's entity.
    pub name: AuthName,
    /// The number of its session, for `AUTH_DONE`. 0 for monitors towards each other.
    pub global_id: u64,
    /// The key with which both sides sign the handshake.
    pub session_key: CryptoKey,
    /// The source of the keys of secure mode.
    pub connection_secret: ConnectionSecret,
    /// Its capabilities at this service.
    pub caps: AuthCaps,
    /// When the ticket's life ends. A session that has begun goes on after that.
    pub expires: UTime,
    /// The origin of its global id.
    pub global_id_status: GlobalIdStatus,
}

/// The origin of a session's global id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobalIdStatus {
    /// It is new.
    New,
    /// It is new, and the client so old that it may later not be able to prove it.
    NewUnexposed,
    /// An earlier session had it, as a ticket proves.
    Reclaimed,
    /// The client claims it without proof (`AUTH_INSECURE_GLOBAL_ID_RECLAIM`).
    ReclaimedInsecurely,
    /// It is that of a ticket of the monitors.
    FromTicket,
    /// There is none: the peer is a monitor, which has proved to hold the key of `mon.`.
    Monitor,
}
