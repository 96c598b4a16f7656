//! The information on a request for class methods.

use crate::pg::op::Request;

/// The information on a request for class methods.
pub(super) struct Calls {
    /// The client, and the time of the request.
    pub(super) request: Request,
    /// The number of ops executed so far, those of class methods included.
    pub(super) steps: u32,
    /// How often class methods asked for random bytes.
    pub(super) drawn: u64,
    /// Whether a class method has noted what it has made of its answers.
    pub(super) noted: bool,
}

impl Calls {
    pub(super) fn new(request: Request) -> Self {
        Self {
            request,
            steps: 0,
            drawn: 0,
            noted: false,
        }
    }
}
