//! The object storage daemon: PG core, backends and daemon.

pub mod core;
pub mod daemon;
pub mod heartbeat;
pub mod pg;

pub use daemon::{Addrs, BeatPeer, Cut, Host, MkfsConfig, Osd, OsdConfig, OsdError, Parts, mkfs, run};

#[cfg(test)]
mod sim;
