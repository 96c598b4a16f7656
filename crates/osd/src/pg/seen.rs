//! A PG as it is looked at: by whoever asks how it is, and by itself before it heeds a message. Nothing is changed here.

use super::copying::Copying;
use super::leadership::Leadership;
use super::op_queue::OpQueue;
use super::role::Role;
use super::site::Site;
use super::stats::Counters;
use super::store_queue::StoreQueue;
use super::stored_copy::StoredCopy;

/// All parts of a PG.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) site: &'a Site,
    pub(super) copy: &'a StoredCopy,
    pub(super) store: &'a StoreQueue,
    pub(super) lead: &'a Leadership,
    pub(super) role: &'a Role,
    pub(super) ops: &'a OpQueue,
    pub(super) copying: &'a Copying,
    pub(super) counters: &'a Counters,
}
