//! The reasons why an op ends early.

use spirula_errno::Errno;

/// The reason why an op ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The op failed with this result, which is negative.
    Failed(Errno),
    /// The op needs an answer that was not fetched yet. To be passed up: the request is executed
    /// again when that is there.
    Unfetched,
}

/// The result of an op: 0, or more for a few ops.
pub(crate) type OpResult = Result<i32, Stop>;

/// The failure with this errno.
pub(crate) fn fail<T>(errno: Errno) -> Result<T, Stop> {
    Err(Stop::Failed(errno))
}
