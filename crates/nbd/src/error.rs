//! Errors, and their numbers for clients.

use std::io;

use spirula_errno::{self as errno, Errno};

/// An error as a reply carries it; zero is success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// Success.
    pub const OK: Self = Self(0);
    /// Not permitted, such as writing to a read-only export.
    pub const EPERM: Self = Self(1);
    /// The device failed.
    pub const EIO: Self = Self(5);
    /// No memory.
    pub const ENOMEM: Self = Self(12);
    /// The request is invalid.
    pub const EINVAL: Self = Self(22);
    /// No room, or a write beyond the end.
    pub const ENOSPC: Self = Self(28);
    /// The request is too long.
    pub const EOVERFLOW: Self = Self(75);
    /// Zeroes can't be written fast.
    pub const ENOTSUP: Self = Self(95);
    /// The export goes away.
    pub const ESHUTDOWN: Self = Self(108);
}

/// A failure of a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (errno {})", errno.code())]
pub struct DeviceError {
    /// What kind of failure it is.
    pub errno: Errno,
    /// A text for people, which clients with structured replies can see.
    pub message: String,
}

impl DeviceError {
    /// A failure with this errno.
    pub fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self {
            errno,
            message: message.into(),
        }
    }

    /// The device returned another length than it was asked for.
    pub(crate) fn wrong_length() -> Self {
        Self::new(errno::EIO, "the device read another length than it was asked for")
    }

    /// A write that was answered has failed.
    pub(crate) fn lost(&self) -> Self {
        Self::new(self.errno, format!("an earlier write was lost: {}", self.message))
    }

    /// Zeroes can't be written faster than data.
    pub fn not_fast() -> Self {
        Self::new(errno::ENOTSUP, "zeroes can't be written fast here")
    }

    /// The number for a reply. The protocol has few: any other errno is an I/O error.
    pub fn code(&self) -> ErrorCode {
        match self.errno {
            errno::EPERM | errno::EACCES | errno::EROFS => ErrorCode::EPERM,
            errno::ENOMEM => ErrorCode::ENOMEM,
            errno::EINVAL => ErrorCode::EINVAL,
            errno::ENOSPC | errno::EDQUOT | errno::EFBIG => ErrorCode::ENOSPC,
            errno::ENOTSUP => ErrorCode::ENOTSUP,
            errno::ESHUTDOWN => ErrorCode::ESHUTDOWN,
            _ => ErrorCode::EIO,
        }
    }
}

/// A server that can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the TLS configuration can't be read, or holds no certificate or key.
    #[error("{path}: {reason}")]
    TlsFile {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },
    /// Certificates and key don't match.
    #[error("TLS: {0}")]
    Tls(String),
    /// A name that an export can't have.
    #[error("{0:?} can't be the name of an export: {1}")]
    ExportName(String, &'static str),
    /// A socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// The result of setting up a server.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_has_a_number_that_clients_know() {
        let code = |errno| DeviceError::new(errno, "").code();
        assert_eq!(code(errno::EROFS), ErrorCode::EPERM);
        assert_eq!(code(errno::EDQUOT), ErrorCode::ENOSPC);
        assert_eq!(code(errno::ESHUTDOWN), ErrorCode::ESHUTDOWN);
        assert_eq!(code(errno::ETIMEDOUT), ErrorCode::EIO);
    }
}
