//! The members' side of repairs.

use crate::pg::copying::Copying;
use crate::pg::message::PeeringId;
use crate::pg::op_queue::OpQueue;
use crate::pg::outbox::Outbox;
use crate::pg::serving::Serving;
use crate::pg::site::Site;
use crate::pg::store_queue::StoreQueue;

use crate::pg::role::Role;

/// The members' side of repairs: taking an object from another member, and giving it.
pub(in crate::pg) struct Mending<'a> {
    pub(in crate::pg) site: &'a Site,
    pub(in crate::pg) store: &'a mut StoreQueue,
    pub(in crate::pg) outbox: &'a mut Outbox,
    /// The attempt at peering that this OSD leads or follows.
    pub(in crate::pg) id: PeeringId,
    pub(in crate::pg) role: &'a Role,
    pub(in crate::pg) ops: &'a mut OpQueue,
    pub(in crate::pg) copying: &'a mut Copying,
}

impl Serving<'_> {
    /// The handler of the members' side of repairs.
    pub(in crate::pg) fn mending(&mut self) -> Mending<'_> {
        Mending {
            site: self.site,
            store: self.store,
            outbox: self.outbox,
            id: self.lead.id,
            role: self.role,
            ops: self.ops,
            copying: self.copying,
        }
    }
}
