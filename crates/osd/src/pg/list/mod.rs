//! Listings: PGNLS and PGLS, one page of the PG's objects after a cursor. A filter may leave objects out, by an
//! attribute: of the page, a few objects at a time are read for it.

pub(super) mod handler;

use std::collections::VecDeque;

use spirula_classes::Filter;
use spirula_maps::HObject;

use super::op::ClientOp;

/// A listing that waits for the store.
#[derive(Debug)]
pub(super) struct Listing {
    pub op: ClientOp,
    /// Which op of the request it is.
    index: usize,
    /// What it leaves out.
    filter: Option<Box<dyn Filter>>,
    /// Objects of the page that the filter has not judged yet.
    left: VecDeque<HObject>,
    /// Those that are listed.
    kept: Vec<HObject>,
    /// Where the next page starts; `None` where the PG ends.
    next: Option<HObject>,
}
