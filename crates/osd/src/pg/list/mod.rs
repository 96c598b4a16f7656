//! Listings: PGNLS and PGLS, one page of the PG's objects after a cursor. A filter may leave
//! objects out, by an attribute: of the page, a few objects at a time are read for it.

pub(super) mod handler;

use std::collections::VecDeque;

use spirula_classes::Filter;
use spirula_maps::HObject;

use super::op::ClientOp;

/// A listing that waits for the store.
#[derive(Debug)]
pub(super) struct Listing {
    pub op: ClientOp,
    /// The index of the listing among the ops of the request.
    index: usize,
    /// The filter.
    filter: Option<Box<dyn Filter>>,
    /// The objects of the page that are not filtered yet.
    left: VecDeque<HObject>,
    /// The objects that are listed.
    kept: Vec<HObject>,
    /// Where the next page starts; `None` at the end of the PG.
    next: Option<HObject>,
}
