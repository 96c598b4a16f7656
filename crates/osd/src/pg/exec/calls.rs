//! What class methods are told of a request.

use crate::pg::op::Request;

/// The information on a request for class methods.
pub(super) struct Calls {
    /// Who asks, and when.
    pub(super) request: Request,
    /// The number of ops executed so far, those of class methods included.
    pub(super) steps: u32,
    /// How often class methods asked for random bytes.
    pub(super) drawn: u64,
}

impl Calls {
    pub(super) fn new(request: Request) -> Self {
        Self {
            request,
            steps: 0,
            drawn: 0,
        }
    }
}
