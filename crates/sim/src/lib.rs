//! Whole clusters on a virtual clock, network and disk: all events follow from a seed alone.
//!
//! The OSDs are the daemon's own state (`spirula_osd::Osd`) on the real store, over a simulated
//! disk; the monitors are their real core; the clients are the real objecter.
//! `docs/design/simulation.md` tells what stands in for the rest: connections ([`Setup`] says what
//! happens to them) carry messages without sockets, frames and handshakes, and the monitors' log
//! stands in for Raft.
//!
//! At the end of a run all must be well again, every request answered, the history of every object
//! linearizable ([`linear`]), and all copies equal, or of coded pools fragments that belong together.

mod client;
mod clock;
mod contents;
mod copies;
mod exec;
mod fault;
pub mod group;
pub mod history;
pub mod linear;
mod mon;
mod net;
mod osd;
mod parallel;
pub mod places;
mod run;
mod setup;
mod trace;
mod world;

pub use parallel::first_of;
pub use run::run;
pub use setup::{Failure, Faults, Outcome, Setup};
