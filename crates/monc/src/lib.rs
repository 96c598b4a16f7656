//! The session of daemons and clients with the monitors: finding one that answers, logging in,
//! keeping subscriptions and requests alive over reconnects, renewing tickets and a service's
//! rotating secrets.
//!
//! [`MonClient`] runs as a task on tokio's current-thread runtime. [`MonLogin`] and
//! [`ServiceLogin`] are the connecting sides of cephx towards a monitor and towards any other
//! daemon, [`TicketAuth`] is the accepting side of the latter.

mod accept;
mod client;
mod guests;
mod login;
mod refusals;
mod request;

pub use accept::{TicketAuth, is_believable};
pub use client::{Event, MonClient, Options};
pub use guests::{GuestLimits, Guests, Seat};
pub use login::{MonLogin, ServiceLogin};
pub use refusals::RefusalLog;
pub use request::CommandReply;
use spirula_errno::Errno;

/// Why a request to the monitors failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No monitor answered in time (`ETIMEDOUT`).
    #[error("no monitor answered in time")]
    Timeout,
    /// The monitors refuse this entity and its key, with this errno.
    #[error("the monitors refuse the login: error {}", -*.0)]
    Denied(Errno),
    /// The answer could not be decoded: the monitor's fault.
    #[error("unreadable answer: {0}")]
    Malformed(#[from] spirula_proto::Error),
    /// The client was shut down.
    #[error("shut down")]
    ShutDown,
}

impl Error {
    /// The errno that a user of the client sees.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Timeout => spirula_errno::ETIMEDOUT,
            Self::Denied(e) => *e,
            Self::Malformed(_) => spirula_errno::EIO,
            Self::ShutDown => spirula_errno::ESHUTDOWN,
        }
    }
}
