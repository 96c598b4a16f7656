//! Scrubbing: all members' copies of a PG's objects are compared, and in a deep scrub read.
//!
//! The primary goes through the PG's keys in ranges. For each range every member, the primary too,
//! gives account of its objects: their infos, sizes and digests (`work`, `accounting`). The primary
//! judges the accounts (`judge`), and checks that clones and heads fit each other (`clones`).
//!
//! Nobody waits for a scrub. Writes go on in the range meanwhile; the primary notes which objects
//! they touch, and leaves these out of the comparison. They are looked at again, each alone, and so
//! is what seems to be inconsistent. Only an object that is written each time it is looked at keeps
//! its ops waiting in the end, for as long as it takes to read it.
//!
//! Found inconsistencies are listed on all members (`findings`), told in the cluster log (`said`),
//! and repaired if that was ordered, by the machinery for objects that a member can't read
//! ([`super::repair`]).

mod account;
pub(super) mod accounting;
pub(super) mod asked;
mod clones;
mod digest;
pub(super) mod findings;
pub(super) mod handler;
pub mod history;
pub mod hours;
mod judge;
pub mod message;
pub(super) mod noting;
mod official;
pub mod outlook;
mod pace;
mod results;
mod run;
mod said;
pub mod schedule;
mod seen;
mod slots;
pub(super) mod telling;
mod work;

pub use pace::ScrubPace;
pub use run::Order;
pub(super) use run::Scrub;
pub use slots::{ScrubSlot, ScrubSlots};
pub(super) use work::Scrubbed;
pub use work::Strides;
