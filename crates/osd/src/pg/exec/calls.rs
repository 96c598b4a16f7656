//! What class methods are told of a request.

use crate::pg::op::Request;

/// What class methods are told of a request.
pub(super) struct Calls {
    /// Who asks, and when.
    pub(super) request: Request,
    /// Ops executed so far, those of class methods included.
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
