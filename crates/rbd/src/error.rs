//! Errors of operations on images, and the errnos that users see.

use spirula_client::errno::{self, Errno};

/// A failed operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request that the cluster refused, or that got no answer.
    #[error(transparent)]
    Rados(#[from] spirula_client::Error),
    /// The operation is not possible; has a negative errno.
    #[error("{what}: error {}", -*errno)]
    Os {
        /// The refused operation.
        what: &'static str,
        /// Why.
        errno: Errno,
    },
    /// A file ends within this part.
    #[error("failed to decode {0}")]
    Cut(&'static str),
    /// An object of the image can't be decoded.
    #[error("unreadable image: {0}")]
    Malformed(#[from] spirula_denc::Error),
}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn os(what: &'static str, errno: Errno) -> Self {
        Self::Os { what, errno }
    }

    /// The errno that a user sees.
    pub fn errno(&self) -> Errno {
        match self {
            Self::Rados(e) => e.errno(),
            Self::Os { errno, .. } => *errno,
            Self::Cut(_) => errno::EBADMSG,
            Self::Malformed(_) => errno::EIO,
        }
    }

    /// Whether this is the errno.
    pub fn is(&self, errno: Errno) -> bool {
        self.errno() == errno
    }
}

/// Turns an expected error into a value: `None` where the result is that errno.
pub(crate) fn unless<T>(result: Result<T>, errno: Errno) -> Result<Option<T>> {
    match result {
        Ok(v) => Ok(Some(v)),
        Err(e) if e.is(errno) => Ok(None),
        Err(e) => Err(e),
    }
}
