//! Large data that comes to the members' disks ahead of the change that it is for.
//!
//! All changes of a PG are durable in their order, and so is all that a store is given. So a small
//! write would wait for the data of large ones before it, on each member. While several clients
//! write, the primary sends large data to the members first, where it goes to free blocks. The
//! request gets its version, and its place in everybody's order, when the data is durable on all of
//! them: the change then says only that these blocks are the object's.
//!
//! Of a large change of an object that is coded, members stage what becomes of their fragments
//! (`stage`); what does not depend on the fragment goes ahead of each step of that, to each
//! member its own.
//!
//! Nothing depends on it: a member that does not have the data ahead is sent it with the change. So
//! is each member to which the change is sent again.

pub(super) mod choice;
pub(super) mod handler;
pub(super) mod placed;
pub(super) mod placing;
mod run;
pub(super) mod ticket;

/// The store places whole blocks.
const BLOCK: u64 = 4096;
