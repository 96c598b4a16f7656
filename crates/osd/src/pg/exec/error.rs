//! Why an op does not go on.

/// What ended an op before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It failed: the result, which is negative.
    Failed(i32),
    /// It needs what was not fetched yet. To be passed up: the request is executed again when that is there.
    Unfetched,
}

/// What an op returns: 0, or more from a few.
pub(crate) type OpResult = Result<i32, Stop>;

/// The failure with this errno, which is positive.
pub(crate) fn fail<T>(errno: i32) -> Result<T, Stop> {
    Err(Stop::Failed(-errno))
}
