//! The requests of other clients that this client has heard of as the owner of the lock.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use crate::message::RequestId;

/// Requests that are remembered, so that a repeated one is not executed again.
const REMEMBERED: usize = 256;

/// The requests of other clients.
#[derive(Default)]
pub(crate) struct Requests {
    /// The outcome of each request, `None` while it is under way.
    outcomes: RefCell<BTreeMap<RequestId, Option<i32>>>,
    order: RefCell<VecDeque<RequestId>>,
}

impl Requests {
    /// Notes a request. For a repeated one, returns the answer: that it is accepted, or its
    /// outcome.
    pub(crate) fn begin(&self, request: RequestId) -> Option<i32> {
        let mut outcomes = self.outcomes.borrow_mut();
        if let Some(known) = outcomes.get(&request) {
            return Some(known.unwrap_or(0));
        }
        outcomes.insert(request, None);
        let mut order = self.order.borrow_mut();
        order.push_back(request);
        if order.len() > REMEMBERED
            && let Some(oldest) = order.pop_front()
        {
            outcomes.remove(&oldest);
        }
        None
    }

    /// Notes the outcome of a request.
    pub(crate) fn end(&self, request: RequestId, result: i32) {
        if let Some(outcome) = self.outcomes.borrow_mut().get_mut(&request) {
            *outcome = Some(result);
        }
    }
}
