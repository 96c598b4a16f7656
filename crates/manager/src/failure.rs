//! Failures, in the words of Ceph's Python libraries: users see them in answers, and in tasks that
//! wait for another attempt.

use spirula_client::errno::{self, Errno};

use crate::question::Reply;

/// A failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Of librados: a positive errno, and the failed operation.
    Rados(Errno, String),
    /// Of librbd: a positive errno, and the failed operation.
    Rbd(Errno, String),
    /// A bad argument.
    Value(String),
    /// An operation that the caller may not do.
    Denied(String),
}

/// The names of errors in Python's module `rados`.
const RADOS: &[(Errno, &str)] = &[
    (errno::EPERM, "RADOS permission error"),
    (errno::ENOENT, "RADOS object not found"),
    (errno::EIO, "RADOS I/O error"),
    (errno::ENOSPC, "RADOS no space"),
    (errno::EEXIST, "RADOS object exists"),
    (errno::EBUSY, "RADOS object busy"),
    (errno::EINVAL, "RADOS invalid argument"),
    (errno::EACCES, "RADOS permission denied"),
    (errno::ENOTCONN, "RADOS not connected"),
    (errno::ESHUTDOWN, "RADOS connection was shutdown"),
    (errno::ETIMEDOUT, "RADOS timed out"),
];

/// The names of errors in Python's module `rbd`.
const RBD: &[(Errno, &str)] = &[
    (errno::EPERM, "RBD permission error"),
    (errno::ENOENT, "RBD image not found"),
    (errno::EIO, "RBD I/O error"),
    (errno::ENOSPC, "RBD insufficient space available"),
    (errno::EEXIST, "RBD image already exists"),
    (errno::EINVAL, "RBD invalid argument"),
    (errno::EROFS, "RBD read-only image"),
    (errno::EBUSY, "RBD image is busy"),
    (errno::ENOTEMPTY, "RBD image has snapshots"),
    (errno::ENOSYS, "RBD function not supported"),
    (errno::EDOM, "RBD arguments out of range"),
    (errno::ESHUTDOWN, "RBD connection was shutdown"),
    (errno::ETIMEDOUT, "RBD operation timeout"),
    (errno::EDQUOT, "RBD disk quota exceeded"),
    (errno::EOPNOTSUPP, "RBD operation not supported"),
    (errno::ECANCELED, "RBD operation canceled"),
];

fn named(names: &[(Errno, &str)], errno: Errno, what: &str) -> String {
    let code = errno.code();
    match names.iter().find(|(n, _)| *n == errno) {
        Some((_, name)) => format!("[errno {code}] {name} ({what})"),
        None => format!("[errno {code}] {what}"),
    }
}

impl Failure {
    /// A failure of librados.
    pub(crate) fn rados(e: &spirula_client::Error, what: impl Into<String>) -> Self {
        Self::Rados(e.errno(), what.into())
    }

    /// A failure of librbd.
    pub(crate) fn rbd(e: &spirula_rbd::Error, what: impl Into<String>) -> Self {
        Self::Rbd(e.errno(), what.into())
    }

    /// The errno.
    pub(crate) fn errno(&self) -> Errno {
        match self {
            Self::Rados(errno, _) | Self::Rbd(errno, _) => *errno,
            Self::Value(_) => errno::EINVAL,
            Self::Denied(_) => errno::EACCES,
        }
    }

    /// Whether this client is on the cluster's blocklist.
    pub(crate) fn is_shut_out(&self) -> bool {
        matches!(
            self,
            Self::Rados(errno::ESHUTDOWN, _) | Self::Rbd(errno::ESHUTDOWN, _)
        )
    }

    /// Whether the operation is not allowed.
    pub(crate) fn is_denied(&self) -> bool {
        matches!(self.errno(), errno::EPERM | errno::EACCES)
    }

    /// The message.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Rados(errno, what) => named(RADOS, *errno, what),
            Self::Rbd(errno, what) => named(RBD, *errno, what),
            Self::Value(text) | Self::Denied(text) => text.clone(),
        }
    }

    /// The answer to a command that failed so.
    pub(crate) fn reply(&self) -> Reply {
        Reply::error(self.errno(), self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As python3-rados and python3-rbd 16.2 print them.
    #[test]
    fn failures_have_the_words_of_the_official_libraries() {
        for (failure, text) in [
            (
                Failure::Rbd(errno::ENOENT, "Image p/x does not exist".into()),
                "[errno 2] RBD image not found (Image p/x does not exist)",
            ),
            (
                Failure::Rbd(errno::EMLINK, "error removing image".into()),
                "[errno 31] error removing image",
            ),
            (
                Failure::Rados(errno::ENOENT, "error opening pool 'p'".into()),
                "[errno 2] RADOS object not found (error opening pool 'p')",
            ),
            (
                Failure::Value("Invalid image spec: /".into()),
                "Invalid image spec: /",
            ),
        ] {
            assert_eq!(failure.text(), text);
        }
    }
}
