//! Errors of requests, and the errno that a user sees.

use spirula_errno::{self as errno, Errno};

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration has a bad value: the caller's fault.
    #[error("{0}")]
    Config(String),
    /// The configuration file can't be read.
    #[error("{0}")]
    Conf(String),
    /// No option names a monitor.
    #[error("no monitors in mon_host")]
    NoMonitors,
    /// There is no keyring.
    #[error("{0}")]
    NoKey(String),
    /// The keyring has no key for the entity.
    #[error("{0}")]
    NotInKeyring(String),
    /// The monitors don't answer, or refuse.
    #[error(transparent)]
    Mon(#[from] spirula_monc::Error),
    /// The cluster refused, or did not answer.
    #[error("{what}: error {}", -*errno)]
    Os {
        /// The request.
        what: &'static str,
        /// Why.
        errno: Errno,
    },
    /// An answer that can't be decoded: the daemon's fault.
    #[error("unreadable answer: {0}")]
    Malformed(String),
}

/// The result of a request.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn os(what: &'static str, errno: Errno) -> Self {
        Self::Os { what, errno }
    }

    /// The errno that a user of the client sees.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Config(_) => errno::EINVAL,
            Self::NotInKeyring(_) => errno::EACCES,
            Self::Conf(_) | Self::NoMonitors | Self::NoKey(_) => errno::ENOENT,
            Self::Mon(e) => e.errno(),
            Self::Os { errno, .. } => *errno,
            Self::Malformed(_) => errno::EIO,
        }
    }
}

impl From<spirula_proto::Error> for Error {
    fn from(e: spirula_proto::Error) -> Self {
        Self::Malformed(e.to_string())
    }
}

impl From<spirula_denc::Error> for Error {
    fn from(e: spirula_denc::Error) -> Self {
        Self::Malformed(e.to_string())
    }
}
