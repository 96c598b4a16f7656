//! The parts of a PG that clients' ops may touch, in whichever role: the order of ops on each
//! object, their execution, replies and changes. Staging, trimming and repairs are built on it, as
//! their work has its place in that order too.

use super::copying::Copying;
use super::counters::Counters;
use super::leadership::Leadership;
use super::op_queue::OpQueue;
use super::outbox::Outbox;
use super::role::Role;
use super::site::Site;
use super::store_queue::StoreQueue;
use super::stored_copy::StoredCopy;

/// Serves clients.
pub(super) struct Serving<'a> {
    pub(super) site: &'a Site,
    pub(super) copy: &'a mut StoredCopy,
    pub(super) store: &'a mut StoreQueue,
    pub(super) outbox: &'a mut Outbox,
    pub(super) lead: &'a mut Leadership,
    pub(super) role: &'a mut Role,
    pub(super) ops: &'a mut OpQueue,
    pub(super) copying: &'a mut Copying,
    pub(super) counters: &'a mut Counters,
}

impl Serving<'_> {
    /// The same handler, with a shorter borrow.
    pub(super) fn reborrow(&mut self) -> Serving<'_> {
        Serving {
            site: self.site,
            copy: self.copy,
            store: self.store,
            outbox: self.outbox,
            lead: self.lead,
            role: self.role,
            ops: self.ops,
            copying: self.copying,
            counters: self.counters,
        }
    }
}
